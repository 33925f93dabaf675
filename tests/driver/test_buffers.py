"""Registered and temporary buffers, and the range rule."""

from __future__ import annotations

from typing import Any

import pytest
from hipfile_driver_rig import AMD, UNTOUCHED, Slots, error, pattern

from hipfile_sim.driver.buffers import in_range
from hipfile_sim.driver.codes import IOResult
from hipfile_sim.hip.codes import HipError

amd = pytest.mark.parametrize("profile", AMD)
U64 = 2**64 - 1


@amd
def test_whole_interior_overlapping_and_empty(make_rig: Any, profile: str) -> None:
    f = (rig := make_rig(profile)).f
    pointer = rig.memory(8192)
    for base, length in ((pointer, 8192), (pointer + 100, 8092), (pointer + 4096, 10), (pointer + 8191, 0)):
        assert error(f.hipFileBufRegister(base, length, 0xFFFF)) == "Success"
        assert error(f.hipFileBufRegister(base, length, 0)) == "MemoryAlreadyRegistered"
    for base in (pointer, pointer + 100, pointer + 4096, pointer + 8191):
        assert error(f.hipFileBufDeregister(base)) == "Success"
        assert error(f.hipFileBufDeregister(base)) == "MemoryNotRegistered"


@amd
@pytest.mark.parametrize(("offset", "length"), [(0, 4097), (1, 4096), (0, U64), (4095, 2), (8, U64 - 7), (0, -1)])
def test_past_the_allocation(make_rig: Any, profile: str, offset: int, length: int) -> None:
    rig = make_rig(profile)
    pointer = rig.memory(4096) + offset
    assert error(rig.f.hipFileBufRegister(pointer, length, 0)) == "HipPointerRangeError"
    assert error(rig.f.hipFileBufDeregister(pointer)) == "MemoryNotRegistered"


