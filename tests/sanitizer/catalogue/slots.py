"""Slots and results."""

from __future__ import annotations

import threading

from catalogue.registry import right, wrong
from catalogue.world import World

FIXED_ALL = 7


@wrong("result.early-read", twin="read_result_after_sync", cases="C06", faces="model python torch c")
def read_result_after_submit(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    io = w.read(file, buffer, w.slots(), stream)
    assert io.bytes_done <= 4096  # too early
    w.sync(stream)


@right("read_result_after_submit", cases="C06", faces="model python torch c")
def read_result_after_sync(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    io = w.read(file, buffer, w.slots(), stream)
    w.sync(stream)
    assert io.bytes_done == 4096


@wrong("result.early-read", twin="layerwise_load_host_waits", cases="C06", faces="model python torch c")
def layerwise_load(w: World) -> None:
    """The usage printed with the Python bindings: the current stream waits, the host does not."""
    file, buffer, copy_stream, compute = w.file(), w.buffer(16 * 1024), w.stream(), w.stream(register=False)
    inflight = []
    for layer in range(4):
        io = w.read(file, buffer, w.slots(4096, layer * 4096, layer * 4096), copy_stream)
        event = w.event()
        w.record(event, copy_stream)
        inflight.append((layer, io, event))
    for layer, io, event in inflight:
        w.wait(compute, event)
        w.kernel(compute, reads=[(buffer + layer * 4096, 4096)], name="attention")
        assert io.bytes_done <= 4096  # the host has waited for nothing
    w.sync(compute)


@right("layerwise_load", cases="C06", faces="model python torch c")
def layerwise_load_host_waits(w: World) -> None:
    file, buffer, copy_stream, compute = w.file(), w.buffer(16 * 1024), w.stream(), w.stream(register=False)
    inflight = []
    for layer in range(4):
        io = w.read(file, buffer, w.slots(4096, layer * 4096, layer * 4096), copy_stream)
        event = w.event()
        w.record(event, copy_stream)
        inflight.append((layer, io, event))
    for layer, io, event in inflight:
        w.wait(compute, event)
        w.kernel(compute, reads=[(buffer + layer * 4096, 4096)], name="attention")
        w.sync_event(event)
        assert io.bytes_done == 4096
    w.sync(compute)


@wrong("result.early-read", twin="host_function_behind_reads_result", cases="C09", faces="model c")
def host_function_elsewhere_reads_result(w: World) -> None:
    file, buffer, stream, other = w.file(), w.buffer(), w.stream(), w.stream(register=False)
    io = w.read(file, buffer, w.slots(), stream)
    w.host_function(other, lambda: io.bytes_done)
    w.sync(other)
    w.sync(stream)


@right("host_function_elsewhere_reads_result", cases="C09", faces="model c")
def host_function_behind_reads_result(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    io = w.read(file, buffer, w.slots(), stream)
    seen: list[int] = []
    w.host_function(stream, lambda: seen.append(io.bytes_done))
    w.sync(stream)
    assert seen == [4096]


@right(
    "host_function_elsewhere_reads_result", cases="C09", schedules="parallel eager roundrobin seeded:1", faces="model c"
)
def host_function_tells_the_host(w: World) -> None:
    """An event of Python, set by a host function behind the operation, is as good as a wait."""
    file, buffer, stream, done = w.file(), w.buffer(), w.stream(), threading.Event()
    io = w.read(file, buffer, w.slots(), stream)
    w.host_function(stream, done.set)
    while not done.is_set():
        w.hip.hipStreamQuery(0)  # polling: hardware moves meanwhile
    assert io.bytes_done == 4096


@wrong("slot.changed-in-flight", twin="slot_changed_after_sync", faces="model python torch c")
def slot_changed_in_flight(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    io = w.read(file, buffer, w.slots(), stream)
    io.set(size=512)
    w.sync(stream)


@right("slot_changed_in_flight", faces="model python torch c")
def slot_changed_after_sync(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    io = w.read(file, buffer, w.slots(), stream)
    w.sync(stream)
    io.set(size=512)
    w.read(file, buffer, io, stream)
    w.sync(stream)


@wrong("slot.changed-in-flight", twin="slot_set_late_by_host_function", schedules="lazy", faces="model c")
def slot_changed_unseen(w: World) -> None:
    """A C program writes its variables directly: only the values tell."""
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    io = w.read(file, buffer, w.slots(), stream)
    io.set_unseen(file_offset=8192)
    w.sync(stream)


@right("slot_changed_unseen", faces="model c")
def slot_set_late_by_host_function(w: World) -> None:
    """Late binding on purpose: ordered by the stream, whether anybody sees the store or not."""
    file, buffer, stream, gate = w.file(), w.buffer(), w.stream(), w.signal()
    seen, unseen = w.slots(), w.slots()
    w.ok(w.hip.hipStreamWaitValue64(stream, gate, 1))
    w.host_function(stream, lambda: (seen.set(size=2048), unseen.set_unseen(size=1024)))
    w.read(file, buffer, seen, stream)
    w.read(file, buffer, unseen, stream)
    w.poke(gate, (1).to_bytes(8, "little"))
    w.sync(stream)
    assert (seen.bytes_done, unseen.bytes_done) == (2048, 1024)


@right("slot_changed_unseen", faces="model c")
def slot_set_late_without_a_gate(w: World) -> None:
    """The host function may run before the submit looks at the slot or after it; what is bound is the same."""
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    io = w.slots(4096)
    w.host_function(stream, lambda: io.set(size=2048))
    w.read(file, buffer, io, stream)
    w.sync(stream)
    assert io.bytes_done == 2048


@right("slot_changed_in_flight", faces="model c")
def slot_set_late_behind_a_value(w: World) -> None:
    """The stream is held until the host has set the slots."""
    file, buffer, stream, gate = w.file(), w.buffer(), w.stream(), w.signal()
    w.ok(w.hip.hipStreamWaitValue64(stream, gate, 1))
    io = w.read(file, buffer, w.slots(), stream)
    io.set(size=1024)
    w.poke(gate, (1).to_bytes(8, "little"))
    w.sync(stream)
    assert io.bytes_done == 1024


@wrong("slot.changed-in-flight", twin="slot_changed_after_sync")
def result_slot_cleared_in_flight(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    io = w.read(file, buffer, w.slots(), stream)
    io.set(bytes_done=-1)
    w.sync(stream)


@wrong("slot.changed-behind-fixed-flag", twin="fixed_slot_left_alone", cases="C04", faces="model python torch c")
def fixed_slot_changed(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream(flags=FIXED_ALL)
    io = w.read(file, buffer, w.slots(), stream)
    io.set(size=0)
    w.sync(stream)


@right("fixed_slot_changed", cases="C04", faces="model python torch c")
def fixed_slot_left_alone(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream(flags=FIXED_ALL)
    io = w.read(file, buffer, w.slots(), stream)
    w.sync(stream)
    io.set(size=0)


@wrong("slot.changed-behind-fixed-flag", twin="fixed_slot_left_alone", cases="C04", schedules="lazy", faces="model c")
def fixed_slot_changed_unseen(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream(flags=FIXED_ALL)
    io = w.read(file, buffer, w.slots(), stream)
    io.set_unseen(size=0)
    w.sync(stream)


@wrong("slot.reused", twin="slots_for_each_operation", cases="C05", faces="model c")
def one_struct_of_slots_for_all(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(8192), w.stream()
    io = w.read(file, buffer, w.slots(4096, 0, 0), stream)
    io.set(file_offset=4096, buffer_offset=4096)
    w.read(file, buffer, io, stream)
    w.sync(stream)


@right("one_struct_of_slots_for_all", cases="C05", faces="model c")
def slots_for_each_operation(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(8192), w.stream()
    w.read(file, buffer, w.slots(4096, 0, 0), stream)
    w.read(file, buffer, w.slots(4096, 4096, 4096), stream)
    w.sync(stream)


@wrong("slot.reused", twin="slots_reused_after_event", faces="model c")
def slots_reused_on_another_stream(w: World) -> None:
    file, one, two = w.file(), w.stream(), w.stream()
    io = w.slots()
    w.read(file, w.buffer(), io, one)
    w.read(file, w.buffer(), io, two)
    w.sync(one)
    w.sync(two)


@right("slots_reused_on_another_stream", faces="model c")
def slots_reused_after_event(w: World) -> None:
    file, one, two, event = w.file(), w.stream(), w.stream(), w.event()
    io = w.slots()
    w.read(file, w.buffer(), io, one)
    w.record(event, one)
    w.sync_event(event)
    w.read(file, w.buffer(), io, two)
    w.sync(two)


@wrong("slot.dead", twin="slots_outlive_the_operation", cases="C01", faces="model c")
def slots_in_a_scope_that_ends(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()

    def submit() -> None:
        io = w.read(file, buffer, w.slots(), stream)
        w.drop(io, "scope")

    submit()
    w.sync(stream)


@right("slots_in_a_scope_that_ends", cases="C01", faces="model c")
def slots_outlive_the_operation(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    io = w.read(file, buffer, w.slots(), stream)
    w.sync(stream)
    w.drop(io, "scope")


@wrong("slot.owner-collected", twin="handle_kept_until_sync", cases="C01", faces="model python torch")
def handle_dropped(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.drop(w.read(file, buffer, w.slots(), stream), "collected")
    w.sync(stream)


@right("handle_dropped", cases="C01", faces="model python torch")
def handle_kept_until_sync(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    inflight = [w.read(file, buffer, w.slots(), stream) for _ in range(3)]
    w.sync(stream)
    while inflight:
        w.drop(inflight.pop(), "collected")
