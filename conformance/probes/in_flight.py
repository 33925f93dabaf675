"""Asynchronous operations in flight, across streams, threads and host functions."""

from __future__ import annotations

import ctypes as C
import os
import threading
import time
from pathlib import Path
from typing import Any

from hipfile_conformance.probes.lab import KIB, MIB, Lab, Slots, probe


@probe
def async_stream_destroyed(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    stream, slots = lab.stream(), Slots(MIB)
    lab.f("StreamRegister", stream, 0)
    hold = lab.t.hold(stream)
    lab.read_async(handle, p, slots, stream)
    lab.see("deregister stream in flight", lab.blocked(lambda: lab.f("StreamDeregister", stream), hold))
    lab.see("done then", slots.done)
    lab.h("StreamSynchronize", stream)
    stream, slots = lab.stream(), Slots(MIB)
    hold = lab.t.hold(stream)
    lab.read_async(handle, p, slots, stream)
    lab.see("destroy", lab.blocked(lambda: lab.h("StreamDestroy", stream), hold))
    lab.h("DeviceSynchronize")
    time.sleep(0.1)
    lab.see("done", slots.done)


@probe
def async_deregister_in_flight(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    lab.f("BufRegister", p, 4 * MIB, 0)
    stream, slots = lab.stream(), Slots(MIB)
    hold = lab.t.hold(stream)
    lab.read_async(handle, p, slots, stream)
    lab.see("buffer", lab.blocked(lambda: lab.f("BufDeregister", p), hold))
    lab.see("second time", lab.f("BufDeregister", p))
    lab.see("synchronise, done", [lab.h("StreamSynchronize", stream), slots.done])
    slots, hold = Slots(MIB), lab.t.hold(stream)
    lab.read_async(handle, p, slots, stream)
    lab.see("handle", lab.blocked(lambda: lab.f("HandleDeregister", handle), hold))
    lab.see("synchronise, done", [lab.h("StreamSynchronize", stream), slots.done])
    lab.see("read through it afterwards", lab.f("Read", handle, p, 4096, 0, 0))


@probe
def async_free_in_flight(lab: Lab) -> None:
    handle, _, _ = lab.warm()
    p = lab.dev(MIB)
    stream, slots = lab.stream(), Slots(MIB)
    hold = lab.t.hold(stream)
    lab.read_async(handle, p, slots, stream)
    lab.see("free", lab.blocked(lambda: lab.h("Free", p), hold))
    lab.see("synchronise, done", [lab.h("StreamSynchronize", stream), slots.done])


@probe
def async_thread_without_context(lab: Lab) -> None:
    """cuFile called in a thread that made no CUDA call before."""
    handle, p, _ = lab.warm()
    q = lab.dev(MIB)
    seen: list[Any] = []
    slots, stream = Slots(4096), lab.stream()

    def run() -> None:
        seen.append(lab.f("Read", handle, p, 4096, 0, 0))
        seen.append(lab.f("BufRegister", q, MIB, 0))
        seen.append(lab.read_async(handle, p, slots, stream))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    lab.see("read, register, async", [seen, lab.h("StreamSynchronize", stream), slots.done])


@probe
def async_first_call(lab: Lab) -> None:
    lab.f("DriverOpen")
    handle, p = lab.handle(lab.file()), lab.dev(4 * MIB)
    for kind in ("value", "host", "value again"):
        stream, slots = lab.stream(), Slots(MIB)
        hold = lab.t.hold(stream, kind.split()[0])
        lab.see(
            f"first call behind a hold by {kind}",
            lab.blocked(lambda s=slots, t=stream: lab.read_async(handle, p, s, t), hold),
        )
        lab.see("synchronise, done", [lab.h("StreamSynchronize", stream), slots.done])


@probe
def async_order(lab: Lab) -> None:
    """Two operations on one stream; reads see the file as it is when the stream gets there."""
    handle, p, fd = lab.warm()
    stream, a, b = lab.stream(), Slots(MIB, 0), Slots(MIB, MIB)
    hold = lab.t.hold(stream)
    lab.read_async(handle, p, a, stream)
    lab.read_async(handle, p, b, stream)
    hold.release()
    lab.see("later wins", [lab.h("StreamSynchronize", stream), a.done, b.done, lab.words(p)])
    hold, a = lab.t.hold(stream), Slots(4096, 0)
    lab.read_async(handle, p, a, stream)
    os.pwrite(fd, b"\x55" * 4096, 0)
    hold.release()
    lab.see("file changed after submit", [lab.h("StreamSynchronize", stream), a.done, lab.bytes(p, 4).hex()])
    hold, a = lab.t.hold(stream), Slots(4096, 0)
    other = lab.stream()
    lab.write_async(handle, p, a, stream)
    lab.h("MemsetAsync", p, 0x66, 4096, other)
    lab.h("StreamSynchronize", other)
    hold.release()
    lab.see(
        "device changed after submit of a write", [lab.h("StreamSynchronize", stream), a.done, os.pread(fd, 4, 0).hex()]
    )
    counts = []
    hold = lab.t.hold(stream)
    many = [Slots(4096, i * 4096, i * 4096) for i in range(32)]
    for slots in many:
        lab.read_async(handle, p, slots, stream)
    hold.release()
    lab.h("StreamSynchronize", stream)
    counts = sorted({s.done for s in many})
    lab.see("32 reads", [counts, lab.words(p + 31 * 4096, 4)])
    shared = Slots(4096, 4096)
    hold = lab.t.hold(stream)
    lab.read_async(handle, p, shared, stream)
    shared.set(file_offset=8192)
    lab.read_async(handle, p + MIB, shared, stream)
    hold.release()
    lab.see("shared slots", [lab.h("StreamSynchronize", stream), lab.words(p, 4), lab.words(p + MIB, 4)])


@probe
def async_two_streams(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    for kind in ("value", "host"):
        a, b = lab.stream(), lab.stream()
        first, second = Slots(4096), Slots(4096)
        hold = lab.t.hold(a, kind)
        lab.read_async(handle, p, first, a)
        lab.see(
            f"{kind}: submit on another", lab.blocked(lambda s=second, t=b: list(lab.read_async(handle, p + MIB, s, t)))
        )
        time.sleep(0.4)
        lab.see(f"{kind}: the other's count while the first is held", [second.done, lab.h("StreamQuery", b)])
        hold.release()
        lab.h("DeviceSynchronize")
        lab.see("both", [first.done, second.done])


@probe
def async_null_stream(lab: Lab) -> None:
    """The null-stream rules for cuFile operations."""
    handle, p, _ = lab.warm()
    for held, flags in (("null", 0), ("null", 1), ("blocking", 0), ("non-blocking", 1)):
        mine = lab.stream(flags)
        hold_on, run_on = (0, mine) if held == "null" else (mine, 0)
        slots = Slots(4096)
        hold = lab.t.hold(hold_on)
        result = lab.blocked(lambda s=slots, t=run_on: list(lab.read_async(handle, p, s, t)), wait=0.4)
        time.sleep(0.3)
        lab.see(
            f"held {held}, operation on {'null' if run_on == 0 else ('blocking', 'non-blocking')[flags]}",
            [slots.done, result],
        )
        hold.release()
        lab.h("DeviceSynchronize")
        lab.see("after", slots.done)


@probe
def async_sync_read_meanwhile(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    for what, flags in (("non-blocking", 1), ("blocking", 0), ("null", None)):
        stream = 0 if flags is None else lab.stream(flags)
        hold = lab.t.hold(stream)
        lab.see(f"sync read while {what} is held", lab.blocked(lambda: lab.f("Read", handle, p, 4096, 0, 0), hold))
        hold = lab.t.hold(stream)
        lab.see(f"sync write while {what} is held", lab.blocked(lambda: lab.f("Write", handle, p, 4096, 0, 0), hold))
        hold = lab.t.hold(stream)
        q = lab.h("Malloc", MIB)[1]
        lab.see(
            f"register a buffer while {what} is held", lab.blocked(lambda q=q: lab.f("BufRegister", q, MIB, 0), hold)
        )
        hold = lab.t.hold(stream)
        fd = lab.file(4096)
        lab.see(
            f"register a file while {what} is held",
            lab.blocked(lambda fd=fd: lab.f("HandleRegister", (1, fd))[0], hold),
        )
        hold = lab.t.hold(stream)
        s = lab.stream()
        lab.see(f"register a stream while {what} is held", lab.blocked(lambda s=s: lab.f("StreamRegister", s, 0), hold))
        lab.h("DeviceSynchronize")


@probe
def async_many(lab: Lab) -> None:
    """How many operations fit behind a hold before the submit call blocks."""
    handle, p, _ = lab.warm()
    stream, hold = 0, None
    stream = lab.stream()
    hold = lab.t.hold(stream)
    counted = [0]

    def submit() -> None:
        lab.h("SetDevice", 0)
        for _ in range(3000):
            if hold.released:
                break
            keep.append(Slots(4096))
            lab.read_async(handle, p, keep[-1], stream)
            counted[0] += 1

    keep: list[Slots] = []
    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    last = -1
    for _ in range(60):
        time.sleep(0.1)
        if counted[0] == last:
            break
        last = counted[0]
    lab.see("submitted before blocking", counted[0])
    hold.release()
    thread.join(8)
    lab.see("synchronise", lab.h("StreamSynchronize", stream))
    lab.see("counts", sorted({s.done for s in keep}))


@probe
def async_in_host_function(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    seen: list[Any] = []
    stream = lab.stream()
    lab.h("LaunchHostFunc", stream, lambda _: seen.append(lab.f("Read", handle, p, 4096, 0, 0)), 0)
    lab.see("sync read in a host function", [lab.h("StreamSynchronize", stream), seen, lab.t.faults])
    other, slots = lab.stream(), Slots(4096)
    lab.h("LaunchHostFunc", stream, lambda _: seen.append(lab.read_async(handle, p, slots, other)), 0)
    lab.see(
        "async read in a host function",
        [lab.h("StreamSynchronize", stream), lab.h("StreamSynchronize", other), seen, slots.done],
    )


@probe
def async_errors_last(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    lab.h("GetLastError")
    slots = Slots(8 * MIB)
    stream = lab.stream()
    lab.see("submit too large", lab.read_async(handle, p, slots, stream))
    lab.see("last error after", [lab.h("StreamSynchronize", stream), lab.h("PeekAtLastError"), slots.done])
    lab.see("failing register", [lab.f("BufRegister", 0, 4096, 0), lab.h("PeekAtLastError")])
    lab.see("failing submit", [lab.f("ReadAsync", handle, 0, *slots.addresses, stream), lab.h("PeekAtLastError")])


@probe
def async_dead_slots(lab: Lab) -> None:
    """bytes_done is one page that is unmapped before the stream gets there: does the process survive?"""
    handle, p, _ = lab.warm()
    libc = C.CDLL(None)
    libc.mmap.restype = C.c_void_p
    page = libc.mmap(None, C.c_size_t(4096), 3, 0x22, -1, C.c_long(0))
    stream, slots = lab.stream(), Slots(4096)
    hold = lab.t.hold(stream)
    lab.f("ReadAsync", handle, p, *slots.addresses[:3], page, stream)
    libc.munmap(C.c_void_p(page), C.c_size_t(4096))
    hold.release()
    lab.see("synchronise", lab.h("StreamSynchronize", stream))


@probe
def async_big(lab: Lab) -> None:
    lab.warm()
    n = 80 * MIB
    handle, p = lab.handle(lab.file(n)), lab.dev(n)
    stream, slots = lab.stream(), Slots(n)
    lab.see("80 MiB", [lab.read_async(handle, p, slots, stream), lab.h("StreamSynchronize", stream), slots.done])
    lab.see("content", [lab.words(p + o, 4)[0] * 4 == o for o in range(0, n, 4 * MIB)].count(False))
    path = lab.path()
    Path(path).write_bytes(b"")
    out, slots = lab.handle(os.open(path, os.O_RDWR)), Slots(n)
    lab.see(
        "write 80 MiB",
        [lab.write_async(out, p, slots, stream), lab.h("StreamSynchronize", stream), slots.done, os.path.getsize(path)],
    )
    hold, slots = lab.t.hold(stream), Slots(n)
    lab.read_async(handle, p, slots, stream)
    slots.set(size=24 * MIB)
    hold.release()
    lab.see("shrunk from 80 to 24 MiB", [lab.h("StreamSynchronize", stream), slots.done])


@probe
def seed_usage(lab: Lab) -> None:
    """16 reads on a side stream, an event each, the current stream waits for it, the host reads the count at once."""
    _, _, _ = lab.warm()
    n = 16 * MIB
    handle, p = lab.handle(lab.file(n)), lab.dev(n)
    side, current, event = lab.stream(), lab.stream(), lab.event(2)
    for repetition in range(3):
        early, all_slots = 0, []
        for _ in range(16):
            slots = Slots(n)
            all_slots.append(slots)
            lab.read_async(handle, p, slots, side)
            lab.h("EventRecord", event, side)
            lab.h("StreamWaitEvent", current, event, 0)
            early += slots.done == 0
        lab.h("DeviceSynchronize")
        lab.see(f"repetition {repetition}: counts read as 0; final", [early, sorted({s.done for s in all_slots})])


def _two_streams(lab: Lab, kind: str, size: int) -> int:
    """Reads of different places on two streams at once, twenty times; how many places got the wrong bytes."""
    handle = lab.handle(lab.file(4 * MIB))
    memory = lab.dev(4 * MIB)
    places = [(memory, 0), (memory, 2 * MIB)]
    if kind == "one registration":
        lab.f("BufRegister", memory, 4 * MIB, 0)
    elif kind == "two registrations":
        places = [(memory, 0), (memory + 2 * MIB, 0)]
        for pointer, _ in places:
            lab.f("BufRegister", pointer, 2 * MIB, 0)
    else:
        places = [(memory, 0), (memory + 2 * MIB, 0)]
    streams = [lab.stream(), lab.stream()]
    wrong = 0
    for turn in range(20):
        lab.h("Memset", memory, 0xAA, 4 * MIB)
        lab.h("DeviceSynchronize")
        slots = [Slots(size, (2 * turn + n) * 64 * KIB % (2 * MIB), place[1]) for n, place in enumerate(places)]
        holds = [lab.t.hold(stream) for stream in streams]
        for stream, slot, place in zip(streams, slots, places, strict=True):
            lab.read_async(handle, place[0], slot, stream)
        for hold in holds:
            hold.release()
        for stream in streams:
            lab.h("StreamSynchronize", stream)
        for slot, (pointer, offset) in zip(slots, places, strict=True):
            first = lab.words(pointer + offset, 4)[0]
            last = lab.words(pointer + offset + size - 4, 4)[0]
            start = slot.cells[1] // 4
            wrong += (first, last, slot.done) != (start, start + size // 4 - 1, size)
    return wrong


@probe
def async_two_streams_bytes(lab: Lab) -> None:
    lab.warm()
    for size in (16, 4096, 64 * KIB, 256 * KIB):
        for kind in ("one registration", "two registrations", "no registration"):
            lab.see(f"{kind}, {size} bytes: wrong of 40", _two_streams(lab, kind, size))


@probe
def async_landed(lab: Lab) -> None:
    """Are the bytes there when the stream has been synchronised?"""
    handle, _, _ = lab.warm()
    p = lab.dev(64 * KIB)
    lab.f("BufRegister", p, 64 * KIB, 0)
    stream = lab.stream()
    for late in (False, True):
        at_once, later, counts = 0, 0, set()
        for turn in range(100):
            lab.h("Memset", p, 0xAA, 64 * KIB)
            lab.h("DeviceSynchronize")
            slots = Slots(8 * KIB, 4 * KIB + turn * 4096)
            hold = lab.t.hold(stream)
            lab.read_async(handle, p, slots, stream)
            if late:
                slots.set(size=4 * KIB)
            hold.release()
            lab.h("StreamSynchronize", stream)
            expected = KIB + turn * KIB
            at_once += lab.words(p, 4)[0] != expected
            time.sleep(0.002)
            later += lab.words(p, 4)[0] != expected
            counts.add(slots.done)
        lab.see(f"size changed {late}: missing at once, missing later, counts", [at_once, later, sorted(counts)])


@probe
def sync_end_of_file(lab: Lab) -> None:
    """What a synchronous read that crosses the end of the file does to the bytes behind what it read."""
    lab.warm()
    size = 64 * KIB
    handle, p = lab.handle(lab.file(size)), lab.dev(size)
    for registered in (False, True):
        if registered:
            lab.f("BufRegister", p, size, 0)
        for at, length, behind in ((5, 4096, 100), (0, 8192, 100), (0, 8192, 5000), (512, 4096, 1)):
            lab.h("Memset", p, 0xAA, size)
            lab.h("DeviceSynchronize")
            count = lab.f("Read", handle, p, length, size - behind, at)
            memory = lab.bytes(p, size)
            changed = [n for n, byte in enumerate(memory) if byte != 0xAA]
            lab.see(
                f"registered {registered}: {length} bytes, {behind} before the end, to {at}: result, first, last",
                [count, changed[:1], changed[-1:], memory[at + behind : at + behind + 8].hex()],
            )
