"""What a step of a run touches, under names that mean the same in every run."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from hipfile_sim.engine.command import LIBRARY, MEM, Access, Space

if TYPE_CHECKING:
    from hipfile_sim.hip.memory import Block, Memory

Done: TypeAlias = tuple[int, int]
"""(lane, ticket): the end of that lane's ticket-th command."""


class Footprint:
    """What a transition touches, as far as order matters.

    Attributes
    ----------
    accesses : tuple of Access
        Byte ranges, named by `Places`.
    visible : bool
        It touches memory or files that host code can see.
    arbitrary : bool
        It runs user code on the host, which may look at anything that is visible.
    asked : frozenset of (lane, ticket)
        The host looked whether these are complete.
    asks_all : bool
        The host looked at the progress of everything, or changed what may run. Also said of what is not known.
    ends : (lane, ticket) or None
        The command that it completes.
    """

    __slots__ = ("accesses", "arbitrary", "asked", "asks_all", "ends", "visible")

    def __init__(
        self,
        accesses: Sequence[Access] = (),
        *,
        visible: bool = False,
        arbitrary: bool = False,
        asked: Iterable[Done] = (),
        asks_all: bool = False,
        ends: Done | None = None,
    ) -> None:
        self.accesses = tuple(accesses)
        self.visible = visible
        self.arbitrary = arbitrary
        self.asked = frozenset(asked)
        self.asks_all = asks_all
        self.ends = ends

    def depends(self, other: Footprint) -> bool:
        """Whether the order of the two can matter. Transitions of one process always depend; that is not asked here."""
        if self.asks_all or other.asks_all:
            return True
        if self.arbitrary and (other.visible or other.arbitrary):
            return True
        if other.arbitrary and self.visible:
            return True
        if (self.asked and other.ends in self.asked) or (other.asked and self.ends in other.asked):
            return True
        for mine in self.accesses:
            for theirs in other.accesses:
                if mine.conflicts(theirs):
                    return True
        return False

    def joined(self, other: Footprint) -> Footprint:
        """Of two steps that nothing comes between."""
        return Footprint(
            (*self.accesses, *other.accesses),
            visible=self.visible or other.visible,
            arbitrary=self.arbitrary or other.arbitrary,
            asked=self.asked | other.asked,
            asks_all=self.asks_all or other.asks_all,
            ends=self.ends or other.ends,
        )

    def save(self) -> list[Any]:
        """As JSON types."""
        accesses = [[access.space, access.start, access.length, access.write] for access in self.accesses]
        return [accesses, self.visible, self.arbitrary, sorted(self.asked), self.asks_all, self.ends]

    @classmethod
    def load(cls, saved: Sequence[Any]) -> Footprint:
        """From `save`."""
        accesses, visible, arbitrary, asked, asks_all, ends = saved
        return cls(
            [Access(tuple(space), start, length, write) for space, start, length, write in accesses],
            visible=visible,
            arbitrary=arbitrary,
            asked=[(lane, ticket) for lane, ticket in asked],
            asks_all=asks_all,
            ends=None if ends is None else (ends[0], ends[1]),
        )


UNKNOWN = Footprint(asks_all=True)
"""Of a step that may do anything."""
HOST_THREAD = ("host-thread", 0, 0)
"""Space that stands for the one thread of all host functions."""
LIBRARY_STATE = ("library", 0, 0)
"""Space that stands for what a library keeps for itself (`LIBRARY`)."""


class Guard:
    """A range that host code reaches by announced accesses alone, while it is `live`."""

    __slots__ = ("end", "live", "number", "start")

    def __init__(self, start: int, end: int, number: int) -> None:
        self.start = start
        self.end = end
        self.number = number
        self.live = True


def _start(guard: Guard) -> int:
    return guard.start


class Places:
    """Names for byte ranges that mean the same in every run of a program, although addresses and inodes differ.

    Memory of the machine is named by the number of its allocation, everything else by the order in which it first
    appears.
    """

    def __init__(self) -> None:
        self.memory: Memory | None = None
        self._guards: list[Guard] = []
        self._guard_count = 0
        self._ranges: list[tuple[int, int]] = []
        self._files: dict[Space, int] = {}

    def name(self, access: Access) -> Access:
        """The access with a name in place of its space, and its start relative to that."""
        space, start, length, write = access
        if space == LIBRARY:
            return Access(LIBRARY_STATE, start, length, write)
        if space != MEM:
            return Access(("file", 0, self._files.setdefault(space, len(self._files))), start, length, write)
        block = self._block(start)
        if block is not None:
            return Access(("block", 0, block.id), start - block.base, length, write)
        guard = self._guard(start, length)
        if guard is not None:
            return Access(("guarded", 0, guard.number), start - guard.start, length, write)
        for number, (first, end) in enumerate(self._ranges):
            if start < end and first < start + length:
                return Access(("host", 0, number), start - first, length, write)
        self._ranges.append((start, start + length))
        return Access(("host", 0, len(self._ranges) - 1), 0, length, write)

    def visible(self, access: Access) -> bool:
        """Whether host code can see the range without a word.

        That is all but device memory, the buffers that a library keeps to itself, and what is guarded.
        """
        memory = self.memory
        if access.space != MEM or memory is None:
            return True
        block = self._block(access.start)
        if block is None:
            guard = self._guard(access.start, access.length)
            return guard is None or not guard.live
        if block.kind == "device":
            return memory.settings.host_visible
        return block.base not in memory.internal

    def guard(self, start: int, length: int) -> None:
        """From now on host code reaches these bytes by announced accesses alone."""
        guards = self._guards
        index = bisect_left(guards, start, key=_start)
        if index < len(guards) and guards[index].start == start:
            if guards[index].live:
                return
            del guards[index]  # its memory has come back
        self._guard_count += 1
        guards.insert(index, Guard(start, start + length, self._guard_count))

    def unguard(self, start: int) -> None:
        """Anything may reach them again. They keep their name: a late result may still be on its way."""
        guards = self._guards
        index = bisect_left(guards, start, key=_start)
        if index < len(guards) and guards[index].start == start:
            guards[index].live = False

    def _guard(self, start: int, length: int) -> Guard | None:
        index = bisect_right(self._guards, start, key=_start) - 1
        if index < 0 or start + length > self._guards[index].end:
            return None
        return self._guards[index]

    def _block(self, address: int) -> Block | None:
        memory = self.memory
        if memory is None:
            return None
        return memory.find(address) or memory.find_freed(address)
