"""The threaded engine runs the same commands on real threads."""

from __future__ import annotations

import itertools
import threading
import time
from types import SimpleNamespace

import pytest

from hipfile_sim.engine import Command, EngineError, HostFunctionError, StepEngine, ThreadEngine


class Do(Command):
    __slots__ = ("function",)
    kind = "do"

    def __init__(self, function):
        super().__init__()
        self.function = function

    def run(self):
        self.function()


class Host(Do):
    __slots__ = ()
    kind = "host"
    external = True
    on_host_thread = True


class When(Do):
    __slots__ = ("condition",)
    conditional = True

    def __init__(self, condition):
        super().__init__(lambda: None)
        self.condition = condition

    def ready(self):
        return self.condition()


@pytest.fixture
def engine():
    made = ThreadEngine()
    yield made
    made.close()


def test_lanes_run_in_order_and_side_by_side(engine):
    a, b = engine.add_lane("A"), engine.add_lane("B")
    both = threading.Barrier(2, timeout=60)
    log = []
    for lane in (a, b):
        engine.submit(lane, Do(both.wait))  # returns only if the two lanes really overlap
    for number in range(100):
        engine.submit(a, Do(lambda number=number: log.append(number)))
    engine.drain()
    assert log == list(range(100))


def test_dependencies_between_lanes(engine):
    a, b = engine.add_lane("A"), engine.add_lane("B")
    log = []
    gate = threading.Event()
    engine.submit(a, Do(lambda: (gate.wait(60), log.append("a"))))
    engine.submit(b, Do(lambda: log.append("b")), ((a, 1),))
    time.sleep(0.02)
    assert log == []
    gate.set()
    engine.drain()
    assert log == ["a", "b"]


def test_a_long_chain_across_lanes(engine):
    lanes = [engine.add_lane(f"L{number}") for number in range(6)]
    log = []
    previous = ()
    for number in range(300):
        lane = lanes[number % 6]
        ticket = engine.submit(lane, Do(lambda number=number: log.append(number)), previous)
        previous = ((lane, ticket),)
    engine.drain()
    assert log == list(range(300))


def test_a_value_written_behind_the_engine_is_noticed(engine):
    a = engine.add_lane("A")
    flag = []
    engine.submit(a, When(lambda: bool(flag)))
    flag.append(1)
    engine.drain()
    assert a.idle


def test_deadlock_instead_of_hang(engine, expect_deadlock):
    a = engine.add_lane("A")
    flag = []
    engine.submit(a, When(lambda: bool(flag)))
    with expect_deadlock(engine, match="waiting for a value in memory"):
        engine.drain()
    flag.append(1)


def test_a_busy_lane_is_not_a_deadlock(engine):
    a = engine.add_lane("A")
    engine.watchdog_s = 0.1
    engine.submit(a, Do(lambda: time.sleep(0.6)))  # longer than the watchdog: the model's own work always ends
    engine.drain()


@pytest.mark.parametrize("make", [ThreadEngine, StepEngine])
def test_a_machine_that_sleeps_on_is_not_a_deadlock(make, monkeypatch):
    """A moment of the engine's takes 10 s each time, as where every core is taken: nothing had the chance to run."""
    moments = itertools.count()
    monkeypatch.setattr("hipfile_sim.engine.base.time", SimpleNamespace(monotonic=lambda: 10.0 * next(moments)))
    engine = make()
    a, flag = engine.add_lane("A"), []
    engine.submit(a, When(lambda: bool(flag)))
    threading.Timer(0.3, lambda: (flag.append(1), engine.poke())).start()
    engine.drain()
    assert a.idle
    assert next(moments) >= 2
    engine.close()


@pytest.mark.parametrize("kind", [Host, Do])
def test_an_exception_is_reported_by_the_wait(engine, kind):
    a = engine.add_lane("A")
    engine.submit(a, kind(lambda: 1 // 0))
    with pytest.raises(HostFunctionError if kind is Host else EngineError, match="ZeroDivisionError"):
        engine.drain()


def test_one_host_thread():
    engine = ThreadEngine(host_threads="one")
    a, b = engine.add_lane("A"), engine.add_lane("B")
    inside, most = [], []
    guard = threading.Lock()

    def body():
        with guard:
            inside.append(1)
            most.append(len(inside))
        time.sleep(0.002)
        with guard:
            inside.pop()

    for _ in range(5):
        engine.submit(a, Host(body))
        engine.submit(b, Host(body))
    engine.drain()
    engine.close()
    assert max(most) == 1


def test_closing_ends_the_threads():
    before = set(threading.enumerate())
    engine = ThreadEngine()
    for number in range(4):
        engine.submit(engine.add_lane(str(number)), Do(lambda: None))
    engine.drain()
    assert len(set(threading.enumerate()) - before) >= 4
    engine.close()
    assert set(threading.enumerate()) <= before


def test_retired_lanes_lose_their_thread(engine):
    before = set(threading.enumerate())
    lane = engine.add_lane("A")
    engine.submit(lane, Do(lambda: None))
    engine.drain()
    [worker] = set(threading.enumerate()) - before
    engine.retire(lane)
    worker.join(60)
    assert not worker.is_alive()


def test_it_has_no_token(engine):
    with pytest.raises(EngineError, match="use the step engine"):
        engine.token()
