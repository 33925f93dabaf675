"""Budgets, continuing, sharing out, repeating, and what a search says of itself."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import textwrap
import threading
from math import factorial

import pytest
from oracle import Oracle
from small_programs import generate, machine_options, make_body, plain

import hipfile_sim
from hipfile_sim.engine.errors import DeadlockError, TokenMismatch
from hipfile_sim.explore import ExplorationError, NondeterminismError, explore, outcomes
from hipfile_sim.hip.settings import HipSettings


def racing(machine, streams=3, writes=1):
    """Every stream sets the same byte, the last one wins."""
    hip = machine.hip
    _, pointer = hip.hipMalloc(1)
    handles = [hip.hipStreamCreateWithFlags(1)[1] for _ in range(streams)]
    for value, stream in enumerate(handles * writes, 1):
        hip.hipMemsetAsync(pointer, value, 1, stream)
    hip.hipDeviceSynchronize()
    return machine.memory.view(pointer, 1)[0]


def fails_if_the_second_stream_is_last(machine):
    assert racing(machine) != 2


# -- what it says -----------------------------------------------------------------------------------------------------


def test_the_result_says_exactly_what_was_covered():
    found = explore(racing, devices=1)
    assert found.complete
    assert found.stopped == "complete"
    assert found.coverage == f"all {found.orders:,} orders, {found.runs} after reduction"
    assert found.runs == factorial(3)
    assert str(found).startswith(found.coverage + "; no failure (")
    everything = explore(racing, strategy="all", schedules=None, devices=1)
    assert everything.runs == found.orders
    assert everything.coverage == f"all {found.orders:,} orders, {found.orders:,} run"
    assert set(everything.outcomes) == set(found.outcomes) == {1, 2, 3}


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        ("random", "7 of an unknown number of schedules"),
        ("pct", "7 of an unknown number of schedules"),
        ("dpor", "7 schedules of {orders:,} orders, the rest not covered"),
        ("bounded", "7 schedules: some of those without preemption"),
    ],
)
def test_a_search_that_was_cut_short_says_so(strategy, text):
    found = explore(lambda machine: racing(machine, writes=2), strategy=strategy, schedules=7)
    assert not found.complete
    assert found.stopped == "schedules"
    assert found.coverage == text.format(orders=found.orders or 0)


def test_a_program_without_choices_has_one_order():
    assert explore(lambda machine: 1).coverage == "the only order"


def test_preemption_bound_covers_more_with_more():
    sizes = []
    for bound in range(3):
        found = explore(racing, strategy="bounded", bound=bound, schedules=None)
        assert found.coverage == f"all {found.runs:,} schedules with at most {bound} preemptions"
        sizes.append(found.runs)
    assert sizes == sorted(set(sizes))
    found = explore(racing, strategy="bounded", bound=50, schedules=None)
    assert found.runs == explore(racing, strategy="all", schedules=None).runs
    assert found.coverage.startswith(f"all {found.runs:,} schedules, none of which has more than ")


def test_outcomes_is_the_set_of_all_results():
    assert outcomes(racing) == {1, 2, 3}
    with pytest.raises(RuntimeError, match=r"2 schedules of .* orders"):
        outcomes(racing, schedules=2)


def test_deadlocks_and_errors_are_outcomes():
    def body(machine):
        hip = machine.hip
        _, signal = hip.hipMalloc(4)
        one, two = (hip.hipStreamCreateWithFlags(1)[1] for _ in range(2))
        hip.hipMemset(signal, 0, 4)
        hip.hipStreamWriteValue32(one, signal, 1)
        hip.hipStreamWriteValue32(one, signal, 0)
        hip.hipStreamWaitValue32(two, signal, 1, 1)
        hip.hipStreamSynchronize(two)
        if hip.hipStreamQuery(one):
            raise KeyError("early")

    assert outcomes(body) == {None, ("deadlock",), ("raised", "KeyError", "'early'")}
    found = explore(body, keep_going=True)
    assert {type(failure.error) for failure in found.failures} == {KeyError, DeadlockError}


def test_the_package_can_be_called():
    assert hipfile_sim.explore(racing).complete
    assert hipfile_sim.outcomes(racing) == {1, 2, 3}


# -- budgets ----------------------------------------------------------------------------------------------------------


def test_time_is_a_budget():
    found = explore(lambda machine: racing(machine, 3, 3), schedules=None, seconds=0.3, strategy="random")
    assert found.stopped == "time"
    assert 0.3 <= found.seconds < 10


def test_the_first_failure_ends_the_search_unless_told_otherwise():
    first = explore(fails_if_the_second_stream_is_last)
    assert first.stopped == "failure"
    assert not first
    with pytest.raises(ExplorationError, match="hs1-") as caught:
        first.check()
    assert isinstance(caught.value.__cause__, AssertionError)
    everything = explore(fails_if_the_second_stream_is_last, keep_going=True)
    assert everything.complete
    assert len(everything.failures) == 1
    assert everything.outcomes.total() == everything.runs == 6


def test_progress_is_told_after_every_run():
    seen = []
    explore(racing, progress=lambda found: seen.append((found.runs, found.complete, found.coverage)))
    assert [runs for runs, _, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert [complete for _, complete, _ in seen] == [False] * 5 + [True]
    assert seen[2][2].startswith("3 schedules of ")


# -- continuing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["dpor", "all", "bounded", "random", "pct"])
def test_a_search_goes_on_where_it_stopped(strategy, tmp_path):
    def body(machine):
        return racing(machine, 3, 1)

    whole = explore(body, strategy=strategy, schedules=60, bound=2)
    file = tmp_path / "search.json"
    for budget in itertools.count(7, 7):
        part = explore(body, strategy=strategy, schedules=min(budget, 60), resume=file, bound=2)
        if part.stopped == "complete" or part.runs >= 60:
            break
    assert (part.runs, part.cut, part.outcomes) == (whole.runs, whole.cut, whole.outcomes)
    assert part.coverage == whole.coverage


def test_a_search_goes_on_in_another_process(tmp_path, scratch):
    kind, seed = next(
        (kind, seed)
        for seed in range(100)
        for kind in ("values", "host")
        if 15 <= explore(
            make_body(generate(seed, kind), scratch), schedules=60, explain=False, keep_going=True,
            **machine_options(generate(seed, kind)),
        ).runs < 60
    )  # fmt: skip
    program = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from small_programs import generate, machine_options, make_body
        from hipfile_sim.explore import explore
        program = generate({seed}, {kind!r})
        found = explore(
            make_body(program, {scratch!r}), schedules=int(sys.argv[1]), resume={str(tmp_path / "search")!r},
            keep_going=True, explain=False, **machine_options(program),
        )
        print(found.complete, found.runs, found.cut)
        """
    )
    for budget in range(6, 70, 6):
        done = subprocess.run(
            [sys.executable, "-c", program, str(budget)], capture_output=True, text=True, timeout=500, check=True
        )
        if done.stdout.startswith("True"):
            break
    whole = explore(
        make_body(generate(seed, kind), scratch),
        keep_going=True,
        explain=False,
        **machine_options(generate(seed, kind)),
    )
    assert done.stdout.split() == ["True", str(whole.runs), str(whole.cut)]
    state = json.loads((tmp_path / "search").read_text())
    assert len(state["outcomes"]) == len(whole.outcomes)


