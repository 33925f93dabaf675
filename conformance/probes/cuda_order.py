"""The CUDA runtime: streams, events, what blocks."""

# Each closure is called in the turn of the loop that makes it.
# ruff: noqa: B008, B023

from __future__ import annotations

import ctypes as C
import time
from collections.abc import Callable
from typing import Any

from hipfile_conformance.probes.lab import ANY, D2D, D2H, H2D, KIB, MIB, Lab, probe


@probe
def cuda_null_stream(lab: Lab) -> None:
    for kind in ("value", "host"):
        lab.spares()
        streams = {
            "null": 0,
            "per-thread": 2,
            "blocking": lab.stream(0),
            "blocking 2": lab.stream(0),
            "non-blocking": lab.stream(1),
            "non-blocking 2": lab.stream(1),
        }
        for name, held in streams.items():
            hold = lab.t.hold(held, kind)
            answers = {}
            for other, stream in streams.items():
                if other != name:
                    answers[other] = lab.runs(stream, 0.15)
                    if not answers[other]:
                        hold.release()
                        lab.h("DeviceSynchronize")
                        hold = lab.t.hold(held, kind)
            hold.release()
            lab.h("DeviceSynchronize")
            lab.see(f"{kind}: held {name}", answers)


@probe
def cuda_queries(lab: Lab) -> None:
    h = lab.h
    event = lab.event()
    lab.spares()
    stream, other = lab.stream(), lab.stream()
    lab.see(
        "never recorded: query, wait, synchronise",
        [h("EventQuery", event), h("StreamWaitEvent", stream, event, 0), h("EventSynchronize", event)],
    )
    lab.see("fresh stream: query", h("StreamQuery", stream))
    for kind in ("host", "value"):
        hold = lab.t.hold(stream, kind)
        time.sleep(0.1)
        h("GetLastError")
        lab.see(f"{kind}: stream query while the last command runs", h("StreamQuery", stream))
        h("EventRecord", event, stream)
        lab.see(f"{kind}: event query behind it", h("EventQuery", event))
        lab.see(f"{kind}: last error", [h("PeekAtLastError"), h("GetLastError")])
        first = lab.event()
        h("EventRecord", first, other)
        h("StreamSynchronize", other)
        h("StreamWaitEvent", other, first, 0)
        h("EventRecord", first, stream)
        lab.see(f"{kind}: wait for the first record, then recorded again behind a hold: runs", lab.runs(other, 0.3))
        h("EventRecord", first, stream)  # pending record
        waiter = lab.stream()
        h("StreamWaitEvent", waiter, first, 0)
        free = lab.stream()
        h("EventRecord", first, free)
        h("StreamSynchronize", free)
        lab.see(
            f"{kind}: waiter on an old pending record; query of the event",
            [h("StreamQuery", waiter), h("EventQuery", first)],
        )
        hold.release()
        h("DeviceSynchronize")
        lab.see(f"{kind}: afterwards", [h("StreamQuery", stream), h("EventQuery", event)])


@probe
def cuda_event_destroy(lab: Lab) -> None:
    h = lab.h
    stream, waiter = lab.stream(), lab.stream()
    lab.spares()
    event = lab.event()
    hold = lab.t.hold(stream)
    h("EventRecord", event, stream)
    h("StreamWaitEvent", waiter, event, 0)
    lab.see("destroy a pending event", lab.blocked(lambda: h("EventDestroy", event)))
    lab.see("its waiter still waits", not lab.runs(waiter, 0.2))
    hold.release()
    lab.see("synchronise", h("DeviceSynchronize"))
    lab.see("create with bad flags", h("EventCreateWithFlags", 0x40)[0])
    lab.see(
        "blocking sync, timing off, both, interprocess alone", [h("EventCreateWithFlags", n)[0] for n in (1, 2, 3, 4)]
    )
    lab.see(
        "destroy null; query null; record null", [h("EventDestroy", 0), h("EventQuery", 0), h("EventRecord", 0, stream)]
    )
    lab.see("wait null", h("StreamWaitEvent", stream, 0, 0))
    event = lab.event()
    lab.see("wait with flags 7", h("StreamWaitEvent", stream, event, 7))


@probe
def cuda_event_use_after_destroy(lab: Lab) -> None:
    event = lab.event()
    lab.see("destroy", lab.h("EventDestroy", event))
    lab.see("query", lab.h("EventQuery", event))
    lab.see("destroy twice", lab.h("EventDestroy", event))


@probe
def cuda_elapsed(lab: Lab) -> None:
    h = lab.h
    a, b, off = lab.event(), lab.event(), lab.event(2)
    stream = lab.stream()
    lab.see("never recorded", h("EventElapsedTime", a, b))
    h("EventRecord", a, stream)
    h("StreamSynchronize", stream)
    lab.see("one recorded", [h("EventElapsedTime", a, b)[0], h("EventElapsedTime", b, a)[0]])
    hold = lab.t.hold(stream)
    h("EventRecord", b, stream)
    lab.see("pending", h("EventElapsedTime", a, b)[0])
    time.sleep(0.05)
    hold.release()
    h("StreamSynchronize", stream)
    code, ms = h("EventElapsedTime", a, b)
    lab.see("both", [code, ms > 40])
    code, ms = h("EventElapsedTime", b, a)
    lab.see("reversed", [code, ms < 0])
    h("EventRecord", off, stream)
    h("StreamSynchronize", stream)
    lab.see("timing disabled", h("EventElapsedTime", a, off)[0])
    lab.see("null", h("EventElapsedTime", 0, a)[0])
    lab.see("last error", [h("PeekAtLastError"), h("GetLastError"), h("PeekAtLastError")])


