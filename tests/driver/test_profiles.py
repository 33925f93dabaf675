"""Profiles: what differs, lookup by name, and that a new release is one file."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import hipfile_sim.driver
from hipfile_sim.driver import clauses, profiles
from hipfile_sim.driver.clauses.registry import FUNCTIONS, PROFILES, STATS_FUNCTIONS
from hipfile_sim.driver.codes import OpError
from hipfile_sim.driver.profiles import NEWEST, get_profile, list_profiles
from hipfile_sim.hip.settings import HipSettings

TABLE = {
    "version": ((0, 2, 0), (0, 3, 0), (0, 4, 0), (0, 5, 0), (1, 15, 0)),
    "async_generation": ("g1", "g1", "g1", "g2", "cufile"),
    "async_bounce": ("per-op", "per-op", "per-op", "per-stream", "none"),
    "async_selection": (False, False, False, True, False),
    "async_range_check": ("submit", "submit", "submit", "submit", "publish"),
    "negative_offset": ("range-check", "range-check", "early-einval", "early-einval", "range-check"),
    "sync_failover": (False, True, True, True, False),
    "async_failover": (False,) * 5,
    "sync_switches_device": (False, False, False, True, False),
    "fixed_flags": ("captured", "captured", "captured", "captured", "promise"),
    "fixed_size_clamped": (False, False, False, True, False),
    "grown_size": ("refuse", "refuse", "refuse", "refuse", "use"),
    "force_without_allow": ("no-backend", "no-backend", "rescue", "rescue", "no-backend"),
    "conflict_message": (None, None, "stdout", "stderr", None),
    "batch": ("stored", "stored", "stored", "pool", "cufile"),
    "stats_api": (False, False, False, True, False),
    "buffer_in_use": ("refuse", "refuse", "refuse", "refuse", "wait"),
    "file_in_use": ("keep", "keep", "keep", "keep", "detach"),
    "stream_flags_mask": (15, 15, 15, 15, None),
    "register_init": ("after-inspect",) * 4 + ("first",),
    "emfile": (OpError.hipFileInternalError,) * 5,
}


@pytest.mark.parametrize("field", TABLE)
def test_what_differs(field: str):
    assert tuple(getattr(get_profile(name), field) for name in PROFILES) == TABLE[field]


def test_names():
    assert list_profiles()[: len(PROFILES)] == PROFILES
    assert get_profile(NEWEST).name == "0.5" == get_profile("newest").name
    assert get_profile(" 0.5.0 ") is get_profile("0.5")
    assert get_profile("CUFILE") is get_profile("cufile-1.15.1")
    assert get_profile(get_profile("0.2")) is get_profile("0.2")


@pytest.mark.parametrize("name", ["0.9", "", "p0_5", "base", "0.5.1", "rocm", "../0.5"])
def test_an_unknown_name_lists_what_is_known(name: str):
    with pytest.raises(ValueError, match=r"known profiles: 0\.2, 0\.3, 0\.4, 0\.5, .*cufile"):
        get_profile(name)


def test_a_profile_is_not_a_number():
    with pytest.raises(TypeError, match=r"not float: 0\.5"):
        get_profile(0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_are_sound(name: str):
    profile = get_profile(name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        profile.name = "x"  # type: ignore[misc]
    HipSettings(**profile.hip)
    assert profile.functions == (FUNCTIONS + STATS_FUNCTIONS if name == "0.5" else FUNCTIONS)
    for clause in clauses.all_clauses():
        assert profile.answer(clause.id) == clause.answers[name]
    with pytest.raises(KeyError):
        profile.answer("file.no-such-clause")
    assert profile.answer("life.version") == ".".join(map(str, profile.version))


def test_a_new_release_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "p0_7_dev.py").write_text(
        "from dataclasses import replace\n"
        "from hipfile_sim.driver.profiles import p0_5\n"
        "PROFILE = replace(p0_5.PROFILE, name='0.7-dev', aliases=('next',), bases=('0.5',),\n"
        "                  answers={'error.funnel.emfile': 'GetNewFDFailed'})\n"
    )
    monkeypatch.setattr(profiles, "__path__", [*profiles.__path__, str(tmp_path)])
    profiles._modules.cache_clear()
    try:
        assert list_profiles()[-2:] == ("0.7-dev", "cufile")
        new = get_profile("next")
        assert new.answer("error.funnel.emfile") == "GetNewFDFailed"
        assert new.answer("chunk.bounce.owner") == "the stream"
        assert new.answer("life.closed.sync") == clauses.get("life.closed.sync").answers["0.5"]
    finally:
        profiles._modules.cache_clear()
        profiles._load.cache_clear()


def test_no_code_asks_for_the_name_of_a_release():
    room = Path(hipfile_sim.driver.__file__).parent
    pattern = re.compile(r"""profile\.(name|version)\s*(==|!=|<|>|in\b|not\b|\.)|\bprofile\s*(==|!=)\s*["']""")
    assert pattern.search('if driver.profile.name == "0.5":')
    assert pattern.search("if profile == '0.5'")
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in room.rglob("*.py")
        if path.parent.name != "profiles"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found
