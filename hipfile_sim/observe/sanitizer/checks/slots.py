"""Slots: the four variables of an operation that the library reads and writes late."""

from __future__ import annotations

from collections.abc import Sequence

from hipfile_sim.engine.command import MEM, Access, Command
from hipfile_sim.observe.observer import HostAccess, Note, Release
from hipfile_sim.observe.sanitizer.deeds import Clash, Deed
from hipfile_sim.observe.sanitizer.family import Family
from hipfile_sim.observe.sanitizer.findings import Place, declare
from hipfile_sim.observe.sanitizer.operation import SLOT, SLOT_NAMES, Operation

EARLY_READ = declare(
    "result.early-read",
    "error",
    "result read before the host knows that the operation is complete",
    why="The library stores bytes_done when the stream gets there. Until the host has waited for that, it reads 0, "
    "a stale count or the right one, by luck. A wait of another stream for an event holds up that stream, not the "
    "host.",
    fix="Wait on the host first: synchronise the stream, or an event recorded behind the operation.",
)
CHANGED = declare(
    "slot.changed-in-flight",
    "error",
    "slot changed while an operation may still read or write it",
    why="Size and offsets that are not fixed are read when the stream reaches the operation, so it uses the old or "
    "the new values, by luck; a changed bytes_done is overwritten.",
    fix="Give each operation slots of its own, or wait for it before changing them. To set values late on purpose, "
    "do so in a host function on the same stream.",
)
FIXED = declare(
    "slot.changed-behind-fixed-flag",
    "warning",
    "slot changed although the stream was registered with a promise that it does not change",
    why="AMD's library captured the value at submit; cuFile was observed to read the slot late in spite of the "
    "flag. The same program moves different bytes on the two.",
    fix="Leave fixed slots alone until the operation is complete, or register the stream without that flag.",
)
REUSED = declare(
    "slot.reused",
    "error",
    "slots given to a second operation while the first is pending",
    why="Both operations read the same size and offsets and store their results to the same place.",
    fix="Give each operation slots of its own until the host knows that it is complete.",
)
DEAD = declare(
    "slot.dead",
    "error",
    "slot memory gone while the operation is pending",
    why="The library reads and writes the slots late. By then the memory belongs to somebody else, or to nobody: "
    "silent corruption or a crash.",
    fix="Keep the slots in memory that lives until the stream has been synchronised: the heap or an object that you "
    "hold, no local variables.",
)
COLLECTED = declare(
    "slot.owner-collected",
    "error",
    "owner of the slots garbage collected while the operation is pending",
    why="The AsyncIOHandle owns the four slots; when nothing refers to it any more, its memory goes, and the "
    "library stores the result into freed memory.",
    fix="Keep the AsyncIOHandle in a list or attribute until the stream has been synchronised.",
)

_TOUCHING = ("bind", "run_io", "cleanup", "promise", "fastpath_copy")
MAX_RW_COUNT = 0x7FFFF000
"""A size above it is bound as this."""
READS = 8
"""Places that read the result of one operation too early, of which each is reported."""
SET_AT_SUBMIT = "bytes_done set at submit"
"""What the driver says when it clears the result slot."""


