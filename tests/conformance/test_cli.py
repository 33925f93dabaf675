"""The command: exit codes, shards, joined reports."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from hipfile_conformance.__main__ import main
from hipfile_conformance.cli import app
from hipfile_conformance.programs import lockstep, outcomes
from hipfile_conformance.results import State
from hipfile_conformance.runner import Plan, run_conformance
from hipfile_conformance.suite.registry import find

pytestmark = pytest.mark.timeout(900)


def run(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    return result.exit_code, result.output


def test_run_writes_reports(tmp_path: Path) -> None:
    args = ("run", "--target", "sim", "--release", "0.5", "--only", "hip.free.null", "--jobs", 1, "--no-committed")
    code, output = run(*args, "--report", tmp_path / "out", "--folder", tmp_path / "files")
    assert code == 0, output
    assert "sim 0.5: 1 pass" in output
    assert json.loads((tmp_path / "out" / "report.json").read_text())["failed"] is False


def test_reasons_are_printed(tmp_path: Path) -> None:
    args = ("run", "--target", "sim", "--release", "0.2", "--jobs", 1, "--no-committed", "--folder", tmp_path)
    words = ("--only", "stats.null", "--only", "bind.clamped", "--only", "life.version")
    code, output = run(*args, *words)
    assert code == 0, output
    assert "1 not run: an operation of that size would need a bounce buffer of 2 GiB here (bind.clamped)" in output
    assert "2 unsupported: needs c (is called through the C interface)\n" in output
    assert "life.version_null  " not in output
    lines = [line for line in run(*args, *words, "-v")[1].splitlines() if line.startswith("  ")]
    assert any(line.startswith("  unsupported") and "life.version_null" in line for line in lines)
    assert any(line.startswith("  pass") and "life.version" in line for line in lines)


def test_bad_options(tmp_path: Path) -> None:
    for args in (
        ("--target", "nothing"),
        ("--profile", "thorough"),
        ("--shard", "3/2"),
        ("--shard", "x"),
        ("--target", "sim", "--release", "0.9"),
        ("--target", "sim", "--only", "no.such.word"),
    ):
        code, output = run("run", "--folder", tmp_path, *args)
        assert code == 2, output
        assert "Traceback" not in output


def test_targets_with_commas_or_one_by_one(tmp_path: Path) -> None:
    rest = ("--release", "0.5", "--only", "hip.free.null", "--jobs", 1, "--no-committed", "--folder", tmp_path)
    code, output = run("run", "--target", "sim", "--target", "sim,nowhere:nothing", *rest)
    assert code == 1
    assert output.count("sim 0.5: 1 pass") == 2
    assert "nowhere:nothing gave no target: ModuleNotFoundError" in output
    assert "called with directory=" in output


def test_a_model_of_ones_own_is_made_anew_for_each_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from hipfile_conformance.targets.sim import SimTarget\n\n\nclass Own(SimTarget):\n    name = 'own'\n"
    (tmp_path / "own_model.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = [part for word in ("batch.", "sync.no_backend", "chunk.number") for part in ("--only", word)]
    rest = ("--release", "0.5", "--jobs", 1, "--no-committed", "--folder", tmp_path / "files")
    code, output = run("run", "--target", "own_model:Own", *words, *rest)
    assert code == 0, output
    assert " pass" in output


def few_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets are found in `tmp_path`, and get three concurrent programs and no kept ones."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setitem(outcomes.COUNTS, "quick", 3)
    monkeypatch.setattr(outcomes, "examples", list)
    monkeypatch.setattr(lockstep, "examples", list)


def test_a_model_of_ones_own_runs_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each program finds a fresh one, as each test does; the command of a failure runs that failure alone."""
    few_programs(tmp_path, monkeypatch)
    monkeypatch.setitem(lockstep.COUNTS, "quick", (3, 6))
    text = "from hipfile_conformance.targets.sim import SimTarget\n\n\nclass Fine(SimTarget):\n    name = 'fine'\n\n\n"
    text += "class Lossy(SimTarget):\n    name = 'lossy'\n\n    def call(self, name, *args):\n"
    text += "        return 0 if name == 'hipMemsetAsync' else super().call(name, *args)\n"
    (tmp_path / "own_models.py").write_text(text)
    monkeypatch.setattr(Plan, "tests", lambda self: [find("hip.free")])
    rest = ("--release", "0.5", "--jobs", 1, "--no-committed", "--folder", tmp_path / "files")
    code, output = run("run", "--target", "own_models:Fine", *rest)
    assert code == 0, output
    assert "0 left out, 0 wrong" in output
    monkeypatch.setitem(lockstep.COUNTS, "quick", (1, 1))
    code, output = run("run", "--target", "own_models:Lossy", *rest, "--report", tmp_path / "out")
    assert code == 1, output
    column = json.loads((tmp_path / "out" / "report.json").read_text())["columns"][0]
    again = next(t["rerun"] for t in column["tests"] if t["test"].startswith("programs.outcome"))
    words = shlex.split(again)
    assert words[0] == "hipfile-conformance"
    code, output = run(*words[1:], "--folder", tmp_path / "files")
    assert code == 1
    assert "NOT ALLOWED" in output


