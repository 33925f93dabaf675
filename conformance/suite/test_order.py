"""Order: within a stream, between streams, with the null stream, with host functions; and how results are published."""

from __future__ import annotations

import os
import threading
from itertools import pairwise

from hipfile_conformance.kit import KIB, Kit, Slots, pattern
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import Status
from hipfile_sim.engine.command import Command
from hipfile_sim.observe.observer import Observer


def world(t: Kit) -> tuple[int, int]:
    t.open()
    return t.handle(content=64 * KIB), t.buffer(64 * KIB)


@conformance("order.stream", "order.stream-work", needs="hold")
def test_one_stream(t: Kit) -> None:
    handle, pointer = world(t)
    stream = t.stream()
    slots = [Slots(4 * KIB, n * 4 * KIB) for n in range(6)]
    with t.held(stream):
        for slot in slots:
            t.ok(t.read(handle, pointer, slot, stream))
    t.finish(stream)
    seen = ([slot.done for slot in slots], t.bytes(pointer, 4 * KIB) == pattern(4 * KIB, 20 * KIB))
    t.expect("order.stream", seen, {"in order": ([4 * KIB] * 6, True)}, "the last of six reads wins")
    copy = t.pinned(16)
    slot = Slots(16, 8 * KIB)
    with t.held(stream):
        t.ok(t.hipMemsetAsync(pointer, 0x11, 16, stream))
        t.ok(t.read(handle, pointer, slot, stream))
        t.ok(t.hipMemcpyAsync(copy, pointer, 16, 2, stream))
        t.ok(t.hipMemsetAsync(pointer, 0x22, 16, stream))
    t.finish(stream)
    work = (t.peek(copy, 16), t.bytes(pointer, 16))
    t.expect("order.stream-work", work, {"in order": (pattern(16, 8 * KIB), b"\x22" * 16)})


@conformance("order.stream", "order.stream-work", needs="hold")
def test_writes_in_order(t: Kit) -> None:
    t.open()
    fd = t.file(64 * KIB)
    handle, pointer, stream = t.handle(fd), t.buffer(64 * KIB), t.stream()
    slots = [Slots(8 * KIB, n * 2 * KIB) for n in range(4)]
    with t.held(stream):
        for n, slot in enumerate(slots):
            t.ok(t.hipMemsetAsync(pointer, 0x30 + n, 8 * KIB, stream))
            t.ok(t.write(handle, pointer, slot, stream))
    t.finish(stream)
    expected = b"".join(bytes([0x30 + n]) * (2 * KIB if n < 3 else 8 * KIB) for n in range(4))
    t.expect("order.stream", os.pread(fd, 14 * KIB, 0) == expected, {"in order": True}, "overlapping writes")
    t.expect("order.stream-work", [s.done for s in slots], {"in order": [8 * KIB] * 4}, "fills between writes")


@conformance("order.host-function-after", "result.deferred", "result.mid-flight", needs="hold")
def test_host_functions(t: Kit) -> None:
    handle, pointer = world(t)
    for call in (t.read, t.write):
        stream, slots = t.stream(), Slots(8 * KIB)
        seen: list[int] = []
        with t.held(stream):
            t.ok(t.hipLaunchHostFunc(stream, lambda _, s=slots, o=seen: o.append(s.done), 0))
            t.ok(call(handle, pointer, slots, stream))
            t.ok(t.hipLaunchHostFunc(stream, lambda _, s=slots, o=seen: o.append(s.done), 0))
            submitted = slots.done
        t.finish(stream)
        t.expect("order.host-function-after", seen[-1:], {"final count": [8 * KIB]})
        t.expect("result.mid-flight", [submitted, *seen[:1]], {"0": [0, 0]})
        t.expect("result.deferred", (submitted, seen), {"at the end": (0, [0, 8 * KIB])})


