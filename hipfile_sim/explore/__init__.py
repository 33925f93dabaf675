"""The explorer: runs a program under many schedules, finds one that breaks it, and makes that one simple."""

from hipfile_sim.explore.explorer import explore, outcomes
from hipfile_sim.explore.result import Exploration, Failure
from hipfile_sim.explore.run import Body, Run, World
from hipfile_sim.explore.strategies import STRATEGIES, make_strategy
from hipfile_sim.explore.strategies.base import Strategy
from hipfile_sim.explore.strategies.dpor import NondeterminismError

__all__ = [
    "STRATEGIES",
    "Body",
    "Exploration",
    "Failure",
    "NondeterminismError",
    "Run",
    "Strategy",
    "World",
    "explore",
    "make_strategy",
    "outcomes",
]
