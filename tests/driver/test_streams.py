"""Registration of streams, flags, and the pinned memory that they cost."""

from __future__ import annotations

from typing import Any

import pytest
from hipfile_driver_rig import AMD, CHUNK, G1, UNTOUCHED, Slots, error, pattern

from hipfile_sim.hip.codes import HipError

amd = pytest.mark.parametrize("profile", AMD)


@amd
@pytest.mark.parametrize("flags", range(16))
def test_every_flag_set(make_rig: Any, profile: str, flags: int) -> None:
    rig = make_rig(profile)
    stream = rig.stream(None)
    assert error(rig.f.hipFileStreamRegister(stream, flags)) == "Success"
    assert error(rig.f.hipFileStreamRegister(stream, flags)) == "InvalidValue"
    assert error(rig.f.hipFileStreamRegister(stream, 0x10)) == "InvalidValue"
    assert error(rig.f.hipFileStreamDeregister(stream)) == "Success"
    assert error(rig.f.hipFileStreamDeregister(stream)) == "InvalidValue"
    assert rig.count == 0


@amd
@pytest.mark.parametrize("flags", [0x10, 0x1F, 0x80000000, 0xFFFFFFFF])
def test_unknown_flags_are_refused_before_hip_is_asked(make_rig: Any, profile: str, flags: int) -> None:
    rig = make_rig(profile)
    asked = rig.fail_hip("hipStreamGetDevice", HipError.hipErrorUnknown)
    assert error(rig.f.hipFileStreamRegister(rig.stream(None), flags)) == "InvalidValue"
    assert error(rig.f.hipFileStreamRegister(0xBAD, flags)) == "InvalidValue"
    assert asked() == 0


def test_cufile_takes_any_flags(make_rig: Any) -> None:
    rig = make_rig("cufile")
    assert error(rig.f.hipFileStreamRegister(rig.stream(None), 0xF0)) == "Success"