@amd
def test_other_memory(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    data = bytearray(64)
    slots = Slots(1)
    kinds = {
        "pinned": rig.hip.hipHostMalloc(64)[1],
        "managed": rig.hip.hipMallocManaged(64)[1],
        "plain": slots.pointers[0],
        "wild": 0xDEAD000,
        "freed": rig.memory(64),
    }
    rig.hip.hipFree(kinds["freed"])
    assert data is not None
    for kind, pointer in kinds.items():
        assert error(rig.f.hipFileBufRegister(pointer, 64, 0)) == "HipMemoryTypeInvalid", kind
    assert error(rig.f.hipFileBufRegister(0, 64, 0)) == "InvalidValue"


@amd
@pytest.mark.parametrize(
    ("call", "code", "expected"),
    [
        ("hipPointerGetAttributes", HipError.hipErrorInvalidValue, ("InvalidValue", 0)),
        ("hipPointerGetAttributes", HipError.hipErrorUnknown, ("HipDriverError", 999)),
        ("hipMemGetAddressRange", HipError.hipErrorNotFound, ("InvalidValue", 0)),
        ("hipMemGetAddressRange", HipError.hipErrorInvalidValue, ("InvalidValue", 0)),
        ("hipMemGetAddressRange", HipError.hipErrorOutOfMemory, ("HipDriverError", 2)),
    ],
)
def test_hip_failures_while_registering(make_rig: Any, profile: str, call: str, code: Any, expected: Any) -> None:
    rig = make_rig(profile)
    pointer = rig.memory(64)
    rig.fail_hip(call, code)
    status = rig.f.hipFileBufRegister(pointer, 64, 0)
    assert (error(status), int(status.hip_drv_err)) == expected


@amd
def test_duplicate_is_found_before_anything_is_asked(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    pointer = rig.buffer(64)
    asked = rig.fail_hip("hipPointerGetAttributes", HipError.hipErrorUnknown)
    assert error(rig.f.hipFileBufRegister(pointer, U64, 0)) == "MemoryAlreadyRegistered"
    assert asked() == 0


@amd
def test_deregister_in_use_is_refused_until_the_operation_is_done(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))
    pointer, stream, slots = rig.buffer(64), rig.stream(), Slots(64)
    rig.hold(stream)
    assert rig.read(handle, pointer, slots, stream) == 0
    assert error(rig.f.hipFileBufDeregister(pointer)) == "InternalError"
    assert error(rig.f.hipFileBufRegister(pointer, 64, 0)) == "MemoryAlreadyRegistered"
    rig.release(stream)
    assert error(rig.f.hipFileBufDeregister(pointer)) == "Success"


def test_cufile_refuses_length_zero(make_rig: Any) -> None:
    rig = make_rig("cufile")
    pointer = rig.memory(64)
    assert error(rig.f.hipFileBufRegister(pointer, 0, 0)) == "InvalidValue"
    assert error(rig.f.hipFileBufDeregister(pointer)) == "MemoryNotRegistered"


def test_cufile_waits_for_the_operation(make_rig: Any) -> None:
    rig = make_rig("cufile")
    _, handle = rig.file(pattern(64))
    pointer, stream, slots = rig.buffer(64), rig.stream(), Slots(64)
    assert rig.read(handle, pointer, slots, stream) == 0
    assert slots.done == 0
    assert error(rig.f.hipFileBufDeregister(pointer)) == "Success"
    assert slots.done == 64
    assert error(rig.f.hipFileBufDeregister(pointer)) == "MemoryNotRegistered"


@amd
def test_temporary_buffers_end_with_their_allocation(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    data = pattern(8192)
    _, handle = rig.file(data)
    pointer = rig.memory(4096)
    assert rig.f.hipFileRead(handle, pointer + 96, 4000, 10, 0) == IOResult(4000)
    assert rig.peek(pointer + 96, 4000) == data[10:4010]
    assert rig.f.hipFileRead(handle, pointer + 96, 4001, 0, 0) == IOResult(-5022)
    assert rig.f.hipFileRead(handle, pointer + 96, 1, 0, 4000) == IOResult(-5022)
    stream = rig.stream()
    slots = Slots(4000, 20)
    assert rig.read(handle, pointer + 96, slots, stream) == 0
    rig.sync(stream)
    assert slots.done == 4000
    assert rig.peek(pointer + 96, 4000) == data[20:4020]
    assert rig.read(handle, pointer + 96, Slots(4001), stream) == 5022


@amd
def test_an_interior_pointer_of_a_registered_buffer_is_not_that_buffer(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(4096))
    pointer = rig.memory(4096)
    assert error(rig.f.hipFileBufRegister(pointer, 100, 0)) == "Success"
    assert rig.f.hipFileRead(handle, pointer, 101, 0, 0) == IOResult(-5022)
    assert rig.f.hipFileRead(handle, pointer + 1, 4095, 0, 0) == IOResult(4095)


@amd
def test_wrong_memory_in_operations(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))
    host = rig.hip.hipHostMalloc(64)[1]
    stream = rig.stream()
    slots = Slots(64)
    for call in (rig.f.hipFileRead, rig.f.hipFileWrite):
        assert call(handle, host, 64, 0, 0) == IOResult(-5013)
        assert call(handle, 0, 64, 0, 0) == IOResult(-5022)
    for write in (False, True):
        assert error(rig.go(write, handle, host, slots, stream)) == "InternalError"
    pointer = rig.memory(64)
    rig.fail_hip("hipMemGetAddressRange", HipError.hipErrorInvalidValue)
    assert rig.f.hipFileRead(handle, pointer, 64, 0, 0) == IOResult(-1)  # the raw HIP code, and errno untouched
    status = rig.go(False, handle, pointer, slots, stream)
    assert (error(status), int(status.hip_drv_err)) == ("HipDriverError", 1)
    assert slots.done == UNTOUCHED


def test_length_zero_fails_every_operation(rig: Any) -> None:
    _, handle = rig.file(b"x")
    pointer = rig.memory(64)
    assert error(rig.f.hipFileBufRegister(pointer, 0, 0)) == "Success"
    assert rig.f.hipFileRead(handle, pointer, 0, 0, 0) == IOResult(-5022)
    assert rig.read(handle, pointer, Slots(0), rig.stream()) == 5022


@pytest.mark.parametrize(
    ("size", "file_offset", "buffer_offset", "fits"),
    [
        (10, 0, 0, True),
        (0, 0, 9, True),
        (1, 0, 9, True),
        (0, 0, 10, False),
        (1, 0, 10, False),
        (11, 0, 0, False),
        (2, 0, 9, False),
        (1, -1, 0, False),
        (1, 0, -1, False),
        (1, 2**62, 0, True),
    ],
)
def test_range_rule(size: int, file_offset: int, buffer_offset: int, fits: bool) -> None:
    assert in_range(10, size, file_offset, buffer_offset) is fits
