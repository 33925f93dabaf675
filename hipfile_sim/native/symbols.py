"""One line of the symbol tables, taken apart.

A line is the C prototype, with what the bridge has to know written in front of an argument or behind the prototype:

``out T *name``
    the model returns this value and the bridge stores it. NULL is ``hipErrorInvalidValue``.
``opt T *name``
    the same, and NULL means that the caller does not want it.
``T name = value``
    a default argument in C++.
``... undo=hipFree``
    called with the value when it could not be stored, so that nothing leaks.
``... in=C``
    written by hand in ``src/``; the table only declares it.

>>> symbol = parse("hipError_t hipMalloc(out void **ptr, size_t size) undo=hipFree")
>>> symbol.name, [(a.name, a.kind, a.role) for a in symbol.args], symbol.undo
('hipMalloc', [('ptr', 'pointer', 'out'), ('size', 'unsigned', 'in')], 'hipFree')
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["pointer", "signed", "unsigned", "dim3"]
Role = Literal["in", "out", "opt"]

_SIGNED = {"int", "int32_t", "int64_t", "hoff_t", "hipDevice_t", "ssize_t"}
_UNSIGNED = {
    *("unsigned int", "unsigned char", "unsigned short", "unsigned", "uint32_t", "uint64_t", "size_t", "bool"),
    "unsigned long long",
}
_ENUMS = {
    *("hipError_t", "hipMemcpyKind", "hipDeviceAttribute_t", "hipFileOpError_t", "hipFileSizeTConfigParameter_t"),
    *("hipFileBoolConfigParameter_t", "hipFileStringConfigParameter_t", "hipPointer_attribute"),
}
_POINTERS = {
    *("hipStream_t", "hipEvent_t", "hipDeviceptr_t", "hipHostFn_t", "hipStreamCallback_t", "hipFunction_t"),
    *("hipFileHandle_t", "hipFileBatchHandle_t"),
}

#: struct format of the values that the bridge stores behind ``out`` and ``opt`` arguments, by pointee.
_FORMATS = {
    "int": "i",
    "unsigned int": "I",
    "size_t": "Q",
    "uint64_t": "Q",
    "unsigned long long": "Q",
    "int64_t": "q",
    "float": "f",
    "bool": "?",
    "hipDevice_t": "i",
}


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument: its C type as written, its name, how it crosses into Python."""

    ctype: str
    name: str
    kind: Kind
    role: Role = "in"
    default: str | None = None

    @property
    def format(self) -> str:
        """``struct`` format of the value behind the pointer."""
        pointee = self.ctype.removesuffix("*").strip()
        return "Q" if pointee.endswith("*") or pointee in _POINTERS else _FORMATS[pointee]


@dataclass(frozen=True, slots=True)
class Symbol:
    """One exported function."""

    name: str
    returns: str
    args: tuple[Arg, ...]
    undo: str | None = None
    handwritten: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


def kind_of(ctype: str) -> Kind:
    """How an argument of type `ctype` crosses into Python.

    Raises
    ------
    ValueError
        Unknown type: add it to one of the sets of this module.
    """
    bare = ctype.replace("const ", "").strip()
    if bare.endswith("*") or bare in _POINTERS:
        return "pointer"
    if bare in _SIGNED or bare in _ENUMS:
        return "signed"
    if bare in _UNSIGNED:
        return "unsigned"
    if bare == "dim3":
        return "dim3"
    raise ValueError(f"unknown C type {ctype!r}: add it to hipfile_sim/native/symbols.py")


_LINE = re.compile(r"^(?P<ret>[\w ]+?\s\**)(?P<name>\w+)\((?P<args>.*?)\)(?P<tail>[^)]*)$")
_ARG = re.compile(r"^(?:(?P<role>out|opt)\s+)?(?P<type>.+?[\s*])(?P<name>\w+)(?:\s*=\s*(?P<default>\w+))?$")


def parse(line: str) -> Symbol:
    """Take one table line apart.

    Raises
    ------
    ValueError
        The line is not a prototype, or names a type that is not known.
    """
    found = _LINE.match(line.strip())
    if found is None:
        raise ValueError(f"not a prototype: {line!r}")
    args = []
    text = found["args"].strip()
    for part in [] if text in ("", "void") else text.split(","):
        arg = _ARG.match(part.strip())
        if arg is None:
            raise ValueError(f"not an argument: {part!r} in {line!r}")
        ctype = arg["type"].strip()
        role: Role = "out" if arg["role"] == "out" else "opt" if arg["role"] == "opt" else "in"
        args.append(Arg(ctype, arg["name"], kind_of(ctype), role, arg["default"]))
    tail = dict(word.split("=", 1) for word in found["tail"].split())
    return Symbol(
        name=found["name"],
        returns=found["ret"].strip(),
        args=tuple(args),
        undo=tail.pop("undo", None),
        handwritten=tail.pop("in", None) == "C",
        attributes=tail,
    )


def parse_table(text: str) -> tuple[Symbol, ...]:
    """Every line of a table; an indented line goes on with the one before; blank and ``#`` lines are for the reader."""
    lines = (line.strip() for line in text.replace("\n    ", " ").splitlines())
    return tuple(parse(line) for line in lines if line and not line.startswith("#"))
