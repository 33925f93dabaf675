"""A device guard for CUDA in a build of torch that has none.

torch's C++ asks a registry, one slot a kind of device, for the object that knows which device is current. A CPU build
leaves the slot of CUDA empty, and indexing a tensor there already fails. torch has a guard that does nothing, for
builds with CUDA on machines without a GPU; it is put into the slot here. (A guard of our own would have to call Python
from C++ destructors, where an exception may be pending.) It knows no current device, so devices get their number in
Python.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

__all__ = ["GuardUnavailable", "install_guard"]

_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_CUDA = 1
_SLOTS = 21
_ENTRIES = 64  # more than the table of functions has

_made: list[int] = []


class GuardUnavailable(RuntimeError):
    """This build of torch has no place for a device guard where one is expected."""


def install_guard() -> None:
    """Put torch's do-nothing guard into the slot of CUDA, for good.

    Raises
    ------
    GuardUnavailable
        The registry is not where this build of torch should have it, or the slot is taken.
    """
    slots = _registry()
    if _made and slots[_CUDA] == _made[0]:
        return
    if slots[_CUDA]:
        raise GuardUnavailable("it has a device guard for CUDA already")
    slots[_CUDA] = _do_nothing(slots)
    _made.append(slots[_CUDA] or 0)


def _do_nothing(slots: ctypes.Array[ctypes.c_void_p]) -> int:
    """torch makes its do-nothing guard when it finds one whose ``deviceCount()`` is 0: for a moment it does."""
    none = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(lambda this: 0)
    entry = ctypes.cast(none, ctypes.c_void_p).value
    table = (ctypes.c_void_p * _ENTRIES)(*[entry] * _ENTRIES)
    lure = ctypes.c_void_p(ctypes.addressof(table))
    slots[_CUDA] = ctypes.addressof(lure)
    try:
        torch._C._ensureCUDADeviceGuardSet()
        found = slots[_CUDA]
    finally:
        slots[_CUDA] = None
    if not found or found == ctypes.addressof(lure):
        raise GuardUnavailable("torch did not make a device guard for CUDA")
    return int(found)


def _registry() -> ctypes.Array[ctypes.c_void_p]:
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        return (ctypes.c_void_p * _SLOTS).in_dll(ctypes.CDLL(str(library)), _REGISTRY)
    except (OSError, ValueError) as error:
        raise GuardUnavailable(f"torch {torch.__version__}: {error}") from error
