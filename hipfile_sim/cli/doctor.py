"""``hipfile-sim doctor``: what of real hardware, libraries and tools is here, and what would be loaded from where."""

from __future__ import annotations

import json

import click

from hipfile_sim.cli.probe import findings
from hipfile_sim.cli.tables import table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """Show what of real hardware, libraries and tools is here, and what would be loaded from where.

    It only looks: no library is loaded and no device is opened.
    """
    found = findings()
    if as_json:
        click.echo(json.dumps([finding._asdict() for finding in found], indent=2))
        return 0
    marks = {True: "yes", False: "no", None: ""}
    rows, section = [], ""
    for finding in found:
        shown = "" if finding.section == section else finding.section
        section = finding.section
        rows.append([shown, finding.name, marks[finding.present], finding.detail])
    table(["", "what", "here", "detail"], rows)
    return 0
