"""Any operation on cuda tensors as a kernel: shapes at once, bytes when the stream gets there.

torch calls `fallback` for every operation of which a CPU build has no CUDA kernel, which is all of them. The shapes
and dtypes of the results come from torch's own meta kernels (so errors of arguments appear at the call, as on a GPU),
the results get memory, and the CPU kernel goes into the current stream as a command over host aliases of that memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hipfile_mock.faces.torch.calls import Call
from hipfile_mock.faces.torch.dlpack import CPU
from hipfile_mock.faces.torch.opinfo import info_of
from hipfile_mock.faces.torch.session import Session

__all__ = ["fallback", "generic", "special", "specials", "stack"]

stack: list[Session] = []
"""Installations of the double, the one in use last."""

_special: dict[Any, Callable[..., Any]] = {}


def specials() -> dict[Any, Callable[..., Any]]:
    """What is registered with `special`."""
    return dict(_special)


def special(*overloads: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what is done instead of `generic`: a function of the session and the operation's arguments."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for overload in overloads:
            _special[overload] = function
        return function

    return register


def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """What torch calls for an operation with the CUDA dispatch key."""
    if not stack:
        if any(isinstance(value, torch.Tensor) for value in args):
            raise RuntimeError(
                f"{op.name()}: this tensor lived on an emulated GPU that is gone; cuda tensors cannot be used after "
                "the fake that they were made under has ended"
            )
        raise AssertionError("Torch not compiled with CUDA enabled")
    session = stack[-1]
    function = _special.get(op)
    if function is not None:
        return function(session, *args, **kwargs)
    return generic(session, op, args, kwargs)


def generic(session: Session, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run any operation as one kernel."""
    info = info_of(op)
    if info.view:
        return op.redispatch(CPU, *args, **kwargs)
    call = Call(session, op, info, args, kwargs)
    if info.data_dependent:
        return call.run_now()
    try:
        shapes = call.shapes()
    except NotImplementedError:
        return call.run_now()
    return call.enqueue(shapes)
