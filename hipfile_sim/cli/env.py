"""``hipfile-sim env``: what the library would read from the environment, and why each value is what it is."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from hipfile_sim.cli.options import env_option, profile_option
from hipfile_sim.cli.tables import table

if TYPE_CHECKING:
    from hipfile_sim.driver.profiles import Profile


@click.command()
@profile_option
@env_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(profile: Profile, env: dict[str, str], as_json: bool) -> int:
    """Show what the environment variables of hipFile resolve to, and why.

    Each release has its own rules for what counts as true, as a number, and as the default. The values of the
    current environment are used, with those of --env on top.

    \b
    HIPFILE_ALLOW_COMPAT_MODE=TRUE hipfile-sim env --profile 0.5
    hipfile-sim env --profile 0.2 --env HIPFILE_STATS_LEVEL=1abc
    """
    from hipfile_sim.driver.environment import resolve

    rows = resolve(profile, {**os.environ, **env})
    if as_json:
        click.echo(json.dumps({"profile": profile.name, "variables": [row._asdict() for row in rows]}, indent=2))
        return 0
    click.echo(f"profile {profile.name}\n")
    table(
        ["variable", "set to", "in force", "why"],
        [[r.name, "(not set)" if r.raw is None else repr(r.raw), _value(r.value), r.why] for r in rows],
    )
    return 0


def _value(value: bool | int | None) -> str:
    if value is None:
        return "(not read)"
    return str(value).lower() if isinstance(value, bool) else str(value)
