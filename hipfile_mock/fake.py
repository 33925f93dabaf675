"""`fake`: a fresh emulated machine with the doubles in place, as context manager and as decorator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

from hipfile_mock import current
from hipfile_mock.install import faces_in_place, real_modules
from hipfile_mock.near import near

if TYPE_CHECKING:
    import os

    from hipfile_sim.driver.driver import Driver
    from hipfile_sim.driver.fileops import FileOps
    from hipfile_sim.driver.profiles import Profile
    from hipfile_sim.engine.base import Engine
    from hipfile_sim.engine.clock import CostModel, VirtualClock
    from hipfile_sim.engine.schedules import Schedule
    from hipfile_sim.hip.memory import Memory
    from hipfile_sim.hip.runtime import Runtime
    from hipfile_sim.hip.settings import HipSettings
    from hipfile_sim.machine import Machine
    from hipfile_sim.observe.observer import Observer
    from hipfile_sim.observe.sanitizer import Policy

__all__ = ["DEFAULTS", "Fake", "Fault", "Session", "fake", "install", "session", "uninstall"]

Target = TypeVar("Target", bound=Callable[..., Any])

DEFAULTS: dict[str, Any] = {}
"""Keywords of `fake` for those that a call does not give: where a test runner's options go."""


class Fault(Protocol):
    """What ``faults=`` takes."""

    def attach(self, machine: Any, /) -> None:
        """Begin to act on `machine`."""

    def detach(self) -> None:
        """Stop acting. Raise AssertionError if the rule should have fired and has not."""


_sessions: list[Session] = []


def session() -> Session:
    """The innermost session of `fake` that is in use.

    Raises
    ------
    NoMachineError
        None is.
    """
    if not _sessions:
        current.get("hipfile_mock.session")
        raise current.NoMachineError("the current machine was not made by `hipfile_mock.fake`, so it has no session.")
    return _sessions[-1]


def _part(name: str, doc: str) -> Any:
    return property(lambda session: getattr(session.machine, name), doc=doc)


