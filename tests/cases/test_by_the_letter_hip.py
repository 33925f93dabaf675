"""Cases C26 to C29b, the HIP runtime, as a user of the doubles writes them."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from hipfile_sim.hip.settings import HipSettings

from .letter import (
    BLOCKING,
    H2D,
    NON_BLOCKING,
    SLOW,
    Slots,
    c_program,
    pattern,
    quiet,
    reported,
    slab,
    watched,
)

ENGINES = pytest.mark.parametrize("engine", ["steps", "threads"])
NOT_READY, NOT_PERMITTED = 600, 800


def ids(c: Any) -> set[str]:
    return {finding.id for finding in c.sanitizer.findings}


# -- C26 ---------------------------------------------------------------------------------------------------------------


@ENGINES
def test_c26_an_event_never_recorded(engine: str) -> None:
    with c_program(engine=engine) as c:
        assert c.hip.hipEventQuery(c.event()) == 0  # query
        assert c.hip.hipEventSynchronize(c.event()) == 0
        assert c.hip.hipStreamWaitEvent(c.stream(), c.event(), 0) == 0
    found = [f for f in c.sanitizer.findings if f.id.startswith("event.")]
    assert {f.id for f in found} == {"event.query-unrecorded", "event.wait-unrecorded"}


@pytest.mark.torch
def test_c26_with_torch() -> None:
    with watched() as session:
        import torch

        assert torch.cuda.Event().query()  # query
    reported(session, "event.query-unrecorded", "# query")


@ENGINES
@pytest.mark.parametrize("kind", ["kernel", "host function"])
def test_c26_the_last_command_runs_and_the_queue_is_empty(engine: str, kind: str) -> None:
    with c_program(engine=engine, schedule="lazy") as c:
        stream, started, go = c.stream(), threading.Event(), threading.Event()
        event = c.event()

        def work(*_: Any) -> None:
            started.set()
            assert go.wait(60)

        if engine == "steps":
            c.hip.launch(stream, lambda: None, cost_ns=SLOW)
        elif kind == "kernel":
            c.hip.launch(stream, work)
        else:
            c.hip.hipLaunchHostFunc(stream, work)
        c.hip.hipEventRecord(event, stream)
        if engine == "threads":
            assert started.wait(60)
        assert c.hip.hipStreamQuery(stream) == NOT_READY
        assert c.hip.hipEventQuery(event) == NOT_READY
        assert c.hip.hipPeekAtLastError() == 0
        go.set()
        assert c.hip.hipStreamSynchronize(stream) == 0
        assert (c.hip.hipStreamQuery(stream), c.hip.hipEventQuery(event)) == (0, 0)


# -- C27 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["parallel", "lazy", "eager", "seeded:5"])
def test_c27_the_wait_is_for_the_first_record(schedule: str) -> None:
    with c_program(schedule=schedule) as c:
        one, two, event = c.stream(), c.stream(), c.event()
        order: list[str] = []
        c.hip.launch(one, lambda: order.append("first"), cost_ns=1000)
        c.hip.hipEventRecord(event, one)
        c.hip.hipStreamWaitEvent(two, event, 0)
        c.hip.launch(two, lambda: order.append("waiter"))
        c.hip.launch(one, lambda: order.append("second"), cost_ns=SLOW)
        c.hip.hipEventRecord(event, one)
        c.machine.stall(one, hold=False)
        c.hip.hipStreamSynchronize(two)
        assert order.index("first") < order.index("waiter")
        if schedule in ("parallel", "lazy"):
            assert order == ["first", "waiter"]


@pytest.mark.torch
def test_c27_recorded_again_on_another_stream_with_torch() -> None:
    with watched(schedule="lazy") as session:
        import torch

        one, two, three = (torch.cuda.Stream() for _ in range(3))
        event, order = torch.cuda.Event(), []
        session.hip.launch(one.cuda_stream, lambda: order.append(1), cost_ns=SLOW)
        event.record(one)
        two.wait_event(event)
        session.hip.launch(two.cuda_stream, lambda: order.append(2))
        event.record(three)
        event.synchronize()
        assert event.query()
        assert not two.query()
        two.synchronize()
        assert order == [1, 2]


# -- C28 ---------------------------------------------------------------------------------------------------------------


@ENGINES
@pytest.mark.parametrize("kind", [BLOCKING, NON_BLOCKING])
@pytest.mark.parametrize("null_first", [True, False])
@pytest.mark.parametrize("way", ["hipFileReadAsync", "hipFileWriteAsync"])
def test_c28_hipfile_operations_and_the_null_stream(
    tmp_path: Path, kind: int, null_first: bool, way: str, engine: str
) -> None:
    by_luck = engine == "threads" and kind == NON_BLOCKING  # then only the report is certain
    with c_program(engine=engine) as c:
        path = slab(tmp_path)
        handle, block, other = c.file(path), c.buffer(4096), c.stream(kind)
        first, second = (0, other) if null_first else (other, 0)
        slots = Slots(4096, 0, 0, 0)
        if way == "hipFileWriteAsync":

            def run() -> None:
                c.memory.view(block, 4096)[:] = b"\x77" * 4096

            c.hip.launch(first, run, writes=[(block, 4096)], cost_ns=SLOW)
            c.hipfile.hipFileWriteAsync(handle, block, *slots.pointers, second)
            c.hip.hipDeviceSynchronize()
            assert by_luck or (path.read_bytes()[:4096] == b"\x77" * 4096) is (kind == BLOCKING)
        else:
            seen: list[bytes] = []
            c.machine.stall(first)
            c.hipfile.hipFileReadAsync(handle, block, *slots.pointers, first)
            c.hip.launch(second, lambda: seen.append(c.bytes_at(block, 4096)), reads=[(block, 4096)])
            c.hip.hipDeviceSynchronize()
            assert by_luck or (seen == [pattern(4096)]) is (kind == BLOCKING)
    assert ("race.read-write" in ids(c)) is (kind == NON_BLOCKING)


@pytest.mark.parametrize("kind", [BLOCKING, NON_BLOCKING])
@pytest.mark.parametrize("call", ["hipMemcpy", "hipMemset"])
def test_c28_plain_calls_order_with_blocking_streams_only(kind: int, call: str) -> None:
    with c_program() as c:
        block, stream = c.malloc(4096), c.stream(kind)
        pinned = c.hip.hipHostMalloc(4096)[1]
        c.hip.launch(stream, lambda: None, writes=[(block, 4096)], cost_ns=SLOW)
        before = c.machine.clock.now
        if call == "hipMemcpy":
            c.hip.hipMemcpy(block, pinned, 4096, H2D)
        else:
            c.hip.hipMemset(block, 1, 4096)
            c.hip.hipStreamSynchronize(0)
        assert (c.machine.clock.now - before >= SLOW // 2) is (kind == BLOCKING)
        c.hip.hipDeviceSynchronize()
    assert ("race.write-write" in ids(c)) is (kind == NON_BLOCKING)


# -- C29 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["one", "per-stream", "cufile"])
@pytest.mark.parametrize("add", ["hipLaunchHostFunc", "hipStreamAddCallback"])
@ENGINES
def test_c29_two_host_functions_that_need_each_other(engine: str, how: str, add: str, expect_deadlock: Any) -> None:
    options: Any = {"profile": how} if how == "cufile" else {"settings": HipSettings(host_function_threads=how)}
    with c_program(engine=engine, **options) as c:
        one, two, told, begun = c.stream(), c.stream(), threading.Event(), threading.Event()
        waited: list[bool] = []
        getattr(c.hip, add)(one, lambda *_: begun.set() or waited.append(told.wait(60)))  # waits
        if engine == "threads":
            assert begun.wait(60)
        getattr(c.hip, add)(two, lambda *_: told.set())  # tells
        if how == "per-stream":
            c.hip.hipDeviceSynchronize()
            assert waited == [True]
        else:
            with expect_deadlock(c.machine.engine):
                c.hip.hipDeviceSynchronize()
            told.set()
    if how == "per-stream":
        quiet(c)
    else:
        reported(c, "hostfn.needs-two", "# waits", "# tells")


@ENGINES
@pytest.mark.parametrize("profile", ["0.5", "cufile"])
def test_c29_a_stream_held_by_a_host_function(profile: str, engine: str) -> None:
    """cufile: one thread runs the host functions of all streams, and kernels go on meanwhile."""
    with c_program(profile=profile, engine=engine) as c:
        one, two, begun, go, order = c.stream(), c.stream(), threading.Event(), threading.Event(), []
        threading.Timer(0.05, go.set).start()

        def hold(_: Any) -> None:
            begun.set()
            assert go.wait(60)
            order.append("held")

        c.hip.hipLaunchHostFunc(one, hold)
        if engine == "threads":
            assert begun.wait(60)
        c.hip.launch(one, lambda: order.append("behind"))
        c.hip.hipLaunchHostFunc(two, lambda _: order.append("other"))
        c.hip.hipDeviceSynchronize()
        assert order.index("held") < order.index("behind")
        if profile == "cufile":
            assert order.index("held") < order.index("other")


@pytest.mark.parametrize("calls", ["refuse", "report"])
@ENGINES
def test_c29_a_hip_call_inside_a_host_function(calls: str, engine: str) -> None:
    with c_program(engine=engine, settings=HipSettings(host_function_calls=calls)) as c:
        stream, codes = c.stream(), []
        c.hip.hipLaunchHostFunc(stream, lambda _: codes.append(int(c.hip.hipMalloc(64)[0])))
        c.hip.hipStreamSynchronize(stream)
        assert codes == [NOT_PERMITTED if calls == "refuse" else 0]
    assert "hostfn.hip-call" in ids(c)


@pytest.mark.parametrize("calls", ["refuse", "report"])
def test_c29_a_hipfile_call_inside_a_host_function(tmp_path: Path, calls: str) -> None:
    with c_program(settings=HipSettings(host_function_calls=calls)) as c:
        handle, block, stream, slots = c.file(slab(tmp_path)), c.buffer(4096), c.stream(), Slots(4096, 0, 0, 0)
        codes: list[Any] = []

        def submit(_: Any) -> None:
            codes.append(c.hipfile.hipFileReadAsync(handle, block, *slots.pointers, stream))  # inside

        c.hip.hipLaunchHostFunc(stream, submit)
        c.hip.hipStreamSynchronize(stream)
        c.hip.hipDeviceSynchronize()
        assert (codes[0].err == 0) is (calls == "report")
    assert "hostfn.hip-call" in ids(c), c.sanitizer.format("text")


# -- C29b --------------------------------------------------------------------------------------------------------------


@ENGINES
def test_c29b_the_thread_that_would_release_the_stream_submits_too_much(engine: str, expect_deadlock: Any) -> None:
    with c_program(engine=engine, settings=HipSettings(queue_limit=100)) as c:
        stream, block, go = c.stream(), c.malloc(4096), threading.Event()
        c.hip.hipLaunchHostFunc(stream, lambda _: go.wait(60))  # held

        def submit() -> None:
            for _ in range(120):
                c.hip.hipMemsetAsync(block, 1, 64, stream)

        with expect_deadlock(c.machine.engine):
            submit()
        go.set()
    assert "deadlock" in ids(c), c.sanitizer.format("text")


def test_c29b_a_wait_value_holds_it_and_hipfile_submits(expect_deadlock: Any) -> None:
    with c_program(profile="cufile") as c:
        path = Path(f"/var/tmp/c29b-{os.getpid()}")
        path.write_bytes(pattern(4096))
        handle, block, stream = c.file(path), c.buffer(4096), c.stream()
        path.unlink()
        gate = c.hip.hipHostMalloc(8)[1]
        c.memory.view(gate, 8)[:] = bytes(8)
        assert c.hip.hipStreamWaitValue64(stream, gate, 1, 0, 2**64 - 1) == 0
        slots = [Slots(64, 0, 0, 0) for _ in range(1100)]

        def submit() -> None:
            for one in slots:
                c.hipfile.hipFileReadAsync(handle, block, *one.pointers, stream)

        with expect_deadlock(c.machine.engine, match=r"1020|queue"):
            submit()
        c.memory.view(gate, 8)[:] = (1).to_bytes(8, "little")


@ENGINES
def test_c29b_without_a_holder_the_limit_only_blocks(engine: str) -> None:
    with c_program(engine=engine, settings=HipSettings(queue_limit=10)) as c:
        stream, block = c.stream(), c.malloc(4096)
        for _ in range(100):
            assert c.hip.hipMemsetAsync(block, 1, 64, stream) == 0
        assert c.hip.hipStreamSynchronize(stream) == 0
    quiet(c)
