"""C++ programs built with g++ against the prefix, run under exec, with one and with eight host threads."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from native_support import HERE, execute, run

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


def places(report: str, program: Path) -> set[str]:
    """Source lines of the program that a report names by object file and offset."""
    offsets = re.findall(rf"{re.escape(str(program))}\+(0x[0-9a-f]+)", report.replace("\n           ", ""))
    source = (HERE / "programs" / f"{program.name}.cpp").read_text().splitlines()
    found = set()
    for offset in offsets:
        where = run(["addr2line", "-e", program, offset]).stdout.split()[0]
        name, _, number = where.rpartition(":")
        if name.endswith(f"{program.name}.cpp"):
            found.add(source[int(number) - 1].strip())
    return found


@pytest.mark.skipif(shutil.which("addr2line") is None, reason="addr2line is not on PATH")
@pytest.mark.parametrize("schedule", ["threads", "parallel", "lazy"])
def test_sanitizer_sees_c_programs(programs: Path, tmp_path: Path, schedule: str) -> None:
    options = ["--sanitize", "--schedule", schedule]
    right = execute(programs / "race", tmp_path, "right", options=options)
    assert (right.returncode, right.stderr) == (0, "hipfile-sim sanitizer: clean (1 operation)\n")
    wrong = execute(programs / "race", tmp_path, "wrong", options=options)
    assert wrong.returncode == 0, wrong.stderr
    assert "1 error (1 operation): race.write-write" in wrong.stderr
    named = places(wrong.stderr, programs / "race")
    assert "HIP(hipMemsetAsync(data.data, 1, size, writer));" in named
