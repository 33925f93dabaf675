"""Real clients, unchanged: HIP-Python from PyPI, and the published `hipfile` built from its sdist."""

from __future__ import annotations

import re
from pathlib import Path

from native_support import HERE, execute, run


def test_hip_python(clients: Path, native_prefix: Path, tmp_path: Path) -> None:
    done = run([clients, HERE / "clients" / "hip_python_program.py", tmp_path], env={"ROCM_PATH": str(native_prefix)})
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert "Exception ignored" not in done.stderr


def test_hip_python_under_exec(clients: Path, native_prefix: Path, tmp_path: Path) -> None:
    for options in ([], ["--schedule", "seeded:3"], ["--schedule", "lazy"]):
        done = execute(clients, HERE / "clients" / "hip_python_program.py", tmp_path, options=options)
        assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_published_hipfile(clients: Path, native_prefix: Path, tmp_path: Path) -> None:
    done = execute(clients, HERE / "clients" / "hipfile_program.py", tmp_path)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_published_hipfile_own_tests(clients: Path, sdist_tests: Path) -> None:
    """Against its compiled extension. On Python 3.11 one fails: it asks for `int in Enum`, which raises there."""
    options = ["-q", "-s", "-p", "no:cacheprovider", str(sdist_tests)]
    code = f"import hipfile, pytest, sys; sys.exit(pytest.main({options!r}))"
    done = execute(clients, "-c", code, timeout=500)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
    version = run([clients, "-c", "import sys; print(sys.version_info >= (3, 12))"]).stdout.strip()
    if version == "True":
        assert counts == {"passed": 42}, done.stdout
    else:
        assert counts == {"passed": 41, "failed": 1}, done.stdout
        assert "test_handle_type_rejects_non_member" in done.stdout
