"""``hipfile-sim replay``: the run that a token stands for, once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hipfile_sim.cli.explore import NOT_REPEATABLE, named_program
from hipfile_sim.cli.options import env_option, profile_option

if TYPE_CHECKING:
    from hipfile_sim.driver.profiles import Profile


def _token(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from hipfile_sim.engine.token import decode

    try:
        decode(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return value


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@profile_option
@click.option("--devices", type=click.IntRange(1, 64), default=2, show_default=True, metavar="N", help="GPUs.")
@env_option
@click.option("--sanitize", is_flag=True, help="Errors that the sanitizer finds make the run fail.")
@click.option("--timeline", is_flag=True, help="Print what the streams did when the program has ended.")
@click.option("--trace", "trace_file", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
              help="Write a Chrome trace (JSON) in virtual time; Perfetto opens it.")  # fmt: skip
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does, in place of a file.")
@click.argument("token", callback=_token)
@click.argument("program", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    profile: Profile,
    devices: int,
    env: dict[str, str],
    sanitize: bool,
    timeline: bool,
    trace_file: str | None,
    module: str | None,
    token: str,
    program: str | None,
    args: tuple[str, ...],
) -> int:
    """Repeat the run that a TOKEN of `explore`, `run --token` or a failed test stands for.

    Give it the program, arguments, release, devices and variables that it was made with. A token that does not fit says
    at which choice it stopped fitting, and where in the program that was.

    \b
    hipfile-sim replay hs1-eNpjYGRgYmQAAAAZAAY prog.py --its-own-option

    Exit codes: the program's own (1 for an uncaught exception), 2 wrong usage, 4 the token does not fit.
    """
    from hipfile_sim.cli.isolated import Program
    from hipfile_sim.cli.program import _guarded
    from hipfile_sim.cli.run import _report
    from hipfile_sim.engine.errors import TokenMismatch
    from hipfile_sim.observe.trace import Trace

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
    trace = Trace() if timeline or trace_file is not None else None
    stopped: list[TokenMismatch] = []

    def body() -> None:
        with runner.world(token) as machine:
            engine: Any = machine.engine
            if trace is not None:
                machine.add_observer(trace)
            try:
                runner.loud(machine)
                machine.finish()
                engine.replayed()
            finally:
                if engine.schedule.mismatch is not None:  # whatever the program made of it
                    stopped.append(engine.schedule.mismatch)

    def guarded() -> None:
        try:
            body()
        except TokenMismatch as error:
            stopped[:] = [error]

    code = _guarded(guarded, full_traceback=False)
    if trace is not None:
        _report(trace, trace_file, timeline)
    if not stopped:
        return code
    site = stopped[0].site
    where = f" (at {site.filename}:{site.line})" if site is not None else ""
    click.echo(f"hipfile-sim: {stopped[0]}{where}", err=True)
    return NOT_REPEATABLE
