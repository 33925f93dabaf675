"""Shadow memory: who touched which bytes last, by byte range, in any number of spaces.

One cell stands for a range of bytes with the same history: the latest write, the reads since, and what is older but not
ordered before that write. Cells of a space do not overlap and are kept in order. Everything is an integer but `info`,
which is handed back as it came.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

I = TypeVar("I")  # noqa: E741 - what a caller attaches to an access


TILES = 4
"""Cells that a write over all of them leaves apart: they are likely to be touched one by one again."""


class Conflict(NamedTuple, Generic[I]):
    """An earlier access that is not ordered before the new one."""

    info: I
    write: bool
    start: int
    end: int


class _Cell(Generic[I]):
    __slots__ = ("end", "raced", "reads", "start", "w_actor", "w_clock", "w_info")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.w_actor = -1
        self.w_clock = -1
        self.w_info: I | None = None
        self.raced = False
        """`reads` may hold writes."""
        self.reads: dict[int, tuple[int, I]] | None = None
        """Reads by actor; a write that raced with a later one under the complement of its actor."""

    def cut(self, at: int) -> _Cell[I]:
        """Keep the part below `at`, return the rest."""
        rest: _Cell[I] = _Cell(at, self.end)
        self.end = at
        rest.w_actor, rest.w_clock, rest.w_info = self.w_actor, self.w_clock, self.w_info
        rest.reads = dict(self.reads) if self.reads else None
        rest.raced = self.raced
        return rest


class _Space(Generic[I]):
    __slots__ = ("cells", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.cells: list[_Cell[I]] = []

    def cut(self, at: int) -> None:
        """Make `at` a border between cells, if it lies inside one."""
        index = bisect_left(self.starts, at) - 1
        if index >= 0 and self.cells[index].end > at:
            self.starts.insert(index + 1, at)
            self.cells.insert(index + 1, self.cells[index].cut(at))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Indexes of the cells that overlap ``[start, end)``."""
        low = bisect_right(self.starts, start) - 1
        if low < 0 or self.cells[low].end <= start:
            low += 1
        return low, bisect_left(self.starts, end)


