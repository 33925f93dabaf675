"""The trace of a whole machine, in both engines: an asynchronous read, a kernel gated by an event, the host's wait."""

from __future__ import annotations

import os

import numpy as np
import pytest

from hipfile_sim import Machine
from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.observe.chrome import HOST_PID, chrome_trace
from hipfile_sim.observe.timeline import bars, steps
from hipfile_sim.observe.trace import Trace

SIZE = 4096


def load(machine: Machine, path) -> np.ndarray:
    """Read a page on one stream and use it on another; return the slots."""
    hip, hipfile = machine.hip, machine.hipfile
    hipfile.hipFileDriverOpen()
    fd = os.open(path, os.O_RDONLY)
    _, handle = hipfile.hipFileHandleRegister(FileDescr(1, fd))
    _, memory = hip.hipMalloc(SIZE)
    _, side = hip.hipStreamCreateWithFlags(1)
    _, compute = hip.hipStreamCreateWithFlags(1)
    _, event = hip.hipEventCreate()
    hipfile.hipFileStreamRegister(side, 0)
    slots = np.array([SIZE, 0, 0, -1], dtype=np.int64)
    base = slots.ctypes.data
    assert not hipfile.hipFileReadAsync(handle, memory, base, base + 8, base + 16, base + 24, side).err
    hip.hipEventRecord(event, side)
    hip.hipStreamWaitEvent(compute, event, 0)
    hip.launch(compute, lambda: None, reads=[(memory, SIZE)], name="attention")
    hip.hipStreamSynchronize(compute)
    hipfile.hipFileStreamDeregister(side)
    hipfile.hipFileHandleDeregister(handle)
    os.close(fd)
    return slots


@pytest.fixture(params=["steps", "threads"])
def traced(request, tmp_path):
    path = tmp_path / "page.bin"
    path.write_bytes(b"p" * SIZE)
    trace = Trace()
    with Machine(1, profile="0.5", engine=request.param, env={}, observers=[trace]) as machine:
        slots = load(machine, path)
    assert slots[3] == SIZE
    return trace


def test_every_command_has_run_and_belongs_to_a_call(traced):
    assert traced.commands
    for command in traced.commands:
        assert 0 <= command.submitted <= command.started <= command.finished
        assert command.call is not None
    read = [c for c in traced.commands if c.call.outermost.name == "hipFileReadAsync"]
    assert [c.lane.name for c in read] == [read[0].lane.name] * len(read)
    assert {c.call.outermost.site.function for c in read} == {"load"}


def test_slots_are_read_on_the_stream_and_the_count_is_written_last(traced):
    on_stream = [(s.name, s.write) for s in traced.slots if not s.thread]
    assert sorted(on_stream[:3]) == [("buffer_offset", False), ("file_offset", False), ("size", False)]
    assert on_stream[-1] == ("bytes_done", True)
    at_submit = [s for s in traced.slots if s.call is not None and s.call.name == "hipFileReadAsync"]
    assert {s.name for s in at_submit if not s.write} == {"size", "file_offset", "buffer_offset"}
    assert [s.name for s in at_submit if s.write] == ["bytes_done"]


def test_bytes_are_counted_where_they_move(traced):
    moved = {c.kind: c.nbytes for c in traced.commands if c.nbytes}
    assert moved["cpu_copy"] == moved["memcpy_kernel"] == SIZE
    (copied,) = [c for c in traced.commands if c.kind == "memcpy_kernel"]
    assert any(traced.place(a) == f"device 0 #1 [0, {SIZE})" for a in copied.accesses if a.write)


def test_the_wait_leads_back_to_the_command_it_waited_for(traced):
    (wait,) = [w for w in traced.waits if w.call is not None and w.call.name == "hipStreamSynchronize"]
    kernel = [c for c in traced.commands if c.kind == "kernel"][-1]
    assert (kernel.lane.index, kernel.ticket) in wait.targets


def test_chrome_export_is_whole(traced):
    events = chrome_trace(traced)["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert {"hipFileReadAsync", "launch", "hipStreamSynchronize"} <= {e["name"] for e in slices if e["pid"] == HOST_PID}
    arrows = [e["name"] for e in events if e["ph"] == "s"]
    assert {"submit", "wait"} <= set(arrows)
    assert arrows.count("submit") == len(traced.commands)
    rows = {}
    for e in slices:
        rows.setdefault((e["pid"], e["tid"]), []).append((round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)))
    for row in rows.values():
        open_until = []
        for start, end in sorted(row, key=lambda s: (s[0], -s[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1], "slices of a row cross"
            open_until.append(end)


def test_text_forms_name_both_streams(traced):
    drawn = bars(traced)
    assert drawn.count("|") == 4
    assert "hipFileReadAsync R size,foff,boff W done" in steps(traced, last=None, width=200)


def test_the_same_schedule_gives_the_same_signature(tmp_path):
    path = tmp_path / "page.bin"
    path.write_bytes(b"p" * SIZE)

    def signature(schedule: str) -> list[str]:
        trace = Trace()
        with Machine(1, schedule=schedule, env={}, observers=[trace]) as machine:
            load(machine, path)
            token = machine.token()
        return [token, *trace.signature()]

    first = signature("seeded:5")
    assert signature("seeded:5") == first
    assert signature(first[0])[1:] == first[1:]
    assert signature("eager")[1:] != first[1:]
