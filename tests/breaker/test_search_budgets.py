"""A search that has run nothing has found nothing: it never passes for one that has."""

from __future__ import annotations

from typing import Any

import pytest

from hipfile_sim import Machine, explore

pytest_plugins = ("pytester",)


def _fails(machine: Machine) -> None:
    raise AssertionError("always")


@pytest.mark.parametrize("schedules", [0, -1, "5", 2.5, True])
def test_budget_of_no_schedule_is_refused(schedules: Any) -> None:
    with pytest.raises(ValueError, match="schedules is"):
        explore(_fails, schedules=schedules)


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_budget_of_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds is"):
        explore(_fails, seconds=seconds)


@pytest.mark.parametrize("seconds", [0, 1e-9])
def test_one_schedule_runs_however_little_time_there_is(seconds: float) -> None:
    found = explore(_fails, seconds=seconds, explain=False)
    assert found.runs == 1
    assert not found.ok


@pytest.mark.parametrize("schedules", [-1, "'x'"])
def test_marker_without_a_schedule_does_not_pass(pytester: pytest.Pytester, schedules: object) -> None:
    pytester.makepyfile(f"""
        import pytest

        @pytest.mark.hipfile(schedules={schedules})
        def test_wrong(hipfile_fake):
            assert False
    """)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*schedules is *give the most schedules to run*"])
