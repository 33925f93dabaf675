"""Run a Python program as Python would: its ``__main__``, exit code, traceback, threads and exit handlers."""

from __future__ import annotations

import atexit
import builtins
import os
import runpy
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType

__all__ = ["execute"]

#: Frames of these folders are never the program's.
_OURS = tuple(f"{Path(__file__).resolve().parents[2] / package}/" for package in ("hipfile_sim", "hipfile_mock"))


def execute(target: str, args: Sequence[str], *, is_module: bool = False, full_traceback: bool = False) -> int:
    """Run a file or module as ``__main__``, to its very end, and return the exit code that Python would give.

    The end is Python's own: threads that are no daemons are waited for, then exit handlers run, all of them while the
    machine is still there. An uncaught exception is printed without the simulator's frames around the program's.
    """
    kept = sys.argv, sys.path[:], sys.modules["__main__"]
    sys.argv = [target, *args]
    sys.path.insert(0, "" if is_module else str(Path(target).resolve().parent))
    try:
        code = _guarded(lambda: _run(target, is_module), full_traceback)
        _leave()
        return code
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = kept
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def _run(target: str, is_module: bool) -> None:
    if is_module:
        runpy.run_module(target, run_name="__main__", alter_sys=True)
    elif os.path.isdir(target):
        runpy.run_path(target, run_name="__main__")
    else:
        main = ModuleType("__main__")
        main.__dict__.update(__file__=target, __builtins__=builtins)
        sys.modules["__main__"] = main
        with open(target, "rb") as file:
            code = compile(file.read(), target, "exec")
        exec(code, main.__dict__)


def _leave() -> None:
    """What the interpreter does before it goes: pools are told to stop, threads joined, exit handlers run."""
    for stop_pool in reversed(getattr(threading, "_threading_atexits", ())):
        stop_pool()
    for thread in threading.enumerate():
        if not thread.daemon and thread not in (threading.current_thread(), threading.main_thread()):
            thread.join()
    atexit._run_exitfuncs()


def _guarded(body: Callable[[], None], full_traceback: bool) -> int:
    try:
        body()
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return (stop.code or 0) & 0xFF
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException as error:
        if not full_traceback:
            error.__traceback__ = _without_ours(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _without_ours(tb: TracebackType | None) -> TracebackType | None:
    """Drop the frames that lead to the program, and those inside the simulator that it called last."""
    frames: list[TracebackType] = []
    while tb is not None:
        if frames or not _is_ours(tb):
            frames.append(tb)
        tb = tb.tb_next
    programs = [i for i, frame in enumerate(frames) if not _is_ours(frame) and not _is_library(frame)]
    if programs:
        inside = [i for i, frame in enumerate(frames) if i > programs[-1] and _is_ours(frame)]
        frames = frames[: inside[0]] if inside else frames
    for frame, after in zip(frames, [*frames[1:], None], strict=False):
        frame.tb_next = after
    return frames[0] if frames else None


def _is_ours(tb: TracebackType) -> bool:
    name = tb.tb_frame.f_code.co_filename
    return name.startswith((*_OURS, "<frozen runpy")) or name == runpy.__file__


def _is_library(tb: TracebackType) -> bool:
    name = tb.tb_frame.f_code.co_filename
    return name.startswith((os.path.dirname(os.__file__) + "/", "<frozen ")) and "-packages/" not in name
