"""Implementations to judge. :func:`make_target` builds one by name; :func:`available` says which are here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hipfile_conformance.targets.base import Target, Unavailable, Unsupported

__all__ = ["EMULATED", "NAMES", "Target", "Unavailable", "Unsupported", "available", "make_target"]

NAMES = ("sim", "abi", "abi-python", "rocm", "rocm-python", "cufile")
"""Targets by name. All but the last are judged by a release of hipFile, the last by the profile `cufile`."""

EMULATED = ("abi", "abi-python")
"""Targets on the emulated C libraries: an environment variable chooses their release."""


def make_target(name: str, directory: Path, **options: Any) -> Target:
    """Build a target.

    Raises
    ------
    Unavailable
        It is not on this machine; the message says what is missing.
    ValueError
        No such target.
    """
    if name == "sim":
        from hipfile_conformance.targets.sim import SimTarget

        return SimTarget(directory, **options)
    if name in ("abi", "rocm"):
        from hipfile_conformance.targets import abi

        return (abi.AbiTarget if name == "abi" else abi.RocmTarget)(directory, **options)
    if name in ("abi-python", "rocm-python"):
        from hipfile_conformance.targets import hip_python

        return (hip_python.AbiPythonTarget if name == "abi-python" else hip_python.RocmPythonTarget)(
            directory, **options
        )
    if name == "cufile":
        from hipfile_conformance.targets.cufile import CuFileTarget

        return CuFileTarget(directory, **options)
    raise ValueError(f"no target {name!r}; there are {', '.join(NAMES)}")


def available(directory: Path, report: Callable[[str], None] = lambda _: None) -> list[str]:
    """Names of the targets that this machine has; `report` gets a line for each that it has not.

    Each C library is tried in a process of its own: loading two of one name into this one would mix them up.
    """
    import subprocess
    import sys

    found = ["sim"]
    for name in NAMES[1:]:
        command = [sys.executable, "-m", "hipfile_conformance.worker", "--probe", name, "--folder", str(directory)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            report(f"{name}: loading it took more than 60 s")
            continue
        if done.returncode == 0:
            found.append(name)
        else:
            lines = (done.stdout.strip() or done.stderr.strip() or f"exit {done.returncode}").splitlines()
            report(f"{name}: {lines[-1]}")
    return found
