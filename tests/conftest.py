"""Shared by every test of the project: the header says which optional packages are absent, and why."""

from __future__ import annotations

import cProfile
import functools
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# `make test` tries the same examples each time, so that only the code decides; `make fuzz` looks for new ones.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("random", settings.get_profile("fixed"), derandomize=False)
settings.load_profile("fixed")

RECORD = Path(sys.prefix) / "optional.json"


def pytest_report_header() -> list[str]:
    if not RECORD.exists():
        return []
    entries = json.loads(RECORD.read_text())
    return [f"skipped without {name}: {e['purpose']} ({e['reason']})" for name, e in entries.items() if e["reason"]]


@functools.cache
def _torch_is_unfit() -> str:
    """Why the double has no torch to stand on; empty where it has. Imports torch, so only tests that want it ask."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    cpu_build = torch.version.cuda is None and torch.version.hip is None
    return "" if cpu_build else f"torch {torch.__version__} is not the CPU build"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("torch") and _torch_is_unfit():
        pytest.skip(_torch_is_unfit())


@pytest.fixture(scope="session")
def fetched() -> Callable[[str], Path]:
    """The folder that a step of ``tools/optional.py`` has filled; skips if it cannot be had, fails if it broke."""

    def folder(step: str) -> Path:
        if not RECORD.exists():
            pytest.skip("`make setup` has not run in this environment")
        entry = json.loads(RECORD.read_text())[step]
        if entry["reason"]:
            if entry["unavailable"]:
                pytest.skip(f"{entry['purpose']}: {entry['reason']}")
            pytest.fail(f"{entry['purpose']}: {entry['reason']}\n{entry['details']}")
        return Path(entry["path"])

    return folder


@pytest.fixture
def descriptors_in() -> Callable[[Path], int]:
    """How many descriptors of this process are open on a file, or on files below a folder.

    A count of all of them would move with whatever the garbage collector happens to close for an earlier test.
    """

    def count(path: Path) -> int:
        root, found = str(path.resolve()), 0
        for number in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink(f"/proc/self/fd/{number}")
            except FileNotFoundError:  # the one that listed them
                continue
            found += target == root or target.startswith(root + "/")
        return found

    return count


@pytest.fixture
def expect_deadlock() -> Callable[..., AbstractContextManager[None]]:
    """``with expect_deadlock(engine, match=...)``: what is inside ends in a `DeadlockError`, and soon.

    The watchdog is short only there: everywhere else a busy machine may let a thread sleep for longer than that.
    """
    from hipfile_sim.engine import DeadlockError

    @contextmanager
    def expect(engine: Any, **match: str) -> Iterator[None]:
        usual, engine.watchdog_s = engine.watchdog_s, 0.15
        try:
            with pytest.raises(DeadlockError, **match):
                yield
        finally:
            engine.watchdog_s = usual

    return expect


@pytest.fixture
def count_calls() -> Callable[[Callable[[], object]], int]:
    """How many function calls, of Python and of C, something takes in this thread: the measure of work in tests.

    Unlike a time it is the same on every machine, however busy; times are measured in `benchmarks/`.
    """

    def count(work: Callable[[], object]) -> int:
        profile = cProfile.Profile()
        profile.enable()
        try:
            work()
        finally:
            profile.disable()
        return sum(entry.callcount for entry in profile.getstats())

    return count
