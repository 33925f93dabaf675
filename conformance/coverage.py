"""The check of the suite itself."""

from __future__ import annotations

import inspect
import re

from hipfile_conformance.suite import all_tests
from hipfile_sim.driver.clauses import all_clauses
from hipfile_sim.driver.clauses.registry import FUNCTIONS, STATS_FUNCTIONS

__all__ = ["check"]

_CALLED_BY_HELPERS = {
    "read": "hipFileReadAsync",
    "write": "hipFileWriteAsync",
    "handle": "hipFileHandleRegister",
    "buffer": "hipFileBufRegister",
    "open": "hipFileDriverOpen",
}


def check() -> list[str]:
    """Problems, one a line; empty if all is well.

    >>> check()
    []
    """
    clauses = {clause.id: clause for clause in all_clauses()}
    named: dict[str, list[str]] = {}
    called: set[str] = set()
    problems = []
    modules = set()
    for test in all_tests():
        modules.add(inspect.getmodule(test.body))
        for clause in test.clauses:
            named.setdefault(clause, []).append(test.id)
            if clause not in clauses:
                problems.append(f"test {test.id} names {clause!r}, which is no clause")
        if len(set(test.clauses)) != len(test.clauses):
            problems.append(f"test {test.id} names a clause twice")
    problems += [f"clause {name} has no test" for name in clauses if name not in named]
    for module in modules:
        assert module is not None
        source = inspect.getsource(module)
        called |= set(re.findall(r"\bhipFile\w+", source))
        called |= {name for helper, name in _CALLED_BY_HELPERS.items() if f"t.{helper}(" in source}
        if 'f"hipFileGetStatsL{' in source:
            called |= set(STATS_FUNCTIONS)
    problems += [
        f"public function {name} is called by no test" for name in (*FUNCTIONS, *STATS_FUNCTIONS) if name not in called
    ]
    functions = {name for clause in clauses.values() for name in clause.functions}
    problems += [f"public function {name} is named by no clause" for name in FUNCTIONS if name not in functions]
    return problems
