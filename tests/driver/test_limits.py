"""Cost: memory and work of many operations in flight, and of one."""

from __future__ import annotations

import gc
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


@pytest.mark.parametrize("profile", ["0.2", "0.5"])
def test_work_is_linear(make_rig: Any, count_calls: Any, profile: str) -> None:
    """Eight times the operations in flight take eight times the calls; benchmarks/ has the time."""
    load = Load(make_rig(profile))

    def all_at_once(number: int) -> None:
        load.rig.hold(load.stream)
        load.submit(number)
        load.rig.release(load.stream)

    all_at_once(500)
    few, many = (count_calls(lambda number=number: all_at_once(number)) for number in (500, 4_000))
    assert many < 1.1 * 8 * few


def test_what_one_operation_costs(make_rig: Any, count_calls: Any) -> None:
    """One pread, and calls of functions that are few: a guard against accidents, for times see benchmarks/."""
    load = Load(make_rig("0.5", schedule="parallel"))

    def one() -> None:
        load.submit(1)
        load.rig.sync(load.stream)

    one()
    load.rig.files.log.clear()
    assert count_calls(one) < 400
    assert load.rig.files.log == [("pread", load.fd, 4096, 0)]
