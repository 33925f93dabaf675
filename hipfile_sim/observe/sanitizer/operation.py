"""Asynchronous operations in flight, and their slots."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.command import Lane, Space
from hipfile_sim.observe.sanitizer.findings import Place

if TYPE_CHECKING:
    from hipfile_sim.observe.observer import Call, Site
    from hipfile_sim.observe.sanitizer.hb import Snapshot

SLOT = 8
"""Bytes of a slot."""

LINE = 6
"""Slots are looked up by the 64 bytes that they lie in."""

SLOT_NAMES = ("size", "file_offset", "buffer_offset", "bytes_done")
"""The four slots of an operation, in the order of its arguments."""

FIXED_BITS = (4, 2, 1, 0)
"""The flag of a stream that promises each of them not to change."""


class Operation:
    """One asynchronous hipFile operation, from its submit until the host knows that it is complete.

    Attributes
    ----------
    name, seq : str, int
        The call that submitted it.
    pointer : int
        Its buffer, as the caller gave it.
    slots : tuple of int
        Addresses of size, file offset, buffer offset and result.
    values, bound : tuple of int
        Size, file offset and buffer offset at submit, and as they were when the operation was bound.
    flags : int
        What the stream's registration promises.
    snapshot : Snapshot
        What its submitter knew of others when the call began, and its own clock when the first command was queued.
    lane_id : int
        The stream, for the happens-before core.
    last : int
        Ticket of its latest command.
    open : bool
        The call that submits it has not returned.
    done : bool
        All its commands have run.
    lines : tuple of int
        Where `SlotIndex` has it.
    lost : str
        The id of the finding that says that its slots are not what they were, if any; the rest would follow from it.
    reads : dict
        Who read its result before it was done, by place: actor, clock and deed of the first time.
    """

    __slots__ = (
        "address",
        "bounce",
        "bound",
        "done",
        "file",
        "file_path",
        "file_space",
        "flags",
        "handle",
        "lane",
        "lane_id",
        "last",
        "lines",
        "lost",
        "name",
        "object",
        "open",
        "pointer",
        "reads",
        "registered_buffer",
        "seq",
        "site",
        "slots",
        "snapshot",
        "values",
        "write",
    )

    def __init__(self, call: Call, object: Any, lane: Lane, lane_id: int, ticket: int, snapshot: Snapshot) -> None:
        args = call.args
        self.seq = call.seq
        self.pointer: int = args.get("pointer", 0)
        self.name = call.name
        self.object = object
        self.write = bool(object.write)
        self.site = call.site
        self.handle: int = args.get("handle", 0)
        result = args.get("bytes_read_p") or args.get("bytes_written_p") or args.get("bytes_p", 0)
        self.slots: tuple[int, ...] = (
            args.get("size_p", 0),
            args.get("file_offset_p", 0),
            args.get("buffer_offset_p", 0),
            result,
        )
        self.values: tuple[int, ...] = (object.limit, object.file_offset, object.buffer_offset)
        self.bound = self.values
        self.bounce: int = object.bounce.pointer if object.bounce is not None else -1
        self.flags = int(object.flags)
        self.address: int = object.buffer.base + object.buffer_offset
        self.registered_buffer = bool(object.buffer.registered)
        self.file_path = ""
        self.file = file = object.file
        self.file_space: Space = ("file", file.info.dev, file.info.ino)
        self.lane = lane
        self.lane_id = lane_id
        self.last = ticket
        self.snapshot = snapshot
        self.lines: tuple[int, ...] = ()
        self.open = True
        self.done = False
        self.lost = ""
        self.reads: dict[Site | None, tuple[int, int, Any]] = {}

    def slot_at(self, start: int, end: int) -> int:
        """Index of the slot that overlaps ``[start, end)``, or -1."""
        for index, address in enumerate(self.slots):
            if address < end and start < address + SLOT:
                return index
        return -1

    def fixed(self, index: int) -> bool:
        """Whether the stream's flags promise that this slot does not change."""
        return bool(self.flags & FIXED_BITS[index])

    @property
    def astray(self) -> bool:
        """Whether it touches other bytes than it was asked to, because its slots were not left alone."""
        return bool(self.lost) and self.bound != self.values

    def describe(self) -> str:
        """What it does, for people."""
        size, file_offset, _ = self.values
        way = "to" if self.write else "from"
        return f"{self.name} of {size} bytes {way} {self.file_path or f'handle {self.handle:#x}'} at {file_offset}"

    def place(self) -> Place:
        """Where it was submitted."""
        return Place("submit", f"{self.describe()}, on {self.lane.name}", self.site)


class SlotIndex:
    """Operations by the addresses of their slots, until the host knows that they are complete."""

    __slots__ = ("_table",)

    def __init__(self) -> None:
        self._table: dict[int, list[Operation]] = {}

    def add(self, op: Operation) -> None:
        """Remember `op`."""
        table = self._table
        op.lines = _lines(op)
        for line in op.lines:
            held = table.get(line)
            if held is None:
                table[line] = [op]
            else:
                held.append(op)

    def remove(self, op: Operation) -> None:
        """Forget `op`."""
        table = self._table
        for line in op.lines:
            held = table.get(line)
            if held is not None and op in held:
                held.remove(op)
                if not held:
                    del table[line]

    def hits(self, start: int, end: int) -> list[Operation]:
        """Operations with a slot in ``[start, end)``."""
        first, last = start >> LINE, (end - 1) >> LINE
        table = self._table
        if first == last:
            held = table.get(first)
            return [op for op in held if op.slot_at(start, end) >= 0] if held else []
        if last - first > len(table):
            lines = [line for line in table if first <= line <= last]
        else:
            lines = [line for line in range(first, last + 1) if line in table]
        return list(dict.fromkeys(op for line in lines for op in table[line] if op.slot_at(start, end) >= 0))

    def __len__(self) -> int:
        return len(self._table)


def _lines(op: Operation) -> tuple[int, ...]:
    slots = op.slots
    start = slots[0]
    if slots == (start, start + SLOT, start + 2 * SLOT, start + 3 * SLOT):
        first, last = start >> LINE, (start + 4 * SLOT - 1) >> LINE
        return (first,) if first == last else (first, last)
    return tuple({line for address in slots for line in (address >> LINE, (address + SLOT - 1) >> LINE)})


class LaneState:
    """What is kept for one stream."""

    __slots__ = ("id", "lane", "unknown")

    def __init__(self, lane: Lane, id: int) -> None:
        self.lane = lane
        self.id = id
        self.unknown: deque[Operation] = deque()
        """Operations, in order, that the host does not know to be complete."""