@conformance("result.mid-flight", "result.publish", needs="model", environment={"HIPFILE_ASYNC_BUFFER_SIZE": "4096"})
def test_nothing_before_the_last_command(t: Kit) -> None:
    """Command by command: the bytes have arrived before the count does."""
    handle, pointer = world(t)
    for call in (t.read, t.write):
        stream, slots = t.stream(), Slots(10 * KIB)
        seen: list[tuple[str, int]] = []

        class Watch(Observer):
            def finished(self, cmd: Command) -> None:
                seen.append((cmd.kind, slots.done))  # noqa: B023 - of this round

        watch = Watch()
        with t.held(stream):
            t.ok(call(handle, pointer, slots, stream))
            t.machine.add_observer(watch)
        t.finish(stream)
        t.machine.remove_observer(watch)
        operation = [one for one in seen if one[0] not in ("wait_value",)]
        kinds, counts = zip(*operation, strict=True)
        t.expect("result.mid-flight", set(counts[:-1]), {"0": {0}}, f"after each of {', '.join(kinds[:-1])}")
        t.expect("result.publish", operation[-1], {"cleanup command": ("cleanup", 10 * KIB)})


@conformance("order.host-function", needs="model", schedules=False)
def test_submit_in_host_function(t: Kit) -> None:
    handle, pointer = world(t)
    stream, other, slots = t.stream(), t.stream(), Slots(16)
    seen: list[Status] = []
    t.ok(t.hipLaunchHostFunc(stream, lambda _: seen.append(t.read(handle, pointer, slots, other)), 0))
    t.finish(stream)
    refused = [Status(5011, 800)]
    t.expect("order.host-function", seen, {"{HipDriverError, hipErrorNotPermitted}": refused})


@conformance("order.other-streams", "order.event-gate", needs="hold")
def test_other_streams(t: Kit) -> None:
    handle, pointer = world(t)
    first, second, third = t.stream(), t.stream(), t.stream()
    _ = t.spare
    a, b, c, event = Slots(16), Slots(16), Slots(16), t.event()
    with t.held(first):
        t.ok(t.read(handle, pointer, a, first))
        t.ok(t.hipEventRecord(event, first))
        t.ok(t.read(handle, pointer + 4 * KIB, b, second))
        t.ok(t.hipStreamWaitEvent(third, event, 0))
        t.ok(t.read(handle, pointer + 8 * KIB, c, third))
        free = t.completes(second)
        gated = t.completes(third)
        counts = (a.done, b.done, c.done)
    for stream in (first, second, third):
        t.finish(stream)
    t.expect("order.other-streams", (free, counts[:2]), {"unordered": (True, (0, 16))})
    t.expect("order.event-gate", (gated, counts[2], c.done), {"waits": (False, 0, 16)})


@conformance("order.null-stream", needs="hold")
def test_null_stream(t: Kit) -> None:
    handle, pointer = world(t)
    blocking, free = t.stream(0), t.stream(1)
    seen = {}
    for name, held, used in (
        ("null held, blocking", 0, blocking),
        ("null held, non-blocking", 0, free),
        ("blocking held, null", blocking, 0),
        ("non-blocking held, null", free, 0),
    ):
        slots = Slots(16)
        with t.held(held):
            if t.blocks(lambda s=slots, u=used: t.read(handle, pointer, s, u)):
                seen[name] = "submit waits"
            else:
                seen[name] = "runs" if t.completes(used) else "waits"
        t.cleanup_threads()
        t.ok(t.hipDeviceSynchronize())
    expected = {
        "null held, blocking": "waits",
        "null held, non-blocking": "runs",
        "blocking held, null": "waits",
        "non-blocking held, null": "runs",
    }
    t.expect("order.null-stream", seen, {"ordered with blocking streams": expected})


