"""Poison: bytes that nobody has written reach a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from hipfile_sim.engine.command import MEM, Access, Lane
from hipfile_sim.observe.observer import Release, Site
from hipfile_sim.observe.sanitizer.deeds import Deed
from hipfile_sim.observe.sanitizer.family import Family
from hipfile_sim.observe.sanitizer.findings import Place, declare
from hipfile_sim.observe.sanitizer.ranges import Ranges
from hipfile_sim.observe.sanitizer.state import State

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
        """A pool hands memory out: with what the last owner left in it."""
        if release.kind == "recycled" and release.lane is not None and self._byte() is not None:
            step = -(-release.length // HELD)
            try:
                held = bytes(self.core.machine.memory.view(release.start, release.length)[::step])
            except LookupError:
                return  # no memory of the device
            since = tuple((state.lane, state.lane.submitted) for state in self.core.lanes() if not state.lane.idle)
            tag = _Raw(f"{release.what} was never written", release.site, False, release.start, held, step, since)
            self._raw.add(release.start, release.start + release.length, tag)
            self.core.watch_touched = True

    def _users(self, block: Block) -> bool:
        """Whether the program could store it to a file: memory of a caching allocator, too, but none of the library."""
        call = self.core.current_call()
        inside = call is not None and call.api == "hipfile"
        return not inside and block.kind != "registered" and self._byte() is not None

    def _byte(self) -> int | None:
        machine = self.core.machine
        return None if machine is None else machine.settings.poison

    def touched(self, deed: Deed, accesses: Iterable[Access]) -> None:
        raw = self._raw
        carried: list[tuple[int, int, _Raw]] = []
        start = end = 0
        for access in accesses:
            if access.space != MEM:
                continue
            start, end = access.start, access.start + access.length
            if access.write:
                raw.remove(start, end)
                for low, high, tag in carried:
                    raw.add(start + low, start + high, tag)
            else:
                found = [part for part in raw.overlap(start, end) if part[2].concerns(deed)]
                if found and self._to_file(deed):
                    self._report(deed, found)
                elif found and deed.kind == "copy":
                    carried = [(low - start, high - start, tag.moved()) for low, high, tag in found]
        if not raw:
            self.core.watch_touched = False

    def _to_file(self, deed: Deed) -> bool:
        if deed.op is not None:
            return deed.op.write
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
