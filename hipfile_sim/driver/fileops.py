"""The seam to the operating system: every file access of the driver goes through `FileOps`.

`RealFiles` is the real thing; fakes (an in-memory file system, injected faults) implement the same protocol.
Offsets and lengths are bytes. No object of the caller is ever used, only descriptor numbers, and every failure is an
`OSError` with its ``errno``.
"""

from __future__ import annotations

import ctypes
import errno
import posix  # not `os`, which test doubles of the file system replace: this is always the real thing
import stat
import sys
from collections.abc import Callable
from fcntl import F_GETFL, F_SETFL, fcntl
from typing import Any, NamedTuple, NoReturn, Protocol, runtime_checkable

__all__ = ["FileInfo", "FileOps", "RealFiles"]

_INT_MAX = (1 << 31) - 1
_OFF_MAX = (1 << 63) - 1
_CREATION = posix.O_CREAT | posix.O_EXCL | posix.O_TRUNC


class FileInfo(NamedTuple):
    """What the library learns about a descriptor by ``statx``. [file.inspect]

    Attributes
    ----------
    dev, ino : int
        ``st_dev`` (major and minor) and inode number: the identity of the file.
    mode : int
        ``st_mode``.
    rdev : int
        Device number of a device file.
    dio_mem_align, dio_offset_align : int or None
        Alignments in bytes that direct I/O needs. None: the kernel does not report them; 0: no direct I/O.
    dio_read_offset_align : int or None
        Offset alignment of direct reads where it is smaller than that of writes and the kernel reports it.
    """

    dev: int
    ino: int
    mode: int
    rdev: int = 0
    dio_mem_align: int | None = None
    dio_offset_align: int | None = None
    dio_read_offset_align: int | None = None

    @property
    def is_regular(self) -> bool:
        """A regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_block_device(self) -> bool:
        """A block device."""
        return stat.S_ISBLK(self.mode)


@runtime_checkable
class FileOps(Protocol):
    """File access. Every failure is an `OSError` with ``errno`` set; nothing else is ever raised.

    Descriptors are ints of any size; one that cannot be a descriptor is ``EBADF``. A negative or too large offset is
    ``EINVAL``. A transfer may be short, and 0 means the end of the file (or, for a write, that nothing was taken).
    """

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Open `path`; a new descriptor, close-on-exec if `flags` says so."""

    def close(self, fd: int) -> None:
        """Close a descriptor that `open` or `reopen` gave."""

    def pread_into(self, fd: int, view: memoryview, offset: int) -> int:
        """One pread of ``len(view)`` bytes at `offset` into `view`; the number of bytes read."""

    def pwrite_from(self, fd: int, view: memoryview, offset: int) -> int:
        """One pwrite of `view` at `offset`; the number of bytes written."""

    def fdatasync(self, fd: int) -> None:
        """Wait until the data of the file is on disk."""

    def getfl(self, fd: int) -> int:
        """Status flags, as ``fcntl(F_GETFL)``."""

    def inspect(self, fd: int) -> FileInfo:
        """Identity, kind and alignments of the file."""

    def reopen(self, fd: int, flags: int) -> int:
        """A second, independent descriptor of the same file, with `flags` (as opening ``/proc/self/fd/N`` does)."""

    def path(self, fd: int) -> str | None:
        """Absolute path by which the file is known, or None if it has none."""

    def identity(self, fd: int) -> tuple[int, int]:
        """``(st_dev, st_ino)`` of what the number means right now."""


def _fail(code: int, what: object = None) -> NoReturn:
    raise OSError(code, posix.strerror(code), *(() if what is None else (str(what),)))


def _fd(fd: int) -> int:
    """A number that fits a C int; anything else cannot be open."""
    if not 0 <= fd <= _INT_MAX:
        _fail(errno.EBADF)
    return fd


def _offset(offset: int) -> int:
    if not 0 <= offset <= _OFF_MAX:
        _fail(errno.EINVAL)
    return offset


