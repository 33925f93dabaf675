"""Run tests one by one: in this process, or as a process that reads test ids and answers with JSON lines.

A C library keeps state for the life of its process, may crash and may hang; so it lives in a worker that the runner
can end.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from hipfile_conformance.kit import Kit, NotRun
from hipfile_conformance.results import State, TestResult
from hipfile_conformance.suite.registry import Test, find
from hipfile_conformance.targets import make_target
from hipfile_conformance.targets.base import CAPABILITIES, Inexpressible, Target, Unavailable, Unsupported

__all__ = ["TimedOut", "load_factory", "main", "make_from", "run_test"]


class TimedOut(Exception):
    """The test took longer than it may."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`TimedOut` in the main thread after `seconds`; does nothing in another thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_: int, __: FrameType | None) -> None:
        raise TimedOut(f"not finished after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_test(test: Test, target: Target, release: str, variant: str = "") -> TestResult:
    """Run one test on one target; whatever happens becomes a result."""
    missing = sorted(test.needs - target.capabilities)
    if missing:
        reason = "; ".join(f"needs {name} ({CAPABILITIES.get(name, 'unknown')})" for name in missing)
        return TestResult(test.id, State.UNSUPPORTED, message=reason, variant=variant)
    kit = Kit(target, release, clauses=test.clauses)
    start = time.perf_counter()
    state, message, refusal = State.PASS, "", ""
    try:
        with time_limit(test.seconds):
            test.body(kit)
    except NotRun as reason:
        state, message = State.NOT_RUN, str(reason)
    except Inexpressible as reason:  # the expectations say whether that is known
        state, message = State.FAIL, str(reason)
        refusal = message
    except Unsupported as reason:
        state, message = State.UNSUPPORTED, str(reason)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        inside = [f for f in traceback.extract_tb(error.__traceback__) if "/suite/" in f.filename]
        frame = inside[-1] if inside else frame
        state = State.FAIL
        message = f"{type(error).__name__}: {error} ({os.path.basename(frame.filename)}:{frame.lineno})"
    finally:
        try:
            with time_limit(10):
                kit.cleanup()
        except Unsupported as reason:
            message = message or f"clean-up: {reason}"
        except Exception as error:  # what a test leaves behind would be in the way of the next
            state = State.FAIL if state is State.PASS else state
            message = message or f"clean-up: {error!r}"
    faults: list[str] = getattr(target, "faults", [])
    if faults and state is State.PASS:
        state, message = State.FAIL, "a host function raised: " + faults[0].strip().splitlines()[-1]
    faults.clear()
    if any(check.state is State.FAIL for check in kit.checks):
        bad = next(check for check in kit.checks if check.state is State.FAIL)
        state = State.FAIL
        seen = f"{bad.clause}: observed {bad.observed!r}, expected {bad.expected!r} {bad.what}".strip()
        message = f"{seen}; {message}" if message else seen
    elif state is State.PASS and any(check.state is State.VARIANT for check in kit.checks):
        state = State.VARIANT
    if state is State.PASS and not kit.checks:
        state, message = State.FAIL, "the test checked nothing"
    return TestResult(test.id, state, time.perf_counter() - start, kit.checks, message, variant, refusal=refusal)


def load_factory(text: str) -> Callable[..., Target]:
    """``module:attribute`` -> what makes a target; called with ``directory`` and the options."""
    module, _, attribute = text.partition(":")
    found: Any = getattr(importlib.import_module(module), attribute)
    return found  # type: ignore[no-any-return]


def make_from(text: str, folder: Path, **fixtures: Any) -> Target:
    """The target that the factory ``module:attribute`` makes. `fixtures`: what a test needs of a model.

    Raises
    ------
    Unavailable
        It cannot be imported, or cannot be called so, or raised; the message says which and how it is called.
    """
    try:
        return load_factory(text)(directory=folder, **fixtures)
    except Unavailable:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}:{last.lineno}"
        raise Unavailable(
            f"{text} gave no target: {type(error).__name__}: {error} ({where}); it is imported from sys.path and is "
            "called with directory=, the folder for files"
        ) from error


def main(argv: list[str] | None = None) -> int:
    """Entry of the worker process."""
    parser = argparse.ArgumentParser(prog="hipfile_conformance.worker")
    parser.add_argument("--probe", help="only build this target and say whether it could be")
    parser.add_argument("--target", default="sim")
    parser.add_argument("--factory", help="module:attribute that makes the target")
    parser.add_argument("--release", default="0.5")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--depth", default="quick")
    parser.add_argument("--plugin", action="append", default=[], help="module:callable entered before the first test")
    options = parser.parse_args(argv)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints does not reach the runner
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if options.probe:
            make_target(options.probe, folder).close()
            os._exit(0)
        for plugin in options.plugin:
            enter: Any = load_factory(plugin)()
            enter.__enter__()
        runner = _Runner(options, folder)
        print(json.dumps({"ready": runner.facts()}), file=answers, flush=True)
    except Unavailable as error:
        print(json.dumps({"unavailable": str(error)}) if not options.probe else str(error), file=answers, flush=True)
        os._exit(3)
    for line in sys.stdin:
        for result in runner.run(find(line.strip())):
            print(json.dumps(result.as_json()), file=answers, flush=True)
        print(json.dumps({"end": line.strip()}), file=answers, flush=True)
    answers.flush()
    os._exit(0)  # a stream that still waits must not hold the exit


class _Runner:
    """One target for all tests of a C library; a new one a test, schedule by schedule, for the model."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.target: Target | None = None
        if options.factory:
            self.target = make_from(options.factory, folder)
        elif options.target != "sim":
            self.target = make_target(options.target, folder)

    def facts(self) -> dict[str, Any]:
        if self.target is None:
            return {}
        return {"facts": self.target.facts(), "capabilities": sorted(self.target.capabilities)}

    def run(self, test: Test) -> Iterator[TestResult]:
        o = self.options
        if self.target is None:
            yield from run_on_model(test, self.folder, o.release, o.depth)
        elif o.factory and "model" in self.target.capabilities:  # tests leave it as it is, to be thrown away
            needed = {"environment": dict(test.environment), "options": dict(test.options)}
            try:
                target = make_from(o.factory, self.folder, **{name: value for name, value in needed.items() if value})
            except Unavailable as error:  # it does not take what this test needs
                yield TestResult(test.id, State.UNSUPPORTED, message=str(error))
                return
            try:
                yield run_test(test, target, o.release)
            finally:
                target.close()
        else:
            yield run_test(test, self.target, o.release)


def run_on_model(test: Test, folder: Path, release: str, depth: str) -> Iterator[TestResult]:
    """A test on the model under the schedules of `depth`; where its order cannot matter, under the first."""
    from hipfile_conformance.targets.sim import SCHEDULES, SimTarget

    if test.needs & {"threads", "hold-host"}:
        variants = [("threads", "parallel")]
    else:
        names = SCHEDULES[depth] if test.schedules else SCHEDULES[depth][:1]
        variants = [("threads", "parallel") if name == "threads" else ("steps", name) for name in names]
    for engine, schedule in variants:
        target = SimTarget(
            folder,
            release=release,
            schedule=schedule,
            engine=engine,
            environment=dict(test.environment),
            options=dict(test.options),
        )
        try:
            yield run_test(test, target, release, schedule if engine == "steps" else "threads")
        finally:
            target.close()


if __name__ == "__main__":
    sys.exit(main())
