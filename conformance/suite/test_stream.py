"""Stream registration, its memory, and the default stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipfile_conformance.kit import KIB, MIB, Kit, Slots, code_text
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import Status

BUFFER = "HIPFILE_ASYNC_BUFFER_SIZE"


def register(t: Kit, stream: int, flags: int = 0) -> Status:
    return Status(*t.hipFileStreamRegister(stream, flags))


def pinned_bytes(t: Kit) -> int:
    """Pinned memory in buffers (not in single words) that is allocated now, in bytes (the model)."""
    return sum(block.size for block in t.machine.memory.live() if block.kind == "pinned" and block.size > 4 * KIB)


@conformance(
    "stream.register.duplicate", "stream.register.flags", "stream.flags.bits", "stream.async-supported", schedules=False
)
def test_register(t: Kit) -> None:
    t.open()
    seen = []
    for flags in range(16):
        stream = t.stream()
        status = register(t, stream, flags)
        seen.append(code_text(status))
        t.code("stream.register.duplicate", register(t, stream, flags), f"flags {flags}")
    t.expect("stream.flags.bits", seen, {"1, 2, 4, 8": ["Success"] * 16})
    odd = [register(t, t.stream(), flags) for flags in (16, 0xFF, 0x80000000)]
    for status in odd:
        t.code("stream.register.flags", status)
    never = "AsyncNotSupported" in [*seen, *map(code_text, odd)]
    t.expect("stream.async-supported", never, {"never AsyncNotSupported": False})


@conformance("stream.register.order", "stream.register.device-error", "stream.device", needs="model", schedules=False)
def test_register_order(t: Kit) -> None:
    asked: list[int] = []

    def watch(call: str, args: Sequence[Any]) -> int | None:
        if call == "hipStreamGetDevice":
            asked.append(1)
            return 709 if failing else None
        return None

    failing = True
    stream = t.stream()
    t.machine.hip.interpose = watch
    flags_first = code_text(register(t, stream, 64))
    untouched = len(asked)
    device = register(t, stream, 0)
    failing = False
    t.ok(t.hipFileStreamRegister(stream, 0))
    asked.clear()
    duplicate = code_text(register(t, stream, 64))
    t.machine.hip.interpose = None
    t.expect(
        "stream.register.order",
        (flags_first, untouched, duplicate, len(asked)),
        {"duplicate, flags, device": ("InvalidValue", 0, "InvalidValue", 0)},
    )
    t.expect("stream.register.device-error", device, {"{HipDriverError, e}": Status(5011, 709)})
    t.open()
    t.machine.hip.interpose = watch
    asked.clear()
    t.ok(t.read(t.handle(), t.device(4 * KIB), Slots(16), stream))
    t.machine.hip.interpose = None
    t.expect("stream.device", len(asked), {"hipStreamGetDevice": 0}, "not asked again for a registered stream")


@conformance("stream.null", "stream.unregistered", schedules=True)
def test_streams_that_work(t: Kit) -> None:
    t.open()
    handle, pointer = t.handle(), t.buffer(8 * KIB)
    results = []
    for stream in (0, 2, t.stream(0), t.stream(1)):
        slots = Slots(4 * KIB)
        status = t.read(handle, pointer, slots, stream)
        t.finish(stream)
        results.append((code_text(status), slots.done))
    t.expect("stream.unregistered", results, {"works": [("Success", 4 * KIB)] * 4})
    status = register(t, 0, 7)
    slots = Slots(4 * KIB)
    used = t.read(handle, pointer, slots, 0)
    t.finish(0)
    t.code("stream.null", status, "register")
    t.expect("stream.null", (code_text(used), slots.done), {"Success": ("Success", 4 * KIB)}, "use")
    t.ok(t.hipFileStreamDeregister(0))


@conformance("stream.unregistered.flags", needs="hold")
def test_unregistered_is_flags_zero(t: Kit) -> None:
    t.open()
    handle, pointer, stream, slots = t.handle(content=64 * KIB), t.buffer(16 * KIB), t.stream(), Slots(8 * KIB)
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        slots.set(size=100, file_offset=4 * KIB, buffer_offset=512)
    t.finish(stream)
    first = int.from_bytes(t.bytes(pointer + 512, 4), "little")
    t.expect("stream.unregistered.flags", (slots.done, first), {"flags 0": (100, KIB)})


@conformance("stream.deregister.ok", "stream.deregister.unknown", schedules=False)
def test_deregister(t: Kit) -> None:
    t.open()
    stream = t.stream()
    t.code("stream.deregister.unknown", Status(*t.hipFileStreamDeregister(stream)), "never registered")
    t.code("stream.deregister.unknown", Status(*t.hipFileStreamDeregister(0)), "null")
    t.ok(t.hipFileStreamRegister(stream, 0))
    t.code("stream.deregister.ok", Status(*t.hipFileStreamDeregister(stream)))
    t.code("stream.deregister.unknown", Status(*t.hipFileStreamDeregister(stream)), "twice")
    t.ok(t.hipFileStreamRegister(stream, 7))
    t.ok(t.hipFileStreamDeregister(stream))


@conformance("stream.deregister.in-flight", needs="hold")
def test_deregister_in_flight(t: Kit) -> None:
    t.open()
    handle, pointer, stream, slots = t.handle(), t.buffer(8 * KIB), t.stream(register=0), Slots(8 * KIB)
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        waits = t.blocks(lambda: t.hipFileStreamDeregister(stream))
        code = None if waits else code_text(Status(*t.result))
    t.finish(stream)
    t.cleanup_threads()
    answers = {"Success": (False, "Success"), "waits for the operations, then Success": (True, None)}
    t.expect("stream.deregister.in-flight", (waits, code), answers)
    t.expect("stream.deregister.in-flight", slots.done, 8 * KIB, "the operation ends normally")


@conformance("stream.destroyed-early", needs="hold")
def test_destroyed_early(t: Kit) -> None:
    """Nobody promises anything; what happens is written down."""
    t.open()
    handle, pointer, stream, slots = t.handle(), t.buffer(8 * KIB), t.stream(), Slots(8 * KIB)
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        t.ok(t.hipStreamDestroy(stream))
    t.ok(t.hipDeviceSynchronize())
    t.progress()
    t.expect("stream.destroyed-early", slots.done, None, "count of an operation in flight")


@conformance(
    "stream.memory",
    "stream.memory.unregistered",
    "stream.deregister.memory-late",
    needs="model",
    environment={BUFFER: "1048576"},
)
def test_memory(t: Kit) -> None:
    t.open()
    before = pinned_bytes(t)
    stream = t.stream(register=0)
    cost = pinned_bytes(t) - before
    t.expect("stream.memory", cost, {"nothing": 0, "one pinned buffer of the configured size": MIB})
    other, slots = t.stream(), Slots(4 * KIB)
    handle, pointer = t.handle(), t.device(4 * KIB)
    before = pinned_bytes(t)
    with t.held(other):
        t.ok(t.read(handle, pointer, slots, other))
        during = pinned_bytes(t) - before >= MIB
    t.finish(other)
    t.machine.finish()
    after = pinned_bytes(t) - before
    answers = {"nothing": (False, 0), "a pinned buffer of the configured size, freed later": (True, 0)}
    t.expect("stream.memory.unregistered", (during, after), answers)
    if t.profile.stream_in_use == "wait":
        return  # the deregistration below would wait for the operation
    busy = Slots(4 * KIB)
    with t.held(stream):
        t.ok(t.read(handle, pointer, busy, stream))
        t.ok(t.hipFileStreamDeregister(stream))
        kept = pinned_bytes(t) - before >= 0 if cost else None
    t.finish(stream)
    t.machine.finish()
    freed = pinned_bytes(t)
    answers2 = {"no memory": (None, True), "monitor frees it": (True, True)}
    t.expect("stream.deregister.memory-late", (kept, freed <= before - cost), answers2)


@conformance("stream.memory.exhausted", needs="model", settings={"pinned_memory": 64 * KIB}, schedules=False)
def test_memory_exhausted(t: Kit) -> None:
    status = register(t, t.stream())
    answers = {"not needed": Status(0, 0), "{HipDriverError, hipErrorOutOfMemory}": Status(5011, 2)}
    t.expect("stream.memory.exhausted", status, answers)


@conformance("stream.memory.null", needs="model", schedules=False)
def test_memory_null(t: Kit) -> None:
    real = t.machine.hip.hipHostMalloc
    t.machine.hip.hipHostMalloc = lambda size, flags=0: (real(0, 0)[0], 0)  # type: ignore[method-assign]
    status = register(t, t.stream())
    t.expect("stream.memory.null", code_text(status), {"not needed": "Success", "InternalError": "InternalError"})