def test_the_command_of_a_failure_runs_that_test_alone(tmp_path: Path) -> None:
    column = run_conformance("sim", plan=Plan(exactly=["buffer.register"]))
    assert {result.test for result in column.tests} == {"buffer.register"}
    words = shlex.split(column.tests[0].rerun)
    code, output = run(*words[1:], "--folder", tmp_path, "--no-committed")
    assert code == 0, output
    assert "sim 0.5: 1 pass" in output
    code, output = run("run", "--test", "buffer.registered", "--folder", tmp_path)
    assert code == 2
    assert "buffer.registered" in output


def test_what_a_target_lacks_is_no_wrong_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_programs(tmp_path, monkeypatch)
    monkeypatch.setitem(lockstep.COUNTS, "quick", (6, 15))
    text = "from hipfile_conformance.targets.base import Unsupported\n"
    text += "from hipfile_conformance.targets.sim import SimTarget\n\n\nclass Poor(SimTarget):\n    name = 'poor'\n\n"
    text += "    def call(self, name, *args):\n        if name in ('hipEventCreateWithFlags', 'hipFileBufRegister'):\n"
    text += "            raise Unsupported(f'there is no {name}')\n        return super().call(name, *args)\n"
    (tmp_path / "poor_model.py").write_text(text)
    found, results = outcomes.run("poor_model:Poor", "0.5", "quick", 0, tmp_path, (1, 1))
    assert found["programs checked"] == found["wrong"] == 0
    assert found["unsupported"] == 3
    assert [r.state for r in results] == [State.UNSUPPORTED]
    assert "there is no hipFileBufRegister" in results[0].message
    found, results = lockstep.run("poor_model:Poor", "0.5", "quick", 0, tmp_path, (1, 1))
    assert found["programs"] >= 6
    assert results == []
    assert found["unsupported steps"] > 0


def test_expectations_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    text = "from hipfile_conformance.targets.sim import SimTarget\n\n\nclass Odd(SimTarget):\n    name = 'odd'\n\n"
    text += "    def call(self, name, *args):\n"
    text += "        return (0, 0) if name == 'hipFileStreamDeregister' else super().call(name, *args)\n"
    (tmp_path / "odd_model.py").write_text(text)
    args = ("run", "--target", "odd_model:Odd", "--release", "0.5", "--test", "stream.deregister", "--jobs", 1)
    rest = ("--no-committed", "--folder", tmp_path / "files", "--expectations", tmp_path / "own")
    assert run(*args, *rest)[0] == 2, "there is no such folder"
    (tmp_path / "own").mkdir()
    assert run(*args, *rest)[0] == 1
    own = tmp_path / "own" / "odd_model.Odd.toml"
    own.write_text('[[deviation]]\nclause = "stream.deregister.unknown"\nreason = "a reason"\nowner = "we"\n')
    code, output = run(*args, *rest)
    assert "1 expected deviation" in output
    assert code == 0, output
    own.write_text('[[deviation]]\nclause = "stream.deregister.unknown"\nwhy = "a reason"\n')
    code, output = run(*args, *rest)
    assert code == 2
    assert "why" in output


def test_a_missing_target_fails(tmp_path: Path) -> None:
    code, output = run("run", "--target", "rocm", "--folder", tmp_path, "--no-committed")
    if "not available" not in output:
        pytest.skip("there is a ROCm here")
    assert code == 1


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    assert main() == 2
    assert "'typer' is not installed" in capsys.readouterr().err


def test_shards_make_the_whole(tmp_path: Path) -> None:
    whole = ("run", "--target", "sim", "--release", "0.5", "--only", "error.", "--jobs", 1, "--no-committed")
    files = []
    for part in ("1/2", "2/2"):
        folder = tmp_path / part.replace("/", "-")
        assert run(*whole, "--shard", part, "--report", folder, "--folder", tmp_path / "files")[0] == 0
        files.append(folder / "report.json")
    assert run(*whole, "--report", tmp_path / "all", "--folder", tmp_path / "files")[0] == 0
    data = json.loads(files[0].read_text())
    data["problems"] = ["something is missing"]
    files[0].write_text(json.dumps(data))
    code, output = run("report", *files, "--into", tmp_path / "joined")
    assert code == 1, "a problem of a part is one of the whole"
    assert "problem: something is missing" in output
    data["problems"] = []
    files[0].write_text(json.dumps(data))
    code, output = run("report", *files, "--into", tmp_path / "joined")
    assert code == 0, output

    def tests(folder: str) -> set[str]:
        data = json.loads((tmp_path / folder / "report.json").read_text())
        return {result["test"] for result in data["columns"][0]["tests"]}

    assert tests("joined") == tests("all")


def test_check_and_list() -> None:
    assert run("check") == (0, "0 problems\n")
    code, output = run("list", "--clauses")
    assert code == 0
    assert "NO TEST" not in output


def test_program_and_replay(tmp_path: Path) -> None:
    code, output = run("program", 3, "--release", "cufile", "--folder", tmp_path)
    assert code == 0, output
    assert "NOT ALLOWED" not in output
    steps = '{"steps": [["register_file", 0], ["sync", false, 0, 0, 16, 0, 0]]}'
    assert run("replay", steps, "--folder", tmp_path) == (0, "no difference\n")
