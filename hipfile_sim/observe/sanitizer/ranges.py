"""A set of byte ranges with a tag each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Generic, TypeVar

T = TypeVar("T")


class Ranges(Generic[T]):
    """Disjoint ranges ``[start, end)``, in order.

    Examples
    --------
    >>> ranges = Ranges[str]()
    >>> ranges.add(0, 100, "fresh")
    >>> ranges.remove(40, 60)
    >>> ranges.overlap(30, 70)
    [(30, 40, 'fresh'), (60, 70, 'fresh')]
    """

    __slots__ = ("_ends", "_starts", "_tags")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._tags: list[T] = []

    def _span(self, start: int, end: int) -> tuple[int, int]:
        return bisect_right(self._ends, start), bisect_left(self._starts, end)

    def overlap(self, start: int, end: int) -> list[tuple[int, int, T]]:
        """The parts that lie in ``[start, end)``."""
        low, high = self._span(start, end)
        return [(max(self._starts[i], start), min(self._ends[i], end), self._tags[i]) for i in range(low, high)]

    def remove(self, start: int, end: int) -> None:
        """Take ``[start, end)`` out."""
        low, high = self._span(start, end)
        if low >= high:
            return
        kept: list[tuple[int, int, T]] = []
        if self._starts[low] < start:
            kept.append((self._starts[low], start, self._tags[low]))
        if self._ends[high - 1] > end:
            kept.append((end, self._ends[high - 1], self._tags[high - 1]))
        self._replace(low, high, kept)

    def add(self, start: int, end: int, tag: T) -> None:
        """Put ``[start, end)`` in, instead of what was there."""
        if end > start:
            self.remove(start, end)
            low = bisect_left(self._starts, start)
            self._replace(low, low, [(start, end, tag)])

    def _replace(self, low: int, high: int, parts: list[tuple[int, int, T]]) -> None:
        self._starts[low:high] = [part[0] for part in parts]
        self._ends[low:high] = [part[1] for part in parts]
        self._tags[low:high] = [part[2] for part in parts]

    def __len__(self) -> int:
        return len(self._starts)
