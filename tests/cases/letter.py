"""What the programs of the cases are written with, and how a report is checked: both places, by their source lines."""

from __future__ import annotations

import ctypes
import linecache
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hipfile_mock import fake
from hipfile_sim import Machine
from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.observe.sanitizer import Sanitizer

KIB, MIB = 1024, 1 << 20
SLOW = 50_000_000
"""Virtual ns of a kernel that is slower than anything else."""
H2D, D2H = 1, 2
BLOCKING, NON_BLOCKING = 0, 1
FILL = 0xFC
"""What device memory holds before anything happens; not in `pattern`."""
PATTERN = bytes(range(1, 252))


def pattern(size: int, start: int = 0) -> bytes:
    """Bytes that show where they came from; never 0, 0xDB or 0xFF runs."""
    return (PATTERN * (size // len(PATTERN) + 2))[start % len(PATTERN) :][:size]


def slab(folder: Path, size: int = 64 * KIB, name: str = "slab.bin", data: bytes | None = None) -> Path:
    """A file with `pattern`."""
    path = folder / name
    path.write_bytes(pattern(size) if data is None else data)
    return path


def lines(finding: Any) -> list[str]:
    """The user's source lines that a finding names."""
    return [linecache.getline(place.site.filename, place.site.line).strip() for place in finding.places if place.site]


def reported(watched: Any, id: str, *fragments: str) -> Any:
    """The only finding with this id. Each fragment must be in a source line that it names, each in another place."""
    sanitizer = getattr(watched, "sanitizer", watched)
    found = [finding for finding in sanitizer.findings if finding.id == id]
    assert len(found) == 1, f"{len(found)} findings {id}; all:\n{sanitizer.format('text')}"
    left = lines(found[0])
    for fragment in fragments:
        match = next((line for line in left if fragment in line), None)
        assert match is not None, f"no place with {fragment!r} left among {left}:\n{sanitizer.format('text')}"
        left.remove(match)
    return found[0]


def serious(watched: Any) -> list[str]:
    """Ids of errors and warnings, leaks of plain HIP objects aside."""
    sanitizer = getattr(watched, "sanitizer", watched)
    return sorted(f.id for f in sanitizer.findings if f.severity != "note" and not f.id.startswith("leak."))


def quiet(watched: Any) -> None:
    """Nothing serious has been found: false alarms cost trust."""
    sanitizer = getattr(watched, "sanitizer", watched)
    assert serious(watched) == [], sanitizer.format("text")


class Slots(ctypes.Structure):
    """The four slots of a C caller. Nobody is told when Python touches them."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("file_offset", ctypes.c_int64),
        ("buffer_offset", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
    )

    @property
    def pointers(self) -> tuple[int, int, int, int]:
        base = ctypes.addressof(self)
        return base, base + 8, base + 16, base + 24


class C:
    """C calls on a machine of its own, each checked: what a small C program would do."""

    def __init__(self, **options: Any) -> None:
        self.sanitizer = Sanitizer()
        self.machine = Machine(observers=[self.sanitizer], **options)
        self.hip, self.hipfile, self.memory = self.machine.hip, self.machine.hipfile, self.machine.memory
        self.fds: list[int] = []

    def malloc(self, size: int = 64 * KIB, fill: int | None = FILL) -> int:
        code, pointer = self.hip.hipMalloc(size)
        assert code == 0
        if fill is not None:
            assert self.hip.hipMemset(pointer, fill, size) == 0
        return pointer

    def buffer(self, size: int = 64 * KIB, fill: int | None = FILL) -> int:
        pointer = self.malloc(size, fill)
        assert self.hipfile.hipFileBufRegister(pointer, size, 0).err == 0
        return pointer

    def stream(self, kind: int = NON_BLOCKING, *, register: int | None = None) -> int:
        code, stream = self.hip.hipStreamCreateWithFlags(kind)
        assert code == 0
        if register is not None:
            assert self.hipfile.hipFileStreamRegister(stream, register).err == 0
        return stream

    def event(self) -> int:
        code, event = self.hip.hipEventCreate()
        assert code == 0
        return event

    def file(self, path: Path | str, flags: int = os.O_RDWR) -> int:
        fd = os.open(path, flags)
        self.fds.append(fd)
        status, handle = self.hipfile.hipFileHandleRegister(FileDescr(1, fd))
        assert status.err == 0, status
        return handle

    def bytes_at(self, pointer: int, size: int) -> bytes:
        return bytes(self.memory.view(pointer, size))


@contextmanager
def c_program(**options: Any) -> Iterator[C]:
    """A machine for C calls."""
    program = C(**options)
    try:
        with program.machine:
            yield program
    finally:
        for fd in program.fds:
            try:
                os.close(fd)
            except OSError:  # a program of C16 closed it
                pass


def device(session: Any, size: int = 4096, fill: int = FILL) -> int:
    """Device memory with something in it."""
    pointer: int = session.hip.hipMalloc(size)[1]
    assert session.hip.hipMemset(pointer, fill, size) == 0
    return pointer


def watched(**options: Any) -> Any:
    """The doubles in place, findings collected."""
    return fake(strict=False, **options)