@amd
def test_unknown_streams(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    destroyed = rig.stream(None)
    rig.hip.hipStreamDestroy(destroyed)
    for stream in (0xBAD, destroyed, 2**64 - 1):
        status = rig.f.hipFileStreamRegister(stream, 0)
        assert error(status) == "HipDriverError"
        assert status.hip_drv_err == rig.hip.hipStreamGetDevice(stream)[0] != 0
        assert error(rig.f.hipFileStreamDeregister(stream)) == "InvalidValue"
        _, handle = rig.file(b"x")
        slots = Slots(1)
        assert rig.read(handle, rig.buffer(64), slots, stream) == 5011
        assert slots.done == UNTOUCHED


@amd
@pytest.mark.parametrize("stream", [0, 1, 2], ids=["null", "legacy", "per-thread"])
@pytest.mark.parametrize("registered", [False, True])
def test_default_streams(make_rig: Any, profile: str, stream: int, registered: bool) -> None:
    rig = make_rig(profile)
    data = pattern(4096)
    _, handle = rig.file(data)
    pointer, slots = rig.buffer(4096), Slots(4096)
    if registered:
        assert error(rig.f.hipFileStreamRegister(stream, 0)) == "Success"
    assert rig.read(handle, pointer, slots, stream) == 0
    rig.sync(stream)
    assert slots.done == 4096
    assert rig.peek(pointer, 4096) == data
    assert error(rig.f.hipFileStreamDeregister(stream)) == ("Success" if registered else "InvalidValue")


@amd
def test_memory_of_a_registered_stream(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    size = 0 if profile in G1 else CHUNK
    streams = [rig.stream(0) for _ in range(3)]
    assert rig.pinned == 3 * size
    for stream in streams:
        assert error(rig.f.hipFileStreamDeregister(stream)) == "Success"
    assert rig.pinned == 0


@amd
def test_memory_of_operations_in_flight(make_rig: Any, profile: str) -> None:
    """Pinned bytes: G1 has the operation and a buffer of its size each; 0.5 has one buffer a stream."""
    rig = make_rig(profile)
    _, handle = rig.file(pattern(10000))
    pointer, stream = rig.buffer(10000), rig.stream(0)
    rig.hold(stream)
    before = rig.pinned
    slots = [Slots(size) for size in (10000, 4096, 1)]
    for one in slots:
        assert rig.read(handle, pointer, one, stream) == 0
    grown = rig.pinned - before
    bounces = 10000 + 4096 + 1 if profile in G1 else 0
    assert bounces < grown <= bounces + 3 * 4096
    rig.release(stream)
    assert rig.pinned == before
    assert [one.done for one in slots] == [10000, 4096, 1]


@pytest.mark.parametrize("size", [1, 4096, 1 << 20])
def test_an_unregistered_stream_pins_a_buffer_for_each_operation(make_rig: Any, size: int) -> None:
    rig = make_rig("0.5", buffer_size=size)
    _, handle = rig.file(pattern(64))
    pointer, stream = rig.buffer(64), rig.stream(None)
    rig.hold(stream)
    slots = [Slots(4, 4 * n, 4 * n) for n in range(3)]
    for n, one in enumerate(slots, 1):
        assert rig.read(handle, pointer, one, stream) == 0
        assert n * size <= rig.pinned <= n * (size + 4096)
    rig.release(stream)
    assert rig.pinned == 0
    assert [one.done for one in slots] == [4, 4, 4]
    assert rig.peek(pointer, 12) == pattern(64)[:12]


@pytest.mark.parametrize("text", ["18446744073709551615", "9" * 24])
def test_a_buffer_size_that_cannot_be_had(make_rig: Any, text: str) -> None:
    rig = make_rig("0.5", env={"HIPFILE_ASYNC_BUFFER_SIZE": text})
    stream = rig.stream(None)
    status = rig.f.hipFileStreamRegister(stream, 0)
    assert (error(status), status.hip_drv_err) == ("HipDriverError", HipError.hipErrorOutOfMemory)
    assert error(rig.f.hipFileStreamDeregister(stream)) == "InvalidValue"
    _, handle = rig.file(b"x")
    slots = Slots(1)
    assert rig.read(handle, rig.buffer(64), slots, stream) == 5011
    assert slots.done == UNTOUCHED


def test_null_from_a_successful_allocation(make_rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig("0.5")
    stream = rig.stream(None)
    monkeypatch.setattr(type(rig.hip), "hipHostMalloc", lambda self, size, flags=0: (HipError.hipSuccess, 0))
    assert error(rig.f.hipFileStreamRegister(stream, 0)) == "InternalError"


@pytest.mark.parametrize("call", ["hipDeviceGetAttribute", "hipHostGetDevicePointer"])
def test_failures_while_the_object_is_made(make_rig: Any, call: str) -> None:
    rig = make_rig("0.5")
    stream = rig.stream(None)
    rig.fail_hip(call, HipError.hipErrorInvalidDevice)
    status = rig.f.hipFileStreamRegister(stream, 0)
    assert (error(status), status.hip_drv_err) == ("HipDriverError", HipError.hipErrorInvalidDevice)
    assert rig.pinned == 0


def test_the_buffer_size_is_read_at_the_first_stream(make_rig: Any) -> None:
    env = {"HIPFILE_ASYNC_BUFFER_SIZE": "4096"}
    from hipfile_sim.machine import Machine

    with Machine(env=env) as machine:
        hip, f = machine.hip, machine.hipfile
        env["HIPFILE_ASYNC_BUFFER_SIZE"] = "8192"
        f.hipFileStreamRegister(hip.hipStreamCreate()[1], 0)
        assert machine.memory.pinned_used == 8192
        env["HIPFILE_ASYNC_BUFFER_SIZE"] = "100"
        f.hipFileStreamRegister(hip.hipStreamCreate()[1], 0)
        assert machine.memory.pinned_used == 2 * 8192


@amd
def test_deregister_in_flight(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    data = pattern(4096)
    _, handle = rig.file(data)
    pointer, stream, slots = rig.buffer(4096), rig.stream(4), Slots(4096)
    rig.hold(stream)
    assert rig.read(handle, pointer, slots, stream) == 0
    assert error(rig.f.hipFileStreamDeregister(stream)) == "Success"
    assert error(rig.f.hipFileStreamDeregister(stream)) == "InvalidValue"
    if profile not in G1:
        assert rig.pinned >= CHUNK
    rig.release(stream)
    assert slots.done == 4096
    assert rig.peek(pointer, 4096) == data
    assert rig.pinned == 0


@amd
def test_destroyed_while_registered(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(b"x")
    pointer, stream, slots = rig.buffer(64), rig.stream(0), Slots(1)
    rig.hip.hipStreamDestroy(stream)
    status = rig.go(False, handle, pointer, slots, stream)
    assert error(status) == "HipDriverError"
    assert slots.done == 0
    assert error(rig.f.hipFileBufDeregister(pointer)) == "Success"
    assert error(rig.f.hipFileStreamDeregister(stream)) == "Success"
    assert rig.pinned == 0
