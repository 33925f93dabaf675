"""Reports of a table: JSON (with a schema), Markdown, one HTML page, JUnit."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from hipfile_conformance.report.html import render_html
from hipfile_conformance.report.junit import render_junit
from hipfile_conformance.report.markdown import render_markdown
from hipfile_conformance.results import FORMAT, Column
from hipfile_conformance.table import Table

__all__ = ["load_columns", "schema", "validate", "write_report"]


def schema() -> dict[str, Any]:
    """The JSON schema of ``report.json``."""
    text = resources.files(__name__).joinpath("schema.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def validate(data: Any) -> bool:
    """Check a report against the schema. False where the package jsonschema is not installed.

    Raises
    ------
    jsonschema.ValidationError
        It does not fit.
    """
    try:
        import jsonschema
    except ImportError:
        return False
    jsonschema.validate(data, schema())
    return True


def write_report(table: Table, folder: Path) -> list[Path]:
    """Write ``report.json``, ``report.md``, ``report.html`` and ``junit.xml``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    data = table.as_json()
    validate(data)
    texts = {
        "report.json": json.dumps(data, indent=1, ensure_ascii=False) + "\n",
        "report.md": render_markdown(table),
        "junit.xml": render_junit(table),
    }
    try:
        texts["report.html"] = render_html(table)
    except ImportError:  # jinja2 is an extra; the other three need nothing
        table.made["html"] = "not written: the package jinja2 is not installed"
    paths = []
    for name, text in texts.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def load_columns(path: Path) -> list[Column]:
    """Columns of an earlier report, checked against the clauses as they are now.

    Raises
    ------
    ValueError
        The file is of another format.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    if data.get("format") != FORMAT:
        raise ValueError(f"{path} has format {data.get('format')!r}; this is {FORMAT!r}: run the suite again")
    return [Column.from_json(column) for column in data["columns"]]
