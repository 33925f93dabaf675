"""Clauses of order: operations against each other and against the rest of the stream."""

from __future__ import annotations

from hipfile_sim.driver.clauses.registry import SAME, Row

_ASYNC = "hipFileReadAsync hipFileWriteAsync"

ROWS: tuple[Row, ...] = (
    (
        "order.stream",
        "must",
        "test",
        "Operations on one stream run one after the other, in the order of submission.",
        "in order",
        SAME,
        _ASYNC,
    ),
    (
        "order.stream-work",
        "must",
        "inferred",
        "An operation is ordered with everything else on its stream: copies, kernels, host functions, events.",
        "in order",
        SAME,
        f"{_ASYNC} hipEventRecord hipLaunchHostFunc",
    ),
    (
        "order.host-function-after",
        "must",
        "code",
        "A host function queued behind an operation sees its final count.",
        "final count",
        SAME,
        f"{_ASYNC} hipLaunchHostFunc",
    ),
    (
        "order.host-function",
        "may",
        "observed",
        "Submitting from inside a host function, where HIP calls are refused there.",
        "{HipDriverError, hipErrorNotPermitted}",
        None,
        f"{_ASYNC} hipLaunchHostFunc",
    ),
    (
        "order.other-streams",
        "must",
        "inferred",
        "Operations on different streams are not ordered unless an event, a synchronise or the null stream does it.",
        "unordered",
        SAME,
        f"{_ASYNC} hipStreamWaitEvent",
    ),
    (
        "order.null-stream",
        "must",
        "inferred",
        "Operations on the null stream are ordered with blocking streams as any other work is.",
        "ordered with blocking streams",
        SAME,
        _ASYNC,
    ),
    (
        "order.one-op-at-a-time",
        "must",
        "code",
        "Commands of two operations on one registered stream never interleave.",
        "contiguous",
        None,
        _ASYNC,
    ),
    (
        "order.unregistered-interleave",
        "may",
        "code",
        "Commands of operations submitted by several threads to one unregistered stream may interleave.",
        "may interleave",
        None,
        _ASYNC,
    ),
    (
        "order.sync-io",
        "must",
        "inferred",
        "Synchronous I/O is not ordered with work on non-blocking streams.",
        "unordered",
        SAME,
        "hipFileRead hipFileWrite",
    ),
    (
        "order.event-gate",
        "must",
        "inferred",
        "An operation behind a wait for an event starts only when the awaited record has completed.",
        "waits",
        SAME,
        f"{_ASYNC} hipStreamWaitEvent",
    ),
    (
        "order.device-wait-only",
        "must",
        "observed",
        "A wait between streams does not let the host read a result; the host must wait itself.",
        "host must synchronise",
        SAME,
        f"{_ASYNC} hipStreamWaitEvent hipEventSynchronize",
    ),
)
