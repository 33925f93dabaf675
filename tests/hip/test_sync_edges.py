"""What the sanitizer takes for an edge to the host really stops the host, and nothing else does so by name."""

from __future__ import annotations

import ctypes
import mmap

import pytest

from hipfile_sim import HipSettings, Machine
from hipfile_sim.hip import HipError, Runtime
from hipfile_sim.observe.observer import Observer
from hipfile_sim.observe.sanitizer.core import SYNC_EDGES
from hipfile_sim.observe.sanitizer.hb import Edge

from .conftest import NON_BLOCKING, Held, create, malloc


class Waits(Observer):
    """The edges to the host."""

    def __init__(self):
        self.seen = []

    def waited(self, wait):
        self.seen.append((wait.what.split("(", 1)[0].split(" ", 1)[0], [lane.name for lane, _ in wait.targets]))


def prepare(hip, name, stream):
    """Arguments of the call."""
    if name.startswith("hipStream"):
        return (stream,)
    if name == "hipEventElapsedTime":
        events = [hip.hipEventCreate()[1] for _ in range(2)]
        for event in events:
            hip.hipEventRecord(event, stream)
        return tuple(events)
    if name.startswith("hipEvent"):
        event = hip.hipEventCreate()[1]
        hip.hipEventRecord(event, stream)
        return (event,)
    if name == "hipHostUnregister":
        memory = mmap.mmap(-1, 4096)
        pointer = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        assert hip.hipHostRegister(pointer, 4096) == 0
        hip.kept = memory
        return (pointer,)
    if name == "hipHostFree":
        return (hip.hipHostMalloc(64)[1],)
    return (malloc(hip),) if name == "hipFree" else ()


def code_of(result):
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("name", sorted(SYNC_EDGES))
def test_an_edge_to_the_host_is_a_wait(make, name, expect_deadlock):
    waits = Waits()
    machine = make(observers=[waits])
    hip = machine.hip
    stream = create(hip, NON_BLOCKING)
    lane = hip.lookup_stream(stream).lane.name
    if name in ("hipFree", "hipHostFree", "hipHostUnregister"):
        arguments = prepare(hip, name, stream)
        hold = Held(hip, stream)
    else:
        hold = Held(hip, stream)
        arguments = prepare(hip, name, stream)
    if SYNC_EDGES[name] is Edge.QUERY:
        assert code_of(getattr(hip, name)(*arguments)) == HipError.hipErrorNotReady
    else:
        with expect_deadlock(hip.engine, match=name):
            getattr(hip, name)(*arguments)
    assert waits.seen == []  # nobody has learnt anything
    hold.release()
    if SYNC_EDGES[name] is Edge.QUERY:  # a query makes nothing happen by itself
        machine.finish()
        waits.seen.clear()
    assert code_of(getattr(hip, name)(*arguments)) == 0
    told = [what for what, lanes in waits.seen if lane in lanes]
    assert told == [name]


CALLS = {
    "hipEventDestroy": lambda hip, stream: prepare(hip, "hipEventQuery", stream),
    "hipStreamDestroy": lambda hip, stream: (create(hip),),
    "hipMemsetAsync": lambda hip, stream: (malloc(hip), 1, 64, stream),
    "hipHostRegister": lambda hip, stream: (hip.area, 4096),
    "hipMalloc": lambda hip, stream: (64,),
    "hipHostMalloc": lambda hip, stream: (64,),
    "hipEventRecord": lambda hip, stream: (hip.hipEventCreate()[1], stream),
    "hipStreamWaitEvent": lambda hip, stream: (stream, *prepare(hip, "hipEventQuery", stream)),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_other_calls_are_no_edge(make, name):
    waits = Waits()
    hip = make(observers=[waits]).hip
    memory = mmap.mmap(-1, 4096)
    hip.area = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    stream = create(hip, NON_BLOCKING)
    hold = Held(hip, stream)
    assert code_of(getattr(hip, name)(*CALLS[name](hip, stream))) == 0
    assert waits.seen == []
    hold.release()
    hip.hipDeviceSynchronize()


def test_the_table_names_calls_that_exist():
    assert set(SYNC_EDGES) <= set(Runtime.CALLS)


@pytest.mark.parametrize("setting", ["wait", "return"])
def test_a_memset_that_returns_at_once_tells_the_host_nothing(setting):
    waits = Waits()
    with Machine(1, schedule="lazy", settings=HipSettings(device_only_calls=setting), observers=[waits]) as machine:
        pointer = malloc(machine.hip)
        assert machine.hip.hipMemset(pointer, 7, 64) == 0
        done = setting == "wait"
        assert bytes(machine.memory.view(pointer, 64)) == (b"\7" if done else b"\0") * 64
        assert [what for what, _ in waits.seen] == ["set"] * done
