"""Clauses of the HIP runtime that the rest stands on.

Observed on the CUDA runtime (13.0, H200), which HIP follows; the AMD answers are what the model does for HIP, and say
"a setting" where HIP is known or may be expected to differ. A stream is "held" by a host function that waits.
"""

from __future__ import annotations

from hipfile_sim.driver.clauses.registry import SAME, Row


def _seen(name: str, text: str, answer: str, functions: str, *, level: str = "must", note: str = "") -> Row:
    """Observed on CUDA, expected to be the same on HIP."""
    return (f"hip.{name}", level, "observed", text, answer, SAME, functions, note)


_RUNS = "hipMemsetAsync hipLaunchHostFunc"

ROWS: tuple[Row, ...] = (
    _seen("order.held-null", "Null held: other streams run if they are non-blocking.", "no, no, yes", _RUNS),
    _seen("order.held-blocking", "A blocking stream held: null waits, other streams run.", "no, yes, yes", _RUNS),
    _seen("order.held-nonblocking", "A non-blocking stream held: all others run.", "yes, yes, yes", _RUNS),
    _seen("order.per-thread-null", "The per-thread default stream does not run while null is held.", "no", _RUNS),
    _seen(
        "order.per-thread-blocking",
        "The per-thread default stream runs while a blocking stream is held.",
        "yes",
        _RUNS,
    ),
    _seen("order.in-stream", "Commands of one stream run in order.", "in order", _RUNS),
    (
        "hip.host-function.thread",
        "may",
        "observed",
        "Whether a waiting host function holds up those of other streams.",
        "a setting",
        "one thread runs them all",
        "hipLaunchHostFunc",
    ),
    _seen("host-function.order", "Host functions of one stream run in order.", "in order", "hipLaunchHostFunc"),
    _seen(
        "host-function.wait-value",
        "A stream held by a wait-value does not hold up the host functions of others.",
        "runs",
        "hipStreamWaitValue32 hipStreamWaitValue64 hipLaunchHostFunc",
    ),
    (
        "hip.host-function.calls",
        "may",
        "observed",
        "A memory or stream call inside a host function.",
        "a setting",
        "refused with 800",
        "hipLaunchHostFunc hipMalloc hipStreamQuery",
    ),
    _seen(
        "host-function.event-query",
        "Querying a finished event inside a host function works.",
        "hipSuccess",
        "hipLaunchHostFunc hipEventQuery",
        level="may",
    ),
    _seen(
        "event.never-recorded",
        "Query, wait and synchronise of an event that was never recorded succeed.",
        "0, 0, 0",
        "hipEventQuery hipStreamWaitEvent hipEventSynchronize",
    ),
    _seen(
        "event.query-pending",
        "An event behind a running host function is not ready.",
        "hipErrorNotReady",
        "hipEventQuery",
    ),
    _seen(
        "event.not-ready-not-last",
        "Not ready does not become the last error.",
        "last error unchanged",
        "hipEventQuery hipStreamQuery hipGetLastError",
    ),
    _seen(
        "event.wait-captures",
        "A wait is for the record that was current at the call, not for a later one.",
        "first record",
        "hipStreamWaitEvent hipEventRecord",
    ),
    _seen(
        "event.rerecord",
        "Recording an event again moves what a query asks, not what earlier waits wait for.",
        "waiter 600, query 0",
        "hipStreamWaitEvent hipEventRecord hipEventQuery",
    ),
    _seen(
        "event.on-null",
        "An event recorded on null waits for blocking streams and not for others.",
        "600 / 0",
        "hipEventRecord hipEventQuery",
    ),
    _seen(
        "event.elapsed-invalid",
        "Elapsed time of an event that was never recorded, or has no timing, is an invalid handle.",
        "400",
        "hipEventElapsedTime",
    ),
    _seen("event.elapsed-pending", "Elapsed time of a pending event is not ready.", "600", "hipEventElapsedTime"),
    _seen(
        "event.cross-device",
        "A stream may wait for an event of another device.",
        "works",
        "hipStreamWaitEvent",
    ),
    _seen(
        "stream.query-running",
        "A stream whose last command still runs is not ready, although nothing is queued.",
        "hipErrorNotReady",
        "hipStreamQuery",
    ),
    _seen(
        "stream.sync-null",
        "Synchronising null waits for blocking streams and not for others.",
        "waits / returns at once",
        "hipStreamSynchronize",
    ),
    _seen(
        "stream.destroy-pending",
        "Destroying a stream with work pending returns at once, and the work completes.",
        "completes",
        "hipStreamDestroy",
    ),
    (
        "hip.stream.queue-limit",
        "may",
        "observed",
        "Commands outstanding on one stream beyond which a submit blocks.",
        "a setting",
        "about 1020",
        "hipMemcpyAsync hipLaunchHostFunc",
    ),
    _seen(
        "stream.create-held",
        "Allocating and creating streams does not wait for held streams.",
        "at once",
        "hipMalloc hipHostMalloc hipStreamCreate",
    ),
    _seen(
        "free.synchronises",
        "Freeing device or pinned memory waits for every stream.",
        "waits",
        "hipFree hipHostFree",
    ),
    _seen("free.null", "Freeing null succeeds.", "0", "hipFree"),
    _seen("free.twice", "Freeing twice is an invalid value.", "1", "hipFree"),
    _seen("free.interior", "Freeing an interior pointer is an invalid value.", "1", "hipFree"),
    _seen(
        "copy.plain",
        "A plain copy is ordered with blocking streams and not with others.",
        "waits / at once",
        "hipMemcpy",
    ),
    (
        "hip.copy.pageable-h2d",
        "may",
        "observed",
        "An asynchronous copy from pageable memory on a held stream.",
        "blocks until the copy is done",
        "returns at once; the bytes were staged",
        "hipMemcpyAsync",
        "HIP is reported to block; not measured.",
    ),
    _seen(
        "copy.pageable-d2h",
        "An asynchronous copy to pageable memory on a held stream blocks until it is done.",
        "blocks",
        "hipMemcpyAsync",
    ),
    _seen(
        "copy.pinned",
        "An asynchronous copy with pinned memory returns at once, and a source changed meanwhile gives the new bytes.",
        "returns at once, new bytes",
        "hipMemcpyAsync",
    ),
    _seen(
        "pointer.attributes",
        "The memory types of device, interior, pinned, plain and null pointers are found without an error.",
        "2, 2, 1, 0, 0",
        "hipPointerGetAttributes",
        note="HIP releases differ on pointers that are not theirs.",
    ),
    (
        "hip.pointer.unknown",
        "unspecified",
        "observed",
        "Attributes of a pointer that HIP does not know.",
        "unspecified",
        "type 0, success",
        "hipPointerGetAttributes",
    ),
    (
        "hip.pointer.interior",
        "must",
        "docs",
        "The address range of an interior pointer is that of its allocation.",
        "base and size",
        SAME,
        "hipMemGetAddressRange",
    ),
    (
        "hip.device.per-thread",
        "must",
        "docs",
        "The current device belongs to the host thread and is 0 in a fresh one.",
        "0",
        SAME,
        "hipGetDevice hipSetDevice",
    ),
    (
        "hip.error.per-thread",
        "must",
        "docs",
        "The last error belongs to the host thread; getting it clears it, peeking does not.",
        "per thread",
        SAME,
        "hipGetLastError hipPeekAtLastError",
    ),
    (
        "hip.memory.exhausted",
        "must",
        "docs",
        "An allocation beyond the memory of the device or the pinned budget fails.",
        "hipErrorOutOfMemory",
        SAME,
        "hipMalloc hipHostMalloc",
    ),
    (
        "hip.event.timing-disabled",
        "must",
        "docs",
        "An event made without timing can be recorded, waited for and queried.",
        "works",
        SAME,
        "hipEventCreateWithFlags hipEventRecord hipEventQuery",
    ),
    (
        "hip.device.synchronize",
        "must",
        "docs",
        "Synchronising a device waits for all work of all its streams.",
        "waits",
        SAME,
        "hipDeviceSynchronize",
    ),
    (
        "hip.wait-value",
        "must",
        "docs",
        "A stream waits until a memory word compares as asked, whoever writes it.",
        "waits",
        SAME,
        "hipStreamWaitValue32 hipStreamWaitValue64 hipStreamWriteValue32 hipStreamWriteValue64",
    ),
)
