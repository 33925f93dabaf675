"""Streams and events as the runtime keeps them."""

from __future__ import annotations

from hipfile_sim.engine.command import Lane, Marker
from hipfile_sim.hip.codes import EventFlag, StreamFlag
from hipfile_sim.hip.commands import Record


class Stream:
    """A stream: a lane of the engine with HIP's rules for it.

    Attributes
    ----------
    handle : int
        What the program holds; 0 for a device's null stream.
    lane : Lane
        Where its commands queue.
    device : int
        Ordinal.
    flags, priority : int
        As created.
    blocking : bool
        It and the null stream of its device wait for each other.
    seen : dict
        The tickets it is already ordered behind: by blocking lane for the null stream, of the null lane for others.
    """

    __slots__ = ("blocking", "device", "flags", "handle", "is_null", "lane", "priority", "seen")

    def __init__(self, handle: int, lane: Lane, device: int, flags: int, priority: int, is_null: bool = False) -> None:
        self.handle = handle
        self.lane = lane
        self.device = device
        self.flags = flags
        self.priority = priority
        self.is_null = is_null
        self.blocking = not is_null and not flags & StreamFlag.hipStreamNonBlocking
        self.seen: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<Stream {self.lane.name} on device {self.device}>"


class Event:
    """An event: a name for the last record made of it.

    Attributes
    ----------
    record : Record or None
        The command of the last record; waits hold on to the record that was current when they were made.
    """

    __slots__ = ("device", "flags", "handle", "record")

    def __init__(self, handle: int, device: int, flags: int) -> None:
        self.handle = handle
        self.device = device
        self.flags = flags
        self.record: Record | None = None

    @property
    def timed(self) -> bool:
        """Whether it keeps a time."""
        return not self.flags & EventFlag.hipEventDisableTiming

    @property
    def marker(self) -> Marker | None:
        """What a wait on the event waits for now."""
        record = self.record
        return None if record is None else (record.lane, record.ticket)

    @property
    def done(self) -> bool:
        """Whether the last record has been reached (True when there is none)."""
        record = self.record
        return record is None or record.lane.completed >= record.ticket
