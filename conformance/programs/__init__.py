"""Generated programs: lockstep runs against the model, and concurrent programs with their allowed outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hipfile_conformance.results import TestResult

__all__ = ["run_programs"]


def run_programs(
    target: str,
    release: str,
    depth: str,
    seed: int,
    folder: Path,
    shard: tuple[int, int] = (1, 1),
    known: dict[tuple[str, str], dict[str, tuple[int, ...]]] | None = None,
) -> tuple[dict[str, Any], list[TestResult]]:
    """Run both kinds on a target.

    Parameters
    ----------
    known : dict, optional
        Allowed outcomes by release and program. They say nothing of the target: share it between targets.

    Returns
    -------
    summary, results
        Counts by kind, and a failed test for each program that went wrong, with its rerun line, or an unsupported one
        for each reason why programs could not be run.
    """
    from hipfile_conformance.programs import lockstep, outcomes

    summary: dict[str, Any] = {}
    summary["outcomes"], results = outcomes.run(target, release, depth, seed, folder, shard, known)
    summary["lockstep"], more = lockstep.run(target, release, depth, seed, folder, shard)
    return summary, results + more
