"""Order lost between streams, events that mean something else, queries that look at the queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hipfile_conformance.mutants.registry import changed, mutant
from hipfile_sim.engine.command import Command, Marker
from hipfile_sim.hip.base import RuntimeBase
from hipfile_sim.hip.calls_device import DeviceCalls
from hipfile_sim.hip.calls_event import EventCalls
from hipfile_sim.hip.calls_memory import MemoryCalls
from hipfile_sim.hip.calls_stream import StreamCalls
from hipfile_sim.hip.codes import HipError
from hipfile_sim.hip.commands import Copy, WaitEvent
from hipfile_sim.hip.stream import Event, Stream

OK = HipError.hipSuccess
enqueue = RuntimeBase.enqueue


@mutant("the null stream waits for nothing")
def null_unordered() -> Iterator[None]:
    def plain(self: Any, stream: Stream, command: Command, deps: tuple[Marker, ...] = ()) -> HipError:
        if stream.is_null:
            self.engine.submit(stream.lane, command, deps)
            return OK
        return enqueue(self, stream, command, deps)

    with changed((RuntimeBase, "enqueue", plain)):
        yield


@mutant("blocking streams do not wait for the null stream")
def blocking_unordered() -> Iterator[None]:
    def plain(self: Any, stream: Stream, command: Command, deps: tuple[Marker, ...] = ()) -> HipError:
        if stream.blocking:
            self.engine.submit(stream.lane, command, deps)
            return OK
        return enqueue(self, stream, command, deps)

    with changed((RuntimeBase, "enqueue", plain)):
        yield


@mutant("every stream is blocking")
def all_blocking() -> Iterator[None]:
    make = Stream.__init__

    def blocking(
        self: Stream, handle: int, lane: Any, device: int, flags: int, priority: int, is_null: bool = False
    ) -> None:
        make(self, handle, lane, device, flags, priority, is_null)
        self.blocking = not is_null

    with changed((Stream, "__init__", blocking)):
        yield


@mutant("every stream is non-blocking")
def none_blocking() -> Iterator[None]:
    make = Stream.__init__

    def free(
        self: Stream, handle: int, lane: Any, device: int, flags: int, priority: int, is_null: bool = False
    ) -> None:
        make(self, handle, lane, device, flags, priority, is_null)
        self.blocking = False

    with changed((Stream, "__init__", free)):
        yield


@mutant("a wait for an event does nothing")
def wait_dropped() -> Iterator[None]:
    def none(self: Any, stream: Stream, command: Command, deps: tuple[Marker, ...] = ()) -> HipError:
        return enqueue(self, stream, command, () if isinstance(command, WaitEvent) else deps)

    with changed((RuntimeBase, "enqueue", none)):
        yield


@mutant("a wait follows the event object, not the record that was current at the call")
def wait_follows_the_object() -> Iterator[None]:
    def conditional(self: WaitEvent) -> bool:
        runtime = runtimes[-1]
        event = runtime.events.get(self.event)
        return event is None or event.done

    runtimes: list[Any] = []

    def remember(self: Any, stream: Stream, command: Command, deps: tuple[Marker, ...] = ()) -> HipError:
        if isinstance(command, WaitEvent):
            runtimes.append(self)
            return enqueue(self, stream, command, ())
        return enqueue(self, stream, command, deps)

    patches = (WaitEvent, "ready", conditional), (WaitEvent, "conditional", True), (RuntimeBase, "enqueue", remember)
    with changed(*patches):
        yield


@mutant("an event query looks at the stream's queue, not at the record")
def query_means_queue_empty() -> Iterator[None]:
    def empty(self: Event) -> bool:
        record = self.record
        return record is None or record.lane.idle

    with changed((Event, "done", property(empty))):
        yield


@mutant("a stream query says ready while the last command still runs")
def running_is_ready() -> Iterator[None]:
    real = StreamCalls.hipStreamQuery

    def shallow(self: Any, stream: int) -> HipError:
        found = self.lookup_stream(stream)
        if found is not None and not found.is_null and len(found.lane.queue) <= 1:
            return OK
        return real(self, stream)

    with changed((StreamCalls, "hipStreamQuery", shallow)):
        yield


@mutant("not ready becomes the last error")
def not_ready_is_last() -> Iterator[None]:
    real = EventCalls.hipEventQuery

    def loud(self: Any, event: int) -> HipError:
        code = real(self, event)
        if code == HipError.hipErrorNotReady:
            self.thread.last_error = code
        return code

    with changed((EventCalls, "hipEventQuery", loud)):
        yield


@mutant("recording an event again has no effect")
def rerecord_ignored() -> Iterator[None]:
    real = EventCalls.hipEventRecord

    def once(self: Any, event: int, stream: int = 0) -> HipError:
        found = self.events.get(event)
        before = None if found is None else found.record
        code = real(self, event, stream)
        if before is not None and found is not None:
            found.record = before
        return code

    with changed((EventCalls, "hipEventRecord", once)):
        yield


@mutant("an event that was never recorded is not ready")
def unrecorded_not_ready() -> Iterator[None]:
    def never(self: Event) -> bool:
        record = self.record
        return record is not None and record.lane.completed >= record.ticket

    with changed((Event, "done", property(never))):
        yield


@mutant("synchronising the null stream waits for it alone")
def null_sync_alone() -> Iterator[None]:
    real = StreamCalls.hipStreamSynchronize

    def alone(self: Any, stream: int) -> HipError:
        found = self.lookup_stream(stream)
        if found is not None and found.is_null:
            self.wait([found.lane.tail], "hipStreamSynchronize")
            return OK
        return real(self, stream)

    with changed((StreamCalls, "hipStreamSynchronize", alone)):
        yield


@mutant("synchronising a device waits for the null stream alone")
def device_sync_shallow() -> Iterator[None]:
    def shallow(self: Any) -> HipError:
        self.wait([self.lookup_stream(0).lane.tail], "hipDeviceSynchronize")
        return OK

    with changed((DeviceCalls, "hipDeviceSynchronize", shallow)):
        yield


@mutant("freeing memory does not wait for the streams")
def free_at_once() -> Iterator[None]:
    def none(self: Any, device: int | None = None) -> list[Marker]:
        return [] if device is None or freeing else real(self, device)

    freeing: list[int] = []
    real = RuntimeBase.device_lanes
    free = MemoryCalls._free

    def quick(self: Any, *args: Any) -> HipError:
        freeing.append(1)
        try:
            return free(self, *args)
        finally:
            freeing.pop()

    with changed((RuntimeBase, "device_lanes", none), (MemoryCalls, "_free", quick)):
        yield


@mutant("a plain copy waits for no other stream")
def copy_unordered() -> Iterator[None]:
    real = MemoryCalls._copy

    def plain(self: Any, to: int, origin: int, size: int, kind: int, stream: int, *, wait: bool) -> HipError:
        if wait and stream == 0 and size and self.memory.copy(to, origin, size):
            return OK
        return real(self, to, origin, size, kind, stream, wait=wait)

    with changed((MemoryCalls, "_copy", plain)):
        yield


@mutant("an asynchronous copy from pinned memory takes the bytes at submit")
def pinned_staged() -> Iterator[None]:
    make = Copy.__init__

    def stage(self: Copy, memory: Any, destination: int, source: int, length: int, staged: bytes | None = None) -> None:
        make(self, memory, destination, source, length, memory.read(source, length) if staged is None else staged)

    with changed((Copy, "__init__", stage)):
        yield


@mutant("destroying a stream drops the work that is pending")
def destroy_drops() -> Iterator[None]:
    real = StreamCalls.hipStreamDestroy

    def drop(self: Any, stream: int) -> HipError:
        found = self.streams.get(stream)
        code = real(self, stream)
        if found is not None and code == OK:
            for command in found.lane.queue:
                if isinstance(command, Copy):
                    command.length = 0
        return code

    with changed((StreamCalls, "hipStreamDestroy", drop)):
        yield


@mutant("destroying a stream waits for its work")
def destroy_waits() -> Iterator[None]:
    real = StreamCalls.hipStreamDestroy

    def wait(self: Any, stream: int) -> HipError:
        found = self.streams.get(stream)
        if found is not None:
            self.wait([found.lane.tail], "hipStreamDestroy")
        return real(self, stream)

    with changed((StreamCalls, "hipStreamDestroy", wait)):
        yield


@mutant("HIP calls inside a host function just work")
def calls_in_host_functions() -> Iterator[None]:
    from hipfile_sim.engine.steps import StepEngine

    name = "in_host_function"
    owner = next(kind for kind in StepEngine.__mro__ if name in kind.__dict__)
    with changed((owner, name, property(lambda self: False))):
        yield


@mutant("elapsed time of events that were never recorded is 0")
def elapsed_of_nothing() -> Iterator[None]:
    real = EventCalls.hipEventElapsedTime

    def zero(self: Any, start: int, stop: int) -> tuple[HipError, float]:
        code, ms = real(self, start, stop)
        return (OK, 0.0) if code else (code, ms)

    with changed((EventCalls, "hipEventElapsedTime", zero)):
        yield


@mutant("freeing twice succeeds")
def double_free() -> Iterator[None]:
    real = MemoryCalls._free

    def lenient(self: Any, pointer: int, kinds: Sequence[str], what: str) -> HipError:
        real(self, pointer, tuple(kinds), what)
        return OK

    with changed((MemoryCalls, "_free", lenient)):
        yield


@mutant("the last error belongs to the process")
def error_shared() -> Iterator[None]:
    from hipfile_sim.hip import base

    kind = type(base.RuntimeBase.__init__)
    assert kind is not None
    real = DeviceCalls.hipPeekAtLastError
    seen: list[HipError] = []

    def peek(self: Any) -> HipError:
        code = real(self)
        if code:
            seen.append(code)
        return seen[-1] if seen else code

    fail = DeviceCalls.hipSetDevice

    def set_device(self: Any, device: int) -> HipError:
        code = fail(self, device)
        if code:
            seen.append(code)
        return code

    with changed((DeviceCalls, "hipPeekAtLastError", peek), (DeviceCalls, "hipSetDevice", set_device)):
        yield
