"""The environment variables: every row of the parse rules, read once, messages. [env.*], cases C35 and C36"""

from __future__ import annotations

import io
import os
import threading
import time

import pytest

from hipfile_sim.driver.environment import VARIABLES, Environment, resolve
from hipfile_sim.driver.profiles import get_profile

ALLOW, FORCE, UNSUPPORTED, STATS, BUFFER = VARIABLES
AMD = ("0.2", "0.3", "0.4", "0.5")
OLD, NEW = ("0.2", "0.3", "0.4"), ("0.5",)
UINT_MAX, SIZE_MAX = 2**32 - 1, 2**64 - 1
MIB = 1 << 20
DEFAULTS = {ALLOW: True, FORCE: False, UNSUPPORTED: False}


def value(profile: str, name: str, raw: str | None) -> bool | int | None:
    env = {} if raw is None else {name: raw}
    (row,) = (r for r in resolve(get_profile(profile), env) if r.name == name)
    assert row.raw == raw
    assert row.why
    return row.value


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("name", [ALLOW, FORCE, UNSUPPORTED])
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("true", True),
        ("TRUE", True),
        ("tRuE", True),
        ("false", False),
        ("FALSE", False),
        (None, None),
        ("0", None),
        ("1", None),
        ("", None),
        ("yes", None),
        ("on", None),
        (" true", None),
        ("true ", None),
        ("true\n", None),
        ("truе", None),  # a Cyrillic letter
        ("\udcff", None),  # not UTF-8
        (chr(0xD800), None),  # no bytes at all
        ("junk", None),
    ],
)
def test_booleans(profile: str, name: str, raw: str | None, expected: bool | None):
    assert value(profile, name, raw) is (DEFAULTS[name] if expected is None else expected)


@pytest.mark.parametrize("profile", OLD)
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("2", 2),
        ("0", 0),
        ("007", 7),
        (" 5", 5),
        ("\t\n\v\f\r 5", 5),
        ("+5", 5),
        (" +5", 5),
        ("-0", 0),
        ("-1", UINT_MAX),
        (f"-{SIZE_MAX}", 1),
        (str(UINT_MAX), UINT_MAX),
        (str(UINT_MAX + 1), UINT_MAX),
        (str(SIZE_MAX), UINT_MAX),
        (str(SIZE_MAX + 1), None),
        ("9" * 24, None),
        ("-" + "9" * 24, None),
        ("9" * 5000, None),
        ("0" * 5000 + "7", 7),
        ("1abc", None),
        ("5 ", None),
        ("0x10", None),
        ("", None),
        (" ", None),
        ("+", None),
        ("- 1", None),
        ("+-1", None),
        ("\u00a05", None),  # no C white space
        ("٥", None),  # a digit, but not to C
        ("junk", None),
        (None, None),
    ],
)
def test_numbers_as_strtoul(profile: str, raw: str | None, expected: int | None):
    default = {"0.2": 0, "0.3": 0, "0.4": 1}[profile]
    wanted = default if expected is None else expected
    clamp = get_profile(profile).stats_level_max
    assert value(profile, STATS, raw) == (wanted if clamp is None else min(wanted, clamp))


@pytest.mark.parametrize("profile", NEW)
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("2097152", 2 * MIB),
        ("1", 1),
        ("0001", 1),
        ("0", 16 * MIB),
        (str(SIZE_MAX), SIZE_MAX),
        (str(SIZE_MAX + 1), SIZE_MAX),
        ("9" * 24, SIZE_MAX),
        ("9" * 5000, SIZE_MAX),
        ("0" * 5000 + "7", 7),
        ("-1", 16 * MIB),
        ("+5", 16 * MIB),
        (" 5", 16 * MIB),
        ("5 ", 16 * MIB),
        ("1abc", 16 * MIB),
        ("0x10", 16 * MIB),
        ("1e6", 16 * MIB),
        ("", 16 * MIB),
        ("٥", 16 * MIB),
        ("junk", 16 * MIB),
        (None, 16 * MIB),
    ],
)
def test_the_buffer_size_as_from_chars(profile: str, raw: str | None, expected: int):
    assert value(profile, BUFFER, raw) == expected
    assert Environment(get_profile(profile), {} if raw is None else {BUFFER: raw}).async_buffer_size == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [("0", 0), ("1", 1), ("2", 2), ("3", 3), ("4", 3), ("9" * 24, 3), ("-1", 1), (" 2", 1), ("", 1), (None, 1)],
)
def test_the_statistics_level_of_0_5(raw: str | None, expected: int):
    assert value("0.5", STATS, raw) == expected


