"""Binding: which slots are read late, and what late values do."""

from __future__ import annotations

import time

from hipfile_conformance.kit import KIB, SENTINEL, Kit, Slots, pattern
from hipfile_conformance.suite.registry import conformance

SUBMITTED = {"size": 8 * KIB, "file_offset": 4 * KIB, "buffer_offset": 0}
CHANGED = {"size": 4 * KIB, "file_offset": 32 * KIB, "buffer_offset": 16 * KIB}
SLOTS = ("size", "file offset", "buffer offset")


def observed(
    t: Kit, handle: int, pointer: int, flags: int | None, change: dict[str, int], registered_again: int | None = None
) -> set[str]:
    """Which of the slots in `change` were read late? Found out from the bytes alone.

    `registered_again`: flags of another registration that comes before the stream gets to the operation.
    """
    stream = t.stream(register=flags)
    t.ok(t.hipMemset(pointer, 0xAA, 64 * KIB))
    t.ok(t.hipDeviceSynchronize())
    slots = Slots(**SUBMITTED)
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        slots.set(**change)
        if registered_again is not None:
            t.ok(t.hipFileStreamDeregister(stream))
            t.ok(t.hipFileStreamRegister(stream, registered_again))
    t.finish(stream)
    late = set()
    memory = t.bytes(pointer, 64 * KIB)
    if slots.done == CHANGED["size"]:
        late.add("size")
    start = CHANGED["buffer_offset"] if memory[CHANGED["buffer_offset"]] != 0xAA else 0
    if start:
        late.add("buffer offset")
    word = int.from_bytes(memory[start : start + 4], "little") * 4
    if word == CHANGED["file_offset"]:
        late.add("file offset")
    expected = pattern(slots.done, word)
    if memory[start : start + slots.done] != expected or set(memory[start + slots.done : start + slots.done + 16]) != {
        0xAA
    }:
        at = next((n for n, (a, b) in enumerate(zip(memory[start:], expected, strict=False)) if a != b), slots.done)
        late.add(f"wrong bytes from {at}: {memory[start + at : start + at + 8].hex()}")
        if t.has("real"):  # do they come later?
            time.sleep(0.05)
            arrived = t.bytes(pointer, 64 * KIB)
            places = [n for n in range(0, 64 * KIB, 4 * KIB) if set(arrived[n : n + 16]) != {0xAA}]
            late.add(f"50 ms later {places}")
    return late


def _late_words(answer: str) -> set[str]:
    words = answer.rpartition("late: ")[2]
    return set() if words == "none" else set(words.split(", "))


def flags_test(flags: int) -> None:
    clause = f"bind.flags.{flags:03b}"

    def test(t: Kit) -> None:
        t.open()
        handle, pointer = t.handle(content=64 * KIB), t.buffer(64 * KIB)
        answer = t.answer(clause)
        expected = _late_words(answer)
        for extra in (0, 8):
            if extra and t.answer("submit.page-aligned") != "stored, never used":
                continue  # this release judges the values at submit instead
            seen = observed(t, handle, pointer, flags | extra, CHANGED)
            t.expect(clause, seen, {answer: expected}, "every slot changed")
            if extra:
                t.expect("bind.page-aligned", seen, {"no effect": expected})
        one = {
            name: observed(t, handle, pointer, flags, {name.replace(" ", "_"): CHANGED[name.replace(" ", "_")]})
            for name in SLOTS
        }
        t.expect(clause, one, {answer: {name: {name} & expected for name in SLOTS}}, "one slot changed")
        t.expect("bind.late", seen & expected, {"late values used": expected})
        t.expect("bind.captured", seen - expected, {"copied": set()})

    test.__name__ = f"test_flags_{flags:03b}"
    conformance(clause, "bind.late", "bind.captured", "bind.page-aligned", needs="hold")(test)


for _flags in range(8):
    flags_test(_flags)


