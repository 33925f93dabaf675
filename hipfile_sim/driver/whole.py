"""A whole asynchronous operation in two commands: what is taken, and where it goes.

Source: observed on an H200 with cuFile 1.15.1, in its compatibility mode.
"""

from __future__ import annotations

import errno
import posix
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from hipfile_sim.driver import ranges
from hipfile_sim.driver.codes import MAX_RW_COUNT
from hipfile_sim.driver.operations import INTERNAL, INVALID, AsyncOp, OpCommand
from hipfile_sim.driver.services import SLOT
from hipfile_sim.engine.command import MEM, Access
from hipfile_sim.hip.memory import HipMemoryError

if TYPE_CHECKING:
    from hipfile_sim.engine.clock import CostModel


STEP = 16 << 20
"""Bytes moved at a time; what is taken grows by it."""


class RunIO(OpCommand):
    """The first half: reads the slots and takes the bytes, from the file or from device memory.

    cuFile was observed to read every slot here, and to let other streams in before the second half: a device write of
    another stream can come between the two. [bind.late] [order.other-streams]

    Attributes
    ----------
    data : bytearray
        What was taken.
    """

    __slots__ = ("count", "data", "wanted")
    kind: ClassVar[str] = "run_io"
    on_host_thread: ClassVar[bool] = True

    def __init__(self, op: AsyncOp) -> None:
        super().__init__(op)
        self.count = -1
        self.wanted = 0
        self.data = bytearray()

    def accesses(self) -> Sequence[Access]:
        op = self.op
        touched = [Access(MEM, pointer, SLOT, False) for pointer in op.late_slots]
        count, file_offset, buffer_offset = self.span()
        looked = max(count, self.wanted)  # a short read has seen where the file ends
        if looked > 0:
            if op.write:
                touched.append(Access(MEM, op.buffer.base + buffer_offset, count, False))
            else:
                touched.append(Access(op.driver.file_space(op.file), file_offset, looked, False))
        return touched

    def span(self) -> tuple[int, int, int]:
        """Bytes, file offset and buffer offset: as bound once it ran, else as they would be now."""
        op = self.op
        if self.count >= 0:
            return self.count, op.file_offset, op.buffer_offset
        size, file_offset, buffer_offset = op.fetch() or (0, 0, 0)
        count = min(size, MAX_RW_COUNT, _room(op, buffer_offset)) if op.value >= 0 else 0
        codes = op.driver.profile.async_range_codes
        if ranges.at_run(codes, op.buffer, op.flags, size, file_offset, buffer_offset):
            count = 0
        return count, file_offset, buffer_offset

    def cost(self, model: CostModel) -> int:
        size = max(0, min(self.op.size, self.op.buffer.length))
        return model.copy(size) if self.op.write else model.file(size)

    def run(self) -> None:
        op = self.op
        self.count = 0
        if op.value < 0:
            return
        fetched = op.fetch()
        if fetched is None:
            op.lost_slot("a size or offset slot")
            op.value = INVALID
            return
        size, file_offset, buffer_offset = fetched
        op.size = size = min(size, MAX_RW_COUNT)
        op.file_offset = file_offset
        op.buffer_offset = buffer_offset
        codes = op.driver.profile.async_range_codes
        refused = ranges.at_run(codes, op.buffer, op.flags, size, file_offset, buffer_offset)
        if refused:  # [bind.range.late]
            op.value = refused
            return
        room = _room(op, buffer_offset)  # less than the size only where no registration says how much there is
        if op.write:
            if size > room:
                op.value = _beyond(op, size)
                return
            self.count = max(0, _device(op, self.data, size))
        else:
            self.wanted = min(size, room + 1)
            self.count = max(0, _file(op, self.data, self.wanted))
            if self.count > room:  # the file has more than the memory holds
                op.value = _beyond(op, size)
                self.count = 0


