"""The seam to the operating system: every file access of the driver goes through `FileOps`.

`RealFiles` is the real thing. Fakes (an in-memory file system, injected faults) implement the same protocol.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

__all__ = ["FileInfo", "FileOps", "RealFiles"]


class FileInfo(NamedTuple):
    """What the library learns about a descriptor by statx.

    `dev` is ``st_dev`` (major and minor), `rdev` the device of a device file. The alignments are bytes for direct
    I/O, or None where the kernel does not report them; 0 means that direct I/O is not possible.
    """

    dev: int
    ino: int
    mode: int
    rdev: int = 0
    dio_mem_align: int | None = None
    dio_offset_align: int | None = None
    dio_read_offset_align: int | None = None

    @property
    def is_regular(self) -> bool: ...
    @property
    def is_block_device(self) -> bool: ...


class FileOps(Protocol):
    """File access. Every failure is an `OSError` with ``errno`` set; nothing else is ever raised."""

    def open(self, path: str, flags: int, mode: int = 0o666) -> int: ...
    def close(self, fd: int) -> None: ...
    def pread_into(self, fd: int, view: memoryview, offset: int) -> int:
        """One pread of ``len(view)`` bytes into `view`; bytes read (0 at the end of the file)."""
    def pwrite_from(self, fd: int, view: memoryview, offset: int) -> int:
        """One pwrite of `view`; bytes written."""
    def fdatasync(self, fd: int) -> None: ...
    def getfl(self, fd: int) -> int:
        """Status flags (``fcntl(F_GETFL)``)."""
    def inspect(self, fd: int) -> FileInfo: ...
    def reopen(self, fd: int, flags: int) -> int:
        """A new descriptor of the same file (through ``/proc/self/fd``), with `flags`."""
    def path(self, fd: int) -> str | None:
        """Path by which the file is known, or None."""
    def identity(self, fd: int) -> tuple[int, int]:
        """``(st_dev, st_ino)`` of what the descriptor number means right now."""
