"""Which slots are read when: all 16 flag sets, read and write, every profile, with the stream held meanwhile."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import pytest
from hipfile_driver_rig import ALL, AMD, G1, Slots, error, pattern

from hipfile_sim.driver.buffers import in_range

both = pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
flag_sets = pytest.mark.parametrize("flags", range(16))
SIZE = 64
DATA = pattern(256, 1)
DEVICE = pattern(256, 2)
BUF_OFFSET, FILE_OFFSET, FILE_SIZE = 1, 2, 4


class Held:
    """An operation of 64 bytes at 16 and 32, submitted to a held stream."""

    def __init__(self, rig: Any, write: bool, flags: int | None) -> None:
        self.rig, self.write = rig, write
        self.fd, self.handle = rig.file(DATA)
        self.pointer = rig.buffer(256, DEVICE)
        self.stream = rig.stream(flags)
        self.slots = Slots(SIZE, 16, 32)
        self.recorder = rig.watch()
        rig.hold(self.stream)
        assert error(rig.go(write, self.handle, self.pointer, self.slots, self.stream)) == "Success"
        assert self.slots.done == 0

    def finish(self) -> int:
        assert self.slots.done == 0
        self.rig.release(self.stream)
        return self.slots.done

    def expect(self, size: int, file_offset: int, buffer_offset: int) -> None:
        """Exactly these bytes have moved, and no others."""
        file, device = bytearray(DATA), bytearray(DEVICE)
        if self.write:
            file[file_offset : file_offset + size] = DEVICE[buffer_offset : buffer_offset + size]
        else:
            device[buffer_offset : buffer_offset + size] = DATA[file_offset : file_offset + size]
        assert os.pread(self.fd, 999, 0) == bytes(file)
        assert self.rig.peek(self.pointer, 256) == bytes(device)


def late(profile: str, flags: int, bit: int, at_submit: int, changed: int) -> int:
    """The value that counts for the slot of `bit`."""
    return at_submit if profile in AMD and flags & bit else changed


@pytest.mark.parametrize("profile", ALL)
@both
@flag_sets
def test_slots_changed_while_the_stream_is_held(make_rig: Any, profile: str, write: bool, flags: int) -> None:
    if profile == "cufile" and flags & 8:
        return  # unaligned inputs are refused there; see below
    held = Held(make_rig(profile), write, flags)
    held.slots.set(40, 100, 8)
    size = late(profile, flags, FILE_SIZE, SIZE, 40)
    file_offset = late(profile, flags, FILE_OFFSET, 16, 100)
    buffer_offset = late(profile, flags, BUF_OFFSET, 32, 8)
    assert held.finish() == size
    held.expect(size, file_offset, buffer_offset)
    if profile in AMD:
        body = ["memcpy_kernel", "cpu_copy"] if write else ["cpu_copy", "memcpy_kernel"]
        bind = [] if flags & 7 == 7 else ["bind"]
        assert held.recorder.kinds == [*bind, *body, *([] if profile in G1 else ["advance"]), "cleanup"]


@pytest.mark.parametrize("profile", ALL)
@both
def test_unregistered_streams_bind_everything_late(make_rig: Any, profile: str, write: bool) -> None:
    held = Held(make_rig(profile), write, None)
    held.slots.set(40, 100, 8)
    assert held.finish() == 40
    held.expect(40, 100, 8)


@pytest.mark.parametrize("profile", ["0.2", "0.5"])
@both
@flag_sets
@pytest.mark.parametrize(
    "values",
    [
        (SIZE + 1, 16, 32),
        (256, 0, 0),
        (SIZE, 16, 193),
        (0, 16, 256),
        (0, 16, 255),
        (SIZE, -1, 32),
        (SIZE, 16, -1),
        (-1, 16, 32),
        (2**62, 16, 32),
        (SIZE, 2**62, 32),
    ],
)
def test_values_that_may_be_invalid_when_bound(
    make_rig: Any, profile: str, write: bool, flags: int, values: tuple[int, int, int]
) -> None:
    """A bound size above the submitted one, or a range outside the buffer, ends as -5022; nothing moves."""
    held = Held(make_rig(profile), write, flags)
    held.slots.set(*values)
    size = late(profile, flags, FILE_SIZE, SIZE, values[0] & 2**64 - 1)
    file_offset = late(profile, flags, FILE_OFFSET, 16, values[1])
    buffer_offset = late(profile, flags, BUF_OFFSET, 32, values[2])
    done = held.finish()
    if size > SIZE or not in_range(256, size, file_offset, buffer_offset):
        assert done == -5022
        held.expect(0, 0, 0)
    elif file_offset > 256:  # nothing to read there, and nothing can be written so far out
        assert done == (-1 if write else 0)
        held.expect(0, 0, 0)
    else:
        assert done == size
        held.expect(size, file_offset, buffer_offset)


@both
@pytest.mark.parametrize("flags", range(8))
def test_cufile_uses_what_it_finds(make_rig: Any, write: bool, flags: int) -> None:
    """A grown size is used; ranges are judged when the operation runs, and flags make no difference."""
    for values, result in (
        ((100, 16, 32), 100),
        ((256, 0, 0), 256),
        ((225, 16, 32), -5),
        ((1, 16, 256), -5),
        ((1, -1, 32), -1),
        ((0, 16, 32), 0),
    ):
        held = Held(make_rig("cufile"), write, flags)
        held.slots.set(*values)
        assert held.finish() == result, values
        held.expect(*((0, 0, 0) if result < 0 else (result, *values[1:])))


@both
@pytest.mark.parametrize("at_submit", [True, False])
def test_cufile_uses_the_bytes_before_the_buffer(make_rig: Any, write: bool, at_submit: bool) -> None:
    rig = make_rig("cufile")
    fd, handle = rig.file(DATA)
    memory, stream = rig.memory(256, DEVICE), rig.stream(0)
    assert rig.f.hipFileBufRegister(memory + 64, 64, 0).ok
    slots = Slots(32, 0, -48 if at_submit else 0)
    rig.hold(stream)
    assert error(rig.go(write, handle, memory + 64, slots, stream)) == "Success"
    slots.set(32, 0, -48)
    rig.release(stream)
    assert slots.done == 32
    if write:
        assert os.pread(fd, 32, 0) == DEVICE[16:48]
    else:
        assert rig.peek(memory, 256) == DEVICE[:16] + DATA[:32] + DEVICE[48:]


@both
@pytest.mark.parametrize(("values", "done"), [((16, -1, 0), -5022), ((16, 0, -1), -5030), ((257, 0, 0), -5016)])
def test_cufile_publishes_at_once_where_all_is_fixed(
    make_rig: Any, write: bool, values: tuple[int, int, int], done: int
) -> None:
    rig = make_rig("cufile")
    _, handle = rig.file(DATA)
    pointer, stream, slots = rig.buffer(256), rig.stream(7), Slots(*values)
    rig.hold(stream)
    assert error(rig.go(write, handle, pointer, slots, stream)) == "Success"
    assert slots.done == done
    rig.release(stream)
    assert slots.done == done


@both
@pytest.mark.parametrize(
    ("values", "done"),
    [((64, 0, 0), 64), ((64, 0, 8), -5), ((64, -1, 0), -1), ((0, 0, 0), 0), ((300, 0, 0), 256)],
)
def test_cufile_looks_at_the_offset_alone_without_a_registration(
    make_rig: Any, write: bool, values: tuple[int, int, int], done: int
) -> None:
    rig = make_rig("cufile")
    _, handle = rig.file(DATA)
    pointer, stream, slots = rig.memory(256, DEVICE), rig.stream(), Slots(*values)
    recorder = rig.watch()
    assert error(rig.go(write, handle, pointer, slots, stream)) == "Success"
    rig.sync(stream)
    if write and values[0] > 256:  # the device has no more than its 256 bytes; the real one writes what is behind them
        assert slots.done == -5030
        assert "chunk.memory-fault" in recorder.note_ids
    else:
        assert slots.done == done


@both
@pytest.mark.parametrize("kind", ["plain", "pinned", "managed"])
@pytest.mark.parametrize("registered", [True, False])
def test_cufile_moves_host_memory(make_rig: Any, write: bool, kind: str, registered: bool) -> None:
    rig = make_rig("cufile")
    fd, handle = rig.file(DATA)
    room = ctypes.create_string_buffer(256)
    pointer = {
        "plain": lambda: ctypes.addressof(room),
        "pinned": lambda: rig.hip.hipHostMalloc(256)[1],
        "managed": lambda: rig.hip.hipMallocManaged(256)[1],
    }[kind]()
    memory, stream = rig.machine.memory, rig.stream(0)
    if registered:
        code = error(rig.f.hipFileBufRegister(pointer, 256, 0))
        assert code == ("HipMemoryTypeInvalid" if kind == "managed" else "Success")
    assert memory.write(pointer, DEVICE)
    slots = Slots(100, 16, 0)
    assert error(rig.go(write, handle, pointer, slots, stream)) == "Success"
    rig.sync(stream)
    assert slots.done == 100
    call = rig.f.hipFileWrite if write else rig.f.hipFileRead
    assert call(handle, pointer, 50, 128, 128) == (50, 0)
    if write:
        assert os.pread(fd, 999, 0) == DATA[:16] + DEVICE[:100] + DATA[116:128] + DEVICE[128:178] + DATA[178:]
    else:
        assert memory.read(pointer, 256) == DATA[16:116] + DEVICE[100:128] + DATA[128:178] + DEVICE[178:]


@both
@pytest.mark.parametrize("kind", ["nothing mapped", "freed", "huge"])
def test_cufile_survives_memory_that_is_none(make_rig: Any, write: bool, kind: str) -> None:
    rig = make_rig("cufile")
    _, handle = rig.file(DATA)
    pointer, size = 0x10000, 64
    if kind == "freed":
        pointer = rig.memory(4096)
        assert rig.hip.hipFree(pointer) == 0
    if kind == "huge":
        size = 2**63
    call = rig.f.hipFileWrite if write else rig.f.hipFileRead
    assert call(handle, pointer, size, 0, 0) == (-1, 1)
    stream, slots = rig.stream(0), Slots(size)
    assert error(rig.go(write, handle, pointer, slots, stream)) == "Success"
    rig.sync(stream)
    assert slots.done == -1


def test_cufile_short_read_overwrites_the_rest_of_the_range(make_rig: Any) -> None:
    rig = make_rig("cufile")
    _, handle = rig.file(DATA)
    _, other = rig.file(b"\x11" * 256)
    pointer = rig.buffer(256, DEVICE)
    assert rig.f.hipFileRead(other, rig.buffer(256), 256, 0, 0) == (256, 0)
    assert rig.f.hipFileRead(handle, pointer, 100, 246, 8) == (10, 0)
    after = rig.peek(pointer, 256)
    assert after[:18] == DEVICE[:8] + DATA[246:]
    assert after[18:108] != DEVICE[18:108]
    assert after[108:] == DEVICE[108:]
    assert rig.f.hipFileRead(handle, pointer, 100, 300, 8) == (0, 0)
    assert rig.peek(pointer, 256) == after


@both
def test_cufile_aligned_promise_is_checked_at_submit(make_rig: Any, write: bool) -> None:
    rig = make_rig("cufile")
    _, handle = rig.file(pattern(8192))
    pointer, stream = rig.buffer(8192), rig.stream(15)
    for values in ((100, 0, 0), (4096, 1, 0), (4096, 0, 8), (4096, -1, 0)):
        slots = Slots(*values)
        assert error(rig.go(write, handle, pointer, slots, stream)) == "InvalidValue"
        assert slots.done == -22
    promised = rig.stream(8)  # what may still change is looked at late
    for chosen, values, done in (
        (stream, (4096, 4096, 0), 4096),
        (stream, (4096, -4096, 0), -5022),
        (promised, (4096, 4096, 0), 4096),
        (promised, (100, 0, 0), -5),
        (promised, (4096, -1, 0), -5),
        (promised, (4096, -4096, 0), -1),
    ):
        slots = Slots(*values)
        assert error(rig.go(write, handle, pointer, slots, chosen)) == "Success"
        rig.sync(chosen)
        assert slots.done == done, values


@both
@pytest.mark.parametrize(
    ("values", "at_once", "done"),
    [((257, 0, 0), -5016, -5016), ((1, 0, 256), -5016, -5016), ((2**63, 0, 0), -5016, -5016), ((1, -1, 0), 0, -1)],
)
def test_cufile_accepts_bad_ranges_at_submit(
    make_rig: Any, write: bool, values: tuple[int, int, int], at_once: int, done: int
) -> None:
    rig = make_rig("cufile")
    _, handle = rig.file(DATA)
    pointer, stream, slots = rig.buffer(256), rig.stream(0), Slots(*values)
    assert error(rig.go(write, handle, pointer, slots, stream)) == "Success"
    assert slots.done == at_once
    rig.sync(stream)
    assert slots.done == done


@pytest.mark.parametrize("profile", AMD)
@both
def test_one_struct_filled_again_while_pending(make_rig: Any, profile: str, write: bool) -> None:
    """The first operation uses the second values, since its slots are read late."""
    held = Held(make_rig(profile), write, 0)
    held.slots.set(8, 200, 0)
    rig = held.rig
    assert error(rig.go(write, held.handle, held.pointer, held.slots, held.stream)) == "Success"
    assert held.finish() == 8
    held.expect(8, 200, 0)


@pytest.mark.parametrize("profile", ALL)
@pytest.mark.parametrize("which", range(3))
def test_slots_gone_when_bound(make_rig: Any, profile: str, which: int) -> None:
    """The memory of a slot is unmapped after submit: a defined value, a note, no crash."""
    import ctypes
    import mmap

    rig = make_rig(profile)
    _, handle = rig.file(DATA)
    pointer, stream, slots = rig.buffer(256), rig.stream(0), Slots(SIZE)
    area = mmap.mmap(-1, 4096)
    holder = ctypes.c_char.from_buffer(area)
    address = ctypes.addressof(holder)
    area[:8] = (SIZE if which == 0 else 0).to_bytes(8, "little")
    pointers = list(slots.pointers)
    pointers[which] = address
    recorder = rig.watch()
    assert rig.f.hipFileReadAsync(handle, pointer, *pointers, stream).ok
    del holder
    area.close()
    rig.sync(stream)
    assert slots.done == -5022
    assert recorder.note_ids == ["submit.dangling-slot"]


@pytest.mark.parametrize("profile", ALL)
def test_result_slot_gone_when_published(make_rig: Any, profile: str) -> None:
    import ctypes
    import mmap

    rig = make_rig(profile)
    _, handle = rig.file(DATA)
    pointer, stream, slots = rig.buffer(256), rig.stream(0), Slots(SIZE)
    area = mmap.mmap(-1, 4096)
    holder = ctypes.c_char.from_buffer(area)
    pointers = [*slots.pointers[:3], ctypes.addressof(holder)]
    recorder = rig.watch()
    assert rig.f.hipFileReadAsync(handle, pointer, *pointers, stream).ok
    del holder
    area.close()
    rig.sync(stream)
    assert rig.peek(pointer, SIZE) == DATA[:SIZE]
    assert recorder.note_ids == ["submit.dangling-slot"]
    assert error(rig.f.hipFileBufDeregister(pointer)) == "Success"


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("flags", [0, 4, 7])
def test_a_size_above_the_largest_count(make_rig: Any, profile: str, flags: int) -> None:
    """It is clamped before its range is checked; what the file holds arrives."""
    rig = make_rig(profile, buffer_size=1 << 30, hip={"pinned_memory": 8 << 30})
    _, handle = rig.file(DATA)
    pointer = rig.hip.hipMalloc(0x7FFFF000)[1]
    stream, slots = rig.stream(flags), Slots(0x7FFFF000 + 4096)
    recorder = rig.watch()
    assert rig.read(handle, pointer, slots, stream) == 0
    rig.sync(stream)
    assert slots.done == 256
    assert recorder.kinds.count("cpu_copy") == (1 if profile in G1 else 2)
    assert rig.read(handle, pointer + 1, slots, stream) == 5022
