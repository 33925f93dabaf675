"""What the model costs against the system calls and copies that it makes."""

from __future__ import annotations

import ctypes
import math
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from harness import Figure, benchmark, best, rss

from hipfile_sim import Machine
from hipfile_sim.driver.codes import FileDescr

MiB = 1 << 20


class Slots:
    """The slots of many operations, in one array of the caller's: size, file offset, buffer offset, bytes done."""

    def __init__(self, count: int) -> None:
        self.array = np.zeros((count, 4), dtype=np.int64)
        self.base = self.array.ctypes.data

    def fill(self, row: int, size: int, file_offset: int, buffer_offset: int) -> tuple[int, int, int, int]:
        self.array[row] = (size, file_offset, buffer_offset, 0)
        at = self.base + 32 * row
        return at, at + 8, at + 16, at + 24


@contextmanager
def cached_file(nbytes: int) -> Iterator[str]:
    """A file that lies in the page cache."""
    with tempfile.NamedTemporaryFile(dir=".", prefix="bench-") as file:
        block = os.urandom(MiB)
        for _ in range(-(-nbytes // MiB)):
            file.write(block)
        file.truncate(nbytes)
        file.flush()
        with open(file.name, "rb") as again:
            while again.read(16 * MiB):
                pass
        yield file.name


@contextmanager
def opened(machine: Machine, path: str) -> Iterator[int]:
    """A registered file handle."""
    fd = os.open(path, os.O_RDONLY)
    status, handle = machine.hipfile.hipFileHandleRegister(FileDescr(1, fd))
    assert not status.err, status
    try:
        yield handle
    finally:
        machine.hipfile.hipFileHandleDeregister(handle)
        os.close(fd)


def stream_and_buffer(machine: Machine, nbytes: int, flags: int = 7) -> tuple[int, int]:
    """A registered stream and a registered buffer."""
    hip, hipfile = machine.hip, machine.hipfile
    hipfile.hipFileDriverOpen()
    code, buffer = hip.hipMalloc(nbytes)
    assert not code
    code, stream = hip.hipStreamCreateWithFlags(1)
    assert not code
    assert not hipfile.hipFileBufRegister(buffer, nbytes, 0).err
    assert not hipfile.hipFileStreamRegister(stream, flags).err
    return stream, buffer


@benchmark("read-16MiB-threads", (">=", 0.8))
def read_threads(quick: bool) -> Figure:
    """Throughput of 16 MiB async reads (threads engine, profile 0.5) against the bare preadv and copies."""
    total, size = (256 if quick else 1024) * MiB, 16 * MiB
    count = total // size
    with cached_file(total) as path, Machine(1, profile="0.5", engine="threads", env={}) as machine:
        stream, buffer = stream_and_buffer(machine, 4 * size)
        slots = Slots(count)
        bounce = np.zeros(size, dtype=np.uint8)
        bounce_view = memoryview(bounce)
        target = np.frombuffer(machine.memory.view(buffer, 4 * size), dtype=np.uint8)
        fd = os.open(path, os.O_RDONLY)

        def bare() -> None:
            for number in range(count):
                done = os.preadv(fd, [bounce_view], number * size)
                at = (number % 4) * size
                ctypes.memmove(target.ctypes.data + at, bounce.ctypes.data, done)

        with opened(machine, path) as handle:

            def model() -> None:
                for number in range(count):
                    pointers = slots.fill(number, size, number * size, (number % 4) * size)
                    status = machine.hipfile.hipFileReadAsync(handle, buffer, *pointers, stream)
                    assert not status.err, status
                machine.hip.hipStreamSynchronize(stream)
                assert (slots.array[:, 3] == size).all()

            bare()
            model()
            bare_s, model_s = float("inf"), float("inf")
            for _ in range(3 if quick else 5):  # in turn, so that both see the same machine
                bare_s, model_s = min(bare_s, best(bare, 1)), min(model_s, best(model, 1))
        os.close(fd)
    gib = total / (1 << 30)
    return Figure(bare_s / model_s, detail={"model GiB/s": f"{gib / model_s:.2f}", "bare GiB/s": f"{gib / bare_s:.2f}"})


@benchmark("read-4KiB-steps", ("<=", 60.0))
def read_small(quick: bool) -> Figure:
    """A 4 KiB async read, submitted and completed (steps engine, no observers), against one os.pread of 4 KiB."""
    rounds = 500 if quick else 3000
    with cached_file(4096) as path, Machine(1, profile="0.5", env={}) as machine:
        stream, buffer = stream_and_buffer(machine, 4096)
        slots = Slots(1)
        pointers = slots.fill(0, 4096, 0, 0)
        hipfile, hip = machine.hipfile, machine.hip
        fd = os.open(path, os.O_RDONLY)

        def pread() -> None:
            for _ in range(rounds):
                os.pread(fd, 4096, 0)

        with opened(machine, path) as handle:

            def model() -> None:
                for _ in range(rounds):
                    hipfile.hipFileReadAsync(handle, buffer, *pointers, stream)
                    hip.hipStreamSynchronize(stream)

            model()
            assert slots.array[0, 3] == 4096
            pread_s, model_s = best(pread, 5) / rounds, best(model, 5) / rounds
        os.close(fd)
    return Figure(model_s / pread_s, detail={"model us": f"{model_s * 1e6:.1f}", "pread us": f"{pread_s * 1e6:.2f}"})


def _outstanding(count: int) -> tuple[float, float]:
    """Seconds an operation, and bytes an operation, of `count` operations that are all submitted before any runs."""
    with cached_file(4096) as path, Machine(1, profile="0.5", schedule="lazy", env={}) as machine:
        stream, buffer = stream_and_buffer(machine, 4096)
        slots = Slots(count)
        rows = [slots.fill(row, 4096, 0, 0) for row in range(count)]
        with opened(machine, path) as handle:
            before = rss()
            start = time.perf_counter()
            for pointers in rows:
                machine.hipfile.hipFileReadAsync(handle, buffer, *pointers, stream)
            held = rss() - before
            machine.hip.hipStreamSynchronize(stream)
            seconds = time.perf_counter() - start
        assert (slots.array[:, 3] == 4096).all()
    return seconds / count, held / count


@benchmark("outstanding-memory", ("<=", 3072.0))
def outstanding_memory(quick: bool) -> Figure:
    """Bytes an operation while 100,000 are outstanding."""
    count = 20_000 if quick else 100_000
    _, held = _outstanding(count)
    return Figure(held, "B", {"operations": count})


@benchmark("outstanding-growth", ("<=", 1.2))
def outstanding_growth(quick: bool) -> Figure:
    """The k of time ~ n^k, from 1,000 to 100,000 operations outstanding; 1 is linear, 2 quadratic."""
    few, many = 1_000, 20_000 if quick else 100_000
    few_s = many_s = float("inf")
    for _ in range(3):  # in turn, so that both see the same machine
        few_s = min(few_s, *(_outstanding(few)[0] for _ in range(5)))
        many_s = min(many_s, _outstanding(many)[0])
    k = 1 + math.log(many_s / few_s) / math.log(many / few)
    return Figure(k, "", {f"us each of {few}": f"{few_s * 1e6:.1f}", f"us each of {many}": f"{many_s * 1e6:.1f}"})


@benchmark("fresh-machine", ("<=", 1.0))
def fresh_machine(quick: bool) -> Figure:
    """A fresh Machine, made and closed."""
    rounds = 50 if quick else 300

    def make() -> None:
        for _ in range(rounds):
            Machine(2, env={}).close()

    make()
    return Figure(best(make, 5) / rounds * 1e3, "ms")
