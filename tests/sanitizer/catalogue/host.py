"""Host functions, deadlocks, devices, pointers and fork."""

from __future__ import annotations

import os
import threading

import pytest

from catalogue.registry import right, wrong
from catalogue.world import D2H, H2D, World
from hipfile_sim.engine.errors import DeadlockError
from hipfile_sim.hip.settings import HipSettings

ONE = HipSettings(host_function_threads="one")


@wrong("hostfn.hip-call", twin="host_function_sets_a_flag", cases="C29", faces="model c")
def hip_call_in_host_function(w: World) -> None:
    stream = w.stream(register=False)
    w.host_function(stream, lambda: w.hip.hipMalloc(64))
    w.sync(stream)


@wrong("hostfn.hip-call", twin="host_function_sets_a_flag", cases="C29", faces="model c")
def operation_submitted_in_host_function(w: World) -> None:
    file, buffer, stream, io = w.file(), w.buffer(), w.stream(), w.slots()
    w.host_function(stream, lambda: w.hipfile.hipFileReadAsync(file, buffer, *io.addresses, stream))
    w.read(file, buffer, w.slots(), stream)
    w.sync(stream)


@right("hip_call_in_host_function", cases="C29", faces="model c")
def host_function_sets_a_flag(w: World) -> None:
    stream, reached = w.stream(register=False), threading.Event()
    w.host_function(stream, reached.set)
    w.sync(stream)
    assert reached.is_set()


@wrong(
    "hostfn.hip-call", twin="host_function_sets_a_flag", cases="C29", settings=HipSettings(host_function_calls="report")
)
def hip_call_in_host_function_goes_through(w: World) -> None:
    stream = w.stream(register=False)
    w.host_function(stream, lambda: w.hip.hipPointerGetAttributes(0))
    w.sync(stream)


@wrong(
    "hostfn.needs-two",
    twin="host_functions_one_after_the_other",
    cases="C29",
    settings=ONE,
    tidy=False,
    faces="model",
)
def host_functions_wait_for_each_other(w: World) -> None:
    one, two, gate = w.stream(register=False), w.stream(register=False), threading.Event()
    w.host_function(one, lambda: gate.wait(60))
    w.host_function(two, gate.set)
    try:
        w.sync(one)
    except DeadlockError:
        gate.set()


@right("host_functions_wait_for_each_other", cases="C29", settings=ONE, faces="model c")
def host_functions_one_after_the_other(w: World) -> None:
    one, two, order = w.stream(register=False), w.stream(register=False), []
    w.host_function(one, lambda: order.append(1))
    w.wait_stream(two, one)
    w.host_function(two, lambda: order.append(2))
    w.sync(two)
    assert order == [1, 2]


@wrong("deadlock", twin="value_written_before_the_wait", cases="C32 C29b", tidy=False, faces="model")
def value_written_after_the_wait(w: World) -> None:
    stream, gate = w.stream(register=False), w.signal()
    w.ok(w.hip.hipStreamWaitValue64(stream, gate, 1))
    with pytest.raises(DeadlockError, match="waiting for a value"):
        w.sync(stream)
    w.poke(gate, (1).to_bytes(8, "little"))


@right("value_written_after_the_wait", cases="C32 C29b", faces="model c")
def value_written_before_the_wait(w: World) -> None:
    stream, gate = w.stream(register=False), w.signal()
    w.ok(w.hip.hipStreamWaitValue64(stream, gate, 1))
    w.poke(gate, (1).to_bytes(8, "little"))
    w.sync(stream)


@wrong("deadlock", twin="free_after_the_value", cases="C32", tidy=False, faces="model c")
def free_while_the_stream_needs_this_thread(w: World) -> None:
    stream, gate, block = w.stream(register=False), w.signal(), w.device()
    w.ok(w.hip.hipStreamWaitValue64(stream, gate, 1))
    try:
        w.hip.hipFree(block)  # waits for the stream, which waits for the line below
    except DeadlockError:
        pass
    w.poke(gate, (1).to_bytes(8, "little"))


@right("free_while_the_stream_needs_this_thread", cases="C32", faces="model c")
def free_after_the_value(w: World) -> None:
    stream, gate, block = w.stream(register=False), w.signal(), w.device()
    w.ok(w.hip.hipStreamWaitValue64(stream, gate, 1))
    w.poke(gate, (1).to_bytes(8, "little"))
    w.ok(w.hip.hipFree(block))


@wrong(
    "deadlock",
    twin="queue_drained_in_time",
    cases="C29b",
    settings=HipSettings(queue_limit=4),
    tidy=False,
    faces="model c",
)
def queue_full_on_a_held_stream(w: World) -> None:
    stream, gate = w.stream(register=False), w.signal()
    w.ok(w.hip.hipStreamWaitValue64(stream, gate, 1))
    try:
        for _ in range(8):
            w.kernel(stream, name="step")
    except DeadlockError:
        pass
    w.poke(gate, (1).to_bytes(8, "little"))


