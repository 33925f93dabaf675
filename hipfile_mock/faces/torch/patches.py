"""Changes to other people's modules and classes that are taken back exactly."""

from __future__ import annotations

from typing import Any

__all__ = ["Patches"]

_MISSING = object()


class Patches:
    """A list of attributes that were set, with what was there before.

    Examples
    --------
    >>> import types
    >>> module = types.ModuleType("m")
    >>> module.kept = 1
    >>> patches = Patches()
    >>> patches.set(module, "kept", 2)
    >>> patches.set(module, "fresh", 3)
    >>> patches.undo()
    >>> module.kept, hasattr(module, "fresh")
    (1, False)
    """

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a module or class."""
        self._before.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back, the last change first. Attributes that were not there are removed."""
        while self._before:
            owner, name, value = self._before.pop()
            if value is _MISSING:
                if name in vars(owner):
                    delattr(owner, name)
            else:
                setattr(owner, name, value)
