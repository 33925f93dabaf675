"""Batches: set-up, submission, events, cancelling, destroying."""

from __future__ import annotations

import errno
import os
import time

from hipfile_conformance.kit import KIB, Kit, code_text, pattern
from hipfile_conformance.scripted import fault
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import BatchEvent, BatchOp, Status
from hipfile_sim.driver.codes import BatchMode, BatchOpcode, BatchStatus

MISSING = "InternalError (not implemented)"
COMPLETE, FAILED, CANCELED = 16, 64, 8


def world(t: Kit, capacity: int = 8) -> tuple[int, int, int]:
    """Batch, registered file of 64 KiB, registered buffer of 64 KiB."""
    t.open()
    return t.ok(t.hipFileBatchIOSetUp(capacity)), t.handle(content=64 * KIB), t.buffer(64 * KIB)


def submit(t: Kit, batch: int, *ops: BatchOp) -> Status:
    return Status(*t.hipFileBatchIOSubmit(batch, list(ops), 0))


def events_of(t: Kit, batch: int, wanted: int) -> list[BatchEvent]:
    """Events, gathered for at most two seconds; none where they are not implemented."""
    found: list[BatchEvent] = []
    end = time.monotonic() + 2
    while len(found) < wanted and time.monotonic() < end:
        status, some = t.hipFileBatchIOGetStatus(batch, 0 if t.has("real") else min(1, wanted), 16, 0.2)
        if Status(*status).err:
            break
        found += [e for e in some if e.status]
    return found


@conformance("batch.setup.capacity", "batch.enums", schedules=False)
def test_capacity(t: Kit) -> None:
    t.open()
    seen = {n: code_text(Status(*t.hipFileBatchIOSetUp(n)[0])) for n in (0, 1, 2, 128, 129, 4096)}
    good = dict.fromkeys((1, 2, 128), "Success")
    answers = {
        "InvalidValue outside 1..128": {**seen, **good, **dict.fromkeys((0, 129, 4096), "InvalidValue")},
        "InternalError outside the range": {**seen, **good, **dict.fromkeys((0, 129, 4096), "InternalError")},
    }
    t.expect("batch.setup.capacity", seen, answers)
    enums = (sorted(map(int, BatchOpcode)), sorted(map(int, BatchMode)), sorted(map(int, BatchStatus)))
    t.expect("batch.enums", enums, {"0, 1; 1; 1..64": ([0, 1], [1], [1, 2, 4, 8, 16, 32, 64])})


@conformance("batch.setup.null", needs="c", schedules=False)
def test_setup_null(t: Kit) -> None:
    t.need(not t.has("real") or t.release != "cufile", "cuFile 1.15.1 dereferences the null pointer and crashes")
    t.open()
    t.hipFileBatchIOSetUp(1)
    t.expect("batch.setup.null", t.target.symbol("hipFileBatchIOSetUp")(None, 4).err, {"InvalidValue": 5022})  # type: ignore[attr-defined]


@conformance("batch.setup.closed", "batch.submit.closed", fresh=True, schedules=False)
def test_closed(t: Kit) -> None:
    status, batch = t.hipFileBatchIOSetUp(4)
    t.code("batch.setup.closed", Status(*status))
    if Status(*status).err == 0:
        code = submit(t, batch, BatchOp(t.device(4 * KIB), 0, 0, 16, 0, 0))
        t.code("batch.submit.closed", code)


@conformance("batch.submit.null", "batch.submit.handle", schedules=False)
def test_nothing(t: Kit) -> None:
    batch, handle, pointer = world(t)
    t.expect(
        "batch.submit.null",
        code_text(submit(t, batch)),
        {
            "count 0 accepted; a null array crashes": "Success",
            "InvalidValue": "InvalidValue",
            "InternalError": "InternalError",
            "5040": "5040",
        },
    )
    if not t.has("real"):
        t.code("batch.submit.handle", submit(t, 0xF11E, BatchOp(pointer, 0, 0, 16, handle, 0)))
        t.expect("batch.submit.handle", submit(t, 0, BatchOp(pointer, 0, 0, 16, handle, 0)).err != 0, True, "null")


