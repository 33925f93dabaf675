"""When nothing has moved for a while: is it a deadlock, or does a host function merely take its time?

The kernel knows what a thread of this process does. One that has used its core, or sleeps for a time, goes on by
itself; one that waits for a lock goes on only if somebody lets it, and when the engine asks, the one who would is the
waiting host more often than not.
"""

from __future__ import annotations

import linecache
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hipfile_sim.engine.base import Engine
    from hipfile_sim.engine.command import Command

__all__ = ["Patience"]

LIMIT = (
    "  If it may take that long, raise the limit: watchdog_s= of Machine, of fake() and of the marker hipfile, "
    "--hipfile-watchdog of pytest, --watchdog of hipfile-sim run and exec"
)
_WAITING = ("threading", "queue", "concurrent.futures.", "multiprocessing.", "asyncio.", "selectors")
"""Modules whose frames are the way into a wait, not its place."""
_LEAST = 0.01
"""Share of a core from which on a thread counts as busy. One that waits for a lock uses none."""


class Patience:
    """What the threads of this process have done since it was made.

    Parameters
    ----------
    engine : Engine
        Whose host functions are asked after.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._since = time.monotonic()
        self._used = {thread.ident: _core_time(thread) for thread in threading.enumerate()}

    def host_functions(self) -> tuple[list[str], list[str]]:
        """Sentences about host functions that have not returned: those that go on by themselves, and the others."""
        going: list[str] = []
        stuck: list[str] = []
        threads = {thread.ident: thread for thread in threading.enumerate()}
        for ident, command in list(self._engine.host_functions.items()):
            if not command.external or ident == threading.get_ident():
                continue
            goes_on, how = self._state(threads.get(ident), ident)
            (going if goes_on else stuck).append(f"  {_named(command)} {how}")
        return going, stuck

    def others(self) -> list[str]:
        """Sentences about other threads of the program, any of which may yet bring progress."""
        inside = self._engine.host_functions
        lines = []
        for thread in threading.enumerate():
            if thread is threading.current_thread() or thread.ident in inside or getattr(thread, "hipfile_sim", False):
                continue
            lines.append(f"  thread {thread.name!r} {self._state(thread, thread.ident)[1]}")
        return lines

    def _state(self, thread: threading.Thread | None, ident: int | None) -> tuple[bool, str]:
        """Whether a thread goes on by itself, and what it does where."""
        where = _place(ident)
        elapsed = time.monotonic() - self._since
        if thread is None:
            return False, f"is in code without Python threads{where}"
        if ident in self._engine.dozing:  # and wakes up now and then to look
            return False, f"waits for the machine{where}"
        used = _core_time(thread) - self._used.get(ident, 0)
        if used / 1e9 > max(0.001, _LEAST * elapsed):
            return True, f"is busy: it used its core for {used / 1e9:.2f} s of the last {elapsed:.2f} s{where}"
        if _read(thread, "stat").rpartition(")")[2].startswith(" R"):
            return True, f"is busy{where}"  # it has just woken up, or waits for a core
        at = _read(thread, "wchan")
        if "nanosleep" in at:
            return True, f"sleeps{where}"
        return False, f"waits for a lock{where}" if "futex" in at else f"waits{where}"


def _named(command: Command) -> str:
    site = f", submitted at {command.site}," if command.site is not None else ""
    return f"{command.describe()} on {command.lane.name}{site}"


def _read(thread: threading.Thread, name: str) -> str:
    try:
        with open(f"/proc/self/task/{thread.native_id}/{name}", "rb", buffering=0) as file:
            return file.read().decode(errors="replace")
    except OSError:  # the thread has ended, or the kernel does not say
        return ""


def _core_time(thread: threading.Thread) -> int:
    """Nanoseconds on a core so far; 0 where the kernel does not say."""
    text = _read(thread, "schedstat").split()
    return int(text[0]) if text else 0


def _place(ident: int | None) -> str:
    """The line of Python that a thread is in, below those of the modules that make it wait."""
    frame: FrameType | None = sys._current_frames().get(ident) if ident is not None else None
    while frame is not None and f"{frame.f_globals.get('__name__', '')}.".startswith(_WAITING):
        frame = frame.f_back
    if frame is None:
        return ""
    code = frame.f_code
    line = linecache.getline(code.co_filename, frame.f_lineno).strip()
    return f", at {code.co_filename}:{frame.f_lineno} in {code.co_name}" + (f": {line}" if line else "")
