"""The HIP runtime that hipFile rests on: order, events, host functions, copies, memory, errors."""

from __future__ import annotations

import ctypes
import threading
import time

from hipfile_conformance.kit import D2H, H2D, KIB, MIB, Kit
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import HELD_AT_MOST_S

READY, NOT_READY = 0, 600


def streams(t: Kit) -> dict[str, int]:
    return {"null": 0, "blocking": t.stream(0), "non-blocking": t.stream(1)}


def who_runs(t: Kit, held: int, others: dict[str, int]) -> dict[str, bool]:
    """For each stream: does work on it complete while `held` is held? Each is asked behind a hold of its own."""
    _ = t.spare
    seen = {}
    for name, stream in others.items():
        with t.held(held):
            seen[name] = t.runs(stream)
        t.ok(t.hipDeviceSynchronize())
    return seen


@conformance("hip.order.held-null", "hip.order.held-blocking", "hip.order.held-nonblocking", needs="hold")
def test_null_stream_rules(t: Kit) -> None:
    a, b = streams(t), streams(t)
    null = who_runs(t, 0, {"another null": 0} | {n: s for n, s in a.items() if s})
    expected = {"another null": False, "blocking": False, "non-blocking": True}
    t.expect("hip.order.held-null", null, {"no, no, yes": expected})
    blocking = who_runs(t, a["blocking"], b)
    expected = {"null": False, "blocking": True, "non-blocking": True}
    t.expect("hip.order.held-blocking", blocking, {"no, yes, yes": expected})
    free = who_runs(t, a["non-blocking"], b)
    t.expect("hip.order.held-nonblocking", free, {"yes, yes, yes": dict.fromkeys(b, True)})


@conformance("hip.order.held-null", "hip.order.held-blocking", needs="hold")
def test_null_and_several(t: Kit) -> None:
    """Of two blocking streams, neither waits for the null stream in the place of the other, nor is waited for."""
    pair = t.stream(0), t.stream(0)
    _ = t.spare
    with t.held(0):
        seen = tuple(t.runs(stream) for stream in pair)
    t.ok(t.hipDeviceSynchronize())
    t.expect("hip.order.held-null", seen, {"no, no, yes": (False, False)}, "two blocking streams behind one hold")
    null = tuple(who_runs(t, stream, {"null": 0})["null"] for stream in pair)
    t.expect("hip.order.held-blocking", null, {"no, yes, yes": (False, False)}, "null, with either of two held")


@conformance("hip.order.held-null", needs="hold")
def test_null_waits_for_an_event(t: Kit) -> None:
    """Null is held by what it waits for, and holds what waits for it."""
    first, event, others = t.stream(1), t.event(2), streams(t)
    _ = t.spare
    seen = {}
    for name, stream in others.items():
        with t.held(first):
            t.ok(t.hipEventRecord(event, first))
            t.ok(t.hipStreamWaitEvent(0, event, 0))
            seen[name] = t.runs(stream)
        t.ok(t.hipDeviceSynchronize())
    expected = {"null": False, "blocking": False, "non-blocking": True}
    t.expect("hip.order.held-null", seen, {"no, no, yes": expected}, "by a wait for an event")


@conformance("hip.order.per-thread-null", "hip.order.per-thread-blocking", needs="hold")
def test_per_thread_stream(t: Kit) -> None:
    blocking = t.stream(0)
    seen = (who_runs(t, 0, {"p": 2})["p"], who_runs(t, blocking, {"p": 2})["p"])
    t.expect("hip.order.per-thread-null", seen[0], {"no": False})
    t.expect("hip.order.per-thread-blocking", seen[1], {"yes": True})
    t.expect("hip.order.per-thread-null", who_runs(t, 2, {"null": 0})["null"], {"no": False}, "the other way round")


