"""Tools for tests that look inside the model: files with scripted faults, and a record of what was queued."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hipfile_sim.driver.fileops import FileInfo, RealFiles
from hipfile_sim.observe.observer import Observer

if TYPE_CHECKING:
    from hipfile_sim.engine.command import Command
    from hipfile_sim.observe.observer import Note

__all__ = ["Recorder", "ScriptedFiles", "fault"]


def fault(code: int) -> OSError:
    """An operating system error, as a script's entry."""
    return OSError(code, os.strerror(code))


class ScriptedFiles(RealFiles):
    """The real files, with a log of every access and faults on request.

    A script is a list of entries, one for each coming call: ``None`` lets the call through, an exception is raised
    in its place, a number limits a transfer to that many bytes (0: nothing is moved), a callable is called instead with
    the call's arguments.

    >>> import errno
    >>> files = ScriptedFiles()
    >>> files.script("pread_into", [fault(errno.EIO), 100])
    """

    __slots__ = ("log", "scripts")

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.scripts: dict[str, deque[Any]] = {}

    def script(self, call: str, entries: Iterable[Any]) -> None:
        """Lay down what the coming calls of that name do."""
        self.scripts.setdefault(call, deque()).extend(entries)

    def always(self, call: str, entry: Any) -> None:
        """Every call of that name from now on."""
        self.scripts[call] = _Forever(entry)

    def clear(self) -> None:
        """No faults any more; the log starts again."""
        self.scripts.clear()
        self.log.clear()

    def count(self, call: str) -> int:
        """How many calls of that name were made."""
        return sum(1 for name, *_ in self.log if name == call)

    def _next(self, name: str, *args: Any) -> Any:
        self.log.append((name, *args))
        script = self.scripts.get(name)
        entry = script.popleft() if script else None
        if isinstance(entry, BaseException):
            raise entry
        return entry

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """See `RealFiles`."""
        entry = self._next("open", path, flags)
        return entry(path, flags, mode) if callable(entry) else super().open(path, flags, mode)

    def close(self, fd: int) -> None:
        """See `RealFiles`."""
        self._next("close", fd)
        super().close(fd)

    def pread_into(self, fd: int, view: memoryview, offset: int) -> int:
        """See `RealFiles`."""
        entry = self._next("pread_into", fd, len(view), offset)
        if callable(entry):
            return int(entry(fd, view, offset))
        return super().pread_into(fd, view if entry is None else view[:entry], offset)

    def pwrite_from(self, fd: int, view: memoryview, offset: int) -> int:
        """See `RealFiles`."""
        entry = self._next("pwrite_from", fd, len(view), offset)
        if callable(entry):
            return int(entry(fd, view, offset))
        return super().pwrite_from(fd, view if entry is None else view[:entry], offset)

    def fdatasync(self, fd: int) -> None:
        """See `RealFiles`."""
        self._next("fdatasync", fd)
        super().fdatasync(fd)

    def getfl(self, fd: int) -> int:
        """See `RealFiles`."""
        self._next("getfl", fd)
        return super().getfl(fd)

    def inspect(self, fd: int) -> FileInfo:
        """See `RealFiles`."""
        entry = self._next("inspect", fd)
        info = super().inspect(fd)
        if callable(entry):
            changed: FileInfo = entry(info)
            return changed
        return info

    def reopen(self, fd: int, flags: int) -> int:
        """See `RealFiles`."""
        self._next("reopen", fd, flags)
        return super().reopen(fd, flags)


class _Forever(deque[Any]):
    def __init__(self, entry: Any) -> None:
        super().__init__([entry])

    def popleft(self) -> Any:
        return self[0]


class Recorder(Observer):
    """Commands and notes, as they came."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.run: list[Command] = []
        self.notes: list[Note] = []

    def submitted(self, cmd: Command) -> None:
        """A command was queued."""
        self.commands.append(cmd)

    def finished(self, cmd: Command) -> None:
        """A command is complete."""
        self.run.append(cmd)

    def note(self, n: Note) -> None:
        """The model had something to say."""
        self.notes.append(n)

    def kinds(self, choose: Callable[[Command], bool] = lambda _: True) -> list[str]:
        """Kinds of the queued commands."""
        return [command.kind for command in self.commands if choose(command)]
