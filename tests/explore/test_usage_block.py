"""The usage that the proposal of the bindings printed: a schedule in which its own assertion fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = Path(__file__).with_name("usage_block.py")


def command(*args):
    return subprocess.run(
        [sys.executable, "-m", "hipfile_sim.cli", *args], capture_output=True, text=True, timeout=500, check=False
    )


@pytest.mark.slow
def test_the_explorer_prints_a_schedule_in_which_its_assertion_fails(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "chunks").write_bytes(bytes(range(256)) * 32)
    found = command("explore", "--schedules", "200", str(BLOCK), str(tmp_path / "chunks"))
    assert found.returncode == 1, found.stdout + found.stderr
    assert "assert io.bytes_done == expected_size[layer]" in found.stdout
    assert "result.early-read" in found.stdout
    assert "read bytes_done" in found.stdout
    token = re.search(r"hs1-[\w-]+", found.stdout)[0]
    again = command("replay", token, str(BLOCK), str(tmp_path / "chunks"))
    assert again.returncode == 1, again.stdout + again.stderr
    assert "assert io.bytes_done == expected_size[layer]" in again.stderr