class RunCopy(OpCommand):
    """The second half: the bytes go to device memory, or to the file.

    Parameters
    ----------
    op : AsyncOp
    first : RunIO
        The command that took them.
    """

    __slots__ = ("done", "first")
    kind: ClassVar[str] = "run_copy"
    on_host_thread: ClassVar[bool] = True

    def __init__(self, op: AsyncOp, first: RunIO) -> None:
        super().__init__(op)
        self.first = first
        self.done = -1

    def accesses(self) -> Sequence[Access]:
        op = self.op
        count, file_offset, buffer_offset = self.first.span()
        if self.done >= 0:
            count = self.done
        if count <= 0 or op.value < 0:
            return ()
        if op.write:
            return (Access(op.driver.file_space(op.file), file_offset, count, True),)
        return (Access(MEM, op.buffer.base + buffer_offset, count, True),)

    def cost(self, model: CostModel) -> int:
        size = max(0, self.first.count)
        return model.file(size) if self.op.write else model.copy(size)

    def run(self) -> None:
        op, count = self.op, self.first.count
        self.done = 0
        if op.value >= 0:
            data = self.first.data
            op.value = _file(op, data, count) if op.write else _device(op, data, count)
            self.done = max(0, op.value)
        self.first.data = bytearray()


def _room(op: AsyncOp, buffer_offset: int) -> int:
    """Bytes of the buffer from `buffer_offset` on."""
    return max(0, op.buffer.length - buffer_offset)


def _beyond(op: AsyncOp, size: int) -> int:
    """The range leaves memory that nobody registered: what is published for it.

    cuFile does not look at such a size and uses whatever lies behind the allocation; the model has nothing there.
    """
    driver = op.driver
    if op.buffer.length == 0:  # memory that was freed
        driver.hidden_errno(op, OSError(errno.EFAULT, posix.strerror(errno.EFAULT)))
        return driver.profile.async_error
    driver.memory_fault(op, op.buffer.base + op.buffer_offset, size)
    return INTERNAL


def _device(op: AsyncOp, data: bytearray, count: int) -> int:
    """Move `count` bytes between `data` and the buffer; the count, or what is published instead."""
    driver = op.driver
    memory = driver.memory
    start = op.buffer.base + op.buffer_offset
    try:
        view = memory.view(start, count, dead_ok=True) if count else memoryview(b"")
    except HipMemoryError:
        if not memory.is_device_address(start):
            return _host(op, data, start, count)
        driver.memory_fault(op, start, count)
        op.value = INTERNAL
        return INTERNAL
    if op.write:
        data[:] = view
    elif count:
        view[:] = memoryview(data)[:count]
    return count


def _host(op: AsyncOp, data: bytearray, start: int, count: int) -> int:
    """As `_device`, for memory that the process itself owns; it may be none. [buffer.io.type-async]"""
    driver = op.driver
    for at in range(0, count, STEP):
        step = min(STEP, count - at)
        if op.write:
            piece = driver.memory.read(start + at, step)
            if piece is not None:
                data += piece
                continue
        elif driver.memory.write(start + at, memoryview(data)[at : at + step]):
            continue
        driver.hidden_errno(op, OSError(errno.EFAULT, posix.strerror(errno.EFAULT)))
        op.value = driver.profile.async_error
        return op.value
    return count


def _file(op: AsyncOp, data: bytearray, size: int) -> int:
    """Move up to `size` bytes between `data` and the file; the count, or what is published instead."""
    driver = op.driver
    driver.check_descriptor(op.file)
    transfer = driver.files.pwrite_from if op.write else driver.files.pread_into
    count = 0
    while count < size:
        if not op.write and count == len(data):  # a size says nothing about how much the file has
            data += bytes(min(STEP, size - count))
        with memoryview(data) as whole, whole[count:size] as view:
            try:
                moved = transfer(op.file.buffered_fd, view, op.file_offset + count)
            except InterruptedError:
                continue
            except OSError as error:
                driver.hidden_errno(op, error)
                op.value = driver.profile.async_error
                return op.value
        if moved == 0:
            break
        count += moved
    return count
