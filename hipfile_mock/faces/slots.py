"""The slots of an asynchronous operation: caller-owned memory that the model reads and writes late.

In C the caller keeps four variables alive until the stream has been there. Here they are one small block of real
memory whose address never changes. The block outlives its owner when it must: if the owner is collected while an
operation on it is in flight, the block is put in quarantine, so that the late write of the model lands there and not in
memory that somebody else has got meanwhile, and observers get the note ``slot.owner-collected``.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from hipfile_mock.faces.convert import Integer, to_long, to_size_t
from hipfile_sim.engine.command import Lane, Marker
from hipfile_sim.observe.observer import Note, Release, Site, call_site

__all__ = [
    "AsyncSlots",
    "SlotBlock",
    "flush_quarantine",
    "keep_alive",
    "quarantined",
    "references_when_alone",
]


class SlotBlock(ctypes.Structure):
    """32 bytes: the three inputs and the result."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("file_offset", ctypes.c_int64),
        ("buffer_offset", ctypes.c_int64),
        ("bytes_done", ctypes.c_int64),
    )


_OFFSET = {name: getattr(SlotBlock, name).offset for name, _ in SlotBlock._fields_}
_SIZE = ctypes.sizeof(SlotBlock)
_WORD = 8


class _Orphan(NamedTuple):
    """A block whose owner is gone while operations on it are in flight."""

    block: SlotBlock
    address: int
    markers: tuple[Marker, ...]
    thread: int
    site: Site | None


@dataclass(slots=True, eq=False)
class _Guest:
    """A slot that the caller owns, held until the operation is done: what the late write needs, and no more."""

    owner: Any
    holder: Any
    alone: int = 0
    told: bool = False

    @property
    def abandoned(self) -> bool:
        """Whether nobody but this object has the owner."""
        return sys.getrefcount(self.owner) <= self.alone


@dataclass(slots=True, eq=False)
class _Visit:
    """An operation whose slots the caller owns."""

    guests: list[_Guest]
    length: int
    lane: Lane
    ticket: int
    thread: int
    site: Site | None

    @property
    def pending(self) -> bool:
        """Whether the operation uses the slots."""
        return self.lane.completed < self.ticket


def references_when_alone(make: Callable[[], tuple[Any, Any]]) -> int:
    """References of an owner that nobody but a guest has. `make` gives an owner and its holder."""
    guest = _Guest(*make())
    return sys.getrefcount(guest.owner)


_AT_ONCE = 16
"""Visits that one call looks after; with more in flight they are looked after in turn."""


class _Quarantine:
    """What is kept for one machine.

    `AsyncSlots.__del__` may run anywhere, even inside the engine; there it only appends to `fresh`, and the next call
    of a face takes the orphans from it.
    """

    __slots__ = ("fresh", "kept", "visits")

    def __init__(self) -> None:
        self.fresh: deque[_Orphan] = deque()
        self.kept: list[_Orphan] = []
        self.visits: deque[_Visit] = deque()


_quarantines: weakref.WeakKeyDictionary[Any, _Quarantine] = weakref.WeakKeyDictionary()


def _quarantine_of(machine: Any) -> _Quarantine:
    found = _quarantines.get(machine)
    return found if found is not None else _quarantines.setdefault(machine, _Quarantine())


def keep_alive(machine: Any, lane: Lane, slots: list[tuple[Any, Any, int]], length: int = 8) -> None:
    """Hold slots of the caller until everything in `lane` is done.

    Parameters
    ----------
    slots : list of (owner, holder, alone)
        The caller's object; what keeps its memory in place; its references when only we have it
        (`references_when_alone`).
    """
    guests = [_Guest(owner, holder, alone) for owner, holder, alone in slots]
    site = call_site(2) if machine.engine.observers else None
    visit = _Visit(guests, length, lane, lane.submitted, threading.get_ident(), site)
    _quarantine_of(machine).visits.append(visit)


def flush_quarantine(machine: Any) -> None:
    """Tell observers of the owners collected since the last call; drop the memory that is done with."""
    quarantine = _quarantines.get(machine)
    if quarantine is None:
        return
    fresh, kept = quarantine.fresh, quarantine.kept
    if quarantine.visits:
        _look_after(machine, quarantine.visits)
    if not fresh and not kept:
        return
    with machine.engine.lock:
        kept[:] = [orphan for orphan in kept if not _done(orphan.markers)]
        while fresh:
            orphan = fresh.popleft()
            if not _done(orphan.markers):
                kept.append(orphan)
            _tell(machine, orphan.address, _SIZE, "AsyncIOHandle", orphan.markers, orphan.thread, orphan.site)


def _look_after(machine: Any, visits: deque[_Visit]) -> None:
    for _ in range(min(len(visits), _AT_ONCE)):
        try:
            visit = visits.popleft()
        except IndexError:  # another thread was quicker
            return
        if not visit.pending:
            continue
        visits.append(visit)
        for guest in visit.guests:
            if guest.abandoned and not guest.told:
                guest.told = True
                address, what = int(guest.holder), type(guest.owner).__name__
                marker = (visit.lane, visit.ticket)
                _tell(machine, address, visit.length, what, (marker,), visit.thread, visit.site)


