"""Which machine a program gets: from five environment variables and, for everything else, one TOML file.

====================== =======================================================================================
HIPFILE_SIM_PROFILE    release of hipFile, such as ``0.4``; default the newest released one
HIPFILE_SIM_SCHEDULE   ``threads`` (default: one real thread a stream) or a schedule of the deterministic engine
HIPFILE_SIM_DEVICES    number of GPUs; default 2
HIPFILE_SIM_WATCHDOG   real seconds without progress before a wait fails as a deadlock; default 5
HIPFILE_SIM_CONFIG     path of the TOML file; the variables above win over it
====================== =======================================================================================

The file::

    profile = "0.5"
    schedule = "seeded:7"
    devices = 2
    watchdog = 5.0
    trace = "out.trace.json"  # Chrome trace, written when the program ends
    sanitize = true  # report races and misuse at the end; or a policy, such as "leak.*=off"
    include = "base.toml"  # another such file; what stands here wins

    [hip]  # HipSettings by name
    device_memory = 1073741824

    [environment]  # what hipFile reads in place of the process's own variables
    HIPFILE_FORCE_COMPAT_MODE = "true"

    [setup]  # "module:function", called with the machine before the first call
    call = ["my_tests.faults:every_seventh_read"]

    [[faults]]  # other sections go to the entry point of that name in "hipfile_sim.config"
    ...
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from hipfile_sim.driver.profiles import NEWEST, get_profile
from hipfile_sim.engine.schedules import parse_schedule
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.machine import Machine

__all__ = ["ENTRY_POINTS", "Config", "ConfigError", "load"]

ENTRY_POINTS = "hipfile_sim.config"
"""Entry point group: a section's name -> ``function(machine, section)`` that carries it out."""

THREADS = "threads"


class ConfigError(ValueError):
    """A variable or the file is wrong; the text says which, what stands there and what is possible."""


@dataclass(frozen=True)
class Config:
    """What was asked for, checked. `make` builds the machine."""

    profile: str = NEWEST
    schedule: str = THREADS
    devices: int = 2
    watchdog: float = 5.0
    trace: str | None = None
    sanitize: str | None = None
    hip: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] | None = None
    setup: tuple[str, ...] = ()
    sections: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Machine:
        """The machine, with everything applied.

        Raises
        ------
        ConfigError
            A setting that does not exist or has a wrong value, a section that nobody serves, a set-up that fails.
        """
        try:
            profile = get_profile(self.profile)
            settings = replace(HipSettings(), **{**profile.hip, **self.hip})
        except (TypeError, ValueError) as error:
            raise ConfigError(str(error)) from None
        order: dict[str, Any] = (
            {"engine": "threads"} if self.schedule == THREADS else {"engine": "steps", "schedule": self.schedule}
        )
        env = None if self.environment is None else {**os.environ, **self.environment}
        machine = Machine(self.devices, profile=profile, settings=settings, env=env, watchdog_s=self.watchdog, **order)
        for name, section in self.sections.items():
            _server(name)(machine, section)
        for text in self.setup:
            _function(text)(machine)
        return machine


def load(environ: Mapping[str, str] | None = None, *, default_profile: str = NEWEST) -> Config:
    """Read the variables and the file that they name.

    Raises
    ------
    ConfigError
        See there.

    >>> load({"HIPFILE_SIM_PROFILE": "0.4", "HIPFILE_SIM_SCHEDULE": "lazy"}).schedule
    'lazy'
    """
    environ = os.environ if environ is None else environ
    values = _file(environ.get("HIPFILE_SIM_CONFIG") or "")
    for name in ("profile", "schedule", "devices", "watchdog"):
        text = environ.get(f"HIPFILE_SIM_{name.upper()}")
        if text:
            values[name] = text
    where = "HIPFILE_SIM_{} or its entry in HIPFILE_SIM_CONFIG"
    devices = values.pop("devices", 2)
    try:
        devices = int(devices if type(devices) in (int, str) else "")  # 1.5 and true are none
    except ValueError:
        raise ConfigError(f"{where.format('DEVICES')} is not a number") from None
    if not 0 <= devices <= 64:
        raise ConfigError(f"{where.format('DEVICES')} is {devices}; it is a number of GPUs, 0 to 64")
    try:
        watchdog = float(values.pop("watchdog", 5.0))
    except (TypeError, ValueError):
        raise ConfigError(f"{where.format('WATCHDOG')} is not a number") from None
    if not watchdog > 0:
        raise ConfigError(f"{where.format('WATCHDOG')} is {watchdog}; it is a number of seconds above 0")
    schedule = str(values.pop("schedule", THREADS))
    profile = str(values.pop("profile", default_profile))
    try:
        get_profile(profile)
        if schedule != THREADS:
            parse_schedule(schedule)
    except ValueError as error:
        raise ConfigError(f"{error}") from None
    environment = _section(values, "environment")
    return Config(
        profile=profile,
        schedule=schedule,
        devices=devices,
        watchdog=watchdog,
        trace=_path(values.pop("trace", None), "trace"),
        sanitize=_policy(values.pop("sanitize", False)),
        hip=_known(_section(values, "hip")),
        environment={name: _variable(name, value) for name, value in environment.items()} or None,
        setup=_calls(_section(values, "setup")),
        sections=values,
    )


