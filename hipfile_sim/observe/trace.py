"""The trace: what the host called, what the streams did, which slots were touched; small typed events in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hipfile_sim.observe.observer import Observer, current_thread

if TYPE_CHECKING:
    from hipfile_sim.engine.command import Access, Command, Lane
    from hipfile_sim.hip.memory import Block
    from hipfile_sim.observe.observer import Call, HostAccess, Note, Site, Wait


@dataclass(slots=True, eq=False)
class CallEvent:
    """A call by the host. ``start`` and ``end`` are virtual ns; ``end`` is -1 while the call has not returned.

    ``parent`` is the call that made this one: hipFile calls HIP.
    """

    order: int
    seq: int
    api: str
    name: str
    args: Mapping[str, Any]
    thread: int
    site: Site | None
    start: int
    end: int = -1
    result: Any = None
    parent: CallEvent | None = None

    @property
    def outermost(self) -> CallEvent:
        """The call that the program itself made."""
        return self if self.parent is None else self.parent.outermost


@dataclass(slots=True, eq=False)
class SlotEvent:
    """A command or the host read or wrote one of the four slots of an asynchronous operation.

    Attributes
    ----------
    name : str
        The parameter: ``size``, ``file_offset``, ``buffer_offset`` or ``bytes_done``.
    operation : int
        ``seq`` of the call that handed the slot over last.
    thread : int
        Host thread that did it; 0 for a command.
    call : CallEvent or None
        The call inside which the host did it, if it was inside one.
    """

    order: int
    name: str
    operation: int
    address: int
    write: bool
    time: int
    what: str
    thread: int = 0
    call: CallEvent | None = None


@dataclass(slots=True, eq=False)
class CommandEvent:
    """A command of a stream. Times are virtual ns, -1 for what has not happened yet.

    Attributes
    ----------
    thread : int
        Host thread that submitted it.
    call : CallEvent or None
        The call that submitted it.
    accesses : sequence of Access
        What it touched, once it has finished.
    slots : list of SlotEvent
        Those of its accesses that are slots.
    """

    order: int
    lane: Lane
    ticket: int
    kind: str
    label: str
    deps: Sequence[tuple[int, int]]
    site: Site | None
    thread: int
    call: CallEvent | None
    submitted: int
    started: int = -1
    finished: int = -1
    start_order: int = -1
    finish_order: int = -1
    accesses: Sequence[Access] = ()
    slots: list[SlotEvent] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes written to memory or files, slots not counted."""
        slots = {slot.address for slot in self.slots}
        return sum(a.length for a in self.accesses if a.write and not (a.space == "mem" and a.start in slots))


@dataclass(slots=True, eq=False)
class WaitEvent:
    """The host learnt that commands are complete: ``targets`` are (lane index, ticket)."""

    order: int
    what: str
    thread: int
    call: CallEvent | None
    targets: Sequence[tuple[int, int]]
    time: int


@dataclass(slots=True, eq=False)
class NoteEvent:
    """A remark of the model."""

    order: int
    note: Note
    thread: int
    time: int


#: Parameters of the asynchronous calls that are slots, and what people call them.
SLOT_PARAMETERS = {
    "size_p": "size",
    "file_offset_p": "file_offset",
    "buffer_offset_p": "buffer_offset",
    "bytes_p": "bytes_done",
    "bytes_read_p": "bytes_done",
    "bytes_written_p": "bytes_done",
}


