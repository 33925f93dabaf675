"""Chunks: bounce buffers, the end of the file, short transfers, and what is touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from hipfile_conformance.kit import KIB, MIB, Kit, Slots, pattern
from hipfile_conformance.scripted import fault
from hipfile_conformance.suite.registry import conformance

BUFFER = {"HIPFILE_ASYNC_BUFFER_SIZE": "65536"}


def world(t: Kit, size: int = 256 * KIB) -> tuple[int, int, int]:
    """File and buffer of `size` bytes, and a stream."""
    t.open()
    handle, pointer = t.handle(content=size), t.buffer(size)
    return handle, pointer, t.stream(register=0)


@conformance("chunk.bounce.owner", "chunk.bounce.size", "chunk.bounce.lifetime", needs="model hold", environment=BUFFER)
def test_bounce(t: Kit) -> None:
    handle, pointer, stream = world(t)

    def pinned() -> list[int]:
        return sorted(
            block.size for block in t.machine.memory.live() if block.kind == "pinned" and block.size >= 8 * KIB
        )

    registered = pinned()
    slots = Slots(24 * KIB), Slots(40 * KIB)
    with t.held(stream):
        for slot in slots:
            t.ok(t.read(handle, pointer, slot, stream))
        flying = pinned()
    t.finish(stream)
    t.machine.finish()
    after = pinned()
    t.expect("chunk.bounce.owner", len(flying) - len(registered), {"each operation": 2, "the stream": 0})
    sizes = {
        "min(size, 0x7ffff000)": [24 * KIB, 40 * KIB],
        "HIPFILE_ASYNC_BUFFER_SIZE, 16 MiB by default": [64 * KIB],
    }
    t.expect("chunk.bounce.size", flying, sizes)
    lifetime = {"by the monitor thread, after completion": [], "with the stream": [64 * KIB]}
    t.expect("chunk.bounce.lifetime", after, lifetime)


@conformance("chunk.number", "chunk.per-op", "chunk.cpu-copy", needs="faults", environment=BUFFER, schedules=False)
def test_number(t: Kit) -> None:
    handle, pointer, stream = world(t)
    seen = []
    for size in (1, 64 * KIB, 64 * KIB + 1, 200 * KIB):
        t.files.clear()
        slots = Slots(size)
        t.ok(t.read(handle, pointer, slots, stream))
        t.finish(stream)
        assert slots.done == size, slots.done
        seen.append(t.files.count("pread_into"))
    answers = {"1": [1, 1, 1, 1], "ceil(min(size, 0x7ffff000) / stream buffer)": [1, 1, 2, 4]}
    t.expect("chunk.number", seen, answers)
    t.expect("chunk.per-op", seen, {"one chunk": [1] * 4, "chunks of the stream's buffer": [1, 1, 2, 4]})
    t.files.clear()
    t.files.script("pread_into", [1000, 3000, 1])
    slots = Slots(32 * KIB)
    t.ok(t.read(handle, pointer, slots, stream))
    t.finish(stream)
    moved = (slots.done, t.files.count("pread_into"), t.bytes(pointer, 32 * KIB) == pattern(32 * KIB))
    t.expect("chunk.cpu-copy", moved, {"loop": (32 * KIB, 4, True)})


@conformance("chunk.kernel", "chunk.eof", "result.eof", environment=BUFFER, needs="hold")
def test_ranges_and_end(t: Kit) -> None:
    """Odd sizes and offsets, chunks included: the bytes of the range and no others; and reads that reach the end."""
    t.open()
    size = 200 * KIB
    handle, pointer, stream = t.handle(content=size), t.buffer(size), t.stream(register=0)
    cases = [(1, 0, 0), (7, 3, 1), (64 * KIB + 1, 5, 9), (130 * KIB + 3, 4 * KIB + 1, 17), (8, 8, 64 * KIB - 4)]
    cases += [
        (100, size - 50, 33),
        (64 * KIB, size - 64 * KIB - 1, 1),
        (16, size, 0),
        (16, size + 5, 3),
        (150 * KIB, 100 * KIB, 7),
    ]
    for length, offset, at in cases:
        t.ok(t.hipMemset(pointer, 0xAA, size))
        t.ok(t.hipDeviceSynchronize())
        slots = Slots(length, offset, at)
        t.ok(t.read(handle, pointer, slots, stream))
        t.finish(stream)
        count = max(0, min(length, size - offset))
        memory = t.bytes(pointer, size)
        rest = memory[:at] + memory[at + count :]
        exact = memory[at : at + count] == pattern(count, offset) and rest == b"\xaa" * len(rest)
        what = f"{length} bytes at {offset} to {at}"
        t.expect("chunk.kernel", exact, {"exact range": True}, what)
        if offset + length > size:
            t.expect("chunk.eof", (slots.done, exact), {"bytes to the end, rest untouched": (count, True)}, what)
            t.expect("result.eof", slots.done, {"bytes up to the end": count}, what)
        else:
            assert slots.done == length, (slots.done, what)


@conformance("chunk.kernel", "chunk.write.gap", "result.success", environment=BUFFER)
def test_writes(t: Kit) -> None:
    t.open()
    path = t.path()
    fd = t.file(b"\xcc" * 4 * KIB, path=path)
    handle, size = t.handle(fd), 200 * KIB
    source = pattern(size)
    host = t.host(size)
    import ctypes

    ctypes.memmove(host, source, size)
    pointer, stream = t.buffer(size), t.stream(register=0)
    t.ok(t.hipMemcpy(pointer, host, size, 1))
    t.ok(t.hipDeviceSynchronize())  # a copy from pageable memory may still be on its way
    expected = bytearray(b"\xcc" * 4 * KIB)
    for length, offset, at in (
        (10, 3, 1),
        (130 * KIB + 1, 1000, 13),
        (5, 300 * KIB, 7),
        (64 * KIB, 250 * KIB, 64 * KIB),
    ):
        slots = Slots(length, offset, at)
        t.ok(t.write(handle, pointer, slots, stream))
        t.finish(stream)
        gap = max(0, offset - len(expected))
        expected[len(expected) :] = b"\0" * gap
        expected[offset : offset + length] = source[at : at + length]
        what = f"{length} bytes from {at} to {offset}"
        found = Path(path).read_bytes()
        t.expect("chunk.kernel", found == bytes(expected), {"exact range": True}, what)
        t.expect("result.success", slots.done, {"total": length}, what)
        if gap:
            zeros = found[offset - gap : offset] == b"\0" * gap
            t.expect("chunk.write.gap", zeros, {"zeros": True}, what)


@conformance("order.shared-buffer", "order.other-streams", environment=BUFFER, needs="hold")
def test_two_streams(t: Kit) -> None:
    """Operations on two streams at once: each gets its own bytes, chunk by chunk."""
    t.open()
    size = 200 * KIB
    handle, pointer = t.handle(content=2 * size), t.buffer(2 * size)
    streams = [t.stream(register=0), t.stream(register=0)]
    for write in (False, True):
        slots = [Slots(size, n * size, n * size) for n in range(2)]
        with t.held(streams[0]), t.held(streams[1]):
            for stream, slot in zip(streams, slots, strict=True):
                t.ok((t.write if write else t.read)(handle, pointer, slot, stream))
        for stream in streams:
            t.finish(stream)
        good = t.bytes(pointer, 2 * size) == pattern(2 * size)
        what = "write" if write else "read"
        t.expect("order.other-streams", [slot.done for slot in slots], {"unordered": [size, size]}, what)
        t.expect("order.shared-buffer", good, {"kept apart": True, "bytes may mix": good}, what)


@conformance("chunk.late-file", needs="hold")
def test_file_late(t: Kit) -> None:
    t.open()
    fd = t.file(64 * KIB)
    handle, pointer, stream = t.handle(fd), t.buffer(64 * KIB), t.stream()
    slots = Slots(4 * KIB)
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        os.pwrite(fd, b"\x55" * 100, 0)
    t.finish(stream)
    t.expect("chunk.late-file", t.bytes(pointer, 100) == b"\x55" * 100, {"late": True}, "read")
    with t.held(stream):
        t.ok(t.write(handle, pointer, slots, stream))
        os.pwrite(fd, b"\x66" * 100, 0)
        other = t.stream()
        t.ok(t.hipMemsetAsync(pointer, 0x77, 100, other))
        t.finish(other)
        before = os.pread(fd, 100, 0)
    t.finish(stream)
    seen = (before, os.pread(fd, 100, 0))
    t.expect("chunk.late-file", seen, {"late": (b"\x66" * 100, b"\x77" * 100)}, "write")


@conformance("chunk.eintr", "chunk.cpu-copy", needs="faults", environment=BUFFER)
def test_interrupted(t: Kit) -> None:
    """The 16 KiB read whose transfers give 4096, EINTR, 100 and 0: 4196 bytes, and nothing behind them."""
    handle, pointer, stream = world(t)
    t.files.script("pread_into", [4096, fault(errno.EINTR), 100, 0])
    slots = Slots(16 * KIB)
    t.ok(t.read(handle, pointer, slots, stream))
    t.finish(stream)
    memory = t.bytes(pointer, 16 * KIB)
    seen = (slots.done, memory[:4196] == pattern(4196), set(memory[4196:]) == {0xAA})
    t.expect("chunk.cpu-copy", seen, {"loop": (4196, True, True)}, "ends at 0 bytes")
    t.expect("chunk.eintr", seen[0], {"repeated": 4196}, "read")
    t.files.clear()
    t.files.script("pwrite_from", [fault(errno.EINTR), 1000, fault(errno.EINTR), None])
    slots = Slots(16 * KIB)
    t.ok(t.write(handle, pointer, slots, stream))
    t.finish(stream)
    t.expect("chunk.eintr", slots.done, {"repeated": 16 * KIB}, "write")


@conformance(
    "chunk.landed",
    "result.partial-error",
    "result.io-error",
    "result.sticky",
    "chunk.advance",
    needs="faults",
    environment=BUFFER,
)
def test_error_in_a_chunk(t: Kit) -> None:
    """EIO in the fourth chunk: the count is lost, chunks one to three are there."""
    handle, pointer, stream = world(t, 320 * KIB)
    t.files.script("pread_into", [None, None, None, fault(errno.EIO)])
    if t.profile.async_bounce != "per-stream":
        t.files.clear()
        t.files.script("pread_into", [64 * KIB, 64 * KIB, 64 * KIB, fault(errno.EIO)])
    slots = Slots(320 * KIB)
    t.ok(t.read(handle, pointer, slots, stream))
    t.finish(stream)
    reads = t.files.count("pread_into")
    memory = t.bytes(pointer, 320 * KIB)
    landed = memory[: 192 * KIB] == pattern(192 * KIB)
    untouched = set(memory[192 * KIB :]) == {0xAA}
    answers = {
        "earlier chunks landed": (True, True),
        "one chunk, nothing landed": (False, True),
    }
    t.expect("chunk.landed", (landed, untouched), answers)
    t.expect("result.partial-error", slots.done, {"-1": -1})
    t.expect(
        "result.io-error",
        slots.done,
        {"-1": -1, "negated errno or code": -5, "-1 or a negated code": -1},
        variants=(-1, -5),
    )
    t.expect("result.sticky", (slots.done, reads), {"first failure": (-1, 4)}, "the chunks behind it do nothing")
    t.files.clear()
    slots = Slots(130 * KIB)
    t.ok(t.read(handle, pointer, slots, stream))
    t.finish(stream)
    offsets = [entry[3] for entry in t.files.log if entry[0] == "pread_into"]
    t.expect(
        "chunk.advance",
        (slots.done, offsets),
        {"total += chunk": (130 * KIB, [0, 64 * KIB, 128 * KIB]), "no chunks": (130 * KIB, [0])},
    )


@conformance("chunk.after-eof", needs="faults", environment=BUFFER, schedules=False)
def test_growing_file(t: Kit) -> None:
    """The file ends in the first chunk and has grown by the time of the second."""
    t.open()
    fd = t.file(1000)
    handle, pointer, stream = t.handle(fd), t.buffer(256 * KIB), t.stream(register=0)

    def grow(where: int, view: memoryview, offset: int) -> int:
        os.pwrite(fd, pattern(500, 1000), 1000)
        return os.preadv(where, [view], offset)

    t.files.script("pread_into", [None, None, grow])
    slots = Slots(192 * KIB)
    t.ok(t.read(handle, pointer, slots, stream))
    t.finish(stream)
    seen = (slots.done, t.bytes(pointer, slots.done) == pattern(slots.done))
    answers = {"pread again; bytes that appeared meanwhile count": (1500, True), "no chunks": (1000, True)}
    t.expect("chunk.after-eof", seen, answers)


@conformance("chunk.surplus", needs="hold model", environment=BUFFER)
def test_surplus(t: Kit) -> None:
    handle, pointer, stream = world(t)
    slots = Slots(256 * KIB)
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        slots.set(size=100 * KIB)
    t.finish(stream)
    memory = t.bytes(pointer, 256 * KIB)
    exact = memory[: 100 * KIB] == pattern(100 * KIB) and set(memory[100 * KIB :]) == {0xAA}
    t.expect("chunk.surplus", (slots.done, exact), {"no effect": (100 * KIB, True), "no chunks": (100 * KIB, True)})


@conformance("chunk.short-write", "chunk.kernel-length", needs="faults", environment=BUFFER)
def test_short_write(t: Kit) -> None:
    t.open()
    fd = t.file(b"")
    handle, pointer, stream = t.handle(fd), t.buffer(256 * KIB), t.stream(register=0)
    t.files.script("pwrite_from", [1000, 0])
    slots = Slots(64 * KIB)
    t.ok(t.write(handle, pointer, slots, stream))
    t.finish(stream)
    t.expect("chunk.short-write", (slots.done, os.fstat(fd).st_size), {"short count": (1000, 1000)}, "one chunk")
    t.files.clear()
    t.files.script("pwrite_from", [1000, 0])
    slots = Slots(128 * KIB)
    t.ok(t.write(handle, pointer, slots, stream))
    t.finish(stream)
    rest = 1000 + 64 * KIB if t.profile.async_bounce == "per-stream" else 1000
    t.expect("chunk.short-write", slots.done, {"short count": rest}, "two chunks")
    t.files.clear()
    t.files.script("pread_into", [700, 0])
    t.ok(t.hipMemset(pointer, 0xAA, 256 * KIB))
    slots = Slots(64 * KIB)
    t.ok(t.read(handle, pointer, slots, stream))
    t.finish(stream)
    beyond = set(t.bytes(pointer + 700, 1000)) == {0xAA}
    answers = ("read: bytes read; write: size", "read: bytes read; write: min(buffer, remaining)")
    t.expect("chunk.kernel-length", (slots.done, beyond), dict.fromkeys(answers, (700, True)))
    t.files.clear()
    slots = Slots(100 * KIB)
    t.ok(t.write(handle, pointer, slots, stream))
    t.finish(stream)
    lengths = [entry[2] for entry in t.files.log if entry[0] == "pwrite_from"]
    sizes = {answers[0]: [100 * KIB], answers[1]: [64 * KIB, 36 * KIB]}
    t.expect("chunk.kernel-length", lengths, sizes, "write")


@conformance("chunk.kernel-unbound", needs="model", schedules=False)
def test_unbound_kernel(t: Kit) -> None:
    """The device side of an operation whose bind never ran."""
    handle, pointer, stream = world(t)
    t.need(t.profile.async_generation in ("g1", "g2"), "no separate device side here")
    record = t.record()
    slots = Slots(4 * KIB)
    with t.held(stream):
        t.ok(t.write(handle, pointer, slots, stream))  # the device side comes first
        operation = record.commands[-1].op  # type: ignore[attr-defined]
        operation.bounce = None
    t.finish(stream)
    t.expect("chunk.kernel-unbound", slots.done, {"bytes_done -5022": -5022})


@conformance("chunk.sync-to-disk", needs="faults", schedules=False)
def test_no_sync(t: Kit) -> None:
    handle, pointer, stream = world(t)
    t.files.clear()
    t.ok(t.write(handle, pointer, Slots(4 * KIB), stream))
    t.finish(stream)
    t.expect("chunk.sync-to-disk", t.files.count("fdatasync"), {"no fdatasync": 0})


@conformance("result.io-error", "result.enospc", seconds=15)
def test_io_errors(t: Kit) -> None:
    """Writing through a read-only descriptor fails when the operation runs; a full disk reads the same."""
    t.open()
    handle, pointer, stream = t.handle(t.file(flags=os.O_RDONLY)), t.buffer(8 * KIB), t.stream()
    slots = Slots(4 * KIB)
    t.ok(t.write(handle, pointer, slots, stream))
    t.finish(stream)
    t.expect(
        "result.io-error",
        slots.done,
        {"-1": -1, "negated errno or code": -5, "-1 or a negated code": -1},
        variants=(-1, -5, -9),
    )
    if t.has("faults"):
        good = t.handle()
        seen = []
        for code in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            t.files.script("pwrite_from", [fault(code)])
            slots = Slots(4 * KIB)
            t.ok(t.write(good, pointer, slots, stream))
            t.finish(stream)
            seen.append(slots.done)
        t.expect("result.enospc", seen, {"-1": [-1, -1, -1]})


@conformance("chunk.kernel", full_only=True, environment={"HIPFILE_ASYNC_BUFFER_SIZE": "1"})
def test_one_byte_chunks(t: Kit) -> None:
    handle, pointer, stream = world(t, 4 * KIB)
    slots = Slots(300, 5, 9)
    t.ok(t.read(handle, pointer, slots, stream))
    t.finish(stream)
    exact = slots.done == 300 and t.bytes(pointer + 9, 300) == pattern(300, 5)
    t.expect("chunk.kernel", exact, {"exact range": True}, "chunks of one byte")


@conformance("result.success", full_only=True, seconds=60)
def test_large(t: Kit) -> None:
    """64 MiB: several chunks of the default size."""
    t.open()
    size = 64 * MIB
    handle, pointer, stream = t.handle(content=size), t.device(size), t.stream()
    slots = Slots(size)
    t.ok(t.read(handle, pointer, slots, stream))
    t.finish(stream)
    good = all(t.bytes(pointer + at, 8) == pattern(8, at) for at in range(0, size, 4 * MIB))
    t.expect("result.success", (slots.done, good), {"total": (size, True)})
