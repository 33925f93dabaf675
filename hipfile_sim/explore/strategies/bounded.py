"""Every schedule with at most so many preemptions, fewest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.schedules import Point, Schedule
from hipfile_sim.explore.strategies.base import NondeterminismError, Strategy

if TYPE_CHECKING:
    from hipfile_sim.explore.run import Run


class _Path(Schedule):
    """Follows a path of indexes, then goes on with whoever moved last."""

    name = "bounded"

    def __init__(self, path: list[int]) -> None:
        self.path = path
        self.seen: list[tuple[tuple[int, ...], int, int | None]] = []
        """(lanes offered, index chosen, lane of the step before)."""
        self._last: int | None = None

    def fresh(self) -> Schedule:
        return self

    def choose(self, point: Point) -> int:
        lanes = tuple(option.lane for option in point.options)
        step = len(self.seen)
        if len(lanes) == 1:
            index = 0
        elif step < len(self.path):
            index = self.path[step]
            if index >= len(lanes):
                raise NondeterminismError(
                    f"choice {step} at {point.what} offered more before than {len(lanes)} options"
                )
        else:
            index = lanes.index(self._last) if self._last in lanes else 0
        if len(lanes) > 1:
            self.seen.append((lanes, index, self._last))
        self._last = lanes[index]
        return index


class Bounded(Strategy):
    """Depth-first search over choices, in rounds: no preemption, then one, then two, up to the bound.

    A preemption is a change to another process while the one that moved last could have gone on.

    Parameters
    ----------
    bound : int
        Most preemptions; 2 to 3 finds most bugs.
    """

    name = "bounded"

    def __init__(self, *, bound: int = 2) -> None:
        self.bound = bound
        self._level = 0
        self._stack: list[list[int]] = [[]]
        self._next_level: list[list[int]] = []
        self._running: _Path | None = None

    def next(self) -> Schedule | None:
        if self.exhausted:
            return None
        self._running = _Path(self._stack.pop())
        return self._running

    def ended(self, run: Run) -> None:
        path = self._running
        assert path is not None
        self._running = None
        if len(path.seen) < len(path.path):
            raise NondeterminismError(
                f"the program ended after {len(path.seen)} choices where it made at least {len(path.path)} before"
            )
        preemptions = 0
        for step, (lanes, index, last) in enumerate(path.seen):
            going_on = last in lanes
            if step >= len(path.path):
                for other in range(len(lanes)):
                    if other != index:
                        cost = preemptions + (going_on and lanes[other] != last)
                        target = [entry[1] for entry in path.seen[:step]] + [other]
                        if cost <= self._level:
                            self._stack.append(target)
                        else:
                            self._next_level.append(target)
            preemptions += going_on and lanes[index] != last
        if not self._stack:
            if self._level < self.bound and self._next_level:
                self._level += 1
                self._stack, self._next_level = self._next_level[::-1], []
            else:
                self.exhausted = True

    def save(self) -> dict[str, Any]:
        stack = self._stack if self._running is None else [*self._stack, self._running.path]
        return {
            "bound": self.bound,
            "level": self._level,
            "stack": stack,
            "next": self._next_level,
            "over": self.exhausted,
        }

    def load(self, saved: dict[str, Any]) -> None:
        if saved["bound"] != self.bound:
            raise ValueError(f"it has the bound {saved['bound']}, this search {self.bound}")
        self._level, self._stack, self._next_level = saved["level"], saved["stack"], saved["next"]
        self.exhausted = saved["over"]

    def coverage(self, runs: int) -> str:
        if self.exhausted and not self._next_level:
            return f"all {runs:,} schedules, none of which has more than {self._level} preemptions"
        if self.exhausted:
            return f"all {runs:,} schedules with at most {self.bound} preemptions"
        if not self._level:
            return f"{runs:,} schedules: some of those without preemption"
        below = "none" if self._level == 1 else f"at most {self._level - 1}"
        return f"{runs:,} schedules: all with {below} of {self.bound} preemptions, some with {self._level}"
