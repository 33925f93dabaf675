"""Small things that tests and programs share: sizes, slots, file patterns, codes as text."""

from __future__ import annotations

import ctypes
import errno
from array import array
from typing import Any

from hipfile_conformance.targets.base import IOResult
from hipfile_sim.driver.codes import ERROR_NAMES

__all__ = ["D2D", "D2H", "DEFAULT", "H2D", "KIB", "MIB", "SENTINEL", "Slots", "code_text", "io_text", "pattern"]

KIB, MIB = 1 << 10, 1 << 20
H2D, D2H, D2D, DEFAULT = 1, 2, 3, 4
SENTINEL = 77
"""What `Slots` puts into ``bytes_done`` before a call, to see whether the call touched it."""


class Slots:
    """The four caller-owned values behind an asynchronous call: size, file offset, buffer offset, bytes done."""

    __slots__ = ("cells",)
    NAMES = ("size", "file_offset", "buffer_offset", "done")

    def __init__(self, size: int, file_offset: int = 0, buffer_offset: int = 0, done: int = SENTINEL) -> None:
        self.cells = (ctypes.c_int64 * 4)(size, file_offset, buffer_offset, done)

    @property
    def addresses(self) -> tuple[int, int, int, int]:
        """Addresses of the four values."""
        base = ctypes.addressof(self.cells)
        return base, base + 8, base + 16, base + 24

    @property
    def done(self) -> int:
        """The value behind ``bytes_done`` now."""
        return int(self.cells[3])

    def set(self, **values: int) -> None:
        """Overwrite values by name."""
        for name, value in values.items():
            self.cells[self.NAMES.index(name)] = value


MADE = {
    "hipFileHandleRegister": ("hipFileHandleDeregister", True),
    "hipFileBufRegister": ("hipFileBufDeregister", False),
    "hipFileStreamRegister": ("hipFileStreamDeregister", False),
    "hipFileBatchIOSetUp": ("hipFileBatchIODestroy", True),
    "hipMalloc": ("hipFree", True),
    "hipHostMalloc": ("hipHostFree", True),
    "hipMallocManaged": ("hipFree", True),
    "hipStreamCreate": ("hipStreamDestroy", True),
    "hipStreamCreateWithFlags": ("hipStreamDestroy", True),
    "hipEventCreate": ("hipEventDestroy", True),
    "hipEventCreateWithFlags": ("hipEventDestroy", True),
}
"""What makes something, what undoes it, and whether its name comes back (or is the first argument)."""
GONE = {undo for undo, _ in MADE.values() if not undo.startswith("hipFile")}
"""Calls that certainly end what they are given; a deregistration may be refused and is tried again at the end."""


def pattern(size: int, start: int = 0) -> bytes:
    """`size` bytes of a file whose 4-byte word at offset o is o // 4; `start` is the offset of the first byte."""
    first = start // 4
    raw = array("I", range(first, (start + size + 3) // 4 + 1)).tobytes()
    return raw[start - first * 4 :][:size]


def io_text(result: IOResult) -> str:
    """A result of synchronous I/O the way clause answers write it."""
    count, number = int(result[0]), int(result[1])
    return f"-1/{errno.errorcode.get(number, number)}" if count == -1 else str(count)


def code_text(status: Any) -> str:
    """A code the way clause answers write it: without the prefix, HIP driver errors with their cause."""
    if isinstance(status, IOResult):
        return str(int(status[0]))
    if isinstance(status, tuple):
        err, drv = int(status[0]), int(status[1])
        if err == 5011:
            return f"{{HipDriverError, {drv}}}"
        return ERROR_NAMES.get(err, str(err)).removeprefix("hipFile")
    return str(int(status))
