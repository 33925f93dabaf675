"""Slots read too early, too late, or not as declared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from hipfile_conformance.mutants.registry import changed, mutant
from hipfile_sim.driver import submit
from hipfile_sim.driver.codes import FIXED_BUF_OFFSET, FIXED_FILE_OFFSET, MAX_RW_COUNT
from hipfile_sim.driver.operations import AsyncOp, Bind, Cleanup, CpuCopy


@mutant("all slots are captured at submit, whatever the flags")
def bound_at_submit() -> Iterator[None]:
    check = submit._check

    def early(driver: Any, op: AsyncOp) -> Any:
        answer = check(driver, op)
        op.size_p = op.file_offset_p = op.buffer_offset_p = 0
        return answer

    with changed((submit, "_check", early)):
        yield


@mutant("slots are read when the operation ends, not when it begins")
def bound_too_late() -> Iterator[None]:
    end = Cleanup.run

    def late(self: Cleanup) -> None:
        fetched = self.op.fetch()
        if fetched is not None and self.op.value > 0:
            self.op.value = min(self.op.value, fetched[0])
        end(self)

    with changed((Bind, "run", lambda self: None), (Cleanup, "run", late)):
        yield


def _flag_ignored(name: str) -> Any:
    def patch() -> Iterator[None]:
        with changed((submit, name, 0)):
            yield

    return patch


@mutant("the flag for a fixed size is ignored")
def fixed_size_ignored() -> Iterator[None]:
    yield from _flag_ignored("FIXED_FILE_SIZE")()


@mutant("the flag for a fixed file offset is ignored")
def fixed_file_offset_ignored() -> Iterator[None]:
    yield from _flag_ignored("FIXED_FILE_OFFSET")()


@mutant("the flag for a fixed buffer offset is ignored")
def fixed_buffer_offset_ignored() -> Iterator[None]:
    yield from _flag_ignored("FIXED_BUF_OFFSET")()


@mutant("the bits of the fixed offsets are swapped")
def fixed_bits_swapped() -> Iterator[None]:
    a, b = FIXED_BUF_OFFSET, FIXED_FILE_OFFSET
    with changed((submit, "FIXED_BUF_OFFSET", b), (submit, "FIXED_FILE_OFFSET", a)):
        yield


@mutant("a fixed flag is obeyed although cuFile only takes it as a promise", release="cufile")
def promise_kept() -> Iterator[None]:
    check = submit._check

    def capture(driver: Any, op: AsyncOp) -> Any:
        answer = check(driver, op)
        if op.stream.flags & 7 == 7:
            op.size_p = op.file_offset_p = op.buffer_offset_p = 0
        return answer

    with changed((submit, "_check", capture)):
        yield


@mutant("a size that grew after submit is used")
def grown_size_used() -> Iterator[None]:
    run = Bind.run

    def grow(self: Bind) -> None:
        self.op.limit = MAX_RW_COUNT
        run(self)

    with changed((Bind, "run", grow)):
        yield


@mutant("a bind that fails is forgotten, and the operation goes on with the values at submit")
def failed_bind_forgotten() -> Iterator[None]:
    run = Bind.run

    def forget(self: Bind) -> None:
        run(self)
        if self.op.value < 0:
            self.op.value = 0

    with changed((Bind, "run", forget)):
        yield


@mutant("the buffer offset is applied twice")
def offset_twice() -> Iterator[None]:
    run = Bind.run

    def twice(self: Bind) -> None:
        run(self)
        if 0 < self.op.buffer_offset * 2 + self.op.size <= self.op.buffer.length:
            self.op.buffer_offset *= 2

    with changed((Bind, "run", twice)):
        yield


@mutant("late values are not checked against the buffer")
def late_range_unchecked() -> Iterator[None]:
    from hipfile_sim.driver import operations

    with changed((operations, "in_range", lambda length, size, file_offset, buffer_offset: buffer_offset < length)):
        yield


@mutant("the file is read at submit, not when the stream gets there")
def file_read_at_submit() -> Iterator[None]:
    make, run = CpuCopy.__init__, CpuCopy.run
    taken: dict[AsyncOp, bytes] = {}

    def keep(self: CpuCopy, op: AsyncOp) -> None:
        make(self, op)
        if not op.write and op.size < 1 << 20:
            taken[op] = os.pread(op.file.buffered_fd, op.size, max(op.file_offset, 0))

    def old(self: CpuCopy) -> None:
        run(self)
        stale = taken.get(self.op)
        if stale is not None and self.count > 0 and self.op.bounce is not None:
            piece = stale[self.op.done : self.op.done + self.count]
            self.op.bounce.view[: len(piece)] = piece

    with changed((CpuCopy, "__init__", keep), (CpuCopy, "run", old)):
        yield
