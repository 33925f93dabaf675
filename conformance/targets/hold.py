"""Holding a stream back with calls that every target has: a wait for a memory value, or a host function that waits."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from hipfile_conformance.targets.base import HELD_AT_MOST_S, Hold, HoldKind, Target, Unsupported

__all__ = ["hold_stream"]

GTE = 0
ALL_BITS = (1 << 64) - 1


def hold_stream(target: Target, stream: int, kind: HoldKind, wake: Callable[[], None] = lambda: None) -> Hold:
    """Hold `stream` at its present tail.

    Parameters
    ----------
    target : Target
    stream : int
        Handle.
    kind : str
        ``"value"``, or ``"host"``: a forgotten one ends after 15 s.
    wake : callable, optional
        Called when the value has been written, where the target has to be told.

    Raises
    ------
    Unsupported
        The target refuses one of the calls.
    """
    if kind == "host":
        gate = threading.Event()
        code = target.call("hipLaunchHostFunc", stream, lambda _: gate.wait(HELD_AT_MOST_S), 0)
        release: Callable[[], None] = gate.set
    else:
        code, cell = target.call("hipHostMalloc", 64, 0)
        if code:
            raise Unsupported(f"{target.name}: hipHostMalloc for a gate gave {code}")
        word = ctypes.c_uint64.from_address(cell)
        word.value = 0
        code = target.call("hipStreamWaitValue64", stream, cell, 1, GTE, ALL_BITS)

        def release() -> None:
            word.value = 1
            wake()

    if code:
        raise Unsupported(f"{target.name}: holding stream {stream:#x} by {kind} gave {code}")
    return Hold(release)
