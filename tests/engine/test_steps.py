"""The deterministic engine: order, tokens, virtual time, watchdog."""

from __future__ import annotations

import threading

import pytest

from hipfile_sim.engine import Command, DeadlockError, EngineError, HostFunctionError, StepEngine, TokenMismatch
from hipfile_sim.engine.schedules import SCHEDULES, Option, Point, Scripted, parse_schedule
from hipfile_sim.engine.token import decode

SCHEDULE_NAMES = ("parallel", "lazy", "eager", "roundrobin", "seeded:0", "seeded:7")


class Do(Command):
    __slots__ = ("function",)
    kind = "do"

    def __init__(self, function, cost_ns=None):
        super().__init__()
        self.function = function
        self.cost_ns = cost_ns

    def run(self):
        self.function()


class Host(Do):
    __slots__ = ()
    kind = "host"
    external = True
    on_host_thread = True


class When(Do):
    __slots__ = ("condition",)
    kind = "when"
    conditional = True

    def __init__(self, condition, function):
        super().__init__(function)
        self.condition = condition

    def ready(self):
        return self.condition()


def two_lanes(schedule="lazy", **options):
    engine = StepEngine(schedule, **options)
    return engine, engine.add_lane("A"), engine.add_lane("B")


@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
def test_a_lane_runs_in_order_and_waits_for_its_dependencies(schedule):
    engine, a, b = two_lanes(schedule)
    log = []
    engine.submit(a, Do(lambda: log.append("a1")))
    second = engine.submit(a, Do(lambda: log.append("a2")))
    engine.submit(b, Do(lambda: log.append("b1")), ((a, second),))
    engine.submit(b, Do(lambda: log.append("b2")))
    engine.host_point("between")
    engine.drain()
    assert log == ["a1", "a2", "b1", "b2"]


def test_lazy_runs_only_what_the_wait_needs():
    engine, a, b = two_lanes("lazy")
    log = []
    engine.submit(a, Do(lambda: log.append("a")))
    ticket = engine.submit(b, Do(lambda: log.append("b")))
    engine.host_point("x")
    assert log == []
    engine.wait([(b, ticket)], "sync B")
    assert log == ["b"]
    assert a.completed == 0


def test_lazy_follows_dependencies_through_a_third_lane():
    engine, a, b = two_lanes("lazy")
    c, d = engine.add_lane("C"), engine.add_lane("D")
    log = []
    for lane, name, deps in ((a, "a", ()), (b, "b", ((a, 1),)), (c, "c", ((b, 1),)), (d, "d", ())):
        engine.submit(lane, Do(lambda name=name: log.append(name)), deps)
    engine.wait([(c, 1)], "sync C")
    assert log == ["a", "b", "c"]


def test_eager_runs_before_the_host_goes_on():
    engine, a, _ = two_lanes("eager")
    log = []
    engine.submit(a, Do(lambda: log.append("a")))
    assert log == []
    engine.host_point("end of the call")
    assert log == ["a"]


def test_parallel_follows_virtual_time_not_submission_order():
    engine, a, b = two_lanes("parallel")
    log = []
    engine.submit(a, Do(lambda: log.append("slow"), cost_ns=1_000_000))
    engine.submit(b, Do(lambda: log.append("quick"), cost_ns=1_000))
    engine.wait([(a, 1)], "sync A")
    assert log == ["quick", "slow"]
    assert engine.clock.now >= 1_000_000


def test_parallel_host_sees_what_has_ended_by_its_time():
    engine, a, _ = two_lanes("parallel")
    log = []
    engine.submit(a, Do(lambda: log.append("done"), cost_ns=500))
    engine.host_point("too early")
    assert log == []
    engine.clock.advance(500)
    engine.host_point("in time")
    assert log == ["done"]


def test_virtual_time_of_streams_overlaps():
    engine, a, b = two_lanes("parallel")
    for lane in (a, b):
        for _ in range(3):
            engine.submit(lane, Do(lambda: None, cost_ns=1_000))
    engine.drain()
    assert engine.clock.now == 3_000