@pytest.mark.parametrize("profile", OLD)
def test_older_releases_have_no_buffer_size(profile: str):
    row = resolve(get_profile(profile), {BUFFER: "1"})[-1]
    assert row == (BUFFER, "1", None, f"not read by profile {profile}")
    assert Environment(get_profile(profile), {BUFFER: "1"}).async_buffer_size == 16 * MIB


def test_cufile_reads_none_of_them():
    env = dict.fromkeys(VARIABLES, "false")
    assert [row.value for row in resolve(get_profile("cufile"), env)] == [None] * 5
    seen = Environment(get_profile("cufile"), env)
    assert seen.fallback_enabled
    assert seen.allow_compat
    assert seen.fastpath_enabled


def test_the_order_and_the_reasons():
    rows = resolve(get_profile("0.5"), {STATS: "7", FORCE: "1", BUFFER: "0", ALLOW: "False"})
    assert [row.name for row in rows] == list(VARIABLES)
    assert [row.why for row in rows] == [
        "set",
        "ignored: neither 'true' nor 'false'; the default",
        "not set; the default",
        "clamped to 3",
        "0 stands for the default",
    ]


@pytest.mark.parametrize("profile", AMD)
def test_read_once(profile: str):
    env = {ALLOW: "false"}
    seen = Environment(get_profile(profile), env)
    assert not seen.allow_compat
    env[ALLOW] = "true"
    env[STATS] = "2"
    assert not seen.allow_compat
    assert seen.stats_level == 2, "a variable that was not used yet is read at its own first use"
    env[STATS] = "0"
    assert seen.stats_level == 2
    assert [row.value for row in seen.resolved()][:4] == [False, False, False, 2]
    assert not seen.fallback_enabled
    assert Environment(get_profile(profile), env).allow_compat, "another process reads it anew"


def test_none_means_the_process_environment_at_first_use(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(BUFFER, raising=False)
    seen = Environment(get_profile("0.5"))
    monkeypatch.setenv(BUFFER, "4096")
    assert seen.async_buffer_size == 4096
    del os.environ[BUFFER]
    assert seen.async_buffer_size == 4096


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("allow", ["true", "false"])
@pytest.mark.parametrize("force", ["true", "false"])
def test_backends_and_the_conflict_message(profile: str, allow: str, force: str):
    out, err = io.StringIO(), io.StringIO()
    seen = Environment(get_profile(profile), {ALLOW: allow, FORCE: force}, stdout=out, stderr=err)
    conflict = allow == "false" and force == "true"
    rescued = conflict and profile in ("0.4", "0.5")
    assert seen.fastpath_enabled is (force == "false")
    assert (out.getvalue(), err.getvalue()) == ("", ""), "nothing is said before the fallback's state is asked for"
    for _ in range(3):
        assert seen.fallback_enabled is (allow == "true" or rescued)
    assert len(out.getvalue().splitlines()) == (conflict and profile == "0.4")
    assert len(err.getvalue().splitlines()) == (conflict and profile == "0.5")
    if conflict and profile == "0.4":
        assert f"{FORCE}=1" in out.getvalue()
        assert f"{ALLOW}=0" in out.getvalue()
    if conflict and profile == "0.5":
        assert f"{FORCE}=true" in err.getvalue()
        assert f"{ALLOW}=false" in err.getvalue()


def test_the_message_goes_to_the_streams_of_the_moment(capsys: pytest.CaptureFixture[str]):
    seen = Environment(get_profile("0.5"), {ALLOW: "false", FORCE: "true"})
    assert seen.fallback_enabled
    assert FORCE in capsys.readouterr().err


@pytest.mark.parametrize("stream", ["closed", "none"])
def test_a_stream_that_cannot_be_written_does_no_harm(stream: str, monkeypatch: pytest.MonkeyPatch):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed if stream == "closed" else None)
    assert Environment(get_profile("0.5"), {ALLOW: "false", FORCE: "true"}).fallback_enabled


def test_many_threads_ask_at_once_and_one_line_is_printed():
    class Slow(dict[str, str]):
        def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
            time.sleep(0.002)
            return super().get(key, default)

    err, start = io.StringIO(), threading.Barrier(8)
    seen = Environment(get_profile("0.5"), Slow({ALLOW: "false", FORCE: "true"}), stderr=err)

    def ask() -> None:
        start.wait()
        assert seen.fallback_enabled

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(err.getvalue().splitlines()) == 1