def _tell(
    machine: Any,
    address: int,
    length: int,
    what: str,
    markers: tuple[Marker, ...],
    thread: int,
    site: Site | None,
) -> None:
    """Tell observers that an owner is gone. Whether the host knew the operations to be complete is theirs to judge."""
    engine = machine.engine
    if not engine.observers:
        return
    release = Release(address, length, "collected", what, thread, site)
    note = None
    if not _done(markers):
        lane, ticket = markers[-1]
        note = Note(
            "slot.owner-collected",
            f"the owner of the slots at {address:#x} ({what}) was collected while its operation was in flight on"
            f" {lane.name} (command {ticket}, {lane.completed} complete); real hardware writes the result into freed"
            f" memory. Keep the {what} until the stream is synchronised.",
            site,
            {"slot": address, "length": length, "lane": lane, "ticket": ticket},
            "error",
        )
    with engine.lock:
        for observer in engine.observers:
            observer.released(release)
            if note is not None:
                observer.note(note)


def quarantined(machine: Any) -> int:
    """How many blocks without an owner wait for their operations.

    Includes those that observers have not been told about yet.
    """
    quarantine = _quarantine_of(machine)
    orphans = [*quarantine.fresh, *quarantine.kept]
    guests = [guest for visit in list(quarantine.visits) if visit.pending for guest in visit.guests]
    return sum(not _done(orphan.markers) for orphan in orphans) + sum(guest.abandoned for guest in guests)


def _done(markers: tuple[Marker, ...]) -> bool:
    for lane, ticket in markers:  # noqa: SIM110  all() of a generator takes three times as long
        if lane.completed < ticket:
            return False
    return True


class AsyncSlots:
    """Base of the face's ``AsyncIOHandle``; see there.

    Notes
    -----
    No ``__weakref__`` and no ``__dict__``: the compiled class has neither. [python.async-handle]
    """

    __slots__ = ("_address", "_block", "_machine", "_markers")

    def __init__(self, size: Integer, file_offset: Integer, buffer_offset: Integer) -> None:
        self._markers: tuple[Marker, ...] = ()
        self._machine: weakref.ref[Any] | None = None
        self._block = SlotBlock(to_size_t(size), to_long(file_offset), to_long(buffer_offset), 0)
        self._address = ctypes.addressof(self._block)

    def __del__(self) -> None:
        markers = getattr(self, "_markers", ())
        machine = self._machine() if markers and self._machine is not None else None
        if machine is None or machine.engine.closed:
            return
        if machine.engine.tracker is not None:
            machine.engine.tracker.unguarded(self._address)
        engine = machine.engine
        if not engine.observers and _done(markers):
            return
        site = call_site(2) if engine.observers else None
        orphan = _Orphan(self._block, self._address, markers, threading.get_ident(), site)
        _quarantine_of(machine).fresh.append(orphan)
        # Tell at once if that is safe here: not in the middle of the engine, and not if it means waiting.
        if not engine.lock._is_owned() and engine.lock.acquire(blocking=False):
            try:
                flush_quarantine(machine)
            finally:
                engine.lock.release()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("no default __reduce__ due to non-trivial __cinit__")

    # -- for the face ------------------------------------------------------------------------------------------------

    def _addresses(self) -> tuple[int, ...]:
        """Addresses of size, file offset, buffer offset and result."""
        return tuple(range(self._address, self._address + _SIZE, _WORD))

    def _submitted(self, machine: Any, lane: Lane, ticket: int) -> None:
        """An operation that uses these slots ends with command `ticket` of `lane`."""
        if self._machine is None or self._machine() is not machine:
            self._machine = weakref.ref(machine)
            self._markers = ()
        self._markers = (*(m for m in self._markers if m[0] is not lane and m[0].completed < m[1]), (lane, ticket))

    def _guard(self, machine: Any) -> None:
        """Tell an explorer that nobody looks at these slots but by the properties below, which announce it."""
        if machine.engine.tracker is not None:
            machine.engine.tracker.guarded(self._address, _SIZE)

    def _unguard(self, machine: Any) -> None:
        """Undo `_guard` of an operation that was not queued, unless another one was."""
        if machine.engine.tracker is not None and not self._markers:
            machine.engine.tracker.unguarded(self._address)

    # -- the slots ---------------------------------------------------------------------------------------------------

    def _touch(self, name: str, write: bool) -> None:
        """The host is about to read or write a slot: hardware may move first, and observers want to know."""
        if self._machine is None:
            return
        machine = self._machine()
        if machine is None or machine.engine.closed:
            return
        flush_quarantine(machine)
        if name == "bytes_done" and not write:
            machine.engine.looked(self._markers, "AsyncIOHandle.bytes_done")
        machine.host_access(self._address + _OFFSET[name], _WORD, write=write, what=f"AsyncIOHandle.{name}")

    @property
    def bytes_done(self) -> int:
        """What the slot holds now: the byte count, or a negative code, once the stream has been there; 0 before."""
        self._touch("bytes_done", False)
        return int(self._block.bytes_done)

    @property
    def size(self) -> int:
        """Bytes to move."""
        self._touch("size", False)
        return int(self._block.size)

    @size.setter
    def size(self, value: Integer) -> None:
        number = to_size_t(value)
        self._touch("size", True)
        self._block.size = number

    @property
    def file_offset(self) -> int:
        """First byte in the file."""
        self._touch("file_offset", False)
        return int(self._block.file_offset)

    @file_offset.setter
    def file_offset(self, value: Integer) -> None:
        number = to_long(value)
        self._touch("file_offset", True)
        self._block.file_offset = number

    @property
    def buffer_offset(self) -> int:
        """First byte in the buffer."""
        self._touch("buffer_offset", False)
        return int(self._block.buffer_offset)

    @buffer_offset.setter
    def buffer_offset(self, value: Integer) -> None:
        number = to_long(value)
        self._touch("buffer_offset", True)
        self._block.buffer_offset = number
