"""Strategies that sample: seeded random choices, and PCT."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.schedules import Point, Schedule, Seeded
from hipfile_sim.explore.strategies.base import Strategy

if TYPE_CHECKING:
    from hipfile_sim.explore.run import Run


class RandomWalk(Strategy):
    """One seed after the other.

    Parameters
    ----------
    seed : int
        The first.
    shard : (int, int), optional
        Take only the seeds of part i of n.
    """

    name = "random"

    def __init__(self, *, seed: int = 0, shard: tuple[int, int] | None = None) -> None:
        self._step = shard[1] if shard else 1
        self._seed = seed + (shard[0] if shard else 0)

    def next(self) -> Schedule | None:
        return self._make(self._seed)

    def _make(self, seed: int) -> Schedule:
        return Seeded(seed)

    def ended(self, run: Run) -> None:
        self._seed += self._step

    def save(self) -> dict[str, Any]:
        return {"seed": self._seed}

    def load(self, saved: dict[str, Any]) -> None:
        self._seed = saved["seed"]


class Priorities(Schedule):
    """Probabilistic concurrency testing: the process with the highest priority moves; a few times a priority drops.

    Burckhardt, Kothari, Musuvathi and Nagarakatte (ASPLOS 2010) show that a bug that needs `depth` ordering constraints
    is hit with a probability of at least 1/(n k^(depth-1)), for n processes and k steps.

    Parameters
    ----------
    seed : int
        Chooses priorities and the moments of the drops.
    depth : int
        One more than the number of drops.
    steps : int
        How long a run is, about.
    """

    name = "pct"

    def __init__(self, seed: int, depth: int, steps: int) -> None:
        self.seed = seed
        self.depth = depth
        self.steps = steps
        self._random = random.Random(seed)
        self._priority: dict[int, float] = {}
        self._drops = set(self._random.sample(range(max(steps, depth)), depth - 1))
        self._count = 0

    def fresh(self) -> Schedule:
        return Priorities(self.seed, self.depth, self.steps)

    def choose(self, point: Point) -> int:
        priority = self._priority
        for option in point.options:
            if option.lane not in priority:
                priority[option.lane] = self.depth + self._random.random()
        options = point.options
        best = max(range(len(options)), key=lambda index: priority[options[index].lane])
        if self._count in self._drops:
            priority[options[best].lane] = self.depth - len([at for at in self._drops if at <= self._count])
            best = max(range(len(options)), key=lambda index: priority[options[index].lane])
        self._count += 1
        return best

    def __str__(self) -> str:
        return f"pct:{self.seed}"


class Pct(RandomWalk):
    """`Priorities`, one seed after the other; the length of a run is learnt from the runs.

    Parameters
    ----------
    depth : int
        Ordering constraints that the bug needs; 2 to 3 finds most.
    """

    name = "pct"

    def __init__(self, *, seed: int = 0, depth: int = 3, shard: tuple[int, int] | None = None) -> None:
        super().__init__(seed=seed, shard=shard)
        self.depth = depth
        self._steps = 32

    def _make(self, seed: int) -> Schedule:
        return Priorities(seed, self.depth, self._steps)

    def ended(self, run: Run) -> None:
        super().ended(run)
        self._steps = max(8, len(run.choices))

    def save(self) -> dict[str, Any]:
        return {**super().save(), "steps": self._steps}

    def load(self, saved: dict[str, Any]) -> None:
        super().load(saved)
        self._steps = saved["steps"]
