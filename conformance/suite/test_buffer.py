"""Buffers: registration, deregistration, temporary buffers, and what I/O makes of other memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hipfile_conformance.kit import KIB, MIB, Kit, Slots, code_text, io_text, pattern
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import Status

HUGE = (1 << 64) - 1


def register(t: Kit, pointer: int, length: int, flags: int = 0) -> Status:
    return Status(*t.hipFileBufRegister(pointer, length, flags))


def name(status: Status) -> str:
    return code_text(status)


@conformance(
    "buffer.register.duplicate",
    "buffer.register.overlap",
    "buffer.register.interior",
    "buffer.register.flags",
    schedules=False,
)
def test_register(t: Kit) -> None:
    t.open()
    pointer = t.device(64 * KIB)
    t.ok(t.hipFileBufRegister(pointer, 64 * KIB, 0))
    t.code("buffer.register.duplicate", register(t, pointer, 64 * KIB), "the same length")
    t.code("buffer.register.duplicate", register(t, pointer, 4 * KIB), "another length")
    t.code("buffer.register.overlap", register(t, pointer + 4 * KIB, 8 * KIB))
    t.code("buffer.register.interior", register(t, pointer + 16 * KIB + 3, 100))
    for flags in (1, 0xFF, -1):
        base = pointer + 32 * KIB
        t.expect("buffer.register.flags", name(register(t, base, 16, flags)), {"ignored": "Success"}, str(flags))
        t.ok(t.hipFileBufDeregister(base))


@conformance("buffer.register.null", "buffer.register.type", "buffer.register.range", schedules=False)
def test_register_refused(t: Kit) -> None:
    t.open()
    t.code("buffer.register.null", register(t, 0, 4 * KIB))
    pointer = t.device(64 * KIB)
    for base, length in (
        (pointer, 128 * KIB),
        (pointer + 32 * KIB, 64 * KIB),
        (pointer, HUGE),
        (pointer, 64 * KIB + 1),
    ):
        t.code("buffer.register.range", register(t, base, length), f"+{base - pointer}, {length}")
    kinds = {"pinned": t.pinned(4 * KIB), "plain": t.host(4 * KIB)}
    code, managed = t.hipMallocManaged(4 * KIB, 1)
    if code == 0:
        kinds["managed"] = managed
    seen = {kind: name(register(t, where, 4 * KIB)) for kind, where in kinds.items()}
    refused = dict.fromkeys(kinds, "HipMemoryTypeInvalid")
    system_memory = {kind: "Success" if kind != "managed" else "HipMemoryTypeInvalid" for kind in kinds}
    answers = {
        "HipMemoryTypeInvalid": refused,
        "host memory registers, managed memory is HipMemoryTypeInvalid": system_memory,
    }
    t.expect("buffer.register.type", seen, answers)


@conformance("buffer.register.order", needs="model", fresh=True, schedules=False)
def test_register_order(t: Kit) -> None:
    pointer = t.device(4 * KIB)
    steps = [("null", name(register(t, 0, 4 * KIB)), t.hipFileUseCount())]
    t.ok(t.hipFileBufRegister(pointer, 4 * KIB, 0))
    t.machine.hip.interpose = lambda call, args: 1 if call == "hipPointerGetAttributes" else None
    steps.append(("duplicate before attributes", name(register(t, pointer, HUGE)), 1))
    steps.append(("attributes before type", name(register(t, t.host(16), 16)), 1))
    t.machine.hip.interpose = None
    steps.append(("type before range", name(register(t, t.pinned(16), HUGE)), 1))
    steps.append(("range", name(register(t, pointer + 16, HUGE)), 1))
    expected = [
        "InvalidValue",
        "MemoryAlreadyRegistered",
        "InvalidValue",
        "HipMemoryTypeInvalid",
        "HipPointerRangeError",
    ]
    seen = [code for _, code, count in steps]
    answer = "init, duplicate, null, attributes, type, range"
    t.expect("buffer.register.order", (seen, steps[0][2]), {answer: (expected, 1)})


@conformance("buffer.register.attributes", "buffer.register.range-query", needs="model", schedules=False)
def test_hip_failures(t: Kit) -> None:
    t.open()
    pointer = t.device(4 * KIB)

    def with_failure(call: str, code: int) -> str:
        t.machine.hip.interpose = lambda made, args: code if made == call else None
        try:
            return name(register(t, pointer, 16))
        finally:
            t.machine.hip.interpose = None

    attributes = {code: with_failure("hipPointerGetAttributes", code) for code in (1, 3, 999)}
    expected = {1: "InvalidValue", 3: "{HipDriverError, 3}", 999: "{HipDriverError, 999}"}
    t.expect("buffer.register.attributes", attributes, {"InvalidValue or {HipDriverError, e}": expected})
    ranges = {code: with_failure("hipMemGetAddressRange", code) for code in (1, 500, 3)}
    expected = {1: "InvalidValue", 500: "InvalidValue", 3: "{HipDriverError, 3}"}
    t.expect("buffer.register.range-query", ranges, {"InvalidValue or {HipDriverError, e}": expected})


@conformance("buffer.register.length-zero", schedules=False)
def test_length_zero(t: Kit) -> None:
    t.open()
    pointer = t.device(4 * KIB)
    status = register(t, pointer, 0)
    t.code("buffer.register.length-zero", status)
    if status.err == 0:
        read = t.hipFileRead(t.handle(), pointer, 0, 0, 0)
        t.expect(
            "buffer.register.length-zero",
            read[0] < 0,
            {"Success": True, "InvalidValue": True},
            "an operation on it fails",
        )


@conformance("buffer.deregister.ok", "buffer.deregister.unknown", schedules=False)
def test_deregister(t: Kit) -> None:
    t.open()
    pointer = t.buffer(64 * KIB)
    t.code("buffer.deregister.unknown", Status(*t.hipFileBufDeregister(pointer + 16)), "an interior pointer")
    t.code("buffer.deregister.ok", Status(*t.hipFileBufDeregister(pointer)))
    t.code("buffer.deregister.unknown", Status(*t.hipFileBufDeregister(pointer)), "twice")


@conformance("buffer.deregister.closed", fresh=True, schedules=False)
def test_deregister_closed(t: Kit) -> None:
    pointer = t.device(4 * KIB)
    t.code("buffer.deregister.closed", Status(*t.hipFileBufDeregister(pointer)))


@conformance("buffer.deregister.in-use", "buffer.deregister.after-sync", needs="hold")
def test_deregister_in_use(t: Kit) -> None:
    t.open()
    handle, pointer, stream, slots = t.handle(), t.buffer(8 * KIB), t.stream(), Slots(8 * KIB)
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        waits = t.blocks(lambda: t.hipFileBufDeregister(pointer))
        code = None if waits else Status(*t.result).err
        kept = None if waits else register(t, pointer, 16).err
    t.finish(stream)
    t.cleanup_threads()
    answers = {
        "InternalError at once, stays registered": (False, 5030, 5023),
        "waits for the operation, then Success": (True, None, None),
    }
    t.expect("buffer.deregister.in-use", (waits, code, kept), answers)
    t.expect("buffer.deregister.in-use", slots.done, 8 * KIB, "the operation ends in full")
    if waits:
        t.expect("buffer.deregister.after-sync", register(t, pointer, 16).err, 0, "registers again")
    else:
        t.code("buffer.deregister.after-sync", Status(*t.hipFileBufDeregister(pointer)))


@conformance("buffer.deregister.in-use", needs="hold")
def test_deregister_partly_done(t: Kit) -> None:
    """A buffer is in use until the last of its operations is complete, however others of them have ended."""
    t.open()
    handle, quick, slow = t.handle(), t.stream(), t.stream()
    others: dict[str, Callable[[int], Any]] = {
        "complete": lambda pointer: t.read(handle, pointer, Slots(KIB), quick),
        "refused for its range": lambda pointer: t.read(handle, pointer, Slots(64 * KIB), quick),
        "synchronous": lambda pointer: t.hipFileRead(handle, pointer, KIB, 0, 0),
    }
    answers = {
        "InternalError at once, stays registered": (False, 5030, 4 * KIB),
        "waits for the operation, then Success": (True, None, 4 * KIB),
    }
    for how, other in others.items():
        pointer, slots = t.buffer(8 * KIB), Slots(4 * KIB, 0, 4 * KIB)
        with t.held(slow):
            t.ok(t.read(handle, pointer, slots, slow))
            other(pointer)
            t.finish(quick)
            waits = t.blocks(lambda pointer=pointer: t.hipFileBufDeregister(pointer))
            code = None if waits else Status(*t.result).err
        t.finish(slow)
        t.cleanup_threads()
        t.expect("buffer.deregister.in-use", (waits, code, slots.done), answers, f"another one is {how}")


@conformance("buffer.temporary", "buffer.temporary-length", "buffer.interior-pointer", schedules=False)
def test_unregistered(t: Kit) -> None:
    t.open()
    handle = t.handle(content=64 * KIB)
    pointer = t.device(8 * KIB)
    read = t.hipFileRead(handle, pointer, 4 * KIB, 8, 0)
    seen = (read[0], t.bytes(pointer, 4 * KIB) == pattern(4 * KIB, 8))
    t.expect("buffer.temporary", seen, {"works": (4 * KIB, True)}, "read")
    t.expect("buffer.temporary", t.hipFileWrite(handle, pointer, 16, 0, 0)[0], {"works": 16}, "write")
    whole = t.hipFileRead(handle, pointer + 4 * KIB, 4 * KIB, 0, 0)[0]
    # where nothing checks, the call would leave the allocation: it is not made
    checked = t.answer("buffer.temporary-length") == "allocation end - pointer"
    beyond = t.hipFileRead(handle, pointer + 4 * KIB, 4 * KIB + 1, 0, 0)[0] if checked else None
    lengths = {"allocation end - pointer": (4 * KIB, -5022), "not checked": (4 * KIB, None)}
    t.expect("buffer.temporary-length", (whole, beyond), lengths)
    t.ok(t.hipFileBufRegister(pointer, 2 * KIB, 0))
    inside = t.hipFileRead(handle, pointer + KIB, 4 * KIB, 0, 0)  # passes the registration, not the allocation
    t.expect("buffer.interior-pointer", inside[0], {"temporary buffer": 4 * KIB})


@conformance("buffer.interior-pointer", "buffer.temporary-length")
def test_interior_asynchronous(t: Kit) -> None:
    """Past the end of the registration around the pointer, up to the end of the allocation."""
    t.open()
    handle, pointer, stream = t.handle(content=64 * KIB), t.device(8 * KIB), t.stream()
    t.ok(t.hipFileBufRegister(pointer, 2 * KIB, 0))
    slots = Slots(7 * KIB)
    status = t.read(handle, pointer + KIB, slots, stream)
    t.finish(stream)
    seen = status.err, slots.done, t.bytes(pointer + KIB, 7 * KIB) == pattern(7 * KIB)
    t.expect("buffer.interior-pointer", seen, {"temporary buffer": (0, 7 * KIB, True)}, "asynchronous")
    if t.answer("buffer.temporary-length") == "allocation end - pointer":  # else nothing keeps it inside
        beyond = t.read(handle, pointer + KIB, Slots(7 * KIB + 1), stream)
        t.finish(stream)
        t.expect("buffer.temporary-length", beyond.err, {"allocation end - pointer": 5022}, "asynchronous")


@conformance("buffer.io.null", "sync.null", "sync.lookup-order", schedules=False)
def test_null(t: Kit) -> None:
    t.open()
    handle = t.handle()
    read = t.hipFileRead(handle, 0, 16, 0, 0)
    sync = {"InvalidValue": "-5022", "-5022": "-5022", "-1/EINVAL": "-1/EINVAL"}
    t.expect("buffer.io.null", io_text(read), sync, "synchronous")
    t.expect("sync.null", io_text(read), sync)
    status = t.read(handle, 0, Slots(16), t.stream())
    t.expect(
        "buffer.io.null", name(status), dict.fromkeys(("InvalidValue", "-1/EINVAL"), "InvalidValue"), "asynchronous"
    )
    both = t.hipFileRead(t.unknown_handle(), 0, 16, 0, 0)
    answers = {"driver, file, buffer": "-5027", "a null buffer first": "-1/EINVAL"}
    t.expect("sync.lookup-order", io_text(both), answers)


@conformance("buffer.io.type-sync", "sync.memory-type", "buffer.io.type-async", "submit.memory-type", "submit.buffer")
def test_other_memory(t: Kit) -> None:
    t.open()
    handle, stream = t.handle(), t.stream()
    for kind, pointer in (("pinned", t.pinned(4 * KIB)), ("plain", t.host(4 * KIB))):
        read = io_text(t.hipFileRead(handle, pointer, 16, 0, 0))
        t.expect("buffer.io.type-sync", read, {"-HipMemoryTypeInvalid": "-5013", "works": "16"}, kind)
        t.expect("sync.memory-type", read, {"-5013": "-5013", "works": "16"}, kind)
        slots = Slots(16)
        status = t.read(handle, pointer, slots, stream)
        t.finish(stream)
        seen = (name(status), slots.done)
        works = {"InternalError": ("InternalError", 77), "works": ("Success", 16)}
        t.expect("buffer.io.type-async", seen, works, kind)
        t.expect("submit.memory-type", seen, works, kind)
        t.expect(
            "submit.buffer",
            seen[0],
            {"{HipDriverError, e} or InternalError": "InternalError", "host memory works": "Success"},
            kind,
        )


@conformance(
    "buffer.io.hip-sync",
    "sync.error.hip",
    "buffer.io.hip-async",
    "submit.buffer",
    needs="model",
    schedules=False,
)
def test_hip_failures_in_io(t: Kit) -> None:
    t.open()
    handle, pointer, stream = t.handle(), t.device(4 * KIB), t.stream()
    t.machine.hip.interpose = lambda call, args: 719 if call == "hipPointerGetAttributes" else None
    read = t.hipFileRead(handle, pointer, 16, 0, 0)
    slots = Slots(16)
    status = t.read(handle, pointer, slots, stream)
    t.machine.hip.interpose = lambda call, args: 719 if call == "hipMemcpy" else None
    copy = t.hipFileRead(handle, pointer, 16, 0, 0)
    t.machine.hip.interpose = None
    t.expect("buffer.io.hip-sync", io_text(read), {"-hipError": "-719"})
    t.expect("sync.error.hip", [io_text(read), io_text(copy)], {"-hipError": ["-719", "-719"]})
    t.expect("buffer.io.hip-async", (name(status), slots.done), {"{HipDriverError, e}": ("{HipDriverError, 719}", 77)})
    t.expect(
        "submit.buffer",
        name(status),
        dict.fromkeys(("{HipDriverError, e} or InternalError", "host memory works"), "{HipDriverError, 719}"),
        "HIP fails",
    )


@conformance(
    "sync.other",
    needs="model",
    environment={"HIPFILE_FORCE_COMPAT_MODE": "false", "HIPFILE_ALLOW_COMPAT_MODE": "false"},
    schedules=False,
)
def test_no_backend_code(t: Kit) -> None:
    t.open()
    t.io("sync.other", t.hipFileRead(t.handle(), t.device(4 * KIB), 16, 0, 0))


@conformance("buffer.range-rule", "sync.range", schedules=False)
def test_range_rule(t: Kit) -> None:
    t.open()
    handle, pointer = t.handle(content=64 * KIB), t.device(16 * KIB)
    t.ok(t.hipFileBufRegister(pointer, 8 * KIB, 0))
    inside = [(8 * KIB, 0), (1, 8 * KIB - 1), (0, 8 * KIB - 1), (4 * KIB, 4 * KIB)]
    outside = [(0, 8 * KIB), (1, 8 * KIB), (8 * KIB + 1, 0), (4 * KIB + 1, 4 * KIB), (1 << 40, 0), (16, MIB)]
    good = [t.hipFileRead(handle, pointer, size, 0, offset)[0] for size, offset in inside]
    bad = [io_text(t.hipFileRead(handle, pointer, size, 0, offset)) for size, offset in outside]
    answer = "0 <= offset < length, size <= length - offset"
    fine = [8 * KIB, 1, 0, 4 * KIB]
    through_errno = ["-1/5030"] + ["-1/5017"] * (len(outside) - 1)
    answers = {
        answer: (fine, ["-5022"] * len(outside)),
        answer + "; -1 with errno 5017, 5030 for size 0": (fine, through_errno),
    }
    t.expect("buffer.range-rule", (good, bad), answers)
    for case, result in zip(outside, bad, strict=True):
        variants = () if case[0] else ("-1/5030",)
        t.expect("sync.range", result, {"-5022": "-5022", "-1/5017": "-1/5017"}, str(case), variants=variants)


@conformance("buffer.range-rule", needs="model", schedules=False)
def test_range_rule_writes(t: Kit) -> None:
    t.open()
    handle, pointer = t.handle(content=64 * KIB), t.buffer(8 * KIB)
    seen = [io_text(t.hipFileWrite(handle, pointer, n, 0, o)) for n, o in ((8 * KIB, 0), (8 * KIB, 1), (0, 8 * KIB))]
    answer = "0 <= offset < length, size <= length - offset"
    through_errno = ["8192", "-1/5017", "-1/5030"]
    answers = {answer: ["8192", "-5022", "-5022"], answer + "; -1 with errno 5017, 5030 for size 0": through_errno}
    t.expect("buffer.range-rule", seen, answers, "writes")
