"""Calls by their C name, and what they made: ``t.hipMalloc(n)`` makes the call on the target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hipfile_conformance.pieces import GONE, MADE
from hipfile_conformance.targets.base import Target

__all__ = ["Calls"]


class Calls:
    """A target behind attribute access; keeps a list of what a real library made, so that it can be given back.

    Parameters
    ----------
    target
        Who answers the calls.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._made: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("hip"):
            raise AttributeError(name)
        call = self.target.call
        keep = MADE.get(name)
        if name in GONE and self._made:

            def take_back(*args: Any) -> Any:
                self._made = [made for made in self._made if made != (name, args[0])]
                return call(name, *args)

            return take_back
        if keep is None or self.has("model"):  # the model is thrown away with all that it holds

            def make(*args: Any) -> Any:
                return call(name, *args)

        else:
            undo, outs = keep

            def make(*args: Any) -> Any:
                result = call(name, *args)
                status = result[0] if outs else result
                if (status[0] if isinstance(status, tuple) else status) == 0:
                    self._made.append((undo, result[1] if outs else args[0]))
                return result

        return make

    def has(self, capability: str) -> bool:
        """Has the target that capability?"""
        return capability in self.target.capabilities

    def give_back(self) -> None:
        """Give back what this test made and did not give back itself, the registrations first."""
        if not self._made:
            return
        self.target.call("hipSetDevice", 0)
        self.target.call("hipDeviceSynchronize")
        for first in ("hipFileBatch", "hipFile", "hip"):  # what uses others goes before them
            for made in reversed(self._made.copy()):
                if made[0].startswith(first):
                    self._made.remove(made)
                    self.target.call(*made)
        self._made.clear()
        self.target.call("hipGetLastError")