@conformance("hip.order.in-stream", "hip.host-function.order", needs="hold")
def test_in_order(t: Kit) -> None:
    stream, order = t.stream(), []
    pointer, out = t.device(64), t.pinned(64)
    with t.held(stream):
        for n in range(100):
            t.ok(t.hipLaunchHostFunc(stream, lambda _, n=n: order.append(n), 0))
        t.ok(t.hipMemsetAsync(pointer, 1, 64, stream))
        t.ok(t.hipMemcpyAsync(out, pointer, 32, D2H, stream))
        t.ok(t.hipMemsetAsync(pointer, 2, 64, stream))
        t.ok(t.hipMemcpyAsync(out + 32, pointer, 32, D2H, stream))
    t.finish(stream)
    t.expect("hip.host-function.order", order == list(range(100)), {"in order": True})
    t.expect("hip.order.in-stream", t.peek(out, 64), {"in order": b"\x01" * 32 + b"\x02" * 32})


@conformance("hip.order.in-stream", needs="hold-host", seconds=25)
def test_stands_still(t: Kit) -> None:
    """A stream stands still while its host function runs."""
    stream = t.stream()
    _ = t.spare
    with t.held(stream, "host"):
        runs = t.runs(stream)
    t.finish(stream)
    t.expect("hip.order.in-stream", runs, {"in order": False}, "behind a host function that waits")


@conformance("hip.host-function.thread", needs="hold-host", seconds=25)
def test_host_function_threads(t: Kit) -> None:
    first, second, seen = t.stream(), t.stream(), threading.Event()
    one = t.profile.hip.get("host_function_threads") == "one"
    began, go = threading.Event(), threading.Event()

    def stay(_: int) -> None:
        began.set()
        go.wait(HELD_AT_MOST_S)

    try:
        t.ok(t.hipLaunchHostFunc(first, stay, 0))
        t.need(began.wait(5), "no host function begins")
        t.ok(t.hipLaunchHostFunc(second, lambda _: seen.set(), 0))
        runs = seen.wait(0.4 if one else 5)
    finally:
        go.set()
    t.ok(t.hipDeviceSynchronize())
    answers = {"a setting": not one, "one thread runs them all": False}
    t.expect("hip.host-function.thread", runs, answers)


@conformance("hip.host-function.wait-value", "hip.wait-value", needs="hold")
def test_wait_value(t: Kit) -> None:
    first, second, seen = t.stream(), t.stream(), []
    with t.held(first):
        t.ok(t.hipLaunchHostFunc(second, lambda _: seen.append(1), 0))
        ran = t.completes(second)
        waits = not t.completes(first)
    t.finish(first)
    t.expect("hip.host-function.wait-value", (ran, seen), {"runs": (True, [1])})
    cell = t.pinned(64)
    t.ok(t.hipStreamWaitValue64(second, cell, 5, 0, (1 << 64) - 1))
    t.ok(t.hipStreamWriteValue64(first, cell, 7, 0))  # whoever writes it
    t.finish(second)
    value = ctypes.c_uint64.from_address(cell).value
    t.expect("hip.wait-value", (waits, value), {"waits": (True, 7)})


@conformance("hip.host-function.calls", "hip.host-function.event-query")
def test_calls_in_host_function(t: Kit) -> None:
    stream, idle, event = t.stream(), t.stream(), t.event()
    t.ok(t.hipEventRecord(event, idle))
    t.finish(idle)
    seen: dict[str, int] = {}

    def inside(_: int) -> None:
        seen["event"] = t.hipEventQuery(event)
        seen["malloc"] = t.hipMalloc(64)[0]
        seen["stream"] = t.hipStreamQuery(idle)
        seen["free"] = t.hipFree(0)

    t.ok(t.hipLaunchHostFunc(stream, inside, 0))
    t.finish(stream)
    refused = {"malloc": 800, "stream": 800, "free": 800}
    calls = {name: code for name, code in seen.items() if name != "event"}
    t.expect("hip.host-function.calls", calls, {"a setting": refused, "refused with 800": refused})
    t.expect("hip.host-function.event-query", seen.get("event"), {"hipSuccess": 0})


