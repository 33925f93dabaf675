"""Numbers in C memory: arrays and single ones."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from ._pointer import Pointer


class _List(Pointer):
    """Numbers in C memory, made from a list, a tuple or `allocate`; of other objects the address is taken."""

    __slots__ = ("_len",)
    _ctype: ClassVar[Any] = ctypes.c_int
    _scalar: ClassVar[bool] = False

    def __init__(self, pyobj: Any) -> None:
        super().__init__(pyobj)

    def _take(self, pyobj: Any) -> None:
        self._len = -1
        if not isinstance(pyobj, (list, tuple)):
            super()._take(pyobj)
            return
        if self._scalar and len(pyobj) != 1:
            raise ValueError(
                "a 'PointerTo*' wraps a single scalar; a 'list'/'tuple' initializer must have exactly one element"
                f" (got {len(pyobj)})"
            )
        values: list[Any] = [getattr(entry, "value", entry) for entry in pyobj]
        for index, value in enumerate(values):
            if not isinstance(value, int):
                raise ValueError(f"cannot cast input element '{index}' to C {self._ctype.__name__}")
        self._own(values)

    def _own(self, values: list[int]) -> None:
        self._len = len(values)
        self._keep = (self._ctype * max(len(values), 1))(*values)
        self._ptr = ctypes.addressof(self._keep) if values else 0

    @classmethod
    def allocate(cls, count: int = 1) -> Self:
        """`count` zeros."""
        if count < 0:
            raise ValueError("'count' must be non-negative")
        made = cls.__new__(cls)
        made._own([0] * count)
        return made

    def _array(self) -> Any:
        return (self._ctype * len(self)).from_address(self._ptr)

    def __len__(self) -> int:
        if self._len < 0:
            raise TypeError("the number of elements is unknown: the object was made from an address")
        return self._len

    def __getitem__(self, subscript: Any) -> Any:
        return list(self._array())[subscript]

    def __iter__(self) -> Iterator[int]:
        return iter(self.to_list())

    def to_list(self) -> list[int]:
        """The numbers as a list."""
        return list(self._array()) if len(self) else []

    def to_tuple(self) -> tuple[int, ...]:
        """The numbers as a tuple."""
        return tuple(self.to_list())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object, _ptr={self._ptr}>"


class _Scalar(_List):
    """One number in C memory."""

    __slots__ = ()
    _scalar = True

    @property
    def value(self) -> int:
        """The number."""
        if not self._ptr:
            raise ValueError(f"cannot dereference a NULL {type(self).__name__}")
        return int(self._ctype.from_address(self._ptr).value)

    @value.setter
    def value(self, number: int) -> None:
        if not self._ptr:
            raise ValueError(f"cannot write through a NULL {type(self).__name__}")
        self._ctype.from_address(self._ptr).value = number


def _numbers(name: str, ctype: Any) -> tuple[Any, Any]:
    body = {"__slots__": (), "_ctype": ctype, "__module__": __name__.replace("_numbers", "types")}
    many = type(f"ListOf{name}", (_List,), {**body, "__doc__": f"C array of ``{ctype.__name__}``."})
    one = type(f"PointerTo{name}", (_Scalar, many), {**body, "__doc__": f"One ``{ctype.__name__}``."})
    return many, one


ListOfInt, PointerToInt = _numbers("Int", ctypes.c_int)
ListOfLong, PointerToLong = _numbers("Long", ctypes.c_long)
ListOfUnsigned, PointerToUnsigned = _numbers("Unsigned", ctypes.c_uint)
ListOfUnsignedLong, PointerToUnsignedLong = _numbers("UnsignedLong", ctypes.c_ulong)
ListOfInt64, PointerToInt64 = _numbers("Int64", ctypes.c_int64)
ListOfUInt64, PointerToUInt64 = _numbers("UInt64", ctypes.c_uint64)
