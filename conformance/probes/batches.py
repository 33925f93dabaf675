"""Batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hipfile_conformance.probes.lab import MIB, PROBES, Lab, probe
from hipfile_conformance.targets.base import BatchOp


@probe
def batch_setup(lab: Lab) -> None:
    lab.f("DriverOpen")
    for n in (0, 1, 2, 128, 129, 256, 4096):
        status, handle = lab.f("BatchIOSetUp", n)
        lab.see(f"set up {n}", [list(status), bool(handle)])


@probe
def batch_run(lab: Lab) -> None:
    handle, p, _ = lab.warm()
    lab.f("BufRegister", p, 4 * MIB, 0)
    status, batch = lab.f("BatchIOSetUp", 4)
    ops = [BatchOp(p, i * 4096, i * 4096, 4096, handle, 0, 100 + i) for i in range(4)]
    lab.see("submit", [list(status), lab.f("BatchIOSubmit", batch, ops, 0)])
    got: list[Any] = []
    for _ in range(40):
        status, events = lab.f("BatchIOGetStatus", batch, 0, 4, 0.0)
        got += events
        if status.err or len(got) >= 4:
            break
        time.sleep(0.02)
    lab.see("events", [list(status), got])
    lab.see("status when empty", lab.f("BatchIOGetStatus", batch, 0, 4, 0.05))
    lab.see("again", lab.f("BatchIOSubmit", batch, ops[:2], 0))
    lab.see("min 2", lab.f("BatchIOGetStatus", batch, 2, 4, 2.0))
    lab.see("submit 5 of 4", lab.f("BatchIOSubmit", batch, [*ops, ops[0]], 0))
    lab.see("nr 0", lab.f("BatchIOSubmit", batch, [], 0))
    lab.see("cancel", lab.f("BatchIOCancel", batch))
    lab.see("destroy", lab.f("BatchIODestroy", batch))


for _name, _op in {
    "batch_bad_size": lambda p, h: BatchOp(p, 0, 0, 64 * MIB, h, 0),
    "batch_bad_handle": lambda p, h: BatchOp(p, 0, 0, 4096, 0, 0),
    "batch_bad_offset": lambda p, h: BatchOp(p, -1, 0, 4096, h, 0),
    "batch_bad_opcode": lambda p, h: BatchOp(p, 0, 0, 4096, h, 9),
    "batch_eof": lambda p, h: BatchOp(p, 8 * MIB - 100, 0, 4096, h, 0),
    "batch_too_large": lambda p, h: BatchOp(p, 0, 4 * MIB, 4096, h, 0),
    "batch_null_buffer": lambda p, h: BatchOp(0, 0, 0, 4096, h, 0),
}.items():

    def _batch_case(lab: Lab, make: Callable[[int, int], BatchOp] = _op) -> None:
        handle, p, _ = lab.warm()
        _, batch = lab.f("BatchIOSetUp", 4)
        lab.see("submit", lab.f("BatchIOSubmit", batch, [BatchOp(p, 0, 0, 4096, handle, 0, 1), make(p, handle)], 0))
        for _ in range(10):
            lab.see("status", lab.f("BatchIOGetStatus", batch, 0, 4, 0.0))
            time.sleep(0.03)

    PROBES[_name] = _batch_case


@probe
def batch_null_calls(lab: Lab) -> None:
    lab.f("DriverOpen")
    _, batch = lab.f("BatchIOSetUp", 4)
    lab.see("cancel null", lab.f("BatchIOCancel", 0))
    lab.see("submit null array", lab.t.call_hipFileBatchIOSubmit(batch, None, 0, 1))
