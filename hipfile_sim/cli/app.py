"""The group of commands. Each command is a module of this package that is imported when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import NamedTuple

import click

from hipfile_sim._version import __version__


class Entry(NamedTuple):
    """A command: its module in this package, which has a click command named ``command``, and its line in the help."""

    module: str
    help: str


#: One line a command, in the order of the help. To add a command, write its module and add its line.
COMMANDS = {
    "run": Entry("run", "Run a Python program on an emulated GPU, unchanged."),
    "exec": Entry("exec_cmd", "Run any program with the emulated libraries in place of ROCm's."),
    "explore": Entry("explore", "Run a program under many orders of its GPU work and find one that breaks it."),
    "replay": Entry("replay", "Repeat the run that a token stands for."),
    "prefix": Entry(
        "prefix_cmd", "Print a folder that looks like ROCm: libraries, headers, CMake and pkg-config files."
    ),
    "env": Entry("env", "Show what the environment variables of hipFile resolve to, and why."),
    "doctor": Entry("doctor", "Show what of real hardware, libraries and tools is here."),
    "profiles": Entry("profiles", "List the releases that the model can be."),
    "clauses": Entry("clauses", "List or explain the clauses of the contract."),
}

HELP = """\
A software model of AMD hipFile and of the HIP runtime beneath it.

\b
Run a program that uses hipFile on a machine without a GPU:
    hipfile-sim run prog.py args...
\b
See what its streams did, in the terminal or in Perfetto:
    hipfile-sim run --timeline prog.py
    hipfile-sim run --trace out.trace.json prog.py
\b
Run it as an older release, in the worst legal order, with a variable set:
    hipfile-sim run --profile 0.2 --schedule lazy --env HIPFILE_FORCE_COMPAT_MODE=1 prog.py

Every command explains itself: hipfile-sim COMMAND --help
"""


class LazyGroup(click.Group):
    """Knows its commands from `COMMANDS` and imports the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = importlib.import_module(f"hipfile_sim.cli.{entry.module}").command
        assert isinstance(command, click.Command), f"hipfile_sim.cli.{entry.module}.command is no click command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and name.endswith(".py"):
            ctx.fail(f"no command {name!r}. To run a program: hipfile-sim run {' '.join(args)}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup, help=HELP, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=False
)
@click.version_option(__version__, prog_name="hipfile-sim")
def app() -> None:
    pass


def run(args: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    try:
        result = app.main(list(args), prog_name="hipfile-sim", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("hipfile-sim: interrupted", err=True)
        return 130
    except BrokenPipeError:
        return 141
    return result if isinstance(result, int) else 0
