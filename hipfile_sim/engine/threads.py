"""The threaded engine: the same commands on one real thread a stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from hipfile_sim.engine.base import Engine
from hipfile_sim.engine.clock import CostModel, VirtualClock
from hipfile_sim.engine.command import HELD, SLOW, Command, Lane, Marker
from hipfile_sim.engine.errors import EngineError
from hipfile_sim.engine.progress import Patience


class RealClock(VirtualClock):
    """Real time since the machine was made, in ns. Moving it by hand does nothing."""

    __slots__ = ("_start",)

    def __init__(self) -> None:
        self._start = time.perf_counter_ns()

    @property
    def now(self) -> int:  # type: ignore[override]
        """Nanoseconds since the start."""
        return time.perf_counter_ns() - self._start

    def advance(self, ns: int) -> int:
        return self.now

    def reach(self, time_ns: int) -> int:
        return self.now


class _Worker:
    """The thread of one lane, and what it sleeps on."""

    __slots__ = ("condition", "sleeping", "thread")

    def __init__(self, lock: threading.RLock) -> None:
        self.condition = threading.Condition(lock)
        self.sleeping = False
        self.thread: threading.Thread | None = None


class ThreadEngine(Engine):
    """One real thread a lane; commands of different lanes overlap as they do on hardware.

    The order between lanes is the operating system's, so runs differ; the engine has no token.

    Parameters
    ----------
    costs : CostModel, optional
        Unused by execution; kept for observers.
    host_threads : str
        ``"one"``: commands on the host thread exclude each other; ``"per-stream"``: they do not.
    watchdog_s : float
        Real seconds without any progress, with every lane blocked, before an error, see `Engine`.
    """

    threaded = True

    def __init__(
        self, costs: CostModel | None = None, *, host_threads: str = "per-stream", watchdog_s: float = 5.0
    ) -> None:
        super().__init__(costs, host_threads=host_threads, watchdog_s=watchdog_s)
        self.clock = RealClock()
        self.steps = 0
        self._workers: dict[int, _Worker] = {}
        self._host_mutex = threading.Lock()
        self._host_waiters = 0

    def submit(self, lane: Lane, command: Command, deps: tuple[Marker, ...] = ()) -> int:
        with self.lock:
            if self.closed and not self.ended:  # a forked child has no threads to run it
                return lane.submitted
            if self.fatal is not None:
                raise self.fatal
            self._staff(lane)
            ticket = self._enqueue(lane, command, deps)
            self._wake(lane)
            return ticket

    def submit_all(self, lane: Lane, commands: Sequence[Command], deps: tuple[Marker, ...] = ()) -> None:
        if self.observers:
            super().submit_all(lane, commands, deps)
            return
        with self.lock:
            if self.fatal is not None:
                raise self.fatal
            if not self.closed:
                self._staff(lane)
                self._enqueue_all(lane, commands, deps)
                self._wake(lane)

    def _staff(self, lane: Lane) -> None:
        """Give `lane` its thread before it gets work."""
        if lane.index in self._workers:
            return
        worker = _Worker(self.lock)
        thread = threading.Thread(target=self._loop, args=(lane, worker), name=f"hipfile-sim {lane.name}", daemon=True)
        thread.hipfile_sim = True  # type: ignore[attr-defined]
        try:
            thread.start()
        except RuntimeError as error:
            raise EngineError(
                f"{lane.name} gets no thread: {error}. Each stream of the threaded engine has one: use fewer streams, "
                "raise the limits of the process (ulimit -u, ulimit -v), or use the step engine"
            ) from None
        worker.thread = thread
        self._workers[lane.index] = worker

    def _wake(self, lane: Lane) -> None:
        """`lane` has work for its thread."""
        worker = self._workers[lane.index]
        if worker.sleeping:
            worker.condition.notify()

    def host_point(self, what: str, *, before: bool = False) -> None:
        if self.fatal is not None:
            raise self.fatal

    def wait(self, targets: Sequence[Marker], what: str) -> None:
        with self.lock:
            self._host_waiters += 1
            try:
                steps = self.steps
                left = self.watchdog_s
                patience: Patience | None = None
                while any(lane.completed < ticket for lane, ticket in targets):
                    if self.fatal is not None:
                        raise self.fatal
                    if self.closed:  # a forked child
                        return
                    slept = self._doze(0.25)
                    left -= slept
                    if slept >= 0.25:
                        self._wake_all()  # an interrupted submission has not woken its lane's thread
                    if self.steps != steps or self._busy():
                        steps = self.steps
                        left = self.watchdog_s
                        patience = None
                    elif patience is None:
                        patience = Patience(self)
                    elif left <= 0:
                        raise self._overdue(what, targets, patience)
            finally:
                self._host_waiters -= 1
            if self.fatal is not None:
                raise self.fatal

    def poke(self) -> None:
        with self.lock:
            self.changed.notify_all()
            self._wake_all()

    def close(self) -> None:
        with self.lock:
            super().close()
            self._wake_all()
            threads = [worker.thread for worker in self._workers.values() if worker.thread is not None]
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout=0.5)

    def after_fork(self) -> None:
        super().after_fork()
        self._workers = {}
        self._host_mutex = threading.Lock()
        self.closed = True

    def retire(self, lane: Lane) -> None:
        with self.lock:
            super().retire(lane)
            worker = self._workers.get(lane.index)
            if worker is not None and worker.sleeping:
                worker.condition.notify()

    # -- the lanes' threads ------------------------------------------------------------------------------------------

    def _busy(self) -> bool:
        """Whether any lane runs something of the model's own, which always ends, or is about to."""
        return any(
            self._runnable(lane) if lane.running is None else not lane.running.external for lane in self.lanes.values()
        )

    def _wake_all(self) -> None:
        for worker in self._workers.values():
            if worker.sleeping:
                worker.condition.notify()

    def _runnable(self, lane: Lane) -> bool:
        if not lane.queue or lane.stalled == HELD:
            return False
        head = lane.queue[0]
        for dep in head.deps:
            if dep[0].completed < dep[1]:
                return False
        if head.conditional and not head.ready():
            return False
        return lane.stalled != SLOW or not self._others_can_move(lane)

    def _others_can_move(self, lane: Lane) -> bool:
        return any(
            other.running is not None or (not other.stalled and self._runnable(other))
            for other in self.lanes.values()
            if other is not lane
        )

    def _loop(self, lane: Lane, worker: _Worker) -> None:
        lock = self.lock
        lock.acquire()
        try:
            while True:
                while not self._runnable(lane):
                    if self.closed or (not lane.queue and lane.index not in self.lanes):
                        self._workers.pop(lane.index, None)
                        return
                    worker.sleeping = True
                    # a value in memory can change behind the engine's back: conditional heads look again
                    worker.condition.wait(0.002 if lane.queue and lane.queue[0].conditional else None)
                    worker.sleeping = False
                if self.closed:
                    return
                command = lane.queue.popleft()
                lane.running = command
                command.start_time = self.clock.now
                if self.observers:
                    self._tell("started", command)
                error: BaseException | None = None
                if not command.signals:
                    lock.release()
                try:
                    self._execute(command)
                except BaseException as caught:  # reported to the host program by the next wait
                    error = caught
                finally:
                    if not command.signals:
                        lock.acquire()
                self._finish(lane, command, error)
        finally:
            lock.release()

    def _execute(self, command: Command) -> None:
        if command.on_host_thread and self.host_threads == "one":
            with self._host_mutex:
                self._call_user(command) if command.user_code else command.run()
        elif command.user_code:
            self._call_user(command)
        else:
            command.run()

    def _finish(self, lane: Lane, command: Command, error: BaseException | None) -> None:
        lane.running = None
        command.finish_time = lane.time = self.clock.now
        lane.completed = command.ticket
        self.steps += 1
        if error is not None:
            self._failed(command, error)
        if self.observers:
            self._tell("finished", command)
        if self._host_waiters or self.fatal is not None:
            self.changed.notify_all()
        if len(self._workers) > 1:
            for index, worker in self._workers.items():
                if worker.sleeping and index != lane.index and self.lanes.get(index, lane).queue:
                    worker.condition.notify()
