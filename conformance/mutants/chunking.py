"""Chunks lost, doubled, shifted, shared; bytes beside the range."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from hipfile_conformance.mutants.registry import changed, mutant
from hipfile_sim.driver import submit
from hipfile_sim.driver.backends import commands
from hipfile_sim.driver.operations import Advance, AsyncOp, CpuCopy, MemcpyKernel
from hipfile_sim.driver.streams import Bounce


@mutant("one chunk too few where the size is no multiple")
def chunk_missing() -> Iterator[None]:
    real = commands.enqueue

    def fewer(op: AsyncOp, made: Any) -> Any:
        made = list(made)
        if op.bounce is not None and len(made) > 4 and op.limit % op.bounce.size:
            made = made[:-3]
        return real(op, made)

    with changed((commands, "enqueue", fewer)):
        yield


@mutant("the last byte of each chunk is left out of the copy to the device")
def last_byte_lost() -> Iterator[None]:
    span = MemcpyKernel._span

    def short(self: MemcpyKernel) -> tuple[int, int]:
        start, count = span(self)
        return start, count - 1 if self.count < 0 and count > 1 and not self.op.write else count

    with changed((MemcpyKernel, "_span", short)):
        yield


@mutant("the copy to the device is rounded up to 8 bytes")
def rounded_up() -> Iterator[None]:
    span = MemcpyKernel._span

    def wide(self: MemcpyKernel) -> tuple[int, int]:
        start, count = span(self)
        if self.count < 0 and count > 0 and not self.op.write:
            return start, -(-count // 8) * 8
        return start, count

    with changed((MemcpyKernel, "_span", wide)):
        yield


@mutant("the whole bounce buffer goes to the device at the end of the file: poison leaks past the range")
def poison_leaks() -> Iterator[None]:
    run = CpuCopy.run

    def whole(self: CpuCopy) -> None:
        want = self._span()[1]
        run(self)
        if not self.op.write and 0 < self.count < want:
            lengths[self.op] = want

    lengths: dict[AsyncOp, int] = {}
    span = MemcpyKernel._span

    def leak(self: MemcpyKernel) -> tuple[int, int]:
        start, count = span(self)
        if self.count < 0 and self.op in lengths:
            return start, lengths[self.op]
        return start, count

    with changed((CpuCopy, "run", whole), (MemcpyKernel, "_span", leak)):
        yield


@mutant("chunks are put on the stream in the opposite order")
def reordered() -> Iterator[None]:
    real = commands.enqueue

    def backwards(op: AsyncOp, made: Any) -> Any:
        made = list(made)
        if len(made) > 4:
            head = made[:1] if made[0].kind == "bind" else []
            rest = made[len(head) :]
            groups = [rest[n : n + 3] for n in range(0, len(rest), 3)]
            groups[0], groups[-1] = groups[0][1:] + groups[0][:1], groups[-1]
            made = head + [command for group in groups for command in group]
        return real(op, made)

    with changed((commands, "enqueue", backwards)):
        yield


@mutant("the total is not advanced, so each chunk starts at the beginning")
def not_advanced() -> Iterator[None]:
    def stay(self: Advance) -> None:
        op = self.op
        if op.value >= 0:
            op.value += op.chunk
            op.chunk = 0

    with changed((Advance, "run", stay)):
        yield


@mutant("all streams share one bounce buffer")
def bounce_shared() -> Iterator[None]:
    first: list[Bounce] = []
    make = Bounce.__init__

    def share(self: Bounce, driver: Any, pointer: int, size: int) -> None:
        mine = [b for b in first if b._driver is driver and b.size >= size]
        make(self, driver, mine[0].pointer if mine else pointer, size)
        if not mine:
            first.append(self)

    with changed((Bounce, "__init__", share)):
        yield


@mutant("an interrupted transfer fails the operation")
def eintr_fails() -> Iterator[None]:
    run = CpuCopy.run

    def strict(self: CpuCopy) -> None:
        files = self.op.driver.files
        transfer = files.pwrite_from if self.op.write else files.pread_into
        name = transfer.__name__
        script = getattr(files, "scripts", {}).get(name)
        if script and isinstance(script[0], OSError) and script[0].errno == errno.EINTR:
            self.op.value = -1
            self.count = 0
            return
        run(self)

    with changed((CpuCopy, "run", strict)):
        yield


@mutant("a short transfer ends the chunk")
def short_read_ends() -> Iterator[None]:
    run = CpuCopy.run

    def once(self: CpuCopy) -> None:
        files = self.op.driver.files
        name = "pwrite_from" if self.op.write else "pread_into"
        real = getattr(files, name)
        done: list[int] = []

        def single(fd: int, view: memoryview, offset: int) -> int:
            if done and done[-1] > 0:
                return 0
            done.append(real(fd, view, offset))
            return done[-1]

        class Short:
            def __getattr__(self, other: str) -> Any:
                return single if other == name else getattr(files, other)

        driver = self.op.driver
        driver._files, kept = Short(), driver._files
        try:
            run(self)
        finally:
            driver._files = kept

    with changed((CpuCopy, "run", once)):
        yield


@mutant("a read that gets nothing is tried again, a thousand times over")
def retried() -> Iterator[None]:
    run = CpuCopy.run

    def again(self: CpuCopy) -> None:
        want = self._span()[1]
        run(self)
        if not self.op.write and self.op.value >= 0 and self.count < want:
            for _ in range(1000):
                self.op.driver.files.pread_into(self.op.file.buffered_fd, memoryview(bytearray(8)), 0)
            self.op.value = -5030

    with changed((CpuCopy, "run", again)):
        yield


@mutant("asynchronous writes are synced to disk")
def synced() -> Iterator[None]:
    run = CpuCopy.run

    def sync(self: CpuCopy) -> None:
        run(self)
        if self.op.write and self.count > 0:
            self.op.driver.files.fdatasync(self.op.file.buffered_fd)

    with changed((CpuCopy, "run", sync)):
        yield


@mutant("the number of chunks follows from the buffer's length, not from the size")
def chunks_of_the_buffer() -> Iterator[None]:
    check = submit._check

    def more(driver: Any, op: AsyncOp) -> Any:
        answer = check(driver, op)
        if answer[1] is not None and op.limit:
            op.limit = max(op.limit, op.buffer.length)
        return answer

    with changed((submit, "_check", more)):
        yield


@mutant("bounce buffers are as large as the largest operation", release="0.2")
def bounce_oversized() -> Iterator[None]:
    make = Bounce.__init__

    def whole(self: Bounce, driver: Any, pointer: int, size: int) -> None:
        extra = driver.runtime.hipHostMalloc(1 << 20, 0)[1]
        assert extra
        make(self, driver, pointer, size)

    with changed((Bounce, "__init__", whole)):
        yield
