"""The checks, one file a family. The order matters: the first family that claims a conflict reports it."""

from __future__ import annotations

from hipfile_sim.observe.sanitizer.checks.costs import Costs
from hipfile_sim.observe.sanitizer.checks.files import Files
from hipfile_sim.observe.sanitizer.checks.host import Host
from hipfile_sim.observe.sanitizer.checks.leaks import Leaks
from hipfile_sim.observe.sanitizer.checks.memory import Lifetimes
from hipfile_sim.observe.sanitizer.checks.poison import Poison
from hipfile_sim.observe.sanitizer.checks.races import Races
from hipfile_sim.observe.sanitizer.checks.slots import Slots
from hipfile_sim.observe.sanitizer.family import Family

FAMILIES: tuple[type[Family], ...] = (Slots, Lifetimes, Poison, Races, Files, Host, Costs, Leaks)
"""Every family of checks."""
