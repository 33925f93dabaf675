"""User code that the device runs: it calls back, waits, raises or is interrupted. Never a hang, never a half-truth."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hipfile_sim.engine import DeadlockError, EngineError, HostFunctionError
from hipfile_sim.hip.codes import HipError
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.machine import Machine

Make = Callable[..., Machine]
REPORT = HipSettings(host_function_calls="report")


@pytest.fixture(params=["lazy", "eager", "roundrobin", "threads"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[Machine] = []

    def machine(**options: Any) -> Machine:
        how = {"engine": "threads"} if request.param == "threads" else {"schedule": request.param}
        made.append(Machine(2, **how, **options))
        return made[-1]

    yield machine
    for each in made:
        each.close()


def _stream(machine: Machine) -> int:
    return int(machine.hip.hipStreamCreateWithFlags(1)[1])


def test_host_function_that_waits_for_its_own_stream(make: Make) -> None:
    machine = make(settings=REPORT, watchdog_s=0.3)
    stream = _stream(machine)

    def waits(_: Any) -> None:
        machine.hip.hipStreamSynchronize(stream)

    def run() -> None:
        machine.hip.hipLaunchHostFunc(stream, waits)
        machine.hip.hipStreamSynchronize(stream)

    with pytest.raises((DeadlockError, HostFunctionError), match="waits for command 1 of stream 1"):
        run()


def test_two_host_functions_that_wait_for_each_other(make: Make) -> None:
    machine = make(settings=REPORT, watchdog_s=0.3)
    streams = [_stream(machine), _stream(machine)]

    both = threading.Event()

    def waits(other: int) -> None:
        both.wait(60)
        machine.hip.hipStreamSynchronize(other)

    def run() -> None:
        machine.hip.hipLaunchHostFunc(streams[0], waits, streams[1])
        machine.hip.hipLaunchHostFunc(streams[1], waits, streams[0])
        both.set()
        machine.hip.hipDeviceSynchronize()

    with pytest.raises((DeadlockError, HostFunctionError), match="deadlock"):
        run()


def test_host_function_that_waits_for_another_stream(make: Make) -> None:
    """Allowed where it is only reported, and the other stream moves."""
    machine = make(settings=REPORT)
    stream, other = _stream(machine), _stream(machine)
    pointer = machine.hip.hipMalloc(64)[1]
    seen: list[Any] = []

    def waits(_: Any) -> None:
        machine.hip.hipMemsetAsync(pointer, 7, 64, other)
        seen.append(machine.hip.hipStreamSynchronize(other))
        seen.append(bytes(machine.memory.view(pointer, 2)))

    machine.hip.hipLaunchHostFunc(stream, waits)
    assert machine.hip.hipStreamSynchronize(stream) == 0
    assert seen == [HipError.hipSuccess, b"\7\7"]


@pytest.mark.parametrize("settings", [None, REPORT], ids=["refuse", "report"])
def test_kernel_that_calls_hip(make: Make, settings: HipSettings | None) -> None:
    """A kernel runs on the device: there is no HIP to call, whatever host functions may."""
    machine = make(settings=settings)
    stream = _stream(machine)
    pointer = machine.hip.hipMalloc(64)[1]
    seen: list[Any] = []

    def kernel() -> None:
        seen.append(machine.hip.hipMemsetAsync(pointer, 1, 64, stream))
        seen.append(machine.hip.hipStreamSynchronize(stream))
        seen.append(machine.hip.hipDeviceSynchronize())
        seen.append(machine.hip.hipMalloc(8)[0])

    assert machine.hip.launch(stream, kernel) == 0
    assert machine.hip.hipStreamSynchronize(stream) == 0
    assert seen == [HipError.hipErrorNotPermitted] * 4


class _Interrupt(BaseException):
    """As KeyboardInterrupt, without stopping the test runner when a test is wrong."""


def test_interrupted_kernel_does_not_count_as_run(make: Make) -> None:
    """Ctrl-C in the middle of a command: half of it has happened, and no later call says success."""
    machine = make()
    stream = _stream(machine)

    def kernel() -> None:
        raise _Interrupt

    def run() -> None:
        machine.hip.launch(stream, kernel)
        machine.hip.hipStreamSynchronize(stream)

    with pytest.raises((_Interrupt, EngineError)):
        run()
    with pytest.raises(EngineError, match="_Interrupt"):
        machine.hip.hipStreamSynchronize(stream)


def test_what_cannot_be_called_is_refused_at_the_call(make: Make) -> None:
    machine = make()
    stream = _stream(machine)
    wrong: Any
    for wrong in (None, 0, 5, "kernel"):
        assert machine.hip.launch(stream, wrong) == HipError.hipErrorInvalidValue
        assert machine.hip.hipLaunchHostFunc(stream, wrong) == HipError.hipErrorInvalidValue
    assert machine.hip.hipStreamSynchronize(stream) == 0
