"""The page in a real browser: rows, filters, what stands first."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

pytest.importorskip("jinja2")

from hipfile_conformance.report import write_report
from hipfile_conformance.results import Check, Column, State, TestResult
from hipfile_conformance.runner import run_conformance
from hipfile_conformance.table import build_table
from hipfile_sim.driver.clauses import all_clauses

CHROMIUM = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), "")
pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(not CHROMIUM, reason="no Chromium here")]

SET = """
<script>
const seen = {};
function set(id, value) {
  const e = document.getElementById(id);
  if (e.type === "checkbox") e.checked = value; else e.value = value;
  e.dispatchEvent(new Event("input"));
}
function look(name) {
  const rows = [...document.querySelectorAll("#clauses tbody tr")].filter(row => row.offsetParent !== null);
  seen[name] = rows.map(row => row.querySelector(".id").textContent);
}
look("all");
for (const [id, value] of [["words", "BOUNCE buffer"], ["area", "stream"], ["level", "may"], ["state", "deviation"],
                           ["state", "not_run"], ["odd", true], ["weak", true]]) {
  set(id, value); look(id + "=" + value); set(id, typeof value === "boolean" ? false : "");
}
set("area", "stream"); set("level", "unspecified"); look("two"); set("area", ""); set("level", "");
look("end");
const pre = document.createElement("pre"); pre.id = "seen"; pre.textContent = JSON.stringify(seen);
document.body.appendChild(pre);
</script></body>"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the page shows under each filter, by clause id."""
    folder = tmp_path_factory.mktemp("page")
    model = run_conformance("sim", release="cufile", only=["stream.register.duplicate", "hip.free.null"])
    check = next(c for result in model.tests for c in result.checks if c.clause == "hip.free.null")
    odd = Check("hip.free.null", State.DEVIATION, "something else", check.expected, check.what)
    test = next(result.test for result in model.tests if check in result.checks)
    hardware = Column(
        "cufile", "cufile", "quick", 0, tests=[TestResult(test, State.DEVIATION, checks=[odd])], real=True
    )
    mutants = {"total": 0, "killed": 0, "survivors": [], "broken": [], "mutants": {}, "weak": ["life.version"]}
    write_report(build_table([model, hardware], mutants=mutants), folder)
    page = folder / "report.html"
    page.write_text(page.read_text().replace("</body>", SET))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'browser'}"]
    done = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    data: dict[str, Any] = json.loads(found[1])
    return data


def ids(**attributes: str) -> set[str]:
    return {c.id for c in all_clauses() if all(getattr(c, name) == value for name, value in attributes.items())}


def test_every_clause_has_a_row_and_disagreements_come_first(seen: dict[str, list[str]]) -> None:
    assert seen["all"] == seen["end"]
    assert set(seen["all"]) == ids()
    assert seen["all"][0] == "hip.free.null"


def test_filters(seen: dict[str, list[str]]) -> None:
    assert set(seen["area=stream"]) == ids(area="stream")
    assert set(seen["level=may"]) == ids(level="may")
    assert set(seen["two"]) == ids(area="stream", level="unspecified")
    assert seen["odd=true"] == seen["state=deviation"] == ["hip.free.null"]
    assert seen["weak=true"] == ["life.version"]
    assert "chunk.bounce.size" in seen["words=BOUNCE buffer"]
    assert 0 < len(seen["words=BOUNCE buffer"]) < len(ids())
    assert set(seen["state=not_run"]) == ids() - {"hip.free.null"}, "all but what both columns have"
