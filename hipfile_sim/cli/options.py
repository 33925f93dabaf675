"""Options that several commands share, and the machine that they describe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from hipfile_sim.driver.profiles import Profile

F = TypeVar("F", bound=Callable[..., Any])


def _profile(ctx: click.Context, param: click.Parameter, value: str) -> Profile:
    from hipfile_sim.driver.profiles import get_profile

    try:
        return get_profile(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _schedule(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    from hipfile_sim.engine.schedules import parse_schedule

    if value is not None:
        try:
            parse_schedule(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return value


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", ctx, param)
        pairs[name] = value
    return pairs


def profile_option(command: F) -> F:
    """``--profile``: the release to be."""
    return click.option(
        "--profile",
        callback=_profile,
        metavar="RELEASE",
        default="newest",
        show_default=True,
        help="Release of hipFile to behave as; `hipfile-sim profiles` lists them.",
    )(command)


def env_option(command: F) -> F:
    """``--env NAME=VALUE``, repeatable."""
    return click.option(
        "--env",
        "env",
        callback=_pairs,
        multiple=True,
        metavar="NAME=VALUE",
        help="Set an environment variable for the program and the library. Repeatable.",
    )(command)


def machine_options(command: F) -> F:
    """What describes the emulated machine: profile, schedule, engine, seed, devices, watchdog, environment."""
    decorators = [
        profile_option,
        click.option(
            "--schedule",
            callback=_schedule,
            metavar="NAME[:ARG]",
            help="Who moves when: parallel (default), lazy, eager, roundrobin, seeded:N, or a token of an earlier run.",
        ),
        click.option("--seed", type=int, metavar="N", help="Short for --schedule seeded:N."),
        click.option(
            "--engine",
            type=click.Choice(["steps", "threads"]),
            default="steps",
            show_default=True,
            help="steps: deterministic, in virtual time. threads: one real thread a stream.",
        ),
        click.option(
            "--devices",
            type=click.IntRange(1, 64),
            default=2,
            show_default=True,
            metavar="N",
            help="How many GPUs the machine has.",
        ),
        click.option(
            "--watchdog",
            type=click.FloatRange(0, min_open=True),
            default=5.0,
            show_default=True,
            metavar="SECONDS",
            help="Real seconds without progress before the program is stopped as a deadlock.",
        ),
        env_option,
    ]
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def schedule_text(schedule: str | None, seed: int | None, engine: str) -> str:
    """The one schedule that the options mean.

    Raises
    ------
    click.UsageError
        They contradict each other.
    """
    if seed is not None and schedule is not None:
        raise click.UsageError("--seed N is short for --schedule seeded:N: give one of the two")
    if engine == "threads" and (seed is not None or schedule is not None):
        raise click.UsageError("--schedule and --seed order the steps engine: --engine threads has no order to choose")
    if seed is not None:
        return f"seeded:{seed}"
    return schedule or "parallel"


def program_path(text: str) -> Path:
    """The program to run.

    Raises
    ------
    click.UsageError
        There is no such file.
    """
    path = Path(text)
    if path.is_dir():
        if (path / "__main__.py").exists():
            return path
        raise click.UsageError(f"{text} is a folder without a __main__.py: name a Python file")
    if not path.exists():
        raise click.UsageError(f"no file {text} (looked in {Path.cwd()})")
    return path
