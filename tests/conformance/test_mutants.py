"""Mutants: enough of them, each undone, and the runner tells killed from survived."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import hipfile_conformance
from hipfile_conformance.mutants import all_mutants, changed, mutant, run_mutants
from hipfile_conformance.mutants.registry import _found
from hipfile_sim.driver.operations import Cleanup
from hipfile_sim.hip.stream import Event

pytestmark = pytest.mark.timeout(240)


def test_there_are_enough_families_and_mutants() -> None:
    assert len(all_mutants()) >= 60
    assert len({m.name.partition(".")[0] for m in all_mutants()}) >= 5


@pytest.mark.parametrize("name", [m.name for m in all_mutants()])
def test_each_is_undone(name: str) -> None:
    before = Cleanup.run, Event.done
    with _found[name].patch():
        pass
    assert (Cleanup.run, Event.done) == before


def test_changed_sets_back_after_an_error() -> None:
    class Thing:
        value = 1

    def broken() -> None:
        with changed((Thing, "value", 2)):
            assert Thing.value == 2
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert Thing.value == 1


@pytest.mark.slow
def test_killed_and_survived() -> None:
    @mutant("nothing at all is broken")
    def harmless() -> Iterator[None]:
        yield

    name = next(key for key in _found if key.endswith(".harmless"))
    all_mutants.cache_clear()
    try:
        found = run_mutants(["publishing.never_published", name])
    finally:
        del _found[name]
        all_mutants.cache_clear()
    assert found["survivors"] == [name]
    assert "result.success" in found["mutants"]["publishing.never_published"]["clauses"]
    assert "result.success" not in found["weak"]


def test_the_committed_score() -> None:
    path = Path(hipfile_conformance.__file__).parent / "results" / "mutants" / "score.json"
    score = json.loads(path.read_text())
    assert score["survivors"] == []
    assert set(score["mutants"]) == {m.name for m in all_mutants()}, "run hipfile-conformance mutants --write"
