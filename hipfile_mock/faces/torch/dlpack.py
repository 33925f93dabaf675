"""Real tensors over addresses of our choice.

A tensor made here is an ordinary `torch.Tensor` in C++: its device, dispatch keys, storage and ``data_ptr()`` are what
the address says, on a build of torch that knows nothing of the device. DLPack is the door: it hands torch a pointer, a
device and a function to call when the storage dies. numpy lends the function, because it is safe wherever C++ may drop
a storage: with an exception pending, without the interpreter lock, at the end of the process.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

_KDL_CPU = 1
_KDL_CUDA = 2
_DATA, _DEVICE, _SHAPE = 0, 1, 3  # 64-bit words of DLManagedTensor
_NAME = b"dltensor"

CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
"""Redispatching with it runs the CPU kernel of an operation, whatever device its tensors are on."""

_CPU_DEVICE = torch.device("cpu")
_AS_STRIDED = torch.ops.aten.as_strided.default
_EMPTY = torch.ops.aten.empty.memory_format
_SET = torch.ops.aten.set_.source_Storage_storage_offset
_VIEW_DTYPE = torch.ops.aten.view.dtype

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def tensor_at(
    address: int,
    size: Sequence[int],
    stride: Sequence[int] | None,
    dtype: torch.dtype,
    device: int | None,
    release: Callable[[], None],
) -> Any:
    """A tensor whose first element is at `address`.

    Parameters
    ----------
    address : int
        Of the first element, in the memory of `device`. Ignored when there is no element.
    size, stride : sequence of int
        In elements. No stride means contiguous.
    dtype : torch.dtype
        Of the elements.
    device : int or None
        Ordinal of an emulated GPU, or None for host memory.
    release : callable
        Called once, on whichever thread drops the last reference, when the storage dies.

    Returns
    -------
    torch.Tensor
        On ``cuda:device`` or ``cpu``.
    """
    nbytes = storage_bytes(size, stride, dtype.itemsize)
    keeper = _Keeper(1, np.uint8)
    keeper.release = release
    capsule = keeper.__dlpack__()
    words = (ctypes.c_uint64 * (_SHAPE + 1)).from_address(_pointer(capsule, _NAME))
    words[_DATA] = address if nbytes else 0
    words[_DEVICE] = _KDL_CPU if device is None else _KDL_CUDA | device << 32
    ctypes.c_int64.from_address(words[_SHAPE]).value = nbytes
    raw = torch._C._from_dlpack(capsule)
    typed = raw if dtype is torch.uint8 else _VIEW_DTYPE.redispatch(CPU, raw, dtype)
    if len(size) == 1 and stride is None:
        return typed
    return _AS_STRIDED.redispatch(CPU, typed, size, contiguous(size) if stride is None else stride, 0)


class _Keeper(np.ndarray[Any, np.dtype[np.uint8]]):
    """What the storage holds on to; its end is the storage's end."""

    release: Callable[[], None]

    def __del__(self) -> None:
        release = self.__dict__.pop("release", None)
        if release is not None:
            release()


def host_alias(address: int, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Any:
    """A CPU tensor over memory that somebody else keeps alive."""
    count = storage_bytes(size, stride, dtype.itemsize)
    storage = torch._C._construct_storage_from_data_pointer(address if count else 0, _CPU_DEVICE, count)
    return _SET.redispatch(CPU, _EMPTY.redispatch(CPU, [0], dtype=dtype), storage, 0, list(size), list(stride))


def storage_bytes(size: Sequence[int], stride: Sequence[int] | None, itemsize: int) -> int:
    """Bytes from the first element to the end of the last.

    >>> storage_bytes((2, 3), (10, 1), 4)
    52
    """
    if 0 in size:
        return 0
    if stride is None:
        return math.prod(size) * itemsize
    return (1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))) * itemsize


def contiguous(size: Sequence[int]) -> list[int]:
    """Strides of a contiguous tensor.

    >>> contiguous((2, 3, 4))
    [12, 4, 1]
    """
    strides = []
    step = 1
    for n in reversed(size):
        strides.append(step)
        step *= max(n, 1)
    return strides[::-1]
