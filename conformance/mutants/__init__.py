"""Seeded broken models. The quick profile must notice each of them; a clause that notices none is weak."""

from hipfile_conformance.mutants.registry import BrokenPatch, Mutant, all_mutants, changed, mutant
from hipfile_conformance.mutants.runner import Unhealthy, run_mutants

__all__ = ["BrokenPatch", "Mutant", "Unhealthy", "all_mutants", "changed", "mutant", "run_mutants"]