class Shadow(Generic[I]):
    """The latest accesses of every byte.

    Examples
    --------
    >>> shadow = Shadow[str]()
    >>> shadow.access("mem", 0, 16, True, actor=0, clock=1, known={}, me=0, info="first")
    []
    >>> shadow.access("mem", 8, 32, False, actor=1, clock=1, known={}, me=1, info="second")
    [Conflict(info='first', write=True, start=8, end=16)]
    >>> shadow.access("mem", 8, 32, False, actor=1, clock=2, known={0: 1}, me=1, info="third")
    []
    """

    __slots__ = ("_spaces",)

    def __init__(self) -> None:
        self._spaces: dict[Hashable, _Space[I]] = {}

    def access(
        self,
        space: Hashable,
        start: int,
        end: int,
        write: bool,
        actor: int,
        clock: int,
        known: Mapping[int, int],
        me: int,
        info: I,
    ) -> list[Conflict[I]]:
        """Record an access and return the earlier ones that it may race with.

        Parameters
        ----------
        space : hashable
            Spaces are independent of one another.
        start, end : int
            Bytes ``[start, end)``.
        write : bool
            Whether it writes.
        actor, clock : int
            Its epoch.
        known : mapping
            Clocks of other actors that are ordered before it.
        me : int
            The actor whose earlier accesses are ordered before it whatever their clock; -1 for none.
        info : object
            Handed back in later conflicts.

        Returns
        -------
        list of Conflict
            Without two in a row that say the same.
        """
        if end <= start:
            return []
        held = self._spaces.get(space)
        if held is None:
            held = self._spaces[space] = _Space()
        starts, cells = held.starts, held.cells
        index = bisect_right(starts, start) - 1
        found: list[Conflict[I]] = []
        if index >= 0 and cells[index].start == start and cells[index].end == end:
            cell = cells[index]
            writer = cell.w_actor
            if (cell.reads and (write or cell.raced)) or (
                writer != me and writer >= 0 and known.get(writer, -1) < cell.w_clock
            ):
                _check(cell, write, known, me, found)
            if write:
                cell.reads = _unordered(cell, known, me) if found else None
                cell.w_actor, cell.w_clock, cell.w_info = actor, clock, info
            elif cell.reads is None:
                cell.reads = {actor: (clock, info)}
            else:
                cell.reads[actor] = (clock, info)
            return found
        if write and index >= 0 and (tiles := _tiles(cells, index, start, end)):
            for cell in tiles:
                _check(cell, True, known, me, found)
                cell.reads = _unordered(cell, known, me) if found else None
                cell.w_actor, cell.w_clock, cell.w_info = actor, clock, info
            return found
        held.cut(start)
        held.cut(end)
        low, high = held.span(start, end)
        for cell in cells[low:high]:
            _check(cell, write, known, me, found)
        if write and not found:
            fresh: _Cell[I] = _Cell(start, end)
            fresh.w_actor, fresh.w_clock, fresh.w_info = actor, clock, info
            starts[low:high] = [start]
            cells[low:high] = [fresh]
            return found
        covered: list[_Cell[I]] = []
        at = start
        for cell in cells[low:high]:
            if cell.start > at:
                covered.append(_Cell(at, cell.start))
            covered.append(cell)
            at = cell.end
        if at < end:
            covered.append(_Cell(at, end))
        for cell in covered:
            if write:
                cell.reads = _unordered(cell, known, me)
                cell.w_actor, cell.w_clock, cell.w_info = actor, clock, info
            elif cell.reads is None:
                cell.reads = {actor: (clock, info)}
            else:
                cell.reads[actor] = (clock, info)
        if len(covered) != high - low:
            starts[low:high] = [cell.start for cell in covered]
            cells[low:high] = covered
        return found

    def touched(self, space: Hashable, start: int, end: int) -> Iterator[tuple[int, int, I, bool]]:
        """Epoch and info of the latest write (True) and of the reads since, for each part of ``[start, end)``."""
        held = self._spaces.get(space)
        if held is not None:
            low, high = held.span(start, end)
            for cell in held.cells[low:high]:
                if cell.w_info is not None:
                    yield cell.w_actor, cell.w_clock, cell.w_info, True
                for key, (clock, info) in (cell.reads or {}).items():
                    yield (key, clock, info, False) if key >= 0 else (~key, clock, info, True)

    def forget(self, space: Hashable, start: int, end: int) -> None:
        """Those bytes begin a new life."""
        held = self._spaces.get(space)
        if held is not None and end > start:
            held.cut(start)
            held.cut(end)
            low, high = held.span(start, end)
            del held.starts[low:high], held.cells[low:high]

    def prune(self, floor: Mapping[int, int]) -> None:
        """Drop every access whose epoch is at or below ``floor[actor]``."""
        for space, held in list(self._spaces.items()):
            keep: list[_Cell[I]] = []
            for cell in held.cells:
                if cell.w_clock <= floor.get(cell.w_actor, -1):
                    cell.w_actor, cell.w_clock, cell.w_info = -1, -1, None
                reads = cell.reads
                if reads:
                    reads = {key: entry for key, entry in reads.items() if entry[0] > floor.get(max(key, ~key), -1)}
                    cell.reads = reads or None
                if cell.reads or cell.w_info is not None:
                    keep.append(cell)
            if keep:
                held.cells[:] = keep
                held.starts[:] = [cell.start for cell in keep]
            else:
                del self._spaces[space]

    def __len__(self) -> int:
        """Cells held."""
        return sum(len(held.cells) for held in self._spaces.values())


def _tiles(cells: list[_Cell[I]], low: int, start: int, end: int) -> list[_Cell[I]] | None:
    """The few cells from `low` on that cover ``[start, end)`` exactly, without a gap."""
    tiles = cells[low : low + TILES]
    at = start
    for count, cell in enumerate(tiles, 1):
        if cell.start != at:
            return None
        at = cell.end
        if at >= end:
            return tiles[:count] if at == end else None
    return None


def _check(cell: _Cell[I], write: bool, known: Mapping[int, int], me: int, found: list[Conflict[I]]) -> None:
    actor = cell.w_actor
    if actor >= 0 and actor != me and known.get(actor, -1) < cell.w_clock:
        assert cell.w_info is not None
        _add(found, cell.w_info, True, cell)
    if cell.reads:
        for key, (clock, info) in cell.reads.items():
            actor = max(key, ~key)
            if (write or key < 0) and actor != me and known.get(actor, -1) < clock:
                _add(found, info, key < 0, cell)


def _unordered(cell: _Cell[I], known: Mapping[int, int], me: int) -> dict[int, tuple[int, I]] | None:
    """What a racing write leaves behind: it may race with the next one, too."""
    kept: dict[int, tuple[int, I]] = {}
    for key, entry in (cell.reads or {}).items():
        actor = max(key, ~key)
        if actor != me and known.get(actor, -1) < entry[0]:
            kept[key] = entry
    writer = cell.w_actor
    if writer >= 0 and writer != me and known.get(writer, -1) < cell.w_clock:
        assert cell.w_info is not None
        kept[~writer] = (cell.w_clock, cell.w_info)
        cell.raced = True
    return kept or None


def _add(found: list[Conflict[I]], info: I, write: bool, cell: _Cell[I]) -> None:
    if found:
        last = found[-1]
        if last.info is info and last.write == write and last.end == cell.start:
            found[-1] = Conflict(info, write, last.start, cell.end)
            return
    found.append(Conflict(info, write, cell.start, cell.end))
