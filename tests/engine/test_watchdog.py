"""A wait that outlasts the watchdog: a deadlock, or a host function that takes its time; and how to raise the limit."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from hipfile_mock import fake
from hipfile_sim import Machine
from hipfile_sim.engine import CostModel, DeadlockError, EngineError, StillRunningError
from hipfile_sim.native import config

ENGINES = [{"engine": "steps", "schedule": "lazy"}, {"engine": "threads"}]


def sleeps(over):
    deadline = time.monotonic() + 60
    while not over.is_set() and time.monotonic() < deadline:
        time.sleep(3)


def computes(over):
    deadline = time.monotonic() + 60
    while not over.is_set() and time.monotonic() < deadline:
        pass


def waits(over):
    over.wait(60)


def blocked(function, how, **options):
    """The error of a synchronisation behind `function`."""
    over = threading.Event()
    with Machine(1, watchdog_s=0.6, **how, **options) as machine:
        _, stream = machine.hip.hipStreamCreate()
        machine.hip.hipLaunchHostFunc(stream, function, over)
        try:
            with pytest.raises(EngineError) as caught:
                machine.hip.hipStreamSynchronize(stream)
        finally:
            over.set()
        return caught.value


@pytest.mark.parametrize("how", ENGINES, ids=["steps", "threads"])
def test_a_host_function_that_sleeps(how):
    error = blocked(sleeps, how)
    assert type(error) is StillRunningError
    text = str(error)
    assert "hipStreamSynchronize has not returned for 0.6 s" in text
    assert "need not be a deadlock" in text
    assert "host sleeps on stream 1 sleeps, at " in text
    assert "time.sleep(3)" in text
    assert "--hipfile-watchdog" in text
    assert error.seconds == 0.6


def test_a_host_function_that_computes():
    """The step engine waits for it without a limit of its own: a function that uses a core is progress."""
    error = blocked(computes, ENGINES[1])
    assert type(error) is StillRunningError
    assert "is busy" in str(error)


@pytest.mark.parametrize("how", ENGINES, ids=["steps", "threads"])
def test_a_host_function_that_waits_for_the_host_is_a_deadlock(how):
    error = blocked(waits, how)
    assert type(error) is DeadlockError
    assert "deadlock: hipStreamSynchronize has not returned for 0.6 s" in str(error)
    assert "host waits on stream 1 waits for a lock, at " in str(error)
    assert "over.wait(60)" in str(error)


@pytest.mark.parametrize("how", ENGINES, ids=["steps", "threads"])
def test_another_thread_that_might_have_helped_is_named(how):
    over = threading.Event()
    helper = threading.Thread(target=over.wait, args=(60,), name="the helper")
    helper.start()
    try:
        with Machine(1, watchdog_s=0.4, **how) as machine:
            _, stream = machine.hip.hipStreamCreate()
            _, flag = machine.hip.hipExtMallocWithFlags(8, 2)
            machine.hip.hipStreamWaitValue32(stream, flag, 1)
            with pytest.raises(DeadlockError) as caught:
                machine.hip.hipStreamSynchronize(stream)
    finally:
        over.set()
        helper.join()
    assert "thread 'the helper' waits for a lock" in str(caught.value)
    assert "raise the limit" in str(caught.value)


def test_what_can_be_seen_at_once_needs_no_time():
    """In a process of its own: any other thread, of an earlier test say, might have helped."""
    code = """
from hipfile_sim import Machine
from hipfile_sim.engine import DeadlockError

with Machine(1, schedule="lazy", watchdog_s=1e6) as machine:
    _, stream = machine.hip.hipStreamCreate()
    machine.stall(stream, hold=True)
    machine.hip.hipMemsetAsync(machine.hip.hipMalloc(64)[1], 1, 64, stream)
    try:
        machine.hip.hipStreamSynchronize(stream)
    except DeadlockError as error:
        print(error.seconds, "can never return" in str(error), "raise the limit" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "None True False\n", done.stderr


def test_the_sanitizer_calls_only_a_deadlock_one():
    from hipfile_sim.observe.sanitizer import Sanitizer

    for function, found in ((sleeps, []), (waits, ["deadlock"])):
        sanitizer = Sanitizer()
        blocked(function, ENGINES[0], observers=[sanitizer])
        assert [finding.id for finding in sanitizer.errors] == found


@pytest.mark.parametrize("how", ENGINES, ids=["steps", "threads"])
def test_a_limit_that_was_raised(how):
    with Machine(1, watchdog_s=600, **how) as machine:
        _, stream = machine.hip.hipStreamCreate()
        machine.hip.hipLaunchHostFunc(stream, lambda _: time.sleep(0.7))
        assert machine.hip.hipStreamSynchronize(stream) == 0


def test_keywords_of_fake():
    costs = CostModel(command=123_000)
    with fake(watchdog_s=7.5, costs=costs) as session:
        assert session.engine.watchdog_s == 7.5
        assert session.engine.costs is costs


@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ValueError), (-1, ValueError), (float("nan"), ValueError), ("5", TypeError), (True, TypeError)],
)
def test_no_number_of_seconds(value, error):
    with pytest.raises(error, match="watchdog_s"), fake(watchdog_s=value):
        pass


def test_the_configuration_of_c_programs(tmp_path):
    assert config.load({"HIPFILE_SIM_WATCHDOG": "90"}).make().engine.watchdog_s == 90
    assert config.load({}).make().engine.watchdog_s == 5
    for text in ("soon", "0", "nan"):
        with pytest.raises(config.ConfigError, match="HIPFILE_SIM_WATCHDOG"):
            config.load({"HIPFILE_SIM_WATCHDOG": text})
