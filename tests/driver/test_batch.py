"""Batches: stored up to 0.4, run by a pool in 0.5."""

from __future__ import annotations

import errno
import os
import threading
from typing import Any

import pytest
from hipfile_driver_rig import AMD, EIO, G1, error, pattern

from hipfile_sim.driver.batch import BatchEvent, BatchOp
from hipfile_sim.driver.codes import BatchStatus
from hipfile_sim.hip.codes import HipError

COMPLETE, FAILED, CANCELED = BatchStatus.hipFileComplete, BatchStatus.hipFileFailed, BatchStatus.hipFileCanceled
DATA = pattern(4096, 1)
amd = pytest.mark.parametrize("profile", AMD)


class Batch:
    """A batch, a file and a buffer of 4096 bytes."""

    def __init__(self, rig: Any, capacity: int = 8) -> None:
        self.rig = rig
        self.fd, self.file = rig.file(DATA)
        self.pointer = rig.buffer(4096, bytes(4096))
        status, self.handle = rig.f.hipFileBatchIOSetUp(capacity)
        assert status.ok

    def op(self, number: int = 0, size: int = 256, **changes: Any) -> BatchOp:
        op = BatchOp(1, 0, self.file, self.pointer, 256 * number, 256 * number, size, 100 + number)
        return op._replace(**changes)

    def submit(self, *ops: BatchOp) -> str:
        return error(self.rig.f.hipFileBatchIOSubmit(self.handle, list(ops), 0xFFFF))

    def collect(self, least: int, most: int = 16, timeout: Any = None) -> list[BatchEvent]:
        status, events = self.rig.f.hipFileBatchIOGetStatus(self.handle, least, most, timeout)
        assert error(status) == "Success"
        return list(events)


@amd
@pytest.mark.parametrize("capacity", [0, 129, -1, 2**32 - 1])
def test_capacity(make_rig: Any, profile: str, capacity: int) -> None:
    rig = make_rig(profile)
    assert error(rig.f.hipFileBatchIOSetUp(capacity)) == "InvalidValue"
    for good in (1, 128):
        assert error(rig.f.hipFileBatchIOSetUp(good)) == "Success"


@amd
def test_arguments_of_submit(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    batch = Batch(rig)
    old = profile in G1
    assert batch.submit() == ("Success" if old else "InvalidValue")
    assert error(rig.f.hipFileBatchIOSubmit(batch.handle, None, 0)) == "InvalidValue"
    assert error(rig.f.hipFileBatchIOSubmit(batch.handle + 64, [batch.op()], 0)) == "InvalidValue"
    assert error(rig.f.hipFileBatchIOSubmit(0, [batch.op()], 0)) == "InvalidValue"


@amd
@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({"handle": 1}, "InternalError", "HandleNotRegistered"),
        ({"buffer": 0}, "InternalError", "InvalidValue"),
        ({"buffer": "host"}, "InternalError", "HipMemoryTypeInvalid"),
        ({"buffer_offset": -1}, "InvalidValue", "InvalidValue"),
        ({"buffer_offset": 4096, "size": 0}, "InvalidValue", "InvalidValue"),
        ({"size": 4097}, "InvalidValue", "InvalidValue"),
        ({"size": -1}, "InvalidValue", "InvalidValue"),
        ({"file_offset": -1}, "InvalidValue", "InvalidValue"),
        ({"opcode": 2}, "InvalidValue", "InvalidValue"),
        ({"mode": 0}, "InvalidValue", "InvalidValue"),
    ],
)
def test_one_bad_operation_refuses_all(
    make_rig: Any, profile: str, changes: dict[str, Any], old: str, new: str
) -> None:
    rig = make_rig(profile)
    batch = Batch(rig, 2)
    if changes.get("buffer") == "host":
        changes = {"buffer": rig.hip.hipHostMalloc(4096)[1]}
    assert batch.submit(batch.op(), batch.op(1)._replace(**changes)) == (old if profile in G1 else new)
    assert batch.submit(batch.op(0), batch.op(1)) == "Success", "nothing of it took room"
    if profile not in G1:
        assert len(batch.collect(2)) == 2
        assert error(rig.f.hipFileBufDeregister(batch.pointer)) == "Success"


