"""What a run found, as data: checks, tests, columns, and the cell states derived from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hipfile_sim.driver.clauses import Clause, all_clauses

__all__ = ["FORMAT", "Cell", "Check", "Column", "State", "TestResult", "clause_hash", "derive_cells", "plain"]

FORMAT = "hipfile-conformance/1"


class State(StrEnum):
    """State of a check, a test or a cell of the table, best first."""

    PASS = "pass"
    VARIANT = "allowed variant"
    UNSPECIFIED = "unspecified"
    DEVIATION = "expected deviation"
    UNSUPPORTED = "unsupported"
    NOT_RUN = "not run"
    FAIL = "fail"


# In a cell the worst check decides; "unsupported" and "not run" only count where nothing was checked at all.
_RANK = (State.FAIL, State.DEVIATION, State.VARIANT, State.PASS, State.UNSPECIFIED, State.UNSUPPORTED, State.NOT_RUN)


@dataclass(slots=True)
class Check:
    """One observation held against a clause's answer."""

    clause: str
    state: State
    observed: Any
    expected: Any
    what: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "clause": self.clause,
            "state": self.state.value,
            "observed": plain(self.observed),
            "expected": plain(self.expected),
            "what": self.what,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Check:
        """Inverse of :meth:`as_json`."""
        return cls(data["clause"], State(data["state"]), data["observed"], data["expected"], data.get("what", ""))


@dataclass(slots=True)
class TestResult:
    """One test on one column.

    Attributes
    ----------
    variant : str
        The schedule, where the target has schedules.
    rerun : str
        The command that runs it again.
    refusal : str
        Words of the target's interface, where that could not express a call; see
        :class:`hipfile_conformance.targets.base.Inexpressible`.
    """

    __test__ = False

    test: str
    state: State
    seconds: float = 0.0
    checks: list[Check] = field(default_factory=list)
    message: str = ""
    variant: str = ""
    rerun: str = ""
    refusal: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        data = {
            "test": self.test,
            "state": self.state.value,
            "seconds": round(self.seconds, 4),
            "variant": self.variant,
            "message": self.message,
            "rerun": self.rerun,
            "checks": [check.as_json() for check in self.checks],
        }
        return {**data, "refusal": self.refusal} if self.refusal else data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TestResult:
        """Inverse of :meth:`as_json`."""
        return cls(
            data["test"],
            State(data["state"]),
            data["seconds"],
            [Check.from_json(c) for c in data["checks"]],
            data["message"],
            data["variant"],
            data["rerun"],
            data.get("refusal", ""),
        )


@dataclass(slots=True)
class Cell:
    """A clause in a column: state, the tests behind it, and what was seen where it matters."""

    state: State
    tests: list[str] = field(default_factory=list)
    observed: list[Any] = field(default_factory=list)
    expected: str = ""
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "state": self.state.value,
            "tests": self.tests,
            "observed": self.observed,
            "expected": self.expected,
            "note": self.note,
        }


