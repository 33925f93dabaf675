"""Registration of device memory."""

from __future__ import annotations

from sys import stderr
from typing import TYPE_CHECKING, Any

from hipfile_mock import current as _current

from ._hipfile import hipFileBufDeregister, hipFileBufRegister
from .error import HipFileException

if TYPE_CHECKING:
    from ctypes import c_void_p
    from types import TracebackType
    from typing import Self


class Buffer:
    """A range of device memory and its registration. The memory stays the caller's.

    Parameters
    ----------
    buffer_ptr : int
        Address of the first byte.
    length : int
        Bytes.
    flags : int
        Stored by the library and not used. [buffer.flags]
    """

    @classmethod
    def from_ctypes_void_p(cls, ctypes_void_p: c_void_p, length: int, flags: int) -> Buffer:
        """Same, from a pointer object.

        Raises
        ------
        ValueError
            The pointer is null.
        """
        if ctypes_void_p.value is None:
            raise ValueError("Cannot pass in a null pointer.")
        return cls(ctypes_void_p.value, length, flags)

    def __init__(self, buffer_ptr: int, length: int, flags: int) -> None:
        self._buffer_ptr = buffer_ptr
        self._flags = flags
        self._length = length
        self._registered = False
        self._machine: Any = None

    @property
    def ptr(self) -> int:
        """Address of the first byte."""
        return self._buffer_ptr

    def register(self) -> None:
        """Register the range.

        Raises
        ------
        HipFileException
            5013 (not device memory), 5014 (past the allocation), 5022 (null or unknown), 5023 (registered already).
        """
        status = hipFileBufRegister(self._buffer_ptr, self._length, self._flags)
        if status[0] != 0:
            raise HipFileException(status[0], status[1])
        self._registered = True
        self._machine = _current.reference()

    def deregister(self) -> None:
        """Deregister the range; nothing happens if it is not registered.

        Raises
        ------
        HipFileException
            5006 (the driver is closed), 5024 (not registered), 5030 (an operation in flight uses it).
        """
        if not self._registered:
            return
        if _current.gone(self._machine):
            self._registered = False
            return
        status = hipFileBufDeregister(self._buffer_ptr)
        if status[0] != 0:
            raise HipFileException(status[0], status[1])
        self._registered = False

    def __enter__(self) -> Self:
        self.register()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.deregister()

    def __del__(self) -> None:
        # The address may mean something else on another machine, so a leftover of an ended one is left to its report.
        if not getattr(self, "_registered", False) or not _current.refers(self._machine):
            return
        try:
            self.deregister()
        except Exception:
            print("Failed to deregister hipFile.Buffer at destruction time.", file=stderr)
