"""``hipfile-sim run``: a program, unchanged, with the drop-in packages in place of the real ones."""

from __future__ import annotations

import atexit
import builtins
import os
import runpy
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

import click

from hipfile_sim.cli.options import machine_options, program_path, schedule_text

if TYPE_CHECKING:
    from hipfile_sim.driver.profiles import Profile
    from hipfile_sim.observe.trace import Trace

#: Frames of these folders are never the program's.
_OURS = tuple(f"{Path(__file__).resolve().parents[2] / package}/" for package in ("hipfile_sim", "hipfile_mock"))

FOUND = 3
"""Exit code of ``--check error`` when the program itself ended well and something was found."""


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
    help=f"Report races, misuse and leaks: warn prints them, error also makes the exit code {FOUND} if it was 0.",
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does, in place of a file.")
@click.argument("program", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    profile: Profile,
    schedule: str | None,
    seed: int | None,
    engine: str,
    devices: int,
    env: dict[str, str],
    trace_file: str | None,
    timeline: bool,
    show_token: bool,
    full_traceback: bool,
    check: str,
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

    from hipfile_sim.observe.trace import Trace

    trace = Trace() if trace_file is not None or timeline else None
    os.environ.update(env)
    # By name: the model must not depend on its doubles, and this is the one place where the two are put together.
    mock: Any = import_module("hipfile_mock")
    wanted: dict[str, Any] = {
        "schedule": chosen,
        "engine": engine,
        "devices": devices,
        "strict": None if check == "off" else False,
        "observers": [] if trace is None else [trace],
    }
    session = mock.install(profile, **wanted)
    if session.faces.get("hip_python"):  # AMD's wheels are here, but nothing that they could load
        in_place = [name for name, why_not in session.faces.items() if not why_not]
        mock.uninstall()
        session = mock.install(profile, faces=[*in_place, "hip_python-double"], **wanted)
        click.echo("hipfile-sim: HIP-Python's own modules find no emulated C library; its double stands in", err=True)
    found: list[str] = []
    try:
        code = execute(target, arguments, is_module=module is not None, full_traceback=full_traceback)
        if session.sanitizer is not None:
            found = import_module("hipfile_mock.wiring").findings(session.sanitizer, session.machine)
        token = session.token() if show_token else None
    finally:
        mock.uninstall()
    for line in found:
        click.echo(line, err=True)
    if trace is not None:
        _report(trace, trace_file, timeline)
    if token is not None:
        click.echo(f"hipfile-sim: token {token}", err=True)
    return FOUND if found and check == "error" and code == 0 else code


def execute(target: str, args: Sequence[str], *, is_module: bool = False, full_traceback: bool = False) -> int:
    """Run a file or module as ``__main__``, to its very end, and return the exit code that Python would give.

    The end is Python's own: threads that are no daemons are waited for, then exit handlers run, all of them while the
    machine is still there. An uncaught exception is printed without the simulator's frames around the program's.
    """
    kept = sys.argv, sys.path[:], sys.modules["__main__"]
    sys.argv = [target, *args]
    sys.path.insert(0, "" if is_module else str(Path(target).resolve().parent))
    try:
        code = _guarded(lambda: _run(target, is_module), full_traceback)
        _leave()
        return code
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = kept
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def _run(target: str, is_module: bool) -> None:
    if is_module:
        runpy.run_module(target, run_name="__main__", alter_sys=True)
    elif os.path.isdir(target):
        runpy.run_path(target, run_name="__main__")
    else:
        main = ModuleType("__main__")
        main.__dict__.update(__file__=target, __builtins__=builtins)
        sys.modules["__main__"] = main
        with open(target, "rb") as file:
            code = compile(file.read(), target, "exec")
        exec(code, main.__dict__)


def _leave() -> None:
    """What the interpreter does before it goes: pools are told to stop, threads joined, exit handlers run."""
    for stop_pool in reversed(getattr(threading, "_threading_atexits", ())):
        stop_pool()
    for thread in threading.enumerate():
        if not thread.daemon and thread not in (threading.current_thread(), threading.main_thread()):
            thread.join()
    atexit._run_exitfuncs()


def _guarded(body: Callable[[], None], full_traceback: bool) -> int:
    try:
        body()
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return (stop.code or 0) & 0xFF
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException as error:
        if not full_traceback:
            error.__traceback__ = _without_ours(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _without_ours(tb: TracebackType | None) -> TracebackType | None:
    """Drop the frames that lead to the program, and those inside the simulator that it called last."""
    frames: list[TracebackType] = []
    while tb is not None:
        if frames or not _is_ours(tb):
            frames.append(tb)
        tb = tb.tb_next
    programs = [i for i, frame in enumerate(frames) if not _is_ours(frame) and not _is_library(frame)]
    if programs:
        inside = [i for i, frame in enumerate(frames) if i > programs[-1] and _is_ours(frame)]
        frames = frames[: inside[0]] if inside else frames
    for frame, after in zip(frames, [*frames[1:], None], strict=False):
        frame.tb_next = after
    return frames[0] if frames else None


def _is_ours(tb: TracebackType) -> bool:
    name = tb.tb_frame.f_code.co_filename
    return name.startswith((*_OURS, "<frozen runpy")) or name == runpy.__file__


def _is_library(tb: TracebackType) -> bool:
    name = tb.tb_frame.f_code.co_filename
    return name.startswith((os.path.dirname(os.__file__) + "/", "<frozen ")) and "-packages/" not in name


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
