"""One schedule: that of a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipfile_sim.engine.schedules import Schedule
from hipfile_sim.engine.token import TokenSchedule
from hipfile_sim.explore.strategies.base import Strategy

if TYPE_CHECKING:
    from hipfile_sim.explore.run import Run


class Replay(Strategy):
    """Runs a token once."""

    name = "replay"

    def __init__(self, token: str) -> None:
        self._schedule: Schedule | None = TokenSchedule(token)

    def next(self) -> Schedule | None:
        return self._schedule

    def ended(self, run: Run) -> None:
        self._schedule = None
        self.exhausted = True

    def coverage(self, runs: int) -> str:
        return "the schedule of the token"
