"""Shared by every test of the project: the header says which optional packages are absent, and why."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def pytest_report_header() -> list[str]:
    record = Path(sys.prefix) / "optional.json"
    if not record.exists():
        return []
    entries = json.loads(record.read_text())
    return [f"skipped without {name}: {e['purpose']} ({e['reason']})" for name, e in entries.items() if e["reason"]]
