"""Host code that makes files durable, told to the observers of a machine.

An asynchronous write is on disk only once somebody has synced the file. That is a call of the operating system, not of
the API, so ``os.fsync``, ``os.fdatasync`` and ``os.sync`` are watched while a machine asks for it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from hipfile_sim.engine.command import Access
from hipfile_sim.observe.observer import HostAccess, call_site, current_thread

__all__ = ["watch"]

_NAMES = ("fsync", "fdatasync", "sync")
_machines: list[weakref.ref[Any]] = []
_before: dict[str, Callable[..., Any]] = {}
_ours: dict[str, Callable[..., Any]] = {}


def _watched(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        _tell(name, args[0] if args else kwargs.get("fd"))
        return result

    call.__name__ = call.__qualname__ = name
    call.__doc__ = original.__doc__
    return call


def _tell(name: str, file: Any) -> None:
    """The files that `file` leads to are durable now; for ``sync``, all are."""
    inode = (0, 0)
    if file is not None:
        status = os.fstat(file if isinstance(file, int) else file.fileno())
        inode = status.st_dev, status.st_ino
    access = HostAccess(Access(("file", *inode), 0, 0, False), current_thread(), call_site(3), name)
    for machine in [machine for machine in (entry() for entry in _machines) if machine is not None]:
        with machine.engine.lock:
            for observer in machine.engine.observers:
                observer.host_access(access)


def watch(machine: Any) -> Callable[[], None]:
    """Tell the observers of `machine` until the function that is returned is called."""
    if not _machines:
        for name in _NAMES:
            _before[name] = getattr(os, name)
            _ours[name] = _watched(name, _before[name])
            setattr(os, name, _ours[name])
    entry = weakref.ref(machine)
    _machines.append(entry)

    def undo() -> None:
        _machines.remove(entry)
        if not _machines:
            for name in _NAMES:
                if getattr(os, name) is _ours[name]:  # else somebody else has come since, and stays
                    setattr(os, name, _before[name])

    return undo
