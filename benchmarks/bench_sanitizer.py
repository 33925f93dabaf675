"""What the sanitizer costs."""

from __future__ import annotations

import ctypes
import os
import tempfile
import time

from harness import Figure, benchmark, rss

from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.machine import Machine
from hipfile_sim.observe.observer import Observer
from hipfile_sim.observe.sanitizer import Sanitizer

SIZE = 4096


class _Run:
    """A machine, a file and 100 sets of slots; `hundred` submits and completes 100 reads."""

    def __init__(self, fd: int, observer: Observer | None) -> None:
        self.machine = Machine(1, observers=[] if observer is None else [observer])
        hip, hipfile = self.machine.hip, self.machine.hipfile
        self.stream = hip.hipStreamCreateWithFlags(1)[1]
        self.memory = hip.hipMalloc(SIZE)[1]
        self.handle = hipfile.hipFileHandleRegister(FileDescr(1, fd))[1]
        hipfile.hipFileBufRegister(self.memory, SIZE)
        hipfile.hipFileStreamRegister(self.stream, 0)
        self.slots = [(ctypes.c_int64 * 4)(SIZE, 0, 0, 0) for _ in range(100)]

    def hundred(self) -> None:
        submit, stream, memory, handle = self.machine.hipfile.hipFileReadAsync, self.stream, self.memory, self.handle
        seen = self.machine.host_access
        for slots in self.slots:
            base = ctypes.addressof(slots)
            seen(base, 32, write=True, what="slots set")
            submit(handle, memory, base, base + 8, base + 16, base + 24, stream)
        self.machine.hip.hipStreamSynchronize(stream)
        for slots in self.slots:
            seen(ctypes.addressof(slots) + 24, 8, write=False, what="bytes_done read")
            assert slots[3] == SIZE


def _hundreds(rounds: int, *observers: Observer | None) -> list[float]:
    """Best processor seconds of `hundred` with each of `observers`, in turns: a busy machine slows all of them."""
    seconds = [float("inf")] * len(observers)
    with tempfile.NamedTemporaryFile(dir=".") as file:
        file.write(bytes(SIZE))
        file.flush()
        runs = [_Run(os.open(file.name, os.O_RDONLY), observer) for observer in observers]
        for _ in range(rounds):
            for number, run in enumerate(runs):
                start = time.thread_time()
                run.hundred()
                seconds[number] = min(seconds[number], time.thread_time() - start)
        for run in runs:
            run.machine.close()
    return seconds


@benchmark("sanitizer-100-operations", ("<=", 3.0))
def hundred_operations(quick: bool) -> Figure:
    """100 reads of 4 KiB submitted and completed, with the sanitizer against without observers."""
    sanitizer = Sanitizer()
    off, idle, on = _hundreds(20 if quick else 150, None, Observer(), sanitizer)
    assert not sanitizer.findings, sanitizer.format()
    detail = {"off ms": f"{off * 1e3:.2f}", "idle observer ms": f"{idle * 1e3:.2f}", "on ms": f"{on * 1e3:.2f}"}
    return Figure(on / off, detail=detail)


@benchmark("sanitizer-memory", ("<=", 16.0))
def memory(quick: bool) -> Figure:
    """MiB that the process grows by over 100,000 commands of two streams that hand new blocks to each other."""
    rounds = 5_000 if quick else 25_000
    sanitizer = Sanitizer("leak.*=off")
    with Machine(1, schedule="eager", observers=[sanitizer]) as machine:
        hip = machine.hip
        base = hip.hipMalloc(rounds * 2048)[1]
        one, two = hip.hipStreamCreateWithFlags(1)[1], hip.hipStreamCreateWithFlags(1)[1]
        event = hip.hipEventCreate()[1]
        before = rss()
        for number in range(rounds):
            block = base + number * 2048
            hip.launch(one, lambda: None, (), [(block, 2048)])
            hip.hipEventRecord(event, one)
            hip.hipStreamWaitEvent(two, event)
            hip.launch(two, lambda: None, [(block, 2048)])
            if number % 500 == 499:
                hip.hipStreamSynchronize(two)
    assert not sanitizer.findings
    return Figure((rss() - before) / 2**20, "MiB", {"records at the end": sanitizer.records})