@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
def test_a_token_repeats_the_run(schedule):
    def run(chosen):
        engine, a, b = two_lanes(chosen)
        c = engine.add_lane("C")
        log = []
        for number in range(4):
            for lane in (a, b, c):
                engine.submit(lane, Do(lambda lane=lane, number=number: log.append((lane.name, number))))
                engine.host_point("submit")
                log.append("host")
        engine.drain()
        return log, engine.token()

    log, token = run(schedule)
    assert run(token) == (log, token)
    assert token.startswith("hs1-")


def test_different_seeds_give_different_orders():
    def order(seed):
        engine, a, b = two_lanes(f"seeded:{seed}")
        log = []
        for lane in (a, b) * 6:
            engine.submit(lane, Do(lambda lane=lane: log.append(lane.name)))
            engine.host_point("submit")
        engine.drain()
        return tuple(log)

    assert len({order(seed) for seed in range(20)}) > 5
    assert order(3) == order(3)


def test_a_token_that_does_not_fit_says_where():
    engine, a, b = two_lanes("eager")
    for lane in (a, b):
        engine.submit(lane, Do(lambda: None))
    engine.drain()
    replay, a, b = two_lanes(engine.token())
    c = replay.add_lane("C")
    for lane in (a, b, c):
        replay.submit(lane, Do(lambda: None))
    with pytest.raises(TokenMismatch, match="choice 0: it expects 2 options, the program offers 3") as caught:
        replay.drain()
    assert caught.value.step == 0


def test_a_token_that_is_longer_than_the_run_is_noticed():
    engine, a, b = two_lanes("eager")
    for lane in (a, b):
        engine.submit(lane, Do(lambda: None))
    engine.drain()
    replay, a, b = two_lanes(engine.token())
    with pytest.raises(TokenMismatch, match="1 more choices"):
        replay.replayed()


@pytest.mark.parametrize("text", ["hs1-", "hs1-AAAA", "hs1-!!!!", "hs1-eNpjBAAA"])
def test_damaged_tokens_are_refused(text):
    with pytest.raises(ValueError, match="damaged token"):
        decode(text)


@pytest.mark.parametrize("text", ["", "sometimes", "seeded:x", "scripted:1,b"])
def test_bad_schedules_name_the_value(text):
    with pytest.raises(ValueError, match=repr(text)):
        parse_schedule(text)


def test_every_schedule_parses_back_from_its_text():
    for name in SCHEDULES:
        schedule = parse_schedule(name)
        assert str(parse_schedule(str(schedule))) == str(schedule)


def test_a_scripted_choice_out_of_range_is_an_error():
    schedule = Scripted([5])
    point = Point("wait", "sync", [Option(0, Do(lambda: None), 0, True)] * 2, 0)
    with pytest.raises(EngineError, match="scripted choice 0 is 5"):
        schedule.choose(point)


def test_a_stalled_lane_is_overtaken_by_everything():
    engine, a, b = two_lanes("parallel")
    log = []
    engine.stall(a)
    engine.submit(a, Do(lambda: log.append("a"), cost_ns=1))
    engine.submit(b, Do(lambda: log.append("b"), cost_ns=10**9))
    engine.wait([(b, 1)], "sync B")
    assert log == ["b"]
    engine.wait([(a, 1)], "sync A")
    assert log == ["b", "a"]


def test_a_held_lane_is_a_deadlock_until_it_is_let_go(expect_deadlock):
    engine, a, _ = two_lanes("lazy")
    engine.stall(a, hold=True)
    engine.submit(a, Do(lambda: None))
    with expect_deadlock(engine, match="A is held by stall"):
        engine.drain()
    engine.unstall(a)
    engine.drain()
    assert a.idle


def test_a_condition_that_nothing_can_meet_is_a_deadlock_with_the_wait_graph():
    engine, a, b = two_lanes("lazy")
    engine.submit(a, When(lambda: False, lambda: None))
    engine.submit(b, Do(lambda: None), ((a, 1),))
    with pytest.raises(DeadlockError) as caught:
        engine.wait([(b, 1)], "hipStreamSynchronize")
    assert "A has when waiting for a value in memory that nothing has written" in caught.value.graph
    assert "B has do waiting for command 1 of A (which has finished 0)" in caught.value.graph


