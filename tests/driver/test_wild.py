"""Wild input: codes, no crash, no hang, and nothing else in the process harmed."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path
from typing import Any

import pytest
from hipfile_driver_rig import ALL, AMD, Slots, error, pattern

from hipfile_sim.driver.batch import BatchOp
from hipfile_sim.driver.codes import FileDescr, IOResult, OpError, VendorError
from hipfile_sim.hip.codes import HipError

U64 = 2**64 - 1
WILD = (0, 1, 7, 0x1000, 0xDEADBEEF, 2**47 - 8, 2**63 - 1, 2**63, U64, -1, -(2**63), 2**64, 2**70)
KINDS = ("directory", "pipe", "socket", "/dev/full", "/dev/null", "/dev/zero", "read-only", "write-only", "path")
all_profiles = pytest.mark.parametrize("profile", ALL)


def _is_status(result: Any) -> bool:
    status = result[0] if isinstance(result[0], tuple) else result
    return isinstance(status[0], OpError | VendorError) and isinstance(status[1], HipError)


@all_profiles
def test_every_function_with_wild_integers(make_rig: Any, profile: str) -> None:
    """All combinations would be endless; each argument takes every wild value, and random mixes follow."""
    rig = make_rig(profile)
    rig.file(b"x" * 64)
    rig.buffer(64)
    rng = random.Random(7)
    special = {"hipFileHandleRegister", "hipFileBatchIOSubmit", "hipFileBatchIOGetStatus"}
    for name, parameters in rig.f.CALLS.items():
        function = getattr(rig.f, name)
        if name in special:
            continue
        mixes = [[rng.choice(WILD) for _ in parameters] for _ in range(60)]
        mixes += [[value] * len(parameters) for value in WILD]
        for arguments in mixes:
            result = function(*arguments)
            if name in ("hipFileRead", "hipFileWrite"):
                assert isinstance(result, IOResult)
                assert result.count < 0
            elif name == "hipFileUseCount":
                assert result >= 0
            elif name in ("hipFileHandleDeregister", "hipFileBatchIODestroy"):
                assert result is None
            elif name == "hipFileGetOpErrorString":
                assert isinstance(result, str)
            else:
                assert _is_status(result), (name, arguments, result)
    for value in WILD:
        assert error(rig.f.hipFileHandleRegister(FileDescr(value, value, value, value))) != "Success"
        assert error(rig.f.hipFileHandleRegister(FileDescr(1, value))) in (
            "InternalError",
            "InvalidValue",
            "HandleNotRegistered",
            "InvalidFileOpenFlag",
            "InvalidFileType",
            "Success",
        )
        assert _is_status(rig.f.hipFileBatchIOSubmit(value, [BatchOp(*[value] * 8)], value))
        assert _is_status(rig.f.hipFileBatchIOGetStatus(value, value, value, (value, value)))
    assert rig.hip.hipDeviceSynchronize() == 0


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
@pytest.mark.parametrize("kind", KINDS)
def test_descriptors_of_all_kinds(make_rig: Any, profile: str, write: bool, kind: str) -> None:
    """What the kernel says comes out: errno of the synchronous call, -1 of the asynchronous one."""
    rig = make_rig(profile)
    extra: list[Any] = []
    if kind == "directory":
        fd = os.open(rig.folder, os.O_RDONLY | os.O_DIRECTORY)
    elif kind == "pipe":
        fd, other = os.pipe()
        rig.fds.append(other)
    elif kind == "socket":
        pair = socket.socketpair()
        extra += pair
        fd = os.dup(pair[0].fileno())
    elif kind.startswith("/dev"):
        fd = os.open(kind, os.O_RDWR)
    elif kind == "path":
        fd = os.open(rig.folder, os.O_PATH)
    else:
        fd = rig.fd(pattern(64), os.O_RDONLY if kind == "read-only" else os.O_WRONLY)
    rig.fds.append(fd)
    status, handle = rig.f.hipFileHandleRegister(FileDescr(1, fd))
    for one in extra:
        one.close()
    if not status.ok:
        assert error(status) == "InternalError"
        assert handle == 0
        return
    pointer, stream, slots = rig.buffer(64), rig.stream(0), Slots(64)
    io = rig.f.hipFileWrite if write else rig.f.hipFileRead
    result = io(handle, pointer, 64, 0, 0)
    assert error(rig.go(write, handle, pointer, slots, stream)) == "Success"
    rig.sync(stream)
    if result.count >= 0:
        assert slots.done == result.count
        assert kind in ("/dev/null", "/dev/zero", "/dev/full", "write-only", "read-only")
    else:
        assert result.count == -1
        assert result.errno > 0
        # /dev/null and /dev/zero take a write and then refuse to sync it, which an asynchronous write never asks for
        assert slots.done == (64 if write and kind in ("/dev/null", "/dev/zero") else -1)
    os.fstat(fd)


@pytest.mark.parametrize("profile", AMD)
def test_dev_full(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    fd = os.open("/dev/full", os.O_RDWR)
    rig.fds.append(fd)
    status, handle = rig.f.hipFileHandleRegister(FileDescr(1, fd))
    if status.ok:
        assert rig.f.hipFileWrite(handle, rig.buffer(64), 64, 0, 0) == IOResult(-1, 28)


@all_profiles
def test_standard_streams_and_foreign_descriptors_survive(make_rig: Any, profile: str, tmp_path: Path) -> None:
    rig = make_rig(profile)
    with open(tmp_path / "foreign", "w") as foreign:
        known = (0, 1, 2, foreign.fileno())
        before = [os.fstat(number) for number in known]
        for number in (*known, 999, 2**31 - 1, -1, -100):
            status, handle = rig.f.hipFileHandleRegister(FileDescr(1, number))
            if status.ok:
                rig.f.hipFileHandleDeregister(handle)
        for number, info in zip(known, before, strict=True):
            assert os.path.samestat(os.fstat(number), info)


@all_profiles
def test_offsets_at_the_edge(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))
    pointer, stream = rig.buffer(4096), rig.stream(0)
    for file_offset in (2**63 - 1, 2**63 - 4096, 2**62, 2**40):
        read = rig.f.hipFileRead(handle, pointer, 4096, file_offset, 0)
        write = rig.f.hipFileWrite(handle, pointer, 4096, file_offset, 0) if file_offset > 2**60 else IOResult(-1, 27)
        assert read in (IOResult(0), IOResult(-1, 22), IOResult(-1, 75)), file_offset
        assert write.count == -1, file_offset
        for direction in (False, True):
            if direction and file_offset < 2**60:
                continue
            slots = Slots(4096, file_offset)
            assert error(rig.go(direction, handle, pointer, slots, stream)) == "Success"
            rig.sync(stream)
            assert slots.done in (0, -1, -5), file_offset


@all_profiles
def test_handles_of_the_wrong_kind(make_rig: Any, profile: str) -> None:
    """A stream as a file, a file as a stream, a buffer as either."""
    rig = make_rig(profile)
    _, handle = rig.file(b"x")
    pointer, stream = rig.buffer(64), rig.stream(0)
    event = rig.hip.hipEventCreate()[1]

    def refused(code: int) -> IOResult:
        return IOResult(-1, code) if profile == "cufile" else IOResult(-code)

    for wrong in (stream, pointer, event):
        assert rig.f.hipFileRead(wrong, pointer, 1, 0, 0) == refused(5027)
        assert rig.read(wrong, pointer, Slots(1), stream) == (0 if profile == "cufile" else 5027)
        rig.f.hipFileHandleDeregister(wrong)
    for wrong in (handle, pointer, event):
        assert rig.read(handle, pointer, Slots(1), wrong) == 5011
        assert error(rig.f.hipFileStreamRegister(wrong, 0)) == "HipDriverError"
    for wrong in (handle, stream, event):
        if profile == "cufile":  # it registers any address, and finds out when it copies
            assert rig.f.hipFileRead(handle, wrong, 1, 0, 0) == IOResult(-1, 1)
            slots = Slots(1)
            assert rig.read(handle, wrong, slots, stream) == 0
            rig.sync(stream)
            assert slots.done == -1
            assert error(rig.f.hipFileBufRegister(wrong, 1, 0)) == "Success"
            continue
        assert error(rig.f.hipFileBufRegister(wrong, 1, 0)) == "HipMemoryTypeInvalid"
        assert rig.f.hipFileRead(handle, wrong, 1, 0, 0) == refused(5013)


def test_no_devices(make_rig: Any) -> None:
    rig = make_rig(devices=0)
    _, handle = rig.file(b"x" * 64)
    slots = Slots(1)
    assert error(rig.f.hipFileBufRegister(slots.pointers[0], 8, 0)) != "Success"
    assert rig.f.hipFileRead(handle, slots.pointers[0], 1, 0, 0).count < 0
    for stream in (0, 1, 2, 0xBAD):
        assert error(rig.f.hipFileStreamRegister(stream, 0)) != "Success"
        assert error(rig.go(False, handle, slots.pointers[0], slots, stream)) != "Success"
