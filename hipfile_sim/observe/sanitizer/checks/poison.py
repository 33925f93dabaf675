"""Poison: bytes that nobody has written reach a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from hipfile_sim.engine.command import MEM, Access
from hipfile_sim.observe.observer import Site
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


class _Raw(NamedTuple):
    what: str
    site: Site | None
    fresh: bool


class Poison(Family):
    """Follows which device memory holds poison: fresh, freed, or copied from such."""

    def __init__(self, core: State) -> None:
        super().__init__(core)
        self._raw: Ranges[_Raw] = Ranges()

    def allocated(self, block: Block, internal: bool) -> None:
        if not internal and block.kind != "registered" and self._byte() is not None:
            tag = _Raw(f"{block.kind} block {block.id} was allocated and never written", block.site, True)
            self._raw.add(block.base, block.base + block.size, tag)
            self.core.watch_touched = True

    def freed(self, block: Block, internal: bool) -> None:
        self._raw.remove(block.base, block.base + block.size)
        if not internal and block.kind != "registered" and self._byte() is not None:
            call = self.core.current_call()
            tag = _Raw(f"{block.kind} block {block.id} was freed", call.site if call else None, False)
            self._raw.add(block.base, block.base + block.size, tag)
            self.core.watch_touched = True

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
                found = raw.overlap(start, end)
                if found and self._to_file(deed):
                    self._report(deed, found)
                elif found and deed.kind == "copy":
                    carried = [(low - start, high - start, tag) for low, high, tag in found]
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
            if data is None or not (bytes([byte]) * min(RUN, length) in data or (tag.fresh and not any(data))):
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
