"""Statistics of the synchronous path, in the three levels of ``hipFileGetStatsL1/L2/L3``.

Source of the rules: code of the releases and their tests. Times are virtual microseconds. Asynchronous fallback
operations are not counted. [stats.async-not-counted]
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hipfile_sim.driver.driver import Driver

MAX_GPUS = 16
"""Devices that have counters. The header's own limit is not known. [stats.max-gpus]"""

HISTOGRAM = 32
DIO_ALIGN = 4096


@dataclass(slots=True)
class OpCount:
    """Calls that went well, and that did not."""

    ok: int = 0
    err: int = 0


@dataclass(slots=True)
class StatsL1:
    """Totals over all devices and both backends. What is not named in `Statistics.l1` stays 0. [stats.l1.filled]"""

    read_ops: OpCount = field(default_factory=OpCount)
    write_ops: OpCount = field(default_factory=OpCount)
    hdl_register_ops: OpCount = field(default_factory=OpCount)
    hdl_deregister_ops: OpCount = field(default_factory=OpCount)
    buf_register_ops: OpCount = field(default_factory=OpCount)
    buf_deregister_ops: OpCount = field(default_factory=OpCount)
    read_bytes: int = 0
    write_bytes: int = 0
    read_bw_bytes_per_sec: int = 0
    write_bw_bytes_per_sec: int = 0
    read_lat_avg_us: int = 0
    write_lat_avg_us: int = 0
    read_ops_per_sec: int = 0
    write_ops_per_sec: int = 0
    read_lat_sum_us: int = 0
    write_lat_sum_us: int = 0
    batch_submit_ops: int = 0
    batch_complete_ops: int = 0
    batch_setup_ops: int = 0
    batch_cancel_ops: int = 0
    batch_destroy_ops: int = 0
    batch_enqueued_ops: int = 0
    batch_posix_enqueued_ops: int = 0
    batch_processed_ops: int = 0
    batch_posix_processed_ops: int = 0
    batch_nvfs_submit_ops: int = 0
    batch_p2p_submit_ops: int = 0
    batch_aio_submit_ops: int = 0
    batch_iouring_submit_ops: int = 0
    batch_mixed_io_submit_ops: int = 0
    batch_total_submit_ops: int = 0
    batch_read_bytes: int = 0
    batch_write_bytes: int = 0
    batch_read_bw_bytes: int = 0
    batch_write_bw_bytes: int = 0
    batch_submit_lat_avg_us: int = 0
    batch_completion_lat_avg_us: int = 0
    batch_submit_ops_per_sec: int = 0
    batch_complete_ops_per_sec: int = 0
    batch_submit_lat_sum_us: int = 0
    batch_completion_lat_sum_us: int = 0
    last_batch_read_bytes: int = 0
    last_batch_write_bytes: int = 0


@dataclass(slots=True)
class StatsL2:
    """`StatsL1` and two histograms, which the release leaves at zero. [stats.l2.histograms-zero]"""

    basic: StatsL1
    read_size_kb_hist: list[int] = field(default_factory=lambda: [0] * HISTOGRAM)
    write_size_kb_hist: list[int] = field(default_factory=lambda: [0] * HISTOGRAM)


@dataclass(slots=True)
class PerGpuStats:
    """One device. `uuid` is 16 bytes; sizes in bytes, durations in microseconds."""

    uuid: bytes = bytes(16)
    read_bytes: int = 0
    read_bw_bytes_per_sec: int = 0
    read_duration_us: int = 0
    n_total_reads: int = 0
    n_read_errors: int = 0
    n_nvfs_reads: int = 0
    n_posix_reads: int = 0
    n_unaligned_reads: int = 0
    write_bytes: int = 0
    write_bw_bytes_per_sec: int = 0
    write_duration_us: int = 0
    n_total_writes: int = 0
    n_write_errors: int = 0
    n_nvfs_writes: int = 0
    n_posix_writes: int = 0
    n_unaligned_writes: int = 0
    n_mmap: int = 0
    n_mmap_ok: int = 0


@dataclass(slots=True)
class StatsL3:
    """`StatsL2`, and each device by its ordinal; holes stay zero. [stats.l3.by-device]"""

    detailed: StatsL2
    num_gpus: int
    per_gpu_stats: list[PerGpuStats]


class _Counter:
    """One device, one backend, one direction."""

    __slots__ = ("errors", "nbytes", "ok", "time_us", "unaligned")

    def __init__(self) -> None:
        self.ok = 0
        self.errors = 0
        self.nbytes = 0
        self.time_us = 0
        self.unaligned = 0


