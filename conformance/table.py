"""The table: clause rows, target columns, and where model and hardware disagree."""

from __future__ import annotations

import datetime
import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hipfile_conformance.results import FORMAT, Cell, Column, State, derive_cells, plain
from hipfile_sim.driver.clauses import Clause, all_clauses

__all__ = ["Disagreement", "Row", "Table", "build_table"]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An observation of real hardware that the model, judged by the same release, does not show."""

    clause: str
    test: str
    what: str
    real: str
    observed: Any
    model: str
    model_observed: Any

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: plain(getattr(self, name)) for name in self.__slots__}


@dataclass(slots=True)
class Row:
    """A clause and its cells, one a column."""

    clause: Clause
    cells: list[Cell]
    disagrees: bool = False


@dataclass(slots=True)
class Table:
    """Everything that a report shows."""

    columns: list[Column]
    rows: list[Row]
    disagreements: list[Disagreement]
    problems: list[str] = field(default_factory=list)
    mutants: dict[str, Any] | None = None
    made: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Any failed test, failed program or problem?"""
        return bool(self.problems) or any(
            result.state is State.FAIL for column in self.columns for result in column.tests
        )

    def counts(self, index: int) -> dict[str, int]:
        """Cells of a column by state; all states, in order."""
        found = Counter(row.cells[index].state for row in self.rows)
        return {state.value: found[state] for state in State}

    def as_json(self) -> dict[str, Any]:
        """The report's data; its schema is ``report/schema.json``."""
        return {
            "format": FORMAT,
            "made": self.made,
            "failed": self.failed,
            "problems": self.problems,
            "columns": [
                {**column.as_json(), "counts": self.counts(n), "stale": column.stale}
                for n, column in enumerate(self.columns)
            ],
            "clauses": [
                {
                    "id": row.clause.id,
                    "level": row.clause.level,
                    "source": row.clause.source,
                    "text": row.clause.text,
                    "functions": list(row.clause.functions),
                    "note": row.clause.note,
                    "cells": [cell.as_json() for cell in row.cells],
                }
                for row in self.rows
            ],
            "disagreements": [item.as_json() for item in self.disagreements],
            "mutants": self.mutants,
        }


def build_table(
    columns: Sequence[Column], *, problems: Sequence[str] = (), mutants: dict[str, Any] | None = None
) -> Table:
    """Derive every cell and every disagreement."""
    clauses = all_clauses()
    cells = [derive_cells(column, clauses) for column in columns]
    found = _disagreements(columns)
    at_odds = {item.clause for item in found}
    rows = [Row(clause, [column[clause.id] for column in cells], clause.id in at_odds) for clause in clauses]
    made = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "system": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
    }
    return Table(list(columns), rows, found, list(problems), mutants, made)


def _seen(column: Column) -> dict[tuple[str, str, str], list[Any]]:
    seen: dict[tuple[str, str, str], list[Any]] = {}
    for result in column.tests:
        for check in result.checks:
            values = seen.setdefault((check.clause, result.test, check.what), [])
            value = plain(check.observed)
            if value not in values:
                values.append(value)
    return seen


def _disagreements(columns: Sequence[Column]) -> list[Disagreement]:
    found = []
    for real in (column for column in columns if column.real):
        models = [c for c in columns if not c.real and c.release == real.release and c.target == "sim"]
        for model in models:
            ours = _seen(model)
            for key, values in _seen(real).items():
                if key in ours and key[0] not in real.stale:
                    odd = [value for value in values if value not in ours[key]]
                    if odd:
                        found.append(Disagreement(*key, real.name, odd, model.name, ours[key]))
    return found
