"""A rule: what it matches, how often it acts, and what came near when it did not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

NEAR = 8
"""Candidates that are kept to explain a rule that never fired."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that a rule may act on.

    Parameters
    ----------
    operation : str
        ``"pread"``, ``"write"``, ``"command"``, ``"hipMalloc"`` …
    path : str or None
        Of the file.
    start, length : int or None
        Bytes in the file.
    stream : int or None
        Handle of the stream, where one is involved.
    device : int or None
        Ordinal.
    kind : str or None
        Of a command; for file operations ``"sync"`` or ``"async"``.
    arguments : sequence
        Of a call.
    """

    operation: str
    path: str | None = None
    start: int | None = None
    length: int | None = None
    stream: int | None = None
    device: int | None = None
    kind: str | None = None
    arguments: Sequence[Any] = ()

    def __str__(self) -> str:
        parts = [self.operation]
        if self.path is not None:
            parts.append(f"on {self.path}")
        if self.start is not None and self.length is not None:
            parts.append(f"bytes {self.start} to {self.start + self.length}")
        if self.stream is not None:
            parts.append(f"stream {self.stream:#x}")
        if self.kind is not None:
            parts.append(f"({self.kind})")
        return " ".join(parts)


_KINDS: tuple[tuple[str, Any, str], ...] = (
    ("nth", int, "a number, from 1"),
    ("times", int, "a number, or None for every match from the nth on"),
    ("path", str, "a glob, such as '*.kv'"),
    ("within", Sequence, "(first byte, one past the last)"),
    ("stream", int, "the handle of a stream, such as torch.cuda.Stream().cuda_stream"),
    ("device", int, "the ordinal of a device"),
    ("kind", str, "'sync' or 'async' for files, the kind of a command"),
    ("probability", int | float, "a number above 0, at most 1"),
    ("seed", int, "a number"),
    ("when", Callable, "a function that gets a Candidate and says whether the rule acts"),
)
"""What the values of a rule must be, and how to say so."""
MATCH = ("nth", "times", "path", "within", "stream", "device", "kind", "when", "probability", "seed", "optional")
"""Keywords by which a rule chooses what it acts on."""


def _is_range(within: Sequence[int]) -> bool:
    return len(within) == 2 and 0 <= within[0] < within[1]


class FaultNotFired(AssertionError):
    """A fault was asked for and never came about, so the test did not test it."""


@dataclass
class Rule:
    """One fault.

    Parameters
    ----------
    operation : str
        Name or glob of what it acts on.
    nth : int
        The first match, from 1, that it acts on.
    times : int or None
        How many matches in a row, None for all from the nth on.
    path : str or None
        Glob on the file's path.
    within : (int, int) or None
        Acts only on transfers that touch these bytes ``[start, end)`` of the file.
    stream, device, kind
        As of `Candidate`.
    when : callable, optional
        A test of your own; gets the `Candidate`.
    probability : float or None
        Chance of each match, drawn with `seed`.
    optional : bool
        It may stay unused.
    """

    operation: str
    nth: int = 1
    times: int | None = 1
    path: str | None = None
    within: tuple[int, int] | None = None
    stream: int | None = None
    device: int | None = None
    kind: str | None = None
    when: Callable[[Candidate], bool] | None = None
    probability: float | None = None
    seed: int = 0
    optional: bool = False
    what: str = "fault"
    act: Callable[..., Any] = field(default=lambda *args: None, repr=False)
    matched: int = field(default=0, init=False)
    fired: int = field(default=0, init=False)
    near: list[tuple[str, str]] = field(default_factory=list, init=False, repr=False)
    _random: random.Random = field(default_factory=random.Random, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, kind, words in _KINDS:
            value = getattr(self, name)
            if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
                raise TypeError(f"{name}={value!r} of a fault on {self.operation!r}: {words}")
        if self.nth < 1:
            raise ValueError(f"nth={self.nth!r}: matches are counted from 1")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times={self.times!r}: at least 1, or None for every match from the nth on")
        if self.probability is not None and not 0 < self.probability <= 1:
            raise ValueError(f"probability={self.probability!r}: above 0, at most 1")
        if self.within is not None and not _is_range(self.within):
            raise ValueError(f"within={self.within!r}: (first byte, one past the last)")
        self._random.seed(self.seed)

    def considers(self, operation: str) -> bool:
        """Whether it is about such operations at all."""
        return fnmatchcase(operation, self.operation)

    def takes(self, candidate: Candidate, free: bool = True) -> bool:
        """Whether it acts on `candidate`; counts the match, and notes why not. `free`: no other rule acts on it."""
        reason = self._mismatch(candidate)
        if reason is None:
            self.matched += 1
            if self.matched < self.nth:
                reason = f"it is match {self.matched}, the rule acts from match {self.nth} on"
            elif self.times is not None and self.matched >= self.nth + self.times:
                return False
            elif self.probability is not None and self._random.random() >= self.probability:
                reason = f"the draw went against it (probability {self.probability}, seed {self.seed})"
            elif not free:
                reason = "another rule acts on it"
        if reason is None:
            self.fired += 1
            return True
        if not self.fired and len(self.near) < NEAR:
            self.near.append((str(candidate), reason))
        return False

    def _mismatch(self, candidate: Candidate) -> str | None:
        if self.path is not None and not fnmatchcase(candidate.path or "", self.path):
            return f"its path does not match {self.path!r}"
        for name in ("stream", "device", "kind"):
            wanted, found = getattr(self, name), getattr(candidate, name)
            if wanted is not None and wanted != found:
                return f"its {name} is {found!r}, not {wanted!r}"
        if self.within is not None:
            start, length = candidate.start, candidate.length
            if start is None or length is None or not (start < self.within[1] and self.within[0] < start + length):
                return f"it does not touch bytes {self.within[0]} to {self.within[1]}"
        if self.when is not None and not self.when(candidate):
            return "the rule's own test says no"
        return None

    def check(self) -> None:
        """Raise `FaultNotFired` when it should have fired and has not."""
        if self.fired or self.optional:
            return
        lines = [f"{self} never fired"]
        if self.near:
            lines += ["what came near, and why not:"] + [f"  {what}: {why}" for what, why in self.near]
        else:
            lines.append(f"there was no {self.operation} at all; pass optional=True if that is fine")
        raise FaultNotFired("\n".join(lines))

    def attach(self, machine: Any) -> None:
        """Begin to act on `machine`."""
        from hipfile_mock.faults.injector import Injector

        self._injector = Injector.of(machine)
        self._injector.add(self)

    def detach(self) -> None:
        """Stop acting.

        Raises
        ------
        FaultNotFired
            It never fired.
        """
        self._injector.remove(self)
        self.check()

    def __str__(self) -> str:
        parts = [f"nth={self.nth}"] if self.nth > 1 else []
        for name in ("times", "path", "within", "stream", "device", "kind", "probability"):
            value = getattr(self, name)
            if value is not None and (name, value) != ("times", 1):
                parts.append(f"{name}={value!r}")
        return f"<fault: {', '.join([f'{self.what} on {self.operation}', *parts])}>"

    __repr__ = __str__
