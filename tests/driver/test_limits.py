"""Cost: memory and time of many operations in flight, and of one."""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from typing import Any

import pytest
from hipfile_driver_rig import Rig, Slots, pattern


class Load:
    """A held stream that takes reads of 4 KiB."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.fd, self.handle = rig.file(pattern(4096))
        self.pointer = rig.buffer(4096)
        self.stream = rig.stream(0)
        self.slots = Slots(4096)

    def submit(self, number: int) -> None:
        call, arguments = self.rig.f.hipFileReadAsync, (self.handle, self.pointer, *self.slots.pointers, self.stream)
        for _ in range(number):
            assert call(*arguments)[0] == 0


@pytest.mark.parametrize("number", [1_000, 20_000])
def test_memory_of_an_operation_in_flight(make_rig: Any, number: int) -> None:
    """At most 3 KiB each, everything counted: commands, operation, the engine's queue."""
    load = Load(make_rig("0.5"))
    load.submit(10)
    load.rig.sync(load.stream)
    load.rig.hold(load.stream)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        load.submit(number)
        each = (tracemalloc.get_traced_memory()[0] - before) / number
    finally:
        tracemalloc.stop()
    assert each < 3 * 1024
    assert len(load.rig.f.monitor.active) == number
    load.rig.release(load.stream)
    assert not load.rig.f.monitor.active


def _seconds(load: Load, number: int) -> float:
    load.rig.hold(load.stream)
    started = time.process_time()
    load.submit(number)
    load.rig.release(load.stream)
    return time.process_time() - started


@pytest.mark.parametrize("profile", ["0.2", "0.5"])
def test_time_is_linear(make_rig: Any, profile: str) -> None:
    """Sixteen times the operations take less than three times sixteen times as long (machines are noisy)."""
    load = Load(make_rig(profile))
    _seconds(load, 500)
    small = min(_seconds(load, 500) for _ in range(3))
    assert _seconds(load, 8_000) < 3 * 16 * small


def test_one_operation_costs_a_few_reads(make_rig: Any) -> None:
    """A guard against accidents, far above the figure that the benchmark reports."""
    load = Load(make_rig("0.5", schedule="parallel"))

    def each(action: Any, number: int) -> float:
        started = time.perf_counter()
        for _ in range(number):
            action()
        return (time.perf_counter() - started) / number

    def one() -> None:
        load.submit(1)
        load.rig.sync(load.stream)

    one()
    read = min(each(lambda: os.pread(load.fd, 4096, 0), 200) for _ in range(20))
    assert min(each(one, 50) for _ in range(20)) < 200 * read
