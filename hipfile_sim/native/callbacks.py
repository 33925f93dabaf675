"""Functions of the client that the model calls: host functions, stream callbacks, kernels.

A pointer is called only if it leads into memory that can be executed; anything else is the caller's error, not a crash.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

__all__ = ["HOST_FUNCTION", "KERNEL_CALL", "STREAM_CALLBACK", "client_function", "executable"]

#: ``void (*hipHostFn_t)(void *userData)``
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
#: ``void (*hipStreamCallback_t)(hipStream_t, hipError_t, void *userData)``
STREAM_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
#: ``void (*)(const void *function, void **args, const hipfileSimGeometry *)``
KERNEL_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

_MOST = 1024
_known: dict[tuple[type, int], Callable[..., Any]] = {}


def executable(address: int) -> bool:
    """Whether code can lie at `address`."""
    with open("/proc/self/maps", "rb", buffering=0) as maps:
        text = maps.read() if address else b""
        while chunk := maps.read() if address else b"":
            text += chunk
    for line in text.splitlines():
        span, rights = line.split(b" ", 2)[:2]
        start, _, end = span.partition(b"-")
        if int(start, 16) <= address < int(end, 16):
            return b"x" in rights
    return False


def client_function(kind: Any, address: int) -> Callable[..., Any] | None:
    """The client's function at `address` as a Python callable that runs without the GIL, or None if there is none.

    Parameters
    ----------
    kind : ctypes function type
        `HOST_FUNCTION`, `STREAM_CALLBACK` or `KERNEL_CALL`.
    """
    known = _known.get((kind, address))
    if known is not None:
        return known
    if not executable(address):
        return None
    if len(_known) >= _MOST:
        _known.clear()
    function: Callable[..., Any] = kind(address)
    _known[kind, address] = function
    return function
