"""Run the quick profile on each broken model, in a child of its own, and score.

A child that only shows that the patch itself is broken (it cannot be applied, or Python code of the patch or of the
model stumbles over what it did) proves nothing about the suite, so such a model is neither killed nor survives.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hipfile_sim
from hipfile_conformance.mutants.registry import Mutant, all_mutants
from hipfile_conformance.results import State
from hipfile_sim.driver.buffers import Refused
from hipfile_sim.driver.clauses import all_clauses

__all__ = ["Unhealthy", "run_mutants"]

LIMIT_S = 90.0
"""A broken model that takes longer, and many times as long as a healthy one, is noticed as hanging."""
PATIENCE = 8
"""How many times as long as the healthy model it may take."""

_MODEL = str(Path(hipfile_sim.__file__).resolve().parent)
_PATCHES = str(Path(__file__).resolve().parent)
_SLIPS = (TypeError, AttributeError, NameError, ImportError)


class Unhealthy(Exception):
    """The model that nothing was done to does not pass, so a failure would not say that a broken one was noticed."""


def run_mutants(
    only: Sequence[str] = (), jobs: int = 1, *, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Score the suite.

    Returns
    -------
    dict
        ``total``, ``killed``, ``survivors``, ``broken`` (patches that crash), ``healthy`` (tests that passed on the
        healthy model, by release), ``mutants`` (name -> text, clauses, tests) and ``weak``: the clauses that killed
        none.

    Raises
    ------
    Unhealthy
        The suite fails on the healthy model.
    """
    chosen = [m for m in all_mutants() if not only or any(word in m.name for word in only)]
    releases = sorted({mutant.release for mutant in chosen})
    healthy: dict[str, int] = {}
    slowest = 0.0
    for ended in _children([Mutant(f"healthy.{r}", "nothing is broken", nullcontext, r) for r in releases], jobs, None):
        found = _judge(ended)
        if ended.late or found["tests"] or found["note"] or found["crash"]:
            what = found["crash"] or found["note"] or ", ".join(found["tests"])
            raise Unhealthy(f"{ended.mutant.release}: the healthy model fails: {what}")
        healthy[ended.mutant.release] = found["passed"]
        slowest = max(slowest, ended.seconds)
        tell(f"healthy  {ended.mutant.release} ({found['passed']} tests, {ended.seconds:.1f} s)")
    results: dict[str, dict[str, Any]] = {}
    for ended in _children(chosen, jobs, max(LIMIT_S, PATIENCE * slowest)):
        results[ended.mutant.name] = found = _judge(ended)
        tell(_line(ended.mutant, found))
    killers = {clause for found in results.values() if found["killed"] for clause in found["clauses"]}
    for found in results.values():
        found.pop("passed", None)
    return {
        "total": len(chosen),
        "killed": sum(found["killed"] for found in results.values()),
        "survivors": sorted(name for name, found in results.items() if not found["killed"] and not found["crash"]),
        "broken": sorted(name for name, found in results.items() if found["crash"]),
        "healthy": dict(sorted(healthy.items())),
        "mutants": {name: results[name] for name in sorted(results)},
        "weak": sorted(clause.id for clause in all_clauses() if clause.id not in killers),
    }


def _line(mutant: Mutant, found: dict[str, Any]) -> str:
    word = "BROKEN  " if found["crash"] else "killed  " if found["killed"] else "SURVIVED"
    how = found["crash"] or ", ".join(found["clauses"][:4]) or found["note"] or ", ".join(found["tests"][:3])
    return f"{word} {mutant.name} ({mutant.text}): {how}"


@dataclass(slots=True)
class _Child:
    """A child that runs, or has ended."""

    mutant: Mutant
    pid: int
    pipe: int
    start: float = field(default_factory=time.monotonic)
    data: bytes = b""
    status: int = 0
    seconds: float = 0.0
    late: bool = False


