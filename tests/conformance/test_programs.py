"""Generated programs: the enumeration is right, and a wrong target is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hipfile_conformance.kit import Kit
from hipfile_conformance.programs import lockstep, outcomes
from hipfile_conformance.programs.concurrent import Program, generate, perform
from hipfile_conformance.programs.outcomes import TooMany, _Enumerate, allowed_outcomes
from hipfile_conformance.results import State

pytestmark = pytest.mark.timeout(900)


def test_the_same_seed_is_the_same_program() -> None:
    assert generate(5) == generate(5) != generate(6)
    again = Program.from_json(json.loads(str(generate(5))))
    assert again == generate(5)


def all_orders(program: Program, release: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The outcomes without any reduction."""
    with monkeypatch.context() as patch:
        patch.setattr(_Enumerate, "_conflicts", lambda self, command: True)
        return set(allowed_outcomes(lambda kit: perform(kit, program), release, folder, limit=20_000))


@pytest.mark.parametrize(
    "steps",
    [
        (("read", 0, 1, 2), ("read", 1, 3, 2)),
        (("write", 0, 1, 2), ("fill", 1, 2, 9), ("fetch", 1, 2, 0)),
        (("read", 0, 0, 0), ("record", 0, 0), ("wait", 1, 0), ("write", 1, 4, 0)),
    ],
)
@pytest.mark.parametrize("release", ["0.2", "cufile"])
def test_the_reduction_loses_no_outcome(
    steps: tuple[Any, ...], release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(0, (1, 1), steps)
    fast = set(allowed_outcomes(lambda kit: perform(kit, program), release, tmp_path))
    assert fast == all_orders(program, release, tmp_path, monkeypatch)


def test_an_event_leaves_one_order(tmp_path: Path) -> None:
    race = Program(0, (1, 1), (("fill", 0, 0, 5), ("fetch", 1, 0, 0)))
    ordered = Program(0, (1, 1), (("fill", 0, 0, 5), ("record", 0, 0), ("wait", 1, 0), ("fetch", 1, 0, 0)))
    assert len(allowed_outcomes(lambda kit: perform(kit, race), "0.5", tmp_path)) == 2
    assert len(allowed_outcomes(lambda kit: perform(kit, ordered), "0.5", tmp_path)) == 1


def test_too_many_orders_are_refused(tmp_path: Path) -> None:
    program = Program(0, (1, 1), tuple(("fill", n % 2, 0, n + 1) for n in range(12)))
    with pytest.raises(TooMany):
        allowed_outcomes(lambda kit: perform(kit, program), "0.5", tmp_path, limit=50)


def test_a_wrong_target_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that loses its last byte: some program has an outcome that no order allows."""
    from hipfile_conformance.mutants.chunking import last_byte_lost

    real = allowed_outcomes

    def healthy(*args: Any, **keywords: Any) -> Any:
        patch.__exit__(None, None, None)
        try:
            return real(*args, **keywords)
        finally:
            patch.__enter__()

    class Switch:
        def __enter__(self) -> None:
            self.now = last_byte_lost()
            self.now.__enter__()

        def __exit__(self, *_: object) -> None:
            self.now.__exit__(None, None, None)

    patch = Switch()
    monkeypatch.setattr(outcomes, "allowed_outcomes", healthy)
    monkeypatch.setitem(outcomes.COUNTS, "quick", 8)
    with patch:
        found, failures = outcomes.run("sim", "0.5", "quick", 0, tmp_path, (1, 1))
    assert found["wrong"] == len(failures) > 0
    assert failures[0].rerun.startswith("hipfile-conformance program ")


def test_lockstep_agrees_with_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lockstep.COUNTS, "quick", (5, 10))
    found, failures = lockstep.run("sim", "0.5", "quick", 1, tmp_path, (1, 1))
    assert found["programs"] >= 5
    assert failures == []


def test_lockstep_finds_and_shrinks_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = lockstep.World.do_fill
    calls: list[int] = []

    def sometimes(self: lockstep.World, number: int, offset: int, length: int, value: int) -> int:
        seeded = self.t.target.schedule == "seeded:5"  # type: ignore[attr-defined]
        calls.append(1)
        return real(self, number, offset, length, value ^ 1 if seeded and value > 100 else value)

    monkeypatch.setattr(lockstep.World, "do_fill", sometimes)
    found, failures = lockstep.run("sim", "0.5", "quick", 0, tmp_path, (1, 1))
    assert found["wrong"] == 1
    [failure] = failures
    assert failure.state is State.FAIL
    steps = json.loads(failure.message.rpartition("program ")[2])["steps"]
    assert [step[0] for step in steps].count("fill") == 1
    assert failure.rerun.startswith("hipfile-conformance replay ")


def test_normalisers() -> None:
    """Only what the release's answer to the clause leaves open is passed over."""
    for model, target in ((["-1/EBADF", 1], ["-1/EIO", 1]), ([-5], [-1])):
        assert lockstep.compare(model, target, "cufile") is None
        assert lockstep.compare(model, target, "0.5") == f"[0] model {model[0]!r}, target {target[0]!r}"
    assert lockstep.compare("-1/5027", "-5027", "cufile") is not None
    assert lockstep.compare({"seen": 1}, {"seen": 2}, "0.5") == "seen: model 1, target 2"


def test_normalisers_belong_to_answers() -> None:
    from hipfile_sim.driver.clauses import get

    for clause, (answer, _) in lockstep.NORMALISERS.items():
        assert answer in get(clause).answers.values(), clause


def test_steps_that_are_not_made() -> None:
    for answer in (lockstep.NOT_MADE, lockstep.REFUSED + "register_odd"):
        assert lockstep.compare({"seen": "IONotSupported"}, {"seen": answer}, "0.5") is None
        assert lockstep.compare({"counts": [1], "seen": 1}, {"counts": [2], "seen": answer}, "0.5") is not None


def test_committed_programs_run(tmp_path: Path) -> None:
    from hipfile_conformance.targets.sim import SimTarget

    assert outcomes.examples()
    for program in outcomes.examples():
        kit = Kit(SimTarget(tmp_path), "0.5")
        perform(kit, program)
        kit.cleanup()
    assert lockstep.examples()