@dataclass(slots=True)
class Column:
    """One target judged against one release."""

    target: str
    release: str
    depth: str
    seed: int
    facts: dict[str, str] = field(default_factory=dict)
    tests: list[TestResult] = field(default_factory=list)
    real: bool = False
    programs: dict[str, Any] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Heading of the column, such as ``sim 0.5``."""
        return f"{self.target} {self.release}"

    @property
    def committed(self) -> bool:
        """It was read from the results kept with the suite, not measured in this run."""
        return "committed" in self.facts

    def join(self, other: Column) -> None:
        """Add another part of the same column: a shard, or another kind of run of it."""
        self.tests += other.tests
        self.stale = sorted(set(self.stale) | set(other.stale))
        for kind, found in other.programs.items():
            mine = self.programs.setdefault(kind, {})
            for key, value in found.items():
                if isinstance(value, int) and key in mine:
                    mine[key] += value
                elif isinstance(value, list) and key in mine:
                    mine[key] = sorted({*mine[key], *value})
                else:
                    mine[key] = value

    def reasons(self) -> dict[tuple[State, str], list[str]]:
        """Why tests said nothing: those that are unsupported or not run, by state and reason, most tests first."""
        found: dict[tuple[State, str], list[str]] = {}
        for result in self.tests:
            if result.state in (State.UNSUPPORTED, State.NOT_RUN):
                tests = found.setdefault((result.state, result.message), [])
                if result.test not in tests:
                    tests.append(result.test)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "target": self.target,
            "release": self.release,
            "depth": self.depth,
            "seed": self.seed,
            "real": self.real,
            "facts": self.facts,
            "programs": plain(self.programs),
            "hashes": self.hashes,
            "tests": [test.as_json() for test in self.tests],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Column:
        """Inverse of :meth:`as_json`; notes the clauses whose text or answer changed since."""
        column = cls(
            data["target"],
            data["release"],
            data["depth"],
            data["seed"],
            dict(data["facts"]),
            [TestResult.from_json(t) for t in data["tests"]],
            data["real"],
            dict(data["programs"]),
            dict(data["hashes"]),
        )
        now = {clause.id: clause_hash(clause, column.release) for clause in all_clauses()}
        column.stale = sorted(name for name, value in column.hashes.items() if now.get(name) != value)
        return column


def clause_hash(clause: Clause, release: str) -> str:
    """Fingerprint of what a result was judged by: text, level and the release's answer."""
    text = "\0".join((clause.id, clause.level, clause.text, answer(clause, release)))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def answer(clause: Clause, release: str) -> str:
    """The answer of a release to a clause, through the bases of its profile."""
    from hipfile_sim.driver.profiles import get_profile

    return get_profile(release).answer(clause.id)


def derive_cells(column: Column, clauses: Iterable[Clause] | None = None) -> dict[str, Cell]:
    """The cell of each clause: the worst check of the tests that name it.

    A clause that no test of this run reached is `NOT_RUN`; one whose tests all said so is `UNSUPPORTED`.
    """
    from hipfile_conformance.suite import tests_of_clause

    by_clause: dict[str, list[tuple[TestResult, Check]]] = {}
    ran: dict[str, TestResult] = {}
    for result in column.tests:
        worst = ran.get(result.test)
        if worst is None or _RANK.index(result.state) < _RANK.index(worst.state):
            ran[result.test] = result
        for check in result.checks:
            by_clause.setdefault(check.clause, []).append((result, check))
    cells: dict[str, Cell] = {}
    for clause in all_clauses() if clauses is None else clauses:
        expected = answer(clause, column.release)
        pairs = by_clause.get(clause.id, [])
        names = sorted({result.test for result, _ in pairs})
        if clause.id in column.stale:
            cells[clause.id] = Cell(State.NOT_RUN, names, [], expected, "the clause changed since this was measured")
            continue
        if not pairs:
            own = [ran[t.id] for t in tests_of_clause(clause.id) if t.id in ran]
            failed = [result for result in own if result.state is State.FAIL]
            unsupported = [result for result in own if result.state in (State.UNSUPPORTED, State.NOT_RUN)]
            if failed:  # the test broke before it came to this clause
                cells[clause.id] = Cell(State.FAIL, [r.test for r in failed], [], expected, failed[0].message)
            elif unsupported:
                first = unsupported[0]
                cells[clause.id] = Cell(first.state, [r.test for r in unsupported], [], expected, first.message)
            else:
                cells[clause.id] = Cell(State.NOT_RUN, [], [], expected, "no test of this run reaches it")
            continue
        state = min((check.state for _, check in pairs), key=_RANK.index)
        shown = [check for _, check in pairs if check.state is state]
        observed: list[Any] = []
        for check in shown:
            value = plain(check.observed)
            if value not in observed:
                observed.append(value)
        notes = {f"{c.what}: " if c.what else "" for c in shown if state is State.FAIL}
        note = "; ".join(sorted(f"{n}expected {plain(shown[0].expected)!r}" for n in notes))
        cells[clause.id] = Cell(state, names, observed[:6], expected, note)
    return cells


def plain(value: Any) -> Any:
    """JSON value for an observation."""
    if isinstance(value, (str, float, bool)) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return data.hex() if len(data) <= 32 else f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()[:16]}"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [plain(item) for item in value]
        return sorted(items, key=repr) if isinstance(value, (set, frozenset)) else items
    return repr(value)
