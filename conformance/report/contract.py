"""The list of clauses, for the documentation: written from the registry and the suite, never by hand."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from hipfile_conformance.suite import tests_of_clause
from hipfile_sim.driver.clauses import Clause, all_clauses
from hipfile_sim.driver.clauses.registry import LEVELS, PROFILES

__all__ = ["render_contract"]

AMD = tuple(name for name in PROFILES if name != "cufile")


def render_contract() -> str:
    """Markdown: a table an area, a row a clause, with the answers of the releases and of cuFile.

    >>> render_contract().splitlines()[0]
    '# The contract'
    """
    clauses = all_clauses()
    levels = Counter(clause.level for clause in clauses)
    lines = [
        "# The contract",
        "",
        f"{len(clauses)} clauses ({', '.join(f'{levels[level]} {level}' for level in LEVELS)}), and what each release",
        "answers. `hipfile-conformance list --markdown` writes this page; `hipfile-sim clauses ID` explains one.",
        "The last column says how many conformance tests ask.",
    ]
    for area, group in groupby(clauses, key=lambda clause: clause.area):
        lines += [
            "",
            f"## {area}",
            "",
            "| clause | level | source | AMD | cuFile | tests |",
            "|---|---|---|---|---|---|",
        ]
        for clause in group:
            cells = [f"`{clause.id}` {clause.text}", clause.level, clause.source, _amd(clause)]
            cells += [clause.answers["cufile"], str(len(tests_of_clause(clause.id)))]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _amd(clause: Clause) -> str:
    """One answer, or several with the release from which each holds."""
    found: list[tuple[str, str]] = []
    for release in AMD:
        if not found or found[-1][1] != clause.answers[release]:
            found.append((release, clause.answers[release]))
    return found[0][1] if len(found) == 1 else "; ".join(f"{release}: {answer}" for release, answer in found)
