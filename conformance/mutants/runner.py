"""Run the quick profile on each broken model, in a child of its own, and score."""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from hipfile_conformance.mutants.registry import Mutant, all_mutants
from hipfile_conformance.results import State
from hipfile_sim.driver.clauses import all_clauses

__all__ = ["run_mutants"]

LIMIT_S = 90.0
"""A broken model that takes longer is noticed as hanging."""


def run_mutants(
    only: Sequence[str] = (), jobs: int = 1, *, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Score the suite.

    Returns
    -------
    dict
        ``total``, ``killed``, ``survivors``, ``mutants`` (name -> text, clauses, tests) and ``weak``: the clauses that
        killed none.
    """
    chosen = [m for m in all_mutants() if not only or any(word in m.name for word in only)]
    healthy = [
        Mutant(f"healthy.{release}", "nothing is broken", nullcontext, release)
        for release in {m.release for m in chosen}
    ]
    baseline = {release: _judge(m, _alone(m), "") for m in healthy for release in [m.release]}
    waiting, total = list(chosen), len(chosen)
    found: dict[str, dict[str, Any]] = {}
    running: dict[int, tuple[Mutant, int, float, list[bytes]]] = {}
    selector = selectors.DefaultSelector()
    while waiting or running:
        while waiting and len(running) < max(1, jobs):
            mutant = waiting.pop(0)
            pid, pipe = _start(mutant)
            running[pid] = (mutant, pipe, time.monotonic(), [])
            selector.register(pipe, selectors.EVENT_READ, pid)
        for key, _ in selector.select(0.5):
            pid = key.data
            mutant, pipe, _, pieces = running[pid]
            piece = os.read(pipe, 1 << 16)
            if piece:
                pieces.append(piece)
                continue
            _reap(selector, running, pid)
            found[mutant.name] = _judge(mutant, b"".join(pieces), "the process died")
            _forgive(found[mutant.name], baseline[mutant.release])
            tell(_line(mutant, found[mutant.name]))
        for pid, (mutant, _, start, _) in list(running.items()):
            if time.monotonic() - start > LIMIT_S:
                os.killpg(pid, signal.SIGKILL)
                _reap(selector, running, pid)
                found[mutant.name] = _judge(mutant, b"", f"not finished after {LIMIT_S:g} s")
                tell(_line(mutant, found[mutant.name]))
    survivors = sorted(name for name, result in found.items() if not result["killed"])
    killers = {clause for result in found.values() for clause in result["clauses"]}
    return {
        "total": total,
        "killed": total - len(survivors),
        "survivors": survivors,
        "mutants": {name: found[name] for name in sorted(found)},
        "weak": sorted(clause.id for clause in all_clauses() if clause.id not in killers),
    }


def _forgive(result: dict[str, Any], known: dict[str, Any]) -> None:
    """What fails on the healthy model says nothing about a broken one."""
    if result["tests"]:
        result["clauses"] = [clause for clause in result["clauses"] if clause not in known["clauses"]]
        result["tests"] = [test for test in result["tests"] if test not in known["tests"]]
        result["killed"] = bool(result["clauses"] or result["tests"])


def _alone(mutant: Mutant) -> bytes:
    """Run one child to its end."""
    pid, pipe = _start(mutant)
    pieces = []
    while piece := os.read(pipe, 1 << 16):
        pieces.append(piece)
    os.close(pipe)
    os.waitpid(pid, 0)
    return b"".join(pieces)


def _line(mutant: Mutant, result: dict[str, Any]) -> str:
    how = ", ".join(result["clauses"][:4]) or result["note"] or ", ".join(result["tests"][:3])
    return f"{'killed  ' if result['killed'] else 'SURVIVED'} {mutant.name} ({mutant.text}): {how}"


def _judge(mutant: Mutant, data: bytes, died: str) -> dict[str, Any]:
    try:
        seen = json.loads(data)
    except ValueError:
        return {
            "text": mutant.text,
            "release": mutant.release,
            "killed": True,
            "clauses": [],
            "tests": [],
            "note": died,
        }
    return {"text": mutant.text, "release": mutant.release, "killed": bool(seen["tests"]), "note": "", **seen}


def _reap(selector: selectors.DefaultSelector, running: dict[int, Any], pid: int) -> None:
    _, pipe, _, _ = running.pop(pid)
    selector.unregister(pipe)
    os.close(pipe)
    os.waitpid(pid, 0)


def _start(mutant: Mutant) -> tuple[int, int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    os.setsid()  # pragma: no cover - the child
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        with mutant.patch():
            data = json.dumps(_child(mutant)).encode()
        while data:
            data = data[os.write(writer, data) :]
    finally:
        sys.stdout.flush()
        os._exit(0)


def _child(mutant: Mutant) -> dict[str, Any]:
    from hipfile_conformance.suite import all_tests
    from hipfile_conformance.worker import run_on_model

    clauses: set[str] = set()
    tests: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        for test in all_tests():
            if test.full_only:
                continue
            for result in run_on_model(test, Path(folder), mutant.release, "quick", 0):
                if result.state is State.FAIL:
                    bad = {check.clause for check in result.checks if check.state is State.FAIL}
                    clauses |= bad
                    if test.id not in tests:
                        tests.append(test.id)
    return {"clauses": sorted(clauses), "tests": tests}
