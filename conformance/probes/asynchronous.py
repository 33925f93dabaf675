"""Asynchronous operations: arguments, ranges, late values."""

from __future__ import annotations

import ctypes as C
import time
from collections.abc import Callable
from typing import Any

from hipfile_conformance.probes.lab import KIB, MIB, PROBES, Lab, Slots, probe


@probe
def async_plain(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    stream = lab.stream()
    slots = Slots(MIB, MIB)
    hold = lab.t.hold(stream)
    lab.see("submit", lab.blocked(lambda: lab.read_async(handle, p, slots, stream)))
    lab.see("done after submit", slots.done)
    event = lab.event()
    lab.h("EventRecord", event, stream)
    lab.see("stream query, event query", [lab.h("StreamQuery", stream), lab.h("EventQuery", event)])
    time.sleep(0.2)
    lab.see("done while held", slots.done)
    hold.release()
    end = time.time() + 5
    while lab.h("EventQuery", event) and time.time() < end:
        pass
    lab.see("done once the event is seen complete", slots.done)
    lab.see("words", lab.words(p))
    early: list[int] = []
    for _ in range(50):
        again = Slots(64 * KIB, 0)
        lab.read_async(handle, p, again, stream)
        lab.h("EventRecord", event, stream)
        while lab.h("EventQuery", event):
            pass
        early.append(again.done)
    lab.see("50 reads: counts at the event", sorted(set(early)))


@probe
def async_done_in_host_function(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    for kind in ("value", "host"):
        stream, slots = lab.stream(), Slots(MIB, 0)
        seen: list[tuple[str, int]] = []
        hold = lab.t.hold(stream, kind)
        lab.h("LaunchHostFunc", stream, lambda _, s=slots, o=seen: o.append(("before", s.done)), 0)
        lab.read_async(handle, p, slots, stream)
        lab.h("LaunchHostFunc", stream, lambda _, s=slots, o=seen: o.append(("after", s.done)), 0)
        hold.release()
        lab.see(f"{kind}: synchronise, seen", [lab.h("StreamSynchronize", stream), seen, slots.done])


CHANGES: dict[str, dict[str, int]] = {
    "size": {"size": 4096},
    "file_offset": {"file_offset": 2 * MIB},
    "buffer_offset": {"buffer_offset": MIB},
    "all": {"size": 4096, "file_offset": 2 * MIB, "buffer_offset": MIB},
    "grown": {"size": 2 * MIB},
    "out of buffer": {"size": 16 * MIB},
    "to zero": {"size": 0},
    "negative file offset": {"file_offset": -1},
    "buffer offset too large": {"buffer_offset": 8 * MIB},
    "past end": {"file_offset": 64 * MIB},
    "negative buffer offset": {"buffer_offset": -4096},
}


def _late(write: bool, flags: int | None, registered: bool) -> None:
    """Slots changed while the stream is held: what does the operation use?"""

    def run(lab: Lab) -> None:
        handle, memory, _ = lab.warm()
        memory = lab.dev(24 * MIB)
        p = memory + 8 * MIB  # what leaves the buffer stays inside the allocation
        go = lab.write_async if write else lab.read_async
        if registered:
            lab.see("register", lab.f("BufRegister", p, 4 * MIB, 0))
        stream = lab.stream()
        if flags is not None:
            lab.f("StreamRegister", stream, flags)
        for what, change in CHANGES.items():
            lab.h("Memset", memory, 0xAA, 24 * MIB)
            lab.h("DeviceSynchronize")
            slots = Slots(MIB, MIB, 0)
            hold = lab.t.hold(stream)
            status = go(handle, p, slots, stream)
            slots.set(**change)
            hold.release()
            code = lab.h("StreamSynchronize", stream)
            places = [lab.words(p + o, 4)[0] for o in (-4096, 0, MIB)] if not write else None
            lab.see(what, [list(status), code, slots.done, places])

    run.__name__ = f"late_{'write' if write else 'read'}_flags_{flags}_{'registered' if registered else 'plain'}"
    PROBES[run.__name__] = run


for _flags in (None, 0, 1, 2, 3, 4, 5, 6, 7, 8, 15):
    _late(False, _flags, True)
for _flags in (None, 0, 7):
    _late(True, _flags, True)
    _late(False, _flags, False)

RANGES = {
    "whole": (MIB, 0, 0),
    "crossing end": (MIB, 8 * MIB - 1000, 0),
    "at end": (4096, 8 * MIB, 0),
    "past end": (4096, 8 * MIB + 8192, 0),
    "size 0": (0, 0, 0),
    "size 0 past end": (0, 9 * MIB, 0),
    "odd": (1001, 333, 13),
    "odd file offset": (4096, 333, 0),
    "odd buffer offset": (4096, 4096, 13),
    "too large": (8 * MIB, 0, 0),
    "too large by one": (4 * MIB + 1, 0, 0),
    "too large with offset": (4 * MIB, 0, 4096),
    "buffer offset = length": (4096, 0, 4 * MIB),
    "buffer offset far": (4096, 0, 64 * MIB),
    "negative file offset": (4096, -1, 0),
    "negative buffer offset": (4096, 0, -4096),
    "huge size": (1 << 40, 0, 0),
}


def _ranges(write: bool, flags: int | None, registered: bool) -> None:
    def run(lab: Lab) -> None:
        handle, _, _ = lab.warm()
        p = lab.dev(24 * MIB) + 8 * MIB
        if registered:
            lab.see("register", lab.f("BufRegister", p, 4 * MIB, 0))
        stream = lab.stream()
        if flags is not None:
            lab.f("StreamRegister", stream, flags)
        for name, case in RANGES.items():
            slots = Slots(*case)
            status = (lab.write_async if write else lab.read_async)(handle, p, slots, stream)
            at_once = slots.done
            lab.see(name, [list(status), at_once, lab.h("StreamSynchronize", stream), slots.done])

    run.__name__ = f"ranges_{'write' if write else 'read'}_flags_{flags}_{'registered' if registered else 'plain'}"
    PROBES[run.__name__] = run


for _flags in (None, 0, 7, 8, 15):
    _ranges(False, _flags, True)
_ranges(True, 0, True)
_ranges(True, 7, True)
_ranges(False, None, False)


@probe
def async_arguments(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    stream = lab.stream()
    for kind in ("ReadAsync", "WriteAsync"):
        for index, name in enumerate(("handle", "buffer", "size", "file_offset", "buffer_offset", "done")):
            slots = Slots(4096)
            args = [handle, p, *slots.addresses]
            args[index] = 0
            lab.see(
                f"{kind} null {name}",
                [list(lab.f(kind, *args, stream)), slots.done, lab.h("StreamSynchronize", stream), slots.done],
            )
        slots = Slots(4096)
        lab.see(f"{kind} errno", _errno_after(lab, lambda k=kind, s=slots: lab.f(k, handle, 0, *s.addresses, stream)))


def _errno_after(lab: Lab, act: Callable[..., Any]) -> Any:
    return [act(), C.get_errno()]


@probe
def async_garbage_handle(lab: Lab) -> None:
    _, p, _ = lab.warm()
    stream, slots = lab.stream(), Slots(4096)
    lab.see("garbage handle", [lab.read_async(0xF11E0000, p, slots, stream), slots.done])


@probe
def async_deregistered_handle(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    lab.f("HandleDeregister", handle)
    stream, slots = lab.stream(), Slots(4096)
    lab.see(
        "deregistered handle",
        [lab.read_async(handle, p, slots, stream), lab.h("StreamSynchronize", stream), slots.done],
    )


@probe
def async_garbage_buffer(lab: Lab) -> None:
    handle, _, _ = lab.warm()
    stream, slots = lab.stream(), Slots(4096)
    lab.see(
        "garbage buffer",
        [lab.read_async(handle, 0x1234000, slots, stream), lab.h("StreamSynchronize", stream), slots.done],
    )


@probe
def async_streams(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    for name, stream in (("null", 0), ("legacy", 1), ("per thread", 2)):
        slots = Slots(4096, 4096)
        lab.see(f"{name}", [lab.read_async(handle, p, slots, stream), lab.h("StreamSynchronize", stream), slots.done])
    for flags in (0, 1, 7, 15, 16, 0xFF, 0xFFFFFFFF):
        stream = lab.stream()
        lab.see(f"register flags {flags:#x}", lab.f("StreamRegister", stream, flags))
        lab.see(
            "again, same / other flags", [lab.f("StreamRegister", stream, flags), lab.f("StreamRegister", stream, 16)]
        )
        lab.see("deregister, twice", [lab.f("StreamDeregister", stream), lab.f("StreamDeregister", stream)])
    lab.see("null: register", [lab.f("StreamRegister", 0, 0), lab.f("StreamRegister", 0, 0)])
    lab.see("null: deregister", [lab.f("StreamDeregister", 0), lab.f("StreamDeregister", 0)])
    for flags in (0, 1):
        stream, slots = lab.stream(flags), Slots(4096)
        lab.see(
            f"hip flags {flags}",
            [lab.read_async(handle, p, slots, stream), lab.h("StreamSynchronize", stream), slots.done],
        )
