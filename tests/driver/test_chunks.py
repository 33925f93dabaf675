"""Chunks through the bounce buffer: bytes, counts, number of commands, files that change between chunks."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from hipfile_driver_rig import AMD, CHUNK, EINTR, EIO, ENOSPC, G1, Slots, error, pattern

amd = pytest.mark.parametrize("profile", AMD)
both = pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
SIZES = {
    1: (1, 2, 33),
    7: (1, 6, 7, 8, 70, 71),
    4096: (1, 4095, 4096, 4097, 40960, 41000),
    65536: (1, 65536, 65537, 262144, 262145),
    None: (1, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 77),
}
CASES = [(buffer, size) for buffer, sizes in SIZES.items() for size in sizes]


class Op:
    """One operation over a whole buffer, guarded by bytes that must not change."""

    GUARD = 64

    def __init__(self, rig: Any, write: bool, size: int, *, file_size: int | None = None, flags: int = 0) -> None:
        self.rig, self.write, self.size = rig, write, size
        self.data = pattern(size, 3)
        file = bytes(size) if write else pattern(size, 3)
        self.fd, self.handle = rig.file(file[: size if file_size is None else file_size])
        self.pointer = rig.memory(size + 2 * self.GUARD, b"\xee" * (size + 2 * self.GUARD))
        rig.poke(self.pointer + self.GUARD, self.data if write else bytes(size))
        self.stream = rig.stream(flags)
        self.slots = Slots(size, 0, self.GUARD)
        self.recorder = rig.watch()
        rig.hold(self.stream)
        assert error(rig.go(write, self.handle, self.pointer, self.slots, self.stream)) == "Success"

    def finish(self) -> int:
        self.rig.release(self.stream)
        assert self.rig.peek(self.pointer, self.GUARD) == b"\xee" * self.GUARD
        assert self.rig.peek(self.pointer + self.GUARD + self.size, self.GUARD) == b"\xee" * self.GUARD
        return self.slots.done

    @property
    def landed(self) -> bytes:
        """What is at the destination now."""
        if self.write:
            return os.pread(self.fd, self.size + 1, 0)
        return self.rig.peek(self.pointer + self.GUARD, self.size)

    @property
    def commands(self) -> list[str]:
        return self.recorder.kinds


def chunks(profile: str, buffer: int | None, size: int) -> int:
    return 1 if profile in G1 else -(-size // (buffer or CHUNK))


@amd
@both
@pytest.mark.parametrize(("buffer", "size"), CASES)
@pytest.mark.parametrize("flags", [0, 7])
def test_sizes(make_rig: Any, profile: str, write: bool, buffer: int | None, size: int, flags: int) -> None:
    if (profile in G1 and buffer is not None and size > 100) or (profile not in ("0.2", "0.5") and size > CHUNK):
        return  # the variable does not exist there; and the large ones are slow
    rig = make_rig(profile, **({} if buffer is None else {"buffer_size": buffer}))
    op = Op(rig, write, size, flags=flags)
    number = chunks(profile, buffer, size)
    body = ["memcpy_kernel", "cpu_copy"] if write else ["cpu_copy", "memcpy_kernel"]
    expected = [] if flags == 7 else ["bind"]
    expected += body if profile in G1 else [*body, "advance"] * number
    assert op.commands == [*expected, "cleanup"]
    pinned = size if profile in G1 else (buffer or CHUNK)
    assert pinned < rig.pinned <= pinned + 4096
    assert op.finish() == size
    assert op.landed == op.data
    assert op.recorder.finished_kinds == op.commands
    assert rig.pinned == (0 if profile in G1 else (buffer or CHUNK))


@amd
@pytest.mark.parametrize("ends", [0, 1, 99, 100, 101, 250, 999])
def test_read_past_the_end(make_rig: Any, profile: str, ends: int) -> None:
    op = Op(make_rig(profile, buffer_size=100), False, 1000, file_size=ends)
    assert op.finish() == ends
    assert op.landed == op.data[:ends] + bytes(1000 - ends)


@amd
def test_size_shrunk_after_submit(make_rig: Any, profile: str) -> None:
    for write in (False, True):
        for shrunk in (0, 1, 100, 249, 250, 999):
            op = Op(make_rig(profile, buffer_size=100), write, 1000)
            number = len(op.commands)
            op.slots.words[0] = shrunk
            assert op.finish() == shrunk
            assert op.landed == op.data[:shrunk] + bytes(1000 - shrunk)
            assert len(op.commands) == number == (4 if profile in G1 else 32)
            moved = [entry[2] for entry in op.rig.files.log]
            assert sum(moved) == shrunk, "surplus chunks touch nothing"


def test_64_mib_shrunk_to_24(make_rig: Any) -> None:
    op = Op(make_rig("0.5"), False, 4 * CHUNK)
    assert op.commands.count("cpu_copy") == 4
    op.slots.words[0] = CHUNK + CHUNK // 2
    assert op.finish() == CHUNK + CHUNK // 2
    assert op.landed[: CHUNK + CHUNK // 2] == op.data[: CHUNK + CHUNK // 2]
    assert op.landed[CHUNK + CHUNK // 2 :] == bytes(4 * CHUNK - CHUNK - CHUNK // 2)


def _between(rig: Any, faults: list[Any], nth: int, action: Any) -> None:
    faults += [None] * nth + [action]


def test_file_grows_between_chunks(make_rig: Any) -> None:
    """Chunks behind the end read again at the advanced offset: bytes that appeared meanwhile count."""
    rig = make_rig("0.5", buffer_size=100)
    op = Op(rig, False, 500, file_size=150)
    # chunk 1: 100; chunk 2: 50 and the end; then the file grows; chunk 3 goes on at 150
    _between(rig, rig.files.reads, 3, lambda: os.pwrite(op.fd, op.data[150:], 150))
    assert op.finish() == 450  # three chunks of 100 are left: 150 to 450
    assert op.landed == op.data[:450] + bytes(50)


def test_file_shrinks_between_chunks(make_rig: Any) -> None:
    rig = make_rig("0.5", buffer_size=100)
    op = Op(rig, False, 500)
    _between(rig, rig.files.reads, 2, lambda: os.ftruncate(op.fd, 230))
    assert op.finish() == 230
    assert op.landed == op.data[:230] + bytes(270)


def test_file_is_read_when_the_stream_gets_there(make_rig: Any) -> None:
    for profile in AMD:
        op = Op(make_rig(profile), False, 100)
        os.pwrite(op.fd, b"late" * 25, 0)
        assert op.finish() == 100
        assert op.landed == b"late" * 25


@amd
@both
def test_short_transfers_and_interruptions_inside_a_chunk(make_rig: Any, profile: str, write: bool) -> None:
    rig = make_rig(profile)
    op = Op(rig, write, 16384)
    faults = rig.files.writes if write else rig.files.reads
    faults += [4096, EINTR, 100, EINTR, EINTR, 1]
    assert op.finish() == 16384
    assert op.landed == op.data
    assert not faults


@both
def test_a_transfer_of_nothing_ends_its_chunk(make_rig: Any, write: bool) -> None:
    """The next chunk resumes from there; the number of chunks is fixed, so the tail stays undone."""
    rig = make_rig("0.5", buffer_size=100)
    op = Op(rig, write, 300)
    faults = rig.files.writes if write else rig.files.reads
    faults += [60, 0]
    assert op.finish() == 260
    assert op.landed[:260] == op.data[:260]
    assert op.landed[260:] == bytes(40)
    assert not any(entry[0] == "fdatasync" for entry in rig.files.log)


@amd
@both
@pytest.mark.parametrize("fault", [EIO, ENOSPC, -errno.EBADF])
def test_errors_lose_the_count_and_keep_what_landed(make_rig: Any, profile: str, write: bool, fault: int) -> None:
    rig = make_rig(profile, buffer_size=100)
    op = Op(rig, write, 1000)
    faults = rig.files.writes if write else rig.files.reads
    faults += [None, None, None, 30, fault] if profile == "0.5" else [350, fault]
    assert op.finish() == -1
    if write:
        landed = 330 if profile == "0.5" else 350
    else:
        landed = 300 if profile == "0.5" else 0
    assert op.landed == op.data[:landed] + bytes(1000 - landed)
    assert [(note.id, note.objects["errno"]) for note in op.recorder.notes] == [("result.hidden-errno", -fault)]
    calls = len(rig.files.log)
    assert calls == (5 if profile == "0.5" else 2), "later chunks do nothing"


@amd
def test_writes_are_not_synced_and_leave_gaps_of_zeros(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    fd, handle = rig.file(b"begin")
    pointer, stream = rig.buffer(64, b"w" * 64), rig.stream(0)
    slots = Slots(64, 100, 0)
    assert rig.write(handle, pointer, slots, stream) == 0
    rig.sync(stream)
    assert slots.done == 64
    assert os.pread(fd, 999, 0) == b"begin" + bytes(95) + b"w" * 64
    assert [entry[0] for entry in rig.files.log] == ["pwrite"]


@amd
def test_operations_of_one_stream_share_its_buffer_in_order(make_rig: Any, profile: str) -> None:
    """Overlapping operations: the later one wins, whatever the buffer size."""
    for buffer in (1, 7, 4096):
        rig = make_rig(profile, buffer_size=buffer)
        data = pattern(64, 5)
        fd, handle = rig.file(data)
        pointer, stream = rig.buffer(64, bytes(64)), rig.stream(0)
        rig.hold(stream)
        first, second, third = Slots(40, 0, 0), Slots(40, 20, 10), Slots(50, 0, 0)
        assert rig.read(handle, pointer, first, stream) == 0
        assert rig.read(handle, pointer, second, stream) == 0
        assert rig.write(handle, pointer, third, stream) == 0
        rig.release(stream)
        assert (first.done, second.done, third.done) == (40, 40, 50)
        expected = data[:10] + data[20:60] + bytes(14)
        assert rig.peek(pointer, 64) == expected
        assert os.pread(fd, 64, 0) == expected[:50] + data[50:]


def test_accesses_before_and_after(make_rig: Any) -> None:
    """A command says what it would touch while it waits, and what it touched once it has run."""
    rig = make_rig("0.5", buffer_size=100)
    op = Op(rig, False, 250, file_size=120)
    bind, copy, kernel, _advance = op.recorder.commands[:4]
    cleanup = op.recorder.commands[-1]
    slots = op.slots.pointers
    assert [(a.start, a.length, a.write) for a in bind.accesses()] == [(p, 8, False) for p in slots[:3]]
    bounce = op.recorder.commands[1].op.bounce.pointer
    stat = os.fstat(op.fd)
    file = ("file", stat.st_dev, stat.st_ino)
    assert copy.accesses() == ((file, 0, 100, False), ("mem", bounce, 100, True))
    assert cleanup.accesses() == (("mem", slots[3], 8, True),)
    assert op.finish() == 120
    target = op.pointer + op.GUARD
    assert copy.accesses() == ((file, 0, 100, False), ("mem", bounce, 100, True))
    assert kernel.accesses() == (("mem", target, 100, True), ("mem", bounce, 100, False))
    second_copy, second_kernel = op.recorder.commands[4:6]
    assert second_copy.accesses() == ((file, 100, 100, False), ("mem", bounce, 20, True))
    assert second_kernel.accesses() == (("mem", target + 100, 20, True), ("mem", bounce, 20, False))
    assert op.recorder.commands[7].accesses() == ((file, 120, 100, False),)  # it finds the end
