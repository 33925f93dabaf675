"""The model itself, called in Python: one :class:`Machine` a test, under any schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hipfile_conformance.scripted import Recorder, ScriptedFiles
from hipfile_conformance.targets.base import (
    BatchEvent,
    BatchOp,
    Hold,
    HoldKind,
    IOResult,
    PointerInfo,
    Status,
    Unsupported,
)
from hipfile_conformance.targets.hold import hold_stream
from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.driver.mounts import MountTable
from hipfile_sim.driver.profiles import get_profile
from hipfile_sim.engine.schedules import Schedule
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.machine import Machine

__all__ = ["SCHEDULES", "SimTarget"]

SCHEDULES = {
    "quick": ("parallel", "lazy", "seeded:1"),
    "full": ("parallel", "lazy", "eager", "roundrobin", "seeded:1", "seeded:2", "seeded:3", "threads"),
}
"""Schedules that a test is run under, by depth; ``threads`` is the engine with real threads."""


class SimTarget:
    """The target `sim`.

    Parameters
    ----------
    directory
        Folder for the files of the tests.
    release
        Profile of the machine.
    schedule, engine
        See :class:`hipfile_sim.machine.Machine`.
    environment
        What the library finds; nothing of the process's own environment leaks in.
    options
        Further keywords of the machine (fixtures): ``mounts``, ``settings``, ``devices``, ``files``.
    """

    name = "sim"

    def __init__(
        self,
        directory: str | Path,
        *,
        release: str = "0.5",
        schedule: str | Schedule = "parallel",
        engine: str = "steps",
        environment: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.schedule = str(schedule)
        self.files = ScriptedFiles()
        self.recorder = Recorder()
        self.machine = Machine(
            profile=release,
            schedule=schedule,
            engine=engine,
            env=dict(environment or {}),
            **{
                "files": self.files,
                "watchdog_s": 0.3 if engine == "steps" else 5.0,
                **_fixtures(release, dict(options or {})),
            },
        )
        base = {"hold", "faults", "mounts", "environment", "devices", "model"}
        if hasattr(self.machine.hip, "hipAmdFileRead"):
            base.add("fastpath")
        self.capabilities = frozenset(base | ({"steps"} if engine == "steps" else {"threads", "hold-host"}))

    def call(self, name: str, *args: Any) -> Any:
        """Make a call on the machine."""
        special = getattr(self, "_call_" + name, None)
        if special is not None:
            return special(*args)
        room: Any = self.machine.hipfile if name.startswith("hipFile") else self.machine.hip
        function: Callable[..., Any] | None = getattr(room, name, None)
        if function is None:
            raise Unsupported(f"the model has no {name}")
        return _plain(function(*args))

    def _call_hipFileHandleRegister(self, descr: tuple[int, int] | None) -> tuple[Status, int]:
        made = None if descr is None else FileDescr(descr[0], descr[1])
        status, handle = self.machine.hipfile.hipFileHandleRegister(made)
        return Status(*map(int, status)), int(handle or 0)

    def _call_hipPointerGetAttributes(self, pointer: int) -> tuple[int, PointerInfo | None]:
        code, found = self.machine.hip.hipPointerGetAttributes(pointer)
        if found is None:
            return int(code), None
        info = PointerInfo(
            int(found.type), int(found.device), int(found.devicePointer or 0), int(found.hostPointer or 0)
        )
        return int(code), info

    def _call_hipFileBatchIOSubmit(self, handle: int, ops: list[BatchOp] | None, flags: int) -> Status:
        from hipfile_sim.driver.batch import BatchOp as Params

        made = (
            None
            if ops is None
            else [
                Params(o.mode, o.opcode, o.handle, o.pointer, o.file_offset, o.buffer_offset, o.size, o.cookie)
                for o in ops
            ]
        )
        status = self.machine.hipfile.hipFileBatchIOSubmit(handle, made, flags)
        return Status(*map(int, status))

    def _call_hipFileBatchIOGetStatus(
        self, handle: int, min_nr: int, max_nr: int, timeout: float | None
    ) -> tuple[Status, list[BatchEvent]]:
        time = None if timeout is None else (math.floor(timeout), int(timeout % 1 * 1e9))
        status, events = self.machine.hipfile.hipFileBatchIOGetStatus(handle, min_nr, max_nr, time)
        return Status(*map(int, status)), [BatchEvent(*map(int, event)) for event in events or ()]

    def record(self) -> Recorder:
        """From now on, what is queued and noted."""
        self.machine.add_observer(self.recorder)
        return self.recorder

    def hold(self, stream: int, kind: HoldKind = "value") -> Hold:
        """Queue a wait for a memory value, as on real hardware."""
        if kind == "host" and "steps" in self.capabilities:
            raise Unsupported("the step engine runs host functions itself: one that waits would wait for ever")
        return hold_stream(self, stream, kind, self._poke)

    def _poke(self) -> None:
        engine = self.machine.engine
        with engine.lock:
            engine.poke()

    def facts(self) -> dict[str, str]:
        """Profile, schedule, engine."""
        import hipfile_sim

        profile = self.machine.profile
        return {"model": f"hipfile_sim {hipfile_sim.__version__}", "profile": profile.title, "schedule": self.schedule}

    def close(self) -> None:
        """Close the machine, and the descriptors that the library of a machine that is thrown away would keep."""
        if "hipfile" in self.machine.__dict__:
            self.machine.hipfile.state.files.clear()
        self.machine.close()


def _fixtures(release: str, options: dict[str, Any]) -> dict[str, Any]:
    """``settings`` and ``mounts`` of a test are plain values; the machine wants its own objects."""
    settings = options.pop("settings", None)
    if settings is not None:
        options["settings"] = replace(HipSettings(), **{**get_profile(release).hip, **settings})
    mount = options.pop("mount", None)
    if mount is not None:
        options["mounts"] = MountTable.fixture({"/": mount})
    return options


def _plain(value: Any) -> Any:
    """Codes as plain integers, in the shapes of the protocol."""
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", ())
        if fields == ("err", "hip_drv_err"):
            return Status(int(value[0]), int(value[1]))
        if fields == ("count", "errno"):
            return IOResult(int(value[0]), int(value[1]))
        if not fields:
            return tuple(_plain(item) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value
