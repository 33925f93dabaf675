"""Run the suite against a target: choose the tests, run them where they belong, and gather a column."""

from __future__ import annotations

import json
import os
import platform
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hipfile_conformance.process import LineProcess
from hipfile_conformance.results import Column, State, TestResult, clause_hash
from hipfile_conformance.suite.registry import Test, all_tests
from hipfile_conformance.targets.base import Target, Unavailable
from hipfile_conformance.targets.sim import SCHEDULES
from hipfile_conformance.worker import run_on_model, run_test
from hipfile_sim import __version__
from hipfile_sim.driver.clauses import all_clauses

__all__ = ["Plan", "run_conformance"]

MARGIN_S = 15.0
"""What a worker gets on top of a test's own limit before it is ended."""


@dataclass(slots=True)
class Plan:
    """What to run.

    `only`: words, one of which must occur in the test's id or in one of its clauses. `exactly`: ids of tests.
    """

    depth: str = "quick"
    seed: int = 0
    only: Sequence[str] = ()
    exactly: Sequence[str] = ()
    shard: tuple[int, int] = (1, 1)
    jobs: int = 1
    plugins: Sequence[str] = ()
    tell: Callable[[TestResult], None] = lambda _: None
    environment: Mapping[str, str] = field(default_factory=dict)

    def tests(self) -> list[Test]:
        """The tests of this plan, in order."""
        chosen = [
            test
            for test in all_tests()
            if (self.depth == "full" or not test.full_only)
            and (not self.only or any(word in test.id or any(word in c for c in test.clauses) for word in self.only))
            and (not self.exactly or test.id in self.exactly)
        ]
        index, count = self.shard
        return chosen[index - 1 :: count]


def run_conformance(
    target: str | Target | Callable[[], Target],
    profile: str = "quick",
    *,
    release: str | None = None,
    seed: int = 0,
    only: Sequence[str] = (),
    folder: str | os.PathLike[str] | None = None,
    plan: Plan | None = None,
) -> Column:
    """Judge an implementation.

    Parameters
    ----------
    target
        A name of :data:`hipfile_conformance.targets.NAMES`, ``module:attribute`` of a factory that workers can import,
        a :class:`Target`, or a callable that makes one for each test.
    profile
        ``quick`` or ``full``.
    release
        Whose answers are expected; by default ``cufile`` for the target of that name, else the newest release.
    seed
        Of the generated programs.
    only
        Words to choose tests by.
    folder
        Where the tests' files go; a new folder by default.

    Returns
    -------
    Column
        Every test's result; :func:`hipfile_conformance.results.derive_cells` makes the table of it.

    Raises
    ------
    Unavailable
        The target is not on this machine.

    Examples
    --------
    >>> column = run_conformance("sim", only=["stream.register.duplicate"])
    >>> {result.state.value for result in column.tests}
    {'pass'}
    """
    plan = plan or Plan(depth=profile, seed=seed, only=only)
    if plan.depth not in ("quick", "full"):
        raise ValueError(f"profile must be 'quick' or 'full', not {plan.depth!r}")
    name = target if isinstance(target, str) else getattr(target, "name", "custom")
    if release is None:
        from hipfile_sim.driver.profiles import NEWEST

        release = "cufile" if name == "cufile" else NEWEST
    column = Column(name, release, plan.depth, plan.seed)
    column.hashes = {clause.id: clause_hash(clause, release) for clause in all_clauses()}
    again = rerun_line
    with tempfile.TemporaryDirectory(prefix="conformance-", dir=folder) as place:
        if target == "sim" and plan.jobs == 1 and not plan.plugins:
            _in_process(column, plan, Path(place))
        elif isinstance(target, str):
            _Workers(column, plan, Path(place), target).run()
        else:
            _foreign(column, plan, target)
            again = _rerun_in_python
        column.facts = {**_surroundings(Path(place), column), **column.facts}
    for result in column.tests:
        result.rerun = result.rerun or again(column, result)
    return column


