"""Registration of device memory."""

from sys import stderr
from typing import Any, Self

from rocm.bindings.hipfile import hipFileBufDeregister as _deregister
from rocm.bindings.hipfile import hipFileBufRegister as _register

from hipfile_mock import current as _current

from .error import check as _check


class Buffer:
    """A range of device memory and its registration.

    Parameters
    ----------
    buffer_ptr : object
        Anything that has an address.
    length : int
        Bytes.
    flags : int
        Not used by the library.
    """

    @classmethod
    def from_ctypes_void_p(cls, ctypes_void_p: Any, length: Any, flags: Any) -> Self:
        """Same, from a `ctypes.c_void_p`; a null one is not refused here."""
        return cls(ctypes_void_p.value, length, flags)

    def __init__(self, buffer_ptr: Any, length: Any, flags: Any) -> None:
        self._buffer_ptr = buffer_ptr
        self._flags = flags
        self._length = length
        self._registered = False
        self._machine: Any = None

    @property
    def ptr(self) -> Any:
        """The address, as it was given."""
        return self._buffer_ptr

    def register(self) -> None:
        """Register the range; HipFileException if the library refuses."""
        (status,) = _register(self._buffer_ptr, self._length, self._flags)
        _check(status)
        self._registered = True
        self._machine = _current.reference()

    def deregister(self) -> None:
        """Deregister the range, if this object registered it; HipFileException if the library refuses."""
        if self._registered and not _current.gone(self._machine):
            (status,) = _deregister(self._buffer_ptr)
            _check(status)
            self._registered = False

    def __enter__(self) -> Self:
        self.register()
        return self

    def __exit__(self, exc_type: object, exc: object, tb: object) -> None:
        self.deregister()

    def __del__(self) -> None:
        if not getattr(self, "_registered", False) or not _current.refers(self._machine):
            return
        try:
            self.deregister()
        except Exception:
            print("Failed to deregister hipFile.Buffer at destruction time.", file=stderr)
