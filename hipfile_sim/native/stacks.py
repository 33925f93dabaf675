"""Slots in stack frames of C code: they are dead once the frame has ended, and the next call of the thread shows it.

At each call of a thread, the slots on its stack are judged, and all of them when it ends. Two signs are certain. What
lies below the stack pointer of the calling function is no frame's any more. And a frame, known by where it begins and
where it returns to, has ended if it is not among those of the call while a caller of it still is; another function may
run in its place by then. Nothing is said of other memory: the heap, stacks that a program has made itself, threads that
never call. A function that is entered anew from the same place looks like the one before until its caller makes a call.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from typing import NamedTuple

from hipfile_sim.driver.operations import AsyncOp
from hipfile_sim.hip import hostmem
from hipfile_sim.machine import Machine
from hipfile_sim.observe.observer import Observer, Wait, current_thread

__all__ = ["StackSlots", "of", "wanted"]

_SLOT = 8
_NAMES = ("size_p", "file_offset_p", "buffer_offset_p", "bytes_p")
_MOST = 4096
_WATCHING = 4  # an operation of hipfile_sim_control
_FRAMES = 64  # HS_FRAMES in src/core.h

Frame = tuple[int, int]
"""Where a frame begins (the stack pointer of its caller) and where it returns to."""


class Stack(NamedTuple):
    """The stack of a thread that is in a call."""

    low: int
    high: int
    pointer: int  # of the function that made the call
    frames: tuple[Frame, ...]  # innermost first

    def chain(self, slot: int) -> tuple[Frame, ...]:
        """The frame that holds `slot` and its callers, innermost first; empty if it is not known."""
        for i, (begin, _) in enumerate(self.frames):
            if slot < begin:
                return self.frames[i:] if self.pointer <= slot else ()
        return ()

    def ended(self, slot: int, chain: tuple[Frame, ...]) -> bool:
        """Whether the frame of `slot`, which had this chain, has ended for certain."""
        if not self.low <= slot < self.high:
            return False
        live = set(self.frames)
        return slot < self.pointer or (chain != () and chain[0] not in live and not live.isdisjoint(chain))


class _Record(NamedTuple):
    slots: tuple[int, ...]
    chains: tuple[tuple[Frame, ...], ...]
    waits: int  # how many waits there had been


def of(machine: Machine) -> StackSlots | None:
    """The one that watches `machine`."""
    return next((observer for observer in machine.engine.observers if isinstance(observer, StackSlots)), None)


def wanted(machine: Machine) -> bool:
    """Whether somebody asks for memory that leaves its owner: the sanitizer does."""
    return any(type(observer).released is not Observer.released for observer in machine.engine.observers)


class StackSlots(Observer):
    """Watches the slots of one machine's operations.

    An operation that is still in flight when its slots die stores into quarantine from then on, not into what lies
    there now; the sanitizer is told of the end of the scope.

    Parameters
    ----------
    machine : Machine
        It is observed from now on.
    library : str
        Path of the library that knows the stack of the call under way.
    """

    def __init__(self, machine: Machine, library: str) -> None:
        self._machine = machine
        functions = ctypes.CDLL(library)
        self._stack = functions.hipfile_sim_stack
        self._stack.restype = None
        functions.hipfile_sim_control(_WATCHING)
        self._lock = threading.Lock()
        self._stacks: dict[tuple[int, int], dict[int, _Record]] = {}  # bounds -> result slot -> its operation
        self._elsewhere: deque[_Record] = deque(maxlen=_MOST)  # the stack of a thread that has not called yet, or none
        self._waits = 0
        self._last_wait: dict[int, int] = {}  # host thread -> number of its last wait
        self._quarantine: list[tuple[AsyncOp, object]] = []
        machine.add_observer(self)

    def waited(self, wait: Wait) -> None:
        self._waits += 1
        self._last_wait[wait.thread] = self._waits

    def here(self) -> Stack:
        """The calling thread's, which is in a call."""
        out = (ctypes.c_uint64 * (4 + 2 * _FRAMES))()
        self._stack(out)
        low, high, pointer, count = out[:4]
        words = out[4 : 4 + 2 * count]
        # a frame begins where its caller's stack pointer was, and returns to the caller's place
        return Stack(low, high, pointer, tuple(zip(words[2::2], words[3::2], strict=True)))

    def submitted_with(self, stack: Stack, *slots: int) -> None:
        """An operation with these four slots has been submitted by the thread with this stack."""
        record = _Record(slots, tuple(map(stack.chain, slots)), self._waits)
        with self._lock:
            self._place(record)

    def _place(self, record: _Record) -> None:
        for (low, high), held in self._stacks.items():
            if any(low <= slot < high for slot in record.slots):
                held[record.slots[3]] = record
                return
        self._elsewhere.append(record)

    def check(self) -> None:
        """Judge what lies on the calling thread's stack, which is in a call."""
        stack = self.here()
        if stack.low <= stack.pointer < stack.high:  # else a signal stack or a coroutine's
            self._end(stack, "the stack frame")

    def ended(self, low: int, high: int) -> None:
        """The thread with this stack ends."""
        self._end(Stack(low, high, high, ()), "the stack of a thread that has ended")
        with self._lock:
            self._stacks.pop((low, high), None)

    def _end(self, stack: Stack, what: str) -> None:
        with self._lock:
            held = self._stacks.get(stack[:2])
            if held is None:
                held = self._stacks[stack[:2]] = {}
                strangers = list(self._elsewhere)
                self._elsewhere.clear()
                for record in strangers:
                    self._place(record)
            dead = []
            for record in list(held.values()):
                slots = [
                    slot for slot, chain in zip(record.slots, record.chains, strict=True) if stack.ended(slot, chain)
                ]
                if slots:
                    dead.append((record, slots))
                    del held[record.slots[3]]
        for record, slots in dead:
            self._tell(record, slots, what)

    def _tell(self, record: _Record, slots: list[int], what: str) -> None:
        pending = False
        for op in list(self._machine.hipfile.monitor.active):
            if any(getattr(op, name) in slots for name in _NAMES):
                pending = True
                self._redirect(op, slots)
        me = current_thread()
        if pending or not any(n > record.waits for thread, n in self._last_wait.items() if thread != me):
            # else another thread may have seen it complete, and let this one go on by means that nobody sees
            for slot in slots:
                self._machine.released(slot, _SLOT, kind="scope", what=what)

    def _redirect(self, op: AsyncOp, slots: list[int]) -> None:
        kept = (ctypes.c_int64 * len(_NAMES))()
        for i, name in enumerate(_NAMES):
            address = getattr(op, name)
            if address in slots:
                kept[i] = hostmem.read_i64(address) or 0
                setattr(op, name, ctypes.addressof(kept) + _SLOT * i)
        self._quarantine = [(other, memory) for other, memory in self._quarantine if not _complete(other)]
        self._quarantine.append((op, kept))


def _complete(op: AsyncOp) -> bool:
    return op.marker is not None and op.marker[0].completed >= op.marker[1]
