"""``hipfile-sim exec``: any program, with the emulated libraries in place of ROCm's."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import click

from hipfile_sim.cli.options import env_option


def _checked(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A profile or schedule that exists, as it was written."""
    from hipfile_sim.driver.profiles import get_profile
    from hipfile_sim.engine.schedules import parse_schedule

    if value is not None:
        try:
            if param.name == "profile":
                return get_profile(value).name
            if value != "threads":
                parse_schedule(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return value


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("--profile", callback=_checked, metavar="RELEASE", help="Release of hipFile (default: the newest).")
@click.option("--schedule", callback=_checked, metavar="NAME[:ARG]",
              help="threads (default): one real thread a stream; or a schedule of the step engine.")  # fmt: skip
@click.option("--devices", type=click.IntRange(0, 64), metavar="N", help="How many GPUs there are (default: 2).")
@click.option("--watchdog", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              help="Real seconds without progress before a wait fails as a deadlock (default: 5).")  # fmt: skip
@click.option("--config", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="TOML file with everything else, faults included; options win over it.")  # fmt: skip
@click.option("--trace", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
              help="Write a Chrome trace (JSON) when the program ends; Perfetto opens it.")  # fmt: skip
@click.option("--sanitize", is_flag=True, help="Report races and misuse on stderr when the program ends.")
@env_option
@click.argument("program")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    profile: str | None,
    schedule: str | None,
    devices: int | None,
    watchdog: float | None,
    config: str | None,
    trace: str | None,
    sanitize: bool,
    env: dict[str, str],
    program: str,
    args: tuple[str, ...],
) -> int:
    """Run any program on the emulated libraries: C, C++, Python with its real packages.

    The program is not changed and not rebuilt: the loader gives it libamdhip64.so and libhipfile.so of hipfile-sim, and
    ROCM_PATH leads to them. The exit code is the program's own.

    \b
    hipfile-sim exec -- ./prog args...
    hipfile-sim exec --profile 0.4 --config faults.toml -- python prog.py
    """
    from hipfile_sim.cli.probe import is_ours, rocm_root
    from hipfile_sim.driver.profiles import NEWEST
    from hipfile_sim.native.prefix import NativeUnavailable, prefix

    found = shutil.which(program)
    if found is None:
        why = "is not executable" if Path(program).exists() else "is not found"
        raise click.ClickException(f"{program} {why} (looked in {'PATH' if '/' not in program else Path.cwd()})")
    try:
        root = prefix(profile or os.environ.get("HIPFILE_SIM_PROFILE") or NEWEST)
    except (NativeUnavailable, ValueError) as error:
        raise click.ClickException(str(error)) from None
    real = rocm_root()
    if real is not None and any(not is_ours(path) for path in (real / "lib").glob("libamdhip64.so*")):
        click.echo(f"hipfile-sim: emulated libraries in place of the real ones in {real}", err=True)
    environ = environment(root, {**os.environ, **env})
    said = (("PROFILE", profile), ("SCHEDULE", schedule), ("DEVICES", devices), ("WATCHDOG", watchdog))
    for name, value in said:
        if value is not None:
            environ[f"HIPFILE_SIM_{name}"] = str(value)
    if config is not None:
        environ["HIPFILE_SIM_CONFIG"] = str(Path(config).resolve())
    lines = [] if trace is None else [f"trace = {json.dumps(str(Path(trace).resolve()))}"]
    lines += ["sanitize = true"] if sanitize else []
    if lines:
        environ["HIPFILE_SIM_CONFIG"] = str(_over(lines, environ.get("HIPFILE_SIM_CONFIG")))
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(found, [program, *args], environ)
    except OSError as error:
        raise click.ClickException(f"{program}: {error.strerror}") from None


def environment(root: Path, base: dict[str, str]) -> dict[str, str]:
    """`base` with the prefix at `root` in front of everything that loaders, compilers and build tools look at."""
    environ = dict(base)
    for name in ("ROCM_PATH", "ROCM_HOME", "HIP_PATH"):
        environ[name] = str(root)
    for name, folder in (
        ("LD_LIBRARY_PATH", root / "lib"),
        ("PKG_CONFIG_PATH", root / "lib" / "pkgconfig"),
        ("CMAKE_PREFIX_PATH", root),
    ):
        rest = environ.get(name)
        environ[name] = f"{folder}:{rest}" if rest else str(folder)
    return environ


def _over(lines: list[str], config: str | None) -> Path:
    """A configuration that says `lines` over another one. Named by what it says, so nothing is left to clean up."""
    if config:
        lines = [*lines, f"include = {json.dumps(config)}"]
    text = "\n".join(lines) + "\n"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hipfile-sim" / "configs"
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise click.ClickException(f"--trace and --sanitize need to write {path}: {error.strerror}") from None
    return path