def test_failures_are_known_again(tmp_path):
    first = explore(fails_if_the_second_stream_is_last, resume=tmp_path / "file")
    again = explore(fails_if_the_second_stream_is_last, resume=tmp_path / "file")
    assert again.runs == first.runs
    assert again.stopped == "failure"
    assert [failure.token for failure in again.failures] == [failure.token for failure in first.failures]


@pytest.mark.parametrize(("streams", "reason"), [(2, "the token stopped fitting at choice 2"), (3, "nothing fails")])
def test_failures_of_a_program_that_has_changed_since_are_refused(streams, reason, tmp_path):
    explore(fails_if_the_second_stream_is_last, resume=tmp_path / "file")
    with pytest.raises(ValueError, match=rf"cannot resume from .*, which failed, {reason}.* remove the file"):
        explore(lambda machine: racing(machine, streams), resume=tmp_path / "file")


def test_a_search_of_a_program_that_has_changed_since_says_so(tmp_path):
    explore(racing, schedules=1, resume=tmp_path / "file")
    with pytest.raises(NondeterminismError, match=r"Or it has changed since .*file was written: then remove that file"):
        explore(lambda machine: racing(machine, 2), resume=tmp_path / "file")


@pytest.mark.parametrize("damage", ["", "{}", "[1]", '{"version": 99}', "half"])
def test_a_file_that_does_not_fit_is_refused(damage, tmp_path):
    file = tmp_path / "file"
    explore(racing, schedules=2, resume=file)
    file.write_text(file.read_text()[:100] if damage == "half" else damage)
    with pytest.raises(ValueError, match=r"cannot resume from .*; remove the file to start again"):
        explore(racing, resume=file)


def test_a_file_of_another_search_is_refused(tmp_path):
    explore(racing, schedules=2, resume=tmp_path / "file")
    for options in ({"strategy": "random"}, {"strategy": "all"}, {"shard": (0, 2)}):
        with pytest.raises(ValueError, match="cannot resume"):
            explore(racing, resume=tmp_path / "file", **options)


def test_an_interrupted_search_keeps_its_place(tmp_path):
    def interrupt(found):
        if found.runs == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explore(racing, resume=tmp_path / "file", progress=interrupt)
    found = explore(racing, resume=tmp_path / "file")
    assert (found.complete, found.runs) == (True, 6)


# -- sharing out ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "seed"), [("device", 3), ("values", 1), ("branches", 5), ("host", 9), ("failures", 4)]
)
@pytest.mark.parametrize("count", [2, 5])
def test_shards_together_are_everything(kind, seed, count, scratch):
    program = generate(seed, kind)
    truth = Oracle(program)
    if truth.schedules > 3000:
        pytest.skip("too large")
    together, runs = set(), []
    for index in range(count):
        part = explore(
            make_body(program, scratch), shard=(index, count), schedules=None, keep_going=True, explain=False,
            **machine_options(program),
        )  # fmt: skip
        assert part.complete
        assert f"shard {index}/{count} of " in part.coverage or part.orders is None
        together |= {plain(outcome) for outcome in part.outcomes}
        runs.append(part.runs)
    assert together == truth.outcomes


