"""The wait graph: who waits for what, and why it cannot come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hipfile_sim.engine.command import HELD, Lane, Marker, marker_done

if TYPE_CHECKING:
    from hipfile_sim.engine.base import Engine


def why_blocked(engine: Engine, lane: Lane) -> str:
    """Why the first command of `lane` does not run, in one sentence."""
    running = lane.running
    if running is not None:
        return f"runs {running.describe()}{_submitted(running.site)}, which has not returned"
    if not lane.queue:
        return "is empty"
    head = lane.queue[0]
    name = f"{head.describe()}{_submitted(head.site)}"
    if lane.stalled == HELD:
        return f"is held by stall(); next is {name}"
    for dep in head.deps:
        if not marker_done(dep):
            return f"has {name} waiting for command {dep[1]} of {dep[0].name} (which has finished {dep[0].completed})"
    if head.conditional and not head.ready():
        return f"has {name} waiting for a value in memory that nothing has written"
    if head.on_host_thread and engine.host_threads == "one":
        busy = [other.name for other in engine.lanes.values() if other.running and other.running.on_host_thread]
        if busy:
            return f"has {name} waiting for the only host-function thread, busy with {busy[0]}"
    return f"could run {name}"


def _submitted(site: object) -> str:
    return f" (submitted at {site})" if site else ""


def wait_graph(engine: Engine, what: str, targets: Sequence[Marker]) -> str:
    """One line for the host, then one for every lane that has work."""
    waits = ", ".join(
        f"command {ticket} of {lane.name} (finished {lane.completed})"
        for lane, ticket in targets
        if lane.completed < ticket
    )
    lines = [f"  host, in {what}, waits for {waits or 'nothing'}"]
    lines += [f"  {lane.name} {why_blocked(engine, lane)}" for lane in engine.lanes.values() if not lane.idle]
    return "\n".join(lines)
