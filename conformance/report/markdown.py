"""Markdown: a summary for people who read the pull request."""

from __future__ import annotations

from hipfile_conformance.results import State
from hipfile_conformance.table import Table

__all__ = ["SIGNS", "render_markdown"]

SIGNS = {
    State.PASS: "✓",
    State.VARIANT: "≈",
    State.UNSPECIFIED: "?",
    State.DEVIATION: "△",
    State.UNSUPPORTED: "–",
    State.NOT_RUN: "",
    State.FAIL: "✗",
}


def render_markdown(table: Table) -> str:
    """The whole table; problems and disagreements first."""
    lines = ["# hipFile conformance", ""]
    lines += [f"{key}: {value}  " for key, value in table.made.items()]
    lines += [
        "",
        "## What ran on what",
        "",
        "| column | depth | seed | real hardware | facts |",
        "|---|---|---|---|---|",
    ]
    for column in table.columns:
        facts = "; ".join(f"{key}: {value}" for key, value in column.facts.items())
        lines.append(
            f"| {column.name} | {column.depth} | {column.seed} | {'yes' if column.real else 'no'} | {_cell(facts)} |"
        )
    lines += ["", "## Cells by state", "", "| column | " + " | ".join(state.value for state in State) + " |"]
    lines.append("|---|" + "---|" * len(State))
    for number, column in enumerate(table.columns):
        counts = table.counts(number)
        lines.append(f"| {column.name} | " + " | ".join(str(counts[state.value]) for state in State) + " |")
    if table.problems:
        lines += ["", "## Problems", "", *(f"- {problem}" for problem in table.problems)]
    lines += _disagreements(table) + _failures(table) + _programs(table) + _mutants(table)
    lines += ["", "## Clauses", "", "Signs: " + ", ".join(f"{s or '(empty)'} {n.value}" for n, s in SIGNS.items()), ""]
    lines.append("| clause | level | " + " | ".join(column.name for column in table.columns) + " |")
    lines.append("|---|---|" + "---|" * len(table.columns))
    for row in table.rows:
        signs = " | ".join(SIGNS[cell.state] for cell in row.cells)
        lines.append(f"| `{row.clause.id}` {_cell(row.clause.text)} | {row.clause.level} | {signs} |")
    return "\n".join(lines) + "\n"


def _disagreements(table: Table) -> list[str]:
    if not any(column.real for column in table.columns):
        return []
    lines = ["", "## Model and hardware disagree", ""]
    if not table.disagreements:
        return [*lines, "Nowhere."]
    lines += ["| clause | test | hardware saw | model shows |", "|---|---|---|---|"]
    for item in table.disagreements:
        what = f" ({item.what})" if item.what else ""
        lines.append(
            f"| `{item.clause}`{_cell(what)} | {item.test} | {item.real}: {_cell(str(item.observed))} "
            f"| {item.model}: {_cell(str(item.model_observed))} |"
        )
    return lines


def _failures(table: Table) -> list[str]:
    lines = []
    for column in table.columns:
        for result in column.tests:
            if result.state in (State.FAIL, State.DEVIATION):
                variant = f" [{result.variant}]" if result.variant else ""
                lines.append(f"- {column.name}: `{result.test}`{variant} {result.state.value}: {_cell(result.message)}")
                lines.append(f"  - again: `{result.rerun}`")
    return ["", "## Failed tests", "", *lines] if lines else []


def _programs(table: Table) -> list[str]:
    lines = []
    for column in table.columns:
        for kind, found in column.programs.items():
            summary = ", ".join(f"{key} {value}" for key, value in found.items() if not isinstance(value, (list, dict)))
            lines.append(f"- {column.name}: {kind}: {summary}")
    return ["", "## Generated programs", "", *lines] if lines else []


def _mutants(table: Table) -> list[str]:
    if not table.mutants:
        return []
    found = table.mutants
    lines = ["", "## Mutants", "", f"{found['killed']} of {found['total']} killed by the quick profile."]
    lines += [f"- survived: {name}" for name in found["survivors"]]
    weak = found["weak"]
    lines += ["", f"<details><summary>{len(weak)} weak clauses: they killed none</summary>", "", ", ".join(weak)]
    return [*lines, "", "</details>"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