@conformance("bind.captured", "bind.late", needs="hold")
def test_registered_again(t: Kit) -> None:
    """The flags that count are those at submit; a registration that follows is for what follows."""
    t.need(t.answer("stream.deregister.in-flight") == "Success", "the deregistration waits for the operation")
    t.open()
    handle, pointer = t.handle(content=64 * KIB), t.buffer(64 * KIB)
    seen = observed(t, handle, pointer, 0, CHANGED, registered_again=7)
    t.expect("bind.late", seen, {"late values used": set(SLOTS)}, "flags 0, then 7")
    seen = observed(t, handle, pointer, 7, CHANGED, registered_again=0)
    t.expect("bind.captured", seen, {"copied": set()}, "flags 7, then 0")


@conformance("bind.fixed", "bind.late", needs="hold")
def test_fixed(t: Kit) -> None:
    """All three fixed, size changed to 0: the whole count or nothing."""
    t.open()
    handle, pointer = t.handle(content=64 * KIB), t.buffer(64 * KIB)
    for write in (False, True):
        stream, slots = t.stream(register=7), Slots(8 * KIB)
        with t.held(stream):
            t.ok((t.write if write else t.read)(handle, pointer, slots, stream))
            slots.set(size=0)
        t.finish(stream)
        answers = {"nothing: the value at submit is used": 8 * KIB, "the changed value is used": 0}
        t.expect("bind.fixed", slots.done, answers, "write" if write else "read")
    stream, slots = t.stream(register=0), Slots(8 * KIB)
    with t.held(stream):
        t.ok(t.write(handle, pointer, slots, stream))
        slots.set(size=100)
    t.finish(stream)
    t.expect("bind.late", slots.done, {"late values used": 100}, "a write")


@conformance("bind.grown", "bind.shrunk", "bind.failed-inert", "result.invalid-late", "result.sticky", needs="hold")
def test_changed_sizes(t: Kit) -> None:
    t.open()
    handle, pointer = t.handle(content=64 * KIB), t.buffer(64 * KIB)
    for size in (16 * KIB, 8 * KIB + 1):
        stream, slots = t.stream(), Slots(8 * KIB)
        t.ok(t.hipMemset(pointer, 0xAA, 64 * KIB))
        t.ok(t.hipDeviceSynchronize())
        with t.held(stream):
            t.ok(t.read(handle, pointer, slots, stream))
            slots.set(size=size)
        t.finish(stream)
        t.expect("bind.grown", slots.done, {"bytes_done -5022": -5022, "the grown size is used": size}, str(size))
        untouched = t.bytes(pointer, 64 * KIB) == b"\xaa" * 64 * KIB
        t.expect("bind.failed-inert", untouched, {"no bytes move": True})
        t.expect("result.invalid-late", slots.done, {"-5022": -5022})
        t.expect("result.sticky", slots.done, {"first failure": -5022})
    for size in (0, 1, 4 * KIB + 7):
        stream, slots = t.stream(), Slots(8 * KIB)
        with t.held(stream):
            t.ok(t.read(handle, pointer, slots, stream))
            slots.set(size=size)
        t.finish(stream)
        t.expect("bind.shrunk", slots.done, {"honoured": size}, str(size))


@conformance("bind.range", "bind.range.late", needs="hold")
def test_late_ranges(t: Kit) -> None:
    t.open()
    handle, memory = t.handle(content=64 * KIB), t.device(128 * KIB)
    pointer = memory + 32 * KIB
    t.ok(t.hipFileBufRegister(pointer, 32 * KIB, 0))
    cases = {
        "size": {"size": 8 * KIB, "buffer_offset": 28 * KIB},
        "buffer offset": {"buffer_offset": 32 * KIB},
        "file offset": {"file_offset": -1},
        "negative buffer offset": {"buffer_offset": -8},
    }
    got = {}
    for what, change in cases.items():
        stream, slots = t.stream(), Slots(8 * KIB)
        with t.held(stream):
            t.ok(t.read(handle, pointer, slots, stream))
            slots.set(**change)
        t.finish(stream)
        got[what] = slots.done
        used = {"size": -5, "buffer offset": -5, "file offset": -1, "negative buffer offset": 8 * KIB}
        ranges = {"bytes_done -5022": -5022, "bytes_done -5 or -1, or the range is used": used[what]}
        t.expect("bind.range", slots.done, ranges, what)
    late = "size or high buffer offset -5016, file offset -1 or -5022, negative buffer offset -5030"
    at_run = "size or high buffer offset -5, file offset -1, a negative buffer offset is used"
    answers = {
        "submit checks": dict.fromkeys(cases, -5022),
        late: {"size": -5016, "buffer offset": -5016, "file offset": -1, "negative buffer offset": -5030},
        at_run: {"size": -5, "buffer offset": -5, "file offset": -1, "negative buffer offset": 8 * KIB},
    }
    t.expect("bind.range.late", got, answers)


