"""The trace and its exporters, fed by the engine itself with commands that touch slots, memory and files."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from hipfile_sim.engine import Access, Command, CostModel, StepEngine
from hipfile_sim.hip.memory import Block
from hipfile_sim.observe.chrome import DEVICE_PID, HOST_PID, chrome_trace, write_chrome
from hipfile_sim.observe.observer import Call, HostAccess, Note, Site, Wait, current_thread
from hipfile_sim.observe.timeline import bars, steps
from hipfile_sim.observe.trace import Trace

SLOTS = {"size_p": 0x5000, "file_offset_p": 0x5008, "buffer_offset_p": 0x5010, "bytes_p": 0x5018}
DEVICE = 0x100000


class Work(Command):
    """A command that declares what it is told to."""

    kind = "kernel"

    def __init__(self, label: str, *accesses: Access, cost: int = 5_000) -> None:
        super().__init__()
        self.label = label
        self._accesses = accesses
        self._cost = cost

    def accesses(self):
        return self._accesses

    def cost(self, model: CostModel) -> int:
        return self._cost


class Bench:
    """An engine with a trace, and host calls around submissions as the API makes them."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.engine = StepEngine()
        self.engine.observers = (self.trace,)
        self.side = self.engine.add_lane("stream 1", 0)
        self.other = self.engine.add_lane("stream 2", 1)
        self.seq = 0

    def call(self, name: str, body=lambda: 0, api: str = "hip", **args: object) -> object:
        self.seq += 1
        clock = self.engine.clock
        site = Site("prog.py", self.seq, "main")
        call = Call(self.seq, api, name, args, current_thread(), site, clock.now)
        self.trace.call(call)
        call.result = body()
        call.end_time = clock.advance(1_000)
        self.trace.returned(call)
        return call.result

    def wait(self, lane, name="hipStreamSynchronize") -> None:
        def body() -> int:
            targets = [lane.tail]
            self.engine.wait(targets, name)
            self.trace.waited(Wait(current_thread(), targets, name, None))
            return 0

        self.call(name, body)


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.trace.allocated(Block(1, DEVICE, 4096, "device", 0, 0, None))
    read = [Access("mem", SLOTS[n], 8, False) for n in ("size_p", "file_offset_p", "buffer_offset_p")]
    made.call(
        "hipFileReadAsync",
        lambda: [
            made.engine.submit(made.side, Work("bind", *read, cost=2_000)),
            made.engine.submit(made.side, Work("fill", Access("mem", DEVICE + 100, 512, True), cost=40_000)),
            made.engine.submit(made.side, Work("cleanup", Access("mem", SLOTS["bytes_p"], 8, True), cost=2_000)),
        ],
        api="hipfile",
        **SLOTS,
    )
    made.call(
        "launch",
        lambda: made.engine.submit(
            made.other,
            Work("attend", Access("mem", DEVICE, 600, False), Access(("file", 1, 2), 0, 10, True), cost=9_000),
            (made.side.tail,),
        ),
    )
    made.wait(made.other)
    made.trace.host_access(
        HostAccess(Access("mem", SLOTS["bytes_p"], 8, False), current_thread(), None, "AsyncIOHandle.bytes_done")
    )
    made.trace.note(Note("event.never-recorded", "the event was never recorded"))
    return made


def test_a_command_knows_its_call_its_times_and_what_it_touched(bench):
    bind, fill, cleanup, attend = bench.trace.commands
    assert [c.call.name for c in (bind, fill, cleanup, attend)] == ["hipFileReadAsync"] * 3 + ["launch"]
    assert fill.submitted <= fill.started < fill.finished == cleanup.started < cleanup.finished <= attend.started
    assert fill.finished - fill.started == 40_000
    assert [fill.nbytes, cleanup.nbytes, attend.nbytes] == [512, 0, 10]
    assert attend.deps == [(bench.side.index, 3)]


def test_slots_are_named_by_the_call_that_handed_them_over(bench):
    seen = [(s.name, s.write, s.operation, s.what) for s in bench.trace.slots]
    assert seen == [
        ("size", False, 1, "kernel bind"),
        ("file_offset", False, 1, "kernel bind"),
        ("buffer_offset", False, 1, "kernel bind"),
        ("bytes_done", True, 1, "kernel cleanup"),
        ("bytes_done", False, 1, "AsyncIOHandle.bytes_done"),
    ]


