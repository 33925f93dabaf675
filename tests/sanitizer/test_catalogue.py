"""Each wrong program has exactly its report, each right one none; and every edge and every check is needed."""

from __future__ import annotations

import threading

import pytest
from catalogue import PROGRAMS, Program, load
from catalogue.world import World

from hipfile_sim.engine.command import Access
from hipfile_sim.observe.observer import HostAccess
from hipfile_sim.observe.sanitizer import CHECKS, Edge, Sanitizer

load()
SCHEDULES = ("parallel", "lazy", "eager", "seeded:1")
PAIRS = [
    pytest.param(program, schedule, id=f"{program.name}-{schedule}")
    for program in PROGRAMS.values()
    for schedule in (program.schedules or SCHEDULES)
]


def run(program: Program, schedule: str = "", sanitizer: Sanitizer | None = None, **options: object) -> Sanitizer:
    """Run a program to its end."""
    schedule = schedule or (program.schedules or SCHEDULES)[0]
    with World(sanitizer, schedule=schedule, **{**program.options, **options}) as world:  # type: ignore[arg-type]
        program.body(world)
    child = getattr(world, "from_child", None)
    if child is not None:
        world.sanitizer.child_ids = child  # type: ignore[attr-defined]
    return world.sanitizer


def ids(sanitizer: Sanitizer) -> set[str]:
    """Ids that were found, by a forked child too."""
    return {finding.id for finding in sanitizer.findings} | set(getattr(sanitizer, "child_ids", ()))


@pytest.mark.parametrize(("program", "schedule"), PAIRS)
def test_exactly_its_report(program: Program, schedule: str) -> None:
    sanitizer = run(program, schedule)
    expected = {program.expected} if program.expected else set()
    assert ids(sanitizer) == expected, sanitizer.format(colour=False)


@pytest.mark.parametrize("profile", ["0.2", "0.3", "0.4", "cufile"])
def test_no_false_alarm_in_other_releases(profile: str) -> None:
    for program in PROGRAMS.values():
        unsupported = profile == "cufile" and "BatchIOSetUp" in program.body.__code__.co_names
        if program.expected is None and "profile" not in program.options and not unsupported:
            sanitizer = run(program, profile=profile)
            assert not sanitizer.findings, f"{program.name}: {sanitizer.format(colour=False)}"


def test_no_false_alarm_with_real_threads() -> None:
    for program in PROGRAMS.values():
        if program.expected is None and "fork" not in program.body.__code__.co_names:
            sanitizer = run(program, engine="threads")
            assert not sanitizer.findings, f"{program.name}: {sanitizer.format(colour=False)}"


def test_a_flag_between_real_threads_orders_every_time() -> None:
    """The waiting stream's thread must not go on between the write and its end."""
    for _ in range(100):
        sanitizer = run(PROGRAMS["flag_between_streams"], engine="threads")
        assert not sanitizer.findings, sanitizer.format(colour=False)


def test_races_are_found_with_real_threads() -> None:
    """Whether two accesses are ordered does not depend on which came first this time."""
    for program in PROGRAMS.values():
        if program.expected is not None and program.family == "races":
            assert ids(run(program, engine="threads")) == {program.expected}


@pytest.mark.parametrize("program", [p for p in PROGRAMS.values() if p.expected], ids=lambda p: p.name)
def test_reports_are_complete(program: Program) -> None:
    """Both places where there are two, user lines only, and something to do about it."""
    for finding in run(program).findings:
        assert finding.places
        assert finding.message
        assert finding.fix
        for place in finding.places:
            if place.site is not None:
                assert "catalogue" in place.site.filename, place


def test_there_are_enough() -> None:
    wrong = [p for p in PROGRAMS.values() if p.expected]
    right = [p for p in PROGRAMS.values() if not p.expected]
    assert len(wrong) + len(right) >= 60
    assert len(right) >= 30
    for program in PROGRAMS.values():
        assert program.twin in PROGRAMS, f"{program.name} has no twin {program.twin}"
        assert bool(PROGRAMS[program.twin].expected) != bool(program.expected)


def test_every_case_is_there() -> None:
    have = {case for program in PROGRAMS.values() for case in program.cases}
    wanted = "C01 C05 C06 C16 C17 C18 C19 C20 C21 C22 C23 C24 C25 C29 C30 C32 C38 C39"
    assert set(wanted.split()) <= have


