"""Shared by every test of the project: the header says which optional packages are absent, and why."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_report_header() -> list[str]:
    record = Path(sys.prefix) / "optional.json"
    if not record.exists():
        return []
    entries = json.loads(record.read_text())
    return [f"skipped without {name}: {e['purpose']} ({e['reason']})" for name, e in entries.items() if e["reason"]]


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
