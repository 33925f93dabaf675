"""Text, JSON, SARIF and the summary."""

from __future__ import annotations

import json
from typing import Any

import pytest
from catalogue import PROGRAMS, load
from catalogue.world import World

from hipfile_sim.observe.sanitizer import CHECKS, Sanitizer

load()


@pytest.fixture(scope="module")
def sanitizer() -> Sanitizer:
    """Findings of all severities, some seen twice."""
    with World(tidy=False) as world:
        for name in ("store_beside_kernel", "read_result_after_submit", "stream_registered_in_vain"):
            for _ in range(2):
                PROGRAMS[name].body(world)
        world.sync_device()
    return world.sanitizer


def test_text_has_both_places_the_edge_and_the_fix(sanitizer: Sanitizer) -> None:
    report = sanitizer.format(colour=False)
    assert "error race.read-write: hipFileWriteAsync on stream 2 reads what kernel forward on stream 1 writes" in report
    assert report.count("races.py:") >= 2
    assert "missing  no event that stream 1 records" in report
    assert "fix      record an event on stream 1" in report
    assert "(seen 2 times)" in report
    assert "\x1b" not in report
    assert max(map(len, report.splitlines())) <= 160


def test_errors_come_first(sanitizer: Sanitizer) -> None:
    heads = [
        line.split()[0] for line in sanitizer.format(colour=False).splitlines() if line.startswith(("error ", "note "))
    ]
    assert heads == sorted(heads)
    assert {"error", "note"} <= set(heads)


def test_colour_is_plain_ansi(sanitizer: Sanitizer) -> None:
    assert "\x1b[1;31merror\x1b[0m" in sanitizer.format(colour=True)


def test_no_colour_without_a_terminal(sanitizer: Sanitizer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" in sanitizer.format()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in sanitizer.format()


def test_summary_is_one_line(sanitizer: Sanitizer) -> None:
    summary = sanitizer.summary()
    assert "\n" not in summary
    assert summary.startswith("hipfile-sim sanitizer: ")
    assert "race.read-write" in summary


def test_json(sanitizer: Sanitizer) -> None:
    document = json.loads(sanitizer.format("json"))
    assert document["version"] == 1
    assert document["operations"] == 6
    race = next(f for f in document["findings"] if f["id"] == "race.read-write")
    assert race["count"] == 2
    assert len(race["places"]) == 2
    assert all(place["file"].endswith("races.py") and place["line"] > 0 for place in race["places"])
    assert sum(document["counts"].values()) == len(document["findings"])


def test_unknown_format(sanitizer: Sanitizer) -> None:
    with pytest.raises(ValueError, match="choose one of text, json, sarif, summary"):
        sanitizer.format("xml")


# -- SARIF: the required properties and the types that the 2.1.0 schema gives them

MESSAGE = {"text": str}
ARTIFACT = {"uri": str, "uriBaseId?": str}
PHYSICAL = {"artifactLocation": ARTIFACT, "region": {"startLine": int}}
LOCATION = {
    "id?": int,
    "physicalLocation": PHYSICAL,
    "logicalLocations": [{"fullyQualifiedName": str, "kind": str}],
    "message": MESSAGE,
}
RESULT = {
    "ruleId": str,
    "ruleIndex": int,
    "level": {"error", "warning", "note", "none"},
    "message": MESSAGE,
    "locations?": [LOCATION],
    "relatedLocations?": [LOCATION],
    "occurrenceCount": int,
}
RULE = {
    "id": str,
    "shortDescription": MESSAGE,
    "fullDescription": MESSAGE,
    "help": MESSAGE,
    "defaultConfiguration": {"level": {"error", "warning", "note", "none"}},
}
RUN = {
    "tool": {"driver": {"name": str, "version": str, "semanticVersion": str, "rules": [RULE]}},
    "columnKind": {"utf16CodeUnits", "unicodeCodePoints"},
    "originalUriBaseIds": {"ROOT": {"uri": str}},
    "properties": {"operations": int},
    "results": [RESULT],
}
LOG = {"$schema": str, "version": {"2.1.0"}, "runs": [RUN]}


def conforms(value: Any, shape: Any, at: str = "$") -> None:
    """`value` has the required properties of `shape`, no unknown ones, and the right types."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), at
        known = {name.rstrip("?"): (part, name.endswith("?")) for name, part in shape.items()}
        assert set(value) <= set(known), f"{at}: {set(value) - set(known)}"
        for name, (part, optional) in known.items():
            assert optional or name in value, f"{at}.{name} is missing"
            if name in value:
                conforms(value[name], part, f"{at}.{name}")
    elif isinstance(shape, list):
        assert isinstance(value, list), at
        for index, item in enumerate(value):
            conforms(item, shape[0], f"{at}[{index}]")
    elif isinstance(shape, set):
        assert value in shape, at
    else:
        assert isinstance(value, shape), at
        assert not isinstance(value, bool), at


def test_sarif(sanitizer: Sanitizer) -> None:
    document = json.loads(sanitizer.format("sarif"))
    conforms(document, LOG)
    run = document["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        for location in (*result.get("locations", ()), *result.get("relatedLocations", ())):
            artifact = location["physicalLocation"]["artifactLocation"]
            assert not artifact["uri"].startswith("/"), "absolute paths are file: addresses"
            assert location["physicalLocation"]["region"]["startLine"] > 0


def test_every_check_says_what_it_is() -> None:
    for check in CHECKS.values():
        assert check.title
        assert check.why.endswith(".")
        assert check.fix.endswith(".")
        assert check.id == check.id.lower()