@conformance("hip.event.never-recorded", "hip.event.timing-disabled")
def test_events(t: Kit) -> None:
    stream = t.stream()
    for flags in (0, 2):
        event = t.event(flags)
        codes = [t.hipEventQuery(event), t.hipStreamWaitEvent(stream, event, 0), t.hipEventSynchronize(event)]
        t.expect("hip.event.never-recorded", codes, {"0, 0, 0": [0, 0, 0]}, f"flags {flags}")
    event = t.event(2)
    codes = [
        t.hipEventRecord(event, stream),
        t.hipStreamWaitEvent(t.stream(), event, 0),
        t.hipEventSynchronize(event),
        t.hipEventQuery(event),
    ]
    t.expect("hip.event.timing-disabled", codes, {"works": [0, 0, 0, 0]})


@conformance("hip.event.query-pending", "hip.event.not-ready-not-last", "hip.stream.query-running", needs="hold")
def test_not_ready(t: Kit) -> None:
    stream, event = t.stream(), t.event()
    t.hipGetLastError()
    with t.held(stream):
        t.progress()
        running = t.hipStreamQuery(stream)  # the hold is the last command and it runs
        t.ok(t.hipEventRecord(event, stream))
        pending = t.hipEventQuery(event)
        last = (t.hipPeekAtLastError(), t.hipGetLastError())
    t.finish(stream)
    t.expect("hip.stream.query-running", running, {"hipErrorNotReady": NOT_READY})
    t.expect("hip.event.query-pending", (pending, t.hipEventQuery(event)), {"hipErrorNotReady": (NOT_READY, READY)})
    t.expect("hip.event.not-ready-not-last", last, {"last error unchanged": (0, 0)})
    t.expect("hip.stream.query-running", t.hipStreamQuery(stream), {"hipErrorNotReady": READY}, "afterwards")


@conformance("hip.stream.query-running", "hip.event.query-pending", needs="hold-host", seconds=25)
def test_running_host_function(t: Kit) -> None:
    stream, event = t.stream(), t.event()
    with t.held(stream, "host"):
        time.sleep(0.05)
        running = t.hipStreamQuery(stream)
        t.ok(t.hipEventRecord(event, stream))
        pending = t.hipEventQuery(event)
    t.finish(stream)
    t.expect("hip.stream.query-running", running, {"hipErrorNotReady": NOT_READY}, "host function")
    t.expect("hip.event.query-pending", pending, {"hipErrorNotReady": NOT_READY}, "host function")


@conformance("hip.event.wait-captures", "hip.event.rerecord", "hip.event.query-pending", needs="hold")
def test_records(t: Kit) -> None:
    slow, fast, waiter, event = t.stream(), t.stream(), t.stream(), t.event()
    _ = t.spare
    t.ok(t.hipEventRecord(event, fast))
    t.finish(fast)
    with t.held(slow):
        t.ok(t.hipStreamWaitEvent(waiter, event, 0))
        t.ok(t.hipEventRecord(event, slow))
        t.expect("hip.event.wait-captures", t.runs(waiter), {"first record": True})
        t.ok(t.hipStreamWaitEvent(waiter, event, 0))  # this one is for the record behind the hold
        t.ok(t.hipEventRecord(event, fast))
        t.finish(fast)
        seen = (t.completes(waiter), t.hipEventQuery(event))
    t.finish(waiter)
    t.ok(t.hipEventRecord(event, fast))
    with t.held(fast):  # what is queued behind the record does not matter
        t.ok(t.hipEventSynchronize(event))
        t.expect(
            "hip.event.query-pending", t.hipEventQuery(event), {"hipErrorNotReady": READY}, "work behind the record"
        )
    t.expect("hip.event.rerecord", seen, {"waiter 600, query 0": (False, READY)})


