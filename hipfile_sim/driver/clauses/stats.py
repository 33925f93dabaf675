"""Clauses of statistics."""

from __future__ import annotations

from hipfile_sim.driver.clauses.registry import Row

_L1 = "hipFileGetStatsL1"
_ALL = "hipFileGetStatsL1 hipFileGetStatsL2 hipFileGetStatsL3"
_ABSENT = "no such function"


def _api(name: str, text: str, answer: str, functions: str = _L1, level: str = "must") -> Row:
    return (f"stats.{name}", level, "code", text, (("0.2", _ABSENT), ("0.5", answer)), None, functions)


ROWS: tuple[Row, ...] = (
    (
        "stats.api",
        "must",
        "changelog",
        "Statistics can be read by a call.",
        (("0.2", _ABSENT), ("0.5", "three levels")),
        None,
        _ALL,
    ),
    _api("null", "A null structure is refused.", "InvalidValue", _ALL),
    _api("no-memory", "Without the shared memory of the statistics the calls fail.", "InternalError", _ALL),
    _api("closed", "The calls work while the driver is closed.", "Success", _ALL),
    _api("zeroed", "Fields that are not collected are 0.", "0", _ALL),
    _api("l1.bytes", "Level 1 sums bytes, calls, errors and time of reads and writes over all GPUs.", "sums"),
    _api("l1.registrations", "Level 1 counts registrations of files and buffers, not deregistrations.", "counted"),
    _api("l1.latency", "An average latency is the summed time by the successful calls.", "sum / ok"),
    _api("l1.bandwidth", "A bandwidth is bytes by summed time of the calls, not by elapsed time.", "bytes * 1e6 / us"),
    _api(
        "l1.filled", "Level 1 fills calls, bytes, latencies, bandwidths and registrations; all else stays 0.", "partly"
    ),
    _api("l2.histograms-zero", "The size histograms of level 2 stay empty.", "0", "hipFileGetStatsL2"),
    _api("l3.by-device", "Level 3 is indexed by device number; devices in between stay 0.", "by device id", _ALL),
    _api("l3.active", "A device counts as active even if it has seen errors alone.", "active", "hipFileGetStatsL3"),
    _api(
        "l3.uuid",
        "The identity of a device is 16 bytes, zero if HIP does not tell it.",
        "16 bytes",
        "hipFileGetStatsL3",
    ),
    _api("max-gpus", "How many devices the structures hold.", "unspecified", "hipFileGetStatsL3", "unspecified"),
    _api("unaligned", "Unaligned operations are counted for the fallback alone.", "fallback", "hipFileGetStatsL3"),
    _api("rejections", "A refusal of the fastpath is counted, for asynchronous operations too.", "counted"),
    _api(
        "gpu-attribution", "Work counts for the device that is current in the calling thread.", "current device", _ALL
    ),
    _api("async-not-counted", "Asynchronous operations are not counted.", "not counted", f"{_L1} hipFileReadAsync"),
    _api("layout", "The exact layout of the structures.", "unspecified", _ALL, "unspecified"),
    (
        "stats.counted",
        "must",
        "code",
        "What is counted internally for synchronous I/O.",
        (("0.2", "bytes by backend and direction"), ("0.4", "histograms, bytes, count, time, errors, unaligned")),
        None,
        "hipFileRead hipFileWrite",
        "When the richer counters came is deduced.",
    ),
    (
        "stats.level",
        "must",
        "code",
        "Nothing is counted at level 0.",
        "level >= 1",
        None,
        "hipFileRead hipFileWrite",
    ),
)
