"""The registry: complete, unique, cited ids exist, cheap to import."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hipfile_sim
from hipfile_sim.driver import clauses
from hipfile_sim.driver.clauses import registry
from hipfile_sim.driver.clauses.registry import AREAS, FUNCTIONS, PROFILES, STATS_FUNCTIONS, UNSPECIFIED, expand

ALL = clauses.all_clauses()
SOURCE = Path(hipfile_sim.__file__).parent
ROW = ("file.x", "must", "code", "Something holds.", "yes", "=", "hipFileRead")


def test_there_are_enough_and_ids_are_unique():
    assert len(ALL) >= 200
    assert len({clause.id for clause in ALL}) == len(ALL)
    assert {clause.area for clause in ALL} == set(AREAS)


@pytest.mark.parametrize("area", AREAS)
def test_clauses_are_well_formed(area: str):
    for clause in clauses.group(area):
        assert re.fullmatch(rf"{area}(\.[a-z0-9]+(-[a-z0-9]+)*)+", clause.id), clause.id
        assert clause.level in registry.LEVELS
        assert clause.source in registry.SOURCES
        assert tuple(clause.answers) == PROFILES
        assert all(clause.answers.values()), clause.id
        assert clause.text.endswith("."), clause.id
        assert ". " not in clause.text, f"{clause.id} is more than one sentence"
        assert clause.functions, clause.id
        for name in clause.functions:
            assert name in FUNCTIONS + STATS_FUNCTIONS or re.fullmatch(r"hip(?!File)[A-Z]\w+", name), (clause.id, name)


@pytest.mark.parametrize("name", FUNCTIONS + STATS_FUNCTIONS)
def test_every_public_function_appears(name: str):
    found = clauses.for_function(name)
    assert found
    assert all(name in clause.functions for clause in found)


def test_the_public_functions():
    assert len(FUNCTIONS) == len(set(FUNCTIONS)) == 31
    assert clauses.for_function("hipFileNoSuchThing") == ()


def test_a_clause_that_nobody_knows_claims_nothing():
    for clause in ALL:
        if clause.level == "unspecified":
            assert UNSPECIFIED in clause.answers.values(), clause.id
        else:
            assert set(clause.answers.values()) != {UNSPECIFIED}, clause.id


def test_ids_cited_in_the_code_exist():
    pattern = re.compile(r"\[((?:" + "|".join(AREAS) + r")(?:\.[a-z0-9-]+)+)\]")
    cited = {
        (id, f"{path.relative_to(SOURCE)}:{number}")
        for path in SOURCE.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for id in pattern.findall(line)
    }
    assert len(cited) > 50
    assert not [(id, where) for id, where in sorted(cited) if not clauses.group(id)]


def test_get_and_group():
    assert clauses.get("file.register.duplicate").answers["0.2"] == "HandleAlreadyRegistered"
    assert clauses.get("bind.fixed").differs
    assert not clauses.get("error.base").differs
    ids = [clause.id for clause in clauses.group("file.register")]
    assert "file.register.null" in ids
    assert all(id.startswith("file.register.") for id in ids)
    assert clauses.group("nothing.here") == ()
    with pytest.raises(KeyError, match=r"file\.register\.duplicate"):
        clauses.get("file.register.duplicates")
    with pytest.raises(KeyError, match="no clause"):
        clauses.get("nonsense")


def test_answers_hold_from_a_release_on():
    (clause,) = expand("file", [(*ROW[:4], (("0.2", "a"), ("0.4", "b")), None, "hipFileRead")]).values()
    assert dict(clause.answers) == {"0.2": "a", "0.3": "a", "0.4": "b", "0.5": "b", "cufile": UNSPECIFIED}
    (clause,) = expand("file", [ROW]).values()
    assert clause.answers["cufile"] == "yes"
    with pytest.raises(TypeError):
        clause.answers["0.2"] = "no"  # type: ignore[index]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([ROW, ROW], "defined twice"),
        ([("env.x", *ROW[1:])], "does not belong to area 'file'"),
        ([ROW[:5]], "7 or 8 fields"),
        ([(ROW[0], "should", *ROW[2:])], "level 'should'"),
        ([(*ROW[:2], "rumour", *ROW[3:])], "source 'rumour'"),
        ([(*ROW[:4], (("0.3", "a"),), *ROW[5:])], "must start at 0.2"),
        ([(*ROW[:4], (("0.2", "a"), ("0.9", "b")), *ROW[5:])], "name AMD releases"),
        ([(*ROW[:4], "", *ROW[5:])], "empty answer"),
    ],
)
def test_bad_rows_are_refused(rows: list[registry.Row], message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        expand("file", rows)


def test_importing_loads_no_area():
    code = (
        "import sys, hipfile_sim.driver.clauses as c\n"
        "areas = lambda: [m for m in sys.modules if m.startswith('hipfile_sim.driver.clauses.')]\n"
        "assert areas() == ['hipfile_sim.driver.clauses.registry'], areas()\n"
        "c.get('env.bool')\n"
        "assert len(areas()) == 2, areas()\n"
        "assert 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=500)