class Slots(Family):
    """Checks of the slots of asynchronous operations."""

    def conflict(self, clash: Clash) -> bool:
        for deed, other, other_write in (
            (clash.later, clash.earlier, clash.earlier_write),
            (clash.earlier, clash.later, clash.later_write),
        ):
            op = deed.op
            if op is not None and deed.kind in _TOUCHING:
                index = op.slot_at(clash.start, clash.end)
                if index >= 0 and clash.space == MEM:
                    self._raced(op, index, other, other_write)
                    return True
        return False

    def _raced(self, op: Operation, index: int, other: Deed, other_write: bool) -> None:
        if op.lost or other.flagged or (other.op is not None and other.op.lost):
            return
        other.flagged = True
        if other.op is not None or (other.is_host and other.label == SET_AT_SUBMIT):
            self._reused(op, other.op, other)
        elif not other_write:
            self._early(op, other)
        elif op.fixed(index):
            self._fixed(op, index, other)
        else:
            self._changed(op, index, other)

    # -- reports -----------------------------------------------------------------------------------------------------

    def _early(self, op: Operation, other: Deed) -> None:
        """`other` is too early, and so is what the same code read before it: shadow memory holds the last read only."""
        self._read_before(op, other)
        self._report_early(op, other)

    def _read_before(self, op: Operation, other: Deed | None = None) -> None:
        for actor, clock, deed in op.reads.values():
            if deed.flagged or (other is not None and deed.site == other.site):
                continue
            if not self.core.hb.knows(op.lane_id, actor, clock):
                deed.flagged = True
                self._report_early(op, deed)

    def _report_early(self, op: Operation, other: Deed) -> None:
        if other.is_host:
            missing = f"the host never waited for {op.lane.name} behind the operation before it read the result"
            waits = self._who_waits(op)
            if waits:
                missing += f"; {waits} waits for it, but that does not stop the host"
            fix = f"synchronise {op.lane.name}, or an event recorded behind the operation, before reading bytes_done"
        else:
            missing = f"nothing orders {other} behind the operation on {op.lane.name}"
            fix = f"record an event on {op.lane.name} behind the operation and let the other stream wait for it"
        self.core.report(
            EARLY_READ,
            f"bytes_done of {op.name} is read before anything says that the operation is complete",
            (op.place(), other.place("read")),
            missing=missing,
            fix=fix,
        )

    def _changed(self, op: Operation, index: int, other: Deed) -> None:
        op.lost = CHANGED
        slot = SLOT_NAMES[index]
        self.core.report(
            CHANGED,
            f"the {slot} slot of a pending {op.name} is written; the operation may use the old value or the new one"
            if index < 3
            else f"the bytes_done slot of a pending {op.name} is written; the result overwrites it, or is overwritten",
            (op.place(), other.place("write")),
            objects={"slot": f"{slot} at {op.slots[index]:#x}"},
            missing=f"nothing orders the write and the operation on {op.lane.name}",
            fix="use slots of their own for each operation, or wait for the operation before changing them",
        )

    def _fixed(self, op: Operation, index: int, other: Deed | None, now: int | None = None) -> None:
        op.lost = FIXED
        slot = SLOT_NAMES[index]
        change = "" if now is None else f" from {op.values[index]} to {now}"
        places = (op.place(),) if other is None else (op.place(), other.place("write"))
        self.core.report(
            FIXED,
            f"the {slot} slot of {op.name} was changed{change} before the operation was complete, but "
            f"{op.lane.name} is registered with flags {op.flags}, which promise that it is not",
            places,
            objects={"slot": f"{slot} at {op.slots[index]:#x}"},
            fix="leave the slot alone until the operation is complete, or register the stream without the flag",
        )

    def _reused(self, op: Operation, second: Operation | None, other: Deed) -> None:
        first, later = op, second
        if second is not None and second.seq < op.seq:
            first, later = second, op
        place = later.place() if later is not None else other.place("submit")
        for one in (first, later):
            if one is not None:
                self._forgive(one)
        self.core.report(
            REUSED,
            f"the bytes_done slot of a pending {first.name} is given to another operation",
            (first.place(), place),
            objects={"slot": f"bytes_done at {first.slots[3]:#x}"},
            missing=f"the host did not wait for {first.lane.name} between the two submits",
            fix="use slots of their own for each operation, or wait for the first before submitting the second",
        )

    def _forgive(self, op: Operation) -> None:
        """A finding about `op` that says more is on its way: take back the one that only follows from it."""
        op.lost = REUSED
        self.core.retract(CHANGED, op.site)

    def _who_waits(self, op: Operation) -> str:
        """The name of another stream that waits for `op`."""
        for state in self.core.lanes():
            if state.id != op.lane_id and self.core.stream_waits(state.lane, op.lane_id, op.last):
                return state.lane.name
        return ""

    # -- hooks -------------------------------------------------------------------------------------------------------

    def host_read(self, access: HostAccess, deed: Deed) -> None:
        _, start, length, _ = access.access
        for op in self.core.slots.hits(start, start + length):
            result = op.slots[3]
            if not op.done and start < result + SLOT and result < start + length and len(op.reads) < READS:
                actor = self.core.actor()
                op.reads.setdefault(deed.site, (actor, self.core.hb.stamp(actor), deed))

    def op_submitted(self, op: Operation) -> None:
        result = op.slots[3]
        others = self.core.slots.hits(result, result + SLOT)
        for other in others:
            if other.lost in ("", CHANGED) and not self.core.settle(other):
                self._reused(other, op, Deed(op.lane, op.last, "cleanup", None, op.site, op))
                return

    def op_command(self, op: Operation, command: Command, accesses: Sequence[Access]) -> None:
        if command.kind == "bind" or command.kind == "run_io":
            self._compare_bound(op)
        elif command.kind == "cleanup" and not op.lost:
            if op.flags & 7:  # first: it knows who wrote, the comparison only that somebody did
                for index in range(3):
                    if op.fixed(index):
                        self.core.promise(op, op.slots[index], op.slots[index] + SLOT)
            if not op.lost:
                self._compare_all(op)

    def _compare_bound(self, op: Operation) -> None:
        """The values that were bound are those of the submit, unless ordered code has set them meanwhile."""
        object = op.object
        bound = object.value >= 0 and object.limit <= MAX_RW_COUNT
        now = (object.size, object.file_offset, object.buffer_offset) if bound else object.fetch()
        if now is not None and now != op.values:
            op.bound = now
            if not op.lost and not self.core.hb.heard_since(op.lane_id, op.snapshot):
                self._different(op, now, op.values)

    def _compare_all(self, op: Operation) -> None:
        """When the result is stored, the slots still hold what was promised or bound."""
        now = op.object.driver.hostmem.read3(*op.slots[:3])
        if now is not None and now != op.bound:
            self._different(op, now, op.bound)

    def _different(self, op: Operation, now: Sequence[int], before: Sequence[int]) -> None:
        for index in range(3):
            if now[index] != before[index]:
                if op.fixed(index):
                    self._fixed(op, index, None, now[index])
                    return
                op.lost = CHANGED
                slot = SLOT_NAMES[index]
                self.core.report(
                    CHANGED,
                    f"the {slot} slot of {op.name} changed from {before[index]} to {now[index]} between the submit "
                    "and the end of the operation, by code that nothing orders with it",
                    (op.place(),),
                    objects={"slot": f"{slot} at {op.slots[index]:#x}"},
                    missing=f"nothing orders the write and the operation on {op.lane.name}",
                    fix="use slots of their own for each operation, or wait for the operation before changing them",
                )
                return

    def released(self, release: Release) -> None:
        if release.kind == "cached":
            return
        for op in self.core.slots.hits(release.start, release.start + release.length):
            if not self.core.settle(op):
                self.core.slots.remove(op)
                if not op.lost:
                    self._read_before(op)  # nothing will be stored there that could show it later
                    self._gone(op, release)

    def _gone(self, op: Operation, release: Release) -> None:
        collected = release.kind == "collected"
        op.lost = COLLECTED if collected else DEAD
        how = {"collected": "garbage collected", "scope": "left by the program", "freed": "freed"}
        self.core.report(
            COLLECTED if collected else DEAD,
            f"{release.what} with the slots of a pending {op.name} was {how.get(release.kind, 'handed out again')}; "
            "the result will be stored into memory that is not its own any more",
            (op.place(), Place("release", release.what, release.site)),
            objects={"slots": f"{release.length} bytes at {release.start:#x}"},
            missing=f"the host did not wait for {op.lane.name} while the slots were alive",
            fix="keep the slots alive until the stream has been synchronised",
        )

    def note(self, note: Note) -> None:
        if note.id == "submit.dangling-slot" and not self._on_device():
            op = self.core.op_of(note.objects.get("operation"))
            if op is not None:
                if op.lost:
                    return
                op.lost = DEAD
            call = self.core.current_call()
            place = op.place() if op is not None else Place("submit", call.name if call else "operation", note.site)
            self.core.report(
                DEAD, note.message, (place,), fix="keep the slots alive until the stream has been synchronised"
            )

    def _on_device(self) -> bool:
        """Whether a slot of the current call is device memory: another check says so."""
        call = self.core.current_call()
        blocks = [self.core.names.find(p) for name, p in call.args.items() if name.endswith("_p")] if call else []
        return any(block is not None and block.kind == "device" for block in blocks)

    def finish(self) -> None:
        """Operations that never ran publish nothing, but whoever has read their results was too early all the same."""
        for op in self.core.pending():
            result = op.slots[3]
            for _actor, _clock, deed, write in list(self.core.shadow.touched(MEM, result, result + SLOT)):
                known = op.snapshot.clocks.get(_actor, -1) if _actor != op.snapshot.actor else op.snapshot.clock
                if not write and known < _clock and not deed.flagged and not op.lost:
                    deed.flagged = True
                    self._early(op, deed)
