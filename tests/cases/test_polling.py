"""Loops that poll: they end under every schedule, and an explorer sees their orders out."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import hipfile_mock
from hipfile_sim import Machine
from hipfile_sim.engine.steps import POLLS
from hipfile_sim.explore import explore

from .letter import slab

SCHEDULES = ("lazy", "eager", "parallel", "roundrobin", "seeded:3", "threads")
NOT_READY = 600


def looks(done: Any) -> int:
    """How often a loop looks before `done` says yes; gives up far behind what the engine allows."""
    return next(number for number in range(100_000_000) if done())


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("way", ["event", "stream", "elapsed", "bytes_done"])
def test_a_loop_that_polls_ends(tmp_path: Path, schedule: str, way: str) -> None:
    how = {"engine": "threads"} if schedule == "threads" else {"schedule": schedule}
    with hipfile_mock.fake(strict=False, **how) as session:
        import hipfile

        hip = session.hip
        stream, pointer = hip.hipStreamCreate()[1], hip.hipMalloc(4096)[1]
        first, last = hip.hipEventCreate()[1], hip.hipEventCreate()[1]
        with hipfile.FileHandle(slab(tmp_path), 0) as file, hipfile.Buffer(pointer, 4096, 0) as buffer:
            hip.hipEventRecord(first, stream)
            io = file.read_async(buffer, 4096, 0, 0, stream)
            hip.hipEventRecord(last, stream)
            ways = {
                "event": lambda: hip.hipEventQuery(last) != NOT_READY,
                "stream": lambda: hip.hipStreamQuery(stream) != NOT_READY,
                "elapsed": lambda: hip.hipEventElapsedTime(first, last)[0] != NOT_READY,
                "bytes_done": lambda: io.bytes_done != 0,
            }
            looks(ways[way])
            hip.hipStreamSynchronize(stream)
            assert io.bytes_done == 4096


def test_lazy_still_moves_nothing_at_a_few_looks(tmp_path: Path) -> None:
    machine = Machine(schedule="lazy")
    hip = machine.hip
    stream, pointer, event = hip.hipStreamCreate()[1], hip.hipMalloc(64)[1], hip.hipEventCreate()[1]
    for value in range(5):
        hip.hipMemsetAsync(pointer, value, 64, stream)
    hip.hipEventRecord(event, stream)
    assert looks(lambda: hip.hipEventQuery(event) == 0) == POLLS + 5  # then a step a look: 5 memsets and the record


def test_a_held_stream_stays_held_however_often_it_is_asked() -> None:
    machine = Machine(schedule="lazy")
    hip = machine.hip
    stream, pointer = hip.hipStreamCreate()[1], hip.hipMalloc(64)[1]
    machine.stall(stream, hold=True)
    hip.hipMemsetAsync(pointer, 1, 64, stream)
    assert all(hip.hipStreamQuery(stream) == NOT_READY for _ in range(3000))
    machine.unstall(stream)
    assert hip.hipStreamSynchronize(stream) == 0


@pytest.mark.parametrize("strategy", ["dpor", "pct", "random"])
def test_an_explorer_sees_a_polling_loop_out(strategy: str) -> None:
    seen = set()

    def body(machine: Machine) -> None:
        hip = machine.hip
        a, b = hip.hipStreamCreateWithFlags(1)[1], hip.hipStreamCreateWithFlags(1)[1]
        pointer, event = hip.hipMalloc(16)[1], hip.hipEventCreate()[1]
        hip.hipMemsetAsync(pointer, 1, 16, a)
        hip.hipEventRecord(event, a)
        hip.hipMemsetAsync(pointer, 2, 16, b)
        looks(lambda: hip.hipEventQuery(event) == 0)
        hip.hipDeviceSynchronize()
        seen.add(bytes(machine.memory.read(pointer, 16)))

    result = explore(body, strategy=strategy, schedules=None if strategy == "dpor" else 200)
    assert seen == {b"\x01" * 16, b"\x02" * 16}
    assert result.complete == (strategy == "dpor")


def test_a_token_repeats_a_loop_that_polls() -> None:
    def run(schedule: str) -> tuple[int, str]:
        machine = Machine(schedule=schedule)
        hip = machine.hip
        streams = [hip.hipStreamCreateWithFlags(1)[1] for _ in range(3)]
        pointer = hip.hipMalloc(64)[1]
        for stream, _ in itertools.product(streams, range(3)):
            hip.hipMemsetAsync(pointer, 1, 64, stream)
        count = looks(lambda: hip.hipStreamQuery(streams[0]) == 0)
        return count, machine.token()

    count, token = run("lazy")
    assert run(token) == (count, token)
