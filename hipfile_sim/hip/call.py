"""What happens around every HIP call: observers, faults, refusals, last error, and the schedule's turn."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from hipfile_sim.engine.errors import EngineError, MachineClosedError
from hipfile_sim.hip.codes import HipError
from hipfile_sim.observe.observer import Call, call_site, current_thread, from_one_place

if TYPE_CHECKING:
    from hipfile_sim.hip.base import RuntimeBase

_F = TypeVar("_F", bound=Callable[..., Any])
_SUCCESS = HipError.hipSuccess
_NOT_READY = HipError.hipErrorNotReady


@dataclass(frozen=True, slots=True)
class CallInfo:
    """One entry of the table of HIP calls.

    Parameters
    ----------
    name : str
        C name.
    parameters : tuple of str
        Inputs, in order.
    outputs : tuple
        What stands in the place of each output when the call fails.
    """

    name: str
    parameters: tuple[str, ...]
    outputs: tuple[Any, ...]


CALLS: dict[str, CallInfo] = {}
"""Every modelled HIP call by name; faces and the C shims are checked against it."""


def hip_call(
    *, outputs: tuple[Any, ...] = (), observes: bool = False, in_host_function: bool = False, sets_error: bool = True
) -> Callable[[_F], _F]:
    """Make a method a HIP call.

    Parameters
    ----------
    outputs : tuple
        Values returned beside the code when the call fails; empty for calls that return the code alone.
    observes : bool
        The call looks at device state, so the schedule gets a turn before it as well as after it.
    in_host_function : bool
        Allowed inside a host function.
    sets_error : bool
        Failures become the thread's last error.
    """

    def decorate(function: _F) -> _F:
        name = function.__name__
        parameters = tuple(inspect.signature(function).parameters)[1:]
        CALLS[name] = CallInfo(name, parameters, outputs)

        def failure(code: HipError) -> Any:
            return (code, *outputs) if outputs else code

        @functools.wraps(function)
        def call(self: RuntimeBase, *args: Any, **kwargs: Any) -> Any:
            if self.engine.observers:
                return from_one_place(made, self, *args, **kwargs)
            return made(self, *args, **kwargs)

        def made(self: RuntimeBase, *args: Any, **kwargs: Any) -> Any:
            code: int | None
            engine = self.engine
            record: Call | None = None
            if engine.observers or self.interpose_hook is not None or self.refusal is not None:
                if self.refusal is HipError.hipErrorDeinitialized:
                    self.say_closed(name)
                    return failure(self.refusal)
                if engine.observers:
                    self.call_count += 1
                    bound = dict(zip(parameters, args, strict=False)) | kwargs
                    record = Call(self.call_count, "hip", name, bound, current_thread(), call_site(2), engine.clock.now)
                    with engine.lock:
                        for observer in engine.observers:
                            observer.call(record)
                if self.refusal is not None:
                    code = self.refusal
                    self.tell(
                        "fork.after-init",
                        f"{name} in a forked child: HIP does not survive fork(); start children with spawn",
                        severity="error",
                    )
                else:
                    code = self.interpose(name, args) if self.interpose is not None else None
                if code is not None and code != _SUCCESS:
                    result = failure(HipError(code))
                    self._end(record, result, HipError(code), sets_error)
                    return result
            if engine.in_host_function and not in_host_function:
                where = "kernel: it runs on the device" if engine.in_kernel else "host function"
                self.tell(
                    "hostfn.hip-call",
                    f"{name} inside a {where}: HIP calls are not allowed there and can deadlock",
                    severity="error",
                )
                if self.settings.host_function_calls == "refuse" or engine.in_kernel:
                    result = failure(HipError.hipErrorNotPermitted)
                    self._end(record, result, HipError.hipErrorNotPermitted, sets_error)
                    return result
            try:
                with engine.lock:
                    engine.clock.advance(engine.costs.host_call)
                    if observes:
                        engine.host_point(name, before=True)
                    result = function(self, *args, **kwargs)
                    code = result[0] if outputs else result
            except MachineClosedError:  # by another thread, while this one waited
                result = failure(HipError.hipErrorDeinitialized)
                self._end(record, result, HipError.hipErrorDeinitialized, sets_error)
                return result
            except EngineError as error:
                self._end(record, error, HipError.hipErrorLaunchFailure, sets_error)
                raise
            if record is not None or code is not _SUCCESS:
                self._end(record, result, HipError(code), sets_error)
            engine.host_point(name)
            return result

        return call  # type: ignore[return-value]

    return decorate


class Ending:
    """The tail of a call, shared by all its ways out."""

    def _end(self: RuntimeBase, record: Call | None, result: Any, code: HipError, sets_error: bool) -> None:  # type: ignore[misc]
        if sets_error and code is not _SUCCESS and code is not _NOT_READY:
            self.thread.last_error = code
        if record is not None:
            record.result = result
            record.end_time = self.engine.clock.now
            with self.engine.lock:
                for observer in self.engine.observers:
                    observer.returned(record)