@conformance(
    "batch.generation",
    "batch.run.sync-path",
    "batch.event.result",
    "batch.event.states",
    "batch.submit.copied",
    "batch.submit.flags",
)
def test_run(t: Kit) -> None:
    batch, handle, pointer = world(t)
    out = t.file(b"")
    ops = [
        BatchOp(pointer, 4 * KIB, 512, 8 * KIB, handle, 0, 11),
        BatchOp(pointer, 64 * KIB - 100, 32 * KIB, 4 * KIB, handle, 0, 12),
    ]
    writer = t.handle(out)
    status = Status(*t.hipFileBatchIOSubmit(batch, ops, 0xFFFF))
    t.expect("batch.submit.flags", code_text(status), {"ignored": "Success"})
    events = sorted(events_of(t, batch, 2))
    runs = {e.cookie: (e.status, e.result) for e in events}
    both = {11: (COMPLETE, 8 * KIB), 12: (COMPLETE, 100)}
    t.expect("batch.generation", runs, {"stored, never run": {}, "runs on a pool of threads": both, "runs": both})
    answer = "Complete/bytes, Failed/-errno, -code, -5011 or -5030"
    t.expect("batch.event.result", runs, {"no events": {}, answer: both, "Complete/bytes, Failed/-5": both})
    moved = t.bytes(pointer + 512, 8 * KIB) == pattern(8 * KIB, 4 * KIB)
    t.expect("batch.run.sync-path", moved, {"never runs": False, "synchronous path": True})
    states = {e.status for e in events}
    t.expect("batch.event.states", states, {"no events": set(), "Complete, Canceled, Failed": {COMPLETE}})
    ops.clear()  # the list was ours to change
    t.expect("batch.submit.copied", len(runs), {"copied": 0 if t.profile.batch == "stored" else 2})
    if t.profile.batch != "stored":
        t.ok(submit(t, batch, BatchOp(pointer, 0, 512, 8 * KIB, writer, 1, 13)))
        seen = [(e.cookie, e.status, e.result) for e in events_of(t, batch, 1)]
        t.expect(
            "batch.generation",
            seen,
            {"runs on a pool of threads": [(13, COMPLETE, 8 * KIB)], "runs": [(13, COMPLETE, 8 * KIB)]},
            "write",
        )
        t.expect(
            "batch.run.sync-path",
            os.pread(out, 8 * KIB, 0) == pattern(8 * KIB, 4 * KIB),
            {"synchronous path": True},
            "write",
        )


@conformance("batch.event.result", "batch.event.states", needs="faults", schedules=False)
def test_failures(t: Kit) -> None:
    t.need(t.profile.batch == "pool", "operations do not run here")
    batch, handle, pointer = world(t)
    seen = []
    for code in (errno.EFBIG, errno.EIO):
        t.files.script("pwrite_from", [fault(code)])
        t.ok(submit(t, batch, BatchOp(pointer, 0, 0, 16, handle, 1)))
        seen += [(e.status, e.result) for e in events_of(t, batch, 1)]
    t.machine.hip.interpose = lambda call, args: 719 if call == "hipMemcpy" else None
    t.ok(submit(t, batch, BatchOp(pointer, 0, 0, 16, handle, 0)))
    seen += [(e.status, e.result) for e in events_of(t, batch, 1)]
    t.machine.hip.interpose = None
    expected = [(FAILED, -errno.EFBIG), (FAILED, -errno.EIO), (FAILED, -5011)]
    t.expect("batch.event.result", seen, {"Complete/bytes, Failed/-errno, -code, -5011 or -5030": expected})
    t.expect("batch.event.states", {s for s, _ in seen}, {"Complete, Canceled, Failed": {FAILED}})


LATE = "5040 for a negative file offset; the rest fails as an operation"
REFUSED = {name: name for name in ("InternalError", "HandleNotRegistered", "HipMemoryTypeInvalid", "InvalidValue")}
REFUSED |= {"5040": "5040", LATE: "5040"}


def refuses(t: Kit, batch: int, good: BatchOp, what: str, **bad: int) -> None:
    """A good operation and a bad one: refused together, or told apart as events."""
    status = submit(t, batch, good, good._replace(**bad))
    answers = {**REFUSED, LATE: "5040" if what == "file offset" else "Success"}
    t.expect("batch.submit.validate", code_text(status), answers, what)
    if status.err == 0:
        ends = sorted((e.status, e.result) for e in events_of(t, batch, 2))
        last = (FAILED, -errno.EIO) if what in ("size", "buffer offset") else (COMPLETE, 16)
        t.expect("batch.submit.validate", ends, {LATE: [(COMPLETE, 16), last]}, f"{what}, events")


