"""Install and fetch optional things one by one; what fails is written down with its reason and never stops the set-up.

Run with the interpreter of the environment to fill: ``.venv/bin/python tools/optional.py``. The tests take everything
from here and never from the network: ``tests/conftest.py`` reads the record, names in the test header what is absent
and why, and hands out the folders.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

PREFIX = Path(sys.prefix)
RECORD = PREFIX / "optional.json"
SHARE = PREFIX / "share" / "hipfile-sim-tests"

AMD = "10.0.0.0.1.2"
HIP_PYTHON = f"hip-python=={AMD}"
BINDINGS = f"rocm-bindings-systems=={AMD}"
TARGET = [HIP_PYTHON, *(f"rocm-bindings-{part}=={AMD}" for part in ("core", "hip", "systems"))]
SDIST = "hipfile==0.4.0.dev0"


class Failure(NamedTuple):
    """Why something is absent: the line for people, whether only the network or the index lacked it, and the rest."""

    reason: str
    unavailable: bool = True
    details: str = ""


def run(command: list[str | Path], env: dict[str, str] | None = None) -> Failure | None:
    """Run a command; None when it worked. A second try helps against a registry that was busy."""
    for attempt in (1, 2):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=900, check=False, env={**os.environ, **(env or {})}
            )
        except subprocess.TimeoutExpired:
            return Failure(f"{command[2]} {command[3]} took more than 900 s")
        if done.returncode == 0:
            return None
        text = done.stderr + done.stdout
        lines = [line.removeprefix("ERROR: ") for line in text.splitlines() if line.startswith("ERROR")]
        reason = lines[-1] if lines else f"exit status {done.returncode}"
        unavailable = any(word in text.lower() for word in ("no matching distribution", "connection", "timed out"))
        if attempt == 2 or "no matching distribution" in text.lower():
            break
    return Failure(reason, unavailable, text[-4000:])


def pip(*arguments: str | Path, python: Path | None = None, env: dict[str, str] | None = None) -> Failure | None:
    """Run pip in this environment, or in that of `python`."""
    interpreter = python or Path(sys.executable)
    return run([interpreter, "-m", "pip", arguments[0], "-q", "--disable-pip-version-check", *arguments[1:]], env)


def installed(requirement: str) -> Callable[[Path], Failure | None]:
    """The step that installs one requirement here."""
    return lambda _: pip("install", requirement)


def torch(_: Path) -> Failure | None:
    """PyTorch, if that is a CPU build: another one is left alone by the doubles, and is several gigabytes."""
    report = SHARE / "torch.json"
    failure = pip("install", "--dry-run", "--report", report, "torch==2.13.0")
    if failure is None:
        wanted = [item["metadata"]["name"] for item in json.loads(report.read_text())["install"]]
        report.unlink()
        gpu = [name for name in wanted if name.startswith(("nvidia-", "cuda-"))]
        if gpu:
            return Failure(
                f"pip would take a CUDA build ({gpu[0]} and {len(gpu) - 1} more packages); install a CPU build yourself"
            )
        failure = pip("install", "torch==2.13.0")
    return failure


def published(folder: Path) -> Failure | None:
    """The published `hipfile` as its source distribution, unpacked nowhere yet."""
    return pip("download", "--no-deps", "--no-binary", "hipfile", "--dest", folder, SDIST)


def wheels(folder: Path) -> Failure | None:
    """AMD's Python bindings in a folder of their own, for ``PYTHONPATH``."""
    return pip("install", "--no-deps", "--upgrade", "--target", folder, *TARGET)


def clients(folder: Path) -> Failure | None:
    """An environment with AMD's bindings, and `hipfile` built from its source distribution against the prefix."""
    from hipfile_sim.native.prefix import NativeUnavailable, prefix  # set up before

    try:
        rocm = prefix()
    except NativeUnavailable as error:
        return Failure(str(error))
    python = folder / "bin" / "python"
    return (
        run([sys.executable, "-m", "venv", "--clear", folder])
        or pip("install", HIP_PYTHON, BINDINGS, "pytest", python=python)
        or pip("install", "--no-binary", "hipfile", SDIST, python=python, env={"ROCM_PATH": str(rocm)})
    )


#: What each step serves, and the step, which fills the folder of its name below `SHARE` if it makes one.
STEPS: dict[str, tuple[str, Callable[[Path], Failure | None]]] = {
    "torch==2.13.0": ("the torch.cuda double", torch),
    HIP_PYTHON: ("the C ABI tests with AMD's own Python bindings", installed(HIP_PYTHON)),
    BINDINGS: ("the C ABI tests with AMD's own hipFile bindings", installed(BINDINGS)),
    "sdist": (f"the comparison with {SDIST} and its own tests", published),
    "wheels": ("the comparison of the HIP-Python double with AMD's bindings", wheels),
    "clients": (f"the C ABI tests with AMD's bindings and {SDIST} built against the prefix", clients),
}


def main() -> int:
    SHARE.mkdir(parents=True, exist_ok=True)
    record = {}
    for name, (purpose, step) in STEPS.items():
        folder = SHARE / name
        failure = step(folder) or Failure("", unavailable=False)
        record[name] = {"purpose": purpose, "path": str(folder) if folder.exists() else "", **failure._asdict()}
        print(
            f"optional: {name}: {f'skipped, {failure.reason}' if failure.reason else 'ready'} ({purpose})", flush=True
        )
    RECORD.write_text(json.dumps(record, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
