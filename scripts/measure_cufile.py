#!/usr/bin/env python3
"""Measure what cuFile and the CUDA runtime do on this machine: the ground under the profile `cufile`.

Needs Python 3.11+, an NVIDIA GPU and the libraries; nothing else. Each probe runs in a process of its own with a
time limit, so that a hang or a crash is one more observation. `scripts/conformance_gpu.sh` prepares the machine.

    python scripts/measure_cufile.py --out DIR [--jobs N] [--only PATTERN]
"""

from __future__ import annotations

import argparse
import ctypes as C
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hipfile_conformance.targets.base import BatchOp, Hold, Unsupported
from hipfile_conformance.targets.cufile import CuFileTarget

LIMIT_S = 30
KIB, MIB = 1 << 10, 1 << 20
H2D, D2H, D2D, ANY = 1, 2, 3, 4
PROBES: dict[str, Callable[[Lab], None]] = {}


def probe(function: Callable[[Lab], None]) -> Callable[[Lab], None]:
    PROBES[function.__name__] = function
    return function


class Slots:
    """The four values that an asynchronous call points at."""

    def __init__(self, size: int = 0, file_offset: int = 0, buffer_offset: int = 0, done: int = 77) -> None:
        self.cells = (C.c_int64 * 4)(size, file_offset, buffer_offset, done)
        base = C.addressof(self.cells)
        self.addresses = (base, base + 8, base + 16, base + 24)

    @property
    def done(self) -> int:
        return int(self.cells[3])

    def set(self, **values: int) -> None:
        for name, value in values.items():
            self.cells[("size", "file_offset", "buffer_offset", "done").index(name)] = value


