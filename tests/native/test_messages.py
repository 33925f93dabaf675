"""What the library prints reaches the terminal of a C program, in the release's own place."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_support import execute

from hipfile_sim.driver.profiles import get_profile, list_profiles


@pytest.mark.parametrize("profile", [name for name in list_profiles() if get_profile(name).conflict_message])
def test_conflict_message(programs: Path, tmp_path: Path, profile: str) -> None:
    options = [
        "--profile",
        profile,
        "--env",
        "HIPFILE_FORCE_COMPAT_MODE=true",
        "--env",
        "HIPFILE_ALLOW_COMPAT_MODE=false",
    ]
    done = execute(programs / "file_copy", tmp_path, "1", options=options)
    assert done.returncode == 0, done.stderr
    place = get_profile(profile).conflict_message
    texts = {"stdout": done.stdout.replace("ok 1\n", ""), "stderr": done.stderr}
    assert texts.pop(str(place)).startswith("hipFile: HIPFILE_FORCE_COMPAT_MODE")
    assert list(texts.values()) == [""]
