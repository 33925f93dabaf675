"""The caching allocator of device memory: whose a block is, and when it may be handed out again.

The rules are those that torch documents for its own: requests are rounded up to 512 bytes; up to 1 MiB they are cut
from segments of 2 MiB, below 10 MiB from segments of 20 MiB, above that a segment is as large as the request, in steps
of 2 MiB. A freed block goes back to the pool of the stream that it was allocated on and may be handed out on that
stream at once, because the stream keeps order; no other stream gets it. A block that `record_stream` named another
stream for waits until that stream has passed the point at which the block was freed.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import torch

from hipfile_mock.faces.torch.stats import Statistics
from hipfile_sim.hip.codes import HipError

if TYPE_CHECKING:
    from hipfile_mock.faces.torch.session import Session, StreamState

__all__ = ["DeviceAllocator", "Piece"]

MIB = 1 << 20
ROUND = 512
SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
LARGE_FROM = 10 * MIB
LARGE_STEP = 2 * MIB


class Piece:
    """A range of a segment: in use, waiting for events, or free."""

    __slots__ = (
        "after",
        "base",
        "before",
        "free",
        "pending",
        "requested",
        "segment",
        "size",
        "small",
        "stream",
        "used",
        "uses",
    )

    def __init__(self, base: int, size: int, stream: StreamState, small: bool, segment: int) -> None:
        self.base = base
        self.size = size
        self.stream = stream
        self.small = small
        self.segment = segment
        self.before: Piece | None = None
        self.after: Piece | None = None
        self.free = True
        self.requested = 0
        self.uses: list[StreamState] = []
        self.pending = 0
        self.used = False

    @property
    def whole(self) -> bool:
        """Whether it is all of its segment."""
        return self.before is None and self.after is None


class _Slot(NamedTuple):
    size: int
    base: int
    piece: Piece


class DeviceAllocator:
    """Device memory of one emulated GPU.

    Parameters
    ----------
    session : Session
        Whose runtime is asked for segments.
    device : int
        Ordinal.
    """

    def __init__(self, session: Session, device: int) -> None:
        self.session = session
        self.device = device
        self.stats = Statistics()
        self.fraction = 1.0
        self._lock = threading.Lock()  # not reentrant: see `release`
        self._dead: deque[Piece] = deque()
        self._free: dict[tuple[StreamState, bool], list[_Slot]] = {}
        self._events: deque[tuple[int, Piece]] = deque()
        self._segments: dict[int, int] = {}

    # -- what tensors need -------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int, stream: StreamState) -> Piece:
        """Memory for a storage that is used on `stream`.

        Raises
        ------
        torch.OutOfMemoryError
            Neither the cache nor the device has it.
        """
        size = max(ROUND, (nbytes + ROUND - 1) // ROUND * ROUND)
        small = size <= SMALL
        with self._lock:
            self._bury()
            self._process()
            piece = self._fit(size, stream, small) or self._grow(size, nbytes, stream, small)
            self._split(piece, size)
            piece.free = False
            piece.requested = nbytes
            self.stats.taken(piece.size, nbytes, small)
            self.session.handed_out(piece.base, nbytes, stream)  # not what it is rounded up to: nobody writes that
            piece.used = True
            return piece

    def release(self, piece: Piece) -> None:
        """The storage is gone. May be called at any moment, by any thread, even amid the methods here: it never blocks.

        When this is no moment to do more, the piece is seen to at the next call.
        """
        self._dead.append(piece)
        if self.session.may_record and self._lock.acquire(blocking=False):
            try:
                self._bury()
            finally:
                self._lock.release()

    def record(self, piece: Piece, stream: StreamState) -> None:
        """`stream` uses the memory, too."""
        with self._lock:
            if stream is not piece.stream and stream not in piece.uses:
                piece.uses.append(stream)

    def process_events(self) -> None:
        """Take back the blocks whose streams have passed the point of the free."""
        with self._lock:
            self._bury()
            self._process()

    def empty(self) -> None:
        """Give segments that nobody uses back to the device (`torch.cuda.empty_cache`)."""
        with self._lock:
            self._empty()

    def segments(self) -> list[tuple[int, int]]:
        """(address, bytes) of every segment, by address."""
        with self._lock:
            return sorted(self._segments.items())

    # -- inside, under the lock --------------------------------------------------------------------------------------

    def _process(self) -> None:
        while self._events:
            event, piece = self._events[0]
            if not self.session.event_passed(event):
                return
            self._events.popleft()
            self._passed(event, piece)

    def _empty(self) -> None:
        self._bury()
        while self._events:
            event, piece = self._events.popleft()
            self.session.check(self.session.own("hipEventSynchronize", event))
            self._passed(event, piece)
        for slots in self._free.values():
            for slot in [slot for slot in slots if slot.piece.whole]:
                slots.remove(slot)
                self._drop(slot.piece)

    def _fit(self, size: int, stream: StreamState, small: bool) -> Piece | None:
        slots = self._free.get((stream, small))
        if not slots:
            return None
        index = bisect_left(slots, (size, 0), key=lambda slot: (slot.size, slot.base))
        return slots.pop(index).piece if index < len(slots) else None

    def _grow(self, size: int, nbytes: int, stream: StreamState, small: bool) -> Piece:
        if small:
            total = SMALL_SEGMENT
        elif size < LARGE_FROM:
            total = LARGE_SEGMENT
        else:
            total = (size + LARGE_STEP - 1) // LARGE_STEP * LARGE_STEP
        base = self._segment(total)
        if base == 0:
            self.stats.retries += 1
            self._empty()
            base = self._segment(total)
        if base == 0:
            self.stats.ooms += 1
            raise torch.OutOfMemoryError(self._explain(nbytes))
        self._segments[base] = total
        self.stats.segment(total, small)
        return Piece(base, total, stream, small, base)

    def _segment(self, total: int) -> int:
        session = self.session
        limit = self.fraction * session.memory.settings.device_memory
        if self.stats.current("reserved_bytes") + total > limit:
            return 0
        with session.on(self.device):
            code, base = session.own("hipMalloc", total)
        if code == HipError.hipErrorOutOfMemory:
            return 0
        session.check(code)
        return int(base)

    def _split(self, piece: Piece, size: int) -> None:
        rest = piece.size - size
        if rest < ROUND if piece.small else rest <= SMALL:
            if not piece.whole:
                self.stats.inactive(-piece.size, piece.small)
            return
        was_split = not piece.whole
        other = Piece(piece.base + size, rest, piece.stream, piece.small, piece.segment)
        other.used = piece.used
        other.before, other.after = piece, piece.after
        if piece.after is not None:
            piece.after.before = other
        piece.after = other
        if was_split:
            self.stats.inactive(-piece.size, piece.small)
        piece.size = size
        self._shelve(other)
        self.stats.inactive(rest, piece.small)

    def _shelve(self, piece: Piece) -> None:
        insort(self._free.setdefault((piece.stream, piece.small), []), _Slot(piece.size, piece.base, piece), key=_order)

    def _unshelve(self, piece: Piece) -> None:
        slots = self._free[piece.stream, piece.small]
        del slots[bisect_left(slots, (piece.size, piece.base), key=_order)]

    def _bury(self) -> None:
        while self._dead:
            piece = self._dead.popleft()
            self.stats.freed(piece.size, piece.requested, piece.small)
            self._tell_freed(piece)
            if not piece.uses:
                self._recycle(piece)
                continue
            for stream in piece.uses:
                event = self.session.record_event(stream)
                if event:
                    piece.pending += 1
                    self._events.append((event, piece))
            piece.uses = []
            if not piece.pending:
                self._recycle(piece)

    def _tell_freed(self, piece: Piece) -> None:
        """Tell observers that a tensor's memory is the cache's again, with whatever is in it."""
        session = self.session
        found = session.find_stream(piece.stream) if session.alive and session.engine.observers else None
        if found is not None:
            what = f"a tensor's memory ({piece.requested} bytes of torch's cache on cuda:{self.device})"
            session.machine.released(piece.base, piece.requested, kind="cached", what=what, lane=found.lane)

    def _passed(self, event: int, piece: Piece) -> None:
        self.session.give_event(event)
        piece.pending -= 1
        if piece.pending == 0:
            self._recycle(piece)

    def _recycle(self, piece: Piece) -> None:
        size = piece.size
        piece.free = True
        piece.requested = 0
        if not self.session.alive:
            return
        before, after = piece.before, piece.after
        if before is not None and before.free and not before.pending:
            self._unshelve(before)
            self.stats.inactive(-before.size, piece.small)
            piece.base, piece.size = before.base, piece.size + before.size
            piece.before = before.before
            if piece.before is not None:
                piece.before.after = piece
        if after is not None and after.free and not after.pending:
            self._unshelve(after)
            self.stats.inactive(-after.size, piece.small)
            piece.size += after.size
            piece.after = after.after
            if piece.after is not None:
                piece.after.before = piece
        self._shelve(piece)
        if not piece.whole:
            self.stats.inactive(piece.size, piece.small)
        self.stats.idle(size, piece.small)

    def _drop(self, piece: Piece) -> None:
        with self.session.on(self.device):
            self.session.check(self.session.own("hipFree", piece.base))
        del self._segments[piece.segment]
        self.stats.segment(-piece.size, piece.small)

    def _explain(self, nbytes: int) -> str:
        session = self.session
        total = session.memory.settings.device_memory
        free = total - session.memory.used[self.device]
        allocated = self.stats.current("allocated_bytes")
        reserved = self.stats.current("reserved_bytes")
        return (
            f"HIP out of memory. Tried to allocate {_amount(nbytes)}. GPU {self.device} has a total capacity of "
            f"{_amount(total)} of which {_amount(free)} is free. Of the allocated memory {_amount(allocated)} is "
            f"allocated by PyTorch, and {_amount(reserved - allocated)} is reserved by PyTorch but unallocated. "
            "(Emulated device: its size is HipSettings.device_memory.)"
        )


def _order(slot: _Slot) -> tuple[int, int]:
    return (slot.size, slot.base)


def _amount(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.2f} GiB" if nbytes >= 1 << 30 else f"{nbytes / MIB:.2f} MiB"
