"""Helpers of the C ABI tests."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time: test workers share what is built once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = 500,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """A command with its output; a timeout is a failure of the test."""
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )


def execute(*words: str | Path, options: Sequence[str] = (), timeout: float = 500, env: Mapping[str, str] | None = None
            ) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """``hipfile-sim exec options -- words``."""
    return run([sys.executable, "-m", "hipfile_sim.cli", "exec", *options, "--", *words], timeout=timeout, env=env)


def host(native_prefix: Path, code: str, **env: str) -> tuple[int, str, str]:
    """A Python program that opens the libraries itself."""
    head = f"""
import atexit, ctypes, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started to ignore it
hip = ctypes.CDLL({str(native_prefix / "lib" / "libamdhip64.so")!r})
hipfile = ctypes.CDLL({str(native_prefix / "lib" / "libhipfile.so")!r})
"""
    done = run([sys.executable, "-c", head + code], env={"PYTHONPATH": str(ROOT), **env})
    return done.returncode, done.stdout, done.stderr
