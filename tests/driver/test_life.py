"""Use count, implicit initialisation, and every call with the driver closed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hipfile_driver_rig import AMD, G1, UNTOUCHED, Slots, error

from hipfile_sim.driver.batch import BatchOp
from hipfile_sim.driver.codes import FileDescr, IOResult

amd = pytest.mark.parametrize("profile", AMD)


@amd
def test_open_and_close_count(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    assert rig.count == 0
    assert error(rig.f.hipFileDriverClose()) == "DriverNotInitialized"
    assert rig.count == 0
    for count in (1, 2, 3):
        assert error(rig.f.hipFileDriverOpen()) == "Success"
        assert rig.count == count
    for count in (2, 1, 0):
        assert error(rig.f.hipFileDriverClose()) == "Success"
        assert rig.count == count
    assert error(rig.f.hipFileDriverClose()) == "DriverNotInitialized"


def _good_async(rig: Any, write: bool) -> Any:
    slots = Slots(16)
    status = rig.go(write, 1, rig.memory(4096), slots, 0)
    assert slots.done == UNTOUCHED
    return status


CLOSED: list[tuple[str, Any, Any, int]] = [
    # name, call, answer, use count afterwards
    ("open", lambda r: error(r.f.hipFileDriverOpen()), "Success", 1),
    ("close", lambda r: error(r.f.hipFileDriverClose()), "DriverNotInitialized", 0),
    ("use count", lambda r: r.f.hipFileUseCount(), 0, 0),
    ("version", lambda r: r.f.hipFileGetVersion()[1:], lambda r: r.profile.version, 0),
    ("error string", lambda r: r.f.hipFileGetOpErrorString(5021), "Unknown hipFile error", 0),
    ("register file", lambda r: error(r.f.hipFileHandleRegister(FileDescr(1, r.fd()))), "Success", 1),
    ("register null", lambda r: error(r.f.hipFileHandleRegister(None)), "InvalidValue", 0),
    ("register win32", lambda r: error(r.f.hipFileHandleRegister(FileDescr(2, r.fd()))), "IONotSupported", 0),
    ("register user space", lambda r: error(r.f.hipFileHandleRegister(FileDescr(3, r.fd()))), "IONotSupported", 0),
    ("register garbage", lambda r: error(r.f.hipFileHandleRegister(FileDescr(77, r.fd()))), "IONotSupported", 0),
    ("register bad fd", lambda r: error(r.f.hipFileHandleRegister(FileDescr(1, -1))), "InternalError", 0),
    ("deregister file", lambda r: r.f.hipFileHandleDeregister(0x1234), None, 0),
    ("register buffer", lambda r: error(r.f.hipFileBufRegister(r.memory(4096), 4096, 0)), "Success", 1),
    ("register null buffer", lambda r: error(r.f.hipFileBufRegister(0, 4096, 0)), "InvalidValue", 1),
    (
        "register host",
        lambda r: error(r.f.hipFileBufRegister(r.hip.hipHostMalloc(64)[1], 64, 0)),
        "HipMemoryTypeInvalid",
        1,
    ),
    ("deregister buffer", lambda r: error(r.f.hipFileBufDeregister(0x1000)), "DriverClosing", 0),
    ("read", lambda r: r.f.hipFileRead(0, 0, 0, 0, 0), IOResult(-1, 22), 0),
    ("write", lambda r: r.f.hipFileWrite(0, 0, 0, 0, 0), IOResult(-1, 22), 0),
    ("read async", lambda r: error(_good_async(r, False)), "InvalidValue", 1),
    ("write async", lambda r: error(_good_async(r, True)), "InvalidValue", 1),
    ("read async nulls", lambda r: error(r.f.hipFileReadAsync(0, 0, 0, 0, 0, 0, 0)), "InvalidValue", 1),
    ("write async nulls", lambda r: error(r.f.hipFileWriteAsync(0, 0, 0, 0, 0, 0, 0)), "InvalidValue", 1),
    ("register stream", lambda r: error(r.f.hipFileStreamRegister(r.stream(None), 0)), "Success", 0),
    ("register null stream", lambda r: error(r.f.hipFileStreamRegister(0, 0)), "Success", 0),
    ("deregister stream", lambda r: error(r.f.hipFileStreamDeregister(0)), "InvalidValue", 0),
    ("batch set-up", lambda r: error(r.f.hipFileBatchIOSetUp(128)), "Success", 0),
    ("batch submit bad", lambda r: error(r.f.hipFileBatchIOSubmit(1, [BatchOp()], 0)), "InvalidValue", 0),
    ("batch destroy", lambda r: r.f.hipFileBatchIODestroy(1), None, 0),
    ("properties", lambda r: error(r.f.hipFileDriverGetProperties()), "InternalError", 0),
    ("poll mode", lambda r: error(r.f.hipFileDriverSetPollMode(True, 4)), "InternalError", 0),
    ("direct size", lambda r: error(r.f.hipFileDriverSetMaxDirectIOSize(4)), "InternalError", 0),
    ("cache size", lambda r: error(r.f.hipFileDriverSetMaxCacheSize(4)), "InternalError", 0),
    ("pinned size", lambda r: error(r.f.hipFileDriverSetMaxPinnedMemSize(4)), "InternalError", 0),
    ("get size_t", lambda r: error(r.f.hipFileGetParameterSizeT(0)), "InternalError", 0),
    ("get bool", lambda r: error(r.f.hipFileGetParameterBool(0)), "InternalError", 0),
    ("get string", lambda r: error(r.f.hipFileGetParameterString(0, 8)), "InternalError", 0),
    ("set size_t", lambda r: error(r.f.hipFileSetParameterSizeT(0, 1)), "InternalError", 0),
    ("set bool", lambda r: error(r.f.hipFileSetParameterBool(0, True)), "InternalError", 0),
    ("set string", lambda r: error(r.f.hipFileSetParameterString(0, "x")), "InternalError", 0),
]


@amd
@pytest.mark.parametrize(("call", "answer", "count"), [row[1:] for row in CLOSED], ids=[row[0] for row in CLOSED])
def test_closed(make_rig: Any, profile: str, call: Any, answer: Any, count: int) -> None:
    rig = make_rig(profile)
    result = call(rig)
    assert result == (answer(rig) if callable(answer) else answer)
    assert rig.count == count


@pytest.mark.parametrize("profile", AMD)
def test_closed_batch_calls(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    batch = rig.f.hipFileBatchIOSetUp(4)[1]
    old = profile in G1
    submit = rig.f.hipFileBatchIOSubmit(batch, [BatchOp(handle=1, buffer=rig.memory(64), size=64)], 0)
    assert error(submit) == ("InternalError" if old else "DriverNotInitialized")
    assert error(rig.f.hipFileBatchIOGetStatus(batch, 0, 4, (0, 0))) == ("InternalError" if old else "Success")
    assert error(rig.f.hipFileBatchIOCancel(batch)) == ("InternalError" if old else "Success")
    assert rig.count == 0


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("name", ["hipFileGetStatsL1", "hipFileGetStatsL2", "hipFileGetStatsL3"])
def test_closed_statistics(make_rig: Any, profile: str, name: str) -> None:
    rig = make_rig(profile)
    assert error(getattr(rig.f, name)()) == ("Success" if profile == "0.5" else "InternalError")
    assert rig.count == 0


@amd
def test_duplicate_file_still_initialises(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    fd = rig.fd()
    rig.register(fd)
    rig.f.state.use_count = 0  # as a race of two threads could have it: the file is there, the driver closed
    assert error(rig.f.hipFileHandleRegister(FileDescr(1, fd))) == "HandleAlreadyRegistered"
    assert rig.count == 1


@amd
def test_implicit_initialisation_only_once(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    rig.file()
    rig.file()
    pointer = rig.buffer(4096)
    rig.read(1, pointer, Slots(1), 0)
    assert rig.count == 1
    rig.f.hipFileBufDeregister(pointer)
    assert rig.count == 1
    rig.f.hipFileDriverOpen()
    assert rig.count == 2


@amd
def test_threads_that_register_at_once_count_one(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    fds = [rig.fd() for _ in range(32)]
    pointers = [rig.memory(4096) for _ in range(32)]
    start = threading.Barrier(64)
    failed: list[Any] = []

    def register(call: Any) -> None:
        start.wait()
        status = call()
        if error(status) != "Success":
            failed.append(status)

    calls = [lambda fd=fd: rig.f.hipFileHandleRegister(FileDescr(1, fd)) for fd in fds]
    calls += [lambda p=p: rig.f.hipFileBufRegister(p, 4096, 0) for p in pointers]
    threads = [threading.Thread(target=register, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert rig.count == 1


@amd
def test_last_close_clears_buffers_and_files_not_streams(
    make_rig: Any, profile: str, tmp_path: Path, descriptors_in: Callable[[Path], int]
) -> None:
    rig = make_rig(profile)
    fd, handle = rig.file(b"x" * 64)
    pointer = rig.buffer(4096)
    stream = rig.stream(0)
    descriptors = descriptors_in(tmp_path)
    rig.f.hipFileDriverOpen()
    rig.f.hipFileDriverClose()
    assert rig.f.hipFileRead(handle, pointer, 64, 0, 0) == IOResult(64)  # one user is left
    assert error(rig.f.hipFileDriverClose()) == "Success"
    assert descriptors_in(tmp_path) == descriptors - 1  # the second descriptor is closed, the caller's is not
    os.fstat(fd)
    rig.f.hipFileDriverOpen()
    assert rig.f.hipFileRead(handle, pointer, 64, 0, 0) == IOResult(-5027)
    assert error(rig.f.hipFileBufDeregister(pointer)) == "MemoryNotRegistered"
    assert error(rig.f.hipFileBufRegister(pointer, 4096, 0)) == "Success"
    assert error(rig.f.hipFileStreamRegister(stream, 0)) == "InvalidValue"
    assert error(rig.f.hipFileStreamDeregister(stream)) == "Success"


@amd
def test_close_with_operations_in_flight(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(b"abcd" * 16)
    pointer = rig.buffer(4096)
    stream = rig.stream(0)
    slots = Slots(64)
    rig.hold(stream)
    assert rig.read(handle, pointer, slots, stream) == 0
    assert error(rig.f.hipFileDriverClose()) == "Success"
    assert rig.count == 0
    rig.release(stream)
    assert slots.done == 64
    assert rig.peek(pointer, 64) == b"abcd" * 16


def test_a_forked_child_gets_an_error(make_rig: Any) -> None:
    rig = make_rig()
    rig.f.hipFileDriverOpen()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = f"{rig.f.hipFileDriverOpen().hip_drv_err.name} {rig.f.hipFileRead(1, 2, 3, 4, 5).count}"
            os.write(write, f"{answer} {rig.f.hipFileGetVersion()[1:]}".encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    assert os.read(read, 200).decode() == "hipErrorNotInitialized -3 (0, 5, 0)"
    os.close(read)
    assert rig.count == 1