@probe
def cuda_null_event(lab: Lab) -> None:
    h = lab.h
    for name, flags in (("blocking", 0), ("non-blocking", 1)):
        stream, event = lab.stream(flags), lab.event()
        hold = lab.t.hold(stream)
        h("EventRecord", event, 0)
        time.sleep(0.1)
        lab.see(f"{name} held: query of an event recorded on null", h("EventQuery", event))
        lab.see(f"{name} held: query of null", h("StreamQuery", 0))
        lab.see(f"{name} held: synchronise null", lab.blocked(lambda: h("StreamSynchronize", 0), hold))
        hold = lab.t.hold(stream)
        lab.see(f"{name} held: synchronise the device", lab.blocked(lambda: h("DeviceSynchronize"), hold))
        hold = lab.t.hold(stream)
        lab.see(
            f"{name} held: synchronise another stream",
            lab.blocked(lambda s=lab.stream(flags): h("StreamSynchronize", s), hold),
        )
        h("DeviceSynchronize")


@probe
def cuda_blocking_calls(lab: Lab) -> None:
    h = lab.h
    for name, flags in (("null", None), ("blocking", 0), ("non-blocking", 1)):
        for kind in ("host", "value"):
            stream = 0 if flags is None else lab.stream(flags)
            p, q, pin = lab.dev(MIB), lab.dev(MIB), lab.pinned(MIB)
            big = lab.pinned(MIB)
            host = C.create_string_buffer(MIB)
            spare = lab.stream(1)
            event = lab.event()
            cases: dict[str, Callable[[], Any]] = {
                "malloc": lambda: h("Malloc", MIB)[0],
                "pinned malloc": lambda: h("HostMalloc", MIB, 0)[0],
                "managed malloc": lambda: h("MallocManaged", MIB, 1)[0],
                "stream create": lambda: h("StreamCreateWithFlags", 1)[0],
                "stream destroy of another": lambda: h("StreamDestroy", spare),
                "event create": lambda: h("EventCreate")[0],
                "event destroy": lambda: h("EventDestroy", event),
                "memcpy host to device": lambda: h("Memcpy", p, C.addressof(host), MIB, H2D),
                "memcpy device to host": lambda: h("Memcpy", C.addressof(host), p, MIB, D2H),
                "memcpy device to device": lambda: h("Memcpy", p, q, MIB, D2D),
                "memcpy pinned to device": lambda: h("Memcpy", p, pin, MIB, H2D),
                "memset": lambda: h("Memset", p, 1, MIB),
                "memcpy 16 bytes host to device": lambda: h("Memcpy", p, C.addressof(host), 16, H2D),
                "host register": lambda: h("HostRegister", C.addressof(host), MIB, 0),
                "host unregister": lambda: h("HostUnregister", C.addressof(host)),
                "pointer attributes": lambda: h("PointerGetAttributes", p)[0],
                "mem get info": lambda: h("MemGetInfo")[0],
                "free": lambda: h("Free", q),
                "free pinned": lambda: h("HostFree", big),
                "free null": lambda: h("Free", 0),
            }
            for what, act in cases.items():
                hold = lab.t.hold(stream, kind)
                lab.see(f"{name} held by {kind}: {what}", lab.blocked(act, hold, 0.25))
                h("DeviceSynchronize")


@probe
def cuda_async_copies(lab: Lab) -> None:
    h = lab.h
    for size in (16, 4096, 64 * KIB, 64 * KIB + 1, MIB, 16 * MIB):
        p = lab.dev(size)
        stream = lab.stream()
        for kind in ("pageable", "pinned"):
            if kind == "pageable":
                room = C.create_string_buffer(b"\x01" * size, size)
                source = C.addressof(room)
            else:
                source = lab.pinned(size)
                C.memset(source, 1, size)
            hold = lab.t.hold(stream)
            result = lab.blocked(lambda s=source, n=size, t=stream, d=p: h("MemcpyAsync", d, s, n, H2D, t), None, 0.4)
            C.memset(source, 2, size)
            hold.release()
            h("StreamSynchronize", stream)
            lab.see(f"h2d {kind} {size}", [result, lab.bytes(p, 1).hex(), lab.bytes(p + size - 1, 1).hex()])
            hold = lab.t.hold(stream)
            lab.see(
                f"d2h {kind} {size}",
                lab.blocked(lambda s=source, n=size, t=stream, d=p: h("MemcpyAsync", s, d, n, D2H, t), hold, 0.4),
            )
            h("StreamSynchronize", stream)
        a, b = C.create_string_buffer(size), C.create_string_buffer(size)
        hold = lab.t.hold(stream)
        lab.see(
            f"h2h pageable {size}",
            lab.blocked(lambda n=size, t=stream: h("MemcpyAsync", C.addressof(a), C.addressof(b), n, 0, t), hold, 0.4),
        )
        q = lab.dev(size)
        hold = lab.t.hold(stream)
        lab.see(f"d2d {size}", lab.blocked(lambda n=size, t=stream, d=p: h("MemcpyAsync", d, q, n, D2D, t), hold, 0.4))
        hold = lab.t.hold(stream)
        lab.see(
            f"default kind h2d {size}",
            lab.blocked(lambda n=size, t=stream, d=p: h("MemcpyAsync", d, C.addressof(a), n, ANY, t), hold, 0.4),
        )
