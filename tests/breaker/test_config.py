"""Configuration files with values that make no sense: an error that names them, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipfile_mock import current, fake
from hipfile_sim.native.config import ConfigError, load


@pytest.mark.parametrize("value", ["5", "3.5", "true", "[]", '""', "{}"])
def test_trace_is_a_path_and_never_a_descriptor(tmp_path: Path, value: str) -> None:
    """``open(5, "w")`` writes into whatever the program has open as 5."""
    file = tmp_path / "config.toml"
    file.write_text(f"trace = {value}\n")
    with pytest.raises(ConfigError, match="trace of the configuration is the path of a file"):
        load({"HIPFILE_SIM_CONFIG": str(file)})


@pytest.mark.parametrize("value", [5, 3.5, True, "", []])
def test_trace_of_a_fake_is_a_path(value: Any) -> None:
    with pytest.raises(TypeError, match="trace="), fake(trace=value):
        pytest.fail("accepted")
    assert current.depth() == 0


@pytest.mark.parametrize(
    "text",
    [
        "profile = 5",
        'devices = "x"',
        "schedule = [1]",
        "sanitize = 5",
        "hip = 5",
        "[hip]\nbogus = 1",
        "x",
        "environment = 1",
    ],
)
def test_wrong_values(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        load({"HIPFILE_SIM_CONFIG": str(file)})


def test_file_that_includes_itself(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('include = "b.toml"')
    (tmp_path / "b.toml").write_text('include = "a.toml"')
    with pytest.raises(ConfigError, match="includes itself"):
        load({"HIPFILE_SIM_CONFIG": str(tmp_path / "a.toml")})