@conformance("hip.event.wait-captures", needs="hold")
def test_waits_for_the_record(t: Kit) -> None:
    """Neither more than the record, nor less because the event is gone."""
    first, second, event = t.stream(), t.stream(), t.event(2)
    _ = t.spare
    t.ok(t.hipEventRecord(event, first))
    with t.held(first):
        t.ok(t.hipStreamWaitEvent(second, event, 0))
        runs = t.runs(second)
    t.ok(t.hipDeviceSynchronize())
    t.expect("hip.event.wait-captures", runs, {"first record": True}, "what is behind the record is not waited for")
    with t.held(first):
        t.ok(t.hipEventRecord(event, first))
        t.ok(t.hipStreamWaitEvent(second, event, 0))
        t.ok(t.hipEventDestroy(event))
        runs = t.runs(second)
    t.ok(t.hipDeviceSynchronize())
    t.expect("hip.event.wait-captures", runs, {"first record": False}, "the event was destroyed after the wait")


@conformance("hip.event.on-null", "hip.stream.sync-null", "hip.device.synchronize", needs="hold")
def test_null_waits(t: Kit) -> None:
    queries, synchronise, device = [], [], []
    for flags in (0, 1):
        stream, event = t.stream(flags), t.event()
        with t.held(stream):
            t.ok(t.hipEventRecord(event, 0))
            t.progress()
            if not flags or not t.has("steps"):
                queries.append(t.hipEventQuery(event))
            else:  # nothing moves unless it is waited for
                queries.append(NOT_READY if t.blocks(lambda e=event: t.hipEventSynchronize(e)) else READY)
            synchronise.append(t.blocks(lambda: t.hipStreamSynchronize(0)))
            device.append(t.blocks(t.hipDeviceSynchronize))
        t.cleanup_threads()
        t.finish(stream)
    t.expect("hip.event.on-null", queries, {"600 / 0": [NOT_READY, READY]})
    t.expect("hip.stream.sync-null", synchronise, {"waits / returns at once": [True, False]})
    t.expect("hip.device.synchronize", device, {"waits": [True, True]})


@conformance("hip.event.elapsed-invalid", "hip.event.elapsed-pending", needs="hold")
def test_elapsed(t: Kit) -> None:
    a, b, off, stream = t.event(), t.event(), t.event(2), t.stream()
    codes = [t.hipEventElapsedTime(a, b)[0]]
    t.ok(t.hipEventRecord(a, stream))
    t.ok(t.hipEventRecord(off, stream))
    t.finish(stream)
    codes += [t.hipEventElapsedTime(a, b)[0], t.hipEventElapsedTime(a, off)[0]]
    with t.held(stream):
        t.ok(t.hipEventRecord(b, stream))
        pending = t.hipEventElapsedTime(a, b)[0]
    t.finish(stream)
    done = t.hipEventElapsedTime(a, b)
    t.expect("hip.event.elapsed-invalid", codes, {"400": [400] * 3})
    t.expect("hip.event.elapsed-pending", (pending, done[0], done[1] >= 0), {"600": (600, 0, True)})
    t.hipGetLastError()


@conformance("hip.event.cross-device", needs="devices hold")
def test_cross_device(t: Kit) -> None:
    first, event = t.stream(), t.event()
    t.ok(t.hipSetDevice(1))
    other = t.stream()
    pointer = t.ok(t.hipMalloc(64))
    with t.held(first):
        t.ok(t.hipEventRecord(event, first))
        code = t.hipStreamWaitEvent(other, event, 0)
        t.ok(t.hipMemsetAsync(pointer, 1, 16, other))
        waits = not t.completes(other)
    t.finish(other)
    t.ok(t.hipSetDevice(0))
    t.expect("hip.event.cross-device", (code, waits), {"works": (0, True)})


