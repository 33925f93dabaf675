"""``hipfile-sim prefix``: where the folder is that looks like a ROCm installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hipfile_sim.cli.options import profile_option

if TYPE_CHECKING:
    from hipfile_sim.driver.profiles import Profile


@click.command()
@profile_option
def command(profile: Profile) -> int:
    """Print the folder with the emulated libraries, headers, pkg-config and CMake files; make it if needed.

    \b
    ROCM_PATH=$(hipfile-sim prefix) pip install hipfile
    g++ -I$(hipfile-sim prefix)/include prog.cpp -L$(hipfile-sim prefix)/lib -lhipfile -lamdhip64
    cmake -DCMAKE_PREFIX_PATH=$(hipfile-sim prefix) ...
    """
    from hipfile_sim.native.prefix import NativeUnavailable, prefix

    try:
        click.echo(prefix(profile))
    except NativeUnavailable as error:
        raise click.ClickException(str(error)) from None
    return 0
