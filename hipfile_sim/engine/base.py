"""What both engines share: lanes, the lock, observers, submission, and the watchdog."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from hipfile_sim.engine.clock import CostModel, VirtualClock
from hipfile_sim.engine.command import HELD, SLOW, Command, Lane, Marker
from hipfile_sim.engine.errors import (
    DeadlockError,
    EngineError,
    HostFunctionError,
    MachineClosedError,
    StillRunningError,
)
from hipfile_sim.engine.progress import LIMIT, Patience
from hipfile_sim.engine.schedules import Tracker
from hipfile_sim.engine.waitgraph import wait_graph
from hipfile_sim.observe.observer import Observer, Site, call_site


class Engine(ABC):
    """Runs the commands of one machine.

    Attributes
    ----------
    lock : threading.RLock
        Guards the whole machine. Observers are called under it.
    changed : threading.Condition
        Notified when anything that a blocked host thread may wait for has changed.
    host_threads : str
        ``"one"``: all host functions of the machine share a thread; ``"per-stream"``: each stream has its own.
    watchdog_s : float
        Real seconds without any progress after which a blocked host thread gets a `DeadlockError`, or a
        `StillRunningError` where a host function is busy or asleep. Where it is plain at once that nothing can move,
        the error comes at once.
    fatal : EngineError or None
        Set when user code on the device side raised, or the machine was closed; every later call raises it.
    closed : bool
        Nothing moves any more: `close` was called, or this is a forked child.
    ended : bool
        `close` was called; `closed_at` says where.
    """

    threaded = False
    tracker: Tracker | None = None
    """An explorer that follows the run; only the step engine has one."""

    def __init__(
        self, costs: CostModel | None = None, *, host_threads: str = "per-stream", watchdog_s: float = 5.0
    ) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.clock = VirtualClock()
        self.costs = costs or CostModel()
        self.lanes: dict[int, Lane] = {}
        self.observers: tuple[Observer, ...] = ()
        self.host_threads = host_threads
        self.watchdog_s = watchdog_s
        self.fatal: EngineError | None = None
        self.closed = False
        self.ended = False
        self.closed_at: Site | None = None
        self._lane_count = 0
        self.dozing: set[int] = set()  # threads that wait for the machine
        self._inside: dict[int, Command] = {}  # thread to the host function that it runs

    # -- lanes -------------------------------------------------------------------------------------------------------

    def add_lane(self, name: str, group: int = 0) -> Lane:
        """A new, empty lane."""
        with self.lock:
            lane = Lane(self._lane_count, name, group)
            self._lane_count += 1
            self.lanes[lane.index] = lane
            for observer in self.observers:
                observer.lane_added(lane)
            return lane

    def retire(self, lane: Lane) -> None:
        """Forget `lane` once it is empty. What is in it still runs."""
        with self.lock:
            if lane.idle:
                self.lanes.pop(lane.index, None)

    def stall(self, lane: Lane, *, hold: bool = False) -> None:
        """Make `lane` as slow as can be: its commands start only when nothing else can move (`hold`: not at all)."""
        with self.lock:
            lane.stalled = HELD if hold else SLOW
            if self.tracker is not None:
                self.tracker.meddled()

    def unstall(self, lane: Lane) -> None:
        """Undo `stall`."""
        with self.lock:
            lane.stalled = 0
            if self.tracker is not None:
                self.tracker.meddled()
            self.poke()

    # -- the four things that callers do -----------------------------------------------------------------------------

    @abstractmethod
    def submit(self, lane: Lane, command: Command, deps: tuple[Marker, ...] = ()) -> int:
        """Put `command` at the end of `lane`; it also waits for `deps`. Returns its ticket."""

    def submit_all(self, lane: Lane, commands: Sequence[Command], deps: tuple[Marker, ...] = ()) -> None:
        """Put `commands` at the end of `lane` with nothing between them; the first also waits for `deps`."""
        with self.lock:
            for command in commands:
                self.submit(lane, command, deps)
                deps = ()

    @abstractmethod
    def host_point(self, what: str, *, before: bool = False) -> None:
        """The host is at `what`; hardware may have moved meanwhile, so the schedule may move it.

        `before`: a call that looks at device state is about to begin, and the caller's code runs again only after the
        point that follows it.
        """

    def looked(self, targets: Sequence[Marker], what: str) -> None:  # noqa: B027 - most engines need nothing
        """The host looks whether `targets` are complete, and goes on whatever the answer.

        A loop around such a look waits, in its own way: nothing else may come before it sees the answer change.
        """

    @abstractmethod
    def wait(self, targets: Sequence[Marker], what: str) -> None:
        """Block the host until all `targets` are complete.

        Raises
        ------
        DeadlockError
            They never can be. The message has the wait graph.
        StillRunningError
            A host function has run for longer than the watchdog waits.
        MachineClosedError
            The machine was closed.
        HostFunctionError
            A host function raised.
        """

    def poke(self) -> None:
        """Something outside the engine changed (memory that a wait looks at, a stall lifted)."""
        with self.lock:
            self.changed.notify_all()

    def close(self) -> None:
        """Stop. Commands that have not run never will; whoever waits for one gets a `MachineClosedError`."""
        with self.lock:
            if not self.ended:
                self.closed_at = call_site(2)
                self.closed = self.ended = True
                self.fatal = self.fatal or self.closed_error("the call")
            self.changed.notify_all()

    def closed_error(self, what: str) -> MachineClosedError:
        """What `what` raises on this engine, which has been closed."""
        return MachineClosedError(what, self.closed_at)

    def token(self) -> str:
        """The choices made so far, as text. Only a deterministic engine has one."""
        raise EngineError("the threaded engine makes no choices and has no token; use the step engine to get one")

    # -- for subclasses ----------------------------------------------------------------------------------------------

    def _doze(self, seconds: float) -> float:
        """Sleep until something changes, at most so long. The engine's lock is held, and released meanwhile.

        Returns the seconds that count for the watchdog, which are never more than were asked for: where a busy machine
        lets this thread sleep on, it did not run the threads that could have brought progress either.
        """
        me, start = threading.get_ident(), time.monotonic()
        self.dozing.add(me)
        try:
            self.changed.wait(seconds)
        finally:
            self.dozing.discard(me)
        return min(time.monotonic() - start, seconds)

    @property
    def host_functions(self) -> Mapping[int, Command]:
        """Thread to the host function that it runs now: one live object, the same for the engine's life."""
        return self._inside

    @property
    def in_host_function(self) -> bool:
        """Whether the calling thread is running a host function, or a kernel, which may do even less."""
        return bool(self._inside) and threading.get_ident() in self._inside

    @property
    def in_kernel(self) -> bool:
        """Whether the calling thread is running a kernel."""
        inside = self._inside.get(threading.get_ident()) if self._inside else None
        return inside is not None and not inside.external

    @property
    def host_function(self) -> Command | None:
        """The host function or kernel that the calling thread is running."""
        return self._inside.get(threading.get_ident()) if self._inside else None

    def after_fork(self) -> None:
        """In a forked child: locks that other threads held would never be released, so make new ones."""
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)

    def idle(self) -> bool:
        """Whether every lane is empty."""
        return all(lane.idle for lane in self.lanes.values())

    def drain(self) -> None:
        """Wait for everything submitted so far."""
        with self.lock:
            targets = [lane.tail for lane in self.lanes.values() if not lane.idle]
        self.wait(targets, "drain")

    def _enqueue(self, lane: Lane, command: Command, deps: tuple[Marker, ...]) -> int:
        if self.fatal is not None:
            raise self.fatal
        command.submit_time = self.clock.now
        ticket = lane.submitted + 1
        command.lane = lane
        command.ticket = ticket
        command.deps = deps
        lane.submitted = ticket  # nothing between these two can be interrupted: Ctrl-C finds both or neither
        lane.queue.append(command)
        if self.observers:
            self._tell("submitted", command)
            if self.fatal is not None:
                raise self.fatal
        return ticket

    def _enqueue_all(self, lane: Lane, commands: Sequence[Command], deps: tuple[Marker, ...]) -> None:
        """As `_enqueue` for each, when nobody observes."""
        if self.fatal is not None:
            raise self.fatal
        ticket = lane.submitted
        now = self.clock.now
        queue = lane.queue
        for command in commands:
            ticket += 1
            command.lane = lane
            command.ticket = ticket
            command.deps = deps
            command.submit_time = now
            lane.submitted = ticket
            queue.append(command)
            deps = ()

    def _failed(self, command: Command, error: BaseException) -> None:
        """User code on the device side raised: nothing on this machine can be trusted from here on."""
        if self.ended:
            return
        kind = HostFunctionError if command.external else EngineError
        where = f", submitted at {command.site}" if command.site else ""
        self.fatal = kind(
            f"{command.describe()} on {command.lane.name}{where} raised {type(error).__name__}: {error}; "
            "on real hardware this ends the process"
        )
        self.fatal.__cause__ = error

    def _tell(self, event: str, command: Command) -> None:
        """Tell the observers. One that raises makes the machine unusable, and never leaves a command half done."""
        for observer in self.observers:
            try:
                getattr(observer, event)(command)
            except BaseException as error:
                self.fatal = EngineError(
                    f"observer {observer!r} raised {type(error).__name__}: {error}, told that {command.describe()} on "
                    f"{command.lane.name} was {event}; observers must not raise"
                )
                self.fatal.__cause__ = error
                if not isinstance(error, Exception) and not self.threaded:
                    raise

    def _call_user(self, command: Command) -> None:
        """Run user code on the calling thread, marked as what it is."""
        thread = threading.get_ident()
        self._inside[thread] = command
        try:
            command.run()
        finally:
            self._inside.pop(thread, None)  # a fork may have emptied it

    def _deadlock(self, what: str, targets: Sequence[Marker]) -> DeadlockError:
        return DeadlockError(what, wait_graph(self, what, targets))

    def _overdue(self, what: str, targets: Sequence[Marker], patience: Patience) -> EngineError:
        """The error for a wait that has outlasted the watchdog."""
        going, stuck = patience.host_functions()
        lines = [wait_graph(self, what, targets), *going, *stuck]
        if going:
            return StillRunningError(what, "\n".join([*lines, LIMIT]), self.watchdog_s)
        others = patience.others()
        if others:
            lines += ["  others that might have helped:", *others, LIMIT]
        return DeadlockError(what, "\n".join(lines), self.watchdog_s)
