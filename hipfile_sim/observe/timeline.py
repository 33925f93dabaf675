"""A trace as text of fixed width: bars in virtual time, and the last steps with a column a stream.

`bars` shows what overlapped; `steps` shows what came after what. Failure reports print `steps`, the command line both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hipfile_sim.observe.trace import SlotEvent, Trace

_MARKS = {
    "cpu_copy": "F",
    "fastpath_copy": "F",
    "run_io": "F",
    "run_copy": "F",
    "copy": "c",
    "memcpy_kernel": "c",
    "kernel": "K",
    "host": "h",
    "set": "s",
    "wait": "w",
    "wait_value": "w",
}
"""Letters of the bars; what is not named here is drawn as ``=``."""

_SHORT = {"file_offset": "foff", "buffer_offset": "boff", "bytes_done": "done"}


def bars(trace: Trace, *, width: int = 100, streams: list[str] | None = None) -> str:
    """One row a stream, virtual time to the right.

    Parameters
    ----------
    trace : Trace
        What to draw.
    width : int
        Columns of the whole line, at least 40.
    streams : list of str or None
        Names of the streams to draw, None for all that did something.

    Returns
    -------
    str
        Lines joined by newlines; says so when nothing ran.
    """
    ran = [c for c in trace.commands if c.finished >= 0 and (streams is None or c.lane.name in streams)]
    if not ran:
        return "(no command has run)"
    width = max(40, width)
    names = {c.lane.index: f"{c.lane.group}:{c.lane.name}" for c in sorted(ran, key=lambda c: c.lane.index)}
    margin = min(24, max(len(name) for name in names.values()))
    room = width - margin - 3
    first = min(c.started for c in ran)
    span = max(1, max(c.finished for c in ran) - first)
    lines = []
    for index, name in names.items():
        row = [" "] * room
        for command in (c for c in ran if c.lane.index == index):
            left = (command.started - first) * room // span
            right = max(left + 1, -(-(command.finished - first) * room // span))
            mark = _MARKS.get(command.kind, "=")
            for column in range(min(left, room - 1), min(right, room)):
                if command.finished > command.started or row[column] == " ":  # an instant hides nothing
                    row[column] = mark
        lines.append(f"{_fit(name, margin)} |{''.join(row)}|")
    lines.append(f"{'':{margin}} {_scale(first, span, room)}")
    used = {c.kind for c in ran}
    letters: dict[str, list[str]] = {}
    for kind, mark in _MARKS.items():
        if kind in used:
            letters.setdefault(mark, []).append(kind)
    rest = sorted(used - _MARKS.keys())
    if rest:
        letters["="] = rest
    legend = "  ".join(f"{mark} {'/'.join(kinds)}" for mark, kinds in letters.items())
    lines.append(f"{'':{margin}}  {legend}"[:width])
    return "\n".join(lines)


class _Step(NamedTuple):
    order: int
    time: int
    column: int  # -1 host
    text: str


def steps(trace: Trace, *, last: int | None = 20, first: int = 0, width: int = 100, all_calls: bool = True) -> str:
    """The last steps, newest at the bottom, with a column for the host and one for each stream that takes part.

    Parameters
    ----------
    last : int or None
        How many steps; None for all.
    first : int
        How many of the first steps to show besides.
    all_calls : bool
        False leaves out host calls that neither submitted a command nor waited for one.
    width : int
        Columns of the whole line. Columns share it and are cut to fit, never below 12.

    Returns
    -------
    str
        A header and a line a step. ``>`` marks a command that started and has not finished.
    """
    happened = sorted(_steps(trace, all_calls))
    hidden = 0 if last is None else max(0, len(happened) - first - last)
    if hidden:
        happened = happened[:first] + happened[first + hidden :]
    if not happened:
        return "(nothing has happened)"
    lanes = sorted({step.column for step in happened if step.column >= 0})
    clock = 12
    cell = max(12, min(44, (width - clock) // (1 + len(lanes)) - 3))
    titles = ["host", *(f"{trace.lanes[i].group}:{trace.lanes[i].name}" for i in lanes)]
    lines = ["   ".join([f"{'us':>{clock - 3}}", *(_fit(title, cell) for title in titles)]).rstrip()]
    for number, step in enumerate(happened):
        if hidden and number == first:
            lines.append(f"{'...':>{clock - 3}}   {hidden} {'steps' if first else 'earlier steps'}")
        cells = [""] * (1 + len(lanes))
        cells[0 if step.column < 0 else 1 + lanes.index(step.column)] = step.text
        line = "   ".join([f"{step.time / 1000:>{clock - 3}.1f}", *(_fit(text, cell) for text in cells)])
        lines.append(line.rstrip())
    return "\n".join(lines)


def _steps(trace: Trace, all_calls: bool) -> list[_Step]:
    causes = [command.call for command in trace.commands] + [wait.call for wait in trace.waits]
    busy = {id(call.outermost) for call in causes if call is not None}
    inside: dict[int, list[SlotEvent]] = {}
    found = []
    for slot in trace.slots:
        if slot.call is not None:
            inside.setdefault(id(slot.call.outermost), []).append(slot)
        elif slot.thread:
            found.append(_Step(slot.order, slot.time, -1, f"{'write' if slot.write else 'read'} {slot.name}"))
    for call in trace.calls:
        if call.parent is None and (all_calls or id(call) in busy):
            found.append(_Step(call.order, call.start, -1, call.name + _touched(inside.get(id(call), ()))))
    for command in trace.commands:
        lane = command.lane.index
        if command.finish_order >= 0:
            size = f" {_size(command.nbytes)}" if command.nbytes else ""
            text = command.label + size + _touched(command.slots)
            found.append(_Step(command.finish_order, command.finished, lane, text))
        elif command.start_order >= 0:
            found.append(_Step(command.start_order, command.started, lane, f"> {command.label}"))
    return found


def _touched(slots: Sequence[SlotEvent]) -> str:
    text = ""
    for verb, write in (("R", False), ("W", True)):
        names = [_SHORT.get(slot.name, slot.name) for slot in slots if slot.write is write]
        if names:
            text += f" {verb} {','.join(names)}"
    return text


def _size(nbytes: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << shift:
            return f"{nbytes / (1 << shift):.4g} {unit}"
    return f"{nbytes} B"


def _fit(text: str, width: int) -> str:
    return f"{text:{width}}" if len(text) <= width else text[: width - 1] + "~"


def _scale(first: int, span: int, room: int) -> str:
    left, right = f"{first / 1000:.0f} us", f"{(first + span) / 1000:.0f} us"
    return f"{left}{right:>{max(1, room + 2 - len(left))}}"
