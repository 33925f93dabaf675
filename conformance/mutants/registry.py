"""Broken models: how one is written and found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

__all__ = ["BrokenPatch", "Mutant", "all_mutants", "changed", "mutant"]

Patch = Callable[[], AbstractContextManager[None]]
_ABSENT = object()


class BrokenPatch(Exception):
    """A broken model that breaks nothing: what it would change is not there, or is so already."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken model.

    Attributes
    ----------
    name : str
        ``family.function``.
    text : str
        What is broken, one line.
    patch : callable
        A context manager that breaks the classes of the model and mends them again.
    release : str
        Profile in which it is looked for.
    """

    name: str
    text: str
    patch: Patch
    release: str


_found: dict[str, Mutant] = {}


def mutant(text: str, release: str = "0.5") -> Callable[[Callable[[], Iterator[None]]], Patch]:
    """Enter a generator function that patches, yields once, and is undone by :func:`changed`."""

    def enter(function: Callable[[], Iterator[None]]) -> Patch:
        patch = contextmanager(function)
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        _found[name] = Mutant(name, text, patch, release)
        return patch

    return enter


@contextmanager
def changed(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Set attributes (owner, name, value) and set them back.

    Raises
    ------
    BrokenPatch
        An owner has no such attribute, not even from a base, or it has that value already.
    """
    before = []
    for owner, name, value in changes:
        now = getattr(owner, name, _ABSENT)
        if now is _ABSENT:
            raise BrokenPatch(f"{owner!r} has no {name!r}: the model has changed since the patch was written")
        if now is value:
            raise BrokenPatch(f"{name!r} of {owner!r} is {value!r} already")
        before.append((owner, name, owner.__dict__.get(name, _ABSENT)))
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


@cache
def all_mutants() -> tuple[Mutant, ...]:
    """Every mutant, family by family."""
    package = import_module("hipfile_conformance.mutants")
    for module in sorted(info.name for info in iter_modules(package.__path__)):
        if module not in ("registry", "runner"):
            import_module(f"hipfile_conformance.mutants.{module}")
    return tuple(_found.values())
