"""C++ programs built with g++ against the prefix, run under exec, with one and with eight host threads."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_support import execute

PROGRAMS = ("single_stream", "non_blocking", "registered_streams", "event_gating", "held_stream", "file_copy")


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("program", PROGRAMS)
def test_program(programs: Path, tmp_path: Path, program: str, threads: int) -> None:
    done = execute(programs / program, tmp_path, str(threads))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"ok {threads}\n", "")


@pytest.mark.parametrize("profile", ["0.2", "0.3", "0.4"])
def test_older_releases_keep_the_promises(programs: Path, tmp_path: Path, profile: str) -> None:
    done = execute(programs / "held_stream", tmp_path, "2", options=["--profile", profile])
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok 2\n", "")


@pytest.mark.parametrize("schedule", ["lazy", "eager", "seeded:5", "parallel"])
@pytest.mark.parametrize("program", ["event_gating", "held_stream", "registered_streams"])
def test_deterministic_engine(programs: Path, tmp_path: Path, program: str, schedule: str) -> None:
    done = execute(programs / program, tmp_path, "2", options=["--schedule", schedule])
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok 2\n", "")
