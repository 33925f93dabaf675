"""Strategies, one file each."""

from __future__ import annotations

from collections.abc import Callable

from hipfile_sim.explore.strategies.base import Strategy
from hipfile_sim.explore.strategies.bounded import Bounded
from hipfile_sim.explore.strategies.dpor import Dpor
from hipfile_sim.explore.strategies.replay import Replay
from hipfile_sim.explore.strategies.sampling import Pct, RandomWalk

Shard = tuple[int, int] | None


HOSTS = ("opaque", "announced")
"""What `Dpor` takes for granted of code of the program: nothing, or that it announces what it touches."""


def _bounded(bound: int, seed: int, shard: Shard, host: str) -> Strategy:
    if shard is not None:
        raise ValueError("the strategy 'bounded' cannot be sharded; choose dpor, random or pct")
    return Bounded(bound=bound)


STRATEGIES: dict[str, Callable[[int, int, Shard, str], Strategy]] = {
    "dpor": lambda bound, seed, shard, host: Dpor(shard=shard, host=host),
    "all": lambda bound, seed, shard, host: Dpor(reduce=False, shard=shard),
    "bounded": _bounded,
    "pct": lambda bound, seed, shard, host: Pct(depth=max(1, bound), seed=seed, shard=shard),
    "random": lambda bound, seed, shard, host: RandomWalk(seed=seed, shard=shard),
}
"""Name to maker. ``dpor``: exhaustive with partial-order reduction; ``all``: exhaustive without; ``bounded``: at most
`bound` preemptions; ``pct``: priorities with `bound` ordering constraints; ``random``: seeds."""


def make_strategy(
    strategy: str | Strategy, *, bound: int = 3, seed: int = 0, shard: Shard = None, host: str = "opaque"
) -> Strategy:
    """The strategy that a name or a token stands for.

    Raises
    ------
    ValueError
        Unknown name, a shard that is not ``(i, n)`` with 0 <= i < n, or a host that is not one of `HOSTS`.
    """
    if host not in HOSTS:
        raise ValueError(f"host is {host!r}: choose one of {', '.join(HOSTS)}")
    if isinstance(strategy, Strategy):
        return strategy
    if shard is not None and not 0 <= shard[0] < shard[1]:
        raise ValueError(f"shard is {shard!r}; it is (i, n) with 0 <= i < n")
    if strategy.startswith("hs1-"):
        return Replay(strategy)
    maker = STRATEGIES.get(strategy)
    if maker is None:
        raise ValueError(f"unknown strategy {strategy!r}: choose one of {', '.join(STRATEGIES)}, or give a token")
    return maker(bound, seed, shard, host)


__all__ = ["HOSTS", "STRATEGIES", "Bounded", "Dpor", "Pct", "RandomWalk", "Replay", "Strategy", "make_strategy"]