class Session:
    """One use of a `Fake`: a machine of its own from entry to exit.

    Attributes
    ----------
    machine : Machine
        The emulated computer.
    faces : dict of str to str
        Faces by name: ``""`` if in place, else why not.
    sanitizer : Sanitizer or None
        What watches the run; None with ``strict=None``.
    recorder : Recorder or None
        Every call and command of the run; None with ``record=False``.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = dict(options)
        self.machine: Machine
        self.faces: dict[str, str] = {}
        self.sanitizer: Any = None
        self.recorder: Any = None
        self._stack = ExitStack()

    hip: Runtime = _part("hip", "The HIP runtime: every hip* function, with C's conventions.")
    hipfile: Driver = _part("hipfile", "The hipFile library: every function of ``hipfile.h``, with C's conventions.")
    engine: Engine = _part("engine", "What runs the commands.")
    memory: Memory = _part("memory", "Emulated memory: ``memory.view(pointer, length)`` shows device memory to a test.")
    clock: VirtualClock = _part("clock", "Virtual time, ns.")
    profile: Profile = _part("profile", "The release that is modelled.")
    files: FileOps = _part("files", "File operations.")

    def __repr__(self) -> str:
        return f"<hipfile_mock session on {self.__dict__.get('machine', 'no machine yet')!r}>"

    def token(self) -> str:
        """The choices of the schedule so far, as a token that reproduces the run."""
        return self.machine.token()

    def stall(self, stream: int, *, hold: bool = False) -> None:
        """Make `stream` as slow as can be: it moves only when nothing else can (`hold`: not at all)."""
        self.machine.stall(stream, hold=hold)

    def unstall(self, stream: int) -> None:
        """Undo `stall`."""
        self.machine.unstall(stream)

    # -- entry and exit ------------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        options = self.options
        with real_modules(), ExitStack() as stack:
            from hipfile_mock.wiring import attach_trace, make_machine, make_sanitizer
            from hipfile_sim.observe import syncs

            self.machine = make_machine(options)
            stack.callback(self.machine.close)
            self.sanitizer = make_sanitizer(options.get("strict"))
            if self.sanitizer is not None:
                self.machine.add_observer(self.sanitizer)
                stack.callback(syncs.watch(self.machine))
                if not self.machine.settings.host_visible:
                    from hipfile_mock.touch import watch

                    stack.callback(watch(self.machine))
            if options.get("record", True):
                from hipfile_mock.recorder import Recorder

                self.recorder = Recorder()
                self.machine.add_observer(self.recorder)
            for observer in options.get("observers") or ():
                self.machine.add_observer(observer)
            if options.get("trace") is not None:
                stack.callback(attach_trace(self.machine, options["trace"]))
            for fault in options.get("faults") or ():
                fault.attach(self.machine)
                stack.callback(fault.detach)
            current.push(self.machine)
            stack.callback(current.pop, self.machine)
            self.faces = stack.enter_context(faces_in_place(self.machine, options.get("faces")))
            _sessions.append(self)
            stack.callback(_sessions.remove, self)
            self._stack = stack.pop_all()

    def finish(self) -> None:
        """Run everything that was submitted. The host is not told, so no order follows from it."""
        self.machine.finish()

    def report(self) -> str:
        """What the sanitizer has found so far, as text."""
        return str(self.sanitizer.format("text", colour=False)) if self.sanitizer is not None else ""

    def _exit(self, error: BaseException | None) -> None:
        from hipfile_mock.wiring import finish

        unfired: AssertionError | None = None
        try:
            with self._stack:
                if self.sanitizer is not None:
                    finish(self.sanitizer, self.machine)
        except AssertionError as assertion:  # a fault that never fired
            unfired = assertion
        if error is not None:
            self._remark(error, unfired)
        elif unfired is not None:
            raise unfired
        elif self.sanitizer is not None and self.options.get("strict"):
            self.sanitizer.raise_if_errors()

    def _remark(self, error: BaseException, unfired: AssertionError | None) -> None:
        """What the body raised comes first; the rest is said beneath it. What is left over is no wonder then."""
        errors = self.sanitizer.errors if self.sanitizer is not None else ()
        found = [str(finding) for finding in errors if not finding.id.startswith("leak.")]
        if found:
            error.add_note("The sanitizer also found in the emulated run:\n" + "\n".join(found))
        if unfired is not None:
            error.add_note(str(unfired))


class Fake:
    """What `fake` returns: enter it, or put it above a function or a class. Each use has a machine of its own."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = dict(options)
        self._open: list[Session] = []

    def __repr__(self) -> str:
        return f"fake({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"

    def __enter__(self) -> Session:
        made = Session({"strict": True, **DEFAULTS, **self.options})
        made._enter()
        self._open.append(made)
        return made

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.pop()._exit(exc)

    def __call__(self, target: Target) -> Target:
        """Decorate a function, a coroutine function, a generator function of either kind, or a class."""
        if isinstance(target, type):
            return cast(Target, self._decorate_class(target))
        return cast(Target, self._decorate_function(target))

    def _decorate_class(self, cls: type) -> type:
        """Its tests; a `unittest.TestCase` has ``setUp`` and ``tearDown`` inside, too."""
        if hasattr(cls, "setUp") and hasattr(cls, "addCleanup"):
            original = cls.setUp

            @functools.wraps(original)
            def set_up(case: Any) -> Any:
                entered = Fake(self.options)
                entered.__enter__()
                case.addCleanup(entered.__exit__, None, None, None)
                return original(case)

            cls.setUp = set_up
            return cls
        for name in dir(cls):
            member = inspect.getattr_static(cls, name)
            if name.startswith("test") and inspect.isfunction(member):
                setattr(cls, name, self._decorate_function(member))
        return cls

    def _decorate_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        options = self.options
        wrapper: Callable[..., Any]
        if inspect.isasyncgenfunction(function):

            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                with Fake(options):
                    inner = function(*args, **kwargs)
                    try:  # what ``yield from`` does where it is allowed: values, exceptions and the end go inside
                        item = await anext(inner)
                        while True:
                            try:
                                sent = yield item
                            except GeneratorExit:
                                raise
                            except BaseException as error:
                                item = await inner.athrow(error)
                            else:
                                item = await inner.asend(sent)
                    except StopAsyncIteration:
                        return
                    finally:
                        await inner.aclose()

        elif inspect.iscoroutinefunction(function):

            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                with Fake(options):
                    return await function(*args, **kwargs)

        elif inspect.isgeneratorfunction(function):

            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with Fake(options):
                    return (yield from function(*args, **kwargs))

        else:

            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with Fake(options):
                    return function(*args, **kwargs)

        return functools.wraps(function)(wrapper)


