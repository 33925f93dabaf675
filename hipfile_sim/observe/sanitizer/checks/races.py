"""Races: two deeds on the same bytes, at least one writes, and nothing orders them."""

from __future__ import annotations

from hipfile_sim.engine.command import MEM
from hipfile_sim.observe.sanitizer.deeds import Clash, Deed
from hipfile_sim.observe.sanitizer.family import Family
from hipfile_sim.observe.sanitizer.findings import declare

READ_WRITE = declare(
    "race.read-write",
    "error",
    "a stream reads memory that another stream writes",
    why="Streams run at their own speed. The reader sees the old bytes, the new ones, or some of each.",
    fix="Record an event behind the first and let the other stream wait for it.",
)
WRITE_WRITE = declare(
    "race.write-write",
    "error",
    "two streams write the same memory",
    why="Which bytes stay depends on which stream is quicker.",
    fix="Record an event behind the first and let the other stream wait for it.",
)
HOST_READ = declare(
    "race.host-read",
    "error",
    "the host reads memory that a stream writes",
    why="An asynchronous copy returns at once. What the host reads before it has waited is old, or half new.",
    fix="Synchronise the stream, or an event behind the copy, before the host reads.",
)
HOST_WRITE = declare(
    "race.host-write",
    "error",
    "the host writes memory that a stream reads or writes",
    why="A copy from pinned memory takes the bytes when the stream gets there, so it moves the old or the new ones.",
    fix="Synchronise the stream, or an event behind the copy, before the host writes again.",
)
FILE = declare(
    "race.file",
    "error",
    "two operations on the same bytes of a file, at least one of which writes",
    why="Operations of different streams reach the file in any order.",
    fix="Put them on one stream, or record an event behind the first and let the other stream wait for it.",
)


class Races(Family):
    """Whatever no other family has claimed."""

    def conflict(self, clash: Clash) -> bool:
        earlier, later = clash.earlier, clash.later
        if (earlier.flagged and later.flagged) or any(
            deed.op is not None and deed.op.astray for deed in (earlier, later)
        ):
            return True  # said, or follows from what was said of its slots
        earlier.flagged = later.flagged = True
        host = next((deed for deed in (earlier, later) if deed.is_host), None)
        if clash.space != MEM:
            id = FILE
        elif host is not None:
            host_writes = clash.earlier_write if host is earlier else clash.later_write
            id = HOST_WRITE if host_writes else HOST_READ
        else:
            id = WRITE_WRITE if clash.earlier_write and clash.later_write else READ_WRITE
        first, second = _program_order(clash)
        detail = self.core.names.describe(clash.space, clash.start, clash.end)
        verbs = {deed: "writes" if write else "reads" for deed, write in _ends(clash)}
        self.core.report(
            id,
            f"{second} {verbs[second]} what {first} {verbs[first]}, and nothing orders the two",
            tuple(deed.place(verbs[deed][:-1], detail) for deed in (first, second)),
            missing=_missing(first, second),
            fix=_fix(first, second),
        )
        return True


def _ends(clash: Clash) -> tuple[tuple[Deed, bool], tuple[Deed, bool]]:
    return (clash.earlier, clash.earlier_write), (clash.later, clash.later_write)


def _program_order(clash: Clash) -> tuple[Deed, Deed]:
    """What the program asked for first, first: the order in which it happened to run means nothing."""
    one, two = clash.earlier, clash.later
    if one.op is not None and two.op is not None and two.op.seq < one.op.seq:
        return two, one
    if (
        one.site is not None
        and two.site is not None
        and one.site[::2] == two.site[::2]
        and two.site.line < one.site.line
    ):
        return two, one
    return one, two


def _missing(first: Deed, second: Deed) -> str:
    if first.lane is not None and second.lane is not None:
        return (
            f"no event that {first.lane.name} records behind the one and {second.lane.name} waits for before the other"
        )
    lane = first.lane or second.lane
    if lane is None:
        return "no join or hand-over between the two threads"
    return f"the host did not wait for {lane.name}"


def _fix(first: Deed, second: Deed) -> str:
    if first.lane is not None and second.lane is not None:
        return f"record an event on {first.lane.name} behind the first, and let {second.lane.name} wait for it"
    lane = first.lane or second.lane
    if lane is None:
        return "let one thread wait for the other, and tell the sanitizer with thread_joined"
    return f"synchronise {lane.name}, or an event recorded on it, before the host goes on"