def _judge(child: _Child) -> dict[str, Any]:
    """What a child says, or what became of it."""
    found: dict[str, Any] = {"text": child.mutant.text, "release": child.mutant.release, "killed": True}
    found |= {"clauses": [], "tests": [], "note": "", "crash": "", "passed": 0}
    code = os.waitstatus_to_exitcode(child.status)
    if child.late:
        return {**found, "note": f"not finished after {child.seconds:.0f} s"}
    try:
        seen = json.loads(child.data)
    except ValueError:
        if code < 0:  # as a library that crashes: the suite notices the end of the process
            return {**found, "note": f"the process died of {signal.Signals(-code).name}"}
        return {**found, "killed": False, "crash": f"the process ended with {code} and said nothing"}
    return {**found, **seen, "killed": bool(seen.get("tests")) and not seen.get("crash")}


def _children(mutants: Sequence[Mutant], jobs: int, limit: float | None) -> Iterator[_Child]:
    """Run a child for each, some at a time; in the order in which they end."""
    waiting = list(mutants)
    running: dict[int, _Child] = {}
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                while waiting and len(running) < max(1, jobs):
                    child = _start(waiting.pop(0))
                    running[child.pid] = child
                    selector.register(child.pipe, selectors.EVENT_READ, child)
                for key, _ in selector.select(0.5):
                    piece = os.read(key.data.pipe, 1 << 16)
                    key.data.data += piece
                    if not piece:
                        yield _reap(selector, running, key.data)
                for child in list(running.values()):
                    if limit is not None and time.monotonic() - child.start > limit:
                        child.late = True
                        yield _reap(selector, running, child)
        finally:
            for child in list(running.values()):
                child.late = True
                _reap(selector, running, child)


def _reap(selector: selectors.BaseSelector, running: dict[int, _Child], child: _Child) -> _Child:
    """Take leave of a child that has said everything, or of one that is late."""
    if child.late:
        os.killpg(child.pid, signal.SIGKILL)
    del running[child.pid]
    selector.unregister(child.pipe)
    os.close(child.pipe)
    child.status = os.waitpid(child.pid, 0)[1]
    child.seconds = time.monotonic() - child.start
    return child


def _start(mutant: Mutant) -> _Child:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return _Child(mutant, pid, reader)
    os.setsid()  # pragma: no cover - the child
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            with mutant.patch():
                said = _run(mutant)
        except Exception as error:  # the patch cannot be applied, or not be undone
            said = {"crash": _said(error)}
        data = json.dumps(said).encode()
        while data:
            data = data[os.write(writer, data) :]
    finally:
        os._exit(0)


def _run(mutant: Mutant) -> dict[str, Any]:
    """The quick profile, in the child."""
    from hipfile_conformance.suite import all_tests
    from hipfile_conformance.worker import run_on_model

    clauses: set[str] = set()
    tests: list[str] = []
    crashes: list[str] = []
    passed = 0

    def watched(body: Callable[[Any], None]) -> Callable[[Any], None]:
        def run(kit: Any) -> None:
            try:
                body(kit)
            except Exception as error:
                crash = _crash_of(error)
                if crash:
                    crashes.append(crash)
                raise

        return run

    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        for test in all_tests():
            if test.full_only:
                continue
            states = set()
            for result in run_on_model(replace(test, body=watched(test.body)), Path(folder), mutant.release, "quick"):
                states.add(result.state)
                clauses |= {check.clause for check in result.checks if check.state is State.FAIL}
            if State.FAIL in states:
                tests.append(test.id)
            passed += State.PASS in states and State.FAIL not in states
    return {"clauses": sorted(clauses), "tests": tests, "passed": passed, "crash": crashes[0] if crashes else ""}


def _crash_of(error: BaseException) -> str:
    """What `error` says about a broken patch; empty where it is a finding like any other.

    Python's own complaints about a name, a type or an attribute are a slip of the patch if they come from its code or
    from that of the model. Whatever else the patch raises in its own code is one too, but for what a model raises to
    refuse: the operating system's errors and the library's.
    """
    seen: BaseException | None = error
    while seen is not None:
        frames = traceback.extract_tb(seen.__traceback__)
        place = os.path.realpath(frames[-1].filename) if frames else ""
        in_patch = place.startswith(_PATCHES) and not isinstance(seen, (OSError, Refused))
        if in_patch or (isinstance(seen, _SLIPS) and place.startswith(_MODEL)):
            return _said(seen)
        seen = seen.__cause__
    return ""


def _said(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
