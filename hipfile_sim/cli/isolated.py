"""A whole program as something that can be run again and again: each time with a fresh machine and its own state."""

from __future__ import annotations

import atexit
import importlib
import io
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hipfile_sim.cli.program import _run

if TYPE_CHECKING:
    from hipfile_sim.driver.profiles import Profile
    from hipfile_sim.engine.schedules import Schedule
    from hipfile_sim.machine import Machine


class Program:
    """A program and the machine that it wants.

    Parameters
    ----------
    target : str
        File or folder; a module's name with `is_module`.
    args : sequence of str
        Its command line.
    profile, devices, env, sanitize
        As the options of the command line.

    Attributes
    ----------
    output : str
        What the latest run printed, where it was kept from the terminal.
    """

    def __init__(
        self,
        target: str,
        args: Sequence[str],
        *,
        is_module: bool = False,
        profile: Profile,
        devices: int,
        env: Mapping[str, str],
        sanitize: bool = False,
    ) -> None:
        self.target = target
        self.args = list(args)
        self.is_module = is_module
        self.profile = profile
        self.devices = devices
        self.env = dict(env)
        self.sanitize = sanitize
        self.output = ""
        # By name: the model must not depend on its doubles, and the command line puts the two together.
        self._mock: Any = import_module("hipfile_mock")
        self._known_modules = frozenset(sys.modules)
        self._libraries = _library_folders()
        self._folder = (os.getcwd() if is_module else os.path.dirname(os.path.abspath(target))).rstrip("/") + "/"

    @contextmanager
    def world(self, schedule: Schedule | str) -> Iterator[Machine]:
        """A fresh machine with the doubles in place. At its end the sanitizer's errors are raised, if it is wanted."""
        from hipfile_sim.observe.sanitizer import Policy

        before = dict(os.environ)
        os.environ.update(self.env)
        try:
            with self._mock.fake(
                self.profile, schedule=schedule, devices=self.devices, strict=Policy() if self.sanitize else None
            ) as session:
                yield session.machine
        finally:
            os.environ.clear()
            os.environ.update(before)

    def silent(self, machine: Machine) -> str:
        """Run the program once and return what it printed."""
        kept = io.StringIO()
        try:
            with redirect_stdout(kept), redirect_stderr(kept):
                self.loud(machine)
        finally:
            self.output = kept.getvalue()
        return self.output

    def loud(self, machine: Machine) -> None:
        """Run the program once, to its very end.

        Raises
        ------
        SystemExit
            It ended with another code than 0.
        """
        with ExitStack() as stack:
            stack.callback(self._forget_modules)
            stack.enter_context(_command_line(self.target, self.args, self.is_module))
            handlers = stack.enter_context(_exit_handlers(self._is_own))
            try:
                _run(self.target, self.is_module)
            except SystemExit as stop:
                if stop.code not in (None, 0):
                    raise
            finally:
                _join_threads()
                while handlers:
                    handlers.pop()()

    def _forget_modules(self) -> None:
        """The program's own modules are imported anew by the next run; libraries stay."""
        for name in sys.modules.keys() - self._known_modules:
            if self._is_own(getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]
        importlib.invalidate_caches()

    def _is_own(self, filename: str) -> bool:
        """Whether a source file is the program's and no library's."""
        path = os.path.abspath(filename)
        return path.startswith(self._folder) and not path.startswith(self._libraries)


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    folders = {
        paths["stdlib"],
        paths["platstdlib"],
        paths["purelib"],
        paths["platlib"],
        *site.getsitepackages(),
        *(os.path.join(ours, package) for package in ("hipfile_sim", "hipfile_mock")),
    }
    return tuple(folder.rstrip("/") + "/" for folder in folders)


@contextmanager
def _command_line(target: str, args: list[str], is_module: bool) -> Iterator[None]:
    kept = sys.argv, sys.path[:], sys.modules["__main__"], os.getcwd()
    sys.argv = [target, *args]
    sys.path.insert(0, "" if is_module else os.path.dirname(os.path.abspath(target)))
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = kept[:3]
        os.chdir(kept[3])


@contextmanager
def _exit_handlers(is_own: Callable[[str], bool]) -> Iterator[list[Callable[[], Any]]]:
    """What the program registers to be done at its exit. Handlers of libraries stay those of the process."""
    handlers: list[Callable[[], Any]] = []
    kept = atexit.register, atexit.unregister

    def register(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        if not is_own(sys._getframe(1).f_code.co_filename):
            return kept[0](function, *args, **kwargs)

        def handler() -> Any:
            return function(*args, **kwargs)

        handler.function = function  # type: ignore[attr-defined]
        handlers.append(handler)
        return function

    def unregister(function: Callable[..., Any]) -> None:
        kept[1](function)
        handlers[:] = [handler for handler in handlers if getattr(handler, "function", None) != function]

    atexit.register, atexit.unregister = register, unregister
    try:
        yield handlers
    finally:
        atexit.register, atexit.unregister = kept


def _join_threads() -> None:
    for thread in threading.enumerate():
        if not thread.daemon and thread not in (threading.current_thread(), threading.main_thread()):
            thread.join()