@amd
def test_room(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    batch = Batch(rig, 3)
    full = "InvalidValue" if profile in G1 else "BatchFull"
    assert batch.submit(*[batch.op(n) for n in range(4)]) == full
    assert batch.submit(batch.op(0), batch.op(1)) == "Success"
    assert batch.submit(batch.op(2), batch.op(3)) == full
    bad = batch.op(9, handle=1)
    assert batch.submit(bad, bad) == (full if profile in G1 else "HandleNotRegistered"), "which check is first"
    if profile in G1:
        return
    rig.machine.finish()
    assert batch.submit(batch.op(2), batch.op(3)) == full, "complete but not collected takes room"
    assert len(batch.collect(1, 1)) == 1
    assert batch.submit(batch.op(2), batch.op(3)) == "Success"


@pytest.mark.parametrize("profile", G1)
def test_stored_and_never_run(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    batch = Batch(rig)
    assert batch.submit(batch.op()) == "Success"
    rig.machine.finish()
    assert rig.peek(batch.pointer, 4096) == bytes(4096)
    assert error(rig.f.hipFileBatchIOGetStatus(batch.handle, 1, 1, None)) == "InternalError"
    assert error(rig.f.hipFileBatchIOCancel(batch.handle)) == "InternalError"
    rig.f.hipFileBatchIODestroy(batch.handle)
    rig.f.hipFileDriverClose()
    rig.f.hipFileDriverOpen()
    assert error(rig.f.hipFileBatchIOSubmit(batch.handle, [], 0)) == "Success", "the context is still there"


@pytest.mark.parametrize("schedule", ["lazy", "eager", "parallel", "roundrobin", "seeded:3"])
def test_reads_and_writes(make_rig: Any, schedule: str) -> None:
    rig = make_rig(schedule=schedule)
    batch = Batch(rig, 16)
    assert batch.submit(*[batch.op(n) for n in range(16)]) == "Success"
    events = batch.collect(16)
    assert sorted(events) == [BatchEvent(100 + n, COMPLETE, 256) for n in range(16)]
    assert rig.peek(batch.pointer, 4096) == DATA
    rig.poke(batch.pointer, pattern(4096, 2))
    assert batch.submit(*[batch.op(n, opcode=1) for n in range(16)]) == "Success"
    assert len(batch.collect(16)) == 16
    assert os.pread(batch.fd, 9999, 0) == pattern(4096, 2)
    assert batch.collect(0) == []


def test_results(make_rig: Any) -> None:
    rig = make_rig()
    batch = Batch(rig)
    rig.files.reads += [EIO]
    assert batch.submit(batch.op(0)) == "Success"
    assert batch.collect(1) == [BatchEvent(100, FAILED, -errno.EIO)]
    rig.files.writes += [-errno.EFBIG]
    assert batch.submit(batch.op(1, opcode=1)) == "Success"
    assert batch.collect(1) == [BatchEvent(101, FAILED, -errno.EFBIG)]
    assert batch.submit(batch.op(2)._replace(file_offset=4000)) == "Success"
    assert batch.collect(1) == [BatchEvent(102, COMPLETE, 96)]
    rig.fail_hip("hipMemcpy", HipError.hipErrorInvalidValue)
    assert batch.submit(batch.op(3)) == "Success"
    assert batch.collect(1) == [BatchEvent(103, FAILED, -5011)]
    rig.hip.interpose = None
    assert batch.submit(batch.op(4, size=0)) == "Success"
    assert batch.collect(1) == [BatchEvent(104, COMPLETE, 0)]


def test_no_backend(make_rig: Any) -> None:
    rig = make_rig(env={"HIPFILE_ALLOW_COMPAT_MODE": "false"})
    batch = Batch(rig)
    assert batch.submit(batch.op()) == "Success"
    assert batch.collect(1) == [BatchEvent(100, FAILED, -5030)]


def test_arguments_of_status(make_rig: Any) -> None:
    rig = make_rig()
    batch = Batch(rig, 4)

    def status(*args: Any) -> str:
        return error(rig.f.hipFileBatchIOGetStatus(*args))

    good = batch.handle
    assert status(good, 0, 0, None) == "InvalidValue"
    assert status(good, 5, 4, None) == "InvalidValue"
    assert status(good + 64, 1, 4, None) == "InvalidValue"
    assert status(good, 5, 8, None) == "InvalidValue"  # above the capacity
    for timeout in ((-1, 0), (0, -1), (0, 10**9), (5, 2 * 10**9)):
        assert status(good, 1, 4, timeout) == "InvalidValue"
    for timeout in (None, (0, 0), (0, 1), (2**62, 999_999_999)):
        assert batch.collect(4, 4, timeout) == [], "nothing is outstanding"


def test_small_event_buffers_drain(make_rig: Any) -> None:
    batch = Batch(make_rig(), 8)
    assert batch.submit(*[batch.op(n) for n in range(5)]) == "Success"
    got = batch.collect(1, 2) + batch.collect(2, 2) + batch.collect(0, 16) + batch.collect(5, 8)
    assert sorted(event.cookie for event in got) == [100, 101, 102, 103, 104]


def test_polling_and_deadlines(make_rig: Any, expect_deadlock: Any) -> None:
    rig = make_rig()
    batch = Batch(rig)
    blocking = rig.stream(None, blocking=True)
    rig.hold(blocking)
    rig.hip.hipMemsetAsync(batch.pointer, 0, 16, blocking)
    assert batch.submit(batch.op()) == "Success"
    assert batch.collect(1, 1, (0, 0)) == []
    before = rig.machine.clock.now
    assert batch.collect(1, 1, (0, 5_000_000)) == [], "its copy waits for the blocking stream"
    assert rig.machine.clock.now >= before + 5_000_000
    with expect_deadlock(rig.machine.engine):
        batch.collect(1)
    rig.release(blocking)
    assert batch.collect(1) == [BatchEvent(100, COMPLETE, 256)]


def test_cancel(make_rig: Any) -> None:
    rig = make_rig()
    batch = Batch(rig)
    assert error(rig.f.hipFileBatchIOCancel(batch.handle)) == "Success"
    assert batch.submit(*[batch.op(n) for n in range(3)]) == "Success"
    assert error(rig.f.hipFileBufDeregister(batch.pointer)) == "InternalError"
    assert error(rig.f.hipFileBatchIOCancel(batch.handle)) == "Success"
    assert error(rig.f.hipFileBufDeregister(batch.pointer)) == "Success", "references went with it"
    assert batch.collect(3, 8, (0, 0)) == [BatchEvent(100 + n, CANCELED, 0) for n in range(3)]
    assert batch.submit(batch.op(4)) == "Success"
    assert batch.collect(1) == [BatchEvent(104, COMPLETE, 256)]
    assert rig.peek(batch.pointer, 1024) == bytes(1024), "cancelled operations moved nothing"
    for bad in (0, batch.handle + 64):
        assert error(rig.f.hipFileBatchIOCancel(bad)) == "InvalidValue"


def test_destroy(make_rig: Any) -> None:
    rig = make_rig()
    batch = Batch(rig)
    assert batch.submit(*[batch.op(n) for n in range(3)]) == "Success"
    for _ in range(2):
        assert rig.f.hipFileBatchIODestroy(batch.handle) is None
    rig.f.hipFileBatchIODestroy(0)
    assert error(rig.f.hipFileBatchIOSubmit(batch.handle, [batch.op()], 0)) == "InvalidValue"
    assert error(rig.f.hipFileBatchIOGetStatus(batch.handle, 0, 1, None)) == "InvalidValue"
    assert error(rig.f.hipFileBatchIOCancel(batch.handle)) == "InvalidValue"
    assert error(rig.f.hipFileBufDeregister(batch.pointer)) == "Success"


def test_close_cancels_and_clears(make_rig: Any) -> None:
    rig = make_rig()
    batch = Batch(rig)
    assert batch.submit(batch.op()) == "Success"
    rig.f.hipFileDriverClose()
    assert error(rig.f.hipFileBatchIOGetStatus(batch.handle, 0, 1, None)) == "InvalidValue"


def test_parameters_are_copied(make_rig: Any) -> None:
    rig = make_rig()
    batch = Batch(rig)
    ops = [batch.op()]
    assert error(rig.f.hipFileBatchIOSubmit(batch.handle, ops, 0)) == "Success"
    ops[0] = batch.op(5)
    assert batch.collect(1) == [BatchEvent(100, COMPLETE, 256)]


def test_real_threads(make_rig: Any) -> None:
    rig = make_rig(engine="threads")
    batches = [Batch(rig, 64) for _ in range(3)]
    failures: list[Any] = []

    def work(batch: Batch) -> None:
        for _ in range(10):
            batch.submit(*[batch.op(n) for n in range(16)])
            events: list[BatchEvent] = []
            while len(events) < 16:
                events += batch.collect(1, 5, (1, 0))
            if any(event.status != COMPLETE or event.ret != 256 for event in events):
                failures.append(events)

    threads = [threading.Thread(target=work, args=(batch,)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for batch in batches:
        assert rig.peek(batch.pointer, 4096) == DATA


def test_cufile(make_rig: Any) -> None:
    rig = make_rig("cufile")
    assert error(rig.f.hipFileBatchIOSetUp(4)) == "InvalidValue"
    batch = Batch(rig, 4)
    for capacity in (0, 129):
        assert error(rig.f.hipFileBatchIOSetUp(capacity)) == "InvalidValue"
    refused = "batchSubmitFailed"
    assert batch.submit() == refused
    assert batch.submit(batch.op(handle=1)) == refused
    assert batch.submit(batch.op(0), batch.op(file_offset=-1)) == refused
    assert batch.submit(*[batch.op(n) for n in range(5)]) == refused
    assert rig.f.hipFileBatchIOGetStatus(1, 0, 4, (0, 0)) == ((5041, 0), [])
    assert batch.submit(batch.op(0), batch.op(1, size=2**20), batch.op(2, opcode=9)) == "Success"
    assert sorted(batch.collect(3)) == [
        BatchEvent(100, COMPLETE, 256),
        BatchEvent(101, FAILED, -5),
        BatchEvent(102, COMPLETE, 256),
    ]
    host = rig.hip.hipHostMalloc(4096)[1]
    assert batch.submit(batch.op(0), batch.op(1, buffer=host)) == "Success"
    assert sorted(batch.collect(2)) == [BatchEvent(100, COMPLETE, 256), BatchEvent(101, COMPLETE, 256)]
    assert bytes(rig.machine.memory.view(host + 256, 256)) == DATA[256:512]
    assert batch.submit(*[batch.op(n) for n in range(4)]) == "Success"
    assert error(rig.f.hipFileBatchIOCancel(batch.handle)) == "Success"
    assert batch.collect(4, 4, (0, 0)) == []
    rig.f.hipFileDriverClose()
    assert error(rig.f.hipFileBatchIOCancel(0)) == "Success"
