"""Results published early, late, never, twice, or wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hipfile_conformance.mutants.registry import changed, mutant
from hipfile_sim.driver import submit
from hipfile_sim.driver.driver import Driver
from hipfile_sim.driver.operations import Advance, AsyncOp, Cleanup, CpuCopy


@mutant("the count is published inside submit, so that racy code passes")
def published_in_submit() -> Iterator[None]:
    real = submit.submit

    def early(driver: Any, write: bool, *args: int) -> Any:
        answer = real(driver, write, *args)
        if answer.err == 0:
            driver.hostmem.write_i64(args[5], driver.hostmem.read_i64(args[2]) or 0)
        return answer

    with changed((submit, "submit", early)):
        yield


@mutant("the count is never published, so that right code fails")
def never_published() -> Iterator[None]:
    def silent(self: Cleanup) -> None:
        self.op.driver.monitor.complete(self.op)

    with changed((Cleanup, "run", silent)):
        yield


@mutant("the count grows chunk by chunk")
def published_by_chunk() -> Iterator[None]:
    run = Advance.run

    def leak(self: Advance) -> None:
        run(self)
        if self.op.value >= 0:
            self.op.driver.hostmem.write_i64(self.op.bytes_p, self.op.value)

    fail = CpuCopy.run

    def partial(self: CpuCopy) -> None:
        before = self.op.value
        fail(self)
        if self.op.value < 0 <= before and self.op.done:
            self.op.value = self.op.done

    with changed((Advance, "run", leak), (CpuCopy, "run", partial)):
        yield


@mutant("the slot is written twice: the count, and then 0 more")
def published_twice() -> Iterator[None]:
    run = Cleanup.run

    def again(self: Cleanup) -> None:
        driver = self.op.driver
        run(self)
        if driver.on_publish is not None:
            driver.on_publish(self.op, self.op.value)

    with changed((Cleanup, "run", again)):
        yield


@mutant("the slot is written as 32 bits")
def narrow_slot() -> Iterator[None]:
    import ctypes

    def narrow(self: Cleanup) -> None:
        op, driver = self.op, self.op.driver
        value = op.value if driver.monitor.complete(op) else -5030
        changed_to = value if driver.on_publish is None else driver.on_publish(op, value)
        if changed_to is not None:
            ctypes.c_int32.from_address(op.bytes_p).value = changed_to

    with changed((Cleanup, "run", narrow)):
        yield


@mutant("the slot is not set to 0 at submit")
def not_zeroed() -> Iterator[None]:
    real = submit.submit

    def keep(driver: Any, write: bool, *args: int) -> Any:
        before = driver.hostmem.read_i64(args[5]) if args[5] else None
        answer = real(driver, write, *args)
        if answer.err == 0 and before is not None and driver.hostmem.read_i64(args[5]) == 0:
            driver.hostmem.write_i64(args[5], before)
        return answer

    with changed((submit, "submit", keep)):
        yield


@mutant("a refused call sets the slot to 0 all the same")
def zeroed_on_refusal() -> Iterator[None]:
    real = submit.submit

    def zero(driver: Any, write: bool, *args: int) -> Any:
        answer = real(driver, write, *args)
        if answer.err and args[5]:
            driver.hostmem.write_i64(args[5], 0)
        return answer

    with changed((submit, "submit", zero)):
        yield


@mutant("an I/O error is swallowed: the operation ends with what it had")
def error_swallowed() -> Iterator[None]:
    run = CpuCopy.run

    def swallow(self: CpuCopy) -> None:
        before = self.op.value
        run(self)
        if self.op.value < 0 <= before:
            self.op.value = before
            self.op.chunk = 0

    with changed((CpuCopy, "run", swallow)):
        yield


@mutant("an I/O error becomes the negated errno")
def errno_published() -> Iterator[None]:
    hidden = Driver.hidden_errno

    def leak(self: Any, op: Any, error: OSError) -> None:
        hidden(self, op, error)
        leaked[op] = -(error.errno or 1)

    leaked: dict[AsyncOp, int] = {}
    run = Cleanup.run

    def publish(self: Cleanup) -> None:
        if self.op in leaked and self.op.value < 0:
            self.op.value = leaked.pop(self.op)
        run(self)

    from hipfile_sim.driver.services import Services

    with changed((Services, "hidden_errno", leak), (Cleanup, "run", publish)):
        yield


@mutant("the end of the file is an error")
def eof_is_an_error() -> Iterator[None]:
    run = CpuCopy.run

    def strict(self: CpuCopy) -> None:
        want = self._span()[1]
        run(self)
        if not self.op.write and self.op.value >= 0 and self.count < want:
            self.op.value = -1

    with changed((CpuCopy, "run", strict)):
        yield


@mutant("the submitted size is published, not what was moved")
def size_published() -> Iterator[None]:
    run = Cleanup.run

    def size(self: Cleanup) -> None:
        if self.op.value >= 0:
            self.op.value = self.op.size
        run(self)

    with changed((Cleanup, "run", size)):
        yield


@mutant("file and buffer are let go after the count is published")
def references_last() -> Iterator[None]:
    def late(self: Cleanup) -> None:
        op, driver = self.op, self.op.driver
        value = op.value
        if driver.on_publish is not None:
            value = driver.on_publish(op, value) or 0
        driver.hostmem.write_i64(op.bytes_p, value)
        driver.monitor.complete(op)

    with changed((Cleanup, "run", late)):
        yield


@mutant("an operation that the monitor does not know publishes its count")
def unknown_published() -> Iterator[None]:
    def lenient(self: Cleanup) -> None:
        op, driver = self.op, self.op.driver
        driver.monitor.complete(op)
        value: int | None = op.value
        if driver.on_publish is not None:
            value = driver.on_publish(op, op.value)
        if value is not None:
            driver.hostmem.write_i64(op.bytes_p, value)

    with changed((Cleanup, "run", lenient)):
        yield


@mutant("an operation of size 0 never reports")
def size_zero_untouched() -> Iterator[None]:
    real = submit.submit

    def skip(driver: Any, write: bool, *args: int) -> Any:
        before = driver.hostmem.read_i64(args[5]) if args[5] else None
        empty = bool(args[2]) and driver.hostmem.read_i64(args[2]) == 0
        answer = real(driver, write, *args)
        if empty and answer.err == 0 and before is not None:
            driver.hostmem.write_i64(args[5], before)
        return answer

    with changed((submit, "submit", skip)):
        yield
