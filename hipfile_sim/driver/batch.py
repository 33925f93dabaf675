"""Batches: many operations in one call. Up to 0.4 they are accepted and never run; from 0.5 on a pool runs them.

Source of the rules: code of the releases and their tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hipfile_sim.driver.buffers import U64, Buffer, Refused, inspect
from hipfile_sim.driver.codes import MAX_BATCH, SUCCESS, BatchStatus, HipFileStatus, OpError, VendorError, status
from hipfile_sim.driver.tasks import Batch, BatchEvent, BatchOp, Task, checked
from hipfile_sim.engine.command import Lane
from hipfile_sim.engine.errors import DeadlockError

if TYPE_CHECKING:
    from hipfile_sim.driver.driver import Driver

__all__ = ["GENERATIONS", "BatchEvent", "BatchOp", "CufileBatches", "PoolBatches", "StoredBatches"]

INVALID = status(OpError.hipFileInvalidValue)
INTERNAL = status(OpError.hipFileInternalError)
SUBMIT_FAILED = HipFileStatus(VendorError.batchSubmitFailed)
STATUS_FAILED = HipFileStatus(VendorError.batchStatusFailed)
FULL = status(OpError.hipFileBatchFull)
NOT_INITIALIZED = status(OpError.hipFileDriverNotInitialized)
WORKERS = 4
"""Threads of the pool; the real number is not known. [batch.pool.size]"""

NS = 1_000_000_000


class StoredBatches:
    """0.2 to 0.4: what is accepted is stored and never runs. [batch.generation]

    Parameters
    ----------
    driver : Driver
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.contexts: dict[int, Batch] = {}

    def set_up(self, capacity: int) -> tuple[HipFileStatus, int]:
        """A new context and its handle. [batch.setup.capacity] [batch.setup.closed]"""
        if not 1 <= capacity <= MAX_BATCH:
            return INVALID, 0
        handle = self.driver.runtime.new_handle("batch")
        self.contexts[handle] = Batch(capacity)
        return SUCCESS, handle

    def submit(self, handle: int, ops: Sequence[BatchOp] | None) -> HipFileStatus:
        """Room first, then each operation; any failed lookup ends as 5030. [batch.submit.closed]"""
        batch = self.contexts.get(handle)
        if batch is None or ops is None or len(ops) > batch.room:
            return INVALID
        for op in ops:
            try:
                task = self.lookup(batch, op)
            except Refused:
                return INTERNAL
            task.drop()
            if not checked(op, task.buffer):
                return INVALID
        batch.stored.extend(ops)
        return SUCCESS

    def lookup(self, batch: Batch, op: BatchOp) -> Task:
        """Driver, file, buffer; both are held by the task.

        Raises
        ------
        Refused
            5001, 5027, or what the lookup of the buffer raises.
        """
        state = self.driver.state
        with state.lock:
            if state.use_count == 0:
                raise Refused(OpError.hipFileDriverNotInitialized)
            file = state.files.hold(op.handle & U64)
            if file is None:
                raise Refused(OpError.hipFileHandleNotRegistered)
            buffer = state.buffers.entries.get(op.buffer & U64)
            if buffer is not None:
                task = Task(self.driver, batch, op, file, buffer)
                buffer.users.add(task)
                return task
        try:
            return Task(self.driver, batch, op, file, self.inspect(op))
        except Refused:
            file.release()
            raise

    def inspect(self, op: BatchOp) -> Buffer:
        """The temporary buffer of an operation on memory that is not registered."""
        return inspect(self.driver.runtime, self.driver.profile, op.buffer & U64, None)

    def get_status(
        self, handle: int, min_nr: int, max_nr: int, timeout: tuple[int, int] | None
    ) -> tuple[HipFileStatus, list[BatchEvent]]:
        """Not implemented."""
        return INTERNAL, []

    def cancel(self, handle: int) -> HipFileStatus:
        """Not implemented."""
        return INTERNAL

    def destroy(self, handle: int) -> None:
        """Nothing: the context stays valid, and leaks. [batch.destroy]"""

    def driver_closed(self) -> None:
        """The use count has reached 0. Contexts stay valid. [life.close.batches]"""