def test_a_condition_that_another_lane_meets():
    engine, a, b = two_lanes("lazy")
    flag = []
    engine.submit(a, When(lambda: bool(flag), lambda: flag.append("a")))
    engine.submit(b, Do(lambda: flag.append("b")))
    engine.wait([(a, 1)], "sync A")
    assert flag == ["b", "a"]


@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
def test_a_host_function_may_block_until_the_host_lets_it_go(schedule):
    engine, a, b = two_lanes(schedule)
    gate = threading.Event()
    log = []
    engine.submit(a, Host(lambda: (gate.wait(60), log.append("held"))))
    engine.submit(a, Do(lambda: log.append("after")))
    engine.host_point("launch")
    engine.submit(b, Do(lambda: log.append("other")))
    engine.host_point("submit")
    engine.wait([(b, 1)], "sync B")
    assert log == ["other"]
    gate.set()
    engine.drain()
    assert log == ["other", "held", "after"]
    engine.close()


def test_runs_with_blocking_host_functions_repeat():
    def run(schedule):
        engine, a, b = two_lanes(schedule)
        gate = threading.Event()
        log = []
        engine.submit(a, Host(lambda: (gate.wait(60), log.append("held"))))
        engine.host_point("launch")
        for number in range(3):
            engine.submit(b, Do(lambda number=number: log.append(number)))
            engine.host_point("submit")
        gate.set()
        engine.host_point("released")
        engine.drain()
        engine.close()
        return log, engine.token()

    for seed in range(4):
        log, token = run(f"seeded:{seed}")
        assert run(f"seeded:{seed}") == (log, token)
        assert run(token) == (log, token)


def test_one_host_thread_makes_host_functions_wait_for_each_other(expect_deadlock):
    engine, a, b = two_lanes("eager", host_threads="one")
    gate = threading.Event()
    engine.submit(a, Host(lambda: gate.wait(60)))
    engine.host_point("launch")
    engine.submit(b, Host(lambda: None))
    with expect_deadlock(engine, match="the only host-function thread, busy with A"):
        engine.wait([(b, 1)], "sync B")
    gate.set()
    engine.drain()
    engine.close()


def test_a_host_function_that_never_returns_is_a_deadlock_not_a_hang(expect_deadlock):
    engine, a, _ = two_lanes("lazy")
    gate = threading.Event()
    engine.submit(a, Host(lambda: gate.wait(60)))
    with expect_deadlock(engine, match="A runs host, which has not returned"):
        engine.drain()
    gate.set()
    engine.close()


@pytest.mark.parametrize("kind", [Host, Do])
def test_an_exception_in_user_code_is_fatal_and_clear(kind):
    engine, a, _ = two_lanes("lazy")
    engine.submit(a, kind(lambda: 1 // 0))
    expected = HostFunctionError if kind is Host else EngineError
    with pytest.raises(expected, match="raised ZeroDivisionError") as caught:
        engine.drain()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(expected):
        engine.submit(a, Do(lambda: None))
    engine.close()


def test_another_thread_can_bring_the_progress_that_a_wait_needs():
    engine, a, b = two_lanes("lazy")
    flag = []
    engine.submit(a, When(lambda: bool(flag), lambda: None))
    waiting = threading.Event()

    def help_out():
        waiting.wait(60)
        engine.submit(b, Do(lambda: flag.append(1)))
        engine.poke()

    helper = threading.Thread(target=help_out)
    helper.start()
    waiting.set()
    engine.wait([(a, 1)], "sync A")
    helper.join()
    assert flag == [1]


def test_many_lanes_and_retiring():
    engine = StepEngine("lazy")
    lanes = [engine.add_lane(f"lane {number}") for number in range(50)]
    for lane in lanes:
        engine.submit(lane, Do(lambda: None))
    engine.retire(lanes[0])
    assert 0 in engine.lanes  # it still has work
    engine.drain()
    for lane in lanes:
        engine.retire(lane)
    assert not engine.lanes
