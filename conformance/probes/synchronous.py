"""Synchronous reads and writes."""

from __future__ import annotations

import ctypes as C
import os
from pathlib import Path
from typing import Any

from hipfile_conformance.probes.lab import MIB, Lab, Slots, probe


@probe
def sync_reads(lab: Lab) -> None:
    f = lab.f
    handle, p, _ = lab.warm()
    size = 8 * MIB
    C.set_errno(0)
    lab.see("read", f("Read", handle, p, MIB, MIB, 0))
    lab.see("words", lab.words(p))
    for name, (n, off) in {
        "odd size": (1001, 0),
        "odd offset": (4096, 333),
        "crossing end": (MIB, size - 1000),
        "at end": (4096, size),
        "past end": (4096, size + 8192),
        "size 0": (0, 0),
        "size 0 past end": (0, size + 1),
        "negative offset": (4096, -1),
        "negative offset -4096": (4096, -4096),
    }.items():
        lab.see(name, f("Read", handle, p, n, off, 0))
    lab.see("negative buffer offset", f("Read", handle, p, 4096, 0, -4096))
    lab.see("odd buffer offset", [f("Read", handle, p, 100, 4, 13), lab.words(p + 13, 4)])
    lab.h("Memset", p, 0xAA, 8192)
    lab.see(
        "bytes past a short read", [f("Read", handle, p, 8192, size - 100, 0), lab.bytes(p + 100, 8) == b"\xaa" * 8]
    )
    lab.see("handle null", f("Read", 0, p, 4096, 0, 0))
    big = lab.dev(64 * MIB)
    large = lab.handle(lab.file(64 * MIB))
    lab.see("64 MiB", [f("Read", large, big, 64 * MIB, 0, 0), lab.words(big + 48 * MIB, 4)])


@probe
def sync_writes(lab: Lab) -> None:
    f = lab.f
    _, p, _ = lab.warm()
    path = lab.path()
    Path(path).write_bytes(b"")
    handle = lab.handle(os.open(path, os.O_RDWR))
    lab.see("write", [f("Write", handle, p, 4096, 0, 0), os.path.getsize(path)])
    lab.see("odd write", [f("Write", handle, p, 1001, 10, 7), os.path.getsize(path)])
    lab.see("extends with a gap", [f("Write", handle, p, 100, 1 * MIB, 0), os.path.getsize(path)])
    raw = Path(path).read_bytes()
    lab.see("gap is zero", raw[8192:MIB] == bytes(MIB - 8192))
    lab.see("size 0", [f("Write", handle, p, 0, 4 * MIB, 0), os.path.getsize(path)])
    lab.see("negative offset", f("Write", handle, p, 4096, -1, 0))
    lab.see("negative buffer offset", f("Write", handle, p, 4096, 0, -1))
    lab.see("too long", f("Write", handle, p, 8 * MIB, 0, 0))
    lab.see("size after that", os.path.getsize(path))
    direct = lab.handle(os.open(path, os.O_RDWR | os.O_DIRECT))
    lab.see("odd write through O_DIRECT", f("Write", direct, p, 1001, 10, 7))
    lab.see("odd read through O_DIRECT", f("Read", direct, p, 1001, 10, 7))
    if os.path.exists("/dev/full"):
        lab.see("RLIMIT_FSIZE", _limited(lab, p))


def _limited(lab: Lab, pointer: int) -> Any:
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    path = lab.path()
    Path(path).write_bytes(b"")
    handle = lab.handle(os.open(path, os.O_RDWR))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, resource.RLIM_INFINITY))
    out = [
        lab.f("Write", handle, pointer, 4096, 2 * MIB, 0),
        lab.f("Write", handle, pointer, 2 * MIB, 0, 0),
        os.path.getsize(path),
    ]
    stream, slots, late = lab.stream(), Slots(4096, 2 * MIB), Slots(2 * MIB, 0)
    out += [lab.write_async(handle, pointer, slots, stream), lab.write_async(handle, pointer, late, stream)]
    out += [lab.h("StreamSynchronize", stream), slots.done, late.done]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return out