@conformance(
    "batch.submit.file", "batch.submit.memory", "batch.submit.validate", "batch.submit.all-or-nothing", schedules=False
)
def test_refused(t: Kit) -> None:
    batch, handle, pointer = world(t)
    good = BatchOp(pointer, 0, 0, 16, handle, 0, 1)
    gone = 0 if t.has("real") else t.unknown_handle()
    t.expect("batch.submit.file", code_text(submit(t, batch, good, good._replace(handle=gone))), REFUSED)
    host = submit(t, batch, good._replace(pointer=t.pinned(4 * KIB)))
    t.expect("batch.submit.memory", code_text(host), {**REFUSED, "runs": "Success"})
    events_of(t, batch, 1)
    if not t.has("real"):
        refuses(t, batch, good, "size", size=65 * KIB)
        refuses(t, batch, good, "buffer offset", buffer_offset=-1)
    refuses(t, batch, good, "file offset", file_offset=-1)
    status = submit(t, batch, *[good] * 8)
    t.expect(
        "batch.submit.all-or-nothing", code_text(status), {"nothing accepted": "Success"}, "all the room is still there"
    )


@conformance("batch.submit.validate", schedules=False)
def test_refused_numbers(t: Kit) -> None:
    """An opcode and a mode that are none."""
    t.need(not t.has("real"), "a real library is not given numbers that its header does not have")
    batch, handle, pointer = world(t)
    good = BatchOp(pointer, 0, 0, 16, handle, 0, 1)
    refuses(t, batch, good, "opcode", opcode=9)
    refuses(t, batch, good, "mode", mode=2)


@conformance("batch.submit.hip", needs="model", schedules=False)
def test_hip_failure(t: Kit) -> None:
    batch, handle, _ = world(t)
    other = t.device(4 * KIB)
    t.machine.hip.interpose = lambda call, args: 719 if call == "hipPointerGetAttributes" else None
    status = submit(t, batch, BatchOp(other, 0, 0, 16, handle, 0))
    t.machine.hip.interpose = None
    t.expect("batch.submit.hip", status, {"InternalError": Status(5030, 0), "{HipDriverError, e}": Status(5011, 719)})


@conformance("batch.submit.full", "batch.submit.validate-first", schedules=False)
def test_full(t: Kit) -> None:
    batch, handle, pointer = world(t, 2)
    op = BatchOp(pointer, 0, 0, 16, handle, 0)
    names = {n: n for n in ("InvalidValue", "BatchFull", "InternalError", "5040")}
    t.expect("batch.submit.full", code_text(submit(t, batch, op, op, op)), names, "at once")
    if not t.has("real"):
        t.ok(submit(t, batch, op, op))
        t.expect("batch.submit.full", code_text(submit(t, batch, op)), names, "nothing collected yet")
        bad = submit(t, batch, op, op._replace(handle=t.unknown_handle()))
        answers = {"capacity first": "InvalidValue", "validation first": "HandleNotRegistered"}
        t.expect("batch.submit.validate-first", code_text(bad), answers)
        if events_of(t, batch, 2):
            t.expect("batch.submit.full", code_text(submit(t, batch, op)), dict.fromkeys(names, "Success"), "collected")


@conformance("batch.submit.full", needs="model", schedules=False)
def test_complete_takes_room(t: Kit) -> None:
    """Operations that are complete but not collected still take room."""
    t.need(t.profile.batch == "pool", "operations do not run here")
    batch, handle, pointer = world(t, 2)
    op = BatchOp(pointer, 0, 0, 16, handle, 0)
    t.ok(submit(t, batch, op, op))
    t.machine.finish()
    t.expect(
        "batch.submit.full", code_text(submit(t, batch, op)), {"BatchFull": "BatchFull"}, "complete, not collected"
    )
    events_of(t, batch, 2)
    t.expect("batch.submit.full", code_text(submit(t, batch, op)), {"BatchFull": "Success"}, "collected")


@conformance("batch.status.order", needs="model", schedules=False)
def test_status_arguments(t: Kit) -> None:
    batch, _, _ = world(t, 2)
    cases = {
        "no room": (batch, 0, 0, 0.0),
        "minimum above room": (batch, 3, 2, 0.0),
        "unknown": (0xF11E, 0, 2, 0.0),
        "negative time": (batch, 0, 2, -1.0),
        "minimum above capacity": (batch, 3, 4, 0.0),
    }
    seen = {what: code_text(Status(*t.hipFileBatchIOGetStatus(*case)[0])) for what, case in cases.items()}
    answers = {
        MISSING: dict.fromkeys(cases, "InternalError"),
        "InvalidValue for each": dict.fromkeys(cases, "InvalidValue"),
    }
    t.expect("batch.status.order", seen, answers)


