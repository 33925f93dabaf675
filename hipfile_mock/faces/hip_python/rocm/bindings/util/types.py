"""What stands for a C pointer: anything with an address, made from None, numbers, buffers and each other."""

from __future__ import annotations

import ctypes
import math
from typing import Any, ClassVar, Self

from ._numbers import (
    ListOfInt,
    ListOfInt64,
    ListOfLong,
    ListOfUInt64,
    ListOfUnsigned,
    ListOfUnsignedLong,
    PointerToInt,
    PointerToInt64,
    PointerToLong,
    PointerToUInt64,
    PointerToUnsigned,
    PointerToUnsignedLong,
)
from ._pointer import Pointer

__all__ = [
    "CStr",
    "DeviceArray",
    "ListOfInt",
    "ListOfInt64",
    "ListOfLong",
    "ListOfUInt64",
    "ListOfUnsigned",
    "ListOfUnsignedLong",
    "NDBuffer",
    "Pointer",
    "PointerToInt",
    "PointerToInt64",
    "PointerToLong",
    "PointerToUInt64",
    "PointerToUnsigned",
    "PointerToUnsignedLong",
]


class CStr(Pointer):
    """A C string; behaves like the ``str`` that it holds. (``bytes(text)`` works; it has no buffer of its own here.)"""

    __slots__ = ("_bytes",)

    _bytes: bytes

    def _take(self, pyobj: Any) -> None:
        if isinstance(pyobj, str):
            pyobj = pyobj.encode()
        if isinstance(pyobj, CStr):
            pyobj = pyobj._bytes
        if isinstance(pyobj, (bytes, bytearray)):
            self._bytes = bytes(pyobj).partition(b"\0")[0]
            self._keep = ctypes.create_string_buffer(self._bytes)
            self._ptr = ctypes.addressof(self._keep)
        else:
            super()._take(pyobj)
            self._bytes = ctypes.string_at(self._ptr) if self._ptr else b""

    def __len__(self) -> int:
        return len(self._bytes)

    def __getitem__(self, subscript: Any) -> Any:
        return self._bytes.decode()[subscript]

    def __str__(self) -> str:
        return self._bytes.decode()

    __repr__ = __str__

    def __bytes__(self) -> bytes:
        return self._bytes

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The string as ``str``."""
        return self._bytes.decode(encoding, errors)

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """The string as bytes."""
        return self._bytes.decode().encode(encoding, errors)


_SIZES = {
    "?": 1,
    "b": 1,
    "B": 1,
    "h": 2,
    "H": 2,
    "e": 2,
    "i": 4,
    "I": 4,
    "f": 4,
    "l": 8,
    "L": 8,
    "q": 8,
    "Q": 8,
    "d": 8,
}
_SIZES |= {"p": 8, "P": 8, "F": 8, "D": 16, "g": 16, "G": 32}
_NAMES = {"bool": 1, "byte": 1, "ubyte": 1, "short": 2, "ushort": 2, "half": 2, "intc": 4, "uintc": 4, "single": 4}
_NAMES |= {"int": 8, "uint": 8, "long": 8, "ulong": 8, "longlong": 8, "ulonglong": 8, "intp": 8, "uintp": 8}
_NAMES |= {"float": 8, "double": 8, "csingle": 8, "complex": 16, "cdouble": 16, "longdouble": 16}
for _kind, _widths in {
    "int": (8, 16, 32, 64),
    "uint": (8, 16, 32, 64),
    "float": (16, 32, 64),
    "complex": (64, 128),
}.items():
    for _bits in _widths:
        _NAMES[f"{_kind}{_bits}"] = _SIZES[f"{_kind[0]}{_bits // 8}"] = _bits // 8


def _itemsize(typestr: str) -> int:
    size = _NAMES.get(typestr) or _SIZES.get(typestr.lstrip("=<>"))
    if size is None:
        raise ValueError(
            f"unknown typestr {typestr!r}: the double knows booleans, integers, floats and complex numbers"
        )
    return size


class NDBuffer(Pointer):
    """An address with a shape and a type; bytes in one dimension unless configured."""

    __slots__ = ("_interface", "_size_of_item")

    def _take(self, pyobj: Any) -> None:
        interface = getattr(pyobj, "__cuda_array_interface__", None)
        super()._take(pyobj)
        self._describe((1,), "B")
        if interface is not None:
            self._interface.update(interface)
            self._size_of_item = _itemsize(self._interface["typestr"])

    @classmethod
    def _at(cls, address: int) -> Self:
        made = super()._at(address)
        made._describe((1,), "B")
        return made

    def _describe(self, shape: tuple[int, ...], typestr: str) -> None:
        self._size_of_item = _itemsize(typestr)
        self._interface: dict[str, Any] = {
            "shape": shape,
            "typestr": typestr,
            "data": (self._ptr, False),
            "strides": None,
            "offset": 0,
            "mask": None,
            "version": 3,
            "stream": None,
        }

    shape: ClassVar[Any] = property(lambda self: self._interface["shape"], doc="Elements along each axis.")
    typestr: ClassVar[Any] = property(lambda self: self._interface["typestr"], doc="Type of an element.")
    size: ClassVar[Any] = property(lambda self: math.prod(self._interface["shape"]), doc="Elements.")
    itemsize: ClassVar[Any] = property(lambda self: self._size_of_item, doc="Bytes of an element.")
    rank: ClassVar[Any] = property(lambda self: len(self._interface["shape"]), doc="Axes.")
    is_read_only: ClassVar[Any] = property(lambda self: self._interface["data"][1], doc="Not to be written.")
    stream_as_int: ClassVar[Any] = property(lambda self: self._interface["stream"], doc="Stream to synchronise with.")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, a copy."""
        return dict(self._interface)

    def configure(self, **kwargs: Any) -> Self:
        """Set ``shape``, ``typestr``, ``itemsize``, ``stream`` and ``read_only``; ``_force`` if the bytes change.

        Raises
        ------
        KeyError
            Another keyword.
        ValueError
            The shape has another number of bytes.
        """
        allowed = ("shape", "typestr", "stream", "itemsize", "read_only", "_force")
        if not kwargs.keys() <= set(allowed):
            raise KeyError(f"allowed keyword arguments are: {', '.join(map(repr, allowed))}")
        before = self.size * self.itemsize
        shape = tuple(kwargs.get("shape", self.shape))
        item = kwargs.get("itemsize") or (_itemsize(kwargs["typestr"]) if "typestr" in kwargs else self.itemsize)
        if "shape" in kwargs and math.prod(shape) * item != before and not kwargs.get("_force"):
            raise ValueError(
                f"new shape would change buffer size information: {before} B -> {math.prod(shape) * item} B. Specify"
                " `_force=True` if this is intended."
            )
        self._size_of_item = item
        self._interface["shape"] = shape
        self._interface["typestr"] = kwargs.get("typestr", self.typestr)
        self._interface["stream"] = kwargs.get("stream", self._interface["stream"])
        self._interface["data"] = (self._ptr, bool(kwargs.get("read_only", self.is_read_only)))
        return self

    def __getitem__(self, subscript: Any) -> NDBuffer:
        """A part of the array: an index or a slice for each of the first axes."""
        parts = subscript if isinstance(subscript, tuple) else (subscript,)
        shape = self.shape
        if len(parts) > len(shape):
            raise IndexError("too many indices specified, maximum number of axis: '{len(shape)}'")
        starts, extents = [], []
        for part, extent in zip(parts, shape, strict=False):
            start, stop = _bounds(part, extent)
            starts.append(start)
            extents.append(stop - start)
        offset = 0
        for axis, start in enumerate(starts):
            offset += start * math.prod(shape[axis + 1 :])
        if any(given != whole for given, whole in zip(extents[1:], shape[1:], strict=False)) and extents[0] != 1:
            raise NotImplementedError("the double returns parts of an array only where they are contiguous")
        made = NDBuffer._at(self._ptr + offset * self.itemsize)
        made._keep = self
        made._describe((*shape[len(parts) :], *extents), self.typestr)
        return made

    def __repr__(self) -> str:
        return (
            f"<NDBuffer object, _ptr={self._ptr}, typestr={self.typestr}, itemsize={self.itemsize},"
            f" shape={self.shape}, is_read_only={self.is_read_only}, stream={self.stream_as_int}>"
        )


def _bounds(part: Any, extent: int) -> tuple[int, int]:
    if isinstance(part, slice):
        if part.step not in (None, 1):
            raise ValueError("subscript's step must be 'None' or '1'.")
        start, stop = part.start or 0, extent if part.stop is None else part.stop
        if stop > extent:
            raise ValueError(
                f"subscript's stop='{stop}' must not be greater than axis' exclusive upper bound ({extent})."
            )
        return start, stop
    if part < 0:
        raise ValueError(f"subscript='{part}' must be non-negative.")
    if part >= extent:
        raise ValueError(f"subscript='{part}' must be smaller than axis' exclusive upper bound ('{{shape_dim}}')")
    return part, part + 1


class DeviceArray(NDBuffer):
    """What the allocation functions return."""

    __slots__ = ()

    @classmethod
    def _sized(cls, address: int, size: int) -> Self:
        made = cls._at(address)
        made._describe((size,), "B")
        return made
