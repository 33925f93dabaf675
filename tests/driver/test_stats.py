"""Statistics of 0.5, and parameters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hipfile_driver_rig import AMD, EIO, Slots, error, pattern

from hipfile_sim.driver.codes import FileDescr


def test_nothing_has_happened(make_rig: Any) -> None:
    rig = make_rig()
    status, l1 = rig.f.hipFileGetStatsL1()
    assert error(status) == "Success"
    assert not any(value for value in asdict(l1).values() if not isinstance(value, dict))
    assert rig.f.hipFileGetStatsL3()[1].num_gpus == 0


def test_counters(make_rig: Any) -> None:
    rig = make_rig()
    _, handle = rig.file(pattern(8192))
    pointer = rig.buffer(8192)
    for size in (4096, 100):
        rig.f.hipFileRead(handle, pointer, size, 0, 0)
    rig.f.hipFileWrite(handle, pointer, 4096, 0, 0)
    rig.files.reads += [EIO]
    rig.f.hipFileRead(handle, pointer, 4096, 0, 0)
    rig.hip.hipSetDevice(1)
    rig.f.hipFileRead(handle, pointer, 8192, 0, 0)  # ascribed to the caller's device, not to the buffer's
    rig.hip.hipSetDevice(0)
    stream, slots = rig.stream(0), Slots(64)
    rig.read(handle, pointer, slots, stream)
    rig.sync(stream)
    rig.f.hipFileDriverClose()
    l1 = rig.f.hipFileGetStatsL1()[1]
    assert (l1.read_ops.ok, l1.read_ops.err, l1.write_ops.ok, l1.write_ops.err) == (3, 1, 1, 0)
    assert (l1.read_bytes, l1.write_bytes) == (4096 + 100 + 8192, 4096)
    assert (l1.hdl_register_ops.ok, l1.buf_register_ops.ok) == (1, 1)
    assert l1.read_lat_sum_us > 0
    assert l1.read_lat_avg_us == l1.read_lat_sum_us // 3
    assert l1.read_bw_bytes_per_sec == l1.read_bytes * 1_000_000 // l1.read_lat_sum_us
    assert l1.hdl_deregister_ops.ok == l1.batch_submit_ops == l1.read_ops_per_sec == 0
    l3 = rig.f.hipFileGetStatsL3()[1]
    assert l3.detailed.basic == l1
    assert sum(l3.detailed.read_size_kb_hist + l3.detailed.write_size_kb_hist) == 0
    assert l3.num_gpus == 2
    first, second, third = l3.per_gpu_stats[:3]
    assert (first.read_bytes, first.n_total_reads, first.n_read_errors, first.n_posix_reads) == (4196, 2, 1, 2)
    assert (first.n_unaligned_reads, first.n_nvfs_reads, first.n_mmap, first.n_mmap_ok) == (1, 0, 1, 1)
    assert second.read_bytes == 8192
    assert len(first.uuid) == 16
    assert first.uuid != second.uuid != bytes(16)
    assert third.uuid == bytes(16)
    assert rig.f.stats.rejections == 5 + 1, "asynchronous refusals count, too"


def test_errors_alone_make_a_device_active(make_rig: Any) -> None:
    rig = make_rig()
    _, handle = rig.file(pattern(64))
    rig.files.reads += [EIO]
    rig.f.hipFileRead(handle, rig.buffer(64), 64, 0, 0)
    assert rig.f.hipFileGetStatsL3()[1].num_gpus == 1


def test_level_zero_counts_nothing(make_rig: Any) -> None:
    rig = make_rig(env={"HIPFILE_STATS_LEVEL": "0"})
    _, handle = rig.file(pattern(64))
    rig.f.hipFileRead(handle, rig.buffer(64), 64, 0, 0)
    assert rig.f.hipFileGetStatsL1()[1].read_ops.ok == 0


def test_failed_registrations_are_not_counted(make_rig: Any) -> None:
    rig = make_rig()
    rig.f.hipFileHandleRegister(FileDescr(1, -1))
    rig.f.hipFileBufRegister(0, 1, 0)
    l1 = rig.f.hipFileGetStatsL1()[1]
    assert (l1.hdl_register_ops.ok, l1.buf_register_ops.ok) == (0, 0)


def _parameter_calls(f: Any) -> list[Any]:
    return [
        lambda: f.hipFileDriverGetProperties(),
        lambda: f.hipFileDriverSetPollMode(True, 4),
        lambda: f.hipFileDriverSetMaxDirectIOSize(4),
        lambda: f.hipFileDriverSetMaxCacheSize(4),
        lambda: f.hipFileDriverSetMaxPinnedMemSize(4),
        lambda: f.hipFileGetParameterSizeT(99),
        lambda: f.hipFileGetParameterBool(0),
        lambda: f.hipFileGetParameterString(0, 8),
        lambda: f.hipFileSetParameterSizeT(0, 1),
        lambda: f.hipFileSetParameterBool(0, True),
        lambda: f.hipFileSetParameterString(0, "x"),
    ]


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("is_open", [False, True])
def test_parameters_are_not_implemented(make_rig: Any, profile: str, is_open: bool) -> None:
    rig = make_rig(profile)
    if is_open:
        rig.f.hipFileDriverOpen()
    for call in _parameter_calls(rig.f):
        assert error(call()) == "InternalError"
    assert rig.count == int(is_open)


def test_cufile_has_parameters(make_rig: Any) -> None:
    rig = make_rig("cufile")
    assert rig.f.hipFileSetParameterBool(2, True).ok
    assert rig.f.hipFileGetParameterBool(2)[1] is True
    assert error(rig.f.hipFileGetParameterBool(99)) == "InvalidValue"
    rig.f.hipFileDriverOpen()
    assert error(rig.f.hipFileSetParameterBool(2, False)) == "DriverAlreadyOpen"
    assert error(rig.f.hipFileSetParameterBool(99, False)) == "InvalidValue"
    assert rig.f.hipFileGetParameterString(0, 1) == ((0, 0), "")
    assert error(rig.f.hipFileGetParameterString(0, 0)) == "InvalidValue"
    assert rig.f.hipFileDriverSetMaxCacheSize(77).ok
    assert rig.f.hipFileDriverSetPollMode(True, 8).ok
    properties = rig.f.hipFileDriverGetProperties()[1]
    assert (properties.max_device_cache_size, properties.nvfs.poll_thresh_size) == (77, 8)
