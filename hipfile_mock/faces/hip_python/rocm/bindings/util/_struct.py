"""C structures as pointer objects, and the helpers that turn arguments into C values."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, ClassVar

from hipfile_sim.native.structs import Layout

from ._pointer import Pointer

__all__ = ["Handle", "Opaque", "Struct", "checked", "mirror"]


def mirror(name: str, source: Any, module: str, aliases: dict[str, int] | None = None) -> tuple[Any, Any]:
    """An enumeration as the binding has it: ``<name>`` on an empty ``_<name>__Base``, by which arguments are checked.

    Parameters
    ----------
    source : enumeration
        Where names and values come from.
    aliases : mapping
        More names.
    """
    make: Any = IntEnum
    base = make(f"_{name}__Base", {}, module=module)
    names = {member.name: int(member) for member in source} | (aliases or {})
    return base(name, names, module=module), base


def checked(value: Any, base: Any, argument: str) -> int:
    """`value`, which must be a member of the enumeration and no plain int.

    Raises
    ------
    TypeError
        It is not.
    """
    if not isinstance(value, base):
        raise TypeError(f"argument '{argument}' must be of type '{base.__name__}'")
    return int(value)


class Opaque(Pointer):
    """The address of something that has a type of its own."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object, ptr: {self._ptr}>"


class Handle(Opaque):
    """An opaque C object."""

    __slots__ = ()

    @staticmethod
    def PROPERTIES() -> list[str]:
        """None: the object is opaque."""
        return []

    def __contains__(self, item: Any) -> bool:
        return item in self.PROPERTIES()


class Struct(Handle):
    """A C structure in memory of its own, or at an address (`fromObj`).

    Subclasses set ``_layout`` and, for members that are no plain numbers, ``_kinds``: an enumeration, a `Struct`, or a
    `Pointer` class.
    """

    __slots__ = ()
    _layout: ClassVar[Layout]
    _kinds: ClassVar[dict[str, Any]] = {}
    _names: ClassVar[list[str]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_layout" not in vars(cls):
            return
        cls._names = list(dict.fromkeys(name.partition(".")[0] for name in cls._layout.fields))
        for name in cls._names:
            if name not in vars(cls):
                setattr(cls, name, _member(cls, name))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._own(1)
        if len(args) > len(self._names):
            raise TypeError(f"{type(self).__name__}() takes at most {len(self._names)} values, {len(args)} were given")
        for name, value in (*zip(self._names, args, strict=False), *kwargs.items()):
            if name not in self._names:
                valid = ", ".join(map(repr, self._names))
                raise KeyError(f"'{name}' is no valid property name. Valid names: {valid}")
            setattr(self, name, value)

    def _own(self, count: int) -> None:
        self._keep = ctypes.create_string_buffer(max(self._layout.size * count, 1))
        self._ptr = ctypes.addressof(self._keep)

    @classmethod
    def allocate(cls, count: int = 1) -> Any:
        """`count` structures of zeros, one after the other."""
        if count < 0:
            raise ValueError("'count' must be non-negative")
        made = cls.__new__(cls)
        made._own(count)
        return made

    @classmethod
    def PROPERTIES(cls) -> list[str]:
        """Names of the members."""
        return list(cls._names)

    def _fill(self, values: Mapping[str, Any]) -> None:
        """Write the members that `values` has."""
        data = self._layout.pack(values)
        ctypes.memmove(self._ptr, data, len(data))

    def c_sizeof(self) -> int:
        """Bytes of the structure."""
        return self._layout.size

    def __getitem__(self, item: Any) -> Any:
        """A member by its number."""
        if not isinstance(item, int):
            raise ValueError("'item' type must be 'int'")
        return getattr(self, self._names[item])


def _member(cls: type[Struct], name: str) -> property:
    kind: Any = cls._kinds.get(name)
    field = cls._layout.fields.get(name)
    if field is None:
        field = next(f for n, f in cls._layout.fields.items() if n.startswith(f"{name}."))
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _nested(kind, field.offset)
    form, offset, text = "=" + field.format, field.offset, field.format.endswith("s")
    size = struct.calcsize(form)

    def get(self: Struct) -> Any:
        data = ctypes.string_at(self._ptr + offset, size)
        if text:
            return data.partition(b"\0")[0].decode() if kind is str else data
        values = struct.unpack(form, data)
        if field.count > 1:
            return list(values)
        return values[0] if kind is None else kind._at(values[0]) if issubclass(kind, Pointer) else kind(values[0])

    def put(self: Struct, value: Any) -> None:
        if kind is not None and kind is not str:
            if issubclass(kind, Pointer):
                held = kind.fromObj(value)
                value = int(held)
                self._keep = (self._keep, held)
            elif not isinstance(value, kind):
                raise TypeError(f"'value' must be of type '{kind.__name__}'")
        items = value if field.count > 1 else [value.encode() if isinstance(value, str) else value]
        try:
            data = struct.pack(form, *items)
        except struct.error as error:
            raise (OverflowError if isinstance(value, int) else TypeError)(f"{name}: {error}") from None
        ctypes.memmove(self._ptr + offset, data, size)

    return property(get, put, doc=f"Member ``{name}``.")


def _nested(kind: type[Struct], offset: int) -> property:
    def get(self: Struct) -> Struct:
        inner = kind._at(self._ptr + offset)
        inner._keep = self
        return inner

    return property(get, doc=f"Member of type `{kind.__name__}`, in place.")