@conformance(
    "order.one-op-at-a-time",
    "order.unregistered-interleave",
    needs="model",
    schedules=False,
    environment={"HIPFILE_ASYNC_BUFFER_SIZE": "4096"},
)
def test_contiguous(t: Kit) -> None:
    handle, pointer = world(t)
    for registered, clause in ((True, "order.one-op-at-a-time"), (False, "order.unregistered-interleave")):
        stream = t.stream(register=0 if registered else None)
        record = t.record()
        record.commands.clear()
        slots = [[Slots(16 * KIB) for _ in range(8)] for _ in range(3)]

        def submit(mine: list[Slots], to: int = stream) -> None:
            for slot in mine:
                t.ok(t.read(handle, pointer, slot, to))

        threads = [threading.Thread(target=submit, args=(mine,)) for mine in slots]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        owners = [id(c.op) for c in record.commands if hasattr(c, "op")]
        blocks = 1 + sum(a != b for a, b in pairwise(owners))
        t.machine.remove_observer(record)
        t.finish(stream)
        contiguous = blocks == len(set(owners)) == 24
        if registered:
            t.expect(clause, contiguous, {"contiguous": True})
        else:  # they may, not must: what counts is that nothing goes wrong
            t.expect(clause, all(s.done == 16 * KIB for mine in slots for s in mine), {"may interleave": True})


@conformance("order.sync-io", "sync.fallback.memcpy-order", needs="hold")
def test_synchronous_io(t: Kit) -> None:
    handle, pointer = world(t)
    blocking, free = t.stream(0), t.stream(1)
    seen = {}
    for name, stream in (("blocking", blocking), ("non-blocking", free)):
        with t.held(stream):
            seen[name] = t.blocks(lambda: t.hipFileRead(handle, pointer, 16, 0, 0))
        t.cleanup_threads()
    t.expect("order.sync-io", seen["non-blocking"], {"unordered": False})
    answers = {"null stream order": {"blocking": True, "non-blocking": False}, "unordered": dict.fromkeys(seen, False)}
    t.expect("sync.fallback.memcpy-order", seen, answers)


@conformance(
    "result.publish",
    "result.publish.once",
    "result.references-first",
    "result.monitor",
    needs="model hold",
    schedules=False,
)
def test_publication(t: Kit) -> None:
    handle, pointer = world(t)
    record = t.record()
    stream, slots = t.stream(register=0), Slots(16 * KIB)
    published: list[tuple[int, int]] = []

    def watch(op: object, value: int) -> int:
        held = sum(1 for b in t.machine.hipfile.state.buffers.entries.values() if b.users)
        published.append((value, held))
        return value

    t.machine.hipfile.on_publish = watch
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        slots.set(done=5)
    t.finish(stream)
    last = [c.kind for c in record.commands if hasattr(c, "op")][-1]
    t.expect("result.publish", (last, slots.done), {"cleanup command": ("cleanup", 16 * KIB)})
    t.expect("result.publish.once", [value for value, _ in published], {"twice in all": [16 * KIB]})
    t.expect("result.references-first", [held for _, held in published], {"references, then count": [0]})
    t.expect(
        "result.monitor",
        len(t.machine.hipfile.monitor.active),
        {
            "after completion, while the result may still be stored": 0,
            "result copied before": 0,
        },
    )


@conformance("result.unknown-op", needs="model hold", schedules=False)
def test_unknown_operation(t: Kit) -> None:
    handle, pointer = world(t)
    stream, slots = t.stream(), Slots(16)
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        t.machine.hipfile.monitor.active.clear()
    t.finish(stream)
    t.expect("result.unknown-op", slots.done, {"-5030": -5030})


@conformance("result.references-first")
def test_deregister_after_the_event(t: Kit) -> None:
    """Once the count is seen, file and buffer can go."""
    t.open()
    fd = t.file()
    handle, pointer, stream, slots, event = t.handle(fd), t.buffer(4 * KIB), t.stream(), Slots(4 * KIB), t.event()
    t.ok(t.read(handle, pointer, slots, stream))
    t.ok(t.hipEventRecord(event, stream))
    t.ok(t.hipEventSynchronize(event))
    t.hipFileHandleDeregister(handle)
    seen = (slots.done, Status(*t.hipFileBufDeregister(pointer)).err, Status(*t.hipFileHandleRegister((1, fd))[0]).err)
    t.expect("result.references-first", seen, {"references, then count": (4 * KIB, 0, 0)})
