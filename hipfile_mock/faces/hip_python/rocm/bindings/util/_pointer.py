"""An address, made from None, numbers, buffers and other addresses."""

from __future__ import annotations

import ctypes
from typing import Any, Self

__all__ = ["Pointer", "has_buffer"]


class _PyBuffer(ctypes.Structure):
    """``Py_buffer`` as far as its address; the rest is room."""

    _fields_ = (("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("room", ctypes.c_byte * 128))


_ANY_CONTIGUOUS = 0x98
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None


class _View:
    """Keeps a buffer where it is for as long as somebody has its address."""

    def __init__(self, obj: Any) -> None:
        self._buffer = _PyBuffer()
        _get_buffer(obj, ctypes.byref(self._buffer), _ANY_CONTIGUOUS)
        self.address = self._buffer.buf or 0

    def __del__(self) -> None:
        if self._buffer.obj and _release_buffer is not None:
            _release_buffer(ctypes.byref(self._buffer))


def _void_p(value: int) -> int:
    """As ``PyLong_AsVoidPtr``: 64 bits, of either sign."""
    if not -(1 << 63) <= value < (1 << 64):
        raise OverflowError("Python int too large to convert to C unsigned long")
    return value & 0xFFFF_FFFF_FFFF_FFFF


class Pointer:
    """An address.

    Parameters
    ----------
    pyobj : object
        None (null), `ctypes.c_void_p`, an object with a contiguous buffer, one with ``__cuda_array_interface__``,
        another pointer, an int, or one with ``as_c_void_p()``; asked for in this order.

    Raises
    ------
    TypeError
        Anything else.
    """

    __slots__ = ("__weakref__", "_keep", "_ptr")

    def __init__(self, pyobj: Any = None) -> None:
        self._take(pyobj)

    def _take(self, pyobj: Any) -> None:
        self._keep: Any = None
        interface = getattr(pyobj, "__cuda_array_interface__", None)
        if pyobj is None:
            self._ptr = 0
        elif isinstance(pyobj, ctypes.c_void_p):
            self._ptr = pyobj.value or 0
        elif has_buffer(pyobj):
            self._keep = _View(pyobj)
            self._ptr = self._keep.address
        elif interface is not None:
            if "data" not in interface:
                raise ValueError("input object has '__cuda_array_interface__' attribute but the dict has no 'data' key")
            self._ptr = _void_p(interface["data"][0])
            self._keep = pyobj
        elif isinstance(pyobj, Pointer):
            self._ptr = pyobj._ptr
            self._keep = pyobj
        elif isinstance(pyobj, int):
            self._ptr = _void_p(pyobj)
        elif hasattr(pyobj, "as_c_void_p"):
            self._ptr = pyobj.as_c_void_p().value or 0
            self._keep = pyobj
        else:
            raise TypeError(f"unsupported input type: '{type(pyobj)}'")

    @classmethod
    def _at(cls, address: int) -> Self:
        made = cls.__new__(cls)
        made._keep = None
        made._ptr = address
        return made

    @classmethod
    def fromObj(cls, pyobj: Any) -> Self:
        """`pyobj` itself if it is one of these already, else one made from it."""
        if isinstance(pyobj, cls):
            return pyobj
        made = cls.__new__(cls)
        made._take(pyobj)
        return made

    @property
    def is_ptr_null(self) -> bool:
        """Whether the address is 0."""
        return self._ptr == 0

    def as_c_void_p(self) -> ctypes.c_void_p:
        """The address for ctypes."""
        return ctypes.c_void_p(self._ptr)

    def createRef(self) -> Pointer:
        """A pointer to memory that holds this address."""
        slot = ctypes.c_void_p(self._ptr)
        made = Pointer._at(ctypes.addressof(slot))
        made._keep = (slot, self)
        return made

    def __bool__(self) -> bool:
        return self._ptr != 0

    def __int__(self) -> int:
        return self._ptr

    def __repr__(self) -> str:
        return f"<Pointer object, _ptr={self._ptr}>"

    def __getitem__(self, offset: Any) -> Any:
        """A pointer `offset` bytes on."""
        if not isinstance(offset, int):
            raise NotImplementedError("'__getitem__': not implemented for other 'offset' types than 'int'")
        if offset < 0:
            raise ValueError("offset='{offset}' must be non-negative")
        made = Pointer._at(self._ptr + offset)
        made._keep = self
        return made


def has_buffer(pyobj: Any) -> bool:
    """Whether an address is taken from the buffer of `pyobj`."""
    if isinstance(pyobj, (int, Pointer)):
        return False
    try:
        memoryview(pyobj).release()
    except TypeError:
        return False
    return True


Pointer.__module__ = __name__.replace("_pointer", "types")
