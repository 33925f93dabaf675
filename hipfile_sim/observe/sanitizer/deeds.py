"""Who did what: the records behind a finding, and the names of things."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.command import MEM, Lane, Space
from hipfile_sim.observe.sanitizer.findings import Place

if TYPE_CHECKING:
    from hipfile_sim.hip.memory import Block
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


class Deed:
    """One command, or one deed of host code, that touched bytes.

    Attributes
    ----------
    lane : Lane or None
        The stream; None for host code.
    kind, label : str
        As of the command; for host code, ``"host"`` and what it did.
    site : Site or None
        Where it was submitted or, for host code, done.
    op : Operation or None
        The hipFile operation that the command belongs to.
    flagged : bool
        It is part of a finding already.
    """

    __slots__ = ("flagged", "kind", "label", "lane", "op", "site", "ticket")

    def __init__(
        self, lane: Lane | None, ticket: int, kind: str, label: str | None, site: Site | None, op: Operation | None
    ) -> None:
        self.lane = lane
        self.ticket = ticket
        self.kind = kind
        self.label = label
        self.site = site
        self.op = op
        self.flagged = False

    @property
    def is_host(self) -> bool:
        """Whether host code did it (a host function on a stream counts as a command)."""
        return self.lane is None

    def __str__(self) -> str:
        if self.lane is None:
            return f"host code{': ' + self.label if self.label else ''}"
        if self.op is not None:
            return f"{self.op.name} on {self.lane.name}"
        name = {"host": "host function", "set": "memset"}.get(self.kind, self.kind)
        return f"{name}{' ' + self.label if self.label else ''} on {self.lane.name}"

    def place(self, role: str, detail: str = "") -> Place:
        """This end of a finding."""
        return Place(role, str(self), self.site, detail)


class Clash:
    """Two deeds that touch the same bytes, at least one writes, and nothing orders them. `later` was seen later."""

    __slots__ = ("earlier", "earlier_write", "end", "later", "later_write", "space", "start")

    def __init__(
        self,
        earlier: Deed,
        earlier_write: bool,
        later: Deed,
        later_write: bool,
        space: Space,
        start: int,
        end: int,
    ) -> None:
        self.earlier = earlier
        self.earlier_write = earlier_write
        self.later = later
        self.later_write = later_write
        self.space = space
        self.start = start
        self.end = end


class Operation:
    """One asynchronous hipFile operation, from its submit until the host knows that it is complete.

    Attributes
    ----------
    name : str
        The call that submitted it.
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
    lost : str
        The id of the finding that says that its slots are not what they were, if any; the rest would follow from it.
    """

    __slots__ = (
        "address",
        "bound",
        "call",
        "done",
        "file_path",
        "file_space",
        "flags",
        "handle",
        "lane",
        "lane_id",
        "last",
        "lost",
        "name",
        "object",
        "open",
        "registered_buffer",
        "site",
        "slots",
        "snapshot",
        "values",
        "write",
    )

    def __init__(self, call: Call, object: Any, lane: Lane, lane_id: int, ticket: int, snapshot: Snapshot) -> None:
        args = call.args
        self.call = call
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
        self.flags = int(object.flags)
        self.address: int = object.buffer.base + object.buffer_offset
        self.registered_buffer = bool(object.buffer.registered)
        self.file_path = ""
        file = object.file
        self.file_space: Space = ("file", file.info.dev, file.info.ino)
        self.lane = lane
        self.lane_id = lane_id
        self.last = ticket
        self.snapshot = snapshot
        self.open = True
        self.done = False
        self.lost = ""

    def slot_at(self, start: int, end: int) -> int:
        """Index of the slot that overlaps ``[start, end)``, or -1."""
        for index, address in enumerate(self.slots):
            if address < end and start < address + SLOT:
                return index
        return -1

    def fixed(self, index: int) -> bool:
        """Whether the stream's flags promise that this slot does not change."""
        return bool(self.flags & FIXED_BITS[index])

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
        for line in _lines(op):
            held = table.get(line)
            if held is None:
                table[line] = [op]
            else:
                held.append(op)

    def remove(self, op: Operation) -> None:
        """Forget `op`."""
        table = self._table
        for line in _lines(op):
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


def _lines(op: Operation) -> set[int]:
    slots = op.slots
    if max(slots) - min(slots) == 3 * SLOT:
        return {min(slots) >> LINE, (min(slots) + 4 * SLOT - 1) >> LINE}
    return {line for address in slots for line in (address >> LINE, (address + SLOT - 1) >> LINE)}


class LaneState:
    """What is kept for one stream."""

    __slots__ = ("id", "lane", "unknown")

    def __init__(self, lane: Lane, id: int) -> None:
        self.lane = lane
        self.id = id
        self.unknown: deque[Operation] = deque()
        """Operations, in order, that the host does not know to be complete."""


class Names:
    """Blocks of memory and files, by address and number."""

    __slots__ = ("_bases", "_blocks", "_device_end", "_device_start", "files", "internal")

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._blocks: dict[int, Block] = {}
        self._device_start = self._device_end = 0
        self.files: dict[Space, str] = {}
        """Names of files."""
        self.internal: set[int] = set()
        """Bases of blocks that the library allocated for itself."""

    def add(self, block: Block, internal: bool) -> None:
        """A block came into being."""
        if block.base not in self._blocks:
            insort(self._bases, block.base)
        self._blocks[block.base] = block
        if block.kind == "device":
            self._device_start = min(self._device_start or block.base, block.base)
            self._device_end = max(self._device_end, block.base + block.size)
        if internal:
            self.internal.add(block.base)
        else:
            self.internal.discard(block.base)

    def remove(self, block: Block) -> None:
        """A block is gone."""
        if self._blocks.pop(block.base, None) is not None:
            self._bases.remove(block.base)
            self.internal.discard(block.base)

    def find(self, address: int) -> Block | None:
        """The live block that contains `address`."""
        index = bisect_right(self._bases, address) - 1
        if index >= 0:
            block = self._blocks[self._bases[index]]
            if address < block.base + block.size:
                return block
        return None

    def find_device(self, address: int) -> Block | None:
        """The live block of device memory that contains `address`; quick where there is none near."""
        if not self._device_start <= address < self._device_end:
            return None
        block = self.find(address)
        return block if block is not None and block.kind == "device" else None

    def live(self) -> list[Block]:
        """Blocks that the program allocated and has not freed."""
        return [self._blocks[base] for base in self._bases if base not in self.internal]

    def name_file(self, op: Operation) -> None:
        """Learn the name of the file of `op`, and tell it."""
        name = self.files.get(op.file_space)
        if name is None:
            fd = op.object.file.client_fd
            try:
                name = op.object.driver.files.path(fd)
            except OSError:
                pass
            name = self.files[op.file_space] = name or f"descriptor {fd}"
        op.file_path = name

    def file(self, space: Space) -> str:
        """The name of a file."""
        return self.files.get(space) or f"file {space[1]}:{space[2]}"

    def describe(self, space: Space, start: int, end: int) -> str:
        """A range of bytes, for people."""
        if space != MEM:
            return f"bytes {start} to {end} of {self.file(space)}"
        block = self.find(start)
        if block is None:
            return f"{end - start} bytes of host memory at {start:#x}"
        where = f", allocated at {block.site}" if block.site else ""
        low, high = start - block.base, end - block.base
        return f"bytes {low} to {high} of {block.kind} block {block.id} ({block.size} bytes{where})"
