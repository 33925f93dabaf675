"""The command `hipfile-conformance`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from hipfile_conformance.expectations import Deviation, apply_expectations, load_expectations
from hipfile_conformance.report import load_columns, validate, write_report
from hipfile_conformance.results import Column, State, TestResult
from hipfile_conformance.runner import Plan, run_conformance
from hipfile_conformance.table import Table, build_table
from hipfile_conformance.targets import EMULATED, NAMES, Unavailable, available

__all__ = ["app", "main"]

app = typer.Typer(
    help="Judge an implementation of the hipFile API clause by clause.", no_args_is_help=True, add_completion=False
)
COMMITTED = Path(__file__).parent / "results"
"""Results of real hardware, kept with the suite."""
REASON_LENGTH = 150
"""Characters of a reason in the summary; ``-v`` and the reports have all of it."""


def _releases(target: str, wanted: str, *, auto: bool = False) -> list[str]:
    from hipfile_sim.driver.clauses.registry import PROFILES
    from hipfile_sim.driver.profiles import NEWEST, get_profile

    if target == "cufile":
        return ["cufile"]
    if wanted == "all" and auto and target == "abi-python":
        return [NEWEST]  # `abi` judges the same libraries by every release: this column is about the bindings
    if wanted == "all":
        return list(PROFILES) if target in ("sim", *EMULATED) else [NEWEST]
    try:
        return [get_profile(name).name for name in wanted.split(",")]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _targets(given: list[str], folder: Path) -> list[str]:
    names = [name for one in given for name in one.split(",")]
    if names == ["auto"]:
        found = available(folder, lambda line: typer.echo(f"not here: {line}", err=True))
        typer.echo(f"targets on this machine: {', '.join(found)}", err=True)
        return found
    for name in names:
        if name not in NAMES and ":" not in name:
            raise typer.BadParameter(f"no target {name!r}: choose from auto, {', '.join(NAMES)}, or module:factory")
    return names


def _shard(text: str) -> tuple[int, int]:
    try:
        index, count = (int(part) for part in text.split("/"))
    except ValueError:
        raise typer.BadParameter(f"a shard is written 2/5, not {text!r}") from None
    if not 1 <= index <= count:
        raise typer.BadParameter(f"shard {text!r}: the first number goes from 1 to the second")
    return index, count


@app.command()
def run(
    target: Annotated[
        list[str] | None,
        typer.Option(help=f"auto (the default), {', '.join(NAMES)}, module:factory; several with commas, or again"),
    ] = None,
    release: Annotated[str, typer.Option(help="releases to judge by, with commas, or all")] = "all",
    profile: Annotated[str, typer.Option(help="quick or full")] = "quick",
    report: Annotated[Path | None, typer.Option(help="folder for report.json, .md, .html and junit.xml")] = None,
    seed: Annotated[int, typer.Option(help="of the generated programs")] = 0,
    only: Annotated[list[str] | None, typer.Option(help="tests or clauses that contain this word")] = None,
    test: Annotated[list[str] | None, typer.Option(help="exactly the test of this id, as a rerun line has it")] = None,
    shard: Annotated[str, typer.Option(help="this part of how many, as 2/5")] = "1/1",
    jobs: Annotated[int, typer.Option(help="worker processes")] = min(2, os.cpu_count() or 1),
    folder: Annotated[Path | None, typer.Option(help="where the tests' files go")] = None,
    expectations: Annotated[
        Path | None, typer.Option(help="folder of TOML files with expected deviations of your own, one a target")
    ] = None,
    programs: Annotated[bool, typer.Option(help="also run generated programs")] = True,
    committed: Annotated[bool, typer.Option(help="show the committed results of real hardware beside this run")] = True,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="a line for each test")] = False,
) -> None:
    """Run the suite and write the reports; the exit code is 1 if anything failed."""
    if profile not in ("quick", "full"):
        raise typer.BadParameter(f"profile is quick or full, not {profile!r}")
    if only and not Plan(profile, only=tuple(only)).tests():
        elsewhere = (
            "only --profile full has it" if Plan("full", only=tuple(only)).tests() else "hipfile-conformance list"
        )
        raise typer.BadParameter(f"no test or clause of {profile} contains {' or '.join(only)}: {elsewhere}")
    unknown = set(test or ()) - {one.id for one in Plan(profile).tests()}
    if unknown:
        raise typer.BadParameter(f"{profile} has no test {', '.join(sorted(unknown))}: hipfile-conformance list")
    place = folder or Path.cwd() / ".conformance-files"
    place.mkdir(parents=True, exist_ok=True)
    columns: list[Column] = []
    problems: list[str] = []
    known: dict[Any, Any] = {}
    auto = (target or ["auto"]) == ["auto"]
    for name in _targets(target or ["auto"], place):
        for one in _releases(name, release, auto=auto):
            start = time.perf_counter()
            owned = _owned(name, expectations)
            tell = _teller(verbose, one, owned)
            plan = Plan(profile, seed, tuple(only or ()), tuple(test or ()), _shard(shard), jobs, tell=tell)
            try:
                column = run_conformance(name, release=one, folder=place, plan=plan)
            except Unavailable as error:
                typer.echo(f"{name}: not available: {error}", err=True)
                problems.append(f"{name}: {error}")
                continue
            if programs and not (only or test):
                _programs(column, plan, place, known)
            whole = not (only or test) and plan.shard[1] == 1
            problems += apply_expectations(column, owned, whole=whole)
            columns.append(column)
            _summary(column, time.perf_counter() - start)
    table = build_table([*columns, *(_committed(columns) if committed else [])], problems=problems, mutants=_mutants())
    _finish(table, report)
    try:
        place.rmdir()
    except OSError:
        pass
    raise typer.Exit(1 if _failed(columns, problems) else 0)


def _owned(target: str, folder: Path | None) -> list[Deviation]:
    if folder is not None and not folder.is_dir():
        raise typer.BadParameter(f"--expectations: {folder} is no folder")
    try:
        return load_expectations(target) + (load_expectations(target, folder) if folder is not None else [])
    except (ValueError, TypeError) as error:  # bad TOML, a word that no entry has, an entry without its reason
        raise typer.BadParameter(f"expectations of {target}: {error}") from None


def _programs(column: Column, plan: Plan, place: Path, known: dict[Any, Any]) -> None:
    from hipfile_conformance.programs import run_programs

    found, results = run_programs(column.target, column.release, plan.depth, plan.seed, place, plan.shard, known)
    column.programs.update(found)
    for result in results:
        column.tests.append(result)
        plan.tell(result)


def _teller(verbose: bool, release: str, owned: list[Deviation]) -> Any:
    here = [entry for entry in owned if entry.release in ("", release)]
    known = {entry.clause for entry in here if not entry.inexpressible}
    unsayable = {entry.test for entry in here if entry.inexpressible}

    def tell(result: TestResult) -> None:
        bad = {check.clause for check in result.checks if check.state is State.FAIL}
        state = result.state
        if state is State.FAIL and bad and bad <= known:
            state = State.DEVIATION
        elif state is State.FAIL and not bad and result.refusal and result.test in unsayable:
            state = State.UNSUPPORTED
        if verbose or state is State.FAIL:
            variant = f" [{result.variant}]" if result.variant else ""
            typer.echo(f"  {state.value:18} {result.test}{variant} {result.message}", err=True)

    return tell


def _summary(column: Column, seconds: float) -> None:
    counts = {state: sum(result.state is state for result in column.tests) for state in State}
    parts = ", ".join(f"{count} {state.value}" for state, count in counts.items() if count)
    extra = "".join(
        f"; {kind}: " + ", ".join(f"{v} {k}" for k, v in found.items() if isinstance(v, int))
        for kind, found in column.programs.items()
    )
    typer.echo(f"{column.name}: {parts}{extra} ({seconds:.1f} s)")
    for (state, reason), tests in column.reasons().items():
        names = f" ({next(iter(tests))})" if len(tests) == 1 else ""
        reason = reason if len(reason) <= REASON_LENGTH else reason[: REASON_LENGTH - 3] + "..."
        typer.echo(f"  {len(tests):3} {state.value}: {reason}{names}")


def _committed(columns: list[Column]) -> list[Column]:
    """Committed columns of targets that did not run now."""
    here = {column.name for column in columns}
    found = []
    for path in sorted(COMMITTED.glob("*.json")):
        for column in load_columns(path):
            if column.name not in here:
                column.facts = {**column.facts, "committed": path.name}
                found.append(column)
    return found


def _mutants() -> dict[str, Any] | None:
    path = COMMITTED / "mutants" / "score.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _failed(columns: list[Column], problems: list[str]) -> bool:
    return bool(problems) or any(r.state is State.FAIL for column in columns for r in column.tests)


def _finish(table: Table, report: Path | None) -> None:
    for problem in table.problems:
        typer.echo(f"problem: {problem}", err=True)
    for column in table.columns:
        if column.stale:
            typer.echo(
                f"{column.name}: {len(column.stale)} committed cells are stale (their clauses changed)", err=True
            )
    if table.disagreements:
        clauses = len({item.clause for item in table.disagreements})
        typer.echo(f"model and hardware disagree in {clauses} clauses; the report has them first", err=True)
    if report is not None:
        for path in write_report(table, report):
            typer.echo(f"wrote {path}")


@app.command(name="report")
def report_command(
    files: Annotated[list[Path], typer.Argument(help="report.json files of earlier runs (shards, machines)")],
    into: Annotated[Path, typer.Option(help="folder for the reports")] = Path("conformance-report"),
    expectations: Annotated[Path | None, typer.Option(help="as for run")] = None,
) -> None:
    """Join earlier results into one report; parts of one column (shards) are put together.

    The exit code is 1 if anything failed in one of them, or if an expected deviation happened in none.
    """
    joined: dict[tuple[str, bool], Column] = {}
    problems: list[str] = []
    for path in files:
        problems += json.loads(path.read_text(encoding="utf-8")).get("problems", [])
        for column in load_columns(path):
            key = column.name, column.committed
            if key not in joined:
                joined[key] = column
            elif not column.committed:  # the kept results stand in every part
                joined[key].join(column)
    here = [column for column in joined.values() if not column.committed]
    for column in here:
        problems += apply_expectations(column, _owned(column.target, expectations))
    measured = {column.name for column in here}
    kept = [column for column in joined.values() if column.committed and column.name not in measured]
    problems = list(dict.fromkeys(problems))
    _finish(build_table([*here, *kept], problems=problems, mutants=_mutants()), into)
    raise typer.Exit(1 if _failed(here, problems) else 0)


@app.command(name="keep")
def keep_command(
    report: Annotated[Path, typer.Argument(help="report.json of a run on real hardware")],
    name: Annotated[str, typer.Option(help="file name, such as cufile-h200-full")],
) -> None:
    """Keep the columns of real hardware with the suite, to be shown beside every later run."""
    columns = [column for column in load_columns(report) if column.real and not column.committed]
    if not columns:
        raise typer.BadParameter(f"{report} has no column of real hardware")
    for column in columns:  # as far as what is expected has changed since
        for line in apply_expectations(column, load_expectations(column.target)):
            typer.echo(line, err=True)
    data = build_table(columns).as_json()
    data["made"] = json.loads(report.read_text())["made"]
    validate(data)
    path = COMMITTED / f"{name}.json"
    path.write_text(json.dumps(data, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")
    typer.echo(f"kept {', '.join(column.name for column in columns)} in {path}")


@app.command(name="check")
def check_command() -> None:
    """Check the suite itself: each clause has a test, each test names clauses, each public function appears."""
    from hipfile_conformance.coverage import check

    problems = check()
    for problem in problems:
        typer.echo(problem)
    typer.echo(f"{len(problems)} problems")
    raise typer.Exit(1 if problems else 0)


@app.command(name="mutants")
def mutants_command(
    only: Annotated[list[str] | None, typer.Option(help="mutants whose name contains this word")] = None,
    jobs: Annotated[int, typer.Option(help="worker processes")] = min(2, os.cpu_count() or 1),
    write: Annotated[bool, typer.Option(help="write the score to the committed results")] = False,
) -> None:
    """Run the quick profile on broken models; each must be noticed. The exit code is 2 if the healthy model fails."""
    from hipfile_conformance.mutants import Unhealthy, all_mutants, run_mutants

    if only and write:
        raise typer.BadParameter("the committed score is one measurement of every mutant: leave out --only or --write")
    if only and not any(word in mutant.name for mutant in all_mutants() for word in only):
        raise typer.BadParameter(f"no mutant's name contains {' or '.join(only)}")
    try:
        found = run_mutants(tuple(only or ()), jobs, tell=lambda line: typer.echo(line))
    except Unhealthy as error:
        typer.echo(f"nothing was scored: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{found['killed']} of {found['total']} killed; {len(found['weak'])} clauses kill none")
    for name in found["broken"]:
        typer.echo(f"broken patch: {name}: {found['mutants'][name]['crash']}", err=True)
    if write:
        place = COMMITTED / "mutants"
        place.mkdir(parents=True, exist_ok=True)
        (place / "score.json").write_text(json.dumps(found, indent=1) + "\n")
    raise typer.Exit(1 if found["survivors"] or found["broken"] else 0)


@app.command(name="list")
def list_command(
    clauses: Annotated[bool, typer.Option(help="clauses with their tests instead of tests")] = False,
    markdown: Annotated[bool, typer.Option(help="the contract as a page: docs/reference/contract.md")] = False,
) -> None:
    """List the tests, or the clauses with their tests, or the clauses with the answers of every release."""
    from hipfile_conformance.report.contract import render_contract
    from hipfile_conformance.suite import all_tests, tests_of_clause
    from hipfile_sim.driver.clauses import all_clauses

    if markdown:
        typer.echo(render_contract(), nl=False)
    elif clauses:
        for clause in all_clauses():
            typer.echo(f"{clause.id}: {', '.join(test.id for test in tests_of_clause(clause.id)) or 'NO TEST'}")
    else:
        for test in all_tests():
            typer.echo(f"{test.id}: {', '.join(test.clauses)}")


@app.command(name="program")
def program_command(
    program: Annotated[str, typer.Argument(help="seed of the program, its JSON, or a file that holds that")],
    target: Annotated[str, typer.Option(help="who runs it")] = "sim",
    release: Annotated[str, typer.Option(help="whose outcomes are allowed")] = "0.5",
    folder: Annotated[Path | None, typer.Option(help="where its files go")] = None,
) -> None:
    """Run one generated concurrent program and show its outcome and the allowed ones."""
    from hipfile_conformance.programs.concurrent import Program, generate, perform
    from hipfile_conformance.programs.host import Host
    from hipfile_conformance.programs.outcomes import allowed_outcomes

    made = generate(int(program)) if program.isdecimal() else Program.from_json(_json_of(program))
    with _place(folder) as place:
        typer.echo(f"program {made}")
        allowed = allowed_outcomes(lambda kit: perform(kit, made), release, place)
        for outcome, choices in allowed.items():
            typer.echo(f"allowed {outcome} by {list(choices)}")
        wrong = 0
        with Host(target, release, place) as host:
            for variant, outcome in host.outcomes(made):
                wrong += outcome not in allowed
                typer.echo(f"{variant}: {'allowed' if outcome in allowed else 'NOT ALLOWED'} {outcome}")
    raise typer.Exit(1 if wrong else 0)


@app.command(name="replay")
def replay_command(
    program: Annotated[str, typer.Argument(help="the JSON of a lockstep program, or a file that holds it")],
    target: Annotated[str, typer.Option(help="who runs it")] = "sim",
    release: Annotated[str, typer.Option(help="profile of the model beside it")] = "0.5",
    folder: Annotated[Path | None, typer.Option(help="where its files go")] = None,
) -> None:
    """Run one lockstep program on a target and on the model, and say where they part."""
    from hipfile_conformance.programs.machine import make_machine

    steps = [tuple(step) for step in _json_of(program)["steps"]]
    with _place(folder) as place, make_machine(target, release, place, {}) as (_, check):
        found = check(steps)
    typer.echo(found or "no difference")
    raise typer.Exit(1 if found else 0)


def _json_of(text: str) -> Any:
    """A program's JSON, given as it is or as a file's name."""
    try:
        return json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(
            f"{text!r} is neither the JSON of a program nor a file that holds one: {error}"
        ) from None


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="conformance-", dir=folder) as place:
        yield Path(place)


def main() -> None:
    """Entry point."""
    sys.exit(app())


if __name__ == "__main__":
    main()