class RealFiles:
    """The files of this machine.

    >>> import os
    >>> files, fd = RealFiles(), os.open("/dev/zero", os.O_RDONLY)
    >>> room = bytearray(b"abc")
    >>> files.pread_into(fd, memoryview(room), 0), bytes(room)
    (3, b'\\x00\\x00\\x00')
    >>> os.close(fd)
    """

    __slots__ = ()

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Open `path` through the operating system."""
        try:
            return posix.open(path, flags, mode)
        except ValueError:  # a null character in the path
            _fail(errno.EINVAL, path)

    def close(self, fd: int) -> None:
        """Close `fd`."""
        posix.close(_fd(fd))

    def pread_into(self, fd: int, view: memoryview, offset: int) -> int:
        """One ``preadv`` into `view`, without a copy."""
        return posix.preadv(_fd(fd), (view,), _offset(offset))

    def pwrite_from(self, fd: int, view: memoryview, offset: int) -> int:
        """One ``pwritev`` of `view`, without a copy."""
        return posix.pwritev(_fd(fd), (view,), _offset(offset))

    def fdatasync(self, fd: int) -> None:
        """``fdatasync``."""
        posix.fdatasync(_fd(fd))

    def getfl(self, fd: int) -> int:
        """``fcntl(fd, F_GETFL)``."""
        return fcntl(_fd(fd), F_GETFL)

    def inspect(self, fd: int) -> FileInfo:
        """``statx`` with the alignments for direct I/O; ``fstat`` where there is no ``statx``."""
        return _inspect(_fd(fd))

    def reopen(self, fd: int, flags: int) -> int:
        """Open ``/proc/self/fd/N``: same file, new open file description.

        Creation flags are dropped: the file is there already, and O_TRUNC or O_EXCL must not harm it. Opening the
        free end of a pipe, or a terminal without a carrier, would block for ever; here it does not (ENXIO or success).
        """
        kind = stat.S_IFMT(posix.fstat(_fd(fd)).st_mode)
        flags = flags & ~_CREATION | posix.O_NOCTTY
        waits = kind in (stat.S_IFIFO, stat.S_IFCHR) and not flags & posix.O_NONBLOCK
        new = posix.open(f"/proc/self/fd/{fd}", flags | posix.O_NONBLOCK if waits else flags)
        if waits and not flags & posix.O_PATH:
            fcntl(new, F_SETFL, fcntl(new, F_GETFL) & ~posix.O_NONBLOCK)
        return new

    def path(self, fd: int) -> str | None:
        """Target of ``/proc/self/fd/N`` if it is a path (pipes, sockets and anonymous files have none)."""
        try:
            target = posix.readlink(f"/proc/self/fd/{_fd(fd)}")
        except OSError:
            return None
        return target.removesuffix(" (deleted)") if target.startswith("/") else None

    def identity(self, fd: int) -> tuple[int, int]:
        """``fstat`` of the number."""
        status = posix.fstat(_fd(fd))
        return status.st_dev, status.st_ino


# ------------------------------------------------------------------------------------------------------------- statx(2)

_AT_EMPTY_PATH = 0x1000
_STATX_BASIC = 0x7FF
_STATX_DIOALIGN = 0x2000
_STATX_DIO_READ_ALIGN = 0x20000


class _Statx(ctypes.Structure):
    """``struct statx`` as far as it is used; the kernel fills 256 bytes."""

    _fields_ = (
        ("stx_mask", ctypes.c_uint32),
        ("stx_blksize", ctypes.c_uint32),
        ("stx_attributes", ctypes.c_uint64),
        ("stx_nlink", ctypes.c_uint32),
        ("stx_uid", ctypes.c_uint32),
        ("stx_gid", ctypes.c_uint32),
        ("stx_mode", ctypes.c_uint16),
        ("spare0", ctypes.c_uint16),
        ("stx_ino", ctypes.c_uint64),
        ("stx_size", ctypes.c_uint64),
        ("stx_blocks", ctypes.c_uint64),
        ("stx_attributes_mask", ctypes.c_uint64),
        ("times", ctypes.c_uint64 * 8),
        ("stx_rdev_major", ctypes.c_uint32),
        ("stx_rdev_minor", ctypes.c_uint32),
        ("stx_dev_major", ctypes.c_uint32),
        ("stx_dev_minor", ctypes.c_uint32),
        ("stx_mnt_id", ctypes.c_uint64),
        ("stx_dio_mem_align", ctypes.c_uint32),
        ("stx_dio_offset_align", ctypes.c_uint32),
        ("stx_subvol", ctypes.c_uint64),
        ("atomic_write", ctypes.c_uint32 * 3),
        ("stx_dio_read_offset_align", ctypes.c_uint32),
        ("spare", ctypes.c_uint64 * 9),
    )


def _load_statx() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        function: Any = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Statx))
    function.restype = ctypes.c_int
    found: Callable[..., int] = function
    return found


_statx = _load_statx()


def _inspect(fd: int) -> FileInfo:
    if _statx is not None:
        room = _Statx()
        wanted = _STATX_BASIC | _STATX_DIOALIGN | _STATX_DIO_READ_ALIGN
        if _statx(fd, b"", _AT_EMPTY_PATH, wanted, ctypes.byref(room)) == 0:
            aligned = room.stx_mask & _STATX_DIOALIGN
            return FileInfo(
                posix.makedev(room.stx_dev_major, room.stx_dev_minor),
                room.stx_ino,
                room.stx_mode,
                posix.makedev(room.stx_rdev_major, room.stx_rdev_minor),
                room.stx_dio_mem_align if aligned else None,
                room.stx_dio_offset_align if aligned else None,
                room.stx_dio_read_offset_align if room.stx_mask & _STATX_DIO_READ_ALIGN else None,
            )
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a sandbox that filters the call
            _fail(code)
    status = posix.fstat(fd)
    return FileInfo(status.st_dev, status.st_ino, status.st_mode, status.st_rdev)
