"""Concurrent programs as data: what they are made of, how one is made from a seed, how one is run on a target.

A program only submits work to streams and then waits for all of it, so its outcome depends on the order of the commands
on the device alone. Everything that two streams can both touch is a piece of `UNIT` bytes, which hardware moves as one.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
from dataclasses import dataclass
from typing import Any

from hipfile_conformance.kit import Kit, Slots

__all__ = ["UNIT", "Program", "Step", "generate", "perform"]

UNIT = 16
"""Bytes of a piece."""
PIECES = 6
"""Pieces of the device buffer, of the pinned buffer and of the file."""
FILE, DEVICE, PINNED = 0x40, 0x60, 0x80
"""First byte values of the pieces at the start."""

Step = tuple[Any, ...]
"""``(what, stream, *arguments)``; streams, events and pieces are small numbers."""


@dataclass(frozen=True, slots=True)
class Program:
    """Streams (0 blocking, 1 non-blocking, 2 the null stream) and steps."""

    seed: int
    streams: tuple[int, ...]
    steps: tuple[Step, ...]
    hold: int = -1  # the stream that is held until all is submitted; -1: none

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "seed": self.seed,
            "streams": list(self.streams),
            "steps": [list(s) for s in self.steps],
            "hold": self.hold,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Program:
        """Inverse of :meth:`as_json`."""
        return cls(data["seed"], tuple(data["streams"]), tuple(tuple(step) for step in data["steps"]), data["hold"])

    def __str__(self) -> str:
        return json.dumps(self.as_json())


def generate(seed: int) -> Program:
    """A program of two or three streams and four to nine steps; the same for the same seed."""
    r = random.Random(f"concurrent {seed}")
    streams = [r.choice((0, 1, 1)) for _ in range(r.choice((2, 2, 3)))]
    if r.random() < 0.25:
        streams[-1] = 2
    hot = [r.randrange(PIECES) for _ in range(2)]

    def piece() -> int:
        return r.choice(hot) if r.random() < 0.7 else r.randrange(PIECES)

    steps: list[Step] = []
    recorded: list[int] = []
    weights = {"read": 5, "write": 5, "fill": 3, "copy": 2, "fetch": 3, "put": 1, "record": 3, "wait": 3, "host": 2}
    for _ in range(r.randint(4, 9)):
        what = r.choices(list(weights), list(weights.values()))[0]
        stream = r.randrange(len(streams))
        if what in ("read", "write"):
            steps.append((what, stream, r.randrange(PIECES) if r.random() < 0.6 else hot[0], piece()))
        elif what == "fill":
            steps.append((what, stream, piece(), r.randrange(1, 32)))
        elif what in ("copy", "fetch", "put"):
            steps.append((what, stream, piece(), r.randrange(PIECES)))
        elif what == "record":
            event = r.randrange(2)
            recorded.append(event)
            steps.append((what, stream, event))
        elif what == "wait" and recorded:
            steps.append((what, stream, r.choice(recorded)))
        elif what == "host" and any(s[0] in ("read", "write") for s in steps):
            steps.append((what, stream))
    return Program(seed, tuple(streams), tuple(steps), r.randrange(-1, len(streams)))


def perform(t: Kit, program: Program, *, release_in: random.Random | None = None) -> str:
    """Run a program on a target; returns its outcome, a line that says everything that can be seen afterwards."""

    def pieces(first: int) -> bytes:
        return b"".join(bytes([first + n]) * UNIT for n in range(PIECES))

    size = PIECES * UNIT
    fd = t.file(pieces(FILE))
    # cuFile 1.15.1 keeps one bounce buffer for a registered buffer, and operations of several streams on it mix; on
    # memory that is not registered it takes offset 0 alone. So each piece is a buffer of its own there.
    apart = t.release == "cufile"
    handle, memory, pinned = t.handle(fd), t.device(4096) if apart else t.buffer(4096), t.pinned(4096)
    start = t.host(size)
    ctypes.memmove(start, pieces(DEVICE), size)
    t.ok(t.hipMemcpy(memory, start, size, 1))
    t.ok(t.hipDeviceSynchronize())
    ctypes.memmove(pinned, pieces(PINNED), size)
    streams = [0 if kind == 2 else t.stream(kind) for kind in program.streams]
    events = [t.event(2), t.event(2)]
    slots: list[Slots] = []
    logs: list[list[list[int]]] = [[] for _ in streams]

    def look(log: list[list[int]], known: int) -> Any:
        return lambda _: log.append([slot.done for slot in slots[:known]])

    hold = t.target.hold(streams[program.hold]) if program.hold >= 0 else None
    try:
        for what, number, *rest in program.steps:
            stream = streams[number]
            if what in ("read", "write"):
                at = rest[1] * UNIT
                slot = Slots(UNIT, rest[0] * UNIT, 0 if apart else at)
                slots.append(slot)
                t.ok((t.read if what == "read" else t.write)(handle, memory + (at if apart else 0), slot, stream), what)
            elif what == "fill":
                t.ok(t.hipMemsetAsync(memory + rest[0] * UNIT, rest[1], UNIT, stream))
            elif what == "copy":
                t.ok(t.hipMemcpyAsync(memory + rest[1] * UNIT, memory + rest[0] * UNIT, UNIT, 3, stream))
            elif what == "fetch":
                t.ok(t.hipMemcpyAsync(pinned + rest[1] * UNIT, memory + rest[0] * UNIT, UNIT, 2, stream))
            elif what == "put":
                t.ok(t.hipMemcpyAsync(memory + rest[0] * UNIT, pinned + rest[1] * UNIT, UNIT, 1, stream))
            elif what == "record":
                t.ok(t.hipEventRecord(events[rest[0]], stream))
            elif what == "wait":
                t.ok(t.hipStreamWaitEvent(stream, events[rest[0]], 0))
            else:
                t.ok(t.hipLaunchHostFunc(stream, look(logs[number], len(slots)), 0))
    finally:
        if hold is not None:
            hold.release()
    t.ok(t.hipDeviceSynchronize(), "hipDeviceSynchronize")
    seen = {
        "counts": [slot.done for slot in slots],
        "file": _letters(os.pread(fd, size, 0), t.target.name),
        "device": _letters(t.bytes(memory, size), t.target.name),
        "pinned": _letters(t.peek(pinned, size), t.target.name),
        "logs": logs,
    }
    return json.dumps(seen)


def _letters(data: bytes, _: str) -> list[int | str]:
    """Each piece as the value that fills it; a torn piece as a digest that no schedule of the model can give."""
    found: list[int | str] = []
    for at in range(0, len(data), UNIT):
        one = data[at : at + UNIT]
        found.append(one[0] if len(set(one)) == 1 else "torn " + hashlib.sha256(one).hexdigest()[:8])
    return found