def test_places_have_names(bench):
    place = bench.trace.place
    assert place(Access("mem", DEVICE + 100, 512, True)) == "device 0 #1 [100, 612)"
    assert place(Access("mem", SLOTS["size_p"], 8, False)) == "size slot of call 1"
    assert place(Access(("file", 8, 9), 4, 6, True)) == "file 8:9 [4, 10)"
    assert place(Access("mem", DEVICE + 4096, 1, True)) == "host memory 0x101000 [1 bytes]"


def test_addresses_that_are_handed_out_again_get_a_new_name(bench):
    bench.trace.allocated(Block(2, DEVICE, 16, "device", 1, 0, None))
    assert bench.trace.place(Access("mem", DEVICE + 8, 8, True)) == "device 1 #2 [8, 16)"


def test_limit_keeps_the_newest():
    trace = Trace(limit=2)
    engine = StepEngine()
    engine.observers = (trace,)
    lane = engine.add_lane("s")
    for label in "abc":
        engine.submit(lane, Work(label))
    engine.wait([lane.tail], "end")
    assert [c.label for c in trace.commands] == ["kernel b", "kernel c"]
    assert all(c.finished > 0 for c in trace.commands)


def test_a_call_that_raised_ends_with_the_next_return():
    bench = Bench()
    with pytest.raises(ZeroDivisionError):
        bench.call("broken", lambda: 1 // 0)
    bench.call("fine")
    assert bench.trace._current_call(current_thread()).name == "broken"
    outer = Call(90, "hip", "outer", {}, current_thread(), None, 0)
    inner = Call(91, "hip", "inner", {}, current_thread(), None, 0)
    bench.trace.call(outer)
    bench.trace.call(inner)
    bench.trace.returned(outer)
    assert all(c.end >= 0 for c in bench.trace.calls if c.name in ("outer", "inner"))


def test_signature_is_equal_for_equal_runs_and_has_no_addresses():
    def run(cost: int) -> list[str]:
        bench = Bench()
        bench.call("launch", lambda: bench.engine.submit(bench.side, Work("k", cost=cost)))
        bench.wait(bench.side)
        return bench.trace.signature()

    assert run(5) == run(5) != run(6)
    assert "0x" not in " ".join(run(5))


# --------------------------------------------------------------------------------------------------------------- Chrome


def by(events, **wanted):
    return [e for e in events if all(e.get(k) == v for k, v in wanted.items())]


def test_chrome_events_have_the_fields_of_the_format(bench):
    exported = json.loads(json.dumps(chrome_trace(bench.trace)))
    assert exported["displayTimeUnit"] == "ns"
    assert exported["otherData"] == {"clock": "virtual", "calls": 3, "commands": 4, "not_run": 0}
    for event in exported["traceEvents"]:
        assert event["ph"] in {"X", "M", "i", "s", "f"}
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] > 0
        if event["ph"] == "i":
            assert event["s"] == "t"


