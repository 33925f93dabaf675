"""The happens-before core, alone: fed with integers, held against plain reachability."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipfile_sim.observe.sanitizer.hb import HISTORY_LIMIT, Edge, HappensBefore
from hipfile_sim.observe.sanitizer.shadow import Shadow


def run(hb: HappensBefore, lane: int, ticket: int, after: tuple[tuple[int, int, Edge], ...] = ()) -> None:
    hb.start(lane, ticket, after)
    hb.finish(lane)


def test_commands_of_one_stream_follow_each_other() -> None:
    hb = HappensBefore()
    host, lane = hb.add_host(), hb.add_lane()
    hb.enqueue(host, lane, 1)
    hb.enqueue(host, lane, 2)
    run(hb, lane, 1)
    hb.start(lane, 2)
    assert hb.knows(lane, lane, 1)


def test_two_streams_do_not_know_each_other() -> None:
    hb = HappensBefore()
    host, one, two = hb.add_host(), hb.add_lane(), hb.add_lane()
    hb.enqueue(host, one, 1)
    hb.enqueue(host, two, 1)
    run(hb, one, 1)
    hb.start(two, 1)
    assert not hb.knows(two, one, 1)


def test_an_event_orders_what_was_recorded_and_no_more() -> None:
    hb = HappensBefore()
    host, one, two = hb.add_host(), hb.add_lane(), hb.add_lane()
    for ticket in (1, 2, 3):
        hb.enqueue(host, one, ticket)
    hb.enqueue(host, two, 1)
    for ticket in (1, 2, 3):
        run(hb, one, ticket)
    run(hb, two, 1, ((one, 2, Edge.EVENT_WAIT),))
    assert hb.knows(two, one, 2)
    assert not hb.knows(two, one, 3)


def test_order_is_transitive_through_a_third_stream() -> None:
    hb = HappensBefore()
    host, a, b, c = hb.add_host(), hb.add_lane(), hb.add_lane(), hb.add_lane()
    for lane in (a, b, c):
        hb.enqueue(host, lane, 1)
    run(hb, a, 1)
    run(hb, b, 1, ((a, 1, Edge.EVENT_WAIT),))
    run(hb, c, 1, ((b, 1, Edge.EVENT_WAIT),))
    assert hb.knows(c, a, 1)


def test_the_host_knows_through_a_stream_what_that_stream_waited_for() -> None:
    hb = HappensBefore()
    host, a, b = hb.add_host(), hb.add_lane(), hb.add_lane()
    hb.enqueue(host, a, 1)
    hb.enqueue(host, b, 1)
    run(hb, a, 1)
    run(hb, b, 1, ((a, 1, Edge.EVENT_WAIT),))
    hb.sync(host, b, 1, Edge.STREAM_SYNC)
    assert hb.knows(host, a, 1)


def test_a_deed_after_the_submit_is_not_known_to_the_command() -> None:
    hb = HappensBefore()
    host, lane = hb.add_host(), hb.add_lane()
    before = hb.stamp(host)
    hb.enqueue(host, lane, 1)
    after = hb.stamp(host)
    hb.start(lane, 1)
    assert hb.knows(lane, host, before)
    assert not hb.knows(lane, host, after)


def test_what_a_host_learns_after_a_submit_is_not_known_to_the_command() -> None:
    hb = HappensBefore()
    host, one, two = hb.add_host(), hb.add_lane(), hb.add_lane()
    hb.enqueue(host, one, 1)
    run(hb, one, 1)
    hb.stamp(host)
    hb.enqueue(host, two, 1)
    hb.sync(host, one, 1, Edge.STREAM_SYNC)
    hb.enqueue(host, two, 2)
    hb.start(two, 1)
    assert not hb.knows(two, one, 1)
    hb.finish(two)
    hb.start(two, 2)
    assert hb.knows(two, one, 1)


def test_user_code_on_a_stream_lies_between_its_neighbours() -> None:
    hb = HappensBefore()
    host, lane = hb.add_host(), hb.add_lane()
    for ticket in (1, 2, 3):
        hb.enqueue(host, lane, ticket)
    run(hb, lane, 1)
    hb.start(lane, 2)
    function = hb.begin_function(lane)
    assert hb.knows(function, lane, 1)
    clock = hb.stamp(function)
    hb.end_function(lane)
    hb.finish(lane)
    hb.start(lane, 3)
    assert hb.knows(lane, function, clock)
    hb.finish(lane)
    hb.sync(host, lane, 3, Edge.STREAM_SYNC)
    assert hb.knows(host, function, clock)


@pytest.mark.parametrize("edge", list(Edge))
def test_a_dropped_kind_of_edge_orders_nothing(edge: Edge) -> None:
    def ordered(hb: HappensBefore) -> bool:
        host, other, lane, second = hb.add_host(), hb.add_host(), hb.add_lane(), hb.add_lane()
        if edge is Edge.ENQUEUE:
            clock = hb.stamp(host)
            hb.enqueue(host, lane, 1)
            hb.start(lane, 1)
            return hb.knows(lane, host, clock)
        hb.enqueue(host, lane, 1)
        hb.enqueue(host, lane, 2)
        if edge is Edge.HOST_FUNCTION:
            hb.start(lane, 1)
            clock = hb.stamp(function := hb.begin_function(lane))
            hb.end_function(lane)
            hb.finish(lane)
            hb.start(lane, 2)
            return hb.knows(lane, function, clock)
        run(hb, lane, 1)
        if edge is Edge.STREAM_ORDER:
            hb.start(lane, 2)
            return hb.knows(lane, lane, 1)
        if edge in (Edge.EVENT_WAIT, Edge.NULL_STREAM):
            hb.enqueue(host, second, 1)
            hb.start(second, 1, ((lane, 1, edge),))
            return hb.knows(second, lane, 1)
        if edge in (Edge.THREAD, Edge.VALUE):
            clock = hb.stamp(host)
            hb.acquire(other, hb.release(host), edge)
            return hb.knows(other, host, clock)
        hb.sync(other, lane, 1, edge)
        return hb.knows(other, lane, 1)

    assert ordered(HappensBefore())
    assert not ordered(HappensBefore([edge]))


# -- reachability


class Oracle:
    """The same program as an explicit graph: a node for every deed, a set of everything before it."""

    def __init__(self) -> None:
        self.before: list[frozenset[int]] = []
        self.last: dict[object, int | None] = {}

    def node(self, *parents: int | None) -> int:
        known: set[int] = set()
        for parent in parents:
            if parent is not None:
                known |= self.before[parent] | {parent}
        self.before.append(frozenset(known))
        return len(self.before) - 1


def check_program(seed: int, steps: int, collect: bool) -> int:
    """A random program; after every deed each earlier one is known exactly if the graph says so."""
    rng = random.Random(seed)
    hb = HappensBefore()
    oracle = Oracle()
    hosts = [hb.add_host() for _ in range(rng.randint(1, 3))]
    lanes = [hb.add_lane() for _ in range(rng.randint(1, 4))]
    at: dict[int, int | None] = dict.fromkeys(hosts + lanes)
    submitted = dict.fromkeys(lanes, 0)
    done = dict.fromkeys(lanes, 0)
    queued: dict[int, list[tuple[int | None, list[tuple[int, int]], bool]]] = {lane: [] for lane in lanes}
    complete: dict[tuple[int, int], int] = {}
    deeds: list[tuple[int, int, int]] = []
    compared = 0
    forgotten: set[int] = set()

    def compare(actor: int, node: int) -> None:
        nonlocal compared
        for who, clock, other in deeds:
            if other in forgotten:
                assert other in oracle.before[node], "a forgotten deed could still have raced"
                continue
            assert hb.knows(actor, who, clock) == (other in oracle.before[node])
            compared += 1

    for _ in range(steps):
        what = rng.choice("ddeeerrrrsqt" + ("c" if collect else ""))
        host = rng.choice(hosts)
        lane = rng.choice(lanes)
        if what == "d":
            node = at[host] = oracle.node(at[host])
            compare(host, node)
            deeds.append((host, hb.stamp(host), node))
        elif what == "e":
            others = [
                (other, rng.randint(1, submitted[other])) for other in lanes if submitted[other] and other != lane
            ]
            after = rng.sample(others, min(len(others), rng.choice((0, 0, 1, 2))))
            submitted[lane] += 1
            hb.enqueue(host, lane, submitted[lane])
            queued[lane].append((at[host], after, rng.random() < 0.2))
        elif what == "r":
            if not queued[lane] or any(done[other] < ticket for other, ticket in queued[lane][0][1]):
                continue
            submitter, after, function = queued[lane].pop(0)
            done[lane] += 1
            ticket = done[lane]
            node = oracle.node(at[lane], submitter, *(complete[marker] for marker in after))
            at_once = not after and not function and rng.random() < 0.7
            if at_once:
                hb.step(lane, ticket)
            else:
                hb.start(lane, ticket, [(other, number, Edge.EVENT_WAIT) for other, number in after])
            compare(lane, node)
            deeds.append((lane, ticket, node))
            if function:
                actor = hb.begin_function(lane)
                for _ in range(rng.randint(0, 2)):
                    node = oracle.node(node)
                    compare(actor, node)
                    deeds.append((actor, hb.stamp(actor), node))
                hb.end_function(lane)
            if not at_once:
                hb.finish(lane)
            at[lane] = complete[lane, ticket] = node
        elif what in "sq" and done[lane]:
            ticket = done[lane] if what == "s" else rng.randint(1, done[lane])
            hb.sync(host, lane, ticket, Edge.STREAM_SYNC if what == "s" else Edge.QUERY)
            at[host] = oracle.node(at[host], complete[lane, ticket])
        elif what == "t":
            other = rng.choice(hosts)
            if other != host:
                hb.acquire(other, hb.release(host), Edge.THREAD)
                at[other] = oracle.node(at[other], at[host])
        elif what == "c":
            floor = hb.floor()
            hb.forget(floor)
            forgotten |= {node for who, clock, node in deeds if clock <= floor.get(who, -1)}
    return compared


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(5, 60))
def test_known_means_reachable(seed: int, steps: int) -> None:
    check_program(seed, steps, collect=False)


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(20, 90))
def test_what_is_forgotten_can_race_with_nothing(seed: int, steps: int) -> None:
    check_program(seed, steps, collect=True)


def test_the_oracle_compares_something() -> None:
    assert sum(check_program(seed, 80, collect=True) for seed in range(20)) > 5_000


# -- shadow


def brute(
    history: list[tuple[int, int, bool, int, int]],
    knowledge: list[dict[int, int]],
    start: int,
    end: int,
    write: bool,
    known: dict[int, int],
) -> set[int]:
    """Numbers of the earlier accesses that race with the new one: a write lets go of what is ordered before it."""
    racing: set[int] = set()
    for byte in range(start, end):
        held: dict[tuple[int, bool], int] = {}
        for number, (low, high, wrote, actor, _) in enumerate(history):
            if low <= byte < high:
                if wrote:
                    before = knowledge[number]
                    held = {key: n for key, n in held.items() if before.get(key[0], -1) < history[n][4]}
                held[actor, wrote] = number
        for (actor, wrote), number in held.items():
            if (wrote or write) and known.get(actor, -1) < history[number][4]:
                racing.add(number)
    return racing


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 20), st.booleans(), st.integers(0, 2), st.integers(0, 12)),
        min_size=1,
        max_size=25,
    )
)
def test_shadow_agrees_with_a_list_of_bytes(steps: list[tuple[int, int, bool, int, int]]) -> None:
    shadow = Shadow[int]()
    history: list[tuple[int, int, bool, int, int]] = []
    knowledge: list[dict[int, int]] = []
    for clock, (start, length, write, actor, heard) in enumerate(steps, 1):
        known = {other: heard for other in range(3) if other != actor}
        known[actor] = clock
        found = shadow.access(
            "mem", start, start + length, write, actor=actor, clock=clock, known=known, me=actor, info=len(history)
        )
        assert {conflict.info for conflict in found} == brute(history, knowledge, start, start + length, write, known)
        for conflict in found:
            assert start <= conflict.start < conflict.end <= start + length
            assert conflict.write == history[conflict.info][2]
        history.append((start, start + length, write, actor, clock))
        knowledge.append(known)


def test_spaces_are_independent() -> None:
    shadow = Shadow[str]()
    shadow.access("mem", 0, 8, True, actor=0, clock=1, known={}, me=0, info="a")
    assert shadow.access(("file", 1, 2), 0, 8, True, actor=1, clock=1, known={}, me=1, info="b") == []


def test_neighbouring_parts_of_one_access_are_one_conflict() -> None:
    shadow = Shadow[str]()
    shadow.access("mem", 0, 64, True, actor=0, clock=1, known={}, me=0, info="big")
    for start in (8, 16, 40):
        shadow.access("mem", start, start + 8, False, actor=0, clock=1, known={}, me=0, info="small")
    found = shadow.access("mem", 0, 64, False, actor=1, clock=1, known={}, me=1, info="late")
    assert [(c.info, c.start, c.end) for c in found] == [("big", 0, 64)]


def test_forgotten_bytes_begin_a_new_life() -> None:
    shadow = Shadow[str]()
    shadow.access("mem", 0, 64, True, actor=0, clock=1, known={}, me=0, info="old")
    shadow.forget("mem", 16, 32)
    found = shadow.access("mem", 0, 64, True, actor=1, clock=1, known={}, me=1, info="new")
    assert [(c.start, c.end) for c in found] == [(0, 16), (32, 64)]


# -- bounds


def test_a_hundred_thousand_operations_stay_small() -> None:
    hb = HappensBefore()
    shadow = Shadow[int]()
    host = hb.add_host()
    lanes = [hb.add_lane() for _ in range(4)]
    most = 0
    for number in range(100_000):
        lane = lanes[number & 3]
        ticket = (number >> 2) + 1
        address = number * 64
        shadow.access("mem", address, address + 32, True, actor=host, clock=hb.stamp(host),
                      known=hb.clocks(host), me=host, info=number)  # fmt: skip
        hb.enqueue(host, lane, ticket)
        hb.start(lane, ticket)
        assert not shadow.access("mem", address, address + 32, True, actor=lane, clock=ticket,
                                 known=hb.clocks(lane), me=lane, info=number)  # fmt: skip
        hb.finish(lane)
        if number % 100 == 99:
            hb.sync(host, lane, ticket, Edge.STREAM_SYNC)
        if number % 2000 == 1999:
            for other in lanes:
                hb.sync(host, other, min(ticket, (number - (number - other) % 4) // 4), Edge.STREAM_SYNC)
            floor = hb.floor()
            hb.forget(floor)
            shadow.prune(floor)
        most = max(most, len(shadow) + len(hb))
    assert most < 10_000


def test_a_host_that_never_waits_keeps_a_bounded_history() -> None:
    hb = HappensBefore()
    host, lane = hb.add_host(), hb.add_lane()
    for ticket in range(1, 20_001):
        hb.stamp(host)
        hb.enqueue(host, lane, ticket)
        run(hb, lane, ticket)
    assert len(hb) <= HISTORY_LIMIT + 1
    assert hb.at(lane, 10).clocks[host] >= 10, "an old ticket stands for itself or for a later one"
    assert hb.at(lane, 20_000).clocks[host] == hb.clock(host)
