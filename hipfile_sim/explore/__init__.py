"""The explorer: runs a program under many schedules, finds one that breaks it, and makes that one simple."""

import sys
from types import ModuleType

from hipfile_sim.explore.explorer import explore, outcomes
from hipfile_sim.explore.result import Exploration, ExplorationError, Failure
from hipfile_sim.explore.run import Body, Run, World
from hipfile_sim.explore.strategies import STRATEGIES, make_strategy
from hipfile_sim.explore.strategies.base import NondeterminismError, Strategy
from hipfile_sim.explore.testing import explore_test, shard_from_xdist

__all__ = [
    "STRATEGIES",
    "Body",
    "Exploration",
    "ExplorationError",
    "Failure",
    "NondeterminismError",
    "Run",
    "Strategy",
    "World",
    "explore",
    "explore_test",
    "make_strategy",
    "outcomes",
    "shard_from_xdist",
]


class _Callable(ModuleType):
    """So that ``hipfile_sim.explore(body)`` works, whether or not this package has been imported before."""

    __call__ = staticmethod(explore)


sys.modules[__name__].__class__ = _Callable
