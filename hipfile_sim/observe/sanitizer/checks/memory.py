"""Lifetimes of memory and streams: freed, or handed out again, while work that uses them is in flight."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hipfile_sim.engine.command import MEM, Access, Command, Lane
from hipfile_sim.observe.observer import Call, Note, Release
from hipfile_sim.observe.sanitizer.deeds import Clash
from hipfile_sim.observe.sanitizer.family import Family
from hipfile_sim.observe.sanitizer.findings import Place, declare
from hipfile_sim.observe.sanitizer.state import BATCH, State

if TYPE_CHECKING:
    from hipfile_sim.hip.memory import Block

FREED = declare(
    "memory.freed-in-flight",
    "error",
    "memory freed while a command that uses it is in flight",
    why="The memory is handed out again at any time; the command then reads or overwrites the bytes of another "
    "owner. A caching allocator looks only at the stream that the block was allocated on.",
    fix="Wait for the command first, or tell the allocator (record_stream), or let the home stream wait for it.",
)
RECYCLED = declare(
    "memory.reused-in-flight",
    "error",
    "memory handed out again while a command of the last owner is in flight",
    why="The new owner and the old command share the bytes.",
    fix="Hand a block out again only when an event behind its last use is complete.",
)
FAULT = declare(
    "memory.fault",
    "error",
    "the device touches memory that is not allocated",
    why="A memory fault on the device ends the process.",
    fix="Keep the memory until every operation on it is complete, and deregister a buffer before freeing it.",
)
DESTROYED = declare(
    "stream.destroyed-in-flight",
    "warning",
    "stream destroyed while a hipFile operation on it is in flight, or while it is registered",
    why="HIP lets the work finish, but hipFile keeps the handle: a new stream may get the same address and the stale "
    "registration with it.",
    fix="Synchronise the stream and deregister it before destroying it.",
)


class Lifetimes(Family):
    """Checks of what is freed when."""

    def __init__(self, core: State) -> None:
        super().__init__(core)
        self.calls = {"hipStreamDestroy": self._destroy}
        self._told: deque[tuple[int, int, Lane, int]] = deque(maxlen=64)
        """Ranges that were reported, with the stream and the latest command that used them."""

    def conflict(self, clash: Clash) -> bool:
        """What was reported as freed in flight is not reported again as a race with its next owner."""
        return clash.space == MEM and any(
            start < clash.end
            and clash.start < end
            and any(deed.lane is lane and deed.ticket <= ticket for deed in (clash.earlier, clash.later))
            for start, end, lane, ticket in self._told
        )

    def freed(self, block: Block, internal: bool) -> None:
        if not internal:
            call = self.core.current_call()
            name = call.name if call is not None else "free"
            place = Place(
                "free",
                f"{name} of {block.kind} block {block.id} ({block.size} bytes)",
                call.site if call is not None else None,
            )
            self._check(FREED, block.base, block.base + block.size, place, None, f"{block.kind} block {block.id}")

    def released(self, release: Release) -> None:
        if release.kind == "cached" or (release.kind == "collected" and release.length <= 64):
            return  # nothing is wrong yet; slots of an operation
        id = RECYCLED if release.kind == "recycled" else FREED
        how = {"recycled": "is handed out again", "collected": "is garbage collected", "scope": "leaves its scope"}
        what = f"{release.what} {how.get(release.kind, 'is given back')}"
        self._check(
            id,
            release.start,
            release.start + release.length,
            Place("free", what, release.site),
            release.lane,
            release.what,
        )

    def _check(self, id: str, start: int, end: int, place: Place, home: Lane | None, name: str) -> None:
        for told in list(self._told):
            low, high, lane, ticket = told
            if self.core.hb.knows(self.core.actor(), self.core.lane_state(lane).id, ticket):
                self._told.remove(told)
            elif start < high and low < end:
                return
        user = self._user(start, end, home)
        if user is None:
            return
        lane = user[1]
        self._told.append((start, end, lane, lane.submitted))
        at_home = f" and {home.name} does not wait for it" if home is not None else ""
        verb = "handed out again" if id == RECYCLED else "freed"
        self.core.report(
            id,
            f"{name} is {verb} while {user[0].what} still uses it",
            (user[0], place),
            missing=f"the host did not wait for {lane.name}{at_home}",
            fix=f"synchronise {lane.name}, or an event behind the command, before letting go of the memory",
        )

    def _user(self, start: int, end: int, home: Lane | None) -> tuple[Place, Lane] | None:
        """A command in flight on ``[start, end)`` that neither the host nor `home` is behind."""
        core = self.core
        for actor, clock, deed, write in core.shadow.touched(MEM, start, end):
            if deed.lane is None or deed.kind == "host" or core.hb.knows(core.actor(), actor, clock):
                continue
            if deed.op is not None and deed.op.slot_at(start, end) >= 0:
                continue  # a slot; there are checks of their own for those
            if home is None or not core.stream_waits(home, actor, clock):
                return deed.place("write" if write else "read", core.names.describe(MEM, start, end)), deed.lane
        for op in core.pending():
            touches = op.address < end and start < op.address + op.values[0]
            if touches and (home is None or not core.stream_waits(home, op.lane_id, op.last)):
                return op.place(), op.lane
        for state in core.lanes():
            lane = state.lane
            for command in ((lane.running,) if lane.running else ()) + tuple(lane.queue):
                seen = getattr(command, "op", None) is not None and command.kind != BATCH  # by the loop above
                access = None if seen else _touching(command, start, end)
                if access is None or (home is not None and core.stream_waits(home, state.id, command.ticket)):
                    continue
                role = "write" if access.write else "read"
                return Place(role, f"{command.describe()} on {lane.name}", command.site), lane
        return None

    def note(self, note: Note) -> None:
        if note.id == "chunk.memory-fault":
            op = self.core.op_of(note.objects.get("operation"))
            places = () if op is None else (op.place(),)
            self.core.report(FAULT, note.message, places)

    # -- streams -----------------------------------------------------------------------------------------------------

    def _destroy(self, call: Call) -> None:
        handle = call.args.get("stream", 0)
        stream = self.core.stream(handle)
        if stream is None:
            return
        place = Place("destroy", f"hipStreamDestroy of {stream.lane.name}", call.site)
        for op in self.core.in_flight():
            if op.lane is stream.lane:
                self._destroyed(stream.lane.name, f"{op.name} is in flight on it", (op.place(), place))
                return
        if self.core.registered_stream(handle):
            self._destroyed(stream.lane.name, "hipFile has it registered", (place,))

    def _destroyed(self, name: str, why: str, places: tuple[Place, ...]) -> None:
        self.core.report(
            DESTROYED,
            f"{name} is destroyed while {why}",
            places,
            fix="synchronise the stream and deregister it before destroying it",
        )


def _touching(command: Command, start: int, end: int) -> Access | None:
    """What a command would touch of ``[start, end)``."""
    for access in command.accesses():
        if access.space == MEM and access.start < end and start < access.start + access.length:
            return access
    return None
