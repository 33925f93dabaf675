"""The suite itself: complete, bound to its clauses, and in step with the C prototypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipfile_conformance.coverage import check
from hipfile_conformance.kit import Kit
from hipfile_conformance.report.contract import render_contract
from hipfile_conformance.results import State
from hipfile_conformance.runner import run_conformance
from hipfile_conformance.suite import all_tests
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import CAPABILITIES, SIGNATURES
from hipfile_conformance.targets.sim import SimTarget
from hipfile_sim.driver.clauses.registry import FUNCTIONS, STATS_FUNCTIONS
from hipfile_sim.native.table_hip import HIP
from hipfile_sim.native.table_hipfile import HIPFILE


def test_every_clause_and_every_function_has_a_test() -> None:
    assert check() == []


def test_the_page_of_the_contract_is_written_anew() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "contract.md"
    command = "hipfile-conformance list --markdown > docs/reference/contract.md"
    assert page.read_text(encoding="utf-8") == render_contract(), command


def test_needs_are_known_capabilities() -> None:
    assert {need for test in all_tests() for need in test.needs} <= set(CAPABILITIES)


@pytest.mark.parametrize("release", ["0.2", "0.5"])
def test_all_pass_on_the_model(release: str) -> None:
    column = run_conformance("sim", release=release)
    failed = [f"{r.test} [{r.variant}]: {r.message}" for r in column.tests if r.state is State.FAIL]
    assert not failed, "\n".join(failed)


def test_a_test_that_passes_reaches_every_clause_it_names_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """And every public function is called, not only written down."""
    reached: dict[str, set[str]] = {}
    called: set[str] = set()
    real = SimTarget.call

    def listen(self: SimTarget, name: str, *args: Any) -> Any:
        called.add(name)
        return real(self, name, *args)

    monkeypatch.setattr(SimTarget, "call", listen)
    for release in ("0.2", "0.5"):
        for result in run_conformance("sim", release=release).tests:
            reached.setdefault(result.test, set()).update(check.clause for check in result.checks)
    assert {*FUNCTIONS, *STATS_FUNCTIONS} <= called
    elsewhere = {"fastpath", "c"}  # the model in Python has neither
    idle = {
        test.id: sorted(set(test.clauses) - reached[test.id])
        for test in all_tests()
        if test.id in reached and not test.needs & elsewhere and set(test.clauses) - reached[test.id]
    }
    allowed = {"sync.fastpath.symbols", "bind.page-aligned", "result.enospc"}
    assert not {name: missing for name, missing in idle.items() if set(missing) - allowed}, idle


def test_signatures_agree_with_the_prototypes() -> None:
    known = {symbol.name: symbol for symbol in HIP + HIPFILE}
    for name, signature in SIGNATURES.items():
        if name not in known or not signature.outs:
            continue
        roles = [arg.role for arg in known[name].args]
        outs = [index for index, role in enumerate(roles) if role != "in"]
        if outs:  # the others have structures and are bound by hand
            assert len(outs) == len(signature.outs), name
            assert (outs[0] == 0) is signature.outs_first, name


def test_a_check_of_an_unnamed_clause_is_an_error(tmp_path: object) -> None:
    kit = Kit(SimTarget(str(tmp_path)), "0.5", clauses=("stream.null",))
    with pytest.raises(KeyError, match="does not name it"):
        kit.expect("stream.unregistered", 1, 1)


def test_an_answer_that_the_test_does_not_know_is_an_error(tmp_path: object) -> None:
    kit = Kit(SimTarget(str(tmp_path)), "0.5", clauses=("stream.memory",))
    with pytest.raises(KeyError, match="does not know the answer"):
        kit.expect("stream.memory", 1, {"something else": 1})


def test_states_of_checks(tmp_path: object) -> None:
    kit = Kit(SimTarget(str(tmp_path)), "0.5", clauses=("stream.null", "life.fork"))
    kit.expect("stream.null", 1, 1)
    kit.expect("stream.null", 2, 1, variants=(2,))
    kit.expect("stream.null", 3, 1)
    kit.expect("life.fork", 4, None)
    states = [check.state for check in kit.checks]
    assert states == [State.PASS, State.VARIANT, State.FAIL, State.UNSPECIFIED]


def test_a_test_without_clauses_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one clause"):
        conformance()