@right("queue_full_on_a_held_stream", cases="C29b", settings=HipSettings(queue_limit=4), faces="model c")
def queue_drained_in_time(w: World) -> None:
    stream = w.stream(register=False)
    for _ in range(8):
        w.kernel(stream, name="step")
    w.sync(stream)


@wrong("event.wait-unrecorded", twin="event_recorded_first", faces="model python torch c")
def wait_for_an_event_never_recorded(w: World) -> None:
    stream, event = w.stream(register=False), w.event()
    w.wait(stream, event)
    w.kernel(stream, name="step")
    w.sync(stream)


@right("wait_for_an_event_never_recorded", faces="model python torch c")
def event_recorded_first(w: World) -> None:
    one, two, event = w.stream(register=False), w.stream(register=False), w.event()
    w.record(event, one)
    w.wait(two, event)
    w.sync(two)


@wrong("event.query-unrecorded", twin="event_queried_after_record", cases="C26", faces="model python c")
def query_of_an_event_never_recorded(w: World) -> None:
    w.ok(w.hip.hipEventQuery(w.event()))


@right("query_of_an_event_never_recorded", cases="C26", faces="model python c")
def event_queried_after_record(w: World) -> None:
    stream, event = w.stream(register=False), w.event()
    w.record(event, stream)
    w.sync(stream)
    w.ok(w.hip.hipEventQuery(event))


@wrong("device.mismatch", twin="stream_and_buffer_of_one_device", cases="C30", faces="model c")
def stream_of_another_device(w: World) -> None:
    file, buffer, used, stream = w.file(), w.buffer(device=1), w.buffer(), w.stream()
    io = w.slots()
    assert w.hipfile.hipFileReadAsync(file, buffer, *io.addresses, stream).err == 5022
    w.read(file, used, io, stream)
    w.sync(stream)


@wrong("device.mismatch", twin="stream_and_buffer_of_one_device", cases="C30", faces="model c")
def another_device_is_current(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(device=1), w.stream(device=1)
    w.read(file, buffer, w.slots(), stream)  # device 0 is current
    w.sync(stream)


@right("stream_of_another_device", cases="C30", faces="model python torch c")
def stream_and_buffer_of_one_device(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(device=1), w.stream(device=1)
    w.ok(w.hip.hipSetDevice(1))
    w.read(file, buffer, w.slots(), stream)
    w.sync(stream)


@wrong("device.pointer-as-host", twin="bytes_copied_to_the_host", cases="C39", faces="model python torch")
def host_reads_device_memory(w: World) -> None:
    block = w.device()
    w.machine.host_access(block, 8, write=False, what="memcpy in a helper")


@right("host_reads_device_memory", cases="C39", faces="model python torch c")
def bytes_copied_to_the_host(w: World) -> None:
    block, stage = w.device(), w.pinned()
    w.ok(w.hip.hipMemcpy(stage, block, 4096, D2H))
    w.peek(stage)


@wrong("device.pointer-as-host", twin="bytes_copied_to_the_host", cases="C39", faces="model c")
def copy_in_the_wrong_direction(w: World) -> None:
    block, stage = w.device(), w.pinned()
    w.poke(stage, bytes(4096))
    w.hip.hipMemcpy(stage, block, 4096, H2D)


@wrong("device.pointer-as-host", twin="slots_in_host_memory", cases="C39", faces="model c")
def slots_in_device_memory(w: World) -> None:
    file, buffer, stream, slots = w.file(), w.buffer(), w.stream(), w.device()
    w.hipfile.hipFileReadAsync(file, buffer, slots, slots + 8, slots + 16, slots + 24, stream)
    w.read(file, buffer, w.slots(), stream)
    w.sync(stream)


@right("slots_in_device_memory", cases="C39", faces="model c")
def slots_in_host_memory(w: World) -> None:
    """Pinned slots are fine."""
    file, buffer, stream, slots = w.file(), w.buffer(), w.stream(), w.pinned(32)
    w.poke(slots, (4096).to_bytes(8, "little") + bytes(24))
    w.ok(w.hipfile.hipFileReadAsync(file, buffer, slots, slots + 8, slots + 16, slots + 24, stream))
    w.sync(stream)
    assert w.peek(slots + 24) == (4096).to_bytes(8, "little")


@wrong("fork.after-init", twin="no_call_after_fork", cases="C38", faces="model c")
def call_in_a_forked_child(w: World) -> None:
    """The child's findings come back through a pipe."""
    w.device()
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            w.hip.hipMalloc(64)
            os.write(writer, ",".join(finding.id for finding in w.sanitizer.findings).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as pipe:
        w.from_child = pipe.read().split(",")


@right("call_in_a_forked_child", cases="C38", faces="model c")
def no_call_after_fork(w: World) -> None:
    w.device()
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
