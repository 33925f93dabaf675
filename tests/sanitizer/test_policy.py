"""Severities and suppressions."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipfile_sim.machine import Machine
from hipfile_sim.observe.observer import Site
from hipfile_sim.observe.sanitizer import Finding, Place, Policy, Sanitizer, SanitizerError, parse_suppressions


def finding(
    id: str = "race.read-write", file: str = "/src/app/kv.py", line: int = 41, function: str = "store"
) -> Finding:
    return Finding(id, "error", "message", (Place("read", "kernel", Site(file, line, function)),))


def test_the_last_pattern_that_fits_decides() -> None:
    policy = Policy({"race.*": "off", "race.file": "warn"})
    assert policy.level("race.read-write") == "off"
    assert policy.level("race.file") == "warning"
    assert policy.level("slot.dead") == "error"


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ("race.*=loud", "choose error, warn, note or off"),
        ("rice.*=off", "no check is called 'rice.*'"),
        ("race.*", "write ID=LEVEL"),
        ("result.early-read=off, leak.evnt=off", "did you mean leak.event"),
    ],
)
def test_bad_levels_say_what_to_do(levels: str, words: str) -> None:
    with pytest.raises(ValueError) as raised:
        Policy(levels)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("line", "silences"),
    [
        ("race.read-write", True),
        ("race.*", True),
        ("slot.*", False),
        ("race.* kv.py", True),
        ("race.* app/kv.py:41", True),
        ("race.* app/kv.py:42", False),
        ("race.* other.py", False),
        ("race.* k?.py in store  # known", True),
        ("race.* in store", True),
        ("race.* in load", False),
        ("race.* /src/*", True),
    ],
)
def test_suppressions_by_id_and_place(line: str, silences: bool) -> None:
    policy = Policy(suppressions=parse_suppressions(line))
    assert policy.admits(finding()) is not silences
    assert bool(policy.unused) is not silences


@pytest.mark.parametrize("line", ["race.* kv.py and more", "race.* kv.py in", "nonsense.id", "race.* in a b"])
def test_bad_lines_name_the_line(line: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_suppressions(f"# fine\n\n{line}\n", "hipfile.supp")
    assert "hipfile.supp:3" in str(raised.value)


def test_a_file_of_suppressions(tmp_path: Path) -> None:
    path = tmp_path / "hipfile.supp"
    path.write_text("# accepted\nleak.*   # the process ends here\ncost.pageable-copy loader.py\n")
    policy = Policy.load(path, "race.file=warn")
    assert [entry.reason for entry in policy.suppressions] == ["the process ends here", ""]
    assert policy.level("race.file") == "warning"
    assert not policy.admits(finding("leak.event"))


@pytest.mark.parametrize(
    ("comment", "reported"),
    [
        ("# hipfile: ignore[race.read-write]", False),
        ("# hipfile: ignore[race.*] same bytes", False),
        ("# hipfile: ignore[slot.dead, race.*]", False),
        ("# hipfile: ignore", False),
        ("// hipfile: ignore[race.read-write]", False),
        ("# hipfile: ignore[slot.dead]", True),
        ("# nothing", True),
    ],
)
def test_inline_suppressions(tmp_path: Path, comment: str, reported: bool) -> None:
    path = tmp_path / "program.c"
    path.write_text(f"first\nlaunch()  {comment}\n")
    assert Policy().admits(finding(file=str(path), line=2)) is reported
    assert Policy(inline=False).admits(finding(file=str(path), line=2))


def racy(policy: Policy | str | None) -> Sanitizer:
    sanitizer = Sanitizer(policy)
    with Machine(1, observers=[sanitizer]) as machine:
        _, pointer = machine.hip.hipMalloc(64)
        for value in (1, 2):
            _, stream = machine.hip.hipStreamCreate()
            machine.hip.hipMemsetAsync(pointer, value, 64, stream)
        machine.finish()
    return sanitizer


def test_errors_raise_with_the_report() -> None:
    with pytest.raises(SanitizerError) as raised:
        racy("leak.*=off").raise_if_errors()
    assert [f.id for f in raised.value.findings] == ["race.write-write"]
    assert "test_policy.py" in str(raised.value)


def test_warnings_do_not_raise() -> None:
    sanitizer = racy("race.*=warn")
    sanitizer.raise_if_errors()
    assert "race.write-write" in {f.id for f in sanitizer.findings}


def test_off_finds_nothing() -> None:
    sanitizer = racy("*=off")
    sanitizer.raise_if_errors()
    assert not sanitizer.findings


def test_unused_suppressions_are_named_at_the_end() -> None:
    policy = Policy("leak.*=off", suppressions=parse_suppressions("slot.dead\nrace.*", "supp"))
    sanitizer = racy(policy)
    sanitizer.finish()
    assert not sanitizer.findings
    assert "supp:1: slot.dead" in sanitizer.format()
    assert "supp:2" not in sanitizer.format()
