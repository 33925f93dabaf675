"""Mutants: enough of them, each undone, and the runner tells killed, survived and broken apart."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hipfile_conformance
from hipfile_conformance import suite
from hipfile_conformance.mutants import BrokenPatch, Unhealthy, all_mutants, changed, mutant, registry, run_mutants
from hipfile_conformance.suite.registry import find
from hipfile_sim.driver.operations import Bind, Cleanup, CpuCopy
from hipfile_sim.hip.stream import Event

pytestmark = pytest.mark.timeout(900)

SCORE = Path(hipfile_conformance.__file__).parent / "results" / "mutants" / "score.json"
TESTS = ("chunk.writes", "bind.changed_sizes", "hip.records")


@pytest.fixture
def score(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Score patches with three tests instead of the whole suite; the name is the function's."""
    monkeypatch.setattr(suite, "all_tests", lambda: tuple(find(name) for name in TESTS))

    def run(*patches: Callable[[], Iterator[None]]) -> dict[str, Any]:
        monkeypatch.setattr(registry, "_found", {})
        for patch in patches:
            mutant(patch.__name__)(patch)
        made = tuple(registry._found.values())
        monkeypatch.setattr("hipfile_conformance.mutants.runner.all_mutants", lambda: made)
        return run_mutants(jobs=2)

    return run


def by_name(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(value for key, value in found["mutants"].items() if key.endswith("." + name))


def test_there_are_enough_families_and_mutants() -> None:
    assert len(all_mutants()) >= 60
    assert len({m.name.partition(".")[0] for m in all_mutants()}) >= 5


@pytest.mark.parametrize("name", [m.name for m in all_mutants()])
def test_each_is_undone(name: str) -> None:
    before = Cleanup.run, Event.done
    with registry._found[name].patch():
        pass
    assert (Cleanup.run, Event.done) == before


class Thing:
    value = 1


class Heir(Thing):
    pass


def test_changed_sets_back_after_an_error() -> None:
    def broken() -> None:
        with changed((Thing, "value", 2)):
            assert Thing.value == 2
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert Thing.value == 1


def test_changed_takes_what_a_base_has() -> None:
    with changed((Heir, "value", 2)):
        assert (Thing.value, Heir.value) == (1, 2)
    assert "value" not in Heir.__dict__


def test_a_patch_that_changes_nothing_is_refused() -> None:
    with pytest.raises(BrokenPatch, match="has no 'worth'"), changed((Thing, "worth", 2)):
        pass
    with pytest.raises(BrokenPatch, match="is 1 already"), changed((Thing, "value", 1)):
        pass


def nothing() -> Iterator[None]:
    yield


def swallowed() -> Iterator[None]:
    with changed((Cleanup, "run", lambda self: None)):
        yield


def refused_by_the_system() -> Iterator[None]:
    def fail(self: CpuCopy) -> None:
        raise OSError(errno.EIO, "no such luck")

    with changed((CpuCopy, "run", fail)):
        yield


def test_killed_and_survived(score: Callable[..., dict[str, Any]]) -> None:
    found = score(nothing, swallowed, refused_by_the_system)
    assert (found["total"], found["killed"], found["broken"]) == (3, 2, [])
    assert [name.rpartition(".")[2] for name in found["survivors"]] == ["nothing"]
    assert by_name(found, "swallowed")["clauses"]
    assert "result.success" not in found["weak"]
    assert "life.version" in found["weak"]
    assert found["healthy"] == {"0.5": len(TESTS)}


def wrong_target() -> Iterator[None]:
    with changed((Cleanup, "no_such_method", None)):
        yield


def wrong_arguments() -> Iterator[None]:
    with changed((Bind, "run", lambda self, more: None)):
        yield


def wrong_name() -> Iterator[None]:
    run = Bind.run

    def late(self: Bind) -> None:
        run(self)
        self.op.no_such_attribute  # type: ignore[attr-defined]  # noqa: B018

    with changed((Bind, "run", late)):
        yield


def own_assertion() -> Iterator[None]:
    def late(self: CpuCopy) -> None:
        assert self.op.write, "a slip of the patch"

    with changed((CpuCopy, "run", late)):
        yield


def test_a_patch_that_crashes_is_neither(score: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipfile_conformance.mutants.runner._PATCHES", str(Path(__file__).resolve()))
    patches = (wrong_target, wrong_arguments, wrong_name, own_assertion, refused_by_the_system)
    found = score(*patches)
    assert [name.rpartition(".")[2] for name in found["broken"]] == sorted(p.__name__ for p in patches[:-1])
    assert found["killed"] == 1
    assert found["survivors"] == []
    assert "no_such_method" in by_name(found, "wrong_target")["crash"]
    assert by_name(found, "wrong_arguments")["crash"].startswith("TypeError")
    assert "no_such_attribute" in by_name(found, "wrong_name")["crash"]
    assert "a slip of the patch" in by_name(found, "own_assertion")["crash"]


def test_a_model_that_fails_scores_nothing(
    score: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cleanup, "run", lambda self: None)
    with pytest.raises(Unhealthy, match=r"0\.5: the healthy model fails: .*chunk\.writes"):
        score(nothing)


def test_the_committed_score_is_one_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from hipfile_conformance.cli import app

    before = SCORE.read_bytes()
    monkeypatch.setattr(Cleanup, "run", lambda self: None)
    for args, word in (
        (["--only", "fresh", "--write"], "leave out"),
        (["--only", "no.such.word"], "no mutant"),
        (["--only", "fresh.late_release"], "nothing was scored"),
    ):
        result = CliRunner().invoke(app, ["mutants", *args])
        assert result.exit_code == 2, result.output
        assert word in " ".join(result.output.replace("│", " ").split())
    assert SCORE.read_bytes() == before


def test_the_committed_score() -> None:
    score = json.loads(SCORE.read_text())
    assert score["survivors"] == score["broken"] == []
    assert set(score["mutants"]) == {m.name for m in all_mutants()}, "run hipfile-conformance mutants --write"
