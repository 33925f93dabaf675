"""Deviations that are known and owned: one TOML file a target, each entry with its reason.

    [[deviation]]
    clause = "file.register.duplicate"     # or: test = "file.duplicate"
    release = "0.5"                        # optional: all releases without it
    reason = "why the target differs and what is done about it"
    owner = "who looks after it"
    unsteady = true                        # optional: it happens now and then, so a run without it proves nothing

An entry that no failing check needs is stale and fails the run: what was mended must not hide what breaks next.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from hipfile_conformance.results import Column, State

__all__ = ["Deviation", "apply_expectations", "load_expectations"]


@dataclass(frozen=True, slots=True)
class Deviation:
    """One entry."""

    reason: str
    owner: str
    clause: str = ""
    test: str = ""
    release: str = ""
    unsteady: bool = False


def load_expectations(target: str, folder: Path | None = None) -> list[Deviation]:
    """Entries of a target; none where it has no file.

    Raises
    ------
    ValueError
        An entry without reason or owner, or without clause and test.
    """
    path = (folder or Path(__file__).parent) / f"{target}.toml"
    if not path.exists():
        return []
    entries = []
    for number, raw in enumerate(tomllib.loads(path.read_text()).get("deviation", []), 1):
        entry = Deviation(**{"reason": "", "owner": "", **raw})
        if not (entry.reason and entry.owner and (entry.clause or entry.test)):
            raise ValueError(f"{path}, entry {number}: needs a reason, an owner, and a clause or a test: {raw}")
        entries.append(entry)
    return entries


def apply_expectations(column: Column, entries: list[Deviation]) -> list[str]:
    """Turn expected failures into deviations; returns a line for each stale entry.

    An entry is stale where its clause (or test) was checked in this column and nothing failed.
    """
    stale = []
    for entry in entries:
        if entry.release and entry.release != column.release:
            continue
        used = reached = False
        for result in column.tests:
            if entry.test and result.test != entry.test:
                continue
            touched = [check for check in result.checks if not entry.clause or check.clause == entry.clause]
            reached |= bool(touched) or bool(entry.test)
            for check in touched:
                if check.state is State.FAIL:
                    check.state, used = State.DEVIATION, True
            if entry.test and result.state is State.FAIL:
                used = True
            excused = entry.test or any(check.state is State.DEVIATION for check in touched)
            broken = any(check.state is State.FAIL for check in result.checks)
            if result.state is State.FAIL and not broken and excused:
                result.state = State.DEVIATION
                result.message = f"{result.message} [expected: {entry.reason}]"
        if reached and not used and not entry.unsteady:
            what = f"{column.name}: the expected deviation of {entry.clause or entry.test} did not happen"
            stale.append(f"{what}: remove the entry ({entry.reason})")
    return stale
