"""What every probe needs: the target, small helpers, and :meth:`Lab.see`, which prints an observation at once."""

from __future__ import annotations

import ctypes as C
import json
import os
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hipfile_conformance.targets.base import Hold
from hipfile_conformance.targets.cufile import CuFileTarget

KIB, MIB = 1 << 10, 1 << 20
H2D, D2H, D2D, ANY = 1, 2, 3, 4
PROBES: dict[str, Callable[[Lab], None]] = {}
"""Probes by name; each runs in a process of its own."""


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

    def blocked(self, function: Callable[..., Any], hold: Hold | None = None, wait: float = 0.7) -> dict[str, Any]:
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