class Statistics:
    """Counters of one driver. They work with the driver closed. [stats.closed]

    Parameters
    ----------
    driver : Driver
    """

    __slots__ = (
        "_counters",
        "_driver",
        "_enabled",
        "_lock",
        "buffer_registrations",
        "file_registrations",
        "rejections",
    )

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._enabled: bool | None = None  # read once, as the library does
        self._lock = threading.Lock()
        self._counters: dict[tuple[int, str, bool], _Counter] = {}
        self.file_registrations = 0
        self.buffer_registrations = 0
        self.rejections = 0

    @property
    def enabled(self) -> bool:
        """Level 1 and above count. [stats.level]"""
        enabled = self._enabled
        if enabled is None:
            enabled = self._enabled = self._driver.environment.stats_level > 0
        return enabled

    def file_registered(self) -> None:
        """A handle was registered."""
        if self.enabled:
            with self._lock:
                self.file_registrations += 1

    def buffer_registered(self) -> None:
        """A buffer was registered."""
        if self.enabled:
            with self._lock:
                self.buffer_registrations += 1

    def fastpath_rejected(self) -> None:
        """The fastpath refused an operation, asynchronous ones included. [stats.rejections]"""
        if self.enabled:
            with self._lock:
                self.rejections += 1

    def transferred(
        self, device: int, backend: str, write: bool, result: int, duration_ns: int, address: int, file_offset: int
    ) -> None:
        """A synchronous read or write ended with `result`.

        Parameters
        ----------
        device : int
            Current device of the calling thread: to it the operation is ascribed. [stats.gpu-attribution]
        backend : str
            Name of the backend that moved the bytes.
        write : bool
        result : int
            Bytes, or a negative code.
        duration_ns : int
            Virtual ns.
        address, file_offset : int
            Where it began; misaligned ones are counted for the fallback alone. [stats.unaligned]
        """
        if not self.enabled or not 0 <= device < MAX_GPUS:
            return
        with self._lock:
            key = (device, backend, write)
            counter = self._counters.get(key)
            if counter is None:
                counter = self._counters[key] = _Counter()
            if result < 0:
                counter.errors += 1
                return
            counter.ok += 1
            counter.nbytes += result
            counter.time_us += duration_ns // 1000
            if backend == "fallback" and (address | file_offset | result) % DIO_ALIGN:
                counter.unaligned += 1

    def l1(self) -> StatsL1:
        """Totals. Bandwidth is bytes over the sum of the operations' own times. [stats.l1.bandwidth]"""
        stats = StatsL1()
        with self._lock:
            for (_, _, write), counter in self._counters.items():
                ops = stats.write_ops if write else stats.read_ops
                ops.ok += counter.ok
                ops.err += counter.errors
                if write:
                    stats.write_bytes += counter.nbytes
                    stats.write_lat_sum_us += counter.time_us
                else:
                    stats.read_bytes += counter.nbytes
                    stats.read_lat_sum_us += counter.time_us
            stats.hdl_register_ops.ok = self.file_registrations
            stats.buf_register_ops.ok = self.buffer_registrations
        stats.read_lat_avg_us = _over(stats.read_lat_sum_us, stats.read_ops.ok)
        stats.write_lat_avg_us = _over(stats.write_lat_sum_us, stats.write_ops.ok)
        stats.read_bw_bytes_per_sec = _over(stats.read_bytes * 1_000_000, stats.read_lat_sum_us)
        stats.write_bw_bytes_per_sec = _over(stats.write_bytes * 1_000_000, stats.write_lat_sum_us)
        return stats

    def l2(self) -> StatsL2:
        """`l1` and empty histograms."""
        return StatsL2(self.l1())

    def l3(self) -> StatsL3:
        """`l2` and every device that has seen activity, errors alone included. [stats.l3.active]"""
        gpus = [PerGpuStats() for _ in range(MAX_GPUS)]
        active: set[int] = set()
        with self._lock:
            for (device, backend, write), counter in self._counters.items():
                active.add(device)
                gpu = gpus[device]
                direct = counter.ok if backend == "fastpath" else 0
                posix = counter.ok if backend == "fallback" else 0
                if write:
                    gpu.write_bytes += counter.nbytes
                    gpu.write_duration_us += counter.time_us
                    gpu.n_total_writes += counter.ok
                    gpu.n_write_errors += counter.errors
                    gpu.n_unaligned_writes += counter.unaligned
                    gpu.n_nvfs_writes += direct
                    gpu.n_posix_writes += posix
                else:
                    gpu.read_bytes += counter.nbytes
                    gpu.read_duration_us += counter.time_us
                    gpu.n_total_reads += counter.ok
                    gpu.n_read_errors += counter.errors
                    gpu.n_unaligned_reads += counter.unaligned
                    gpu.n_nvfs_reads += direct
                    gpu.n_posix_reads += posix
            for device in active:
                gpu = gpus[device]
                gpu.uuid = self._driver.device_uuid(device)
                gpu.n_mmap = gpu.n_mmap_ok = self.buffer_registrations
                gpu.read_bw_bytes_per_sec = _over(gpu.read_bytes * 1_000_000, gpu.read_duration_us)
                gpu.write_bw_bytes_per_sec = _over(gpu.write_bytes * 1_000_000, gpu.write_duration_us)
        return StatsL3(self.l2(), len(active), gpus)


def _over(amount: int, divisor: int) -> int:
    return amount // divisor if divisor else 0
