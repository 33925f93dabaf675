"""``hipfile-sim explore``: a whole program under many schedules."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from hipfile_sim.cli.options import env_option, profile_option, program_path

if TYPE_CHECKING:
    from hipfile_sim.driver.profiles import Profile
    from hipfile_sim.explore import Exploration

FAILED = 1
"""Exit code: some schedule makes the program fail."""
NOT_REPEATABLE = 4
"""Exit code: the same choices did not lead to the same run."""


def _shard(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    first, slash, second = value.partition("/")
    if not (slash and first.isdigit() and second.isdigit() and int(first) < int(second)):
        raise click.BadParameter(f"{value!r} is not I/N with 0 <= I < N, as in 0/4", ctx, param)
    return int(first), int(second)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--schedules", type=click.IntRange(min=0), default=1000, show_default=True, metavar="N",
              help="Most schedules to run; 0: no limit.")  # fmt: skip
@click.option("--strategy", type=click.Choice(["dpor", "all", "bounded", "pct", "random"]), default="dpor",
              show_default=True, help="dpor: every order that can matter. all: every order. bounded: few preemptions "
              "first. pct, random: samples.")  # fmt: skip
@click.option("--bound", type=click.IntRange(min=0), default=3, show_default=True, metavar="N",
              help="Preemptions of bounded; ordering constraints of pct.")  # fmt: skip
@click.option("--host", type=click.Choice(["opaque", "announced"]), default="opaque", show_default=True,
              help="Of dpor: what the program's own code looks at. opaque: anything that a host can see. announced: "
              "only slots, pinned tensors and what calls say.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Where random and pct begin.")
@click.option("--seconds", type=click.FloatRange(min=0), metavar="S", help="Stop after so many seconds.")
@click.option("--shard", callback=_shard, metavar="I/N", help="Only part I of N, counted from 0.")
@click.option("--resume", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
              help="Keep the state of the search in FILE, and go on from it where it exists.")  # fmt: skip
@click.option("--twice", is_flag=True, help="Run every schedule twice and stop if it does something else.")
@click.option("--sanitize", is_flag=True, help="Errors that the sanitizer finds are failures, too.")
@click.option("--keep-going", is_flag=True, help="Collect every kind of failure in place of the first.")
@profile_option
@click.option("--devices", type=click.IntRange(1, 64), default=2, show_default=True, metavar="N", help="GPUs.")
@env_option
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does, in place of a file.")
@click.argument("program", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    schedules: int,
    strategy: str,
    bound: int,
    host: str,
    seed: int,
    seconds: float | None,
    shard: tuple[int, int] | None,
    resume: str | None,
    twice: bool,
    sanitize: bool,
    keep_going: bool,
    profile: Profile,
    devices: int,
    env: dict[str, str],
    module: str | None,
    program: str | None,
    args: tuple[str, ...],
) -> int:
    """Run a Python program under many orders of its GPU work, and find one that breaks it.

    A schedule fails when the program ends with an uncaught exception or a code other than 0. The first that does is
    made simple and printed: the error, what each stream did, the sanitizer's report, and the token that repeats it.
    Every run begins with a fresh machine and imports the program's modules anew; files are real and stay as the
    run before left them.

    \b
    hipfile-sim explore prog.py --its-own-option
    hipfile-sim explore --strategy pct --schedules 200 prog.py
    hipfile-sim explore --seconds 60 --resume search.json prog.py

    Exit codes: 0 no schedule failed, 1 one did, 2 wrong usage, 4 the program does not repeat itself, 130 interrupted.
    """
    from hipfile_sim.cli.isolated import Program
    from hipfile_sim.explore import NondeterminismError, explore

    target, arguments = named_program(program, module, args)
    runner = Program(
        target,
        arguments,
        is_module=module is not None,
        profile=profile,
        devices=devices,
        env=env,
        sanitize=sanitize,
    )
    latest: list[Exploration] = []
    printed: dict[int, str] = {}
    try:
        with _progress(schedules or None) as show:

            def progress(result: Exploration) -> None:
                latest[:] = [result]
                for number in range(len(printed), len(result.failures)):
                    printed[number] = runner.output  # the latest run was the one that explained the failure
                show(result)

            found = explore(
                runner.silent,
                schedules=schedules or None,
                strategy=strategy,
                bound=bound,
                host=host,
                seed=seed,
                seconds=seconds,
                twice=twice,
                keep_going=keep_going,
                shard=shard,
                resume=resume,
                progress=progress,
                world=runner.world,
            )
    except NondeterminismError as error:
        click.echo(f"hipfile-sim: {error}", err=True)
        return NOT_REPEATABLE
    except ValueError as error:  # a file to resume from, or a strategy without shards
        raise click.UsageError(str(error)) from None
    except KeyboardInterrupt:
        if latest:
            click.echo(f"hipfile-sim: {latest[0].summary()}", err=True)
        raise click.Abort from None
    again = ["hipfile-sim", "replay"]
    again += ["--profile", profile.name]
    again += ["--devices", str(devices)] if devices != 2 else []
    again += [part for name, value in env.items() for part in ("--env", f"{name}={value}")]
    again += ["--sanitize"] if sanitize else []
    for number, failure in enumerate(found.failures):
        click.echo(str(failure))
        if printed.get(number, "").strip():
            click.echo(f"\nthe program printed:\n{_tail(printed[number])}")
        rest = ["-m", module] if module is not None else [program or ""]
        click.echo(f"\nrun exactly this again:\n  {shlex.join([*again, failure.token, *rest, *arguments])}\n")
    texts = len(found.outcomes)
    if found.ok and texts > 1:
        click.echo(f"hipfile-sim: the program printed {texts} different texts, by the order of its GPU work", err=True)
    click.echo(f"hipfile-sim: {found.summary()}", err=True)
    return 0 if found.ok else FAILED


def named_program(program: str | None, module: str | None, args: tuple[str, ...]) -> tuple[str, list[str]]:
    """What to run, and its arguments.

    Raises
    ------
    click.UsageError
        Nothing is named, or it is not there.
    """
    arguments = [*args]
    if module is not None:
        if program is not None:
            arguments.insert(0, program)
        return module, arguments
    if program is None:
        raise click.UsageError("name a program: hipfile-sim explore prog.py args...")
    if program.startswith("-"):
        raise click.NoSuchOption(program.partition("=")[0], ctx=click.get_current_context())
    return str(program_path(program)), arguments


def _tail(text: str, most: int = 20) -> str:
    lines = text.rstrip().splitlines()
    hidden = len(lines) - most
    return "\n".join(["  ..."] * (hidden > 0) + [f"  {line}" for line in lines[-most:]])


@contextmanager
def _progress(schedules: int | None) -> Iterator[Callable[[Exploration], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda result: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    note = TextColumn("{task.fields[note]}")
    columns = TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), note
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=schedules, note="")

        def show(result: Exploration) -> None:
            note = f"{result.runs / result.seconds:,.0f}/s" if result.seconds > 1 else ""
            bar.update(task, completed=result.runs, note=note)

        yield show
