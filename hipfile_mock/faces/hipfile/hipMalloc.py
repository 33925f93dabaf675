"""Device memory for programs that have no other way to it."""

from __future__ import annotations

import ctypes

from hipfile_mock import current as _current


def hipMalloc(size_bytes: int) -> ctypes.c_void_p:
    """Allocate device memory.

    Parameters
    ----------
    size_bytes : int
        Bytes; a negative number wraps, as ``size_t`` does.

    Raises
    ------
    RuntimeError
        HIP returned an error; its number is in the message.
    """
    size = ctypes.c_size_t(size_bytes).value
    status, address = _current.get("hipMalloc").hip.hipMalloc(size)
    if status != 0:
        raise RuntimeError(f"hipMalloc failed ({int(status)})")
    return ctypes.c_void_p(int(address))


def hipFree(ptr: ctypes.c_void_p) -> None:
    """Free device memory. Waits until the device is idle, as HIP does. [hip.free.synchronises]

    Raises
    ------
    RuntimeError
        HIP returned an error; its number is in the message.
    ctypes.ArgumentError
        `ptr` is no pointer.
    """
    status = _current.get("hipFree").hip.hipFree(ctypes.cast(ptr, ctypes.c_void_p).value or 0)
    if status != 0:
        raise RuntimeError(f"hipFree failed ({int(status)})")
