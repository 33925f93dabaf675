"""Reports: schema, JUnit, HTML, expected deviations, stale results, disagreements."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hipfile_conformance.expectations import Deviation, apply_expectations, load_expectations
from hipfile_conformance.report import load_columns, schema, validate, write_report
from hipfile_conformance.results import Check, Column, State, TestResult, derive_cells
from hipfile_conformance.runner import run_conformance
from hipfile_conformance.table import build_table


@pytest.fixture(scope="module")
def column() -> Column:
    return run_conformance("sim", only=["stream.register.duplicate", "hip.free.null"])


def made(state: State, clause: str = "stream.null", observed: object = 1, *, real: bool = False) -> Column:
    result = TestResult("stream.streams_that_work", state, checks=[Check(clause, state, observed, 1)])
    return Column("cufile" if real else "sim", "cufile", "quick", 0, tests=[result], real=real)


def test_the_report_fits_its_schema(column: Column, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    paths = write_report(build_table([column]), tmp_path)
    assert {path.name for path in paths} == {"report.json", "report.md", "junit.xml", "report.html"}
    data = json.loads((tmp_path / "report.json").read_text())
    assert validate(data)
    del data["columns"][0]["seed"]
    with pytest.raises(jsonschema.ValidationError):
        validate(data)
    jsonschema.Draft202012Validator.check_schema(schema())


def test_junit_counts(column: Column, tmp_path: Path) -> None:
    write_report(build_table([column, made(State.FAIL)]), tmp_path)
    suites = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert [suite.get("failures") for suite in suites] == ["0", "1"]
    assert len(suites[0]) == len(column.tests)


def test_html_has_rows_filters_and_no_outside(column: Column, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    write_report(build_table([column]), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "stream.register.duplicate" in page
    assert 'id="words"' in page
    assert "http://" not in page
    assert "https://" not in page


def test_columns_come_back(column: Column, tmp_path: Path) -> None:
    write_report(build_table([column]), tmp_path)
    [again] = load_columns(tmp_path / "report.json")
    assert again.as_json() == column.as_json()
    assert again.stale == []


def test_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"format": "hipfile-conformance/0"}')
    with pytest.raises(ValueError, match="run the suite again"):
        load_columns(tmp_path / "old.json")


def test_a_changed_clause_makes_its_cell_stale(column: Column, tmp_path: Path) -> None:
    data = json.loads(json.dumps(build_table([column]).as_json()))  # the column is for the other tests, too
    data["columns"][0]["hashes"]["hip.free.null"] = "0" * 12
    (tmp_path / "report.json").write_text(json.dumps(data))
    [again] = load_columns(tmp_path / "report.json")
    assert again.stale == ["hip.free.null"]
    cell = derive_cells(again)["hip.free.null"]
    assert (cell.state, cell.note) == (State.NOT_RUN, "the clause changed since this was measured")


def test_cells() -> None:
    assert derive_cells(made(State.PASS))["stream.null"].state is State.PASS
    assert derive_cells(made(State.FAIL))["stream.null"].state is State.FAIL
    cell = derive_cells(made(State.PASS))["life.version"]
    assert (cell.state, cell.tests) == (State.NOT_RUN, [])
    lost = made(State.FAIL)
    lost.tests[0].checks = []
    lost.tests[0].message = "it broke before"
    assert derive_cells(lost)["stream.null"].note == "it broke before"


def test_an_expected_deviation_and_a_stale_one() -> None:
    entry = Deviation("a reason", "somebody", clause="stream.null")
    bad = made(State.FAIL)
    assert apply_expectations(bad, [entry]) == []
    assert derive_cells(bad)["stream.null"].state is State.DEVIATION
    assert bad.tests[0].state is State.DEVIATION
    [stale] = apply_expectations(made(State.PASS), [entry])
    assert "did not happen" in stale
    assert apply_expectations(made(State.PASS), [Deviation("r", "o", clause="life.version")]) == [], "it did not run"


def test_a_part_of_the_tests_makes_no_entry_of_a_clause_stale() -> None:
    entry = Deviation("a reason", "somebody", clause="stream.null")
    assert apply_expectations(made(State.PASS), [entry], whole=False) == []
    of_test = Deviation("a reason", "somebody", test="stream.streams_that_work")
    assert len(apply_expectations(made(State.PASS), [of_test], whole=False)) == 1
    again = made(State.FAIL)
    for _ in range(2):  # as when parts are joined
        assert apply_expectations(again, [entry, of_test]) == []


def test_parts_of_a_column_are_joined() -> None:
    one, two = made(State.PASS), made(State.FAIL)
    one.programs = {"outcomes": {"programs checked": 2, "refused": ["a"]}}
    two.programs = {"outcomes": {"programs checked": 3, "refused": ["b"], "wrong": 1}, "lockstep": {"steps": 4}}
    one.join(two)
    assert [result.state for result in one.tests] == [State.PASS, State.FAIL]
    assert one.programs == {
        "outcomes": {"programs checked": 5, "refused": ["a", "b"], "wrong": 1},
        "lockstep": {"steps": 4},
    }


def test_kept_results_are_no_test_of_this_run(tmp_path: Path) -> None:
    kept = made(State.FAIL, real=True)
    kept.facts["committed"] = "cufile-h200.json"
    write_report(build_table([made(State.PASS), kept]), tmp_path)
    assert len(ElementTree.parse(tmp_path / "junit.xml").getroot()) == 1


def test_expectations_need_reason_and_owner(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[[deviation]]\nclause = "stream.null"\nreason = "r"\n')
    with pytest.raises(ValueError, match="needs a reason, an owner"):
        load_expectations("x", tmp_path)


@pytest.mark.parametrize("target", ["sim", "abi", "abi-python", "cufile", "rocm"])
def test_the_committed_expectations_name_clauses(target: str) -> None:
    from hipfile_sim.driver.clauses import get

    for entry in load_expectations(target):
        assert not entry.clause or get(entry.clause)


def test_model_and_hardware_disagree() -> None:
    table = build_table([made(State.PASS, observed=1), made(State.FAIL, observed=2, real=True)])
    [item] = table.disagreements
    assert (item.clause, item.observed, item.model_observed) == ("stream.null", [2], [1])
    assert [row.clause.id for row in table.rows if row.disagrees] == ["stream.null"]
    assert build_table([made(State.PASS), made(State.PASS, real=True)]).disagreements == []


def test_committed_results_fit_the_schema_and_say_what_ran() -> None:
    import hipfile_conformance

    folder = Path(hipfile_conformance.__file__).parent / "results"
    files = sorted(folder.glob("*.json"))
    assert files, "results of real hardware belong into the repository"
    for path in files:
        pytest.importorskip("jsonschema")
        assert validate(json.loads(path.read_text()))
        for column in load_columns(path):
            assert column.real
            assert {"date", "system", "file system", "device", "libraries"} <= column.facts.keys()
            assert not column.stale, f"{path.name}: measure again: {column.stale}"
