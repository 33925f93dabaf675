"""What a strategy is: something that hands out schedules until it has seen enough."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from hipfile_sim.engine.errors import EngineError
from hipfile_sim.engine.schedules import Schedule

if TYPE_CHECKING:
    from hipfile_sim.explore.run import Run
    from hipfile_sim.machine import Machine


class Pruned(BaseException):
    """Leaves a run whose remainder is known to be equivalent to one already seen.

    It is no `Exception`, so that a program that handles errors does not handle this.
    """


class NondeterminismError(EngineError):
    """The same choices led to different options: the program depends on something that the machine does not control."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; the program depends on a clock, on randomness, on threads of its own "
            "or on state that outlives a run"
        )


class Strategy(ABC):
    """Chooses which schedules of a program to try.

    Attributes
    ----------
    name : str
        As given to `explore`.
    exhausted : bool
        Every schedule that the strategy stands for has been tried.
    orders : int or None
        How many orders the first run has, for a strategy that counts them; 0: too many to count.
    """

    name: ClassVar[str] = "strategy"
    exhausted = False
    orders: int | None = None

    @abstractmethod
    def next(self) -> Schedule | None:
        """The schedule of the next run, or None when there is nothing left to try."""

    @abstractmethod
    def ended(self, run: Run) -> None:
        """The run with the schedule from `next` is over."""

    def attach(self, machine: Machine) -> None:
        """The next run uses `machine`."""
        return

    def wind_up(self, machine: Machine, failed: bool) -> None:
        """The program has ended and its choices are noted; `machine` is still there."""
        return

    def save(self) -> dict[str, Any]:
        """What a later process needs to go on, as JSON types."""
        return {}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from `save`."""
        return

    def coverage(self, runs: int) -> str:
        """What `runs` runs have and have not covered, in one phrase."""
        return f"{runs:,} of an unknown number of schedules"