# -- mutations: what is taken away must be missed

_BY_EDGE = {
    Edge.ENQUEUE: "upload_then_sync",
    Edge.STREAM_ORDER: "store_of_written_memory",
    Edge.STREAM_SYNC: "download_then_sync",
    Edge.EVENT_SYNC: "slots_reused_after_event",
    Edge.DEVICE_SYNC: "device_synchronised",
    Edge.COPY_SYNC: "plain_copy_blocks",
    Edge.FREE_SYNC: "free_waits_for_the_device",
    Edge.QUERY: "order_through_a_query",
    Edge.EVENT_WAIT: "store_after_kernel",
    Edge.NULL_STREAM: "null_stream_orders_blocking",
    Edge.HOST_FUNCTION: "host_function_writes_in_order",
    Edge.VALUE: "flag_between_streams",
    Edge.THREAD: "thread_joined_before_the_write",
}


@pytest.mark.parametrize("edge", list(Edge), ids=lambda edge: edge.name)
def test_every_edge_is_needed(edge: Edge) -> None:
    """With one kind of edge gone, a right program is reported."""
    program = PROGRAMS[_BY_EDGE[edge]]
    assert program.expected is None
    assert not run(program).findings
    mutant = Sanitizer(dropped=[edge], host_threads=program.options.get("host_threads", "assumed"))
    assert run(program, sanitizer=mutant).findings, f"nothing in the catalogue needs {edge.name}"


@pytest.mark.parametrize("check", sorted(set(CHECKS) - {"model.remark"}))
def test_every_check_is_needed(check: str) -> None:
    """With one check gone, a wrong program passes for right."""
    caught = [program for program in PROGRAMS.values() if program.expected == check]
    assert caught, f"no program of the catalogue is reported with {check}"
    assert check not in ids(run(caught[0], sanitizer=Sanitizer(without=[check])))


def test_what_runs_as_a_kernel_is_no_host_code() -> None:
    """Its accesses are the kernel's, in the order of its stream."""
    with World() as w:
        file, buffer, stream = w.file(), w.buffer(), w.stream()
        io = w.read(file, buffer, w.slots(), stream)

        def kernel() -> None:
            access = Access("mem", io.base + 24, 8, False)
            w.sanitizer.host_access(HostAccess(access, threading.get_ident(), None, "bytes_done read"))

        w.ok(w.hip.launch(stream, kernel))
        w.sync(stream)
    assert not w.sanitizer.findings, w.sanitizer.format()


def test_one_sanitizer_watches_one_machine() -> None:
    sanitizer = Sanitizer()
    with World(sanitizer), pytest.raises(ValueError, match="make one for each"):
        World(sanitizer)


def test_remarks_of_the_model_are_passed_on() -> None:
    """A cleanup that cannot be queued: the library only logs it."""
    with World(tidy=False) as w:
        file, buffer, stream = w.file(), w.buffer(), w.stream()
        launched: list[str] = []

        def refuse(name: str, args: object) -> int | None:
            launched.append(name)
            return 1 if name == "hipLaunchHostFunc" and launched.count(name) > 1 else None

        w.hip.interpose = refuse
        w.hipfile.hipFileReadAsync(file, buffer, *w.slots().addresses, stream)
        w.hip.interpose = None
    found = [finding for finding in w.sanitizer.findings if finding.id == "model.remark"]
    assert len(found) == 1
    assert "[submit.launch-error]" in found[0].message


def test_it_may_come_late() -> None:
    """Commands that were queued before anybody watched are in order with those queued after."""
    with World() as w:
        stream, block = w.stream(register=False), w.device()
        w.machine.remove_observer(w.sanitizer)
        late = Sanitizer("leak.*=off")
        w.machine.stall(stream, hold=True)
        w.kernel(stream, writes=[(block, 64)], name="before")
        w.machine.add_observer(late)
        pinned = w.pinned(64)
        w.poke(pinned, bytes(64))
        w.copy(block, pinned, stream, 1, 64)
        w.machine.unstall(stream)
        w.sync(stream)
        w.poke(pinned, bytes(64))
    late.finish()
    assert not late.findings, late.format()
