"""Generated programs: lockstep runs against the model, and concurrent programs with their allowed outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hipfile_conformance.results import TestResult

__all__ = ["run_programs"]


def run_programs(
    target: str, release: str, depth: str, seed: int, folder: Path, shard: tuple[int, int] = (1, 1)
) -> tuple[dict[str, Any], list[TestResult]]:
    """Run both kinds on a target.

    Returns
    -------
    summary, results
        Counts by kind, and a failed test for each program that went wrong, with its rerun line, or an unsupported one
        for each reason why programs could not be run.
    """
    from hipfile_conformance.programs import lockstep, outcomes

    summary: dict[str, Any] = {}
    results: list[TestResult] = []
    for kind, run in (("outcomes", outcomes.run), ("lockstep", lockstep.run)):
        found, bad = run(target, release, depth, seed, folder, shard)
        summary[kind] = found
        results += bad
    return summary, results
