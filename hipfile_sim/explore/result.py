"""What an exploration found, and what it did and did not cover."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hipfile_sim.explore.run import Run
from hipfile_sim.explore.shrink import Departure


@dataclass(slots=True)
class Failure:
    """A schedule under which the program fails.

    Parameters
    ----------
    run : Run
        As it was found.
    simplest : Run
        The simplest schedule with the same failure that was found.
    departures : list of Departure
        The choices of `simplest` that are not those of the plain schedule, in which nothing moves before it must.
    timeline : str
        What happened, per stream.
    report : str
        What the sanitizer says of it.
    """

    run: Run
    simplest: Run
    departures: list[Departure] = field(default_factory=list)
    timeline: str = ""
    report: str = ""

    @property
    def token(self) -> str:
        """Reproduces the simplest run."""
        return self.simplest.token

    @property
    def error(self) -> BaseException:
        """What the program raised in the simplest run."""
        assert self.simplest.error is not None
        return self.simplest.error

    def __str__(self) -> str:
        parts = [self.simplest.text(), f"schedule: {self.token}\n{self._how_far()}"]
        if self.timeline:
            parts.append(self.timeline)
        if self.report:
            parts.append(self.report)
        return "\n\n".join(parts)

    def _how_far(self) -> str:
        """What sets the schedule apart."""
        if not self.departures:
            return "  nothing moves before the host waits for it"
        count = len(self.departures)
        lines = [f"  {count} choice{'s' if count > 1 else ''} away from a run in which nothing moves before it must:"]
        return "\n".join([*lines, *(f"  - {departure}" for departure in self.departures)])


@dataclass(slots=True)
class Exploration:
    """The result of `explore`.

    Parameters
    ----------
    strategy : str
        Name.
    runs : int
        Schedules that were run to their end.
    cut : int
        Runs left early because the rest was known.
    complete : bool
        Nothing that the strategy stands for was left out.
    orders : int or None
        How many orders the program has, where that could be counted.
    outcomes : Counter
        Results (hashable ones) and how often each came.
    failures : list of Failure
        One for each kind of failure.
    stopped : str
        Why it ended: ``"complete"``, ``"failure"``, ``"schedules"``, ``"time"``; ``"interrupted"``.
    seconds : float
        Real time.
    coverage : str
        What was and what was not covered, in one phrase.
    """

    strategy: str
    runs: int = 0
    cut: int = 0
    complete: bool = False
    orders: int | None = None
    outcomes: Counter[Any] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    stopped: str = "interrupted"
    seconds: float = 0.0
    coverage: str = ""

    @property
    def ok(self) -> bool:
        """No schedule failed."""
        return not self.failures

    def __bool__(self) -> bool:
        return self.ok

    def summary(self) -> str:
        """One line: what was covered and what came of it."""
        found = "no failure" if self.ok else f"{len(self.failures)} failure{'s' if len(self.failures) > 1 else ''}"
        return f"{self.coverage}; {found} ({self.seconds:.1f} s, stopped by: {self.stopped})"

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.failures), self.summary()])

    def check(self) -> Exploration:
        """Raise the first failure, if there is one.

        Raises
        ------
        ExplorationError
            With the schedule, the timeline and the report; caused by the program's own error.
        """
        if self.failures:
            raise ExplorationError(self) from self.failures[0].error
        return self


class ExplorationError(AssertionError):
    """Some schedule breaks the program."""

    def __init__(self, exploration: Exploration) -> None:
        self.exploration = exploration
        super().__init__(str(exploration))
