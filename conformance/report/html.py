"""One HTML page that needs nothing but itself."""

from __future__ import annotations

from importlib import resources
from typing import Any

from hipfile_conformance.report.markdown import SIGNS
from hipfile_conformance.results import State
from hipfile_conformance.table import Table

__all__ = ["render_html"]


def render_html(table: Table) -> str:
    """Render the template.

    Raises
    ------
    ImportError
        jinja2 is not installed.
    """
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = resources.files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8")
    rows = sorted(table.rows, key=lambda row: not row.disagrees)  # stable: disagreements first, then as written
    context: dict[str, Any] = {
        "table": table,
        "rows": rows,
        "states": [(state.value, SIGNS[state], state.name.lower()) for state in State],
        "signs": {state.value: SIGNS[state] for state in State},
        "kinds": {state.value: state.name.lower() for state in State},
        "areas": sorted({row.clause.area for row in table.rows}),
        "weak": set((table.mutants or {}).get("weak", ())),
        "counts": [table.counts(number) for number in range(len(table.columns))],
        "failures": [
            (column, result)
            for column in table.columns
            for result in column.tests
            if result.state in (State.FAIL, State.DEVIATION)
        ],
    }
    return environment.from_string(text).render(context)
