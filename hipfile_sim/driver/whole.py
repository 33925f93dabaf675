"""A whole asynchronous operation in one command.

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
    """A whole operation in one command, with the slots read as it runs: how cuFile was observed to behave."""

    __slots__ = ("count",)
    kind: ClassVar[str] = "run_io"
    on_host_thread: ClassVar[bool] = True

    def __init__(self, op: AsyncOp) -> None:
        super().__init__(op)
        self.count = -1

    def accesses(self) -> Sequence[Access]:
        op = self.op
        touched = [Access(MEM, pointer, SLOT, False) for pointer in op.late_slots]
        if self.count < 0:
            size, file_offset, buffer_offset = op.fetch() or (0, 0, 0)
            count = min(size, MAX_RW_COUNT) if op.value >= 0 else 0
            if not in_range(op.buffer.length, count, file_offset, buffer_offset):
                count = 0
        else:
            count, file_offset, buffer_offset = self.count, op.file_offset, op.buffer_offset
        if count > 0:
            touched.append(Access(op.driver.file_space(op.file), file_offset, count, op.write))
            touched.append(Access(MEM, op.buffer.base + buffer_offset, count, not op.write))
        return touched

    def cost(self, model: CostModel) -> int:
        size = max(0, min(self.op.size, self.op.buffer.length))
        return model.file(size) + model.copy(size)

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
        op.value = self._transfer(size)
        self.count = max(0, op.value)

    def _transfer(self, size: int) -> int:
        op = self.op
        driver = op.driver
        driver.check_descriptor(op.file)
        transfer = driver.files.pwrite_from if op.write else driver.files.pread_into
        count = 0
        try:
            view = driver.memory.view(op.buffer.base + op.buffer_offset, size, dead_ok=True)
        except HipMemoryError:
            driver.memory_fault(op, op.buffer.base + op.buffer_offset, size)
            return INTERNAL
        while count < size:
            try:
                moved = transfer(op.file.buffered_fd, view[count:], op.file_offset + count)
            except InterruptedError:
                continue
            except OSError as error:
                driver.hidden_errno(op, error)
                return driver.profile.async_error
            if moved == 0:
                break
            count += moved
        return count