def _surroundings(folder: Path, column: Column) -> dict[str, str]:
    """What every column's header says: when, on which system and file system, judged by what."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    types = [fields[fields.index("-") + 1] for fields in mounts if fields[2] == number]
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "system": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}, Python {platform.python_version()}",
        "file system": types[0] if types else "unknown",
        "suite": f"hipfile_sim {__version__}, answers of profile {column.release}",
    }


def rerun_line(column: Column, result: TestResult) -> str:
    """The command that runs one test again."""
    depth = "" if column.depth == "quick" else f" --profile {column.depth}"
    return f"hipfile-conformance run --target {column.target} --release {column.release}{depth} --test {result.test}"


def _rerun_in_python(column: Column, result: TestResult) -> str:
    """The same for a target that only the caller can make."""
    plan = f"Plan({column.depth!r}, exactly=[{result.test!r}])"
    return f"run_conformance(target, release={column.release!r}, plan={plan})"


def _in_process(column: Column, plan: Plan, folder: Path) -> None:
    column.facts = {"schedules": ", ".join(SCHEDULES[plan.depth])}
    for test in plan.tests():
        for result in run_on_model(test, folder, column.release, plan.depth):
            column.tests.append(result)
            plan.tell(result)


def _foreign(column: Column, plan: Plan, target: Target | Callable[[], Target]) -> None:
    for test in plan.tests():
        made: Target = target() if callable(target) else target
        column.target = made.name
        column.facts = made.facts()
        column.real = "real" in made.capabilities
        if test.isolated and not callable(target):
            result = TestResult(
                test.id, State.NOT_RUN, message="needs a target of its own: give a callable that makes one"
            )
        else:
            result = run_test(test, made, column.release)
        column.tests.append(result)
        plan.tell(result)
        if callable(target):
            made.close()


class _Workers:
    """A pool of worker processes; isolated tests get one each."""

    def __init__(self, column: Column, plan: Plan, folder: Path, target: str) -> None:
        self.column, self.plan, self.folder, self.target = column, plan, folder, target
        self.queue: queue.SimpleQueue[Test] = queue.SimpleQueue()
        self.results: dict[str, list[TestResult]] = {}
        self.lock = threading.Lock()
        self.unavailable: str | None = None

    def run(self) -> None:
        tests = self.plan.tests()
        for test in tests:
            self.queue.put(test)
        threads = [threading.Thread(target=self._serve, name=f"worker-{n}") for n in range(max(1, self.plan.jobs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.unavailable is not None:
            raise Unavailable(self.unavailable)
        for test in tests:
            self.column.tests += self.results.get(test.id, [])

    def _serve(self) -> None:
        worker: _Worker | None = None
        try:
            while self.unavailable is None:
                try:
                    test = self.queue.get_nowait()
                except queue.Empty:
                    return
                if worker is None or worker.dead:
                    worker = self._start({})
                # what the target cannot run anyway needs no process of its own to say so
                if test.isolated and self.target != "sim" and test.needs <= worker.capabilities:
                    alone = self._start(dict(test.environment))
                    self._run(alone, test)
                    alone.stop()
                else:
                    self._run(worker, test)
        except Unavailable as error:
            self.unavailable = str(error)
        finally:
            if worker is not None:
                worker.stop()

    def _start(self, environment: Mapping[str, str]) -> _Worker:
        worker = _Worker(self.target, self.column, self.plan, self.folder, environment)
        facts = worker.ready.get("facts")
        if facts:
            self.column.facts = facts
            self.column.real = "real" in worker.capabilities
        return worker

    def _run(self, worker: _Worker, test: Test) -> None:
        results = worker.ask(test)
        with self.lock:
            self.results[test.id] = results
            for result in results:
                self.plan.tell(result)


class _Worker:
    """One process; see :mod:`hipfile_conformance.worker`."""

    def __init__(self, target: str, column: Column, plan: Plan, folder: Path, environment: Mapping[str, str]) -> None:
        arguments = ["--factory" if ":" in target else "--target", target, "--release", column.release]
        arguments += ["--folder", str(folder), "--depth", plan.depth]
        for plugin in plan.plugins:
            arguments += ["--plugin", plugin]
        together = {**plan.environment, **environment}
        self.process = LineProcess("hipfile_conformance.worker", arguments, target, column.release, together)
        first = self._answer(60)
        if first is None:
            raise Unavailable(f"the worker for {target} did not start: {self.process.end()}")
        if "unavailable" in first:
            self.stop()
            raise Unavailable(first["unavailable"])
        self.ready: dict[str, Any] = first["ready"]

    @property
    def capabilities(self) -> frozenset[str]:
        """Those of the target there."""
        return frozenset(self.ready.get("capabilities", ()))

    @property
    def dead(self) -> bool:
        """It has been ended: the next test needs another."""
        return self.process.dead

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        line = self.process.line(seconds)
        return None if line is None else json.loads(line)

    def ask(self, test: Test) -> list[TestResult]:
        """Run a test there; a worker that dies or hangs is a failed test."""
        results: list[TestResult] = []
        self.process.send(test.id)
        while True:
            answer = self._answer(test.seconds + MARGIN_S)
            if answer is None:
                results.append(TestResult(test.id, State.FAIL, message=self.process.end()))
                return results
            if "end" in answer:
                return results
            results.append(TestResult.from_json(answer))

    def stop(self) -> None:
        """Let the process end, at the latest after 5 s."""
        self.process.stop()
