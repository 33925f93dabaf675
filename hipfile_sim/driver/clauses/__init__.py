"""Clauses of the contract; see `hipfile_sim.driver.clauses.registry`."""

from hipfile_sim.driver.clauses.registry import Clause, all_clauses, for_function, get, group

__all__ = ["Clause", "all_clauses", "for_function", "get", "group"]
