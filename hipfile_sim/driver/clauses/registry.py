"""The registry of clauses: what the API promises, clause by clause, with the answer of each profile.

One file an area holds plain tuples, so that importing costs nothing; an area is loaded when it is first asked for.

A row is ``(id, level, source, text, amd, cufile, functions[, note])``:

`amd`
    The answer of every AMD release, or pairs ``(("0.2", answer), ("0.5", answer))`` that hold from that release on.
`cufile`
    NVIDIA's answer; ``SAME`` as the newest AMD release, ``None`` for unspecified.
`functions`
    Public functions that it concerns, separated by spaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Final, Literal, cast

__all__ = [
    "AREAS",
    "FUNCTIONS",
    "LEVELS",
    "PROFILES",
    "SAME",
    "SOURCES",
    "STATS_FUNCTIONS",
    "UNSPECIFIED",
    "Clause",
    "Row",
    "all_clauses",
    "expand",
    "for_function",
    "get",
    "group",
]

Level = Literal["must", "may", "unspecified"]
Row = tuple[object, ...]

PROFILES: Final = ("0.2", "0.3", "0.4", "0.5", "cufile")
"""Profiles that every clause answers for. A profile made later answers through its bases."""
UNSPECIFIED: Final = "unspecified"
SAME: Final = "="
LEVELS: Final = ("must", "may", "unspecified")
SOURCES: Final = ("header", "code", "test", "changelog", "docs", "observed", "inferred")
"""Kinds of evidence: public header, source text, upstream test, changelog, documentation, seen on hardware, deduced."""

AREAS: Final = (
    "life",
    "file",
    "buffer",
    "stream",
    "submit",
    "bind",
    "chunk",
    "order",
    "result",
    "error",
    "env",
    "sync",
    "batch",
    "param",
    "stats",
    "hip",
)
"""First word of an id, and the module that holds it."""

FUNCTIONS: Final = (
    "hipFileGetOpErrorString",
    "hipFileGetVersion",
    "hipFileDriverOpen",
    "hipFileDriverClose",
    "hipFileUseCount",
    "hipFileDriverGetProperties",
    "hipFileDriverSetPollMode",
    "hipFileDriverSetMaxDirectIOSize",
    "hipFileDriverSetMaxCacheSize",
    "hipFileDriverSetMaxPinnedMemSize",
    "hipFileHandleRegister",
    "hipFileHandleDeregister",
    "hipFileBufRegister",
    "hipFileBufDeregister",
    "hipFileRead",
    "hipFileWrite",
    "hipFileReadAsync",
    "hipFileWriteAsync",
    "hipFileStreamRegister",
    "hipFileStreamDeregister",
    "hipFileBatchIOSetUp",
    "hipFileBatchIOSubmit",
    "hipFileBatchIOGetStatus",
    "hipFileBatchIOCancel",
    "hipFileBatchIODestroy",
    "hipFileGetParameterSizeT",
    "hipFileGetParameterBool",
    "hipFileGetParameterString",
    "hipFileSetParameterSizeT",
    "hipFileSetParameterBool",
    "hipFileSetParameterString",
)
"""The 31 functions of the public header of 0.4.0."""

STATS_FUNCTIONS: Final = ("hipFileGetStatsL1", "hipFileGetStatsL2", "hipFileGetStatsL3")
"""Added by 0.5.0."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise of the API.

    Attributes
    ----------
    id : str
        Stable, dotted; the first word is the area.
    text : str
        One sentence.
    level : {"must", "may", "unspecified"}
        Binding; allowed to vary; or the evidence does not decide.
    source : str
        Kind of evidence, one of `SOURCES`.
    answers : mapping of str to str
        Answer by profile; `UNSPECIFIED` where nobody knows.
    functions : tuple of str
        Public functions that it concerns.
    note : str
        A remark, often what is uncertain.

    >>> get("file.register.duplicate").answers["0.5"]
    'HandleAlreadyRegistered'
    """

    id: str
    text: str
    level: Level
    source: str
    answers: Mapping[str, str]
    functions: tuple[str, ...]
    note: str = ""

    @property
    def area(self) -> str:
        """First word of the id."""
        return self.id.partition(".")[0]

    @property
    def differs(self) -> bool:
        """Profiles disagree."""
        return len(set(self.answers.values()) - {UNSPECIFIED}) > 1


def expand(area: str, rows: Iterable[Row]) -> dict[str, Clause]:
    """Clauses of one area from its rows.

    Raises
    ------
    ValueError
        A duplicate id, an id of another area, or a malformed row; the message names it.
    """
    clauses: dict[str, Clause] = {}
    for row in rows:
        if not 7 <= len(row) <= 8:
            raise ValueError(f"clause {row[0]!r}: 7 or 8 fields are needed, not {len(row)}")
        name, level, source, text = (str(field) for field in row[:4])
        if name in clauses:
            raise ValueError(f"clause {name!r} is defined twice in area {area!r}; ids must be unique")
        if not name.startswith(f"{area}."):
            raise ValueError(f"clause {name!r} does not belong to area {area!r}; its id must start with '{area}.'")
        if level not in LEVELS or source not in SOURCES or not text:
            raise ValueError(
                f"clause {name!r}: level {level!r} is one of {', '.join(LEVELS)}, source {source!r} one of "
                f"{', '.join(SOURCES)}, and the text is not empty"
            )
        clauses[name] = Clause(
            name,
            text,
            cast(Level, level),
            source,
            MappingProxyType(_answers(name, row[4], row[5])),
            tuple(str(row[6]).split()),
            str(row[7]) if len(row) == 8 else "",
        )
    return clauses


def _answers(name: str, amd: object, cufile: object) -> dict[str, str]:
    answers: dict[str, str] = {}
    steps = ((PROFILES[0], amd),) if isinstance(amd, str) else cast("tuple[tuple[str, str], ...]", amd)
    since = dict(steps)
    if PROFILES[0] not in since or not since.keys() <= set(PROFILES[:-1]):
        raise ValueError(f"clause {name!r}: answers must start at {PROFILES[0]} and name AMD releases, not {steps!r}")
    current: object = UNSPECIFIED
    for profile in PROFILES[:-1]:
        current = since.get(profile, current)
        answers[profile] = str(current)
    answers[PROFILES[-1]] = UNSPECIFIED if cufile is None else str(current) if cufile == SAME else str(cufile)
    if not all(answers.values()):
        raise ValueError(f"clause {name!r} has an empty answer")
    return answers


_loaded: dict[str, dict[str, Clause]] = {}


def _area(area: str) -> dict[str, Clause]:
    found = _loaded.get(area)
    if found is None:
        module = import_module(f"hipfile_sim.driver.clauses.{area}")
        found = _loaded.setdefault(area, expand(area, module.ROWS))
    return found


def get(clause_id: str) -> Clause:
    """The clause with this id.

    Raises
    ------
    KeyError
        There is none; the message lists close ones.
    """
    area = clause_id.partition(".")[0]
    clause = _area(area).get(clause_id) if area in AREAS else None
    if clause is None:
        from difflib import get_close_matches  # costs more than the registry itself

        close = get_close_matches(clause_id, [c.id for c in all_clauses()], n=3)
        raise KeyError(f"no clause {clause_id!r}" + (f"; close: {', '.join(close)}" if close else ""))
    return clause


def all_clauses() -> tuple[Clause, ...]:
    """Every clause, by area and then as written."""
    return tuple(clause for area in AREAS for clause in _area(area).values())


def group(prefix: str) -> tuple[Clause, ...]:
    """The clause `prefix` if there is one, and all below it (``group("file.register")``); empty if none."""
    area = prefix.partition(".")[0]
    if area not in AREAS:
        return ()
    below = f"{prefix}."
    return tuple(clause for id, clause in _area(area).items() if id == prefix or id.startswith(below))


def for_function(name: str) -> tuple[Clause, ...]:
    """Clauses that concern the public function `name` (of hipFile or HIP); empty if none does."""
    return tuple(clause for clause in all_clauses() if name in clause.functions)