@conformance("hip.stream.destroy-pending", needs="hold")
def test_destroy_pending(t: Kit) -> None:
    stream, out, pointer = t.stream(), t.pinned(64), t.device(64, 0x11)
    with t.held(stream):
        t.ok(t.hipMemcpyAsync(out, pointer, 64, D2H, stream))
        waits = t.blocks(lambda: t.hipStreamDestroy(stream))
        early = t.peek(out, 1)
    t.cleanup_threads()
    t.ok(t.hipDeviceSynchronize())
    end = time.monotonic() + 10
    while t.has("threads") and t.peek(out, 1) != b"\x11" and time.monotonic() < end:
        time.sleep(0.01)
    t.expect("hip.stream.destroy-pending", (waits, early, t.peek(out, 64)), {"completes": (False, b"\0", b"\x11" * 64)})


@conformance("hip.stream.queue-limit", needs="hold", seconds=25)
def test_queue_limit(t: Kit) -> None:
    stream, pointer = t.stream(), t.device(64)
    counted = [0]

    def submit() -> None:
        for _ in range(1500):
            if t.hipMemsetAsync(pointer, 1, 16, stream):
                return
            counted[0] += 1

    with t.held(stream):
        waits = t.blocks(submit, 1.0)
        queued = counted[0]
    t.cleanup_threads()
    t.finish(stream)
    limited = (True, True)
    setting = limited if t.profile.hip.get("queue_limit") else (False, False)
    t.expect("hip.stream.queue-limit", (waits, 900 < queued < 1100), {"a setting": setting, "about 1020": limited})


@conformance("hip.stream.create-held", needs="hold")
def test_create_while_held(t: Kit) -> None:
    waits = []
    for stream in (0, t.stream(0), t.stream(1)):
        with t.held(stream):
            for call in (
                lambda: t.hipMalloc(4 * KIB),
                lambda: t.hipHostMalloc(4 * KIB, 0),
                lambda: t.hipStreamCreateWithFlags(1),
                t.hipEventCreate,
                lambda: t.hipFree(0),
            ):
                waits.append(t.blocks(call))
        t.finish(stream)
    t.expect("hip.stream.create-held", any(waits), {"at once": False})


@conformance("hip.free.synchronises", needs="hold")
def test_free_waits(t: Kit) -> None:
    waits = []
    for flags in (0, 1):
        stream, device, pinned = t.stream(flags), t.device(4 * KIB), t.pinned(4 * KIB)
        with t.held(stream):
            waits.append(t.blocks(lambda p=device: t.hipFree(p)))
            waits.append(t.blocks(lambda p=pinned: t.hipHostFree(p)))
        t.cleanup_threads()
        t.finish(stream)
    t.expect("hip.free.synchronises", waits, {"waits": [True] * 4})


@conformance("hip.free.null", "hip.free.twice", "hip.free.interior", schedules=False)
def test_free(t: Kit) -> None:
    pointer = t.device(4 * KIB)
    t.expect("hip.free.null", (t.hipFree(0), t.hipHostFree(0)), {"0": (0, 0)})
    t.expect("hip.free.interior", t.hipFree(pointer + 16), {"1": 1})
    t.expect("hip.free.twice", (t.hipFree(pointer), t.hipFree(pointer)), {"1": (0, 1)})
    t.hipGetLastError()


@conformance("hip.memcpy.null-stream", needs="hold")
def test_plain_copy(t: Kit) -> None:
    pointer, host = t.device(4 * KIB), t.host(4 * KIB)
    waits = []
    for flags in (0, 1):
        stream = t.stream(flags)
        with t.held(stream):
            waits.append(t.blocks(lambda: t.hipMemcpy(pointer, host, 4 * KIB, H2D)))
        t.cleanup_threads()
        t.finish(stream)
    t.expect("hip.memcpy.null-stream", waits, {"waits / at once": [True, False]})


