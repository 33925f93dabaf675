"""Chrome-trace JSON of a `Trace`, as Perfetto and ``chrome://tracing`` open it.

Host threads are rows of the process "host", streams are rows of one process a device. Arrows lead from the call that
submitted a command to the command, from a command to the one that waited for it, and from a command to the host's wait.
Times are virtual: one unit is a µs of the machine's clock, with ns as fractions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipfile_sim.observe.trace import CallEvent, CommandEvent, SlotEvent, Trace

HOST_PID = 1
DEVICE_PID = 100
"""The process number of device 0; device n has this plus n."""

_SHORTEST = 1
"""ns: what an arrow needs to find the slice that it starts or ends in."""

Event = dict[str, Any]


def chrome_trace(trace: Trace) -> dict[str, Any]:
    """The trace as a JSON-able object in the Trace Event Format.

    Parameters
    ----------
    trace : Trace
        What to export. Commands that have not run are left out, and counted in ``otherData.not_run``.

    Returns
    -------
    dict
        ``traceEvents``, ``displayTimeUnit`` and ``otherData``.
    """
    threads = _threads(trace)
    events = [*_names(trace, threads), *_body(trace, threads)]
    ran = sum(1 for c in trace.commands if c.finished >= 0)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "clock": "virtual",
            "calls": len(trace.calls),
            "commands": ran,
            "not_run": len(trace.commands) - ran,
        },
    }


def write_chrome(trace: Trace, path: str | Path) -> None:
    """Write `chrome_trace` to a file.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    with open(path, "w", encoding="utf-8") as file:
        json.dump(chrome_trace(trace), file, default=str)
        file.write("\n")


def _us(ns: int) -> float:
    return ns / 1000


def _threads(trace: Trace) -> dict[int, int]:
    """Host threads in order of appearance, numbered from 1: the system's numbers differ from run to run."""
    events: list[CallEvent | CommandEvent | SlotEvent] = [*trace.calls, *trace.commands, *trace.slots]
    seen = sorted((event.order, event.thread) for event in events if event.thread)
    numbers: dict[int, int] = {}
    for _, thread in seen:
        numbers.setdefault(thread, len(numbers) + 1)
    return numbers


def _names(trace: Trace, threads: dict[int, int]) -> Iterator[Event]:
    def name(pid: int, tid: int, what: str, value: str, order: int) -> Iterator[Event]:
        yield {"ph": "M", "name": f"{what}_name", "pid": pid, "tid": tid, "args": {"name": value}}
        yield {"ph": "M", "name": f"{what}_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": order}}

    yield from name(HOST_PID, 0, "process", "host", 0)
    for number in threads.values():
        yield from name(HOST_PID, number, "thread", f"host thread {number}", number)
    for device in sorted({lane.group for lane in trace.lanes.values()}):
        yield from name(DEVICE_PID + device, 0, "process", f"device {device}", 1 + device)
    for lane in trace.lanes.values():
        yield from name(DEVICE_PID + lane.group, _row(lane.index), "thread", lane.name, lane.index)


def _row(lane: int) -> int:
    return lane + 1


def _body(trace: Trace, threads: dict[int, int]) -> Iterator[Event]:
    done = {(c.lane.index, c.ticket): c for c in trace.commands if c.finished >= 0}
    for call in trace.calls:
        yield _call(call, threads)
    flow = 0
    for command in done.values():
        yield _command(trace, command)
        for slot in command.slots:
            yield _slot(slot, DEVICE_PID + command.lane.group, _row(command.lane.index))
        start = (DEVICE_PID + command.lane.group, _row(command.lane.index), command.started)
        if command.call is not None:
            call = command.call
            flow += 1
            yield from _arrow(flow, "submit", (HOST_PID, threads[call.thread], call.start), start)
        for lane, ticket in command.deps:
            before = done.get((lane, ticket))
            if before is not None and lane != command.lane.index:
                flow += 1
                yield from _arrow(flow, "order", _end(before), start)
    for slot in trace.slots:
        if slot.thread:
            yield _slot(slot, HOST_PID, threads[slot.thread])
    for wait in trace.waits:
        if wait.call is None:
            continue
        end = (HOST_PID, threads[wait.call.thread], max(wait.call.start, wait.call.end - _SHORTEST))
        for target in wait.targets:
            before = done.get(target)
            if before is not None:
                flow += 1
                yield from _arrow(flow, "wait", _end(before), end)
    for note in trace.notes:
        row = threads.get(note.thread, 1)
        args = {"message": note.note.message, "severity": note.note.severity, "site": str(note.note.site or "")}
        yield {
            "ph": "i", "s": "t", "name": note.note.id, "cat": "note", "pid": HOST_PID, "tid": row, "ts": _us(note.time),
            "args": args,
        }  # fmt: skip


def _call(call: CallEvent, threads: dict[int, int]) -> Event:
    end = call.end if call.end >= 0 else call.start
    args = {name: _value(value) for name, value in call.args.items()}
    return {
        "ph": "X",
        "name": call.name,
        "cat": call.api,
        "pid": HOST_PID,
        "tid": threads[call.thread],
        "ts": _us(call.start),
        "dur": _us(max(end - call.start, _SHORTEST)),
        "args": {**args, "result": str(call.result), "site": str(call.site or ""), "call": call.seq},
    }


def _command(trace: Trace, command: CommandEvent) -> Event:
    touched = [f"{'writes' if a.write else 'reads'} {trace.place(a)}" for a in command.accesses]
    return {
        "ph": "X",
        "name": command.label,
        "cat": command.kind,
        "pid": DEVICE_PID + command.lane.group,
        "tid": _row(command.lane.index),
        "ts": _us(command.started),
        "dur": _us(max(command.finished - command.started, _SHORTEST)),
        "args": {
            "ticket": command.ticket,
            "submitted_us": _us(command.submitted),
            "bytes": command.nbytes,
            "touches": touched,
            "site": str(command.site or ""),
        },
    }


def _slot(slot: SlotEvent, pid: int, tid: int) -> Event:
    verb = "write" if slot.write else "read"
    return {
        "ph": "i",
        "s": "t",
        "name": f"{verb} {slot.name}",
        "cat": "slot",
        "pid": pid,
        "tid": tid,
        "ts": _us(slot.time),
        "args": {"address": hex(slot.address), "operation": slot.operation, "by": slot.what},
    }


def _end(command: CommandEvent) -> tuple[int, int, int]:
    last = max(command.started, command.finished - _SHORTEST)
    return (DEVICE_PID + command.lane.group, _row(command.lane.index), last)


def _arrow(number: int, name: str, start: tuple[int, int, int], end: tuple[int, int, int]) -> Iterator[Event]:
    common = {"name": name, "cat": "flow", "id": number}
    yield {"ph": "s", **common, "pid": start[0], "tid": start[1], "ts": _us(start[2])}
    yield {"ph": "f", "bp": "e", **common, "pid": end[0], "tid": end[1], "ts": _us(max(start[2], end[2]))}


def _value(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return hex(value) if value >= 1 << 32 else value
    return str(value)
