"""File operations for the doubles: real files, and pyfakefs' where a descriptor is one of its.

The real system calls know nothing of fake descriptors, whose numbers are unrelated to real ones: a fake descriptor 6
given to `os.pwritev` would overwrite whatever real file is open as 6. So it is settled at registration whose number it
is, and that stands for as long as it is in use, even after pyfakefs has been taken down.
"""

from __future__ import annotations

import errno
import os as _constants
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self

from hipfile_sim.driver.fileops import FileInfo, FileOps, RealFiles

__all__ = ["AutoFiles", "FakeDescriptor", "PyfakefsFiles", "active_pyfakefs"]

LARGEST = 1 << 32
"""Bytes of the largest file in pyfakefs that is written to: it keeps every byte, holes too, in memory."""
_NOT_AGAIN = _constants.O_CREAT | _constants.O_EXCL | _constants.O_TRUNC


def active_pyfakefs() -> Any | None:
    """The fake file system that is in place now, or None.

    Asked at each use: fixtures come and go. pyfakefs replaces ``sys.modules["os"]`` while it is active.
    """
    module = sys.modules["os"]
    if type(module).__module__.startswith("pyfakefs"):
        return module.filesystem
    return None


class FakeDescriptor(int):
    """A descriptor that the model opened in a fake file system: a number that remembers where it belongs."""

    filesystem: Any

    def __new__(cls, number: int, filesystem: Any) -> Self:
        self = super().__new__(cls, number)
        self.filesystem = filesystem
        return self


