"""The reduction against the truth: what an oracle that knows nothing of the engine finds by walking all states."""

from __future__ import annotations

import statistics

import pytest
from oracle import Oracle
from small_programs import generate, machine_options, make_body, plain

from hipfile_sim.explore import explore

QUICK = {
    "device": 190, "branches": 110, "values": 70, "host": 45, "failures": 45, "files": 25, "blocks": 15,
    "handles": 30, "announced": 90, "faults": 20,
}  # fmt: skip
"""Programs by kind: 640."""
LARGEST = {
    "device": 10**9,
    "branches": 10**9,
    "values": 2000,
    "host": 400,
    "failures": 1000,
    "files": 700,
    "blocks": 100,
    "handles": 2000,
    "announced": 10**6,
    "faults": 1500,
}
"""Schedules of the largest program of a kind. Where the host can see all work there is little to leave out, so larger
programs take long; the fuzz test has them."""


def reduced(program, scratch, limit=None):
    """Outcomes and runs."""
    found = explore(
        make_body(program, scratch), host="announced" if program.announced else "opaque",
        schedules=limit, keep_going=True, explain=False, **machine_options(program),
    )  # fmt: skip
    assert found.complete, found.summary()
    return {plain(outcome) for outcome in found.outcomes}, found.runs + found.cut


def check(program, scratch, seed):
    """The share of the schedules that was run."""
    truth = Oracle(program)
    outcomes, runs = reduced(program, scratch)
    missing, extra = truth.outcomes - outcomes, outcomes - truth.outcomes
    assert not missing, f"seed {seed}: {program}\nnot found: {sorted(map(repr, missing))[:3]}"
    assert not extra, f"seed {seed}: {program}\nimpossible: {sorted(map(repr, extra))[:3]}"
    return runs / truth.schedules


def programs(kind, count, largest):
    """The first `count` programs of `kind` that are not too large."""
    seed = 0
    while count:
        program = generate(seed, kind)
        if Oracle(program).schedules <= largest:
            yield seed, program
            count -= 1
        seed += 1


SHARES: dict[str, list[float]] = {}


@pytest.mark.parametrize("kind", QUICK)
def test_the_reduction_finds_exactly_what_is_possible(kind, scratch):
    SHARES[kind] = [check(program, scratch, seed) for seed, program in programs(kind, QUICK[kind], LARGEST[kind])]
    if kind in ("device", "branches"):  # these have work of one stream that is none of the others' business
        assert statistics.median(SHARES[kind]) <= 0.1


def test_the_median_program_needs_a_tenth_of_its_schedules():
    if set(SHARES) != set(QUICK):
        pytest.skip("needs the figures of every kind: run the whole module")
    assert sum(map(len, SHARES.values())) >= 500
    assert statistics.median(share for shares in SHARES.values() for share in shares) <= 0.1


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", QUICK)
def test_larger_programs(kind, scratch):
    for seed in range(1000, 1200):
        program = generate(seed, kind)
        if Oracle(program).schedules <= 50 * LARGEST[kind]:
            check(program, scratch, seed)


@pytest.mark.parametrize("kind", ["device", "branches", "values", "host", "files", "announced"])
def test_full_enumeration_finds_the_same_and_as_many_as_were_counted(kind, scratch):
    checked = 0
    for seed, program in programs(kind, 4 if kind in ("files", "announced") else 8, 120):
        found = explore(
            make_body(program, scratch),
            schedules=5000, strategy="all", keep_going=True, explain=False, **machine_options(program),
        )  # fmt: skip
        if not found.complete:
            continue
        checked += 1
        assert {plain(outcome) for outcome in found.outcomes} == Oracle(program).outcomes, (seed, program)
        straight = not any(op[0] in ("branch", "wait_value") for op in program.ops)
        if straight and ("deadlock",) not in found.outcomes:
            assert found.orders == found.runs, (seed, program)
    assert checked >= 3