@conformance("hip.copy.pageable-h2d", "hip.copy.pageable-d2h", "hip.copy.pinned", needs="hold")
def test_asynchronous_copies(t: Kit) -> None:
    for size in (16, 4 * KIB, MIB):
        pointer, stream, host, pinned = t.device(size), t.stream(), t.host(size, 1), t.pinned(size, 1)
        with t.held(stream):
            waits = t.blocks(lambda s=size, h=host, st=stream, p=pointer: t.hipMemcpyAsync(p, h, s, H2D, st))
            ctypes.memset(host, 2, size)
        t.cleanup_threads()
        t.finish(stream)
        first = t.bytes(pointer, size)
        answers = {
            "blocks until the copy is done": (True, None),
            "returns at once; the bytes were staged": (False, b"\x01" * size),
        }
        t.expect("hip.copy.pageable-h2d", (waits, None if waits else first), answers, f"{size} bytes")
        with t.held(stream):
            waits = t.blocks(lambda s=size, h=host, st=stream, p=pointer: t.hipMemcpyAsync(h, p, s, D2H, st))
        t.cleanup_threads()
        t.finish(stream)
        t.expect("hip.copy.pageable-d2h", waits, {"blocks": True}, f"{size} bytes")
        with t.held(stream):
            waits = t.blocks(lambda s=size, h=pinned, st=stream, p=pointer: t.hipMemcpyAsync(p, h, s, H2D, st))
            ctypes.memset(pinned, 3, size)
        t.finish(stream)
        seen = (waits, t.bytes(pointer, size) == b"\x03" * size)
        t.expect("hip.copy.pinned", seen, {"returns at once, new bytes": (False, True)}, f"{size} bytes")


@conformance("hip.pointer.attributes", "hip.pointer.unknown", "hip.pointer.interior", schedules=False)
def test_pointers(t: Kit) -> None:
    pointer, pinned, host = t.device(4 * KIB), t.pinned(4 * KIB), t.host(4 * KIB)
    answers = [t.hipPointerGetAttributes(p) for p in (pointer, pointer + 100, pinned, host, 0)]
    kinds = [(int(code), None if info is None else int(info.type)) for code, info in answers]
    t.expect("hip.pointer.attributes", kinds, {"2, 2, 1, 0, 0": [(0, 2), (0, 2), (0, 1), (0, 0), (0, 0)]})
    code, info = t.hipPointerGetAttributes(0x1234)
    t.expect("hip.pointer.unknown", (int(code), None if info is None else int(info.type)), {"type 0, success": (0, 0)})
    found = t.hipMemGetAddressRange(pointer + 100)
    seen = (int(found[0]), int(found[1]) - pointer, int(found[2]))
    t.expect("hip.pointer.interior", seen, {"base and size": (0, 0, 4 * KIB)})


@conformance("hip.device.per-thread", "hip.error.per-thread", "hip.error.get-clears", schedules=False)
def test_threads(t: Kit) -> None:
    many = t.has("devices")
    if many:
        t.ok(t.hipSetDevice(1))
    t.hipGetLastError()
    failed = t.hipSetDevice(99)
    seen: list[tuple[int, int]] = []
    thread = threading.Thread(target=lambda: seen.append((t.hipGetDevice()[1], t.hipPeekAtLastError())))
    thread.start()
    thread.join()
    peeked = (t.hipPeekAtLastError(), t.hipGetDevice()[0], t.hipPeekAtLastError())
    taken = (t.hipGetLastError(), t.hipGetLastError())
    if many:
        t.ok(t.hipSetDevice(0))
    t.expect("hip.device.per-thread", seen[0][0], {"0": 0})
    t.expect("hip.error.per-thread", (failed, seen[0][1], peeked[0]), {"per thread": (101, 0, 101)})
    t.expect("hip.error.get-clears", (peeked, taken), {"cleared": ((101, 0, 101), (101, 0))})


@conformance("hip.memory.exhausted", schedules=False)
def test_exhausted(t: Kit) -> None:
    t.hipGetLastError()
    code, pointer = t.hipMalloc(1 << 50)
    t.expect("hip.memory.exhausted", (int(code), int(pointer or 0)), {"hipErrorOutOfMemory": (2, 0)})
    t.expect("hip.memory.exhausted", t.hipGetLastError(), {"hipErrorOutOfMemory": 2}, "the last error")
