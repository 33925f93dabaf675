"""How an asynchronous operation becomes commands: one strategy a generation of the library.

============  ===========================================================================
generation    commands
============  ===========================================================================
g1 read       [bind] cpu_copy memcpy_kernel cleanup
g1 write      [bind] memcpy_kernel cpu_copy cleanup
g2 read       [bind] N x (cpu_copy memcpy_kernel advance) cleanup
g2 write      [bind] N x (memcpy_kernel cpu_copy advance) cleanup
cufile        run_io run_copy cleanup
============  ===========================================================================

The bind is there unless all three values were captured at submit. [bind.none-when-all-fixed]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hipfile_sim.driver.codes import MAX_RW_COUNT, SUCCESS, HipFileStatus, hip_status
from hipfile_sim.driver.operations import (
    Advance,
    AsyncOp,
    Bind,
    Cleanup,
    CpuCopy,
    CpuCopyAll,
    MemcpyKernel,
    OpCommand,
)
from hipfile_sim.driver.streams import Bounce
from hipfile_sim.driver.whole import RunCopy, RunIO
from hipfile_sim.hip.codes import HipError
from hipfile_sim.observe.observer import call_site


def per_operation(op: AsyncOp) -> HipFileStatus:
    """G1: the operation is pinned memory, and so is a bounce buffer of its own. [submit.generation]"""
    driver = op.driver
    code = driver.pin_op(op)
    if code:  # [submit.alloc-op]
        return _abandon(op, code)
    size = min(op.limit, MAX_RW_COUNT)
    code, pointer = driver.runtime.hipHostMalloc(size, 0)
    if code != HipError.hipSuccess:  # [submit.alloc-bounce]
        return _abandon(op, code)
    driver.memory.internal.add(pointer)
    op.pinned = (pointer,)
    op.bounce = Bounce(driver, pointer, size)
    copy, kernel = CpuCopyAll(op), MemcpyKernel(op)
    commands: list[OpCommand] = [] if _captured(op) else [Bind(op)]
    commands += (kernel, copy) if op.write else (copy, kernel)
    return enqueue(op, commands)


def per_stream(op: AsyncOp) -> HipFileStatus:
    """G2: chunks through the stream's buffer; their number follows from the size at submit. [submit.generation]"""
    code = op.driver.pin_op(op)
    if code:  # [submit.alloc-op]
        return _abandon(op, code)
    bounce = op.bounce = op.stream.bounce
    assert bounce is not None
    chunks = -(-min(op.limit, MAX_RW_COUNT) // bounce.size)  # [chunk.number]
    commands: list[OpCommand] = [] if _captured(op) else [Bind(op)]
    if op.write:
        for _ in range(chunks):
            commands += (MemcpyKernel(op), CpuCopy(op), Advance(op))
    else:
        for _ in range(chunks):
            commands += (CpuCopy(op), MemcpyKernel(op), Advance(op))
    return enqueue(op, commands)


def whole(op: AsyncOp) -> HipFileStatus:
    """cuFile: everything happens when the stream gets there, with the slots as they are then."""
    first = RunIO(op)
    return enqueue(op, [first, RunCopy(op, first)])


GENERATIONS: dict[str, Callable[[AsyncOp], HipFileStatus]] = {
    "g1": per_operation,
    "g2": per_stream,
    "cufile": whole,
}
"""By `Profile.async_generation`."""


def enqueue(op: AsyncOp, commands: Sequence[OpCommand]) -> HipFileStatus:
    """Put `commands` and the cleanup on the stream of `op`, with no other operation between them.

    Where a launch fails, the cleanup is still attempted, and it publishes what the commands before it left behind.
    [submit.launch-error]
    """
    driver = op.driver
    runtime = driver.runtime
    stream = op.stream
    driver.monitor.active.add(op)
    stream.enter(driver)
    try:
        hip_stream = runtime.lookup_stream(stream.handle)
        if hip_stream is None:  # destroyed after it was registered
            driver.monitor.complete(op)
            return hip_status(runtime.hipStreamGetDevice(stream.handle)[0] or HipError.hipErrorInvalidHandle)
        error = last = HipError.hipSuccess
        cleanup = Cleanup(op)
        if driver.engine.observers:
            site = call_site(2)  # once for all of them
            for command in (*commands, cleanup):
                command.site = site
        if runtime.interpose_hook is None and not driver.engine.in_host_function:
            runtime.enqueue_all(hip_stream, (*commands, cleanup))
        else:
            for command in commands:
                error = driver.launch(hip_stream, command)
                if error is not HipError.hipSuccess:
                    break
            last = driver.launch(hip_stream, cleanup)
        if last:  # nothing is left that would ever publish; the real library only logs it
            if hasattr(commands[0], "ticket"):
                driver.note(
                    "submit.launch-error",
                    f"the cleanup of {op!r} could not be queued ({last.name}): the operation never completes, "
                    "and its buffer and file stay in use",
                    severity="warning",
                    operation=op,
                )
            else:
                driver.monitor.complete(op)
            return hip_status(error or last)
        op.marker = (cleanup.lane, cleanup.ticket)
    finally:
        stream.leave()
    return hip_status(error) if error else SUCCESS


def _captured(op: AsyncOp) -> bool:
    return not (op.size_p or op.file_offset_p or op.buffer_offset_p)


def _abandon(op: AsyncOp, code: HipError) -> HipFileStatus:
    op.driver.monitor.drop(op)
    return hip_status(code)
