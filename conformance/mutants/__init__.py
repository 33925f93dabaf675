"""Seeded broken models. The quick profile must notice each of them; a clause that notices none is weak."""

from hipfile_conformance.mutants.registry import Mutant, all_mutants, changed, mutant
from hipfile_conformance.mutants.runner import run_mutants

__all__ = ["Mutant", "all_mutants", "changed", "mutant", "run_mutants"]
