"""``hipfile-sim run``: a program, unchanged, with the drop-in packages in place of the real ones."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hipfile_sim.cli.options import machine_options, program_path, schedule_text
from hipfile_sim.cli.program import execute

if TYPE_CHECKING:
    from hipfile_sim.driver.profiles import Profile
    from hipfile_sim.observe.trace import Trace


FOUND = 3
"""Exit code of ``--check error`` when the program itself ended well and something was found."""

NO_LIBRARY = "hipfile-sim: AMD's HIP-Python is installed, but no emulated C library for it: its double stands in"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@machine_options
@click.option("--trace", "trace_file", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
              help="Write a Chrome trace (JSON) in virtual time; Perfetto opens it.")  # fmt: skip
@click.option("--timeline", is_flag=True, help="Print what the streams did when the program has ended.")
@click.option("--token", "show_token", is_flag=True, help="Print the token that reproduces this order of steps.")
@click.option("--full-traceback", is_flag=True, help="Keep the simulator's own frames in tracebacks.")
@click.option(
    "--check",
    type=click.Choice(["off", "warn", "error"]),
    default="warn",
    show_default=True,
    help=f"Races, misuse, leaks: warn prints what was found; error also exits with {FOUND} if an error is among it.",
)
@click.option("--policy", metavar="ID=LEVEL,...", help="Levels of reports by id, as in 'leak.*=off, race.*=error'.")
@click.option("--suppressions", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="Reports to live with: an id, then a place, a line each.")  # fmt: skip
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does, in place of a file.")
@click.argument("program", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    profile: Profile,
    schedule: str | None,
    seed: int | None,
    engine: str,
    devices: int,
    watchdog: float,
    env: dict[str, str],
    trace_file: str | None,
    timeline: bool,
    show_token: bool,
    full_traceback: bool,
    check: str,
    policy: str | None,
    suppressions: str | None,
    module: str | None,
    program: str | None,
    args: tuple[str, ...],
) -> int:
    """Run a Python program on an emulated GPU, unchanged.

    `import hipfile` and the HIP bindings give the program the model; its files are real. The exit code is the
    program's own. Options of hipfile-sim come before the program, everything after it is the program's.

    \b
    hipfile-sim run prog.py --its-own-option
    hipfile-sim run --schedule lazy --trace out.trace.json prog.py
    hipfile-sim run -m package.module args...
    """
    arguments = [*args]
    if module is not None:
        if program is not None:
            arguments.insert(0, program)
        target = module
    elif program is None:
        raise click.UsageError("name a program to run: hipfile-sim run prog.py args...")
    elif program.startswith("-"):
        raise click.NoSuchOption(program.partition("=")[0], ctx=click.get_current_context())
    else:
        target = str(program_path(program))
    if show_token and engine == "threads":
        raise click.UsageError("--token: the threads engine makes no choices, so no token repeats its run")
    chosen = schedule_text(schedule, seed, engine)
    if trace_file is not None and not Path(trace_file).resolve().parent.is_dir():
        raise click.UsageError(f"--trace {trace_file}: no folder {Path(trace_file).resolve().parent}")

    from hipfile_sim.observe.sanitizer import Policy, SanitizerError
    from hipfile_sim.observe.trace import Trace

    try:
        watch = Policy.load(suppressions, policy) if suppressions is not None else Policy(policy)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    trace = Trace() if trace_file is not None or timeline else None
    os.environ.update(env)
    # By name: the model must not depend on its doubles, and this is the one place where the two are put together.
    mock: Any = import_module("hipfile_mock")
    wanted: dict[str, Any] = {
        "schedule": chosen,
        "engine": engine,
        "devices": devices,
        "watchdog_s": watchdog,
        "strict": None if check == "off" else watch,
        "observers": [] if trace is None else [trace],
    }
    session = mock.install(profile, **wanted)
    if session.faces.get("hip_python"):  # AMD's wheels are here, but nothing that they could load
        in_place = [name for name, why_not in session.faces.items() if not why_not]
        mock.uninstall()
        session = mock.install(profile, faces=[*in_place, "hip_python-double"], **wanted)
        click.echo(NO_LIBRARY, err=True)
    try:
        code = execute(target, arguments, is_module=module is not None, full_traceback=full_traceback)
        token = session.token() if show_token else None
    finally:
        with suppress(SanitizerError):  # it is in the sanitizer's findings, which are reported below
            mock.uninstall()
    if trace is not None:
        _report(trace, trace_file, timeline)
    if token is not None:
        click.echo(f"hipfile-sim: token {token}", err=True)
    return _findings(session.sanitizer, code, check)


def _findings(sanitizer: Any, code: int, check: str) -> int:
    """Print what the sanitizer found; the exit code that follows from it."""
    if sanitizer is None:
        return code
    serious = [finding for finding in sanitizer.findings if finding.severity != "note"]
    if code:  # what a program that failed leaves behind is no news
        serious = [finding for finding in serious if not finding.id.startswith("leak.")]
    if serious:
        click.echo(sanitizer.format("text"), err=True)
    return FOUND if check == "error" and sanitizer.errors and not code else code


def _report(trace: Trace, trace_file: str | None, timeline: bool) -> None:
    if timeline:
        from hipfile_sim.observe.timeline import bars, steps

        width = min(160, _columns())
        click.echo(
            f"\n{bars(trace, width=width)}\n\n{steps(trace, first=24, last=8, width=width, all_calls=False)}", err=True
        )
    if trace_file is not None:
        from hipfile_sim.observe.chrome import write_chrome

        try:
            write_chrome(trace, trace_file)
        except OSError as error:
            raise click.ClickException(f"the trace was not written to {trace_file}: {error.strerror}") from None
        click.echo(f"hipfile-sim: trace of {len(trace.commands)} commands in {trace_file}", err=True)


def _columns() -> int:
    from shutil import get_terminal_size

    return get_terminal_size((100, 24)).columns
