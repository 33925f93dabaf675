"""Memory: real addresses, kinds, budgets, poison, and addresses that are not ours."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import threading

import pytest

from hipfile_sim import HipSettings, Machine
from hipfile_sim.hip import HipError, HipMemoryError, hostmem
from hipfile_sim.hip.arena import Arena

from .conftest import create, malloc

INVALID = HipError.hipErrorInvalidValue
WILD = (1, 8, 4095, 0xDEAD_BEEF_000, (1 << 47) - 64, 1 << 63, (1 << 64) - 8)


@pytest.fixture
def machine():
    with Machine(2, schedule="lazy") as made:
        yield made


@pytest.fixture
def hip(machine):
    return machine.hip


def test_host_code_that_touches_device_memory_faults():
    program = (
        "import ctypes; from hipfile_sim import Machine; _, p = Machine().hip.hipMalloc(64);"
        "print('alive', flush=True); ctypes.string_at(p, 8); print('read')"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=500, check=False)
    assert run.stdout == "alive\n"
    assert run.returncode == -signal.SIGSEGV


def test_a_system_call_on_a_device_pointer_gets_efault(hip):
    pointer = malloc(hip)
    assert hostmem.read(pointer, 8) is None
    assert not hostmem.write(pointer, b"12345678")


def test_host_visible_memory_is_one_memory():
    with Machine(settings=HipSettings(host_visible=True)) as machine:
        pointer = malloc(machine.hip)
        ctypes.memmove(pointer, b"abc", 3)
        assert bytes(machine.memory.view(pointer, 3)) == b"abc"


def test_address_range_of_an_interior_pointer(hip):
    pointer = malloc(hip, 10_000)
    assert hip.hipMemGetAddressRange(pointer + 9_999) == (0, pointer, 10_000)
    assert hip.hipMemGetAddressRange(pointer + 10_000)[0] == HipError.hipErrorNotFound


def test_budgets_end_in_out_of_memory():
    settings = HipSettings(device_memory=1 << 20, pinned_memory=1 << 16)
    with Machine(2, settings=settings) as machine:
        hip = machine.hip
        code, first = hip.hipMalloc(1 << 20)
        assert code == 0
        assert hip.hipMalloc(1) == (HipError.hipErrorOutOfMemory, 0)
        assert hip.hipMemGetInfo() == (0, 0, 1 << 20)
        hip.hipSetDevice(1)
        assert hip.hipMalloc(1 << 20)[0] == 0  # each device has its own
        assert hip.hipFree(first) == 0
        hip.hipSetDevice(0)
        assert hip.hipMalloc(1 << 20)[0] == 0
        assert hip.hipHostMalloc((1 << 16) + 1)[0] == HipError.hipErrorOutOfMemory
        assert hip.hipHostMalloc(1 << 16)[0] == 0
        assert hip.hipGetLastError() == HipError.hipErrorOutOfMemory
        assert hip.hipGetLastError() == 0


@pytest.mark.parametrize("size", [-1, 1 << 62, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("call", ["hipMalloc", "hipHostMalloc", "hipMallocManaged"])
def test_absurd_sizes(hip, call, size):
    assert getattr(hip, call)(size) == (HipError.hipErrorOutOfMemory, 0)


def test_size_zero(hip):
    assert hip.hipMalloc(0) == (0, 0)
    assert hip.hipHostMalloc(0) == (0, 0)
    assert hip.hipMallocManaged(0)[0] == INVALID


@pytest.mark.parametrize("size", [64, 4096, 8 << 20])
def test_freed_memory_is_poisoned_and_reused(machine, size):
    hip = machine.hip
    pointer = malloc(hip, size)
    hip.hipMemset(pointer, 1, size)
    hip.hipFree(pointer)
    with pytest.raises(HipMemoryError, match="not emulated memory"):
        machine.memory.view(pointer, 1)
    assert set(machine.memory.view(pointer, size, dead_ok=True)) == {0xDB}
    again = malloc(hip, size)
    assert again == pointer
    assert set(machine.memory.view(again, size)) == {0xDB}


def test_part_of_a_large_freed_block_is_poisoned_when_it_is_reused(machine):
    hip = machine.hip
    pointer = malloc(hip, 8 << 20)
    hip.hipMemset(pointer, 1, 8 << 20)
    hip.hipFree(pointer)
    small = malloc(hip, 64)
    assert small == pointer
    assert set(machine.memory.view(small, 64)) == {0xDB}


def test_no_poison_when_switched_off():
    with Machine(settings=HipSettings(poison=None)) as machine:
        pointer = malloc(machine.hip)
        machine.hip.hipMemset(pointer, 1, 4096)
        machine.hip.hipFree(pointer)
        assert set(machine.memory.view(malloc(machine.hip), 4096)) == {1}


def test_views_outlive_the_machine():
    machine = Machine()
    view = machine.memory.view(malloc(machine.hip), 16)
    machine.close()
    del machine
    view[:] = b"x" * 16
    assert bytes(view) == b"x" * 16


def test_blocks_do_not_touch(hip):
    first, second = malloc(hip), malloc(hip)
    assert abs(first - second) > 4096
    assert hip.hipMemGetAddressRange(first + 4096)[0] == HipError.hipErrorNotFound


def test_registered_host_memory(hip):
    page = mmap.mmap(-1, 8192)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    assert hip.hipHostRegister(address, 8192) == 0
    assert hip.hipHostRegister(address + 4096, 16) == HipError.hipErrorHostMemoryAlreadyRegistered
    assert hip.hipPointerGetAttributes(address + 5)[1].type == 1
    assert hip.hipHostGetDevicePointer(address) == (0, address)
    assert hip.hipHostUnregister(address + 1) == HipError.hipErrorHostMemoryNotRegistered
    assert hip.hipHostUnregister(address) == 0
    assert hip.hipPointerGetAttributes(address)[1].type == 0
    for bad in (0, 8, (1 << 47) - 4096):
        assert hip.hipHostRegister(bad, 4096) == INVALID
    assert hip.hipHostRegister(address, 0) == INVALID
    assert hip.hipHostRegister(malloc(hip), 4096) == HipError.hipErrorHostMemoryAlreadyRegistered


def test_managed_memory_is_seen_by_both(machine):
    hip = machine.hip
    _, pointer = hip.hipMallocManaged(64)
    hip.hipMemset(pointer, 3, 64)
    assert ctypes.string_at(pointer, 4) == b"\x03" * 4
    attributes = hip.hipPointerGetAttributes(pointer)[1]
    assert (attributes.type, attributes.isManaged) == (3, 1)
    assert hip.hipFree(pointer) == 0


def test_signal_memory(hip):
    assert hip.hipExtMallocWithFlags(16, 2)[0] == INVALID
    assert hip.hipExtMallocWithFlags(8, 99)[0] == INVALID
    code, word = hip.hipExtMallocWithFlags(8, 2)
    assert code == 0
    stream = create(hip)
    hip.hipStreamWriteValue64(stream, word, 77)
    hip.hipStreamWaitValue64(stream, word, 77, 1)
    assert hip.hipStreamSynchronize(stream) == 0
    assert ctypes.c_uint64.from_address(word).value == 77
    assert (hip.hipFree(word), hip.hipFree(word)) == (0, INVALID)


@pytest.mark.parametrize("pointer", WILD)
def test_wild_pointers_give_codes(hip, pointer):
    good = malloc(hip)
    assert hip.hipFree(pointer) == INVALID
    assert hip.hipHostFree(pointer) == INVALID
    assert hip.hipMemcpy(good, pointer, 64) == INVALID
    assert hip.hipMemcpy(pointer, good, 64) == INVALID
    assert hip.hipMemcpyAsync(pointer, good, 64, 2, 0) == INVALID
    assert hip.hipMemset(pointer, 0, 64) == INVALID
    assert hip.hipPointerGetAttributes(pointer)[1].type == 0
    assert hip.hipStreamSynchronize(pointer) in (HipError.hipErrorInvalidHandle, 0 if pointer == 1 else 400)
    assert hip.hipEventQuery(pointer) == HipError.hipErrorInvalidHandle
    assert hip.hipStreamWriteValue64(0, pointer, 1) == INVALID
    assert hip.launch(0, lambda: None, reads=[(pointer, 8)]) == INVALID


def test_copies_past_the_end(hip):
    pointer = malloc(hip, 100)
    assert hip.hipMemcpy(pointer, pointer + 50, 51) == INVALID
    assert hip.hipMemset(pointer + 99, 0, 2) == INVALID
    assert hip.hipMemset(pointer, 0, -1) == INVALID


def test_a_host_range_that_ends_in_unmapped_memory(hip):
    pages = mmap.mmap(-1, 8192)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + 4096), 4096, 0)
    pointer = malloc(hip, 8192)
    assert hip.hipMemcpy(pointer, address, 8192, 1) == INVALID
    assert hip.hipMemcpy(address, pointer, 8192, 2) == INVALID
    assert hip.hipMemcpy(pointer, address, 4096, 1) == 0
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + 4096), 4096, 3)


@pytest.mark.parametrize("kind", [-1, 5, 99])
def test_unknown_copy_direction(hip, kind):
    assert hip.hipMemcpy(malloc(hip), malloc(hip), 8, kind) == HipError.hipErrorInvalidMemcpyDirection


def test_direction_that_does_not_fit(hip):
    device, host = malloc(hip), ctypes.create_string_buffer(64)
    address = ctypes.addressof(host)
    assert hip.hipMemcpy(device, address, 8, 2) == INVALID
    assert hip.hipMemcpy(device, address, 8, 3) == INVALID
    assert hip.hipMemcpy(address, device, 8, 1) == INVALID
    assert hip.hipMemcpy(device, device, 8, 0) == INVALID


@pytest.mark.parametrize("size", [1, 4096, 16 << 10, (16 << 10) + 1, 3 << 20])
def test_copies_in_all_directions_keep_the_bytes(machine, size):
    hip = machine.hip
    data = os.urandom(size)
    source = ctypes.create_string_buffer(data, size)
    target = ctypes.create_string_buffer(size)
    first, second = malloc(hip, size), malloc(hip, size)
    hip.hipSetDevice(1)
    third = malloc(hip, size)
    hip.hipSetDevice(0)
    _, pinned = hip.hipHostMalloc(size)
    assert hip.hipMemcpy(first, ctypes.addressof(source), size, 1) == 0
    assert hip.hipMemcpy(second, first, size, 3) == 0
    assert hip.hipMemcpy(third, second, size, 4) == 0
    assert hip.hipMemcpyWithStream(pinned, third, size, 2, create(hip)) == 0
    assert hip.hipMemcpy(ctypes.addressof(target), pinned, size, 0) == 0
    assert target.raw == data


def test_arena_gives_and_takes():
    arena = Arena(1 << 20, True)
    first, second, third = (arena.take(4096)[0] for _ in range(3))
    arena.give(first, 4096)
    arena.give(third, 4096)
    arena.give(second, 4096)
    assert arena.take(3 * 4096) == (first, True)
    assert arena.take(1 << 21) is None


def test_hostmem_many_sizes():
    data = os.urandom(100_000)
    buffer = ctypes.create_string_buffer(data, len(data))
    address = ctypes.addressof(buffer)
    for length in (1, 7, 4096, 65_537):
        assert hostmem.read(address + 3, length) == data[3 : 3 + length]
        assert hostmem.write(address + 3, data[:length])
        assert buffer.raw[3 : 3 + length] == data[:length]
        assert hostmem.write(address, data)
    for wild in (*WILD, 0, -8):
        assert hostmem.read_i64(wild) is None
        assert not hostmem.write_i64(wild, 1)
        assert hostmem.read3(address, wild, address) is None
    assert not hostmem.readable(0, 8)
    assert hostmem.readable(address, len(data))


def test_hostmem_without_the_system_call(monkeypatch):
    def refused(*_):
        ctypes.set_errno(1)
        return -1

    monkeypatch.setattr(hostmem, "_readv", refused)
    monkeypatch.setattr(hostmem, "_writev", refused)
    words = (ctypes.c_int64 * 3)(1, -2, 3)
    base = ctypes.addressof(words)
    assert hostmem.read3(base, base + 8, base + 16) == (1, -2, 3)
    assert hostmem.write_i64(base, -9)
    assert list(words) == [-9, -2, 3]
    assert hostmem.read_i64(8) is None
    assert not hostmem.write_i64(8, 1)
    assert hostmem.read(base, 24) == bytes(words)


def test_threads_have_their_own_device_and_error(hip):
    hip.hipSetDevice(1)
    hip.hipFree(12345)
    seen = {}

    def body():
        seen["device"] = hip.hipGetDevice()
        seen["error"] = hip.hipPeekAtLastError()

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == {"device": (0, 0), "error": 0}
    assert hip.hipGetDevice() == (0, 1)
    assert hip.hipPeekAtLastError() == INVALID


def test_a_machine_without_devices():
    with Machine(0) as machine:
        hip = machine.hip
        assert hip.hipInit(0) == HipError.hipErrorNoDevice
        assert hip.hipGetDeviceCount() == (HipError.hipErrorNoDevice, 0)
        assert hip.hipMalloc(8) == (HipError.hipErrorNoDevice, 0)
        assert hip.hipStreamCreate()[0] == HipError.hipErrorNoDevice
        assert hip.hipStreamSynchronize(0) == HipError.hipErrorInvalidHandle
        assert hip.hipSetDevice(0) == HipError.hipErrorInvalidDevice


def test_fork_gives_a_defined_error_in_the_child(hip):
    malloc(hip)
    pid = os.fork()
    if pid == 0:
        ok = hip.hipMalloc(64) == (HipError.hipErrorNotInitialized, 0) and hip.hipStreamSynchronize(0) == 3
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert hip.hipMalloc(64)[0] == 0


@pytest.mark.parametrize(
    "name", ["host_function_threads", "host_function_calls", "pageable_h2d", "poison", "device_memory", "queue_limit"]
)
def test_bad_settings_name_the_field(name):
    with pytest.raises(ValueError, match=f"HipSettings.{name} is"):
        HipSettings(**{name: "x" if name not in ("poison", "device_memory", "queue_limit") else -1})


@pytest.mark.parametrize("devices", [-1, 2000, "2", None, True])
def test_bad_device_counts(devices):
    with pytest.raises(ValueError, match="devices is"):
        Machine(devices)


def test_reusing_a_little_of_a_large_freed_block_poisons_a_little(machine):
    hip = machine.hip
    pointer = malloc(hip, 64 << 20)
    hip.hipMemset(pointer, 1, 64 << 20)
    hip.hipFree(pointer)
    malloc(hip, 64)
    arena = machine.memory.arena_of(pointer)
    assert arena.view[pointer - arena.base + (32 << 20)] == 1  # nobody has looked there
    assert set(machine.memory.view(malloc(hip, 8 << 20), 8 << 20)) == {0xDB}
