"""Submit: the checks of an asynchronous call, in order, and what an accepted call does at once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from hipfile_conformance.kit import KIB, MIB, SENTINEL, Kit, Slots, code_text, pattern
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import Status

MAX = 0x7FFFF000


def world(t: Kit, size: int = 64 * KIB, buffer: int = 64 * KIB) -> tuple[int, int]:
    """A registered file and a registered buffer on an open driver."""
    t.open()
    return t.handle(content=size), t.buffer(buffer)


@conformance("submit.null-pointer", "submit.untouched")
def test_null_pointers(t: Kit) -> None:
    handle, pointer = world(t)
    stream = t.stream()
    for call in (t.hipFileReadAsync, t.hipFileWriteAsync):
        for index, what in enumerate(("buffer", "size", "file offset", "buffer offset", "result")):
            slots = Slots(4 * KIB)
            args = [handle, pointer, *slots.addresses]
            args[1 + index] = 0
            t.code("submit.null-pointer", Status(*call(*args, stream)), what)
            t.finish(stream)
            done = SENTINEL if index == 4 else slots.done
            answers = {"bytes_done untouched": SENTINEL, "bytes_done -22": -22 if index != 4 else SENTINEL}
            t.expect("submit.untouched", done, answers, what)


@conformance("submit.errno", needs="c")
def test_errno(t: Kit) -> None:
    handle, pointer = world(t)
    stream = t.stream()
    seen = []
    for where in (pointer, 0):
        function = t.target.symbol("hipFileReadAsync")  # type: ignore[attr-defined]
        slots = Slots(16)
        ctypes.set_errno(13)
        function(*map(ctypes.c_void_p, (handle, where, *slots.addresses, stream)))
        seen.append(ctypes.get_errno())
        t.finish(stream)
    t.expect("submit.errno", seen, {"errno unchanged": [13, 13]})


@conformance("submit.range", "submit.range.file-offset", "submit.untouched")
def test_ranges(t: Kit) -> None:
    handle, pointer = world(t)
    cases = {
        "size": (64 * KIB + 1, 0, 0),
        "size behind the offset": (32 * KIB, 0, 48 * KIB),
        "buffer offset": (16, 0, 64 * KIB),
    }
    for call in (t.read, t.write):
        for what, case in cases.items():
            stream, slots = t.stream(), Slots(*case)
            status = call(handle, pointer, slots, stream)
            t.finish(stream)
            answers = {
                "InvalidValue at submit, bytes_done untouched": (5022, SENTINEL),
                "Success; bytes_done -5016": (0, -5016),
                "Success; bytes_done -5": (0, -5),
            }
            t.expect("submit.range", (status.err, slots.done), answers, what)
            if status.err:
                t.expect(
                    "submit.untouched", slots.done, {"bytes_done untouched": SENTINEL, "bytes_done -22": -22}, what
                )
        for flags in (0, 7):
            stream, slots = t.stream(register=flags), Slots(16, -8)
            status = call(handle, pointer, slots, stream)
            t.finish(stream)
            late = -1 if flags == 0 else -5022
            answers = {
                "InvalidValue at submit": (5022, SENTINEL),
                "Success; bytes_done -1 with flags 0, -5022 with fixed offsets": (0, late),
                "Success; bytes_done -1": (0, -1),
            }
            t.expect("submit.range.file-offset", (status.err, slots.done), answers, f"flags {flags}")


@conformance("submit.range.buffer-offset", seconds=10)
def test_negative_buffer_offset(t: Kit) -> None:
    """The allocation reaches before the registered base, so a library that lets it pass overwrites nothing else."""
    t.open()
    handle, memory = t.handle(content=64 * KIB), t.device(64 * KIB)
    pointer = memory + 32 * KIB
    t.ok(t.hipFileBufRegister(pointer, 16 * KIB, 0))
    stream, slots = t.stream(), Slots(16, 0, -8)
    status = t.read(handle, pointer, slots, stream)
    t.finish(stream)
    answers = {
        "InvalidValue at submit": (5022, SENTINEL),
        "Success; bytes_done -5030": (0, -5030),
        "Success; bytes_done -5": (0, -5),
        "Success; the bytes before the buffer are used": (0, 16),
    }
    t.expect("submit.range.buffer-offset", (status.err, slots.done), answers)


@conformance("submit.range.clamped", "sync.max-rw-count", "sync.fallback.clamp", needs="model", schedules=False)
def test_clamped(t: Kit) -> None:
    """A size above the largest count, on a buffer of just that length: clamped before the check, it is in range."""
    t.open()
    handle, pointer = t.handle(content=64), t.ok(t.hipMalloc(MAX))
    stream, slots = t.stream(), Slots(MAX + 1)
    if t.profile.async_bounce == "per-stream":
        status = t.read(handle, pointer, slots, stream)
        t.finish(stream)
        t.expect("submit.range.clamped", (status.err, slots.done), {"clamp, then check": (0, 64)})
    t.files.clear()
    result = t.hipFileRead(handle, pointer, MAX + 4096, 0, 0)
    t.expect("sync.fallback.clamp", result[0], {"clamp, then check": 64})
    beyond = t.hipFileRead(handle, pointer, MAX, 0, 1)
    t.expect("sync.max-rw-count", (result[0], beyond[0]), {"0x7ffff000": (64, -5022)})


@conformance(
    "submit.range.clamped",
    needs="model",
    settings={"device_memory": 1 << 33, "pinned_memory": 1 << 33},
    schedules=False,
)
def test_clamped_per_operation(t: Kit) -> None:
    """As above where each operation allocates its own bounce buffer: it is asked for the clamped size."""
    t.need(t.profile.async_bounce == "per-op", "this release has no bounce buffer per operation")
    t.open()
    handle, pointer, stream = t.handle(content=64), t.ok(t.hipMalloc(MAX)), t.stream()
    asked: list[int] = []

    def watch(call: str, args: Sequence[Any]) -> int | None:
        if call == "hipHostMalloc":
            asked.append(int(args[0]))
        return None

    t.machine.hip.interpose = watch
    status = t.read(handle, pointer, Slots(MAX + 1), stream)
    t.machine.hip.interpose = None
    t.expect("submit.range.clamped", (status.err, max(asked, default=0)), {"clamp, then check": (0, MAX)})


@conformance("submit.device", needs="devices", schedules=False)
def test_device(t: Kit) -> None:
    t.open()
    handle, stream = t.handle(), t.stream()
    t.ok(t.hipSetDevice(1))
    pointer = t.device(4 * KIB)
    t.ok(t.hipSetDevice(0))
    slots = Slots(16)
    status = t.read(handle, pointer, slots, stream)
    t.expect("submit.device", (code_text(status), slots.done), {"InvalidValue": ("InvalidValue", SENTINEL)})


@conformance("submit.current-device", needs="devices model", schedules=False)
def test_current_device(t: Kit) -> None:
    t.open()
    handle, pointer, stream, slots = t.handle(), t.device(4 * KIB), t.stream(), Slots(16)
    t.ok(t.hipSetDevice(1))
    status = t.read(handle, pointer, slots, stream)
    device = t.hipGetDevice()[1]
    t.finish(stream)
    t.expect("submit.current-device", (status.err, device, slots.done), {"caller's device": (0, 1, 16)})


@conformance("submit.zeroes-result", "submit.read", "submit.write", "submit.returns", "submit.reads-all", needs="hold")
def test_accepted(t: Kit) -> None:
    handle, pointer = world(t)
    for call, clause in ((t.read, "submit.read"), (t.write, "submit.write")):
        stream, slots = t.stream(), Slots(8 * KIB)
        with t.held(stream):
            waits = t.blocks(lambda c=call, s=slots, st=stream: c(handle, pointer, s, st))
            status = Status(*t.result) if not waits else Status(-1)
            at_once = slots.done
            t.progress()
            held = slots.done
        t.finish(stream)
        t.expect("submit.zeroes-result", (at_once, held), {"0": (0, 0)})
        t.expect(clause, (status.err, slots.done), {"Success, queued": (0, 8 * KIB)})
        answers = dict.fromkeys(
            ("returns at once", "returns at once; the first call of a process waits for the stream"), False
        )
        t.expect("submit.returns", waits, answers)
    for flags in () if t.answer("submit.reads-all") == "unspecified" else (0, 7):
        stream = t.stream(register=flags)
        bad = [
            t.read(handle, pointer, Slots(*case), stream).err
            for case in ((1 << 40, 0, 0), (16, -1, 0), (16, 0, 1 << 40))
        ]
        t.finish(stream)
        t.expect("submit.reads-all", bad, {"read at submit": [5022] * 3}, f"flags {flags}")


@conformance("submit.size-zero", "result.size-zero", needs="hold")
def test_size_zero(t: Kit) -> None:
    handle, pointer = world(t)
    for call in (t.read, t.write):
        stream, slots = t.stream(), Slots(0)
        with t.held(stream):
            status = call(handle, pointer, slots, stream)
            at_once = slots.done
        t.finish(stream)
        done = (status.err, at_once, slots.done)
        t.expect("submit.size-zero", done, dict.fromkeys(("Success, 0, nothing queued", "Success, 0"), (0, 0, 0)))
        t.expect("result.size-zero", done[1:], {"0 at once": (0, 0), "0": (0, 0)})


@conformance("submit.size-zero", needs="model", schedules=False)
def test_size_zero_queues_nothing(t: Kit) -> None:
    handle, pointer = world(t)
    record = t.record()
    t.ok(t.read(handle, pointer, Slots(0), t.stream()))
    t.expect(
        "submit.size-zero", bool(record.kinds()), {"Success, 0, nothing queued": False, "Success, 0": False}, "commands"
    )


@conformance("submit.page-aligned", "bind.page-aligned")
def test_page_aligned(t: Kit) -> None:
    handle, pointer = world(t)
    stream, slots = t.stream(register=8), Slots(1001, 333, 13)
    status = t.read(handle, pointer, slots, stream)
    t.finish(stream)
    late = "unaligned: bytes_done -5, or InvalidValue at submit and -22 if all is fixed, too"
    t.expect("submit.page-aligned", (status.err, slots.done), {"stored, never used": (0, 1001), late: (0, -5)})
    fixed, slots = t.stream(register=15), Slots(1001, 333, 13)
    status = t.read(handle, pointer, slots, fixed)
    t.finish(fixed)
    t.expect(
        "submit.page-aligned", (status.err, slots.done), {"stored, never used": (0, 1001), late: (5022, -22)}, "fixed"
    )
    aligned = Slots(4 * KIB, 4 * KIB, 4 * KIB)
    t.ok(t.read(handle, pointer, aligned, stream))
    t.finish(stream)
    t.expect("bind.page-aligned", aligned.done, {"no effect": 4 * KIB})


@conformance("submit.order", needs="devices model", fresh=True, schedules=False)
def test_order_of_checks(t: Kit) -> None:
    """From the last check backwards: each call has one more fault, and the earlier check answers."""
    stream = t.stream()
    pinned, gone = t.pinned(16), 0xF11E
    t.ok(t.hipSetDevice(1))
    far = t.device(4 * KIB)
    t.ok(t.hipSetDevice(0))
    closed = t.read(gone, 0, Slots(1 << 40), stream).err, t.hipFileUseCount()
    handle = t.handle()

    def code(h: int, p: int, size: int, null: bool = False, broken_stream: bool = False) -> str:
        slots = Slots(size)
        args = list(slots.addresses)
        if null:
            args[3] = 0
        t.machine.hip.interpose = (
            (lambda call, a: 709 if call == "hipStreamGetDevice" else None) if broken_stream else None
        )
        try:
            return code_text(Status(*t.hipFileReadAsync(h, p, *args, stream)))
        finally:
            t.machine.hip.interpose = None

    seen = [
        code(gone, pinned, 1 << 40, null=True, broken_stream=True),
        code(gone, pinned, 1 << 40, broken_stream=True),
        code(handle, pinned, 1 << 40, broken_stream=True),
        code(handle, far, 1 << 40, broken_stream=True),
        code(handle, far, 1 << 40),
        code(handle, far, 16),
    ]
    expected = [
        "InvalidValue",
        "HandleNotRegistered",
        "InternalError",
        "{HipDriverError, 709}",
        "InvalidValue",
        "InvalidValue",
    ]
    answer = "open, null, file, buffer, stream, backend, range, device, zero, size 0, allocate, enqueue"
    t.expect("submit.order", (closed, seen), {answer: ((5022, 1), expected)})


@conformance("submit.stream-error", "submit.launch-error", "result.submit-error", needs="model", schedules=False)
def test_hip_failures(t: Kit) -> None:
    handle, pointer = world(t)
    stream, slots = t.stream(), Slots(16)
    t.machine.hip.interpose = lambda call, args: 709 if call == "hipStreamGetDevice" else None
    status = t.read(handle, pointer, slots, stream)
    t.expect("submit.stream-error", (status, slots.done), {"{HipDriverError, e}": (Status(5011, 709), SENTINEL)})
    t.machine.hip.interpose = None
    good, slots = t.stream(register=7), Slots(16)
    refused = ("hipLaunchKernel", "hipLaunchHostFunc")
    t.machine.hip.interpose = lambda call, args: (
        719 if call == refused[t.profile.async_generation == "cufile"] else None
    )
    status = t.read(handle, pointer, slots, good)
    t.machine.hip.interpose = None
    at_once = slots.done
    t.finish(good)
    t.expect("submit.launch-error", (status, at_once), {"{HipDriverError, e}, bytes_done 0": (Status(5011, 719), 0)})
    t.expect("result.submit-error", at_once, {"0": 0})


@conformance("submit.alloc-op", "submit.alloc-bounce", needs="model", schedules=False)
def test_allocations(t: Kit) -> None:
    handle, pointer = world(t)
    stream = t.stream(register=0)
    sizes: list[int] = []

    def refuse(call: str, args: Sequence[Any]) -> int | None:
        if call != "hipHostMalloc":
            return None
        sizes.append(int(args[0]))
        return 2 if len(sizes) == failing else None

    failing = 1
    slots = Slots(8 * KIB)
    t.machine.hip.interpose = refuse
    status = t.read(handle, pointer, slots, stream)
    answer = "{HipDriverError, hipErrorOutOfMemory}, bytes_done 0"
    t.expect("submit.alloc-op", (status, slots.done), {answer: (Status(5011, 2), 0)})
    sizes.clear()
    failing = 2
    slots = Slots(8 * KIB)
    status = t.read(handle, pointer, slots, stream)
    t.machine.hip.interpose = None
    t.finish(stream)
    answers = {
        "{HipDriverError, e}, bytes_done 0": (Status(5011, 2), 0, True),
        "not allocated per operation": (Status(0, 0), 8 * KIB, False),
    }
    t.expect("submit.alloc-bounce", (status, slots.done, 8 * KIB in sizes), answers)


@conformance("submit.dangling-slot", needs="model", schedules=False)
def test_dangling_slot(t: Kit) -> None:
    handle, pointer = world(t)
    slots = Slots(16)
    status = t.hipFileReadAsync(handle, pointer, slots.addresses[0], 8, *slots.addresses[2:], t.stream())
    t.expect("submit.dangling-slot", code_text(Status(*status)), None)


@conformance(
    "submit.generation",
    "chunk.commands.read",
    "chunk.commands.write",
    needs="model",
    environment={"HIPFILE_ASYNC_BUFFER_SIZE": "65536"},
    schedules=False,
)
def test_commands(t: Kit) -> None:
    handle, pointer = world(t, 1 * MIB, 1 * MIB)
    kinds = {}
    for flags in (0, 7):
        for write in (False, True):
            stream = t.stream(register=flags)
            record = t.record()
            record.commands.clear()
            slots = Slots(192 * KIB)
            t.ok((t.write if write else t.read)(handle, pointer, slots, stream))
            kinds[flags, write] = [k for k in record.kinds() if k not in ("record", "wait")]
            t.finish(stream)
            t.machine.remove_observer(record)
    one = {"read": ["cpu_copy", "memcpy_kernel"], "write": ["memcpy_kernel", "cpu_copy"]}
    for write, clause in ((False, "chunk.commands.read"), (True, "chunk.commands.write")):
        name = "write" if write else "read"
        short = one[name]
        chunked = [*short, "advance"] * 3
        order = "kernel, cpu_copy" if write else "cpu_copy, kernel"
        answers = {
            f"[bind], {order}, cleanup": (["bind", *short, "cleanup"], [*short, "cleanup"]),
            f"[bind], N x ({order}, advance), cleanup": (["bind", *chunked, "cleanup"], [*chunked, "cleanup"]),
        }
        t.expect(clause, (kinds[0, write], kinds[7, write]), answers)
    counts = (kinds[0, False].count("cpu_copy"), kinds[0, False].count("advance"))
    generation = {
        "bind, one copy through a bounce buffer of its own": (1, 0),
        "bind, chunks through the stream's": (3, 3),
        "the driver's own way": (0, 0),
    }
    t.expect("submit.generation", counts, generation)


@conformance(
    "submit.selection",
    "env.allow.async",
    "submit.selection.none",
    "submit.selection.once",
    needs="environment",
    environment={"HIPFILE_ALLOW_COMPAT_MODE": "false"},
)
def test_fallback_not_allowed(t: Kit) -> None:
    t.open()
    handle, pointer, stream, slots = t.handle(), t.device(4 * KIB), t.stream(), Slots(16, 1)
    status = t.read(handle, pointer, slots, stream)
    t.finish(stream)
    seen = (status.err, slots.done)
    used, refused = (0, 16), (5030, SENTINEL)
    t.expect(
        "submit.selection",
        seen,
        {"always the fallback, even if it is not allowed": used, "scored with the values at submit": refused},
    )
    t.expect(
        "env.allow.async",
        seen,
        {"nothing: the fallback is used": used, "InternalError if the fastpath refuses": refused, "not read": used},
    )
    t.expect("submit.selection.none", seen, {"does not occur": used, "InternalError": refused})
    t.expect("submit.selection.once", seen, {"no choice": used, "values at submit decide": refused})


@conformance("submit.read", "result.success", "result.visible-after-sync", "order.device-wait-only")
def test_bytes(t: Kit) -> None:
    handle, pointer = world(t)
    stream, slots = t.stream(), Slots(8 * KIB, 4 * KIB, 512)
    t.ok(t.read(handle, pointer, slots, stream))
    t.finish(stream)
    seen = (slots.done, t.bytes(pointer + 512, 8 * KIB) == pattern(8 * KIB, 4 * KIB))
    t.expect("submit.read", seen, {"Success, queued": (8 * KIB, True)}, "bytes")
    t.expect("result.success", seen[0], {"total": 8 * KIB})
    t.expect("result.visible-after-sync", seen, {"final": (8 * KIB, True)})
    other, late = t.stream(), Slots(8 * KIB)
    event = t.event()
    with t.held(stream):
        t.ok(t.read(handle, pointer, late, stream))
        t.ok(t.hipEventRecord(event, stream))
        t.ok(t.hipStreamWaitEvent(other, event, 0))
        early = late.done
    t.ok(t.hipEventSynchronize(event))
    t.expect("order.device-wait-only", (early, late.done), {"host must synchronise": (0, 8 * KIB)})
