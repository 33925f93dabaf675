"""The sanitizer: finds the race, names both places and the edge that is missing.

>>> from hipfile_sim.observe.sanitizer import Sanitizer
>>> Sanitizer().summary()
'hipfile-sim sanitizer: clean (0 operations)'
"""

from hipfile_sim.observe.sanitizer.findings import CHECKS, Check, Finding, Place, SanitizerError
from hipfile_sim.observe.sanitizer.hb import Edge
from hipfile_sim.observe.sanitizer.policy import Policy, Suppression, parse_suppressions
from hipfile_sim.observe.sanitizer.sanitizer import Sanitizer

__all__ = [
    "CHECKS",
    "Check",
    "Edge",
    "Finding",
    "Place",
    "Policy",
    "Sanitizer",
    "SanitizerError",
    "Suppression",
    "parse_suppressions",
]