def _file(path: str, including: tuple[Path, ...] = ()) -> dict[str, Any]:
    if not path:
        return {}
    try:
        values = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"HIPFILE_SIM_CONFIG={path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"HIPFILE_SIM_CONFIG={path}: not TOML: {error}") from None
    except ValueError as error:  # a zero byte in the path
        raise ConfigError(f"HIPFILE_SIM_CONFIG={path!r}: {error}") from None
    base = values.pop("include", None)
    if base is None:
        return values
    here = Path(path).resolve()
    if here in including:
        raise ConfigError(f"{path} includes itself, by way of {', '.join(map(str, including))}")
    return {**_file(str(here.parent / str(base)), (*including, here)), **values}


def _path(value: object, name: str) -> str | None:
    """A path. A number would be taken for an open descriptor of the program, and written to."""
    if value is not None and not (isinstance(value, str) and value):
        raise ConfigError(f"{name} of the configuration is the path of a file, not {value!r}")
    return value


def _policy(value: object) -> str | None:
    """Text of the sanitizer's policy, None for no sanitizer."""
    if isinstance(value, bool):
        return "" if value else None
    if not isinstance(value, str):
        raise ConfigError(f"sanitize of the configuration is true, false or a policy, not {value!r}")
    from hipfile_sim.observe.sanitizer import Policy

    try:
        Policy(value or None)
    except ValueError as error:
        raise ConfigError(f"sanitize of the configuration: {error}") from None
    return value


def _section(values: dict[str, Any], name: str) -> dict[str, Any]:
    section = values.pop(name, {})
    if not isinstance(section, dict):
        raise ConfigError(f"[{name}] of the configuration is a table of names and values, not {section!r}")
    return section


def _calls(section: dict[str, Any]) -> tuple[str, ...]:
    calls = section.pop("call", [])
    calls = [calls] if isinstance(calls, str) else calls
    if not isinstance(calls, list) or not all(isinstance(call, str) for call in calls):
        raise ConfigError(f"[setup] call is 'module:function' or a list of them, not {calls!r}")
    if section:
        raise ConfigError(f"[setup] of the configuration has {', '.join(section)}; it has call and nothing else")
    return tuple(calls)


def _variable(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ConfigError(f"[environment] {name} is the text of a variable, not {value!r}")
    return str(value)


def _known(section: dict[str, Any]) -> dict[str, Any]:
    names = [item.name for item in fields(HipSettings)]
    for name in section:
        if name not in names:
            raise ConfigError(f"[hip] of the configuration has no setting {name!r}; there are {', '.join(names)}")
    return section


def _server(name: str) -> Callable[[Machine, Any], object]:
    found = entry_points(group=ENTRY_POINTS, name=name)
    for entry in found:
        served: Callable[[Machine, Any], object] = entry.load()
        return served
    known = sorted({entry.name for entry in entry_points(group=ENTRY_POINTS)})
    raise ConfigError(
        f"the configuration has {name!r}, which nobody serves; known: profile, schedule, devices, watchdog, trace, "
        f"sanitize, include, [hip], [environment], [setup]{''.join(f', [{other}]' for other in known)}"
    )


def _function(text: str) -> Callable[[Machine], object]:
    module, colon, name = text.partition(":")
    if not colon:
        raise ConfigError(f"[setup] call has {text!r}; write 'module:function'")
    try:
        function: Callable[[Machine], object] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"[setup] call has {text!r}: {error}") from None
    return function
