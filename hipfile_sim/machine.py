"""One emulated computer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from hipfile_sim.driver.environment import Environment
from hipfile_sim.driver.fileops import FileOps, RealFiles
from hipfile_sim.driver.mounts import MountTable
from hipfile_sim.driver.profiles import Profile, get_profile
from hipfile_sim.engine.base import Engine
from hipfile_sim.engine.clock import CostModel, VirtualClock
from hipfile_sim.engine.command import MEM, Access, Lane
from hipfile_sim.engine.errors import closed_at
from hipfile_sim.engine.schedules import Schedule
from hipfile_sim.engine.steps import StepEngine
from hipfile_sim.engine.threads import ThreadEngine
from hipfile_sim.hip.memory import Memory
from hipfile_sim.hip.runtime import Runtime
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.observe.observer import HostAccess, Observer, Release, call_site, current_thread

if TYPE_CHECKING:
    from hipfile_sim.driver.driver import Driver


class Machine:
    """One computer: devices, memory, streams, the hipFile library, its environment and the schedule. Two never meet.

    Parameters
    ----------
    devices : int
        Number of GPUs. 0 is a machine without any.
    profile : str or Profile
        Release of hipFile, such as ``"0.5"``.
    schedule : str or Schedule
        Who moves next (`parse_schedule`), or a token of an earlier run. Ignored by the threaded engine.
    engine : str
        ``"steps"``: deterministic, in virtual time. ``"threads"``: one real thread a stream.
    env : mapping, optional
        The environment that hipFile reads. None: ``os.environ``, each variable read when it is first used.
    files : FileOps, optional
        Access to files; the real ones by default.
    mounts : MountTable, optional
        What is mounted where; the host's by default.
    settings : HipSettings, optional
        The HIP runtime; by default what the profile asks for.
    observers : iterable of Observer
        Told of every step.
    costs : CostModel, optional
        Virtual ns of everything.
    watchdog_s : float
        Real seconds without progress before a `DeadlockError`, or a `StillRunningError` where a host function is busy
        or asleep.

    Examples
    --------
    >>> with Machine(1, schedule="lazy") as machine:
    ...     code, pointer = machine.hip.hipMalloc(4096)
    ...     machine.hip.hipMemset(pointer, 7, 4096).name, bytes(machine.memory.view(pointer, 2))
    ('hipSuccess', b'\\x07\\x07')
    """

    def __init__(
        self,
        devices: int = 2,
        *,
        profile: str | Profile = "0.5",
        schedule: str | Schedule = "parallel",
        engine: str = "steps",
        env: Mapping[str, str] | None = None,
        files: FileOps | None = None,
        mounts: MountTable | None = None,
        settings: HipSettings | None = None,
        observers: Iterable[Observer] = (),
        costs: CostModel | None = None,
        watchdog_s: float = 5.0,
    ) -> None:
        if not watchdog_s > 0:
            raise ValueError(f"watchdog_s is {watchdog_s!r}; it is a number of seconds above 0")
        if type(devices) is not int or not 0 <= devices <= 1024:
            raise ValueError(f"devices is {devices!r}; it is a number of GPUs, 0 to 1024")
        self.profile = profile if isinstance(profile, Profile) else get_profile(profile)
        self.settings = settings if settings is not None else replace(HipSettings(), **self.profile.hip)
        threads = self.settings.host_function_threads
        self.engine: Engine
        if engine == "steps":
            self.engine = StepEngine(schedule, costs, host_threads=threads, watchdog_s=watchdog_s)
        elif engine == "threads":
            self.engine = ThreadEngine(costs, host_threads=threads, watchdog_s=watchdog_s)
        else:
            raise ValueError(f"engine is {engine!r}; choose 'steps' (deterministic) or 'threads' (one thread a stream)")
        self.hip = Runtime(self.engine, devices, self.settings)
        self.files: FileOps = files if files is not None else RealFiles()
        self.mounts = mounts if mounts is not None else MountTable.host()
        self.environment = Environment(self.profile, env)
        for observer in observers:
            self.add_observer(observer)

    @cached_property
    def hipfile(self) -> Driver:
        """The hipFile library: every function of ``hipfile.h``."""
        from hipfile_sim.driver.driver import Driver  # costs time that a machine without file I/O need not spend

        return Driver(self.hip, self.profile, self.environment, self.files, self.mounts)

    @property
    def memory(self) -> Memory:
        """Emulated memory."""
        return self.hip.memory

    @property
    def clock(self) -> VirtualClock:
        """Virtual time of the step engine, real time of the threaded one; ns."""
        return self.engine.clock

    # -- observers ---------------------------------------------------------------------------------------------------

    def add_observer(self, observer: Observer) -> None:
        """From now on `observer` is told of every step."""
        with self.engine.lock:
            self.engine.observers = (*self.engine.observers, observer)
            observer.attached(self)
            for lane in self.engine.lanes.values():
                observer.lane_added(lane)

    def remove_observer(self, observer: Observer) -> None:
        """`observer` is told nothing more."""
        with self.engine.lock:
            self.engine.observers = tuple(other for other in self.engine.observers if other is not observer)

    def host_access(self, pointer: int, length: int, *, write: bool, what: str) -> None:
        """A face saw host code read or write memory: the schedule gets a turn first, then the observers are told."""
        engine = self.engine
        engine.host_point(what)
        if engine.tracker is not None:
            engine.tracker.touched(Access(MEM, pointer, length, write))
        if engine.observers:
            access = HostAccess(Access(MEM, pointer, length, write), current_thread(), call_site(2), what)
            with engine.lock:
                for observer in engine.observers:
                    observer.host_access(access)

    def released(self, pointer: int, length: int, *, kind: str, what: str, lane: Lane | None = None) -> None:
        """A face saw memory leave its owner; see `Release` for the kinds."""
        engine = self.engine
        if engine.observers:
            release = Release(pointer, length, kind, what, current_thread(), call_site(2), lane)
            with engine.lock:
                for observer in engine.observers:
                    observer.released(release)

    # -- the schedule ------------------------------------------------------------------------------------------------

    def token(self) -> str:
        """The choices made so far, as text that reproduces them: ``Machine(schedule=token)``."""
        return self.engine.token()

    def stall(self, stream: int, *, hold: bool = False) -> None:
        """Make a stream as slow as it can be: it moves only when nothing else can (`hold`: not at all).

        Any race with that stream then happens every time.

        Raises
        ------
        ValueError
            `stream` is not a stream of this machine.
        """
        self.engine.stall(self._lane(stream), hold=hold)

    def unstall(self, stream: int) -> None:
        """Undo `stall`."""
        self.engine.unstall(self._lane(stream))

    def _lane(self, stream: int) -> Lane:
        if self.engine.ended:
            raise self.engine.closed_error(f"stall or unstall of stream {stream:#x}")
        found = self.hip.lookup_stream(stream)
        if found is None:
            raise ValueError(f"{stream:#x} is not a stream of this machine: pass a handle from hipStreamCreate, or 0")
        return found.lane

    def finish(self) -> None:
        """Run everything that was submitted. The host is not told, so no order follows from it."""
        if self.engine.ended:
            raise self.engine.closed_error("Machine.finish()")
        self.engine.drain()

    # -- life --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the machine. Work that has not run never will; memory goes when nothing refers to it.

        From then on hip* functions answer hipErrorDeinitialized and hipFile* functions hipFileDriverNotInitialized
        (5001); `stall`, `finish`, and a look at `memory`, raise `MachineClosedError`, which says where it was closed.
        What only tells of the run still does: `token`, `clock`, versions, texts of codes, ``memory.live()``.
        """
        self.engine.close()
        self.hip.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        engine = "threads" if self.engine.threaded else str(getattr(self.engine, "schedule", ""))
        closed = f", closed{closed_at(self.engine.closed_at)}" if self.engine.ended else ""
        return f"<Machine with {self.hip.device_count} devices, hipFile {self.profile.name}, {engine}{closed}>"
