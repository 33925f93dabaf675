"""Observers that raise: the machine says so at the next call, and nothing waits for a command that stopped half-way."""

from __future__ import annotations

from typing import Any

import pytest

from hipfile_sim.engine import EngineError
from hipfile_sim.machine import Machine
from hipfile_sim.observe.observer import Observer


class Raises(Observer):
    """Raises at one kind of event."""

    def __init__(self, event: str) -> None:
        setattr(self, event, self._raise)

    def _raise(self, *_: Any) -> None:
        raise ValueError("out of my depth")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", [{"engine": "threads"}, {"schedule": "lazy"}, {"schedule": "eager"}], ids=str)
@pytest.mark.parametrize("event", ["submitted", "started", "finished"])
@pytest.mark.parametrize("host_function", [False, True], ids=["set", "host"])
def test_observer_that_raises(event: str, how: dict[str, Any], host_function: bool) -> None:
    with Machine(1, watchdog_s=5, **how) as machine:
        hip = machine.hip
        stream = hip.hipStreamCreate()[1]
        pointer = hip.hipMalloc(64)[1]
        machine.add_observer(Raises(event))

        def run() -> None:
            if host_function:
                hip.hipLaunchHostFunc(stream, lambda _: None)
            else:
                hip.hipMemsetAsync(pointer, 1, 64, stream)
            hip.hipStreamSynchronize(stream)

        with pytest.raises(EngineError, match=f"Raises.* raised ValueError: out of my depth.*was {event}") as caught:
            run()
        assert isinstance(caught.value.__cause__, ValueError)
        with pytest.raises(EngineError, match="out of my depth"):
            hip.hipStreamSynchronize(stream)
