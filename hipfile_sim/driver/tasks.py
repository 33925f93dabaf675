"""What a batch holds: its operations as the pool runs them, and how they ended.

Source of the rules: code of the releases and their tests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from hipfile_sim.driver import sync
from hipfile_sim.driver.buffers import U64, Buffer, in_range
from hipfile_sim.driver.codes import BatchMode, BatchOpcode, BatchStatus, IOResult, OpError
from hipfile_sim.engine.command import MEM, Access, Command, Marker
from hipfile_sim.hip.codes import HipError

if TYPE_CHECKING:
    from hipfile_sim.driver.driver import Driver
    from hipfile_sim.driver.files import RegisteredFile
    from hipfile_sim.engine.clock import CostModel


class BatchOp(NamedTuple):
    """``hipFileIOParams_t``: one operation of a batch. Sizes and offsets in bytes; `buffer` is a device address."""

    mode: int = BatchMode.hipFileBatch
    opcode: int = BatchOpcode.hipFileBatchRead
    handle: int = 0
    buffer: int = 0
    file_offset: int = 0
    buffer_offset: int = 0
    size: int = 0
    cookie: int = 0


class BatchEvent(NamedTuple):
    """``hipFileIOEvents_t``: how an operation ended. `ret` is bytes or a negative code."""

    cookie: int
    status: BatchStatus
    ret: int


class Task(Command):
    """An accepted operation, as the pool runs it: the synchronous path from end to end. [batch.run.sync-path]

    Attributes
    ----------
    state : BatchStatus
        Pending until the pool takes it; running is reported as pending, too. [batch.event.states]
    """

    __slots__ = ("batch", "buffer", "count", "driver", "file", "marker", "op", "running", "state")
    kind: ClassVar[str] = "batch_io"
    library: ClassVar[bool] = True

    def __init__(self, driver: Driver, batch: Batch, op: BatchOp, file: RegisteredFile, buffer: Buffer) -> None:
        super().__init__()
        self.driver = driver
        self.batch = batch
        self.op = op
        self.file = file
        self.buffer = buffer
        self.state = BatchStatus.hipFilePending
        self.running = False
        self.count = -1
        self.marker: Marker | None = None

    @property
    def writes(self) -> bool:
        """Whether bytes go to the file."""
        return self.op.opcode == BatchOpcode.hipFileBatchWrite

    def accesses(self) -> Sequence[Access]:
        op = self.op
        count = op.size if self.state == BatchStatus.hipFilePending else self.count
        if count < 0 or (count == 0 and self.writes):
            return ()
        if not self.writes:  # a short read has seen where the file ends, and takes the rest of the host buffer along
            looked = Access(self.driver.file_space(self.file), op.file_offset, op.size, False)
            if count == 0:
                return (looked,)
            return looked, Access(MEM, self.buffer.base + op.buffer_offset, op.size, True)
        return (
            Access(self.driver.file_space(self.file), op.file_offset, count, True),
            Access(MEM, self.buffer.base + op.buffer_offset, count, False),
        )

    def cost(self, model: CostModel) -> int:
        return model.file(self.op.size) + model.copy(self.op.size)

    def run(self) -> None:
        with self.driver.engine.lock:
            if self.state != BatchStatus.hipFilePending:  # cancelled before it began
                return
            self.running = True
        op = self.op
        self.driver.on_lane = True
        try:
            result = sync.run(
                self.driver,
                self.writes,
                self.file,
                self.buffer,
                op.size,
                op.file_offset,
                op.buffer_offset,
                0,  # a pool thread never changes its current device
                self._move,
            )
        finally:
            self.driver.on_lane = False
        self.count = max(0, result.count)
        code = _event_code(result, self.driver.profile.batch_failure)
        self.finish(BatchStatus.hipFileComplete if code >= 0 else BatchStatus.hipFileFailed, code)

    def finish(self, state: BatchStatus, ret: int) -> None:
        """Reach a terminal state: references go, the event can be collected."""
        with self.driver.engine.lock:
            self.state = state
            self.running = False
            self.drop()
            self.batch.outstanding.pop(self, None)
            self.batch.completed.append((BatchEvent(self.op.cookie, state, ret), self.marker))
            self.driver.engine.changed.notify_all()

    def drop(self) -> None:
        """Give back file and buffer."""
        self.buffer.users.discard(self)
        self.file.release()

    def _move(self, destination: int, source: int, length: int) -> HipError:
        interpose = self.driver.runtime.interpose
        if interpose is not None:
            code = interpose("hipMemcpy", (destination, source, length))
            if code:
                return HipError(code)
        moved = self.driver.memory.copy(destination, source, length)
        return HipError.hipSuccess if moved else HipError.hipErrorInvalidValue


def _event_code(result: IOResult, failure: int | None = None) -> int:
    """Result of the synchronous path as ``ret`` of an event; `failure` stands for every failure. [batch.event.result]

    >>> (
    ...     _event_code(IOResult(-1, 27)),
    ...     _event_code(IOResult(-5030)),
    ...     _event_code(IOResult(-700)),
    ...     _event_code(IOResult(5)),
    ... )
    (-27, -5030, -5011, 5)
    """
    count = result.count
    if count < 0 and failure is not None:
        return failure
    if count >= 0 or count < -5000:
        return count
    if count == -1 and result.errno:
        return -result.errno
    return -OpError.hipFileHipDriverError.value


class Batch:
    """One context.

    Attributes
    ----------
    capacity : int
        Operations that fit, those complete but not collected included.
    outstanding : dict of Task
        Submitted and not finished, oldest first.
    completed : deque
        Events that wait to be collected, in order of completion. [batch.status.collects]
    stored : list of BatchOp
        Where nothing ever runs.
    """

    __slots__ = ("capacity", "completed", "outstanding", "stored")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.outstanding: dict[Task, None] = {}
        self.completed: deque[tuple[BatchEvent, Marker | None]] = deque()
        self.stored: list[BatchOp] = []

    @property
    def room(self) -> int:
        """Operations that can still be submitted. [batch.submit.full]"""
        return self.capacity - len(self.outstanding) - len(self.completed) - len(self.stored)


def checked(op: BatchOp, buffer: Buffer) -> bool:
    """The checks on one operation, in order. [batch.submit.validate]"""
    return (
        op.buffer == buffer.base
        and in_range(buffer.length, op.size & U64, max(op.file_offset, 0), op.buffer_offset)
        and op.file_offset >= 0
        and op.opcode in (BatchOpcode.hipFileBatchRead, BatchOpcode.hipFileBatchWrite)
        and op.mode == BatchMode.hipFileBatch
    )
