"""The published packages that the doubles stand for, fetched once and kept in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

SDIST = "hipfile==0.4.0.dev0"
WHEELS = tuple(
    f"{name}==10.0.0.0.1.2"
    for name in ("hip-python", "rocm-bindings-core", "rocm-bindings-hip", "rocm-bindings-systems")
)


def _cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hipfile-sim-tests"
    root.mkdir(parents=True, exist_ok=True)
    return root


def _pip(*arguments: str) -> str:
    """Run pip; "" or the reason why it failed."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    except subprocess.TimeoutExpired:
        return "pip took more than 240 s"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or [f"pip exited with {done.returncode}"]
    return lines[-1]


def _fetched(name: str, *arguments: str) -> Path:
    """A folder of the cache that pip has filled; a run that is cut short leaves nothing behind."""
    place = _cache() / name
    if not place.exists():
        part = place.with_name(f"{name}.{os.getpid()}")
        reason = _pip(*(argument.format(part=part) for argument in arguments))
        if reason:
            shutil.rmtree(part, ignore_errors=True)
            pytest.skip(f"{name} cannot be fetched: {reason}")
        try:
            part.rename(place)
        except OSError:  # another worker was quicker
            shutil.rmtree(part, ignore_errors=True)
    return place


@pytest.fixture(scope="session")
def hipfile_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution of ``hipfile`` 0.4.0.dev0."""
    folder = _fetched("hipfile-0.4.0.dev0", "download", "--no-deps", "--no-binary", ":all:", "--dest", "{part}", SDIST)
    archive = next(folder.glob("*.tar.gz"))
    root = tmp_path_factory.mktemp("sdist")
    with tarfile.open(archive) as tar:
        tar.extractall(root, filter="data")
    return next(root.iterdir())


@pytest.fixture(scope="session")
def hip_python_wheels() -> Path:
    """A folder with HIP-Python 10.0.0.0.1.2 and its bindings, for ``PYTHONPATH``."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return _fetched(f"hip-python-10.0.0.0.1.2-py{version}", "install", "--no-deps", "--target", "{part}", *WHEELS)