def test_shards_of_a_full_enumeration_repeat_nothing():
    whole = explore(racing, strategy="all", schedules=None)
    parts = [explore(racing, strategy="all", schedules=None, shard=(index, 4)) for index in range(4)]
    assert sum(part.runs for part in parts) == whole.runs
    assert max(part.runs for part in parts) < whole.runs / 2


def test_shards_of_samples_take_other_seeds():
    tokens = []
    for shard in (None, (0, 2), (1, 2)):
        seen = []

        def body(machine, seen=seen):
            racing(machine)
            seen.append(machine.token())

        explore(body, strategy="random", schedules=20 if shard is None else 10, shard=shard)
        tokens.append(seen)
    assert sorted(tokens[0]) == sorted(tokens[1] + tokens[2])


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0)])
def test_bad_shards(shard):
    with pytest.raises(ValueError, match="0 <= i < n"):
        explore(racing, shard=shard)


# -- repeating --------------------------------------------------------------------------------------------------------


def test_twice_notices_results_that_differ():
    with pytest.raises(NondeterminismError, match=r"gave .* and then "):
        explore(lambda machine: (racing(machine), random.random()), twice=True)


def test_twice_notices_choices_that_differ():
    numbers = itertools.count(1)
    with pytest.raises(NondeterminismError, match=r"cannot be repeated|gave \d and then"):
        explore(lambda machine: racing(machine, next(numbers) % 2 + 2), twice=True, strategy="random")


def test_twice_is_quiet_on_programs_that_repeat():
    assert explore(racing, twice=True).complete


@pytest.mark.parametrize("strategy", ["dpor", "all", "bounded"])
def test_systematic_searches_notice_by_themselves(strategy):
    numbers = itertools.count()

    def body(machine):
        return racing(machine, 3 if next(numbers) < 2 else 2)

    with pytest.raises(NondeterminismError):
        explore(body, strategy=strategy, schedules=None)


def test_a_program_that_swallows_everything_is_still_noticed():
    numbers = itertools.count()

    def body(machine):
        try:
            racing(machine, 3 if next(numbers) < 2 else 2)
        except BaseException:
            return

    with pytest.raises(NondeterminismError):
        explore(body)


def test_cleanup_that_catches_everything_does_not_disturb_the_search():
    def body(machine):
        hip = machine.hip
        try:
            return racing(machine, 3)
        except BaseException:
            pass
        finally:
            hip.hipDeviceSynchronize()
        return "swallowed"

    found = explore(body)
    assert set(found.outcomes) == {1, 2, 3}


# -- tokens -----------------------------------------------------------------------------------------------------------


def test_a_token_is_a_strategy():
    failure = explore(fails_if_the_second_stream_is_last).failures[0]
    again = explore(fails_if_the_second_stream_is_last, strategy=failure.token)
    assert again.coverage == "the schedule of the token"
    assert not again.ok
    assert hipfile_sim.Machine(schedule=failure.token).engine.schedule.unused == len(failure.simplest.choices)


def test_options_that_make_no_sense():
    with pytest.raises(TypeError, match="a token goes to strategy="):
        explore(racing, schedule="lazy")
    with pytest.raises(ValueError, match="only the steps engine"):
        explore(racing, engine="threads")
    with pytest.raises(TypeError, match="nonsense"):
        explore(racing, nonsense=1)


def test_unknown_strategies_list_the_known_ones():
    with pytest.raises(ValueError, match="dpor, all, bounded, pct, random"):
        explore(racing, strategy="magic")


def test_a_token_remembers_that_it_did_not_fit():
    token = explore(fails_if_the_second_stream_is_last).failures[0].token
    with hipfile_sim.Machine(schedule=token) as machine:
        with pytest.raises(TokenMismatch, match="choice 2: it expects 4 options, the program offers"):
            racing(machine, 2)
        with pytest.raises(TokenMismatch, match="at hipDeviceSynchronize"):  # where it was, not where it is
            machine.finish()
        with pytest.raises(TokenMismatch, match=r"choice 2.* at hipDeviceSynchronize"):
            machine.engine.replayed()


# -- what the sanitizer adds ------------------------------------------------------------------------------------------


def test_errors_of_the_sanitizer_are_failures():
    assert explore(racing).ok
    found = explore(racing, sanitize=True)
    assert not found.ok
    assert "race.write-write" in str(found)
    assert explore(racing, sanitize="race.*=off").ok


def test_a_lock_of_the_program_does_not_stop_the_search():
    lock = threading.Lock()

    def body(machine):
        with lock:
            return racing(machine)

    assert outcomes(body) == {1, 2, 3}


def test_settings_reach_the_machine():
    seen = explore(lambda machine: machine.settings.queue_limit, settings=HipSettings(queue_limit=5), devices=1)
    assert list(seen.outcomes) == [5]
