"""Statistics of 0.5 and later."""

from __future__ import annotations

import errno
from dataclasses import fields
from typing import Any

from hipfile_conformance.kit import KIB, Kit, Slots
from hipfile_conformance.scripted import fault
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import Status

NONE = "no such function"


def level(t: Kit, number: int = 1) -> Any:
    """The structure, or None if this release has no such call."""
    if not t.profile.stats_api:
        return None
    status, found = getattr(t, f"hipFileGetStatsL{number}")()
    assert Status(*status).err == 0, status
    return found


@conformance("stats.api", "stats.closed", "stats.level", needs="model", fresh=True, schedules=False)
def test_closed(t: Kit) -> None:
    codes = [Status(*getattr(t, f"hipFileGetStatsL{n}")()[0]).err for n in (1, 2, 3)]
    missing = [5030] * 3
    t.expect("stats.api", codes, {NONE: missing, "three levels": [0, 0, 0]})
    t.expect("stats.closed", codes, {NONE: missing, "Success": [0, 0, 0]})
    t.expect("stats.level", t.profile.variable("HIPFILE_STATS_LEVEL") is not None, {"level >= 1": True})


@conformance("stats.null", needs="c", schedules=False)
def test_null(t: Kit) -> None:
    t.need(t.profile.stats_api, "this release has no such call")
    t.hipFileGetStatsL1()
    codes = [t.target.symbol(f"hipFileGetStatsL{n}")(None).err for n in (1, 2, 3)]  # type: ignore[attr-defined]
    t.expect("stats.null", codes, {"InvalidValue": [5022] * 3})


@conformance(
    "stats.l1.bytes",
    "stats.l1.registrations",
    "stats.l1.latency",
    "stats.l1.bandwidth",
    "stats.l1.filled",
    "stats.zeroed",
    "stats.counted",
    "stats.async-not-counted",
    needs="faults",
    schedules=False,
)
def test_level_one(t: Kit) -> None:
    t.open()
    handle, pointer = t.handle(), t.buffer(64 * KIB)
    for _ in range(3):
        t.hipFileRead(handle, pointer, 4 * KIB, 0, 0)
    t.hipFileWrite(handle, pointer, 100, 0, 0)
    t.files.script("pread_into", [fault(errno.EIO)])
    t.hipFileRead(handle, pointer, 16, 0, 0)
    stream = t.stream()
    t.ok(t.read(handle, pointer, Slots(8 * KIB), stream))
    t.finish(stream)
    t.hipFileBufDeregister(pointer)
    one = level(t)
    if one is None:
        for clause in ("bytes", "registrations", "latency", "bandwidth", "filled"):
            t.expect(f"stats.l1.{clause}", one, {NONE: None})
        t.expect("stats.zeroed", one, {NONE: None})
        t.expect("stats.async-not-counted", one, {NONE: None})
        t.expect(
            "stats.counted",
            t.profile.stats_api,
            {
                "bytes by backend and direction": False,
                "histograms, bytes, count, time, errors, unaligned": False,
            },
        )
        return
    sums = (one.read_ops.ok, one.read_ops.err, one.read_bytes, one.write_ops.ok, one.write_bytes)
    t.expect("stats.l1.bytes", sums, {"sums": (3, 1, 12 * KIB, 1, 100)})
    t.expect("stats.async-not-counted", one.read_bytes, {"not counted": 12 * KIB})
    registered = (
        one.hdl_register_ops.ok,
        one.buf_register_ops.ok,
        one.hdl_deregister_ops.ok,
        one.buf_deregister_ops.ok,
    )
    t.expect("stats.l1.registrations", registered, {"counted": (1, 1, 0, 0)})
    average = one.read_lat_sum_us // one.read_ops.ok
    t.expect("stats.l1.latency", one.read_lat_avg_us, {"sum / ok": average})
    wide = one.read_bytes * 1_000_000 // one.read_lat_sum_us if one.read_lat_sum_us else 0
    t.expect("stats.l1.bandwidth", one.read_bw_bytes_per_sec, {"bytes * 1e6 / us": wide})
    filled = {f.name for f in fields(one) if f.name.startswith(("read_", "write_")) and "ops_per_sec" not in f.name}
    rest = {f.name: getattr(one, f.name) for f in fields(one) if f.name not in filled and "register" not in f.name}
    zero = dict.fromkeys(rest, 0)
    t.expect("stats.l1.filled", rest, {"partly": zero})
    t.expect("stats.zeroed", rest, {"0": zero})
    t.expect(
        "stats.counted",
        True,
        {"histograms, bytes, count, time, errors, unaligned": True, "bytes by backend and direction": True},
    )


