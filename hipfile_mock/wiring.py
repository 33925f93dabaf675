"""From the keywords of `hipfile_mock.fake` to a machine and its observers. Imported when a fake is first entered."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from hipfile_mock.faces.slots import flush_quarantine
from hipfile_sim.driver.mounts import MountTable
from hipfile_sim.machine import Machine
from hipfile_sim.observe.observer import Observer

__all__ = ["attach_trace", "findings", "make_machine", "make_sanitizer"]


def make_machine(options: Mapping[str, Any]) -> Machine:
    """The machine that `options` describe. What they leave out is the machine's own default."""
    given = {name: options[name] for name in ("profile", "schedule", "engine", "env", "settings") if name in options}
    files, mounts = _filesystem(options.get("filesystem"))
    return Machine(options.get("devices", 2), files=files, mounts=mounts, **given)


def _filesystem(filesystem: Any) -> tuple[Any, Any]:
    """File operations and mount table for ``filesystem=``.

    Raises
    ------
    ValueError
        An unknown fixture.
    TypeError
        Neither a name, a mapping, a mount table nor file operations.
    """
    from hipfile_mock.files import AutoFiles

    if filesystem is None:
        return AutoFiles(), None
    if isinstance(filesystem, str):
        return AutoFiles(), MountTable.fixture({}, default=filesystem)
    if isinstance(filesystem, Mapping):
        return AutoFiles(), MountTable.fixture(filesystem)
    if isinstance(filesystem, MountTable):
        return AutoFiles(), filesystem
    if hasattr(filesystem, "pread_into"):
        return filesystem, getattr(filesystem, "mounts", None)
    raise TypeError(
        f"filesystem={filesystem!r}: give the name of a mount fixture, a mapping of path prefixes to names, a"
        " MountTable, or an object with the methods of hipfile_sim.driver.fileops.FileOps"
    )


def attach_trace(machine: Machine, trace: Any) -> Callable[[], None]:
    """Record a trace; returns what writes it (a path) or takes it off again (an observer)."""
    if isinstance(trace, Observer):
        machine.add_observer(trace)
        return lambda: machine.remove_observer(trace)
    from hipfile_sim.observe.chrome import write_chrome
    from hipfile_sim.observe.trace import Trace

    recorded = Trace()
    machine.add_observer(recorded)
    return lambda: write_chrome(recorded, os.fspath(trace))


def make_sanitizer(strict: Any) -> Any:
    """The sanitizer that watches a run, or None for ``strict=None``."""
    return None


def findings(sanitizer: Any, machine: Machine) -> list[str]:
    """What the sanitizer calls an error, as text."""
    flush_quarantine(machine)
    return []