class PyfakefsFiles:
    """File operations in one pyfakefs file system.

    Parameters
    ----------
    filesystem : pyfakefs.fake_filesystem.FakeFilesystem
        ``fs`` of the fixture.

    Notes
    -----
    pyfakefs has no ``pread``; the position is saved and put back under a lock. It knows no alignments, and a file
    opened with O_DIRECT is like any other; a mount fixture can refuse the flag.
    """

    def __init__(self, filesystem: Any) -> None:
        self.filesystem = filesystem
        self._lock = threading.Lock()

    def _os(self) -> Any:
        from pyfakefs.fake_os import FakeOsModule

        return FakeOsModule(self.filesystem)

    def _file(self, fd: int) -> Any:
        """The open file.

        Raises
        ------
        OSError
            EBADF: the number is not open here.
        """
        if fd < 0:
            raise OSError(errno.EBADF, _constants.strerror(errno.EBADF))
        return self.filesystem.get_open_file(int(fd))

    def _regular(self, fd: int) -> Any:
        opened = self._file(fd)
        if not hasattr(opened, "tell"):  # a directory
            raise OSError(errno.EISDIR, _constants.strerror(errno.EISDIR))
        return opened

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Open `path` in the fake file system."""
        return FakeDescriptor(self._os().open(path, flags, mode), self.filesystem)

    def close(self, fd: int) -> None:
        """Close a fake descriptor."""
        try:
            self._file(fd).close_fd(int(fd))  # not by pyfakefs' own os: that refuses once its patcher is gone
        except AssertionError:  # the file system itself is gone, and its files with it
            pass

    def pread_into(self, fd: int, view: memoryview, offset: int) -> int:
        """Bytes read at `offset` into `view`."""
        opened = self._regular(fd)
        if not opened.open_modes.can_read:
            raise OSError(errno.EBADF, _constants.strerror(errno.EBADF))
        with self._lock:
            opened.flush()
            contents = opened.file_object.byte_contents or b""
        part = memoryview(contents)[offset : offset + len(view)] if offset >= 0 else self._invalid()
        view[: len(part)] = part
        return len(part)

    def pwrite_from(self, fd: int, view: memoryview, offset: int) -> int:
        """Bytes written at `offset`; the position of the file stays."""
        opened = self._regular(fd)
        if not opened.open_modes.can_write:
            raise OSError(errno.EBADF, _constants.strerror(errno.EBADF))
        if offset < 0:
            self._invalid()
        if offset + len(view) > LARGEST:  # it would be allocated, hole and all
            raise OSError(errno.EFBIG, _constants.strerror(errno.EFBIG))
        with self._lock:
            before = opened.tell()
            try:
                opened.seek(offset)
                opened.write(bytes(view))
                opened.flush()
            finally:
                opened.seek(before)
        return len(view)

    def _invalid(self) -> Any:
        raise OSError(errno.EINVAL, _constants.strerror(errno.EINVAL))

    def fdatasync(self, fd: int) -> None:
        """Nothing to wait for; a descriptor that is not open is EBADF."""
        self._file(fd)

    def getfl(self, fd: int) -> int:
        """Access mode and O_APPEND, from how the file was opened. (pyfakefs' own ``fcntl`` always answers 0.)"""
        modes = getattr(self._file(fd), "open_modes", None)
        if modes is None or not modes.can_write:
            return _constants.O_RDONLY
        access = _constants.O_RDWR if modes.can_read else _constants.O_WRONLY
        return access | (_constants.O_APPEND if modes.append else 0)

    def inspect(self, fd: int) -> FileInfo:
        """Identity and kind; no alignments."""
        status = self._file(fd).file_object
        return FileInfo(status.st_dev, status.st_ino, status.st_mode)

    def reopen(self, fd: int, flags: int) -> int:
        """A second descriptor of the same file."""
        path = self._file(fd).file_object.path
        return FakeDescriptor(self._os().open(path, flags & ~_NOT_AGAIN), self.filesystem)

    def path(self, fd: int) -> str | None:
        """Path of the file."""
        path: str = self._file(fd).file_object.path
        return path

    def identity(self, fd: int) -> tuple[int, int]:
        """``(st_dev, st_ino)``."""
        status = self._file(fd).file_object
        return (status.st_dev, status.st_ino)


class DescriptorClash(RuntimeError):
    """A real and a fake descriptor of the same number would both be registered."""


def _whose(owner: FileOps) -> str:
    return "one of pyfakefs" if isinstance(owner, PyfakefsFiles) else "a real one"


class AutoFiles:
    """Real files, or pyfakefs' for its descriptors.

    A descriptor of the caller is asked after once, when it is registered (`inspect`): while a fake file system is in
    place it is one of its, and a number that is not open there is EBADF, whatever real file has it.
    """

    def __init__(self, real: FileOps | None = None) -> None:
        self.real: FileOps = RealFiles() if real is None else real
        self._fakes: dict[int, PyfakefsFiles] = {}
        self._owner: dict[int, FileOps] = {}
        self.registered: Callable[[], Iterable[Any]] = tuple
        """The files that are registered now: whose number stays whose until they are not."""

    def _fake(self, filesystem: Any) -> PyfakefsFiles:
        key = id(filesystem)
        if key not in self._fakes:
            self._fakes[key] = PyfakefsFiles(filesystem)
        return self._fakes[key]

    def _now(self) -> FileOps:
        filesystem = active_pyfakefs()
        return self.real if filesystem is None else self._fake(filesystem)

    def _for(self, fd: int) -> FileOps:
        if isinstance(fd, FakeDescriptor):
            return self._fake(fd.filesystem)
        return self._owner.get(fd) or self._now()

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Open `path` where files are opened now."""
        return self._now().open(path, flags, mode)

    def close(self, fd: int) -> None:
        """Close a descriptor of the model."""
        if isinstance(fd, FakeDescriptor):
            self._fake(fd.filesystem).close(fd)
        else:
            self.real.close(fd)

    def inspect(self, fd: int) -> FileInfo:
        """As `FileOps.inspect`; settles whose descriptor this is.

        Raises
        ------
        DescriptorClash
            The number is registered for a file of the other kind. Either answer would lead one of the two to the
            other's bytes.
        """
        if isinstance(fd, FakeDescriptor):
            return self._fake(fd.filesystem).inspect(fd)
        owner = self._now()
        before = self._owner.get(fd, owner)
        if before is not owner and any(file.client_fd == fd for file in self.registered()):
            raise DescriptorClash(
                f"descriptor {fd} cannot be registered: {_whose(before)} of the same number is registered already, and "
                f"this one is {_whose(owner)}. Numbers of pyfakefs and of the kernel have nothing to do with each "
                "other: deregister the files of one before those of the other are opened"
            )
        self._owner[fd] = owner
        return owner.inspect(fd)

    def pread_into(self, fd: int, view: memoryview, offset: int) -> int:
        """As `FileOps.pread_into`."""
        return self._for(fd).pread_into(fd, view, offset)

    def pwrite_from(self, fd: int, view: memoryview, offset: int) -> int:
        """As `FileOps.pwrite_from`."""
        return self._for(fd).pwrite_from(fd, view, offset)

    def fdatasync(self, fd: int) -> None:
        """As `FileOps.fdatasync`."""
        self._for(fd).fdatasync(fd)

    def getfl(self, fd: int) -> int:
        """As `FileOps.getfl`."""
        return self._for(fd).getfl(fd)

    def reopen(self, fd: int, flags: int) -> int:
        """As `FileOps.reopen`."""
        return self._for(fd).reopen(fd, flags)

    def path(self, fd: int) -> str | None:
        """As `FileOps.path`."""
        return self._for(fd).path(fd)

    def identity(self, fd: int) -> tuple[int, int]:
        """As `FileOps.identity`."""
        return self._for(fd).identity(fd)
