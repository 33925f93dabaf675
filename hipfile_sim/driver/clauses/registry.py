"""The registry of clauses: what the API promises, clause by clause, with the answer of each profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["AREAS", "FUNCTIONS", "PROFILES", "STATS_FUNCTIONS", "UNSPECIFIED", "Clause", "all_clauses", "for_function", "get"]

PROFILES = ("0.2", "0.3", "0.4", "0.5", "cufile")
UNSPECIFIED = "unspecified"
AREAS: tuple[str, ...] = ("life", "file", "buffer", "stream", "submit", "bind", "chunk", "order", "result", "error",
                          "env", "sync", "batch", "param", "stats", "hip")
FUNCTIONS: tuple[str, ...] = ()
STATS_FUNCTIONS: tuple[str, ...] = ("hipFileGetStatsL1", "hipFileGetStatsL2", "hipFileGetStatsL3")


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise: `text` in one sentence; `answers` by profile; `level` how binding; `source` the kind of evidence."""

    id: str
    text: str
    level: Literal["must", "may", "unspecified"]
    source: str
    answers: Mapping[str, str]
    functions: tuple[str, ...]
    note: str = ""


def get(clause_id: str) -> Clause:
    """The clause with this id. KeyError (with close ids) if there is none."""
    raise NotImplementedError


def all_clauses() -> tuple[Clause, ...]:
    """Every clause, by area and then as written."""
    raise NotImplementedError


def for_function(name: str) -> tuple[Clause, ...]:
    """Clauses that concern the function `name` (hipFile or HIP)."""
    raise NotImplementedError