@conformance(
    "bind.clamp",
    "bind.fixed.clamp",
    needs="model hold",
    settings={"device_memory": 1 << 33, "pinned_memory": 1 << 33},
    schedules=False,
)
def test_clamped(t: Kit) -> None:
    """A size above the largest count: the number of bytes asked of the file says what it was clamped to."""
    t.need(t.profile.async_bounce == "per-stream", "an operation of that size would need a bounce buffer of 2 GiB here")
    t.open()
    handle, pointer = t.handle(content=100), t.ok(t.hipMalloc(0x7FFFF000))
    for flags, clause in ((0, "bind.clamp"), (7, "bind.fixed.clamp")):
        stream, slots = t.stream(register=flags), Slots((1 << 33) if flags else 0x7FFFF000)
        with t.held(stream):
            t.ok(t.read(handle, pointer, slots, stream))
            slots.set(size=1 << 40)
        t.finish(stream)
        answers = {"min(size, 0x7ffff000)": 100, "yes": 100}
        t.expect(clause, slots.done, answers)


@conformance("bind.fixed.clamp", needs="model", schedules=False)
def test_fixed_not_clamped(t: Kit) -> None:
    """Releases with a bounce buffer per operation do not clamp; the overrun itself is not imitated."""
    t.need(t.profile.async_bounce == "per-op", "only releases with a bounce buffer per operation")
    t.expect(
        "bind.fixed.clamp",
        t.profile.fixed_size_clamped,
        {"no: a size above it overruns the bounce buffer": False, "yes": True},
    )


@conformance("bind.none-when-all-fixed", "bind.rewrites-fixed", needs="model hold", schedules=False)
def test_bind_command(t: Kit) -> None:
    t.open()
    handle, pointer = t.handle(content=64 * KIB), t.buffer(64 * KIB)
    seen = {}
    for flags in range(16):
        stream = t.stream(register=flags)
        record = t.record()
        record.commands.clear()
        t.ok(t.read(handle, pointer, Slots(4 * KIB), stream))
        seen[flags] = "bind" in record.kinds()
        t.machine.remove_observer(record)
        t.finish(stream)
    t.expect("bind.none-when-all-fixed", [f for f, bound in seen.items() if not bound], {"no bind command": [7, 15]})
    late = observed(t, handle, pointer, 4, {"size": CHANGED["size"], "file_offset": CHANGED["file_offset"]})
    t.expect("bind.rewrites-fixed", late, {"no effect": {"file offset"}})


@conformance("bind.result-slot", "result.slot-width", "bind.pointer-lifetime", needs="hold")
def test_result_slot(t: Kit) -> None:
    """The result is written when the operation ends, as 64 bits, whatever the flags; nothing beside it changes."""
    t.open()
    handle, pointer = t.handle(content=64 * KIB), t.buffer(64 * KIB)
    import ctypes

    for flags in (0, 7, 15):
        if flags & 8 and t.answer("submit.page-aligned") != "stored, never used":
            continue
        stream = t.stream(register=flags)
        values = Slots(4 * KIB)
        cells = (ctypes.c_int64 * 3)(-1, SENTINEL, -1)
        with t.held(stream):
            t.ok(t.hipFileReadAsync(handle, pointer, *values.addresses[:3], ctypes.addressof(cells) + 8, stream))
            if not t.has("real"):
                cells[1] = (7 << 32) + 5  # all 64 bits are written (cuFile asserts that nobody does this)
        t.finish(stream)
        t.expect("bind.result-slot", cells[1], {"late": 4 * KIB}, f"flags {flags}")
        t.expect("result.slot-width", list(cells), {"ssize_t": [-1, 4 * KIB, -1]}, f"flags {flags}")
        # the test keeps its duty: the slots live until the stream was synchronised
        t.expect("bind.pointer-lifetime", values.cells[0], {"caller's duty": 4 * KIB}, f"flags {flags}")
