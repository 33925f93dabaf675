"""What happens around every hipFile call: observers, faults, forked children, and the schedule's turn."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from hipfile_sim.driver.codes import HipFileStatus, IOResult, OpError, hip_status
from hipfile_sim.engine.errors import EngineError, MachineClosedError
from hipfile_sim.hip.codes import HipError
from hipfile_sim.observe.observer import Call, call_site, current_thread, from_one_place

if TYPE_CHECKING:
    from hipfile_sim.driver.driver import Driver

P = ParamSpec("P")
R = TypeVar("R")

Interpose = Callable[[str, tuple[Any, ...]], Any]
"""Asked at each hipFile call: None lets it through; a code, or a whole result, is returned in its place."""

CALLS: dict[str, tuple[str, ...]] = {}
"""Every hipFile call by name, with its parameters."""


def as_status(status: HipFileStatus) -> HipFileStatus:
    """The shape of calls that return a status alone."""
    return status


def as_io(status: HipFileStatus) -> IOResult:
    """The shape of synchronous I/O."""
    return IOResult(-int(status.hip_drv_err or status.err))


def as_count(status: HipFileStatus) -> int:
    """The shape of the use count."""
    return -1


def as_nothing(status: HipFileStatus) -> None:
    """The shape of calls without a result."""


def with_values(*values: Any) -> Callable[[HipFileStatus], tuple[Any, ...]]:
    """The shape of calls that return a status and `values` in the place of their outputs."""
    return lambda status: (status, *values)


def public(
    shape: Callable[[HipFileStatus], Any] = as_status, *, pure: bool = False
) -> Callable[[Callable[Concatenate[Driver, P], R]], Callable[Concatenate[Driver, P], R]]:
    """Make a method of `Driver` a hipFile call.

    Parameters
    ----------
    shape : callable
        Turns a status into what the call returns, for calls that fail before they begin.
    pure : bool
        It looks at no device and initialises nothing, so it works in a forked child and on a closed machine, and the
        schedule gets no turn.
    """

    def decorate(function: Callable[Concatenate[Driver, P], R]) -> Callable[Concatenate[Driver, P], R]:
        name = function.__name__
        parameters = tuple(inspect.signature(function).parameters)[1:]
        CALLS[name] = parameters

        @functools.wraps(function)
        def call(self: Driver, /, *args: P.args, **kwargs: P.kwargs) -> R:
            engine = self.engine
            if engine.observers:
                return from_one_place(watched, self, *args, **kwargs)  # type: ignore[no-any-return]
            if self.interpose is not None or self.runtime.refusal is not None:
                return watched(self, *args, **kwargs)
            if pure:
                return function(self, *args, **kwargs)
            engine.clock.advance(engine.costs.host_call)
            try:
                if engine.tracker is None:
                    result = function(self, *args, **kwargs)
                else:
                    result = _followed(self, function, args, kwargs)
                engine.host_point(name)
            except MachineClosedError:  # by another thread, while this one waited
                return shape(CLOSED)  # type: ignore[no-any-return]
            return result

        def watched(self: Driver, /, *args: P.args, **kwargs: P.kwargs) -> R:
            engine = self.engine
            runtime = self.runtime
            record: Call | None = None
            if not pure and runtime.refusal is HipError.hipErrorDeinitialized:
                runtime.say_closed(name)
                return shape(CLOSED)  # type: ignore[no-any-return]
            if engine.observers:
                runtime.call_count += 1
                bound = dict(zip(parameters, args, strict=False)) | kwargs
                record = Call(
                    runtime.call_count, "hipfile", name, bound, current_thread(), call_site(2), engine.clock.now
                )
                with engine.lock:
                    for observer in engine.observers:
                        observer.call(record)
            result: Any
            try:
                always = pure and runtime.refusal is not None
                result = _GO_ON if always else _refused(self, name, args, shape)
                if result is _GO_ON:
                    engine.clock.advance(engine.costs.host_call)
                    result = _followed(self, function, args, kwargs)
            except MachineClosedError:  # by another thread, while this one waited
                result = shape(CLOSED)
                _returned(self, record, result)
                return result  # type: ignore[no-any-return]
            except EngineError as error:
                _returned(self, record, error)
                raise
            _returned(self, record, result)
            if not pure:
                engine.host_point(name)
            return result  # type: ignore[no-any-return]

        return call

    return decorate


CLOSED = HipFileStatus(OpError.hipFileDriverNotInitialized)
"""What a call answers once its machine is closed: no facts speak of it, and no other call of an open driver does."""

_GO_ON = object()


def _followed(driver: Driver, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do the work. An explorer learns that no code of the caller runs between the HIP calls that it makes."""
    tracker = driver.engine.tracker
    if tracker is None or driver.engine.in_host_function:
        return function(driver, *args, **kwargs)
    tracker.entered()
    try:
        result = function(driver, *args, **kwargs)
    except BaseException:
        tracker.left(at_once=True)
        raise
    tracker.left(at_once=False)
    return result


def _refused(driver: Driver, name: str, args: tuple[Any, ...], shape: Callable[[HipFileStatus], Any]) -> Any:
    if driver.runtime.refusal is not None:  # [life.fork]
        driver.note(
            "fork.after-init",
            f"{name} in a forked child: neither HIP nor hipFile survives fork(); start children with spawn",
            severity="error",
        )
        return shape(hip_status(driver.runtime.refusal))
    answer = driver.interpose(name, args) if driver.interpose is not None else None
    if answer is None:
        return _GO_ON
    if isinstance(answer, HipFileStatus):
        return shape(answer)
    if isinstance(answer, HipError):
        return shape(hip_status(answer)) if answer else _GO_ON
    if isinstance(answer, OpError) or (type(answer) is int and shape is not as_io and shape is not as_count):
        return shape(HipFileStatus(OpError(answer))) if answer else _GO_ON
    if type(answer) is int and shape is as_io:
        return IOResult(answer)
    return answer


def _returned(driver: Driver, record: Call | None, result: Any) -> None:
    if record is None:
        return
    engine = driver.engine
    record.result = result
    record.end_time = engine.clock.now
    with engine.lock:
        for observer in engine.observers:
            observer.returned(record)