class Lab:
    """A target and the small things that every probe needs. :meth:`see` prints an observation at once."""

    def __init__(self, folder: str) -> None:
        self.t = CuFileTarget(folder)
        self.folder = folder
        self.n = 0

    def see(self, key: str, value: Any) -> None:
        print(json.dumps([key, value], default=repr), flush=True)

    def h(self, name: str, *args: Any) -> Any:
        return self.t.call("hip" + name, *args)

    def f(self, name: str, *args: Any) -> Any:
        return self.t.call("hipFile" + name, *args)

    def stream(self, flags: int = 1) -> int:
        code, stream = self.h("StreamCreateWithFlags", flags)
        assert code == 0, code
        return int(stream)

    def event(self, flags: int = 0) -> int:
        code, event = self.h("EventCreateWithFlags", flags)
        assert code == 0, code
        return int(event)

    def dev(self, size: int, fill: int = 0xAA) -> int:
        code, pointer = self.h("Malloc", size)
        assert code == 0, code
        self.h("Memset", pointer, fill, size)
        self.h("DeviceSynchronize")
        return int(pointer)

    def pinned(self, size: int) -> int:
        code, pointer = self.h("HostMalloc", size, 0)
        assert code == 0, code
        C.memset(pointer, 0, size)
        return int(pointer)

    def bytes(self, pointer: int, size: int) -> bytes:
        room = C.create_string_buffer(size)
        code = self.h("Memcpy", C.addressof(room), pointer, size, D2H)
        assert code == 0, code
        return room.raw

    def words(self, pointer: int, size: int = 8) -> list[int]:
        return list(array("I", self.bytes(pointer, size)))

    def path(self) -> str:
        self.n += 1
        return os.path.join(self.folder, f"{os.getpid()}-{self.n}.bin")

    def file(self, size: int = 8 * MIB, flags: int = os.O_RDWR) -> int:
        """A file whose 4-byte word at offset o holds o // 4."""
        path = self.path()
        Path(path).write_bytes(array("I", range((size + 3) // 4)).tobytes()[:size])
        return os.open(path, flags)

    def handle(self, fd: int) -> int:
        status, handle = self.f("HandleRegister", (1, fd))
        assert status.err == 0, status
        return int(handle)

    def read_async(self, handle: int, pointer: int, slots: Slots, stream: int) -> Any:
        return self.f("ReadAsync", handle, pointer, *slots.addresses, stream)

    def write_async(self, handle: int, pointer: int, slots: Slots, stream: int) -> Any:
        return self.f("WriteAsync", handle, pointer, *slots.addresses, stream)

    def warm(self) -> tuple[int, int, int]:
        """Open the driver and run one operation, so that lazy set-up is over. Returns (handle, buffer of 4 MiB, fd)."""
        self.f("DriverOpen")
        fd = self.file()
        handle, pointer, slots, stream = self.handle(fd), self.dev(4 * MIB), Slots(4096), self.stream()
        self.read_async(handle, pointer, slots, stream)
        self.h("StreamSynchronize", stream)
        return handle, pointer, fd

    def blocked(self, function: Callable[[], Any], hold: Hold | None = None, wait: float = 0.7) -> dict[str, Any]:
        """Does `function` return while `hold` lasts? Then release and see what it gave."""
        out: dict[str, Any] = {}

        def run() -> None:
            self.h("SetDevice", 0)  # a fresh thread has no current context until a runtime call
            start = time.perf_counter()
            try:
                out["gave"] = function()
            except Exception as error:
                out["gave"] = repr(error)
            out["s"] = round(time.perf_counter() - start, 4)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(wait)
        blocks = thread.is_alive()
        if hold:
            hold.release()
        thread.join(5)
        return {"blocks": blocks, "ended": not thread.is_alive(), **out}

    def runs(self, stream: int, wait: float = 0.4) -> bool:
        """Does a memset on `stream` complete within `wait` seconds? (asked by polling an event)"""
        pointer, event = self.spare, self.spare_event
        code = self.h("MemsetAsync", pointer, 1, 64, stream)
        assert code == 0, code
        self.h("EventRecord", event, stream)
        end = time.perf_counter() + wait
        while time.perf_counter() < end:
            if self.h("EventQuery", event) == 0:
                return True
            time.sleep(0.005)
        return False

    def spares(self) -> None:
        self.spare, self.spare_event = self.dev(64), self.event(2)


# ------------------------------------------------------------------------------------------------ facts of the machine
@probe
def facts(lab: Lab) -> None:
    for key, value in lab.t.facts().items():
        lab.see(key, value)
    lab.see("python", sys.version)
    lab.see("kernel", " ".join(os.uname()))
    lab.see("folder", lab.folder)
    device = os.stat(lab.folder).st_dev
    lab.see("folder device", f"{os.major(device)}:{os.minor(device)}")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if f" {os.major(device)}:{os.minor(device)} " in line:
            lab.see("mount", line)
    lab.see("nvidia-fs", os.path.exists("/dev/nvidia-fs"))
    lab.see("attribute can use stream wait value", [lab.h("DeviceGetAttribute", n, 0) for n in (92, 93, 94, 122)])
    lab.see("priority range", lab.h("DeviceGetStreamPriorityRange"))


# ---------------------------------------------------------------------------------------------------------- life cycle
@probe
def life_counts(lab: Lab) -> None:
    f = lab.f
    lab.see("count before", f("UseCount"))
    lab.see("version while closed", f("GetVersion"))
    lab.see("close while closed", f("DriverClose"))
    lab.see("count after that", f("UseCount"))
    lab.see("open", f("DriverOpen"))
    lab.see("open again", f("DriverOpen"))
    lab.see("count", f("UseCount"))
    lab.see("close", [f("DriverClose"), f("UseCount")])
    lab.see("close to zero", [f("DriverClose"), f("UseCount")])
    lab.see("close once more", [f("DriverClose"), f("UseCount")])
    lab.see("reopen", [f("DriverOpen"), f("UseCount")])


def _implicit(name: str, act: Callable[[Lab], Any]) -> None:
    def run(lab: Lab) -> None:
        lab.see("gave", act(lab))
        lab.see("count after", lab.f("UseCount"))

    run.__name__ = "implicit_" + name
    PROBES[run.__name__] = run


def _async_closed(lab: Lab, good: bool) -> Any:
    slots = Slots(4096)
    pointer = lab.dev(MIB) if good else 0
    return [lab.read_async(0, pointer, slots, lab.stream()), slots.done]


_implicit("handle_register", lambda lab: lab.f("HandleRegister", (1, lab.file()))[0])
_implicit("handle_register_null", lambda lab: lab.f("HandleRegister", None))
_implicit("handle_register_bad_type", lambda lab: lab.f("HandleRegister", (2, lab.file()))[0])
_implicit("handle_register_userspace", lambda lab: lab.f("HandleRegister", (3, lab.file()))[0])
_implicit("handle_register_garbage_type", lambda lab: lab.f("HandleRegister", (99, lab.file()))[0])
_implicit("handle_register_bad_fd", lambda lab: lab.f("HandleRegister", (1, 9999)))
_implicit("handle_register_negative_fd", lambda lab: lab.f("HandleRegister", (1, -1)))
_implicit("handle_deregister_null", lambda lab: lab.f("HandleDeregister", 0))
_implicit("handle_deregister_garbage", lambda lab: lab.f("HandleDeregister", 0xF11E))
_implicit("buf_register", lambda lab: lab.f("BufRegister", lab.dev(MIB), MIB, 0))
_implicit("buf_register_null", lambda lab: lab.f("BufRegister", 0, MIB, 0))
_implicit("buf_deregister", lambda lab: lab.f("BufDeregister", lab.dev(MIB)))
_implicit("read_null", lambda lab: lab.f("Read", 0, 0, 4096, 0, 0))
_implicit("read_garbage", lambda lab: lab.f("Read", 0xF11E, lab.dev(MIB), 4096, 0, 0))
_implicit("read_async_null", lambda lab: _async_closed(lab, False))
_implicit("read_async_null_handle", lambda lab: _async_closed(lab, True))
_implicit("stream_register", lambda lab: lab.f("StreamRegister", lab.stream(), 0))
_implicit("stream_register_default", lambda lab: lab.f("StreamRegister", 0, 0))
_implicit("stream_deregister", lambda lab: lab.f("StreamDeregister", lab.stream()))
_implicit("batch_setup", lambda lab: lab.f("BatchIOSetUp", 4))
_implicit("batch_submit_bad", lambda lab: lab.f("BatchIOSubmit", 0xF11E, [BatchOp(0, 0, 0, 0, 0, 0)], 0))
_implicit("batch_status_bad", lambda lab: lab.f("BatchIOGetStatus", 0xF11E, 0, 1, 0.0))
_implicit("batch_cancel_bad", lambda lab: lab.f("BatchIOCancel", 0xF11E))
_implicit("batch_cancel_null", lambda lab: lab.f("BatchIOCancel", 0))
_implicit("batch_destroy_null", lambda lab: lab.f("BatchIODestroy", 0))
_implicit("properties", lambda lab: _properties(lab))
_implicit("set_poll_mode", lambda lab: lab.f("DriverSetPollMode", True, 4))
_implicit("set_max_direct", lambda lab: lab.f("DriverSetMaxDirectIOSize", 1024))
_implicit("set_max_cache", lambda lab: lab.f("DriverSetMaxCacheSize", 1024))
_implicit("set_max_pinned", lambda lab: lab.f("DriverSetMaxPinnedMemSize", 1024))
_implicit("get_size_parameters", lambda lab: [lab.f("GetParameterSizeT", n) for n in range(13)])
_implicit("get_bool_parameters", lambda lab: [lab.f("GetParameterBool", n) for n in range(13)])
_implicit("get_string_parameters", lambda lab: [lab.f("GetParameterString", n, 128) for n in range(4)])
_implicit("set_size_parameters", lambda lab: [lab.f("SetParameterSizeT", n, 16) for n in range(13)])
_implicit("set_bool_parameters", lambda lab: [lab.f("SetParameterBool", n, True) for n in range(13)])
_implicit("set_string_parameters", lambda lab: [lab.f("SetParameterString", n, "ERROR") for n in range(4)])
_implicit("stats", lambda lab: [lab.f(n)[0] for n in ("GetStatsL1", "GetStatsL2", "GetStatsL3")])


def _properties(lab: Lab) -> Any:
    status, raw = lab.f("DriverGetProperties")
    words = array("I", raw[:64]).tolist()
    return {"status": status, "words": words}


@probe
def parameters_open(lab: Lab) -> None:
    lab.f("DriverOpen")
    lab.see("properties", _properties(lab))
    lab.see("properties null", lab.t.symbol("hipFileDriverGetProperties")(None).err)
    lab.see("get size", [lab.f("GetParameterSizeT", n) for n in range(13)])
    lab.see("get bool", [lab.f("GetParameterBool", n) for n in range(13)])
    lab.see("get string", [lab.f("GetParameterString", n, 128) for n in range(4)])
    lab.see("get string too short", lab.f("GetParameterString", 0, 1))
    lab.see("set size", [lab.f("SetParameterSizeT", n, 16) for n in range(13)])
    lab.see("set bool", [lab.f("SetParameterBool", n, True) for n in range(13)])
    lab.see("set string", [lab.f("SetParameterString", n, "ERROR") for n in range(4)])
    lab.see("set poll mode", lab.f("DriverSetPollMode", True, 4))
    lab.see("set direct / cache / pinned", [lab.f("DriverSetMax" + n, 1024) for n in ("DirectIOSize", "CacheSize", "PinnedMemSize")])
    lab.see("set zero", [lab.f("DriverSetMax" + n, 0) for n in ("DirectIOSize", "CacheSize", "PinnedMemSize")])
    for name in ("GetStatsL1", "GetStatsL2", "GetStatsL3"):
        lab.see(name, lab.f(name)[0])


@probe
def life_reopen(lab: Lab) -> None:
    f = lab.f
    handle, pointer, _ = lab.warm()
    stream = lab.stream()
    lab.see("register buffer, stream", [f("BufRegister", pointer, 4 * MIB, 0), f("StreamRegister", stream, 0)])
    while f("UseCount") > 0:
        lab.see("close", [f("DriverClose"), f("UseCount")])
    lab.see("read through the old handle while closed", f("Read", handle, pointer, 4096, 0, 0))
    lab.see("count", f("UseCount"))
    lab.see("reopen", [f("DriverOpen"), f("UseCount")])
    lab.see("register stream again", f("StreamRegister", stream, 0))
    lab.see("register buffer again", f("BufRegister", pointer, 4 * MIB, 0))
    lab.see("read through the old handle", f("Read", handle, pointer, 4096, 0, 0))


@probe
def life_close_in_flight(lab: Lab) -> None:
    handle, pointer, _ = lab.warm()
    stream, slots = lab.stream(), Slots(MIB)
    hold = lab.t.hold(stream)
    lab.see("submit", lab.read_async(handle, pointer, slots, stream))
    lab.see("close", lab.blocked(lambda: lab.f("DriverClose"), hold))
    lab.see("count", lab.f("UseCount"))
    lab.see("synchronise", lab.h("StreamSynchronize", stream))
    lab.see("done", slots.done)


@probe
def life_threads(lab: Lab) -> None:
    """64 threads register from the closed state."""
    fds = [lab.file(4096) for _ in range(32)]
    pointers = [lab.dev(64 * KIB) for _ in range(32)]
    results: list[Any] = []
    jobs: list[Callable[[], Any]] = [lambda fd=fd: lab.f("HandleRegister", (1, fd))[0] for fd in fds]
    jobs += [lambda p=p: lab.f("BufRegister", p, 64 * KIB, 0) for p in pointers]
    threads = [threading.Thread(target=lambda j=j: (lab.h("SetDevice", 0), results.append(j()))) for j in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lab.see("codes", sorted({str(r) for r in results}))
    lab.see("count", lab.f("UseCount"))


# --------------------------------------------------------------------------------------------------------------- files
@probe
def file_register(lab: Lab) -> None:
    lab.f("DriverOpen")
    fd = lab.file()
    before = set(os.listdir("/proc/self/fd"))
    lab.see("register", lab.f("HandleRegister", (1, fd))[0])
    after = set(os.listdir("/proc/self/fd"))
    lab.see("new descriptors", [os.readlink(f"/proc/self/fd/{n}") for n in sorted(after - before) if os.path.exists(f"/proc/self/fd/{n}")])
    lab.see("the same fd again", lab.f("HandleRegister", (1, fd))[0])
    lab.see("a dup of it", lab.f("HandleRegister", (1, os.dup(fd)))[0])
    lab.see("opened with O_DIRECT", lab.f("HandleRegister", (1, lab.file(flags=os.O_RDWR | os.O_DIRECT)))[0])
    lab.see("read only", lab.f("HandleRegister", (1, lab.file(flags=os.O_RDONLY)))[0])
    lab.see("write only", lab.f("HandleRegister", (1, lab.file(flags=os.O_WRONLY)))[0])
    lab.see("append", lab.f("HandleRegister", (1, lab.file(flags=os.O_RDWR | os.O_APPEND)))[0])
    lab.see("empty file", lab.f("HandleRegister", (1, lab.file(0)))[0])


@probe
def file_register_odd(lab: Lab) -> None:
    lab.f("DriverOpen")
    lab.see("directory", lab.f("HandleRegister", (1, os.open(lab.folder, os.O_RDONLY)))[0])
    lab.see("dev null", lab.f("HandleRegister", (1, os.open("/dev/null", os.O_RDWR)))[0])
    lab.see("pipe", lab.f("HandleRegister", (1, os.pipe()[0]))[0])
    if os.path.isdir("/dev/shm"):
        lab.see("tmpfs", lab.f("HandleRegister", (1, os.open("/dev/shm/x", os.O_RDWR | os.O_CREAT)))[0])
    lab.see("memfd", lab.f("HandleRegister", (1, os.memfd_create("x")))[0])
    lab.see("proc", lab.f("HandleRegister", (1, os.open("/proc/version", os.O_RDONLY)))[0])
    path = lab.path()
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.unlink(path)
    lab.see("unlinked", lab.f("HandleRegister", (1, fd))[0])
    lab.see("closed fd", lab.f("HandleRegister", (1, 9999))[0])
    lab.see("negative fd", lab.f("HandleRegister", (1, -1))[0])
    for kind in (0, 2, 3, 99):
        lab.see(f"type {kind}", lab.f("HandleRegister", (kind, fd))[0])
    lab.see("null descr", lab.f("HandleRegister", None))


@probe
def file_deregister(lab: Lab) -> None:
    handle, pointer, fd = lab.warm()
    flags = __import__("fcntl").fcntl(fd, 3)
    position = os.lseek(fd, 0, 1)
    lab.f("Read", handle, pointer, 4096, 8192, 0)
    lab.see("flags and position unchanged", [flags == __import__("fcntl").fcntl(fd, 3), position == os.lseek(fd, 0, 1)])
    lab.f("HandleDeregister", handle)
    lab.see("the client's fd is open", os.fstat(fd).st_size)
    lab.see("register again", lab.f("HandleRegister", (1, fd))[0])
    lab.see("read through the old handle", lab.f("Read", handle, pointer, 4096, 0, 0))
    lab.f("HandleDeregister", handle)
    lab.see("twice", "returned")
    lab.f("HandleDeregister", 0)
    lab.see("null", "returned")


@probe
def file_closed_descriptor(lab: Lab) -> None:
    handle, pointer, fd = lab.warm()
    stream, slots = lab.stream(), Slots(4096, 4096)
    os.close(fd)
    lab.see("sync read", lab.f("Read", handle, pointer, 4096, 8192, 0))
    lab.see("words", lab.words(pointer))
    lab.see("async read", lab.read_async(handle, pointer, slots, stream))
    lab.see("synchronise", lab.h("StreamSynchronize", stream))
    lab.see("done", slots.done)
    path = lab.path()
    Path(path).write_bytes(b"\x11" * 65536)
    again = os.open(path, os.O_RDWR)
    lab.see("reused number", again == fd)
    lab.see("sync read after reuse", lab.f("Read", handle, pointer, 4096, 8192, 0))
    lab.see("words after reuse", lab.words(pointer))
    lab.see("register the reused number", lab.f("HandleRegister", (1, again))[0])


@probe
def file_close_in_flight(lab: Lab) -> None:
    handle, pointer, fd = lab.warm()
    stream, slots = lab.stream(), Slots(4096, 4096)
    hold = lab.t.hold(stream)
    lab.see("submit", lab.read_async(handle, pointer, slots, stream))
    os.close(fd)
    hold.release()
    lab.see("synchronise", lab.h("StreamSynchronize", stream))
    lab.see("done", slots.done)
    lab.see("words", lab.words(pointer))


@probe
def file_modes(lab: Lab) -> None:
    _, pointer, _ = lab.warm()
    read_only, write_only = lab.handle(lab.file(flags=os.O_RDONLY)), lab.handle(lab.file(flags=os.O_WRONLY))
    lab.see("write to read only", lab.f("Write", read_only, pointer, 4096, 0, 0))
    lab.see("read from write only", lab.f("Read", write_only, pointer, 4096, 0, 0))
    stream, slots = lab.stream(), Slots(4096)
    lab.see("async write to read only", lab.write_async(read_only, pointer, slots, stream))
    lab.see("synchronise, done", [lab.h("StreamSynchronize", stream), slots.done])
    slots = Slots(4096)
    lab.see("async read from write only", lab.read_async(write_only, pointer, slots, stream))
    lab.see("synchronise, done", [lab.h("StreamSynchronize", stream), slots.done])
    path = lab.path()
    Path(path).write_bytes(b"\x01" * 100)
    lab.see("append: register", lab.f("HandleRegister", (1, os.open(path, os.O_RDWR | os.O_APPEND)))[0])


# ------------------------------------------------------------------------------------------------------------- buffers
@probe
def buffer_register(lab: Lab) -> None:
    f = lab.f
    f("DriverOpen")
    p = lab.dev(4 * MIB)
    lab.see("whole", f("BufRegister", p, 4 * MIB, 0))
    lab.see("again", f("BufRegister", p, 4 * MIB, 0))
    lab.see("again, shorter", f("BufRegister", p, MIB, 0))
    lab.see("interior, overlapping", f("BufRegister", p + MIB, MIB, 0))
    lab.see("deregister", f("BufDeregister", p))
    lab.see("twice", f("BufDeregister", p))
    lab.see("interior still there", f("BufDeregister", p + MIB))
    lab.see("unaligned interior", f("BufRegister", p + 3, 4096, 0))
    lab.see("flags 1", [f("BufRegister", p + 2 * MIB, 4096, 1), f("BufDeregister", p + 2 * MIB)])
    lab.see("flags 0xff", [f("BufRegister", p + 2 * MIB, 4096, 0xFF), f("BufDeregister", p + 2 * MIB)])
    lab.see("flags -1", [f("BufRegister", p + 2 * MIB, 4096, -1), f("BufDeregister", p + 2 * MIB)])
    lab.see("length 0", f("BufRegister", p + 3 * MIB, 0, 0))
    lab.see("length 0 deregister", f("BufDeregister", p + 3 * MIB))
    lab.see("too long", f("BufRegister", p, 8 * MIB, 0))
    lab.see("too long from the interior", f("BufRegister", p + MIB, 4 * MIB, 0))
    lab.see("huge", f("BufRegister", p, (1 << 64) - 1, 0))
    lab.see("null", f("BufRegister", 0, 4096, 0))
    lab.see("null deregister", f("BufDeregister", 0))
    lab.see("garbage pointer", f("BufRegister", 0x1234000, 4096, 0))


@probe
def buffer_kinds(lab: Lab) -> None:
    f = lab.f
    f("DriverOpen")
    fd = lab.file()
    handle = lab.handle(fd)
    host = C.create_string_buffer(MIB)
    kinds = {"plain host": C.addressof(host), "pinned": lab.pinned(MIB), "managed": lab.h("MallocManaged", MIB, 1)[1]}
    stream = lab.stream()
    for name, pointer in kinds.items():
        lab.see(f"{name}: register", f("BufRegister", pointer, MIB, 0))
        lab.see(f"{name}: read", f("Read", handle, pointer, 4096, 8192, 0))
        lab.see(f"{name}: word", C.c_uint32.from_address(pointer).value)
        slots = Slots(4096, 4096)
        lab.see(f"{name}: async", [lab.read_async(handle, pointer, slots, stream), lab.h("StreamSynchronize", stream), slots.done])
        lab.see(f"{name}: word", C.c_uint32.from_address(pointer).value)
        lab.see(f"{name}: deregister", f("BufDeregister", pointer))
        lab.see(f"{name}: unregistered read", f("Read", handle, pointer, 4096, 16384, 0))
        slots = Slots(4096, 4096)
        lab.see(f"{name}: unregistered async", [lab.read_async(handle, pointer, slots, stream), lab.h("StreamSynchronize", stream), slots.done])


@probe
def buffer_use(lab: Lab) -> None:
    f = lab.f
    handle, p, _ = lab.warm()
    lab.see("register 1 MiB of 4", f("BufRegister", p, MIB, 0))
    lab.see("within", f("Read", handle, p, 4096, 0, MIB - 4096))
    lab.see("offset = length", f("Read", handle, p, 4096, 0, MIB))
    lab.see("offset = length, size 0", f("Read", handle, p, 0, 0, MIB))
    lab.see("past the registered length", f("Read", handle, p, 8192, 0, MIB - 4096))
    lab.see("size past the registered length", f("Read", handle, p, 2 * MIB, 0, 0))
    lab.see("size past the allocation", f("Read", handle, p, 8 * MIB, 0, 0))
    lab.see("interior pointer of it", f("Read", handle, p + 4096, 4096, 4096, 0))
    lab.see("word there", lab.words(p + 4096, 4))
    lab.see("interior pointer, size past the registration", f("Read", handle, p + 4096, 2 * MIB, 0, 0))
    q = lab.dev(MIB)
    lab.see("unregistered", f("Read", handle, q, 4096, 8192, 512))
    lab.see("words", lab.words(q + 512, 4))
    lab.see("unregistered, interior", f("Read", handle, q + 4096, 4096, 0, 0))
    lab.see("unregistered, too long", f("Read", handle, q, 2 * MIB, 0, 0))
    lab.see("unregistered, offset too large", f("Read", handle, q, 4096, 0, 2 * MIB))
    lab.see("null", f("Read", handle, 0, 4096, 0, 0))
    lab.see("garbage pointer", f("Read", handle, 0x1234000, 4096, 0, 0))
    r = lab.dev(MIB)
    lab.h("Free", r)
    lab.see("freed pointer", f("Read", handle, r, 4096, 0, 0))


# ------------------------------------------------------------------------------------------------- synchronous reads
@probe
def sync_reads(lab: Lab) -> None:
    f = lab.f
    handle, p, _ = lab.warm()
    size = 8 * MIB
    C.set_errno(0)
    lab.see("read", f("Read", handle, p, MIB, MIB, 0))
    lab.see("words", lab.words(p))
    for name, (n, off) in {
        "odd size": (1001, 0), "odd offset": (4096, 333), "crossing end": (MIB, size - 1000), "at end": (4096, size),
        "past end": (4096, size + 8192), "size 0": (0, 0), "size 0 past end": (0, size + 1), "negative offset": (4096, -1),
        "negative offset -4096": (4096, -4096),
    }.items():
        lab.see(name, f("Read", handle, p, n, off, 0))
    lab.see("negative buffer offset", f("Read", handle, p, 4096, 0, -4096))
    lab.see("odd buffer offset", [f("Read", handle, p, 100, 4, 13), lab.words(p + 13, 4)])
    lab.h("Memset", p, 0xAA, 8192)
    lab.see("bytes past a short read", [f("Read", handle, p, 8192, size - 100, 0), lab.bytes(p + 100, 8) == b"\xaa" * 8])
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
    out = [lab.f("Write", handle, pointer, 4096, 2 * MIB, 0), lab.f("Write", handle, pointer, 2 * MIB, 0, 0), os.path.getsize(path)]
    stream, slots, late = lab.stream(), Slots(4096, 2 * MIB), Slots(2 * MIB, 0)
    out += [lab.write_async(handle, pointer, slots, stream), lab.write_async(handle, pointer, late, stream)]
    out += [lab.h("StreamSynchronize", stream), slots.done, late.done]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return out


# ------------------------------------------------------------------------------------------------------- asynchronous
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
        stream, slots, seen = lab.stream(), Slots(MIB, 0), []
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
        handle, memory, fd = lab.warm()
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
            lab.see(f"{kind} null {name}", [list(lab.f(kind, *args, stream)), slots.done, lab.h("StreamSynchronize", stream), slots.done])
        slots = Slots(4096)
        lab.see(f"{kind} errno", _errno_after(lab, lambda k=kind, s=slots: lab.f(k, handle, 0, *s.addresses, stream)))


def _errno_after(lab: Lab, act: Callable[[], Any]) -> Any:
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
    lab.see("deregistered handle", [lab.read_async(handle, p, slots, stream), lab.h("StreamSynchronize", stream), slots.done])


@probe
def async_garbage_buffer(lab: Lab) -> None:
    handle, _, _ = lab.warm()
    stream, slots = lab.stream(), Slots(4096)
    lab.see("garbage buffer", [lab.read_async(handle, 0x1234000, slots, stream), lab.h("StreamSynchronize", stream), slots.done])


@probe
def async_streams(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    for name, stream in (("null", 0), ("legacy", 1), ("per thread", 2)):
        slots = Slots(4096, 4096)
        lab.see(f"{name}", [lab.read_async(handle, p, slots, stream), lab.h("StreamSynchronize", stream), slots.done])
    for flags in (0, 1, 7, 15, 16, 0xFF, 0xFFFFFFFF):
        stream = lab.stream()
        lab.see(f"register flags {flags:#x}", lab.f("StreamRegister", stream, flags))
        lab.see("again, same / other flags", [lab.f("StreamRegister", stream, flags), lab.f("StreamRegister", stream, 16)])
        lab.see("deregister, twice", [lab.f("StreamDeregister", stream), lab.f("StreamDeregister", stream)])
    lab.see("null: register", [lab.f("StreamRegister", 0, 0), lab.f("StreamRegister", 0, 0)])
    lab.see("null: deregister", [lab.f("StreamDeregister", 0), lab.f("StreamDeregister", 0)])
    for flags in (0, 1):
        stream, slots = lab.stream(flags), Slots(4096)
        lab.see(f"hip flags {flags}", [lab.read_async(handle, p, slots, stream), lab.h("StreamSynchronize", stream), slots.done])


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
        lab.see(f"first call behind a hold by {kind}", lab.blocked(lambda s=slots, t=stream: lab.read_async(handle, p, s, t), hold))
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
    lab.see("device changed after submit of a write", [lab.h("StreamSynchronize", stream), a.done, os.pread(fd, 4, 0).hex()])
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
        lab.see(f"{kind}: submit on another", lab.blocked(lambda s=second, t=b: list(lab.read_async(handle, p + MIB, s, t))))
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
        lab.see(f"held {held}, operation on {'null' if run_on == 0 else ('blocking', 'non-blocking')[flags]}", [slots.done, result])
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
        lab.see(f"register a buffer while {what} is held", lab.blocked(lambda q=q: lab.f("BufRegister", q, MIB, 0), hold))
        hold = lab.t.hold(stream)
        fd = lab.file(4096)
        lab.see(f"register a file while {what} is held", lab.blocked(lambda fd=fd: lab.f("HandleRegister", (1, fd))[0], hold))
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
            lab.read_async(handle, p, Slots(4096), stream)
            counted[0] += 1

    keep: list[Slots] = []
    make = Slots.__init__
    Slots.__init__ = lambda self, *a, **k: (make(self, *a, **k), keep.append(self))[0]  # type: ignore[method-assign]
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
    lab.see("async read in a host function", [lab.h("StreamSynchronize", stream), lab.h("StreamSynchronize", other), seen, slots.done])


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
    lab.see("write 80 MiB", [lab.write_async(out, p, slots, stream), lab.h("StreamSynchronize", stream), slots.done, os.path.getsize(path)])
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


# --------------------------------------------------------------------------------------------------------------- batch
@probe
def batch_setup(lab: Lab) -> None:
    lab.f("DriverOpen")
    for n in (0, 1, 2, 128, 129, 256, 4096):
        status, handle = lab.f("BatchIOSetUp", n)
        lab.see(f"set up {n}", [list(status), bool(handle)])


@probe
def batch_run(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    lab.f("BufRegister", p, 4 * MIB, 0)
    status, batch = lab.f("BatchIOSetUp", 4)
    ops = [BatchOp(p, i * 4096, i * 4096, 4096, handle, 0, 100 + i) for i in range(4)]
    lab.see("submit", [list(status), lab.f("BatchIOSubmit", batch, ops, 0)])
    got: list[Any] = []
    for _ in range(40):
        status, events = lab.f("BatchIOGetStatus", batch, 0, 4, 0.0)
        got += events
        if status.err or len(got) >= 4:
            break
        time.sleep(0.02)
    lab.see("events", [list(status), got])
    lab.see("status when empty", lab.f("BatchIOGetStatus", batch, 0, 4, 0.05))
    lab.see("again", lab.f("BatchIOSubmit", batch, ops[:2], 0))
    lab.see("min 2", lab.f("BatchIOGetStatus", batch, 2, 4, 2.0))
    lab.see("submit 5 of 4", lab.f("BatchIOSubmit", batch, [*ops, ops[0]], 0))
    lab.see("nr 0", lab.f("BatchIOSubmit", batch, [], 0))
    lab.see("cancel", lab.f("BatchIOCancel", batch))
    lab.see("destroy", lab.f("BatchIODestroy", batch))


for _name, _op in {
    "batch_bad_size": lambda p, h: BatchOp(p, 0, 0, 64 * MIB, h, 0),
    "batch_bad_handle": lambda p, h: BatchOp(p, 0, 0, 4096, 0, 0),
    "batch_bad_offset": lambda p, h: BatchOp(p, -1, 0, 4096, h, 0),
    "batch_bad_opcode": lambda p, h: BatchOp(p, 0, 0, 4096, h, 9),
    "batch_eof": lambda p, h: BatchOp(p, 8 * MIB - 100, 0, 4096, h, 0),
    "batch_too_large": lambda p, h: BatchOp(p, 0, 4 * MIB, 4096, h, 0),
    "batch_null_buffer": lambda p, h: BatchOp(0, 0, 0, 4096, h, 0),
}.items():

    def _batch_case(lab: Lab, make: Callable[[int, int], BatchOp] = _op) -> None:
        handle, p, _ = lab.warm()
        _, batch = lab.f("BatchIOSetUp", 4)
        lab.see("submit", lab.f("BatchIOSubmit", batch, [BatchOp(p, 0, 0, 4096, handle, 0, 1), make(p, handle)], 0))
        for _ in range(10):
            lab.see("status", lab.f("BatchIOGetStatus", batch, 0, 4, 0.0))
            time.sleep(0.03)

    PROBES[_name] = _batch_case


@probe
def batch_null_calls(lab: Lab) -> None:
    lab.f("DriverOpen")
    _, batch = lab.f("BatchIOSetUp", 4)
    lab.see("cancel null", lab.f("BatchIOCancel", 0))
    lab.see("submit null array", lab.t.call_hipFileBatchIOSubmit(batch, None, 0, 1))


# --------------------------------------------------------------------------------------------------------- CUDA runtime
@probe
def cuda_null_stream(lab: Lab) -> None:
    for kind in ("value", "host"):
        lab.spares()
        streams = {"null": 0, "per-thread": 2, "blocking": lab.stream(0), "blocking 2": lab.stream(0),
                   "non-blocking": lab.stream(1), "non-blocking 2": lab.stream(1)}
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
    lab.see("never recorded: query, wait, synchronise", [h("EventQuery", event), h("StreamWaitEvent", stream, event, 0), h("EventSynchronize", event)])
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
        lab.see(f"{kind}: waiter on an old pending record; query of the event", [h("StreamQuery", waiter), h("EventQuery", first)])
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
    lab.see("blocking sync, timing off, both, interprocess alone", [h("EventCreateWithFlags", n)[0] for n in (1, 2, 3, 4)])
    lab.see("destroy null; query null; record null", [h("EventDestroy", 0), h("EventQuery", 0), h("EventRecord", 0, stream)])
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
        lab.see(f"{name} held: synchronise another stream", lab.blocked(lambda s=lab.stream(flags): h("StreamSynchronize", s), hold))
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
            lab.see(f"d2h {kind} {size}", lab.blocked(lambda s=source, n=size, t=stream, d=p: h("MemcpyAsync", s, d, n, D2H, t), hold, 0.4))
            h("StreamSynchronize", stream)
        a, b = C.create_string_buffer(size), C.create_string_buffer(size)
        hold = lab.t.hold(stream)
        lab.see(f"h2h pageable {size}", lab.blocked(lambda n=size, t=stream: h("MemcpyAsync", C.addressof(a), C.addressof(b), n, 0, t), hold, 0.4))
        q = lab.dev(size)
        hold = lab.t.hold(stream)
        lab.see(f"d2d {size}", lab.blocked(lambda n=size, t=stream, d=p: h("MemcpyAsync", d, q, n, D2D, t), hold, 0.4))
        hold = lab.t.hold(stream)
        lab.see(f"default kind h2d {size}", lab.blocked(lambda n=size, t=stream, d=p: h("MemcpyAsync", d, C.addressof(a), n, ANY, t), hold, 0.4))


@probe
def cuda_host_functions(lab: Lab) -> None:
    h = lab.h
    order: list[int] = []
    stream = lab.stream()
    for i in range(200):
        h("LaunchHostFunc", stream, lambda _, n=i: order.append(n), 0)
    h("StreamSynchronize", stream)
    lab.see("200 in order", order == list(range(200)))
    threads: list[int] = []
    streams = [lab.stream() for _ in range(4)]
    for s in streams:
        h("LaunchHostFunc", s, lambda _: threads.append(threading.get_native_id()), 0)
    h("DeviceSynchronize")
    lab.see("threads of 4 streams", [len(set(threads)), threading.get_native_id() in threads])
    seen: list[Any] = []
    a, b = streams[:2]
    for kind in ("host", "value"):
        hold = lab.t.hold(a, kind)
        h("LaunchHostFunc", b, lambda _: seen.append(1), 0)
        time.sleep(0.3)
        lab.see(f"a stream held by {kind}: another's host function runs", bool(seen))
        hold.release()
        h("DeviceSynchronize")
        seen.clear()
    h("LaunchHostFunc", a, lambda data: seen.append(data), 0x1234)
    h("StreamSynchronize", a)
    lab.see("user data", seen)
    lab.see("null function", lab.t.symbol("hipLaunchHostFunc")(C.c_void_p(a), None, None))
    h("GetLastError")


@probe
def cuda_calls_in_host_function(lab: Lab) -> None:
    h = lab.h
    seen: dict[str, Any] = {}
    stream, idle, event = lab.stream(), lab.stream(), lab.event()
    h("EventRecord", event, idle)
    h("StreamSynchronize", idle)
    p, pin = lab.dev(4096), lab.pinned(4096)

    def inside(_: int) -> None:
        seen["event query, finished"] = h("EventQuery", event)
        seen["stream query"] = h("StreamQuery", idle)
        seen["malloc"] = h("Malloc", 4096)[0]
        seen["free"] = h("Free", 0)
        seen["memcpy async"] = h("MemcpyAsync", p, pin, 16, H2D, idle)
        seen["memset async"] = h("MemsetAsync", p, 0, 16, idle)
        seen["event record"] = h("EventRecord", event, idle)
        seen["event create"] = h("EventCreate")[0]
        seen["stream create"] = h("StreamCreate")[0]
        seen["get device"] = h("GetDevice")
        seen["set device"] = h("SetDevice", 0)
        seen["pointer attributes"] = h("PointerGetAttributes", p)[0]
        seen["mem get info"] = h("MemGetInfo")[0]
        seen["launch host func"] = h("LaunchHostFunc", idle, lambda _: None, 0)
        seen["peek"] = h("PeekAtLastError")
        seen["get last"] = h("GetLastError")
        seen["peek again"] = h("PeekAtLastError")

    h("LaunchHostFunc", stream, inside, 0)
    lab.see("synchronise", h("StreamSynchronize", stream))
    for key, value in seen.items():
        lab.see(key, value)
    lab.see("last error outside", h("PeekAtLastError"))


@probe
def cuda_sync_in_host_function(lab: Lab) -> None:
    seen: list[Any] = []
    stream, idle = lab.stream(), lab.stream()
    lab.h("LaunchHostFunc", stream, lambda _: seen.append(lab.h("StreamSynchronize", idle)), 0)
    lab.see("synchronise an idle stream inside", [lab.h("StreamSynchronize", stream), seen])
    lab.h("LaunchHostFunc", stream, lambda _: seen.append(lab.h("DeviceSynchronize")), 0)
    lab.see("synchronise the device inside", [lab.h("StreamSynchronize", stream), seen])


@probe
def cuda_callback(lab: Lab) -> None:
    seen: list[Any] = []
    stream = lab.stream()
    lab.see("add", lab.h("StreamAddCallback", stream, lambda s, status, data: seen.append((s == stream, status, data)), 5, 0))
    lab.see("synchronise", lab.h("StreamSynchronize", stream))
    lab.see("seen", seen)
    lab.see("flags 1", lab.h("StreamAddCallback", stream, lambda *a: None, 5, 1))


@probe
def cuda_last_error(lab: Lab) -> None:
    h = lab.h
    lab.see("start", [h("PeekAtLastError"), h("GetLastError")])
    lab.see("fail", h("SetDevice", 99))
    lab.see("peek, a success, peek", [h("PeekAtLastError"), h("GetDevice"), h("PeekAtLastError")])
    other: list[int] = []
    thread = threading.Thread(target=lambda: other.append(h("PeekAtLastError")))
    thread.start()
    thread.join()
    lab.see("another thread", other)
    lab.see("get, get", [h("GetLastError"), h("GetLastError")])
    h("SetDevice", 99)
    h("Free", 0xDEAD000)
    lab.see("two failures: the last", h("GetLastError"))


@probe
def cuda_memory(lab: Lab) -> None:
    h = lab.h
    lab.see("malloc 0", h("Malloc", 0))
    code, p = h("Malloc", 1 << 50)
    lab.see("malloc too much", [code, p])
    lab.see("pinned 0", h("HostMalloc", 0, 0))
    lab.see("pinned bad flags", h("HostMalloc", 64, 0xF000)[0])
    p = lab.dev(4096)
    lab.see("free null; interior; twice", [h("Free", 0), h("Free", p + 16), h("Free", p), h("Free", p)])
    pin = lab.pinned(4096)
    host = C.create_string_buffer(1 << 16)
    lab.see("free of pinned by hipFree", h("Free", pin))
    p = lab.dev(4096)
    lab.see("free of device by hipHostFree", h("HostFree", p))
    lab.see("free of plain host: device, pinned", [h("Free", C.addressof(host)), h("HostFree", C.addressof(host))])
    lab.see("free pinned null, twice", [h("HostFree", 0), h("HostFree", lab_pin := lab.pinned(64)), h("HostFree", lab_pin)])
    q = lab.dev(4096)
    a = C.addressof(host)
    lab.see("memcpy size 0", [h("Memcpy", q, a, 0, H2D), h("Memcpy", 0, 0, 0, H2D)])
    lab.see("memcpy null dst / src", [h("Memcpy", 0, a, 16, H2D), h("Memcpy", q, 0, 16, H2D)])
    lab.see("memcpy kinds as H2H,H2D,D2H,D2D,default for host to device", [h("Memcpy", q, a, 16, k) for k in (1, 4)])
    lab.see("memcpy bad kind", h("Memcpy", q, a, 16, 9))
    lab.see("memcpy wrong kind: d2h for h2d", h("Memcpy", q, a, 16, D2H))
    lab.see("memcpy past the end", h("Memcpy", q, a, 8192, H2D))
    lab.see("memcpy past the end, far", h("Memcpy", q, a, 1 << 15, H2D))
    lab.see("memset past the end", h("Memset", q, 0, 64 * MIB))
    lab.see("memset null", h("Memset", 0, 0, 16))
    lab.see("memset size 0", h("Memset", q, 0, 0))
    lab.see("memset value 0x1234", [h("Memset", q, 0x1234, 16), lab.bytes(q, 2).hex()])
    lab.see("address range: base, interior, end, host, null", [h("MemGetAddressRange", x)[0] for x in (q, q + 100, q + 4096, a, 0)])
    code, base, size = h("MemGetAddressRange", q + 100)
    lab.see("address range interior", [code, base == q, size])
    for name, pointer in {"device": q, "interior": q + 100, "pinned": pin, "plain host": a, "null": 0, "freed": p, "garbage": 0x1234}.items():
        lab.see(f"attributes {name}", [h("PointerGetAttributes", pointer), pointer])
    code, managed = h("MallocManaged", 4096, 1)
    lab.see("attributes managed", [h("PointerGetAttributes", managed), managed])
    lab.see("host register, twice", [h("HostRegister", a, 4096, 0), h("HostRegister", a, 4096, 0)])
    lab.see("attributes registered", h("PointerGetAttributes", a))
    lab.see("host unregister, twice", [h("HostUnregister", a), h("HostUnregister", a)])
    lab.see("host register null, size 0", [h("HostRegister", 0, 4096, 0), h("HostRegister", a, 0, 0)])
    lab.see("device pointer of pinned / plain / device", [h("HostGetDevicePointer", x, 0) for x in (lab.pinned(64), a, q)])
    lab.see("mem get info", h("MemGetInfo"))
    lab.see("alignment of allocations", [lab.dev(1) % 512, lab.dev(513) % 512, lab.pinned(1) % 4096])


@probe
def cuda_streams(lab: Lab) -> None:
    h = lab.h
    lab.see("create with flags 2, 7", [h("StreamCreateWithFlags", n)[0] for n in (2, 7)])
    code, s = h("StreamCreate")
    lab.see("plain: flags, priority, device", [h("StreamGetFlags", s), h("StreamGetPriority", s), h("StreamGetDevice", s)])
    lab.see("non-blocking: flags", h("StreamGetFlags", lab.stream(1)))
    lab.see("null: flags, priority, device", [h("StreamGetFlags", 0), h("StreamGetPriority", 0), h("StreamGetDevice", 0)])
    lab.see("legacy and per-thread: flags", [h("StreamGetFlags", 1), h("StreamGetFlags", 2)])
    for priority in (-9, -5, -1, 0, 1):
        code, s = h("StreamCreateWithPriority", 1, priority)
        lab.see(f"priority {priority}", [code, h("StreamGetPriority", s)])
    lab.see("destroy null, legacy, per-thread", [h("StreamDestroy", n) for n in (0, 1, 2)])
    lab.see("query null, legacy, per-thread", [h("StreamQuery", n) for n in (0, 1, 2)])
    lab.see("devices", [h("GetDeviceCount"), h("GetDevice"), h("SetDevice", 99), h("SetDevice", -1)])
    out: list[Any] = []
    thread = threading.Thread(target=lambda: out.append(h("GetDevice")))
    thread.start()
    thread.join()
    lab.see("device of a fresh thread", out)
    lab.see("names", [[h("GetErrorName", n), h("GetErrorString", n)] for n in (0, 1, 2, 101, 400, 600, 800, 99999)])
    lab.see("init flags 0, 1", [h("Init", 0), h("Init", 1)])


@probe
def cuda_stream_use_after_destroy(lab: Lab) -> None:
    stream = lab.stream()
    lab.see("destroy", lab.h("StreamDestroy", stream))
    lab.see("query", lab.h("StreamQuery", stream))
    lab.see("get device", lab.h("StreamGetDevice", stream))
    lab.see("hipFile register", lab.f("StreamRegister", stream, 0))
    lab.see("destroy twice", lab.h("StreamDestroy", stream))


@probe
def cuda_stream_garbage(lab: Lab) -> None:
    lab.see("query of a garbage stream", lab.h("StreamQuery", 0x12345670))


@probe
def cuda_stream_destroy_pending(lab: Lab) -> None:
    stream, p = lab.stream(), lab.pinned(64)
    d = lab.dev(64, 0x11)
    hold = lab.t.hold(stream)
    lab.h("MemcpyAsync", p, d, 64, D2H, stream)
    lab.see("destroy with work pending", lab.blocked(lambda: lab.h("StreamDestroy", stream)))
    lab.see("not yet", C.c_uint8.from_address(p).value)
    hold.release()
    lab.h("DeviceSynchronize")
    time.sleep(0.1)
    lab.see("the work completed", C.c_uint8.from_address(p).value)


@probe
def cuda_values(lab: Lab) -> None:
    h = lab.h
    stream, cell = lab.stream(), lab.pinned(64)
    word = C.c_uint64.from_address(cell)
    lab.see("write 64", [h("StreamWriteValue64", stream, cell, 77, 0), h("StreamSynchronize", stream), word.value])
    lab.see("write 32", [h("StreamWriteValue32", stream, cell, 5, 0), h("StreamSynchronize", stream), word.value])
    for name, flag, start, target in (("gte", 0, 4, 5), ("eq", 1, 4, 5), ("and", 2, 2, 1), ("nor", 3, (1 << 64) - 1, 0)):
        word.value = start
        other = lab.stream()
        code = h("StreamWaitValue64", other, cell, max(target, 1), flag, (1 << 64) - 1)
        lab.h("StreamQuery", other)
        time.sleep(0.05)
        waiting = h("StreamQuery", other)
        word.value = {"gte": 9, "eq": 5, "and": 3, "nor": 0}[name]
        time.sleep(0.05)
        lab.see(name, [code, waiting, h("StreamQuery", other)])
        h("GetLastError")
        if h("StreamQuery", other):
            word.value = 0
    lab.see("bad pointer: null, plain host, misaligned", [
        h("StreamWaitValue64", stream, 0, 1, 0, 1), h("StreamWaitValue64", stream, cell + 1, 1, 0, 1), h("StreamWriteValue64", stream, 0, 1, 0)])


@probe
def cuda_queue_depth(lab: Lab) -> None:
    stream = lab.stream()
    p = lab.dev(64)
    for what, act in {
        "memset": lambda: lab.h("MemsetAsync", p, 0, 64, stream),
        "event record": lambda e=lab.event(2): lab.h("EventRecord", e, stream),
        "host function": lambda: lab.h("LaunchHostFunc", stream, lambda _: None, 0),
    }.items():
        hold = lab.t.hold(stream)
        counted = [0]

        def submit(act: Callable[[], Any] = act, hold: Hold = hold, counted: list[int] = counted) -> None:
            for _ in range(5000):
                if hold.released:
                    break
                act()
                counted[0] += 1

        thread = threading.Thread(target=submit, daemon=True)
        thread.start()
        last = -1
        for _ in range(40):
            time.sleep(0.1)
            if counted[0] == last:
                break
            last = counted[0]
        lab.see(f"{what}: queued before the call blocks", counted[0])
        hold.release()
        thread.join(5)
        lab.h("DeviceSynchronize")


# ------------------------------------------------------------------------------------------------------------------ main
def run_probe(name: str, folder: str, limit: float) -> dict[str, Any]:
    command = [sys.executable, "-u", os.path.abspath(__file__), "--one", name, "--folder", folder]
    start = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=limit)
            end = f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            end = f"killed after {limit:g} s"
        errors.seek(0)
        noise = errors.read().decode(errors="replace").strip().splitlines()[-6:]
    seen = []
    for line in output.decode(errors="replace").splitlines():
        try:
            seen.append(json.loads(line))
        except ValueError:
            seen.append(["?", line])
    return {"probe": name, "end": end, "s": round(time.perf_counter() - start, 2), "seen": seen, "stderr": noise}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", help="run one probe in this process")
    parser.add_argument("--folder", default=None, help="folder for test files (not tmpfs)")
    parser.add_argument("--out", default=".", help="where measure.json and measure.txt go")
    parser.add_argument("--only", default="*")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one probe")
    options = parser.parse_args()
    if options.one:
        try:
            PROBES[options.one](Lab(options.folder))
        except Unsupported as error:
            print(json.dumps(["unsupported", str(error)]), flush=True)
        sys.stdout.flush()
        os._exit(0)  # a stream that still waits must not hold the exit
    folder = options.folder or tempfile.mkdtemp(prefix="measure-", dir=os.path.expanduser("~"))
    os.makedirs(folder, exist_ok=True)
    names = [name for name in PROBES if fnmatch.fnmatch(name, options.only)]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda name: run_probe(name, folder, options.limit), names))
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "measure.json").write_text(json.dumps({"date": time.strftime("%Y-%m-%d"), "results": results}, indent=1))
    with open(out / "measure.txt", "w") as text:
        for result in results:
            print(f"== {result['probe']} ({result['end']}, {result['s']} s)", file=text)
            for key, value in result["seen"]:
                print(f"   {key}: {json.dumps(value)}", file=text)
            for line in result["stderr"]:
                print(f"   ! {line[:300]}", file=text)
    bad = [f"{r['probe']}: {r['end']}" for r in results if r["end"] != "exit 0"]
    print(f"{len(results)} probes, {sum(len(r['seen']) for r in results)} observations; not clean: {bad or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
