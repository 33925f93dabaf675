"""``hipfile-sim profiles``: the releases that the model can be."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import click

from hipfile_sim.cli.tables import table


@click.command()
@click.argument("names", nargs=-1)
def command(names: tuple[str, ...]) -> int:
    """List the releases that the model can be; with names, show every value of each."""
    from dataclasses import fields

    from hipfile_sim.driver.profiles import NEWEST, get_profile, list_profiles

    if not names:
        known = [get_profile(name) for name in list_profiles()]
        rows = [[p.name, "default" if p.name == NEWEST else "", p.title, p.evidence] for p in known]
        table(["profile", "", "what it is", "evidence"], rows)
        return 0
    for name in names:
        try:
            profile = get_profile(name)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        click.echo(f"{profile.name}\n")
        table(["value", "in this release"], [[f.name, _text(getattr(profile, f.name))] for f in fields(profile)])
        click.echo()
    return 0


def _text(value: object) -> str:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return ", ".join(f"{_text(key)}={_text(item)}" for key, item in value.items())
    if isinstance(value, tuple) and not hasattr(value, "name"):
        return ", ".join(map(_text, value))
    return str(getattr(value, "name", None) or getattr(value, "__name__", None) or value)