@conformance("batch.status.waits", "batch.status.collects", needs="model")
def test_status(t: Kit) -> None:
    batch, handle, pointer = world(t, 4)
    ops = [BatchOp(pointer, 0, n * KIB, 16, handle, 0, 20 + n) for n in range(3)]
    t.ok(submit(t, batch, *ops))
    status, events = t.hipFileBatchIOGetStatus(batch, 3, 4, None)
    seen = (code_text(Status(*status)), sorted(e.cookie for e in events))
    t.expect(
        "batch.status.waits",
        seen,
        {MISSING: ("InternalError", []), "minimum, nothing left, or deadline": ("Success", [20, 21, 22])},
    )
    if t.profile.batch == "stored":
        t.expect("batch.status.collects", seen[0], {MISSING: "InternalError"})
        return
    nothing = t.hipFileBatchIOGetStatus(batch, 2, 4, None)  # nothing outstanding: returns at once
    t.expect("batch.status.waits", nothing[1], {"minimum, nothing left, or deadline": []}, "nothing left")
    t.ok(submit(t, batch, *ops))
    small: list[int] = []
    for _ in range(3):
        small += [e.cookie for e in t.hipFileBatchIOGetStatus(batch, 1, 1, None)[1]]
    again = t.hipFileBatchIOGetStatus(batch, 0, 4, 0.0)[1]
    answer = "completion order, removed"
    t.expect("batch.status.collects", (sorted(small), again), {answer: ([20, 21, 22], [])})


@conformance("batch.cancel", "batch.cancel.handle", "batch.destroy", "batch.destroy.after", schedules=False)
def test_cancel_and_destroy(t: Kit) -> None:
    batch, handle, pointer = world(t, 4)
    empty = code_text(Status(*t.hipFileBatchIOCancel(batch)))
    cancelled = "pending -> Canceled, running unaffected"
    real = "Success even with the driver closed; a full batch yields no events"
    t.expect("batch.cancel", empty, {MISSING: "InternalError", cancelled: "Success", real: "Success"}, "empty")
    unknown = code_text(Status(*t.hipFileBatchIOCancel(0)))
    t.expect(
        "batch.cancel.handle", unknown, {MISSING: "InternalError", "InvalidValue": "InvalidValue", "Success": "Success"}
    )
    t.ok(submit(t, batch, *[BatchOp(pointer, 0, 0, 16, handle, 0, n) for n in range(4)]))
    t.hipFileBatchIOCancel(batch)
    states = {e.status for e in events_of(t, batch, 4)} if not t.has("real") else set()
    t.expect("batch.cancel", states <= {COMPLETE, CANCELED}, {MISSING: True, cancelled: True, real: True}, "full")
    t.hipFileBatchIODestroy(batch)
    if t.has("real"):
        return
    t.hipFileBatchIODestroy(batch)
    t.hipFileBatchIODestroy(0)
    code = code_text(submit(t, batch, BatchOp(pointer, 0, 0, 16, handle, 0)))
    after = {
        "still valid": "InvalidValue" if t.profile.batch == "stored" else "Success",
        "InvalidValue": "InvalidValue",
    }
    t.expect("batch.destroy.after", code, after)  # a stored batch is full: four operations that never ran
    t.expect(
        "batch.destroy", code, {"nothing: the batch leaks": "InvalidValue", "cancel, wait, remove": "InvalidValue"}
    )


@conformance("batch.pool.size", needs="model", schedules=False)
def test_pool(t: Kit) -> None:
    lanes = [lane for lane in t.machine.engine.lanes.values() if "batch" in lane.name]
    t.expect("batch.pool.size", len(lanes), {"no pool": 0})


@conformance("batch.cancel", needs="model hold", schedules=False)
def test_cancel_pending(t: Kit) -> None:
    t.need(t.profile.batch == "pool", "nothing is pending here")
    batch, handle, pointer = world(t, 8)
    with t.held(0):
        t.ok(submit(t, batch, *[BatchOp(pointer, 0, 0, 16, handle, 0, n) for n in range(8)]))
        t.ok(t.hipFileBatchIOCancel(batch))
        states = [e.status for e in t.hipFileBatchIOGetStatus(batch, 0, 8, 0.0)[1]]
    t.expect(
        "batch.cancel", states, {"pending -> Canceled, running unaffected": [CANCELED] * 8}, "behind a held null stream"
    )
    t.expect(
        "batch.cancel",
        code_text(submit(t, batch, BatchOp(pointer, 0, 0, 16, handle, 0))),
        {"pending -> Canceled, running unaffected": "Success"},
        "usable afterwards",
    )
