"""Poison: bytes that nobody has written reach a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from hipfile_sim.engine.command import MEM, Access, Lane
from hipfile_sim.observe.observer import Call, Release, Site
from hipfile_sim.observe.sanitizer.checks.memory import FAULT
from hipfile_sim.observe.sanitizer.deeds import Deed
from hipfile_sim.observe.sanitizer.family import Family
from hipfile_sim.observe.sanitizer.findings import Place, declare
from hipfile_sim.observe.sanitizer.ranges import Ranges
from hipfile_sim.observe.sanitizer.state import BATCH, State

if TYPE_CHECKING:
    from hipfile_sim.hip.memory import Block

POISON = declare(
    "memory.poison-to-file",
    "error",
    "freed or never written device memory is written to a file",
    why="The file gets whatever the memory held last: bytes of another request, or garbage.",
    fix="Write the memory before storing it, and keep it until the store is complete; deregister a buffer before "
    "freeing it.",
)
RUN = 16
"""Poison bytes in a row that are taken for poison, not for data."""
LOOK = 1 << 16
"""Bytes that are looked at."""
HELD = 1 << 10
"""Bytes, spread evenly, that are remembered of memory of a pool."""


_TRANSFERS = ("hipFileRead", "hipFileWrite", "hipFileReadAsync", "hipFileWriteAsync")


class _Raw(NamedTuple):
    what: str
    site: Site | None
    fresh: bool
    base: int = 0
    held: bytes = b""
    """What every `step`-th byte from `base` on was when a pool handed it out: pools do not poison."""
    step: int = 1
    since: tuple[tuple[Lane, int], ...] = ()
    """What each stream had been given by then: such commands still read what the last owner left there."""

    def concerns(self, deed: Deed) -> bool:
        """Whether `deed` was asked for after the memory had become what it is."""
        return not any(deed.lane is lane and deed.ticket <= ticket for lane, ticket in self.since)

    def untouched(self, start: int, data: bytes, poison: int) -> bool:
        """Whether `data`, which is at `start` now, was not written since, not even by code that nobody saw."""
        if self.base:
            first = -((self.base - start) // self.step)
            now = data[self.base + first * self.step - start :: self.step]
            return bool(now) and now == self.held[first : first + len(now)]
        return bytes([poison]) * min(RUN, len(data)) in data or (self.fresh and not any(data))

    def moved(self) -> _Raw:
        """The same, of a copy."""
        return _Raw(self.what, self.site, True) if self.base else self


class Poison(Family):
    """Follows which device memory holds poison: fresh, freed, or copied from such."""

    def __init__(self, core: State) -> None:
        super().__init__(core)
        self._raw: Ranges[_Raw] = Ranges()
        self.returns = dict.fromkeys(_TRANSFERS, self._refused)

    def allocated(self, block: Block, internal: bool) -> None:
        if self._users(block):
            tag = _Raw(f"{block.kind} block {block.id} was allocated and never written", block.site, True)
            self._raw.add(block.base, block.base + block.size, tag)
            self.core.watch_touched = True

    def freed(self, block: Block, internal: bool) -> None:
        self._raw.remove(block.base, block.base + block.size)
        if self._users(block):
            call = self.core.current_call()
            tag = _Raw(f"{block.kind} block {block.id} was freed", call.site if call else None, False)
            self._raw.add(block.base, block.base + block.size, tag)
            self.core.watch_touched = True

    def released(self, release: Release) -> None:
        """A pool takes memory back, or hands it out: with what the last owner left in it."""
        how = {"recycled": "was never written", "cached": "was freed"}.get(release.kind)
        if how is not None and release.lane is not None and self._byte() is not None:
            since = tuple((state.lane, state.lane.submitted) for state in self.core.lanes() if not state.lane.idle)
            tag = _Raw(f"{release.what} {how}", release.site, False, since=since)
            self._hold(release.start, release.start + release.length, tag)
            self.core.watch_touched = True

    def _hold(self, start: int, end: int, tag: _Raw) -> None:
        """Mark memory of a pool, and remember what is in it."""
        step = -(-(end - start) // HELD)
        try:
            held = bytes(self.core.machine.memory.view(start, end - start)[::step])
        except LookupError:
            return  # no memory of the device
        self._raw.add(start, end, tag._replace(base=start, held=held, step=step))

    def _users(self, block: Block) -> bool:
        """Whether the program could store it to a file: memory of a caching allocator, too, but none of the library."""
        call = self.core.current_call()
        inside = call is not None and call.api == "hipfile"
        return not inside and block.kind != "registered" and self._byte() is not None

    def _byte(self) -> int | None:
        machine = self.core.machine
        return None if machine is None else machine.settings.poison

    def _refused(self, call: Call) -> None:
        """A transfer with a buffer that was freed does not even begin."""
        error = getattr(call.result, "err", None)
        failed = error if error is not None else getattr(call.result, "count", 0) < 0
        old = self.core.machine.memory.find_freed(call.args.get("pointer", 0)) if failed else None
        if old is not None:
            what = f"{old.kind} block {old.id} ({old.size} bytes) was freed"
            self.core.report(
                POISON if "Write" in call.name else FAULT,
                f"{call.name} is given memory that is not there any more: {what}; the library refuses",
                (Place("allocate", f"{old.kind} block {old.id}", old.site), Place("call", call.name, call.site)),
                fix="keep the memory until its last transfer is complete, and deregister a buffer before freeing it",
            )

    def touched(self, deed: Deed, accesses: Iterable[Access]) -> None:
        raw = self._raw
        carried: list[tuple[int, int, _Raw]] = []
        start = end = 0
        for access in accesses:
            if access.space != MEM:
                continue
            start, end = access.start, access.start + access.length
            if access.write:
                late = [part for part in raw.overlap(start, end) if not part[2].concerns(deed)]
                raw.remove(start, end)
                for low, high, tag in late:
                    self._hold(low, high, tag)  # the last owner had asked for it
                for low, high, tag in carried:
                    raw.add(start + low, start + high, tag)
            else:
                found = [part for part in raw.overlap(start, end) if part[2].concerns(deed)]
                if found and self._to_file(deed, accesses):
                    self._report(deed, found)
                elif found and deed.kind == "copy":
                    carried = [(low - start, high - start, tag.moved()) for low, high, tag in found]
        if not raw:
            self.core.watch_touched = False

    def _to_file(self, deed: Deed, accesses: Iterable[Access]) -> bool:
        if deed.op is not None:
            return deed.op.write
        if deed.kind == BATCH:
            return any(access.write and access.space != MEM for access in accesses)
        call = self.core.current_call()
        return deed.kind == "copy" and call is not None and call.name == "hipFileWrite"

    def _report(self, deed: Deed, found: list[tuple[int, int, _Raw]]) -> None:
        byte = self._byte()
        assert byte is not None
        for low, high, tag in found:
            length = min(high - low, LOOK)
            data = self.core.machine.memory.read(low, length)
            if data is None or not tag.untouched(low, data, byte):
                continue  # written by code that nobody saw
            place = deed.op.place() if deed.op is not None else deed.place("write")
            self.core.report(
                POISON,
                f"{high - low} bytes are written to a file that hold nothing: {tag.what}",
                (Place("memory", tag.what, tag.site), place),
                objects={"bytes": f"{high - low} bytes at {low:#x}"},
                fix="write the memory before storing it, and keep it until the store is complete",
            )
            return
