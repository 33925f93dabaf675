"""A machine that has been closed answers every call with a code, and says where it was closed."""

from __future__ import annotations

import inspect
import threading

import pytest

from hipfile_sim import Machine
from hipfile_sim.driver import Driver
from hipfile_sim.driver.codes import OpError
from hipfile_sim.engine import Command, EngineError, MachineClosedError
from hipfile_sim.hip import HipError, Runtime
from hipfile_sim.observe.observer import Observer

from .conftest import Held, create, malloc

CLOSED = HipError.hipErrorDeinitialized
HERE = r"closed at .*test_closed\.py:\d+ in "
PURE = {"hipFileUseCount", "hipFileGetVersion", "hipFileGetOpErrorString"}


def close(machine):
    machine.close()
    return machine


def arguments(function):
    """Something for each parameter that must be given."""
    given = list(inspect.signature(function).parameters.values())
    return [
        1
        for parameter in given
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]


@pytest.fixture(params=[False, True], ids=["unobserved", "observed"])
def closed(request, make):
    return close(make(observers=[Observer()] if request.param else []))


def test_every_hip_call(closed):
    for name in Runtime.CALLS:
        function = getattr(closed.hip, name)
        result = function(*arguments(function))
        code = result[0] if isinstance(result, tuple) else result
        assert code is CLOSED, name
    assert closed.hip.hipGetErrorString(CLOSED) == "driver shutting down"


def test_every_hipfile_call(closed):
    for name in set(Driver.CALLS) - PURE:
        function = getattr(closed.hipfile, name)
        result = function(*arguments(function))
        if name in ("hipFileRead", "hipFileWrite"):
            assert result.count == -5001, name
        elif name in ("hipFileHandleDeregister", "hipFileBatchIODestroy"):
            assert result is None
        else:
            err = result[0] if isinstance(result[0], int) else result[0].err
            assert err is OpError.hipFileDriverNotInitialized, name
    assert closed.hipfile.hipFileUseCount() == 0
    assert closed.hipfile.hipFileGetVersion()[0].ok
    assert closed.hipfile.hipFileGetOpErrorString(5001)


def test_what_is_not_a_c_call_raises_and_says_where(make):
    machine = make()
    stream, pointer = create(machine.hip), malloc(machine.hip)
    machine.close()
    memory = machine.memory
    late = [
        machine.finish,
        lambda: machine.stall(stream),
        lambda: machine.unstall(stream),
        lambda: memory.view(pointer, 16),
        lambda: memory.alias(pointer, 16),
        lambda: memory.read(pointer, 16),
        lambda: memory.write(pointer, b"late"),
        lambda: memory.fill(pointer, 0, 16),
        lambda: memory.copy(pointer, pointer + 64, 16),
    ]
    for function in late:
        with pytest.raises(MachineClosedError, match=HERE + "test_what_is_not_a_c_call"):
            function()
    assert "closed at " in repr(machine)
    assert [block.base for block in memory.live()] == [pointer]  # what was left over can still be listed


def test_the_engine_refuses_too(make):
    machine = make()
    lane = machine.hip.lookup_stream(create(machine.hip)).lane
    machine.close()
    for late in (lambda: machine.engine.submit(lane, Command()), lambda: machine.engine.submit_all(lane, [Command()])):
        with pytest.raises(MachineClosedError, match=HERE):
            late()
    with pytest.raises(MachineClosedError):
        machine.engine.wait([lane.tail], "anything")
    assert lane.submitted == 0


def test_closing_twice_keeps_the_first_place(make):
    machine = make()
    machine.close()
    first = machine.engine.closed_at
    machine.close()
    assert machine.engine.closed_at is first


def test_who_waits_when_the_machine_is_closed_is_told(make):
    machine = make(watchdog_s=60)
    stream = create(machine.hip)
    hold = Held(machine.hip, stream)
    codes = []
    waiter = threading.Thread(target=lambda: codes.append(machine.hip.hipStreamSynchronize(stream)))
    waiter.start()
    assert hold.started.wait(60)
    machine.close()
    waiter.join(60)
    hold.release()
    assert codes == [CLOSED]


def test_a_host_function_that_is_still_running(make):
    """Its calls answer as those of any other; nothing is told to nobody."""
    machine = make()
    codes = []
    done = threading.Event()
    hold = threading.Event()
    started = threading.Event()

    def function(_):
        started.set()
        hold.wait(60)
        codes.append(machine.hip.hipRuntimeGetVersion()[0])
        done.set()

    stream = create(machine.hip)
    machine.hip.hipLaunchHostFunc(stream, function)
    threading.Thread(target=lambda: machine.hip.hipStreamSynchronize(stream)).start()
    assert started.wait(60)
    machine.close()
    hold.set()
    assert done.wait(60)
    assert codes == [CLOSED]


def test_the_cause_of_an_end_before_the_end_is_kept(make):
    machine = make()
    stream = create(machine.hip)

    def run():
        machine.hip.hipLaunchHostFunc(stream, lambda _: 1 / 0)
        machine.hip.hipDeviceSynchronize()

    with pytest.raises(EngineError, match="ZeroDivisionError"):
        run()
    machine.close()
    assert machine.hip.hipMalloc(64) == (CLOSED, 0)
    assert "ZeroDivisionError" in str(machine.engine.fatal)


def test_observers_hear_of_it_once_a_call_and_the_sanitizer_says_nothing():
    notes = []

    class Listener(Observer):
        def note(self, note):
            notes.append(note)

    from hipfile_sim.observe.sanitizer import Sanitizer

    sanitizer = Sanitizer()
    machine = Machine(1, observers=[Listener(), sanitizer])
    machine.close()
    machine.hip.hipFree(64)
    machine.hipfile.hipFileDriverOpen()
    assert [note.id for note in notes] == ["machine.closed"] * 2
    assert "hipFree after the machine was closed at " in notes[0].message
    assert sanitizer.findings == []
    assert machine.token()  # what tells of the run is still there
