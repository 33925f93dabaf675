"""Deviations that are known and owned: one TOML file a target, each entry with its reason.

The files here are the suite's own; ``hipfile-conformance run --expectations FOLDER`` adds those of somebody else.

    include = ["bindings"]                 # optional: entries of another file count here, too

    [[deviation]]
    clause = "file.register.duplicate"     # or: test = "file.duplicate"
    release = "0.5"                        # optional: all releases without it
    reason = "why the target differs and what is done about it"
    owner = "who looks after it"
    unsteady = true                        # optional: it happens now and then, so a run without it proves nothing

    [[inexpressible]]                      # the target's interface refuses a call that a test makes:
    test = "error.unknown_strings"         # the test, and a clause that it leaves unanswered here, one entry each;
    clause = "error.string.unknown"        # or: step = "register_odd", of the generated lockstep programs
    reason = "why it cannot be said"
    owner = "who looks after it"

An entry that nothing needs is stale and fails the run: what was mended must not hide what breaks next. A refusal
without an entry for each clause that it leaves unanswered fails, too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hipfile_conformance.results import Column, State, TestResult

__all__ = ["Deviation", "apply_expectations", "load_expectations"]


@dataclass(frozen=True, slots=True)
class Deviation:
    """One entry; `inexpressible` says of which kind."""

    reason: str
    owner: str
    clause: str = ""
    test: str = ""
    release: str = ""
    unsteady: bool = False
    inexpressible: bool = False
    step: str = ""

    @property
    def complete(self) -> bool:
        """Has it all that its kind needs?"""
        of_test = bool(self.test and self.clause)
        what = (of_test or bool(self.step)) if self.inexpressible else bool(self.clause or self.test)
        return bool(self.reason and self.owner and what)


def load_expectations(target: str, folder: Path | None = None) -> list[Deviation]:
    """Entries of a target; none where it has no file.

    Parameters
    ----------
    target : str
        Its name is that of the file; for ``module:factory`` that is ``module.factory.toml``.
    folder : Path, optional
        Where the files are; by default those of the suite.

    Raises
    ------
    ValueError
        An entry without reason or owner, or that does not say what it is about.
    """
    path = (folder or Path(__file__).parent) / f"{target.replace(':', '.')}.toml"
    if not path.exists():
        return []
    data = tomllib.loads(path.read_text())
    entries = [entry for name in data.get("include", ()) for entry in load_expectations(name, folder)]
    for kind in ("deviation", "inexpressible"):
        for number, raw in enumerate(data.get(kind, []), 1):
            entry = Deviation(**{"reason": "", "owner": "", **raw, "inexpressible": kind == "inexpressible"})
            if not entry.complete:
                needed = "a test and its clause, or a step" if entry.inexpressible else "a clause or a test"
                raise ValueError(f"{path}, {kind} {number}: needs a reason, an owner, and {needed}: {raw}")
            entries.append(entry)
    return entries


def apply_expectations(column: Column, entries: Sequence[Deviation], *, whole: bool = True) -> list[str]:
    """Turn expected failures into deviations and owned refusals into unsupported; a line for each stale entry.

    An entry is stale where its clause (or test) was checked in this column and nothing failed. Where only a part of
    the tests ran (`whole` is false), another test of the clause may need it, so that entries of clauses are not judged.
    """
    here = [entry for entry in entries if entry.release in ("", column.release)]
    stale = _inexpressible(column, [entry for entry in here if entry.inexpressible], whole)
    for entry in here:
        if entry.inexpressible:
            continue
        used = reached = False
        for result in column.tests:
            if entry.test and result.test != entry.test:
                continue
            touched = [check for check in result.checks if not entry.clause or check.clause == entry.clause]
            reached |= bool(touched) or bool(entry.test)
            for check in touched:
                if check.state in (State.FAIL, State.DEVIATION):
                    check.state, used = State.DEVIATION, True
            if entry.test and result.state in (State.FAIL, State.DEVIATION):
                used = True
            excused = entry.test or any(check.state is State.DEVIATION for check in touched)
            broken = any(check.state is State.FAIL for check in result.checks)
            if result.state is State.FAIL and not broken and excused:
                result.state = State.DEVIATION
                result.message = f"{result.message} [expected: {entry.reason}]"
        if reached and not used and not entry.unsteady and (whole or entry.test):
            what = f"{column.name}: the expected deviation of {entry.clause or entry.test} did not happen"
            stale.append(f"{what}: remove the entry ({entry.reason})")
    return stale


def _inexpressible(column: Column, entries: Sequence[Deviation], whole: bool) -> list[str]:
    """Refusals of the target's interface: owned ones become unsupported, the others stay failed."""
    for result in column.tests:
        if result.refusal and result.state is State.FAIL and not any(c.state is State.FAIL for c in result.checks):
            owned = {entry.clause: entry for entry in entries if entry.test == result.test}
            missing = _unanswered(result) - owned.keys()
            if owned and not missing:
                result.state = State.UNSUPPORTED
                result.message = f"{next(iter(owned.values())).reason} [{result.refusal}]"
            else:
                clauses = ", ".join(sorted(missing or _named(result)))
                result.message = f"nobody owns, for {clauses}, that {result.refusal}"
    refused = set(column.programs.get("lockstep", {}).get("refused", ()))
    known = {entry.step for entry in entries if entry.step}
    for step in sorted(refused - known):
        message = f"nobody owns that the target's interface refuses the step {step}"
        column.tests.append(TestResult("programs.lockstep-refused", State.FAIL, message=message))
    stale = []
    for entry in entries:
        if entry.unsteady or (entry.step and not whole):
            continue
        ran = [result for result in column.tests if result.test == entry.test]
        needed = any(result.refusal and entry.clause in _named(result) for result in ran)
        if entry.step:
            needed = entry.step in refused
        if (ran or (entry.step and "lockstep" in column.programs)) and not needed:
            what = f"{entry.clause} in {entry.test}" if entry.test else f"the step {entry.step}"
            stale.append(f"{column.name}: {what} can be expressed: remove the entry ({entry.reason})")
    return stale


def _named(result: TestResult) -> set[str]:
    from hipfile_conformance.suite.registry import find

    return set(find(result.test).clauses)


def _unanswered(result: TestResult) -> set[str]:
    return _named(result) - {check.clause for check in result.checks}
