"""``hipfile-sim profiles``: the releases that the model can be."""

from __future__ import annotations

import click

from hipfile_sim.cli.tables import table


@click.command()
@click.argument("names", nargs=-1)
def command(names: tuple[str, ...]) -> int:
    """List the releases that the model can be; with names, show every value of each."""
    from dataclasses import fields

    from hipfile_sim.driver.profiles import NEWEST, get_profile, list_profiles

    if not names:
        rows = []
        for name in list_profiles():
            doc = (_doc(name) or "").strip().splitlines()
            rows.append([name, "default" if name == NEWEST else "", doc[0] if doc else ""])
        table(["profile", "", "what it is"], rows)
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


def _doc(name: str) -> str | None:
    from importlib import import_module

    from hipfile_sim.driver import profiles

    return import_module(f"{profiles.__name__}.{profiles._modules()[name]}").__doc__


def _text(value: object) -> str:
    return getattr(value, "__name__", None) or str(value)
