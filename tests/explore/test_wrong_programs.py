"""Known bugs are found, and made as simple as by hand."""

from __future__ import annotations

import pytest
from wrong_programs import WRONG

from hipfile_sim import Machine
from hipfile_sim.engine.errors import DeadlockError
from hipfile_sim.engine.token import TokenSchedule
from hipfile_sim.explore import explore
from hipfile_sim.explore.run import execute
from hipfile_sim.explore.shrink import Departures

BY_NAME = {program.name: program for program in WRONG}


def test_there_are_twenty():
    assert len(BY_NAME) == len(WRONG) >= 20


@pytest.mark.parametrize("strategy", ["random", "pct"])
@pytest.mark.parametrize("name", BY_NAME)
def test_sampling_finds_the_bug_and_makes_it_simple(name, strategy):
    program = BY_NAME[name]
    found = explore(program.body, strategy=strategy, schedules=200, **program.options)
    assert not found.ok, found.summary()
    (failure,) = found.failures
    assert isinstance(failure.error, (AssertionError, DeadlockError)), failure
    assert len(failure.departures) <= program.fewest + 2, failure
    again = execute(
        program.body, lambda schedule: Machine(**program.options, schedule=schedule), TokenSchedule(failure.token)
    )
    assert again.same_failure(failure.simplest)
    for part in (failure.token, type(failure.error).__name__, "host"):
        assert part in str(failure)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_search_of_all_orders_finds_the_bug(name):
    program = BY_NAME[name]
    found = explore(program.body, schedules=2000, **program.options)
    assert not found.ok, found.summary()


class _Forced(Departures):
    """Departs from the plain schedule at the choices that are named, and notes what else could be chosen."""

    def __init__(self, forced):
        super().__init__()
        self.forced = dict(forced)
        self.step = 0
        self.others = []

    def _pick(self, point, plain):
        step, self.step = self.step, self.step + 1
        lanes = [option.lane for option in point.options]
        if step in self.forced:
            return lanes.index(self.forced[step])
        if step > max(self.forced, default=-1):
            self.others += [(step, lane) for index, lane in enumerate(lanes) if index != plain]
        return plain


@pytest.mark.parametrize("name", [program.name for program in WRONG if program.fewest <= 2])
def test_the_number_found_by_hand_is_the_fewest(name):
    program = BY_NAME[name]

    def fails(forced):
        schedule = _Forced(forced)
        run = execute(program.body, lambda schedule: Machine(**program.options, schedule=schedule), schedule)
        return run.failed, schedule.others

    level = [{}]
    for count in range(program.fewest + 1):
        following = []
        results = []
        for forced in level:
            failed, others = fails(forced)
            results.append(failed)
            following += [{**forced, step: lane} for step, lane in others]
            if failed and count == program.fewest:
                return
        assert not any(results), f"{count} choices are enough"
        level = following
    pytest.fail(f"{program.fewest} choices are not enough")
