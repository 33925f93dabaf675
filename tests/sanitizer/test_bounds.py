"""What the sanitizer remembers is bounded, and it holds nothing of the user's."""

from __future__ import annotations

import gc
import weakref

import pytest
from catalogue.world import KIB, World

from hipfile_sim.machine import Machine
from hipfile_sim.observe.sanitizer import Sanitizer
from hipfile_sim.observe.sanitizer.state import PRUNE_AT


@pytest.mark.slow
def test_a_hundred_thousand_commands_stay_small() -> None:
    """Two streams that hand blocks to each other; each block is new memory to the shadow."""
    sanitizer = Sanitizer("leak.*=off")
    most = 0
    with Machine(1, schedule="eager", observers=[sanitizer]) as machine:
        hip = machine.hip
        _, base = hip.hipMalloc(64 << 20)
        _, one = hip.hipStreamCreateWithFlags(1)
        _, two = hip.hipStreamCreateWithFlags(1)
        _, event = hip.hipEventCreate()
        for number in range(25_000):
            block = base + number * 2048
            hip.launch(one, lambda: None, (), [(block, 2048)])
            hip.hipEventRecord(event, one)
            hip.hipStreamWaitEvent(two, event)
            hip.launch(two, lambda: None, [(block, 2048)])
            if number % 500 == 499:
                hip.hipStreamSynchronize(two)
            if number % 1000 == 0:
                most = max(most, sanitizer.records)
        hip.hipDeviceSynchronize()
    assert not sanitizer.findings
    assert most < 3 * PRUNE_AT


def test_operations_are_forgotten_once_the_host_knows() -> None:
    with World() as world:
        file, buffer, stream = world.file(), world.buffer(), world.stream()
        for _ in range(300):
            world.read(file, buffer, world.slots(), stream)
            world.sync(stream)
        sanitizer = world.sanitizer
        assert sanitizer.operations == 300
        assert len(sanitizer.slots) == 0
        assert not sanitizer.pending()
        assert all(not state.unknown for state in sanitizer.lanes())
    assert not sanitizer.findings


def test_nothing_of_the_user_is_kept_alive() -> None:
    class Owner:
        pass

    with World() as world:
        stream, block = world.stream(register=False), world.device(4 * KIB)
        owner = Owner()
        alive = weakref.ref(owner)
        world.ok(world.hip.launch(stream, lambda owner=owner: None, [(block, 64)]))  # type: ignore[misc]
        world.sync(stream)
        del owner
        gc.collect()
        assert alive() is None
