"""The deterministic engine: nothing moves unless the schedule chooses it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from hipfile_sim.engine.base import Engine
from hipfile_sim.engine.clock import CostModel
from hipfile_sim.engine.command import HELD, SLOW, Command, Lane, Marker
from hipfile_sim.engine.hostthread import HostFunctionThread
from hipfile_sim.engine.progress import Patience
from hipfile_sim.engine.schedules import HOST, Option, Point, Schedule, parse_schedule
from hipfile_sim.engine.token import ChoiceLog, TokenSchedule

_HOST_OPTION = Option(HOST, None, 0, False)
POLLS = 32
"""Looks in a row at work that does not move, after which each look lets the schedule move the device by one step.

Each is a choice that an explorer has to try, so they are few."""


class StepEngine(Engine):
    """Runs commands one at a time, in the order that a schedule chooses, in virtual time.

    The thread that blocks is the thread that runs the device. With one host thread a run is repeatable, choice by
    choice; programs with several host threads run, but the order in which their threads reach the engine is theirs.

    Parameters
    ----------
    schedule : str or Schedule
        See `parse_schedule`.
    costs : CostModel, optional
        Virtual ns of everything.
    host_threads : str
        ``"one"`` or ``"per-stream"``.
    watchdog_s : float
        Real seconds without progress before an error, see `Engine`.

    Examples
    --------
    >>> engine = StepEngine("lazy")
    >>> lane = engine.add_lane("stream 1")
    >>> ticket = engine.submit(lane, Command())
    >>> lane.completed
    0
    >>> engine.wait([(lane, ticket)], "example")
    >>> lane.completed
    1
    """

    def __init__(
        self,
        schedule: str | Schedule = "parallel",
        costs: CostModel | None = None,
        *,
        host_threads: str = "per-stream",
        watchdog_s: float = 5.0,
    ) -> None:
        super().__init__(costs, host_threads=host_threads, watchdog_s=watchdog_s)
        self.schedule = parse_schedule(schedule)
        self.tracker = self.schedule.tracker
        self.choices = ChoiceLog(self.schedule.passive)
        self.device_time = 0
        self.steps = 0
        self._looks = 0
        self._looks_since = 0
        self._active: dict[int, Lane] = {}
        self._workers: dict[int, HostFunctionThread] = {}

    # -- Engine ------------------------------------------------------------------------------------------------------

    def submit(self, lane: Lane, command: Command, deps: tuple[Marker, ...] = ()) -> int:
        with self.lock:
            ticket = self._enqueue(lane, command, deps)
            if self.tracker is not None:
                self.tracker.submitted(command)
            self._activate(lane)
            return ticket

    def submit_all(self, lane: Lane, commands: Sequence[Command], deps: tuple[Marker, ...] = ()) -> None:
        if self.tracker is not None or self.observers:
            super().submit_all(lane, commands, deps)
            return
        with self.lock:
            self._enqueue_all(lane, commands, deps)
            self._activate(lane)

    def _activate(self, lane: Lane) -> None:
        """`lane` has work."""
        if lane.index not in self._active:
            self._active[lane.index] = lane
            if len(self._active) > 1:
                self._active = dict(sorted(self._active.items()))
        if self.fresh_waiters:
            self.changed.notify_all()

    fresh_waiters = 0
    """Host threads that are starved: only another thread's action can help them."""

    def host_point(self, what: str, *, before: bool = False) -> None:
        if self.fatal is not None:
            raise self.fatal
        if self.schedule.passive:
            return
        inside = self.host_function
        if inside is not None:
            if self.tracker is not None:
                self.tracker.asked_inside(inside)
            return
        if self.tracker is not None:
            self.tracker.called(what, before)
        if not self._active:
            return
        with self.lock:
            moved = False
            while True:
                options = self._options(None, settle=True)
                if not options and not (moved and self.tracker is not None):
                    return
                moved = True
                options.insert(0, _HOST_OPTION)
                choice = self._choose(Point("host", what, options, self.clock.now))
                if options[choice].lane == HOST:
                    return
                self._step(self._active[options[choice].lane])

    def looked(self, targets: Sequence[Marker], what: str) -> None:
        # Without this a loop that polls would never end under a schedule that moves nothing before the host waits.
        if self.host_function is not None or all(lane.completed >= ticket for lane, ticket in targets):
            return
        if self.steps != self._looks_since:
            self._looks_since, self._looks = self.steps, 0
        self._looks += 1
        if self._looks <= POLLS:
            return
        with self.lock:
            unfinished = [target for target in targets if target[0].completed < target[1]]
            options = self._options(unfinished, settle=True)
            if options:
                choice = self._choose(Point("wait", what, options, self.clock.now))
                self._step(self._active[options[choice].lane])
                self._looks_since = self.steps

    def wait(self, targets: Sequence[Marker], what: str) -> None:
        inside = self.host_function
        if inside is None:
            self._wait(targets, what)
            return
        with self.lock:  # a host function that waits is blocked: nobody is to wait for it to settle meanwhile
            worker = self._workers.get(self._worker_key(inside.lane))
            if worker is None:  # a forked child
                self._wait(targets, what)
                return
            worker.in_wait += 1
            self.changed.notify_all()
            try:
                self._wait(targets, what)
            finally:
                worker.in_wait -= 1

    def _wait(self, targets: Sequence[Marker], what: str) -> None:
        with self.lock:
            last = 0
            while True:
                if self.fatal is not None:
                    raise self.fatal
                unfinished = [target for target in targets if target[0].completed < target[1]]
                if not unfinished:
                    break
                if len(self._active) == 1 and self.tracker is None:
                    lane, ticket = unfinished[0]
                    if lane.index in self._active and self._run_alone(lane, ticket):
                        continue
                options = self._options(unfinished, settle=True)
                if not options:
                    self._starve(targets, what)
                    continue
                choice = 0
                if len(options) > 1 or self.tracker is not None:
                    choice = self._choose(Point("wait", what, options, self.clock.now))
                self._step(self._active[options[choice].lane])
            if self.tracker is not None:
                self.tracker.waited(targets)
            for lane, _ in targets:
                last = max(last, lane.time)
            self.clock.reach(last)

    def run_out(self) -> None:
        """Run all that can run, lanes by index, whatever has failed before. The schedule is not asked."""
        with self.lock:
            while not self.ended:
                self.fatal = None
                options = self._options([lane.tail for lane in self._active.values()], settle=True)
                if not options:
                    return
                try:
                    self._step(self._active[options[0].lane])
                except Exception:  # of user code, on a machine that has failed already
                    continue

    def token(self) -> str:
        """The choices made so far. Give it as ``schedule`` to repeat the run."""
        return self.choices.token()

    def close(self) -> None:
        super().close()
        with self.lock:
            for worker in self._workers.values():
                worker.stop()  # it stays in the table: a thread that waits may be about to look at it

    def after_fork(self) -> None:
        super().after_fork()
        self._workers = {}

    def replayed(self) -> None:
        """Check that a replayed token was used up.

        Raises
        ------
        TokenMismatch
            The program ended before the token did.
        """
        if isinstance(self.schedule, TokenSchedule):
            self.schedule.check_used()

    # -- choosing ----------------------------------------------------------------------------------------------------

    def _choose(self, point: Point) -> int:
        choice = self.schedule.choose(point)
        if len(point.options) > 1:
            self.choices.add(choice, len(point.options))
        return choice

    def _options(self, targets: Sequence[Marker] | None, settle: bool) -> list[Option]:
        """What could happen now, lanes by index. `targets` is None at a host point."""
        options: list[Option] = []
        slow: list[Option] = []
        needed = self._needed(targets) if targets is not None and self.schedule.wants_needed else None
        if settle and self._workers:
            for worker in list(self._workers.values()):  # settling lets go of the lock: others may add workers
                worker.settle()
        one_thread_busy = self._one_thread_busy()
        costs = self.costs
        for lane in self._active.values():
            is_needed = needed is None or lane.index in needed
            running = lane.running
            if running is not None:
                if self._workers[self._worker_key(lane)].returned:
                    options.append(Option(lane.index, running, max(self.device_time, self.clock.now), is_needed))
                continue
            if lane.stalled == HELD:
                continue
            command = lane.queue[0]
            if not self._head_ready(lane, command, one_thread_busy):
                continue
            cost = command.cost_ns
            if cost is None:
                cost = command.cost_ns = command.cost(costs)
            start = max(command.submit_time, lane.time, lane.unblocked)
            option = Option(lane.index, command, max(self.device_time, start + cost), is_needed)
            if lane.stalled == SLOW:
                slow.append(option)
            else:
                options.append(option)
        if not options and targets is not None:
            return slow
        return options

    def _head_ready(self, lane: Lane, command: Command, one_thread_busy: bool) -> bool:
        for dep in command.deps:
            if dep[0].completed < dep[1]:
                lane.unblocked = -1
                return False
        if command.conditional and not command.ready():
            lane.unblocked = -1
            return False
        if one_thread_busy and command.on_host_thread:
            lane.unblocked = -1
            return False
        if lane.unblocked < 0:
            lane.unblocked = self.device_time
        return True

    def _needed(self, targets: Sequence[Marker]) -> set[int] | None:
        """Lanes that must move before `targets` can be complete; None when any might."""
        seen: set[int] = set()
        stack = [target[0] for target in targets]
        while stack:
            lane = stack.pop()
            if lane.index in seen or lane.completed == lane.submitted:
                continue
            seen.add(lane.index)
            if lane.running is not None:
                continue
            head = lane.queue[0]
            stack.extend(dep[0] for dep in head.deps if dep[0].completed < dep[1])
            if head.conditional and not head.ready():
                return None
            if head.on_host_thread and self.host_threads == "one":
                stack.extend(other for other in self._active.values() if other.running is not None)
        return seen

    def _one_thread_busy(self) -> bool:
        return self.host_threads == "one" and any(
            lane.running is not None and lane.running.on_host_thread for lane in self._active.values()
        )

    def _starve(self, targets: Sequence[Marker], what: str) -> None:
        """Nothing can move. Wait for another thread or a running host function, or give up."""
        if all(lane.completed >= ticket for lane, ticket in targets):
            return  # another thread has moved them while this one let go of the lock
        if not self._help_possible():
            raise self._deadlock(what, targets)
        steps = self.steps
        submitted = sum(lane.submitted for lane in self.lanes.values())
        left = self.watchdog_s
        patience = Patience(self)
        self.fresh_waiters += 1
        try:
            while True:
                if left <= 0:
                    raise self._overdue(what, targets, patience)
                left -= self._doze(min(left, 0.05))
                if self.fatal is not None:
                    raise self.fatal
                if self.steps != steps or submitted != sum(lane.submitted for lane in self.lanes.values()):
                    return
                if self._options(targets, settle=False):
                    return
        finally:
            self.fresh_waiters -= 1

    def _help_possible(self) -> bool:
        """Whether anything outside this thread could still bring progress."""
        if self.foreign_threads or any(not worker.returned for worker in self._workers.values()):
            return True
        ours = {worker.thread for worker in self._workers.values()}
        me = threading.current_thread()
        return any(
            thread is not me and thread not in ours and thread.is_alive() and not getattr(thread, "hipfile_sim", False)
            for thread in threading.enumerate()
        )

    foreign_threads = False
    """Set by a face whose callers' threads Python does not know."""

    # -- running -----------------------------------------------------------------------------------------------------

    def _run_alone(self, lane: Lane, ticket: int) -> bool:
        """Fast path: one lane has work, so there is nothing to choose. True if anything ran."""
        ran = False
        queue = lane.queue
        while lane.completed < ticket and queue and len(self._active) == 1:
            if lane.running is not None or lane.stalled == HELD:
                break
            head = queue[0]
            if (head.deps or head.conditional or lane.unblocked < 0) and not self._head_ready(lane, head, False):
                break
            self._step(lane)
            ran = True
        return ran

    def _step(self, lane: Lane) -> None:
        """Run the head of `lane`, or take note that its host function has returned."""
        running = lane.running
        if running is not None:
            self._finish_external(lane, running)
            return
        command = lane.queue.popleft()
        cost = command.cost_ns
        if cost is None:
            cost = command.cost_ns = command.cost(self.costs)
        start = command.submit_time  # the latest of three, without the price of a call
        if start < lane.time:
            start = lane.time
        if start < lane.unblocked:
            start = lane.unblocked
        command.start_time = start
        lane.unblocked = 0
        if self.observers:
            self._tell("started", command)
        if command.external:
            lane.running = command
            worker = self._worker(lane)
            worker.start(command)
            worker.settle()
            if worker.returned and command.ticket > lane.completed:  # else another host thread finished it meanwhile
                self._finish_external(lane, command)
            elif self.tracker is not None and lane.running is command:
                self.tracker.began(command)
            return
        try:
            if command.user_code:
                self._call_user(command)
            else:
                command.run()
        except BaseException as error:
            self._failed(command, error)  # Ctrl-C, too: half of the command has happened
            if not isinstance(error, Exception):
                raise
        finally:
            self._finish(lane, command, start + cost)
        if self.fatal is not None:
            raise self.fatal

    def _finish(self, lane: Lane, command: Command, finish: int) -> None:
        if finish < self.device_time:
            finish = self.device_time
        else:
            self.device_time = finish
        command.finish_time = finish
        lane.time = finish
        lane.completed = command.ticket
        self.steps += 1
        if self.tracker is not None:
            self.tracker.ran(command)
        if not lane.queue:
            self._active.pop(lane.index, None)
        if self.observers:
            self._tell("finished", command)
        if self.fresh_waiters:
            self.changed.notify_all()

    def _finish_external(self, lane: Lane, command: Command) -> None:
        worker = self._workers[self._worker_key(lane)]
        lane.running = None
        if worker.error is not None:
            self._failed(command, worker.error)
        self._finish(lane, command, max(command.start_time + (command.cost_ns or 0), self.device_time))
        if self.fatal is not None:
            raise self.fatal

    def _worker_key(self, lane: Lane) -> int:
        return -1 if self.host_threads == "one" else lane.index

    def _worker(self, lane: Lane) -> HostFunctionThread:
        key = self._worker_key(lane)
        worker = self._workers.get(key)
        if worker is None:
            worker = self._workers[key] = HostFunctionThread(self._call_user, self.changed)
        return worker

    def retire(self, lane: Lane) -> None:
        with self.lock:
            super().retire(lane)
            if lane.index not in self.lanes and self.host_threads != "one":
                worker = self._workers.pop(lane.index, None)
                if worker is not None:
                    worker.stop()