def test_chrome_rows_are_streams_per_device_and_host_threads(bench):
    events = chrome_trace(bench.trace)["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in by(events, name="process_name")}
    rows = {(e["pid"], e["args"]["name"]) for e in by(events, name="thread_name")}
    assert processes == {HOST_PID: "host", DEVICE_PID: "device 0", DEVICE_PID + 1: "device 1"}
    assert rows == {(HOST_PID, "host thread 1"), (DEVICE_PID, "stream 1"), (DEVICE_PID + 1, "stream 2")}
    named = {(e["pid"], e["tid"]) for e in by(events, name="thread_name")}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xisf"} <= named


def test_chrome_slices_of_a_row_follow_or_enclose_each_other(bench):
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in by(chrome_trace(bench.trace)["traceEvents"], ph="X"):
        rows.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for slices in rows.values():
        ordered = sorted(slices)
        for (_, end), (start, other_end) in pairwise(ordered):
            assert start >= end or other_end <= end


def test_chrome_arrows_come_in_pairs_and_each_end_is_inside_a_slice(bench):
    events = chrome_trace(bench.trace)["traceEvents"]
    slices = by(events, ph="X")
    starts, ends = by(events, ph="s"), by(events, ph="f")
    assert sorted(e["id"] for e in starts) == sorted(e["id"] for e in ends) == list(range(1, len(starts) + 1))
    assert [e["name"] for e in starts].count("submit") == 4
    assert [e["name"] for e in starts].count("order") == 1
    assert [e["name"] for e in starts].count("wait") == 1
    times = {e["id"]: e["ts"] for e in starts}
    for end in ends:
        assert end["bp"] == "e"
        assert end["ts"] >= times[end["id"]]
    for e in starts + ends:
        own = by(slices, pid=e["pid"], tid=e["tid"])
        assert any(s["ts"] <= e["ts"] <= s["ts"] + s["dur"] for s in own), e


def test_chrome_has_times_in_us_and_what_was_touched(bench):
    events = chrome_trace(bench.trace)["traceEvents"]
    (fill,) = by(events, name="kernel fill")
    assert fill["dur"] == 40.0
    assert fill["args"]["touches"] == ["writes device 0 #1 [100, 612)"]
    slots = [(e["name"], e["pid"]) for e in by(events, cat="slot")]
    assert slots.count(("write bytes_done", DEVICE_PID)) == 1
    assert slots.count(("read bytes_done", HOST_PID)) == 1
    assert by(events, cat="note")[0]["name"] == "event.never-recorded"


def test_chrome_leaves_out_what_has_not_run(tmp_path):
    bench = Bench()
    bench.engine.submit(bench.side, Work("never"))
    exported = chrome_trace(bench.trace)
    assert exported["otherData"]["not_run"] == 1
    assert by(exported["traceEvents"], ph="X") == []
    write_chrome(bench.trace, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(json.dumps(exported))


# ------------------------------------------------------------------------------------------------------------- timeline


def test_bars_show_one_row_a_stream_in_proportion(bench):
    lines = bars(bench.trace, width=80).splitlines()
    assert [line.split("|")[0].strip() for line in lines[:2]] == ["0:stream 1", "1:stream 2"]
    assert all(len(line) <= 80 for line in lines)
    first, second = (line.split("|")[1] for line in lines[:2])
    assert len(first) == len(second)
    assert first.count("K") > 3 * second.count("K") > 0
    assert second.index("K") >= first.rstrip().rindex("K")


def test_steps_put_each_step_in_its_column(bench):
    lines = steps(bench.trace, width=120).splitlines()
    header = lines[0]
    side, other = header.index("0:stream 1"), header.index("1:stream 2")
    (fill,) = [line for line in lines if "kernel fill" in line]
    (attend,) = [line for line in lines if "kernel attend" in line]
    assert fill.index("kernel fill") == side
    assert "512 B" in fill
    assert attend.index("kernel attend") == other
    assert lines.index(fill) < lines.index(attend)
    assert any("kernel bind R size,foff,boff" in line for line in lines)
    assert any("read bytes_done" in line for line in lines)
    assert all(len(line) <= 120 for line in lines)


def test_steps_keep_the_last_and_say_how_many_are_hidden(bench):
    lines = steps(bench.trace, last=2).splitlines()
    assert len(lines) == 4
    assert "earlier steps" in lines[1]
    assert "read bytes_done" in lines[-1]


def test_steps_can_show_both_ends(bench):
    every = steps(bench.trace, last=None).splitlines()
    lines = steps(bench.trace, first=2, last=1).splitlines()
    assert lines[1:3] == every[1:3]
    assert lines[3].split() == ["...", str(len(every) - 4), "steps"]
    assert [line.split() for line in lines[4:]] == [line.split() for line in every[-1:]]
    assert steps(bench.trace, first=3, last=100).splitlines() == every


def test_steps_leave_out_inner_calls_and_on_request_idle_ones():
    bench = Bench()
    bench.call("hipMalloc")
    bench.call(
        "hipFileReadAsync",
        lambda: bench.call("hipMemcpyAsync", lambda: bench.engine.submit(bench.side, Work("k"))),
        api="hipfile",
    )
    bench.wait(bench.side)
    shown = steps(bench.trace)
    assert "hipMalloc" in shown
    assert "hipMemcpyAsync" not in shown
    assert "hipMalloc" not in steps(bench.trace, all_calls=False)
    assert "hipFileReadAsync" in steps(bench.trace, all_calls=False)
    assert "hipStreamSynchronize" in steps(bench.trace, all_calls=False)


def test_an_instant_hides_no_bar():
    trace = Trace()
    engine = StepEngine()
    engine.observers = (trace,)
    lane = engine.add_lane("s")
    for command in (Work("long", cost=1000), Work("instant", cost=0)):
        engine.submit(lane, command)
    trace.commands[1].kind = "record"
    engine.wait([lane.tail], "end")
    row = bars(trace).splitlines()[0]
    assert "=" not in row
    assert row.count("K") > 80


def test_empty_traces_say_so():
    assert bars(Trace()) == "(no command has run)"
    assert steps(Trace()) == "(nothing has happened)"
