"""Order of operations with other work: streams, events, the null stream, host functions, and nothing at all."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from hipfile_driver_rig import AMD, Slots, pattern

amd = pytest.mark.parametrize("profile", AMD)
SCHEDULES = ("lazy", "eager", "parallel", "roundrobin", "seeded:1")
any_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


@amd
@any_schedule
def test_work_on_the_same_stream(make_rig: Any, profile: str, schedule: str) -> None:
    """A set, a write of it, a set, a read over it: each sees what was before it."""
    rig = make_rig(profile, schedule=schedule)
    fd, handle = rig.file(pattern(64))
    pointer, stream = rig.buffer(64), rig.stream(0)
    slots, again = Slots(64), Slots(32)
    rig.hip.hipMemsetAsync(pointer, 1, 64, stream)
    assert rig.write(handle, pointer, slots, stream) == 0
    rig.hip.hipMemsetAsync(pointer, 2, 64, stream)
    assert rig.read(handle, pointer, again, stream) == 0
    rig.sync(stream)
    assert os.pread(fd, 64, 0) == b"\x01" * 64
    assert rig.peek(pointer, 64) == b"\x01" * 32 + b"\x02" * 32


@amd
@any_schedule
def test_an_event_orders_two_streams(make_rig: Any, profile: str, schedule: str) -> None:
    rig = make_rig(profile, schedule=schedule)
    fd, handle = rig.file(pattern(64))
    pointer, side, compute = rig.buffer(64), rig.stream(0), rig.stream(None)
    event = rig.hip.hipEventCreate()[1]
    rig.hip.hipMemsetAsync(pointer, 7, 64, compute)
    rig.hip.hipEventRecord(event, compute)
    rig.hip.hipStreamWaitEvent(side, event, 0)
    slots = Slots(64)
    assert rig.write(handle, pointer, slots, side) == 0
    rig.sync(side)
    assert slots.done == 64
    assert os.pread(fd, 64, 0) == b"\x07" * 64


@amd
def test_without_an_event_the_old_bytes_can_be_written(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    fd, handle = rig.file(bytes(64))
    pointer, side, compute = rig.buffer(64, b"o" * 64), rig.stream(0), rig.stream(None)
    rig.hold(compute)
    rig.hip.hipMemsetAsync(pointer, ord("n"), 64, compute)
    slots = Slots(64)
    assert rig.write(handle, pointer, slots, side) == 0
    rig.sync(side)
    assert os.pread(fd, 64, 0) == b"o" * 64
    rig.release(compute)


@amd
@pytest.mark.parametrize("blocking", [False, True], ids=["non-blocking", "blocking"])
def test_null_stream_both_ways(make_rig: Any, profile: str, blocking: bool, expect_deadlock: Any) -> None:
    """A blocking stream and the null stream wait for each other; a non-blocking one is on its own."""
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))
    pointer, stream = rig.buffer(64), rig.stream(0, blocking=blocking)
    for held, used in ((0, stream), (stream, 0)):
        slots = Slots(64)
        rig.hold(held)
        rig.hip.hipMemsetAsync(pointer, 1, 1, held)
        assert rig.read(handle, pointer, slots, used) == 0
        if blocking:
            with expect_deadlock(rig.machine.engine):
                rig.hip.hipStreamSynchronize(used)
            assert slots.done == 0
        elif used == stream:
            rig.sync(used)
            assert slots.done == 64
        rig.release(held)
        rig.sync(used)
        assert slots.done == 64


@amd
@pytest.mark.parametrize("threads", ["one", "per-stream"])
def test_a_blocked_host_function_of_another_stream(
    make_rig: Any, profile: str, threads: str, expect_deadlock: Any
) -> None:
    """Where one thread runs all host functions, those of hipFile wait for the user's."""
    rig = make_rig(profile, hip={"host_function_threads": threads})
    _, handle = rig.file(pattern(64))
    pointer, stream, other = rig.buffer(64), rig.stream(0), rig.stream(None)
    gate = threading.Event()
    rig.hip.hipLaunchHostFunc(other, lambda _: gate.wait(60), None)
    started = threading.Event()
    rig.hip.hipLaunchHostFunc(other, lambda _: started.set(), None)
    slots = Slots(64)
    rig.machine.engine.host_point("test")
    assert rig.read(handle, pointer, slots, stream) == 0
    if threads == "one":
        rig.stream(None)
        rig.machine.stall(stream)  # whatever the schedule: the host function begins first
        with expect_deadlock(rig.machine.engine):
            rig.hip.hipStreamSynchronize(other)
        with expect_deadlock(rig.machine.engine):
            rig.hip.hipStreamSynchronize(stream)
        assert slots.done == 0
        rig.machine.unstall(stream)
    else:
        rig.sync(stream)
        assert slots.done == 64
    gate.set()
    rig.sync(other)
    assert started.is_set()
    rig.sync(stream)
    assert slots.done == 64


@amd
def test_queue_limit(make_rig: Any, profile: str, expect_deadlock: Any) -> None:
    """With a limit, submitting past it waits for the stream; holding that stream oneself is a deadlock, reported."""
    rig = make_rig(profile, hip={"queue_limit": 8})
    _, handle = rig.file(pattern(64))
    pointer, stream = rig.buffer(64), rig.stream(7)
    slots = [Slots(64) for _ in range(20)]
    for one in slots:
        assert rig.read(handle, pointer, one, stream) == 0
    rig.sync(stream)
    assert all(one.done == 64 for one in slots)
    rig.hold(stream)
    assert [rig.read(handle, pointer, one, stream) for one in slots[:2]] == [0, 0]
    while rig.hip.lookup_stream(stream).lane.submitted - rig.hip.lookup_stream(stream).lane.completed < 8:
        rig.hip.hipMemsetAsync(pointer, 0, 1, stream)
    with expect_deadlock(rig.machine.engine):
        rig.read(handle, pointer, slots[2], stream)


@amd
def test_two_threads_at_a_full_queue(make_rig: Any, profile: str) -> None:
    """One thread waits for room inside submit, the other for the stream's mutex; both go on when there is room."""
    rig = make_rig(profile, engine="threads", hip={"queue_limit": 8})
    _, handle = rig.file(pattern(64))
    pointer, stream = rig.buffer(64), rig.stream(7)
    gate = threading.Event()
    rig.hip.hipLaunchHostFunc(stream, lambda _: gate.wait(60), None)
    slots = [[Slots(64) for _ in range(10)] for _ in range(2)]
    codes: list[int] = []

    def submit(mine: Any) -> None:
        codes.extend(rig.read(handle, pointer, one, stream) for one in mine)

    threads = [threading.Thread(target=submit, args=(mine,)) for mine in slots]
    for thread in threads:
        thread.start()
    threads[0].join(0.05)
    gate.set()
    for thread in threads:
        thread.join(60)
    rig.sync(stream)
    assert codes == [0] * 20
    assert all(one.done == 64 for mine in slots for one in mine)
