"""What a strategy is: something that hands out schedules until it has seen enough."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from hipfile_sim.engine.schedules import Schedule

if TYPE_CHECKING:
    from hipfile_sim.explore.run import Run


class Pruned(BaseException):
    """Leaves a run whose remainder is known to be equivalent to one already seen.

    It is no `Exception`, so that a program that handles errors does not handle this.
    """


class Strategy(ABC):
    """Chooses which schedules of a program to try.

    Attributes
    ----------
    name : str
        As given to `explore`.
    exhausted : bool
        Every schedule that the strategy stands for has been tried.
    """

    name: ClassVar[str] = "strategy"
    exhausted = False

    @abstractmethod
    def next(self) -> Schedule | None:
        """The schedule of the next run, or None when there is nothing left to try."""

    def ended(self, run: Run) -> None:
        """The run with the schedule from `next` is over."""

    def attach(self, machine: Any) -> None:
        """The next run uses `machine`."""

    def save(self) -> dict[str, Any]:
        """What a later process needs to go on, as JSON types."""
        return {}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from `save`."""

    def coverage(self, runs: int) -> str:
        """What `runs` runs have and have not covered, in one phrase."""
        return f"{runs:,} of an unknown number of schedules"