class Trace(Observer):
    """Records what a machine does. Give it to `Machine(observers=[trace])`; it changes nothing.

    Parameters
    ----------
    limit : int or None
        Keep only the newest `limit` events of each kind. None keeps all.

    Examples
    --------
    >>> from hipfile_sim.observe.trace import Trace
    >>> trace = Trace(limit=100)
    >>> len(trace.commands), len(trace.calls)
    (0, 0)
    """

    def __init__(self, limit: int | None = None) -> None:
        self.calls: deque[CallEvent] = deque(maxlen=limit)
        self.commands: deque[CommandEvent] = deque(maxlen=limit)
        self.slots: deque[SlotEvent] = deque(maxlen=limit)
        self.waits: deque[WaitEvent] = deque(maxlen=limit)
        self.notes: deque[NoteEvent] = deque(maxlen=limit)
        self.lanes: dict[int, Lane] = {}
        self.now = 0
        self._order = 0
        self._open: dict[int, list[CallEvent]] = {}
        self._pending: dict[tuple[int, int], CommandEvent] = {}
        self._slots: dict[int, tuple[str, int]] = {}
        self._bases: list[int] = []
        self._blocks: dict[int, tuple[str, int]] = {}

    # ------------------------------------------------------------------------------------------------ what it is told

    def call(self, call: Call) -> None:
        event = CallEvent(
            self._next(call.time), call.seq, call.api, call.name, call.args, call.thread, call.site, call.time
        )
        stack = self._open.setdefault(call.thread, [])
        event.parent = stack[-1] if stack else None
        stack.append(event)
        self.calls.append(event)
        for parameter, name in SLOT_PARAMETERS.items():
            address = call.args.get(parameter)
            if isinstance(address, int) and address:
                self._slots[address] = (name, call.seq)

    def returned(self, call: Call) -> None:
        stack = self._open.get(call.thread, [])
        while stack:  # a call that raised never returned: it ends with the one around it
            event = stack.pop()
            event.end = max(call.end_time, event.start)
            if event.seq == call.seq:
                event.result = call.result
                break
        self.now = max(self.now, call.end_time)

    def lane_added(self, lane: Lane) -> None:
        self.lanes[lane.index] = lane

    def submitted(self, command: Command) -> None:
        lane = command.lane
        self.lanes.setdefault(lane.index, lane)
        thread = current_thread()
        event = CommandEvent(
            self._next(command.submit_time),
            lane,
            command.ticket,
            command.kind,
            command.describe(),
            [(other.index, ticket) for other, ticket in command.deps],
            command.site,
            thread,
            self._current_call(thread),
            command.submit_time,
        )
        self.commands.append(event)
        self._pending[lane.index, command.ticket] = event

    def started(self, command: Command) -> None:
        event = self._pending.get((command.lane.index, command.ticket))
        if event is not None:
            event.started = command.start_time
            event.start_order = self._next(command.start_time)

    def finished(self, command: Command) -> None:
        event = self._pending.pop((command.lane.index, command.ticket), None)
        if event is None:
            return
        event.finished = command.finish_time
        event.finish_order = self._next(command.finish_time)
        event.accesses = command.accesses()
        for access in event.accesses:
            slot = self._slot(access, event.finished if access.write else event.started, event.label)
            if slot is not None:
                event.slots.append(slot)

    def waited(self, wait: Wait) -> None:
        targets = [(lane.index, ticket) for lane, ticket in wait.targets]
        call = self._current_call(wait.thread)
        self.waits.append(WaitEvent(self._next(self.now), wait.what, wait.thread, call, targets, self.now))

    def host_access(self, access: HostAccess) -> None:
        slot = self._slot(access.access, self.now, access.what)
        if slot is not None:
            slot.thread, slot.call = access.thread, self._current_call(access.thread)

    def allocated(self, block: Block) -> None:
        if block.base not in self._blocks:
            self._bases.insert(bisect_right(self._bases, block.base), block.base)
        self._blocks[block.base] = (f"{_kind(block)} #{block.id}", block.size)

    def note(self, note: Note) -> None:
        self.notes.append(NoteEvent(self._next(self.now), note, current_thread(), self.now))

    # ---------------------------------------------------------------------------------------------------- what it says

    def place(self, access: Access) -> str:
        """Name the range of an access: block and offset, file, or slot.

        A block keeps its name after it was freed, until its addresses are handed out again.
        """
        if access.space != "mem":
            return f"file {access.space[1]}:{access.space[2]} [{access.start}, {access.start + access.length})"
        if access.start in self._slots:
            name, seq = self._slots[access.start]
            return f"{name} slot of call {seq}"
        index = bisect_right(self._bases, access.start) - 1
        if index >= 0:
            base = self._bases[index]
            name, size = self._blocks[base]
            if access.start < base + size:
                offset = access.start - base
                return f"{name} [{offset}, {offset + access.length})"
        return f"host memory {access.start:#x} [{access.length} bytes]"

    def finished_commands(self) -> list[CommandEvent]:
        """The commands that have run, in the order in which they finished."""
        return sorted((c for c in self.commands if c.finish_order >= 0), key=lambda c: c.finish_order)

    def signature(self) -> list[str]:
        """One line a step without addresses or thread numbers: equal for equal runs."""
        steps = [(c.order, f"call {c.name}") for c in self.calls]
        for c in self.commands:
            where = f"lane {c.lane.index} ticket {c.ticket} {c.kind}"
            steps.append((c.order, f"submit {where} at {c.submitted}"))
            if c.start_order >= 0:
                steps.append((c.start_order, f"start {where} at {c.started}"))
            if c.finish_order >= 0:
                steps.append((c.finish_order, f"finish {where} at {c.finished}, {c.nbytes} bytes"))
        return [text for _, text in sorted(steps)]

    # --------------------------------------------------------------------------------------------------------- inside

    def _next(self, time: int) -> int:
        if time > self.now:
            self.now = time
        self._order += 1
        return self._order

    def _current_call(self, thread: int) -> CallEvent | None:
        stack = self._open.get(thread)
        return stack[-1] if stack else None

    def _slot(self, access: Access, time: int, what: str) -> SlotEvent | None:
        known = self._slots.get(access.start) if access.space == "mem" else None
        if known is None:
            return None
        event = SlotEvent(self._next(time), known[0], known[1], access.start, access.write, time, what)
        self.slots.append(event)
        return event


def _kind(block: Block) -> str:
    return f"device {block.device}" if block.kind == "device" else block.kind
