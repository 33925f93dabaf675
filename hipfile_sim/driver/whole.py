"""A whole asynchronous operation in two commands: what is taken, and where it goes.

Source: observed on an H200 with cuFile 1.15.1, in its compatibility mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from hipfile_sim.driver.buffers import in_range
from hipfile_sim.driver.codes import MAX_RW_COUNT
from hipfile_sim.driver.operations import INTERNAL, INVALID, AsyncOp, OpCommand
from hipfile_sim.driver.services import SLOT
from hipfile_sim.engine.command import MEM, Access
from hipfile_sim.hip.memory import HipMemoryError

if TYPE_CHECKING:
    from hipfile_sim.engine.clock import CostModel


class RunIO(OpCommand):
    """The first half: reads the slots and takes the bytes, from the file or from device memory.

    cuFile was observed to read every slot here, and to let other streams in before the second half: a device write of
    another stream can come between the two. [bind.late] [order.other-streams]

    Attributes
    ----------
    data : bytearray
        What was taken.
    """

    __slots__ = ("count", "data")
    kind: ClassVar[str] = "run_io"
    on_host_thread: ClassVar[bool] = True

    def __init__(self, op: AsyncOp) -> None:
        super().__init__(op)
        self.count = -1
        self.data = bytearray()

    def accesses(self) -> Sequence[Access]:
        op = self.op
        touched = [Access(MEM, pointer, SLOT, False) for pointer in op.late_slots]
        count, file_offset, buffer_offset = self.span()
        if count > 0:
            if op.write:
                touched.append(Access(MEM, op.buffer.base + buffer_offset, count, False))
            else:
                touched.append(Access(op.driver.file_space(op.file), file_offset, count, False))
        return touched

    def span(self) -> tuple[int, int, int]:
        """Bytes, file offset and buffer offset: as bound once it ran, else as they would be now."""
        op = self.op
        if self.count >= 0:
            return self.count, op.file_offset, op.buffer_offset
        size, file_offset, buffer_offset = op.fetch() or (0, 0, 0)
        count = min(size, MAX_RW_COUNT) if op.value >= 0 else 0
        if not in_range(op.buffer.length, count, file_offset, buffer_offset):
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
        refused = op.driver.range_code(op)
        if refused:
            op.value = refused
            return
        self.data = bytearray(size)
        self.count = _device(op, self.data, size) if op.write else _file(op, self.data, size)


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


def _device(op: AsyncOp, data: bytearray, count: int) -> int:
    """Move `count` bytes between `data` and device memory; the count, or what is published instead."""
    driver = op.driver
    try:
        view = driver.memory.view(op.buffer.base + op.buffer_offset, count, dead_ok=True)
    except HipMemoryError:
        driver.memory_fault(op, op.buffer.base + op.buffer_offset, count)
        op.value = INTERNAL
        return INTERNAL
    if op.write:
        data[:count] = view
    else:
        view[:] = memoryview(data)[:count]
    return count


def _file(op: AsyncOp, data: bytearray, size: int) -> int:
    """Move up to `size` bytes between `data` and the file; the count, or what is published instead."""
    driver = op.driver
    driver.check_descriptor(op.file)
    transfer = driver.files.pwrite_from if op.write else driver.files.pread_into
    view = memoryview(data)
    count = 0
    while count < size:
        try:
            moved = transfer(op.file.buffered_fd, view[count:size], op.file_offset + count)
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
