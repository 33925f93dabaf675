"""hipFile functions that pass structures or strings. All others go to the driver as they are."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from hipfile_sim.driver.codes import FileDescr, HipFileStatus, OpError, status
from hipfile_sim.hip import hostmem
from hipfile_sim.machine import Machine
from hipfile_sim.native import structs
from hipfile_sim.native.marshal_hip import Function, stored_text

__all__ = ["CUSTOM"]

CUSTOM: dict[str, Callable[[Machine], Function]] = {}
"""Name -> what makes its function for a machine."""

_INVALID = status(OpError.hipFileInvalidValue)
_MOST_TEXT = 4096


def _custom(make: Callable[[Machine], Function]) -> Callable[[Machine], Function]:
    CUSTOM[make.__name__] = make
    return make


def _store(address: int, form: str, value: object) -> bool:
    return hostmem.write(address, struct.pack("=" + form, value))


def _hand_over(out: int, handle: int, undo: Callable[[int], object]) -> bool:
    """Store a new handle, or undo it: for the caller the call has failed, interrupted or not."""
    stored = False
    try:
        stored = _store(out, "Q", handle)
    finally:
        if not stored:
            undo(handle)
    return stored


@_custom
def hipFileGetOpErrorString(machine: Machine) -> Function:
    text = machine.hipfile.hipFileGetOpErrorString
    return lambda code: stored_text(text(code))


@_custom
def hipFileGetVersion(machine: Machine) -> Function:
    def call(*out: int) -> HipFileStatus:
        answer, *numbers = machine.hipfile.hipFileGetVersion()
        for address, number in zip(out, numbers, strict=True):
            if address and not _store(address, "I", number):  # NULL: not wanted
                return _INVALID
        return answer

    return call


@_custom
def hipFileHandleRegister(machine: Machine) -> Function:
    register, deregister = machine.hipfile.hipFileHandleRegister, machine.hipfile.hipFileHandleDeregister

    def call(out: int, descr: int) -> HipFileStatus:
        data = hostmem.read(descr, structs.FILE_DESCR.size) if out else None
        if data is None:
            return register(None)[0]  # NULL, or nothing there: the driver's answer to no description
        members = structs.FILE_DESCR.unpack(data)
        fd = struct.unpack_from("=i", data, structs.FILE_DESCR.fields["handle"].offset)[0]
        answer, handle = register(FileDescr(members["type"], fd, members["handle"], members["fs_ops"]))
        return answer if answer.err or _hand_over(out, handle, deregister) else _INVALID

    return call


# -- batches --------------------------------------------------------------------------------------------------------


@_custom
def hipFileBatchIOSetUp(machine: Machine) -> Function:
    set_up, destroy = machine.hipfile.hipFileBatchIOSetUp, machine.hipfile.hipFileBatchIODestroy

    def call(out: int, capacity: int) -> HipFileStatus:
        if not out:
            return _INVALID
        answer, handle = set_up(capacity)
        return answer if answer.err or _hand_over(out, handle, destroy) else _INVALID

    return call


@_custom
def hipFileBatchIOSubmit(machine: Machine) -> Function:
    from hipfile_sim.driver.batch import BatchOp

    submit = machine.hipfile.hipFileBatchIOSubmit
    layout = structs.BATCH_PARAMS

    def call(handle: int, count: int, array: int, flags: int) -> HipFileStatus:
        if not array or not count or count > _MOST_TEXT:
            return submit(handle, None if not array else [], flags)
        data = hostmem.read(array, layout.size * count)
        if data is None:
            return _INVALID
        ops = []
        for start in range(0, len(data), layout.size):
            m = layout.unpack(data[start : start + layout.size])
            ops.append(
                BatchOp(
                    mode=m["mode"],
                    opcode=m["opcode"],
                    handle=m["fh"],
                    buffer=m["u.devPtr_base"],
                    file_offset=m["u.file_offset"],
                    buffer_offset=m["u.devPtr_offset"],
                    size=m["u.size"],
                    cookie=m["cookie"],
                )
            )
        return submit(handle, ops, flags)

    return call


@_custom
def hipFileBatchIOGetStatus(machine: Machine) -> Function:
    get_status = machine.hipfile.hipFileBatchIOGetStatus

    def call(handle: int, least: int, count_p: int, array: int, timeout_p: int) -> HipFileStatus:
        data = hostmem.read(count_p, 4) if array else None
        timeout: tuple[int, int] | None = None
        if timeout_p:
            words = hostmem.read(timeout_p, 16)
            if words is None:
                return _INVALID
            timeout = struct.unpack("=2q", words)
        most = 0 if data is None else int.from_bytes(data, "little")
        answer, events = get_status(handle, least, most, timeout)
        if data is None:
            return answer if answer.err else _INVALID
        packed = b"".join(
            structs.BATCH_EVENT.pack({"cookie": e.cookie, "status": int(e.status), "ret": e.ret & (1 << 64) - 1})
            for e in events
        )
        if packed and not hostmem.write(array, packed):
            return _INVALID
        if not answer.err and not _store(count_p, "I", len(events)):
            return _INVALID
        return answer

    return call


# -- properties, parameters, statistics -----------------------------------------------------------------------------


@_custom
def hipFileDriverGetProperties(machine: Machine) -> Function:
    def call(out: int) -> HipFileStatus:
        answer, properties = machine.hipfile.hipFileDriverGetProperties()
        if answer.err or properties is None:
            return answer
        values: dict[str, object] = {f"nvfs.{name}": value for name, value in properties.nvfs._asdict().items()}
        values |= properties._asdict()
        values["max_batch_io_count"] = properties.max_batch_io_size
        return answer if hostmem.write(out, structs.DRIVER_PROPS.pack(values)) else _INVALID

    return call


def _get_parameter(name: str, form: str) -> None:
    def make(machine: Machine) -> Function:
        get = getattr(machine.hipfile, name)

        def call(parameter: int, out: int) -> HipFileStatus:
            answer, value = get(parameter)
            if answer.err:
                return answer  # type: ignore[no-any-return]
            return answer if _store(out, form, value) else _INVALID

        return call

    CUSTOM[name] = make


_get_parameter("hipFileGetParameterSizeT", "Q")
_get_parameter("hipFileGetParameterBool", "?")


@_custom
def hipFileGetParameterString(machine: Machine) -> Function:
    def call(parameter: int, out: int, length: int) -> HipFileStatus:
        answer, value = machine.hipfile.hipFileGetParameterString(parameter, length)
        if answer.err:
            return answer
        return answer if hostmem.write(out, str(value).encode() + b"\0") else _INVALID

    return call


@_custom
def hipFileSetParameterString(machine: Machine) -> Function:
    def call(parameter: int, address: int) -> HipFileStatus:
        text = bytearray()
        while address and len(text) < _MOST_TEXT:
            byte = hostmem.read(address + len(text), 1)
            if byte is None or byte == b"\0":
                break
            text += byte
        return machine.hipfile.hipFileSetParameterString(parameter, text.decode(errors="replace"))

    return call


def _get_stats(name: str, layout: structs.Layout) -> None:
    def make(machine: Machine) -> Function:
        get: Any = getattr(machine.hipfile, name)

        def call(out: int) -> HipFileStatus:
            if not out:
                return _INVALID if machine.profile.stats_api else get()[0]
            answer, record = get()
            if answer.err:
                return answer  # type: ignore[no-any-return]
            return answer if hostmem.write(out, layout.pack(structs.flatten(record))) else _INVALID

        return call

    CUSTOM[name] = make


_get_stats("hipFileGetStatsL1", structs.STATS_L1)
_get_stats("hipFileGetStatsL2", structs.STATS_L2)
_get_stats("hipFileGetStatsL3", structs.STATS_L3)
