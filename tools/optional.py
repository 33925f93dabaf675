"""Install the optional packages one by one; what fails is written down with its reason and never stops the set-up.

Run with the interpreter of the environment to fill: ``.venv/bin/python tools/optional.py``. The record is read by
``tests/conftest.py``, which names in the test header what is absent and why, and by `reason`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RECORD = Path(sys.prefix) / "optional.json"

#: What each optional package serves. Keys are requirement strings.
OPTIONAL = {
    "torch==2.13.0": "the torch.cuda double",
    "hip-python==10.0.0.0.1.2": "the C ABI tests with AMD's own Python bindings",
    "rocm-bindings-systems==10.0.0.0.1.2": "the C ABI tests with AMD's own hipFile bindings",
}


def install(requirement: str) -> str:
    """Install one requirement; return "" or the last line that pip gave as the reason."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    except subprocess.TimeoutExpired:
        return "pip took more than 900 s"
    if done.returncode == 0:
        return ""
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith("ERROR")]
    return lines[-1].removeprefix("ERROR: ") if lines else f"pip exited with {done.returncode}"


def main() -> int:
    record = {}
    for requirement, purpose in OPTIONAL.items():
        reason = install(requirement)
        record[requirement] = {"purpose": purpose, "reason": reason}
        print(f"optional: {requirement}: {'installed' if not reason else f'skipped, {reason}'} ({purpose})", flush=True)
    RECORD.write_text(json.dumps(record, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
