"""The file map: which descriptors are registered, with the two descriptors that the real library uses."""

from __future__ import annotations

from collections.abc import Callable

from hipfile_sim.driver.codes import FileDescr, HipFileStatus
from hipfile_sim.driver.fileops import FileOps
from hipfile_sim.driver.mounts import MountTable
from hipfile_sim.driver.profiles.base import Profile

__all__ = ["FileMap", "RegisteredFile"]


class RegisteredFile:
    """A registered file. Operations in flight hold a reference: `acquire` at submit, `release` when done.

    Attributes
    ----------
    handle : int
        Value given to the caller (an address that is never readable and never used again).
    client_fd : int
        The caller's descriptor number.
    buffered_fd, unbuffered_fd : int
        Descriptors for page-cache and direct I/O; `unbuffered_fd` is -1 if O_DIRECT was refused. One of them is
        `client_fd`, the other is owned and closed with the last reference.
    dio_mem_align, dio_offset_align : int
        Bytes; both 0 if there is no unbuffered descriptor.
    info : FileInfo
    mount : Mount | None
    """

    def acquire(self) -> None: ...
    def release(self) -> None: ...
    @property
    def in_use(self) -> bool: ...
    @property
    def recycled(self) -> bool:
        """The caller's number now means another file, or none (the library does not notice)."""


class FileMap:
    """Registered files by handle and by client descriptor.

    Parameters
    ----------
    new_handle : callable
        ``runtime.new_handle``; called with ``"file"``.
    """

    def __init__(
        self, profile: Profile, files: FileOps, mounts: MountTable, new_handle: Callable[[str], int]
    ) -> None: ...
    def register(self, descr: FileDescr | None, implicit_init: Callable[[], None]) -> tuple[HipFileStatus, int]:
        """``hipFileHandleRegister`` without its out-pointer; handle 0 on failure."""
    def lookup(self, handle: int) -> RegisteredFile | None: ...
    def deregister(self, handle: int) -> bool:
        """False: nothing happened (unknown, or in use: it stays registered)."""
    def clear(self) -> None:
        """Forget all (driver closed); files in flight stay alive until released."""
