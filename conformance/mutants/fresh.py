"""Broken models written from the contract alone, by somebody who had not read the suite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hipfile_conformance.mutants.registry import changed, mutant
from hipfile_sim.driver.files import FileMap, RegisteredFile
from hipfile_sim.driver.monitor import Monitor
from hipfile_sim.driver.stats import Statistics
from hipfile_sim.hip.base import RuntimeBase

if TYPE_CHECKING:
    from hipfile_sim.driver.operations import AsyncOp
    from hipfile_sim.driver.stats import StatsL3
    from hipfile_sim.engine.command import Marker
    from hipfile_sim.hip.stream import Stream


@mutant("only the first blocking stream that gets work after the null stream waits for it")
def null_order_once() -> Iterator[None]:
    real = RuntimeBase._implicit_order
    key = -1  # no lane has it

    def order(self: RuntimeBase, stream: Stream, deps: tuple[Marker, ...]) -> tuple[Marker, ...]:
        null = self._null[stream.device]
        if not stream.blocking or null is None or not null.lane.submitted:
            return real(self, stream, deps)
        if null.seen.get(key) != null.lane.submitted:  # should be remembered by each stream for itself
            null.seen[key] = null.lane.submitted
            deps = (*deps, (null.lane, null.lane.submitted))
        return deps

    with changed((RuntimeBase, "_implicit_order", order)):
        yield


@mutant("a buffer counts as idle once any of its operations has completed")
def first_completion_frees() -> Iterator[None]:
    real = Monitor.complete

    def complete(self: Monitor, op: AsyncOp) -> bool:
        known = real(self, op)
        op.buffer.users.clear()  # should drop this operation alone
        return known

    with changed((Monitor, "complete", complete)):
        yield


@mutant("the number of active devices is the highest active ordinal plus one")
def devices_up_to_highest() -> Iterator[None]:
    real = Statistics.l3

    def l3(self: Statistics) -> StatsL3:
        stats = real(self)
        stats.num_gpus = max((device + 1 for device, _, _ in self._counters), default=0)
        return stats

    with changed((Statistics, "l3", l3)):
        yield


@mutant("a file that outlives the close takes the next registration of its descriptor with it when it goes")
def late_release() -> Iterator[None]:
    clear, release = FileMap.clear, RegisteredFile.release
    outlived: dict[RegisteredFile, FileMap] = {}

    def forget(self: FileMap) -> None:
        outlived.update((file, self) for file in self if file.in_use)
        clear(self)

    def last(self: RegisteredFile) -> None:
        release(self)
        if self.in_use:
            return
        files = outlived.pop(self, None)
        successor = None if files is None else files._by_fd.get(self.client_fd)
        if files is not None and successor is not None:  # removed by descriptor, should be by identity
            files.deregister(successor.handle)

    with changed((FileMap, "clear", forget), (RegisteredFile, "release", last)):
        yield
