"""Calls that a target's own interface refuses: owned clause by clause, or failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipfile_conformance.expectations import Deviation, apply_expectations, load_expectations
from hipfile_conformance.results import Check, Column, State, TestResult, derive_cells
from hipfile_conformance.suite.registry import find
from hipfile_conformance.targets.base import Inexpressible
from hipfile_conformance.targets.sim import SimTarget
from hipfile_conformance.worker import run_test

OWNED = Deviation("why", "who", test="stream.register", clause="stream.register.flags", inexpressible=True)
ALSO = [
    Deviation("why", "who", test="stream.register", clause=clause, inexpressible=True)
    for clause in ("stream.flags.bits", "stream.async-supported", "stream.register.duplicate")
]


def refused(*checked: str, state: State = State.PASS) -> Column:
    checks = [Check(clause, state, 1, 1) for clause in checked]
    result = TestResult("stream.register", State.FAIL, checks=checks, message="no", refusal="no such number")
    return Column("third", "0.5", "quick", 0, tests=[result])


def test_a_refused_call_fails_the_test(tmp_path: Path) -> None:
    class Narrow(SimTarget):
        def call(self, name: str, *args: Any) -> Any:
            if name == "hipFileStreamRegister" and args[1] > 15:
                raise Inexpressible(f"{args[1]} is no member of the enumeration")
            return super().call(name, *args)

    result = run_test(find("stream.register"), Narrow(tmp_path), "0.5")
    assert result.state is State.FAIL
    assert result.refusal == "16 is no member of the enumeration"
    assert {check.clause for check in result.checks} == {"stream.register.duplicate", "stream.flags.bits"}
    assert TestResult.from_json(result.as_json()).refusal == result.refusal


def test_nobody_owns_it() -> None:
    column = refused()
    assert apply_expectations(column, []) == []
    assert column.tests[0].state is State.FAIL
    assert "nobody owns, for stream.async-supported, stream.flags.bits" in column.tests[0].message
    assert "no such number" in column.tests[0].message


def test_each_clause_that_stays_unanswered_must_be_owned() -> None:
    column = refused("stream.register.duplicate")
    apply_expectations(column, [OWNED])
    assert column.tests[0].state is State.FAIL
    assert "stream.async-supported, stream.flags.bits, that" in column.tests[0].message
    column = refused("stream.register.duplicate", "stream.flags.bits", "stream.async-supported")
    assert apply_expectations(column, [OWNED]) == []
    assert column.tests[0].state is State.UNSUPPORTED
    assert column.tests[0].message == "why [no such number]"
    assert derive_cells(column)["stream.register.flags"].state is State.UNSUPPORTED
    assert derive_cells(column)["stream.flags.bits"].state is State.PASS


def test_a_failed_check_is_not_excused() -> None:
    column = refused("stream.register.duplicate", state=State.FAIL)
    apply_expectations(column, [OWNED, *ALSO])
    assert column.tests[0].state is State.FAIL
    assert derive_cells(column)["stream.register.duplicate"].state is State.FAIL


def test_stale_entries() -> None:
    answered = Column("third", "0.5", "quick", 0, tests=[TestResult("stream.register", State.PASS)])
    [stale] = apply_expectations(answered, [OWNED])
    assert "stream.register.flags in stream.register can be expressed: remove the entry" in stale
    assert apply_expectations(Column("third", "0.5", "quick", 0), [OWNED]) == [], "it did not run"
    elsewhere = Deviation("why", "who", test="stream.register", clause="life.version", inexpressible=True)
    [stale] = apply_expectations(refused(), [*ALSO, OWNED, elsewhere])
    assert "life.version" in stale, "the test does not name that clause"


def test_steps_of_programs() -> None:
    step = Deviation("why", "who", step="register_odd", inexpressible=True)
    column = Column("third", "0.5", "quick", 0, programs={"lockstep": {"refused": ["register_odd", "fill"]}})
    assert apply_expectations(column, [step]) == []
    [failed] = column.tests
    assert failed.state is State.FAIL
    assert "step fill" in failed.message
    [stale] = apply_expectations(Column("third", "0.5", "quick", 0, programs={"lockstep": {}}), [step])
    assert "the step register_odd can be expressed" in stale


def test_entries_say_what_they_are_about(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[[inexpressible]]\nclause = "stream.null"\nreason = "r"\nowner = "o"\n')
    with pytest.raises(ValueError, match="a test and its clause, or a step"):
        load_expectations("x", tmp_path)
    (tmp_path / "y.toml").write_text('include = ["z"]\n')
    (tmp_path / "z.toml").write_text('[[inexpressible]]\nstep = "fill"\nreason = "r"\nowner = "o"\n')
    [entry] = load_expectations("y", tmp_path)
    assert (entry.step, entry.inexpressible) == ("fill", True)


@pytest.mark.parametrize("target", ["abi-python", "rocm-python"])
def test_what_the_bindings_cannot_say_is_listed(target: str) -> None:
    entries = [entry for entry in load_expectations(target) if entry.inexpressible]
    assert entries
    for entry in entries:
        assert entry.step or entry.clause in find(entry.test).clauses


def test_reasons_are_counted_by_test() -> None:
    column = Column("third", "0.5", "quick", 0)
    for test, variant, reason in (("a.a", "lazy", "x"), ("a.a", "parallel", "x"), ("a.b", "", "x"), ("a.c", "", "y")):
        column.tests.append(TestResult(test, State.UNSUPPORTED, message=reason, variant=variant))
    column.tests.append(TestResult("a.d", State.NOT_RUN, message="x"))
    assert column.reasons() == {
        (State.UNSUPPORTED, "x"): ["a.a", "a.b"],
        (State.UNSUPPORTED, "y"): ["a.c"],
        (State.NOT_RUN, "x"): ["a.d"],
    }
