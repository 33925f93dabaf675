"""The asynchronous contract nearly right: written from the contract alone, by somebody who had not read the tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hipfile_conformance.mutants.registry import changed, mutant
from hipfile_sim.driver import buffers, streams, submit
from hipfile_sim.driver.buffers import Buffer, BufferTable, Refused
from hipfile_sim.driver.monitor import Monitor
from hipfile_sim.driver.operations import Advance, AsyncOp, Bind, Cleanup, CpuCopy
from hipfile_sim.driver.state import DriverState
from hipfile_sim.hip.base import RuntimeBase
from hipfile_sim.hip.calls_event import EventCalls
from hipfile_sim.hip.codes import HipError
from hipfile_sim.hip.commands import HostFunction, Record, WaitEvent

if TYPE_CHECKING:
    from hipfile_sim.driver.codes import HipFileStatus
    from hipfile_sim.driver.streams import IOStream
    from hipfile_sim.engine.command import Command, Lane, Marker
    from hipfile_sim.hip.stream import Stream

OK = HipError.hipSuccess


@mutant("the count is published when the file part is done, before the last chunk is in device memory")
def published_before_last_copy() -> Iterator[None]:
    run = CpuCopy.run

    def early(self: CpuCopy) -> None:
        run(self)
        op = self.op
        if not op.write and op.value >= 0 and op.done + op.chunk >= op.size:
            op.driver.hostmem.write_i64(op.bytes_p, op.done + op.chunk)

    with changed((CpuCopy, "run", early)):
        yield


@mutant("a fixed size and file offset take the buffer offset with them")
def two_fixed_are_three() -> Iterator[None]:
    check = submit._check

    def capture(driver: Any, op: AsyncOp) -> Any:
        answer = check(driver, op)
        if op.size_p == 0 and op.file_offset_p == 0:
            op.buffer_offset_p = 0
        return answer

    with changed((submit, "_check", capture)):
        yield


@mutant("the flags are those of the registration when the operation runs, not when it was submitted")
def flags_looked_up_late() -> Iterator[None]:
    run = Bind.run

    def late(self: Bind) -> None:
        op = self.op
        now = op.driver.state.streams.entries.get(op.stream.handle)
        if now is not None and now is not op.stream:
            for bit, name in ((1, "buffer_offset_p"), (2, "file_offset_p"), (4, "size_p")):
                if now.flags & bit:
                    setattr(op, name, 0)
        run(self)

    with changed((Bind, "run", late)):
        yield


@mutant("a size that has become 0 means: as submitted")
def late_zero_ignored() -> Iterator[None]:
    run = Bind.run

    def zero(self: Bind) -> None:
        run(self)
        if self.op.value >= 0 and self.op.size == 0:
            self.op.size = self.op.limit

    with changed((Bind, "run", zero)):
        yield


@mutant("a failed bind publishes its code without the sign")
def sign_lost() -> Iterator[None]:
    run = Cleanup.run

    def positive(self: Cleanup) -> None:
        if self.op.value < -1:
            self.op.value = -self.op.value
        run(self)

    with changed((Cleanup, "run", positive)):
        yield


@mutant("a chunk behind the first that meets the end of the file counts as a whole one")
def short_chunk_counts_whole() -> Iterator[None]:
    run = Advance.run

    def whole(self: Advance) -> None:
        op = self.op
        if op.value >= 0 and op.done and 0 < op.chunk < op.chunk_size():
            op.chunk = op.chunk_size()
        run(self)

    with changed((Advance, "run", whole)):
        yield


@mutant("operations on streams that are not registered share one bounce buffer")
def temporary_bounce_shared() -> Iterator[None]:
    make, release = streams.make_stream, Monitor.release_stream
    shared: dict[Any, Any] = {}

    def one(driver: Any, handle: int, flags: int) -> IOStream:
        stream = make(driver, handle, flags)
        kept = shared.setdefault(driver, stream.bounce)
        if stream.bounce is not None and kept is not stream.bounce:
            driver.release_pinned(stream.bounce.pointer)
            stream.bounce = kept
        return stream

    def keep(self: Monitor, stream: IOStream, *, synchronous: bool = False) -> None:
        if stream.bounce is None or stream.bounce is not shared.get(self._driver):
            release(self, stream, synchronous=synchronous)

    with changed((submit, "make_stream", one), (Monitor, "release_stream", keep)):
        yield


@mutant("a stream does not stand still for its host function; only who waits for the stream waits for it")
def host_function_beside() -> Iterator[None]:
    enqueue = RuntimeBase.enqueue
    beside: dict[Lane, Lane] = {}

    def aside(self: Any, stream: Stream, command: Command, deps: tuple[Marker, ...] = ()) -> HipError:
        if not isinstance(command, HostFunction):
            return enqueue(self, stream, command, deps)
        lane = beside.get(stream.lane)
        if lane is None:
            lane = beside[stream.lane] = self.engine.add_lane(f"beside {stream.lane.name}", stream.device)
        self.engine.submit(lane, command, (*self._implicit_order(stream, deps), stream.lane.tail))
        return OK

    def wait(self: Any, targets: Any, what: str) -> None:
        more = [beside[lane].tail for lane, _ in targets if lane in beside]
        real_wait(self, [*targets, *more], what)

    real_wait = RuntimeBase.wait
    with changed((RuntimeBase, "enqueue", aside), (RuntimeBase, "wait", wait)):
        yield


@mutant("a wait on the null stream holds back what follows there, not the blocking streams")
def null_wait_stays_there() -> Iterator[None]:
    enqueue = RuntimeBase.enqueue
    held: dict[Any, tuple[Marker, ...]] = {}

    def later(self: Any, stream: Stream, command: Command, deps: tuple[Marker, ...] = ()) -> HipError:
        if stream.is_null:
            if isinstance(command, WaitEvent):
                held[stream] = (*held.get(stream, ()), *deps)
                return OK
            deps = (*deps, *held.pop(stream, ()))
        return enqueue(self, stream, command, deps)

    with changed((RuntimeBase, "enqueue", later)):
        yield


@mutant("an event recorded on the null stream does not wait for the blocking streams")
def null_record_alone() -> Iterator[None]:
    enqueue = RuntimeBase.enqueue

    def alone(self: Any, stream: Stream, command: Command, deps: tuple[Marker, ...] = ()) -> HipError:
        if stream.is_null and isinstance(command, Record):
            self.engine.submit(stream.lane, command, deps)
            return OK
        return enqueue(self, stream, command, deps)

    with changed((RuntimeBase, "enqueue", alone)):
        yield


@mutant("a pointer inside a registered buffer ends where the registration ends, not where the allocation does")
def interior_ends_early() -> Iterator[None]:
    inspect = buffers.inspect

    def short(runtime: Any, profile: Any, pointer: int, length: int | None) -> Buffer:
        buffer = inspect(runtime, profile, pointer, length)
        for base, size in registered.get(runtime, {}).items():
            if base < pointer < base + size:
                buffer.length = min(buffer.length, base + size - pointer)
        return buffer

    registered: dict[Any, dict[int, int]] = {}
    register = BufferTable.register

    def note(self: BufferTable, pointer: int, length: int, flags: int) -> None:
        register(self, pointer, length, flags)
        registered.setdefault(self._runtime, {})[pointer] = length

    with changed((submit, "inspect", short), (BufferTable, "register", note)):
        yield


@mutant("an operation in flight when the driver closes ends as an internal error")
def close_fails_operations() -> Iterator[None]:
    complete = Monitor.complete

    def closed(self: Monitor, op: AsyncOp) -> bool:
        return complete(self, op) and self._driver.state.use_count > 0

    with changed((Monitor, "complete", closed)):
        yield


@mutant("streams survive the close, but their flags are forgotten")
def close_forgets_flags() -> Iterator[None]:
    close = DriverState.close

    def forget(self: DriverState) -> HipFileStatus:
        result = close(self)
        if self.use_count == 0:
            for stream in self.streams.entries.values():
                stream.flags = 0
        return result

    with changed((DriverState, "close", forget)):
        yield


@mutant("a buffer registration that fails leaves a closed driver closed")
def failed_registration_closes() -> Iterator[None]:
    init, register = DriverState.implicit_init, BufferTable.register
    opened: dict[BufferTable, DriverState] = {}

    def remember(self: DriverState) -> None:
        if self.use_count == 0:
            opened[self.buffers] = self
        init(self)

    def undo(self: BufferTable, pointer: int, length: int, flags: int) -> None:
        try:
            register(self, pointer, length, flags)
        except Refused:
            if self in opened:
                opened[self].use_count = 0
            raise
        finally:
            opened.pop(self, None)

    with changed((DriverState, "implicit_init", remember), (BufferTable, "register", undo)):
        yield


@mutant("the first explicit open takes over the use that an implicit one began")
def open_absorbs_implicit() -> Iterator[None]:
    init, open_ = DriverState.implicit_init, DriverState.open
    implicit: set[DriverState] = set()

    def remember(self: DriverState) -> None:
        if self.use_count == 0:
            implicit.add(self)
        init(self)

    def absorb(self: DriverState) -> HipFileStatus:
        result = open_(self)
        if self in implicit:
            implicit.discard(self)
            self.use_count -= self.use_count > 1
        return result

    with changed((DriverState, "implicit_init", remember), (DriverState, "open", absorb)):
        yield


@mutant("the end of the file ends the operation, although the file may grow before the next chunk")
def eof_is_final() -> Iterator[None]:
    run = CpuCopy.run
    ended: set[AsyncOp] = set()

    def stop(self: CpuCopy) -> None:
        op = self.op
        if not op.write and op in ended and op.value >= 0:
            self.start, self.count, op.chunk = op.file_offset + op.done, 0, 0
            return
        run(self)
        if not op.write and op.value >= 0 and op.chunk < op.chunk_size():
            ended.add(op)

    def forget(self: Cleanup) -> None:
        ended.discard(self.op)
        end(self)

    end = Cleanup.run
    with changed((CpuCopy, "run", stop), (Cleanup, "run", forget)):
        yield


@mutant("a second registration of the same base is refused, but the later length is taken")
def refused_length_taken() -> Iterator[None]:
    register = BufferTable.register

    def take(self: BufferTable, pointer: int, length: int, flags: int) -> None:
        try:
            register(self, pointer, length, flags)
        except Refused:
            known = self.entries.get(pointer)
            if known is not None and 0 < length <= known.length:
                known.length = length
            raise

    with changed((BufferTable, "register", take)):
        yield


@mutant("synchronising an event waits for all that is in its stream by then")
def event_means_stream() -> Iterator[None]:
    real = EventCalls.hipEventSynchronize

    def all_of_it(self: Any, event: int) -> HipError:
        found = self.events.get(event)
        if found is not None and found.record is not None:
            self.engine.wait([found.record.lane.tail], "hipEventSynchronize")
        return real(self, event)

    with changed((EventCalls, "hipEventSynchronize", all_of_it)):
        yield


@mutant("a wait is for all that is in the event's stream when it is made, not for the record")
def wait_means_stream() -> Iterator[None]:
    enqueue = RuntimeBase.enqueue

    def tail(self: Any, stream: Stream, command: Command, deps: tuple[Marker, ...] = ()) -> HipError:
        if isinstance(command, WaitEvent):
            deps = tuple(lane.tail for lane, _ in deps)
        return enqueue(self, stream, command, deps)

    with changed((RuntimeBase, "enqueue", tail)):
        yield


@mutant("destroying an event lets go of what waits for it")
def destroyed_event_frees() -> Iterator[None]:
    real = EventCalls.hipEventDestroy

    def free(self: Any, event: int) -> HipError:
        for lane in self.engine.lanes.values():
            for command in lane.queue:
                if isinstance(command, WaitEvent) and command.event == event:
                    command.deps = ()
        return real(self, event)

    with changed((EventCalls, "hipEventDestroy", free)):
        yield