class PoolBatches(StoredBatches):
    """0.5: accepted operations run on a pool of workers, each a lane of the engine. [batch.generation]"""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self._lanes: list[Lane] = []

    def submit(self, handle: int, ops: Sequence[BatchOp] | None) -> HipFileStatus:
        """All or nothing: arguments, handle, each operation, then the room. [batch.submit.validate-first]"""
        if not ops:  # [batch.submit.null]
            return INVALID
        batch = self.contexts.get(handle)
        if batch is None:  # [batch.submit.handle]
            return INVALID
        tasks: list[Task] = []
        try:
            refused = self._build(batch, ops, tasks)
            if refused is SUCCESS:
                with self.driver.engine.lock:
                    if self.contexts.get(handle) is not batch:  # destroyed meanwhile
                        refused = INVALID
                    elif len(tasks) > batch.room:  # [batch.submit.full]
                        refused = FULL
                    else:
                        self._start(batch, tasks)
                        tasks = []
        finally:
            for task in tasks:
                task.drop()
        return refused

    def _build(self, batch: Batch, ops: Sequence[BatchOp], tasks: list[Task]) -> HipFileStatus:
        for op in ops:
            try:
                task = self.lookup(batch, op)
            except Refused as refused:
                return refused.status
            tasks.append(task)
            if not self.acceptable(op, task.buffer):
                return INVALID
        return SUCCESS

    def acceptable(self, op: BatchOp, buffer: Buffer) -> bool:
        """Whether an operation may be part of a batch. [batch.submit.validate]"""
        return checked(op, buffer)

    def _start(self, batch: Batch, tasks: Sequence[Task]) -> None:
        engine = self.driver.engine
        runtime = self.driver.runtime
        if not self._lanes:
            self._lanes = [engine.add_lane(f"batch worker {n}", -1) for n in range(WORKERS)]
        for task in tasks:
            task.buffer.users.add(task)
            batch.outstanding[task] = None
            lane = min(self._lanes, key=lambda lane: (lane.submitted - lane.completed, lane.index))
            # the copies are plain ones, so they wait for the null stream's order [sync.fallback.memcpy-order]
            task.marker = (lane, lane.submitted + 1)
            engine.submit(lane, task, runtime.null_order(task.buffer.device))

    def get_status(
        self, handle: int, min_nr: int, max_nr: int, timeout: tuple[int, int] | None
    ) -> tuple[HipFileStatus, list[BatchEvent]]:
        """Wait, then collect. [batch.status.order] [batch.status.waits]"""
        if max_nr <= 0 or min_nr > max_nr:
            return INVALID, []
        batch = self.contexts.get(handle)
        if batch is None:
            return INVALID, []
        if timeout is not None and not (timeout[0] >= 0 and 0 <= timeout[1] < NS):
            return INVALID, []
        if min_nr > batch.capacity:
            return INVALID, []
        limit = None if timeout is None else timeout[0] * NS + timeout[1]
        self._wait(batch, min_nr, limit)
        with self.driver.engine.lock:
            taken = [batch.completed.popleft() for _ in range(min(max_nr, len(batch.completed)))]
        markers = [marker for _, marker in taken if marker is not None and marker[0].completed >= marker[1]]
        if markers:
            self.driver.runtime.learnt(markers, "hipFileBatchIOGetStatus")
        return SUCCESS, [event for event, _ in taken]

    def _wait(self, batch: Batch, least: int, limit: int | None) -> None:
        """Until `least` events are there, nothing is outstanding, or `limit` ns have passed (None: for ever)."""
        engine = self.driver.engine
        engine.host_point("hipFileBatchIOGetStatus")
        if limit == 0:
            pending = [task.marker for task in batch.outstanding if task.marker is not None]
            engine.looked(pending, "hipFileBatchIOGetStatus")
            return
        if engine.threaded and limit is not None:
            seconds = min(limit / NS, 1e6)
            with engine.changed:
                engine.changed.wait_for(lambda: len(batch.completed) >= least or not batch.outstanding, seconds)
            return
        deadline = None if limit is None else engine.clock.now + limit
        while len(batch.completed) < least:
            task = next(iter(batch.outstanding), None)
            if task is None or task.marker is None or (deadline is not None and engine.clock.now >= deadline):
                return
            try:
                engine.wait([task.marker], "hipFileBatchIOGetStatus")
            except DeadlockError:
                if deadline is None:
                    raise
                engine.clock.reach(deadline)

    def cancel(self, handle: int) -> HipFileStatus:
        """Operations that have not begun are cancelled and can be collected at once. [batch.cancel]"""
        batch = self.contexts.get(handle)
        if batch is None:  # [batch.cancel.handle]
            return INVALID
        self._cancel(batch)
        return SUCCESS

    def _cancel(self, batch: Batch) -> None:
        with self.driver.engine.lock:
            for task in [task for task in batch.outstanding if not task.running]:
                task.count = 0
                task.finish(BatchStatus.hipFileCanceled, 0)

    def destroy(self, handle: int) -> None:
        """Remove the handle, cancel what has not begun, wait for what runs. [batch.destroy]"""
        batch = self.contexts.pop(handle, None)
        if batch is None:
            return
        self._cancel(batch)
        markers = [task.marker for task in list(batch.outstanding) if task.marker is not None]
        if markers:
            self.driver.runtime.wait(markers, "hipFileBatchIODestroy")

    def driver_closed(self) -> None:
        """Contexts are cancelled and cleared. [life.close.batches]"""
        for handle in list(self.contexts):
            self.destroy(handle)


class CufileBatches(PoolBatches):
    """cuFile: refusals have codes of their own, and most bad operations fail as operations."""

    def set_up(self, capacity: int) -> tuple[HipFileStatus, int]:
        """Needs an open driver. [batch.setup.capacity] [batch.setup.closed]"""
        if self.driver.state.use_count == 0 or not 1 <= capacity <= MAX_BATCH:
            return INVALID, 0
        return super().set_up(capacity)

    def submit(self, handle: int, ops: Sequence[BatchOp] | None) -> HipFileStatus:
        """Any refusal is the same code. [batch.submit.handle] [batch.submit.full]"""
        return SUCCESS if super().submit(handle, ops) is SUCCESS else SUBMIT_FAILED

    def acceptable(self, op: BatchOp, buffer: Buffer) -> bool:
        """The rest is found out when the operation runs. [batch.submit.validate]"""
        return op.file_offset >= 0

    def get_status(
        self, handle: int, min_nr: int, max_nr: int, timeout: tuple[int, int] | None
    ) -> tuple[HipFileStatus, list[BatchEvent]]:
        """Any refusal is the same code. [batch.status.order]"""
        code, events = super().get_status(handle, min_nr, max_nr, timeout)
        return (SUCCESS if code is SUCCESS else STATUS_FAILED), events

    def cancel(self, handle: int) -> HipFileStatus:
        """Always succeeds; cancelled operations yield no events. [batch.cancel]"""
        batch = self.contexts.get(handle)
        if batch is not None:
            before = len(batch.completed)
            self._cancel(batch)
            while len(batch.completed) > before:
                batch.completed.pop()
        return SUCCESS


GENERATIONS: dict[str, type[StoredBatches]] = {"stored": StoredBatches, "pool": PoolBatches, "cufile": CufileBatches}
"""By `Profile.batch`."""