@overload
def fake(profile: Target) -> Target: ...
@overload
def fake(
    profile: str | Profile | None = ...,
    *,
    schedule: str | Schedule | None = ...,
    devices: int | None = ...,
    env: Mapping[str, str] | None = ...,
    faults: Iterable[Fault] | None = ...,
    filesystem: str | Mapping[Any, Any] | FileOps | None = ...,
    strict: bool | str | Policy | None = ...,
    trace: str | os.PathLike[str] | Observer | None = ...,
    engine: str | None = ...,
    settings: HipSettings | None = ...,
    costs: CostModel | None = ...,
    watchdog_s: float | None = ...,
    faces: Iterable[str] | None = ...,
    observers: Iterable[Observer] | None = ...,
    record: bool | None = ...,
) -> Fake: ...
def fake(profile: Any = None, **options: Any) -> Any:
    """A fresh emulated machine, with the doubles in place, for a ``with`` block, a function or a class.

    Parameters
    ----------
    profile : str or Profile
        Release that is modelled; the newest if not given.
    schedule : str or Schedule
        Who moves when: ``"parallel"``, ``"lazy"``, ``"eager"``, ``"seeded:42"``, a token …
    devices : int
        Number of GPUs.
    env : mapping
        The environment that the library sees; the process's own if not given.
    faults : iterable of Fault
        What goes wrong. A rule that has not fired by the end fails the run.
    filesystem : str, mapping or FileOps
        What the files are on: the name of a mount fixture (``"tmpfs"``), a mapping of path prefixes to them, or an
        object that does the file operations. Real files on the host's own mounts if not given; under pyfakefs, its.
    strict : bool, Policy, str or None
        True: errors that the sanitizer finds raise `SanitizerError` at the end, and what is left over of hipFile (open
        handles, registered buffers, operations never waited for) is an error. A policy, or its text such as
        ``"leak.*=error"``: by that. False: findings are only collected. None: no sanitizer.
    trace : path or Observer
        Where to write a Chrome trace.
    engine : str
        ``"steps"`` (deterministic) or ``"threads"``.
    settings : HipSettings
        Of the HIP runtime.
    costs : CostModel
        Virtual ns of everything.
    watchdog_s : float
        Real seconds without progress before an error, 5 if not given: a `DeadlockError`, or a `StillRunningError` where
        a host function is busy or asleep.
    faces : iterable of str
        What is replaced, see `hipfile_mock.install.FACES`.
    observers : iterable of Observer
        More observers.
    record : bool
        Keep every call and command for ``session().recorder``, as by default. False saves time and memory.

    Returns
    -------
    Fake
        Entering it gives a `Session`.

    Raises
    ------
    TypeError
        An unknown keyword.
    CurrentMachineError
        At entry: another thread has a fake in use.
    FaceUnavailable
        At entry: a face that was asked for by name cannot be had.
    SanitizerError
        At exit; it is an AssertionError.

    Examples
    --------
    >>> with fake(schedule="lazy") as session:
    ...     import hipfile
    ...
    ...     with hipfile.Driver() as driver:
    ...         driver.use_count()
    1
    """
    unknown = sorted(options.keys() - KEYWORDS)
    if unknown:
        hint = near(unknown[0], KEYWORDS) or "."
        raise TypeError(
            f"fake() has no keyword {', '.join(map(repr, unknown))}{hint} It has {', '.join(sorted(KEYWORDS))}"
        )
    if hasattr(options.get("faults"), "attach"):
        raise TypeError(f"faults={options['faults']!r} is one fault; give a list of them: faults=[...]")
    if inspect.isfunction(profile) or inspect.isclass(profile):
        return Fake(options)(profile)
    if profile is not None:
        options["profile"] = profile
    return Fake({name: value for name, value in options.items() if value is not None or name == "strict"})


KEYWORDS = frozenset(
    [
        "profile",
        "schedule",
        "devices",
        "env",
        "faults",
        "filesystem",
        "strict",
        "trace",
        "engine",
        "settings",
        "costs",
        "watchdog_s",
        "faces",
        "observers",
        "record",
    ]
)

_installed: list[Fake] = []


def install(profile: Any = None, **options: Any) -> Session:
    """Put the doubles in place until `uninstall`. Keywords as of `fake`, but not strict unless asked.

    May be called again before that; each `uninstall` takes back the latest.
    """
    made: Fake = fake(profile, **{"strict": False, **options})
    entered = made.__enter__()
    _installed.append(made)
    return entered


def uninstall() -> None:
    """Undo the latest `install`.

    Raises
    ------
    RuntimeError
        Nothing is installed.
    SanitizerError
        The installation was strict and has findings.
    """
    if not _installed:
        raise RuntimeError("uninstall() without install(): nothing is installed.")
    _installed.pop().__exit__(None, None, None)
