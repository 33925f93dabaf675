"""The reference page says what the checks and the catalogue say."""

from __future__ import annotations

import reference

from hipfile_sim.observe.sanitizer import CHECKS


def test_the_page_is_up_to_date() -> None:
    assert reference.PAGE.read_text() == reference.page(), "run: python tests/sanitizer/reference.py"


def test_every_check_has_its_section() -> None:
    text = reference.page()
    for id in CHECKS:
        assert f"\n### {id}\n" in text
        assert id == "model.remark" or text.split(f"\n### {id}\n")[1].split("\n### ")[0].count("```python") == 2
