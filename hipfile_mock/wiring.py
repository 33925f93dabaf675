"""From the keywords of `hipfile_mock.fake` to a machine and its observers. Imported when a fake is first entered."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hipfile_mock.faces.slots import flush_quarantine
from hipfile_mock.files import AutoFiles
from hipfile_sim.driver.mounts import MountTable
from hipfile_sim.engine.clock import CostModel
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.machine import Machine
from hipfile_sim.observe.observer import Observer
from hipfile_sim.observe.sanitizer import Policy, Sanitizer

__all__ = ["STRICT", "attach_trace", "finish", "make_machine", "make_sanitizer"]


_MACHINE = ("profile", "schedule", "engine", "env", "settings", "costs", "watchdog_s")
"""Keywords of `fake` that are those of `Machine`."""


def make_machine(options: Mapping[str, Any]) -> Machine:
    """The machine that `options` describe. What they leave out is the machine's own default."""
    check(options)
    given = {name: options[name] for name in _MACHINE if name in options}
    files, mounts = _filesystem(options.get("filesystem"))
    machine = Machine(options.get("devices", 2), files=files, mounts=mounts, **given)
    driver = machine.hipfile  # made at first use; its modules must not be loaded while pyfakefs is in place
    if isinstance(files, AutoFiles):
        files.registered = lambda: driver.state.files
    return machine


def check(options: Mapping[str, Any]) -> None:
    """Raise TypeError for a keyword whose value can only be a mistake, before anything is in place."""
    for name, kind in (("env", Mapping), ("settings", HipSettings), ("costs", CostModel)):
        if not isinstance(options.get(name), kind | None):
            raise TypeError(f"{name}={options[name]!r}: give a {kind.__name__}, or leave it out")
    watchdog = options.get("watchdog_s")
    if isinstance(watchdog, bool) or not isinstance(watchdog, int | float | None):
        raise TypeError(f"watchdog_s={watchdog!r}: give a number of seconds, or leave it out")
    if not isinstance(options.get("strict"), bool | str | Mapping | Policy | None):
        raise TypeError(f"strict={options['strict']!r}: give True, False, None, a policy, or the text of one")
    for key, value in (options.get("env") or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"env: {key} is {value!r}; variables are text, so write {str(value)!r}")
    _check_trace(options.get("trace"))
    for name, method in (("faults", "attach"), ("observers", "attached"), ("faces", "")):
        value = options.get(name) or ()
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise TypeError(f"{name}={value!r}: give a list, as in {name}=[{value!r}]")
        for item in value if isinstance(value, Sequence) else ():
            if method and not hasattr(item, method):
                kinds = {"faults": "rules of hipfile_mock.faults", "observers": "observers"}
                raise TypeError(f"{name} has {item!r}, which has no method {method}(): give {kinds[name]}")


def _check_trace(trace: Any) -> None:
    """The file is written at the end; that it cannot be is better said at the beginning."""
    if trace is None or isinstance(trace, Observer):
        return
    if not isinstance(trace, str | os.PathLike) or trace == "":
        raise TypeError(f"trace={trace!r}: give the path of the file to write, or an observer")
    folder = os.path.dirname(os.path.abspath(os.fspath(trace)))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"trace={trace!r}: there is no folder {folder}; make it first")


def _filesystem(filesystem: Any) -> tuple[Any, Any]:
    """File operations and mount table for ``filesystem=``.

    Raises
    ------
    ValueError
        An unknown fixture.
    TypeError
        Neither a name, a mapping, a mount table nor file operations.
    """
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


STRICT = "leak.operation=error, leak.handle=error, leak.buffer=error, leak.batch=error, leak.stream-registration=error"
"""Policy of ``strict=True``: what of hipFile is left over is an error, too. Memory, streams and events of HIP are not:
whoever caches them never frees them."""


def make_sanitizer(strict: Any) -> Sanitizer | None:
    """The sanitizer that watches a run, or None for ``strict=None``. A policy, or its text, is taken as it is."""
    if strict is None:
        return None
    return Sanitizer(STRICT if strict is True else None if strict is False else strict)


def finish(sanitizer: Sanitizer, machine: Machine) -> None:
    """The program is over: the sanitizer looks at what is left."""
    flush_quarantine(machine)
    sanitizer.finish()
