"""Real tensors over addresses of our choice.

A tensor made here is an ordinary `torch.Tensor` in C++: its device, dispatch keys, storage and ``data_ptr()`` are what
the address says, on a build of torch that knows nothing of the device. DLPack is the door: it hands torch a pointer, a
device and a function to call when the storage dies.
"""

from __future__ import annotations

import atexit
import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

_KDL_CPU = 1
_KDL_CUDA = 2
_HEAD = 8  # 64-bit words of DLManagedTensor: data, device, ndim and dtype, shape, strides, offset, context, deleter
_DELETER = 7

CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
"""Redispatching with it runs the CPU kernel of an operation, whatever device its tensors are on."""

_CPU_DEVICE = torch.device("cpu")
_AS_STRIDED = torch.ops.aten.as_strided.default
_EMPTY = torch.ops.aten.empty.memory_format
_SET = torch.ops.aten.set_.source_Storage_storage_offset
_VIEW_DTYPE = torch.ops.aten.view.dtype

_CODES: dict[torch.dtype, int] = {
    dtype: code | (dtype.itemsize * 8) << 8 | 1 << 16
    for code, dtypes in (
        (0, (torch.int8, torch.int16, torch.int32, torch.int64)),
        (1, (torch.uint8, torch.uint16, torch.uint32, torch.uint64)),
        (2, (torch.float16, torch.float32, torch.float64)),
        (4, (torch.bfloat16,)),
        (5, (torch.complex64, torch.complex128)),
        (6, (torch.bool,)),
    )
    for dtype in dtypes
}
"""What DLDataType is for a dtype, as one word: code, bits, one lane. Other dtypes travel as bytes."""

_libc = ctypes.CDLL(None)
_calloc = _libc.calloc
_calloc.restype = ctypes.c_void_p
_calloc.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
_free = _libc.free
_free.argtypes = (ctypes.c_void_p,)
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_NAME = b"dltensor"

_releases: dict[int, Callable[[], None]] = {}
"""By address of the record that torch holds: what to do when the storage dies."""


def _dead(record: int) -> None:
    release = _releases.pop(record, None)
    _free(record)
    if release is not None:
        release()


_deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_dead)
_deleter_address = ctypes.cast(_deleter, ctypes.c_void_p).value


@atexit.register
def _let_go() -> None:
    """Tensors that outlive the interpreter must not call back into it."""
    for record in _releases:
        (ctypes.c_uint64 * _HEAD).from_address(record)[_DELETER] = 0


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
    code = _CODES.get(dtype)
    if code is None:  # as bytes, with the dtype put on afterwards
        raw = tensor_at(address, (storage_bytes(size, stride, dtype.itemsize),), None, torch.uint8, device, release)
        typed = _VIEW_DTYPE.redispatch(CPU, raw, dtype)
        return _AS_STRIDED.redispatch(CPU, typed, list(size), list(stride or contiguous(size)), 0)
    dims = len(size)
    record = _calloc(_HEAD + 2 * dims, 8)
    words = (ctypes.c_int64 * (_HEAD + 2 * dims)).from_address(record)
    words[0] = 0 if 0 in size else address
    words[1] = _KDL_CPU if device is None else _KDL_CUDA | device << 32
    words[2] = dims | code << 32
    shape = record + 8 * _HEAD
    words[3] = shape
    words[4] = shape + 8 * dims
    words[_DELETER] = _deleter_address or 0
    words[_HEAD : _HEAD + dims] = list(size)
    words[_HEAD + dims : _HEAD + 2 * dims] = list(contiguous(size) if stride is None else stride)
    _releases[record] = release
    try:
        return torch._C._from_dlpack(_capsule(record, _NAME, None))
    except BaseException:
        if _releases.pop(record, None) is not None:
            _free(record)
        raise


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
