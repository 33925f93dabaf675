"""Synchronous I/O and batches."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from hipfile_conformance.mutants.registry import changed, mutant
from hipfile_sim.driver import batch, sync, tasks
from hipfile_sim.driver.backends.fallback import Fallback
from hipfile_sim.driver.codes import SUCCESS, BatchStatus, IOResult


@mutant("a short read ends the call")
def short_ends() -> Iterator[None]:
    loop = Fallback._loop

    def once(
        self: Fallback, step: Any, file: Any, bounce: Any, size: int, address: int, offset: int, mover: Any
    ) -> int:
        def single(*args: Any) -> int:
            if seen and seen[-1] < len(args[1]) and seen[-1] != 0:
                return 0
            seen.append(step(*args))
            return seen[-1]

        seen: list[int] = []
        return loop(self, single, file, bounce, size, address, offset, mover)

    with changed((Fallback, "_loop", once)):
        yield


@mutant("bytes moved before an error are reported")
def partial_reported() -> Iterator[None]:
    loop = Fallback._loop

    def partial(self: Fallback, step: Any, *args: Any) -> int:
        total = 0

        def count(*a: Any) -> int:
            nonlocal total
            moved: int = step(*a)
            total += moved
            return moved

        try:
            return loop(self, count, *args)
        except InterruptedError:
            raise
        except OSError:
            if total:
                return total
            raise

    with changed((Fallback, "_loop", partial)):
        yield


@mutant("a write is synced once, at the end")
def synced_once() -> Iterator[None]:
    step = Fallback._write_chunk

    def unsynced(self: Fallback, file: Any, view: Any, *args: Any) -> int:
        driver = self.driver
        files = driver.files

        class Quiet:
            def __getattr__(self, name: str) -> Any:
                return (lambda fd: None) if name == "fdatasync" else getattr(files, name)

        driver._files, kept = Quiet(), driver._files
        try:
            return step(self, file, view, *args)
        finally:
            driver._files = kept

    with changed((Fallback, "_write_chunk", unsynced)):
        yield


@mutant("chunks of synchronous I/O are 4 MiB")
def small_chunks() -> Iterator[None]:
    loop = Fallback._loop

    class Half:
        def __init__(self, bounce: Any) -> None:
            self.view, self.address = bounce.view[: 4 << 20], bounce.address

    def small(self: Fallback, step: Any, file: Any, bounce: Any, *args: Any) -> int:
        half: Any = Half(bounce)
        return loop(self, step, file, half, *args)

    with changed((Fallback, "_loop", small)):
        yield


@mutant("the errno of a failure is EIO whatever it was")
def errno_flattened() -> Iterator[None]:
    real = sync.transfer

    def flat(*args: Any) -> IOResult:
        result = real(*args)
        return IOResult(-1, errno.EIO) if result.count == -1 and result.errno not in (0, errno.EINVAL) else result

    with changed((sync, "transfer", flat)):
        yield


@mutant("a HIP failure is -5011")
def hip_failure_wrapped() -> Iterator[None]:
    real = sync.transfer

    def wrap(*args: Any) -> IOResult:
        result = real(*args)
        return IOResult(-5011) if -5000 < result.count < -1 else result

    with changed((sync, "transfer", wrap)):
        yield


@mutant("a negative offset is found after the backend was chosen", release="0.5")
def negative_offset_late() -> Iterator[None]:
    real = sync.transfer

    def late(
        driver: Any, write: bool, handle: int, pointer: int, size: int, file_offset: int, buffer_offset: int
    ) -> Any:
        result = real(driver, write, handle, pointer, size, file_offset, buffer_offset)
        if min(file_offset, buffer_offset) < 0 and result == IOResult(-1, errno.EINVAL):
            return IOResult(-5022)
        return result

    with changed((sync, "transfer", late)):
        yield


@mutant("the null stream is not synchronised before a write")
def null_not_synchronised() -> Iterator[None]:
    from hipfile_sim.hip.calls_stream import StreamCalls

    real = StreamCalls.hipStreamSynchronize
    step = Fallback._write_chunk
    inside: list[int] = []

    def quiet(self: Any, stream: int) -> Any:
        return 0 if inside else real(self, stream)

    def write(self: Fallback, *args: Any) -> int:
        inside.append(1)
        try:
            return step(self, *args)
        finally:
            inside.pop()

    with changed((StreamCalls, "hipStreamSynchronize", quiet), (Fallback, "_write_chunk", write)):
        yield


@mutant("the buffer's GPU stays current after synchronous I/O")
def device_not_restored() -> Iterator[None]:
    real = sync.transfer

    def stay(driver: Any, *args: Any) -> IOResult:
        result = real(driver, *args)
        if result.count > 0:
            block = driver.memory.find(args[2])
            driver.runtime.hipSetDevice(block.device)
        return result

    with changed((sync, "transfer", stay)):
        yield


@mutant("a batch holds one more than its capacity")
def batch_capacity_off() -> Iterator[None]:
    with changed(
        (tasks.Batch, "room", property(lambda self: self.capacity + 1 - len(self.outstanding) - len(self.completed)))
    ):
        yield


@mutant("completed operations that were not collected take no room")
def batch_room_early() -> Iterator[None]:
    with changed(
        (tasks.Batch, "room", property(lambda self: self.capacity - len(self.outstanding) - len(self.stored)))
    ):
        yield


@mutant("one bad operation of a batch lets the others through")
def batch_partial() -> Iterator[None]:
    real = batch.PoolBatches.submit

    def partial(self: Any, handle: int, ops: Any) -> Any:
        answer = real(self, handle, ops)
        if answer.err and ops and len(ops) > 1:
            real(self, handle, ops[:1])
        return answer

    with changed((batch.PoolBatches, "submit", partial)):
        yield


@mutant("a failed operation of a batch is complete with a negative count")
def batch_failed_is_complete() -> Iterator[None]:
    real = tasks.Task.finish

    def complete(self: Any, state: BatchStatus, ret: int) -> None:
        real(self, BatchStatus.hipFileComplete if state == BatchStatus.hipFileFailed else state, ret)

    with changed((tasks.Task, "finish", complete)):
        yield


@mutant("events of a batch can be collected again and again")
def batch_events_stay() -> Iterator[None]:
    real = batch.PoolBatches.get_status

    def stay(self: Any, handle: int, *args: Any) -> Any:
        answer = real(self, handle, *args)
        found = self.contexts.get(handle)
        if found is not None:
            found.completed.extend((event, None) for event in answer[1])
        return answer

    with changed((batch.PoolBatches, "get_status", stay)):
        yield


@mutant("batches of 0.4 run", release="0.4")
def batch_runs_early() -> Iterator[None]:
    from hipfile_sim.driver.driver import Driver

    make = Driver.__init__

    def pool(self: Any, *args: Any) -> None:
        make(self, *args)
        self.batches = batch.PoolBatches(self)

    with changed((Driver, "__init__", pool)):
        yield


@mutant("cancelling a batch does nothing")
def cancel_ignored() -> Iterator[None]:
    with changed((batch.PoolBatches, "cancel", lambda self, handle: SUCCESS)):
        yield
