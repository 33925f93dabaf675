"""Use counts off, registrations forgotten or kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hipfile_conformance.mutants.registry import changed, mutant
from hipfile_sim.driver import submit
from hipfile_sim.driver.codes import SUCCESS, OpError, status
from hipfile_sim.driver.driver import Driver
from hipfile_sim.driver.state import DriverState


@mutant("an implicit initialisation counts each time")
def init_counts() -> Iterator[None]:
    def count(self: DriverState) -> None:
        with self.lock:
            self.use_count += 1

    with changed((DriverState, "implicit_init", count)):
        yield


@mutant("registration does not open the driver")
def init_missing() -> Iterator[None]:
    with changed((DriverState, "implicit_init", lambda self: None)):
        yield


@mutant("opening an open driver does not count")
def open_once() -> Iterator[None]:
    def once(self: DriverState) -> Any:
        with self.lock:
            self.use_count = 1
        return SUCCESS

    with changed((DriverState, "open", once)):
        yield


@mutant("the first close ends it, whatever the use count")
def close_all() -> Iterator[None]:
    real = DriverState.close

    def all_of_it(self: DriverState) -> Any:
        if self.use_count > 1:
            self.use_count = 1
        return real(self)

    with changed((DriverState, "close", all_of_it)):
        yield


@mutant("closing a closed driver succeeds")
def close_closed() -> Iterator[None]:
    real = DriverState.close

    def lenient(self: DriverState) -> Any:
        real(self)
        return SUCCESS

    with changed((DriverState, "close", lenient)):
        yield


@mutant("the use count goes below 0")
def count_negative() -> Iterator[None]:
    real = DriverState.close

    def below(self: DriverState) -> Any:
        answer = real(self)
        if answer.err:
            self.use_count -= 1
        return answer

    with changed((DriverState, "close", below)):
        yield


@mutant("the last close keeps files and buffers")
def close_keeps() -> Iterator[None]:
    def keep(self: DriverState) -> Any:
        with self.lock:
            if self.use_count == 0:
                return status(OpError.hipFileDriverNotInitialized)
            self.use_count -= 1
        return SUCCESS

    with changed((DriverState, "close", keep)):
        yield


@mutant("the last close forgets streams, too")
def close_forgets_streams() -> Iterator[None]:
    real = DriverState.close

    def forget(self: DriverState) -> Any:
        answer = real(self)
        if self.use_count == 0:
            self.streams.entries.clear()
        return answer

    with changed((DriverState, "close", forget)):
        yield


@mutant("an asynchronous call on a closed driver leaves it closed")
def async_leaves_closed() -> Iterator[None]:
    real = submit.submit

    def closed(driver: Any, write: bool, *args: int) -> Any:
        before = driver.state.use_count
        answer = real(driver, write, *args)
        if before == 0:
            driver.state.use_count = 0
        return answer

    with changed((submit, "submit", closed)):
        yield


@mutant("an asynchronous call on a closed driver works at once")
def async_works_closed() -> Iterator[None]:
    real = submit.submit

    def works(driver: Any, write: bool, *args: int) -> Any:
        driver.state.implicit_init()
        return real(driver, write, *args)

    with changed((submit, "submit", works)):
        yield


@mutant("the version is that of the newest release")
def wrong_version() -> Iterator[None]:
    with changed((Driver, "hipFileGetVersion", lambda self: (SUCCESS, 0, 6, 0))):
        yield