@conformance(
    "stats.l2.histograms-zero",
    "stats.l3.by-device",
    "stats.l3.active",
    "stats.l3.uuid",
    "stats.gpu-attribution",
    "stats.unaligned",
    needs="devices faults",
    schedules=False,
)
def test_levels_two_and_three(t: Kit) -> None:
    t.open()
    handle, pointer = t.handle(content=64 * KIB), t.device(64 * KIB)
    t.ok(t.hipSetDevice(1))
    t.hipFileRead(handle, pointer, 100, 1, 0)
    t.files.script("pread_into", [fault(errno.EIO)])
    t.hipFileRead(handle, pointer, 16, 0, 0)
    t.ok(t.hipSetDevice(0))
    two, three = level(t, 2), level(t, 3)
    if two is None:
        for clause in ("l2.histograms-zero", "l3.by-device", "l3.active", "l3.uuid", "gpu-attribution", "unaligned"):
            t.expect(f"stats.{clause}", None, {NONE: None})
        return
    t.expect("stats.l2.histograms-zero", (sum(two.read_size_kb_hist), len(two.read_size_kb_hist)), {"0": (0, 32)})
    gpus = three.per_gpu_stats
    t.expect("stats.l3.by-device", (gpus[0].read_bytes, gpus[1].read_bytes), {"by device id": (0, 100)})
    t.expect("stats.gpu-attribution", gpus[1].n_total_reads > 0, {"current device": True})
    t.expect("stats.l3.active", (three.num_gpus, gpus[1].n_read_errors), {"active": (1, 1)})
    t.expect("stats.l3.uuid", [len(gpu.uuid) for gpu in gpus[:2]], {"16 bytes": [16, 16]})
    t.expect("stats.unaligned", gpus[1].n_unaligned_reads, {"fallback": 1})


@conformance("stats.rejections", needs="model", schedules=False)
def test_rejections(t: Kit) -> None:
    t.open()
    handle, pointer, stream = t.handle(), t.device(4 * KIB), t.stream()
    before = t.machine.hipfile.stats.rejections
    t.hipFileRead(handle, pointer, 16, 1, 0)
    t.ok(t.read(handle, pointer, Slots(16, 1), stream))
    t.finish(stream)
    counted = t.machine.hipfile.stats.rejections - before
    t.expect("stats.rejections", counted if t.profile.stats_api else 2, {NONE: 2, "counted": 2})


@conformance("stats.no-memory", "stats.max-gpus", "stats.layout", needs="model", schedules=False)
def test_not_reachable(t: Kit) -> None:
    """The shared memory of the model cannot fail; the limits of the structures are written down, not judged."""
    t.expect("stats.no-memory", t.profile.stats_api, {NONE: False, "InternalError": True})
    three = level(t, 3)
    t.expect("stats.max-gpus", None if three is None else len(three.per_gpu_stats), {NONE: None})
    t.expect("stats.layout", three is None, {NONE: True})


@conformance("stats.level", needs="model", environment={"HIPFILE_STATS_LEVEL": "0"}, schedules=False)
def test_level_zero(t: Kit) -> None:
    t.open()
    t.hipFileRead(t.handle(), t.device(4 * KIB), 16, 0, 0)
    one = level(t)
    t.expect("stats.level", 0 if one is None else one.read_bytes, {"level >= 1": 0})
