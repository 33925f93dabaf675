"""Long runs under exec with random faults: data right, nothing leaked, memory flat."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from native_support import HERE, execute


def soak(programs: Path, folder: Path, operations: int, timeout: float) -> dict[str, int]:
    toml = folder / "soak.toml"
    toml.write_text('[setup]\ncall = "soak_faults:install"\n')
    paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    done = execute(programs / "soak", folder, str(operations), "8", options=["--config", str(toml)], timeout=timeout,
                   env={"PYTHONPATH": paths})  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    words = done.stdout.split()
    return {"before": int(words[-2]), "after": int(words[-1])} | {
        words[i]: int(words[i + 1]) for i in range(0, len(words) - 3, 2)
    }


def test_short(programs: Path, tmp_path: Path) -> None:
    seen = soak(programs, tmp_path, 2000, 500)
    assert seen["faults"] > 20
    assert seen["descriptors"] == 0
    assert seen["threads"] <= 0
    assert seen["after"] - seen["before"] < 16 << 10  # KiB


@pytest.mark.soak
def test_long(programs: Path, tmp_path: Path) -> None:
    """200,000 operations, 8 host threads, 8 streams. Growth is measured over the last half."""
    seen = soak(programs, tmp_path, 200_000, 3600)
    print(seen)
    assert seen["faults"] > 4000
    assert seen["descriptors"] == 0
    assert seen["threads"] <= 0
    assert seen["mappings"] < 64
    assert seen["after"] - seen["before"] < 16 << 10
