"""A device guard for CUDA in a build of torch that has none.

torch's C++ asks a registry, one slot a kind of device, for the object that knows which device is current. A CPU build
leaves the slot of CUDA empty, and indexing a tensor there already fails. The object that is put into it here has
the table of functions of torch's own do-nothing guard, with the five entries replaced that say and set the device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch

_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_CUDA = 1
_META = 14
_SLOTS = 21
_ENTRIES = 32  # more than the table has: what follows it is never called
_BEFORE = 2  # words before the first entry: offset to top, type information

_Device = ctypes.c_uint16  # c10::Device: kind in the low byte, index in the high one


class GuardUnavailable(RuntimeError):
    """This build of torch has no place for a device guard where one is expected."""


class DeviceGuard:
    """The guard, and its place in torch's registry.

    Parameters
    ----------
    get : callable
        Returns the current device of the calling thread.
    put : callable
        Makes a device current.
    """

    def __init__(self, get: Callable[[], int], put: Callable[[int], None]) -> None:
        self._get = get
        self._put = put
        self._slots = _registry()
        self._before: int | None = None
        entry = ctypes.CFUNCTYPE
        self._functions = (
            entry(ctypes.c_int8, ctypes.c_void_p)(self._type),
            entry(_Device, ctypes.c_void_p, _Device)(self._exchange),
            entry(_Device, ctypes.c_void_p)(self._current),
            entry(None, ctypes.c_void_p, _Device)(self._set),
            entry(None, ctypes.c_void_p, _Device)(self._set),
        )
        model = self._slots[_META]
        if not model:
            raise GuardUnavailable("this build of torch has no guard for the device 'meta' to start from")
        table = ctypes.c_void_p.from_address(model).value or 0
        words = (ctypes.c_void_p * (_BEFORE + _ENTRIES)).from_address(table - 8 * _BEFORE)
        self._table = (ctypes.c_void_p * (_BEFORE + _ENTRIES))(*words)
        for index, function in enumerate(self._functions):
            self._table[_BEFORE + index] = ctypes.cast(function, ctypes.c_void_p)
        self._object = ctypes.c_void_p(ctypes.addressof(self._table) + 8 * _BEFORE)

    def install(self) -> None:
        """Put the guard into its slot.

        Raises
        ------
        GuardUnavailable
            There is one: a build with CUDA or ROCm.
        """
        self._before = self._slots[_CUDA]
        self._slots[_CUDA] = ctypes.addressof(self._object)

    def uninstall(self) -> None:
        """Empty the slot again."""
        self._slots[_CUDA] = self._before

    def _type(self, _this: int | None) -> int:
        return _CUDA

    def _current(self, _this: int | None) -> int:
        return _CUDA | self._get() << 8

    def _exchange(self, _this: int | None, device: int) -> int:
        before = self._get()
        index = device >> 8
        if index != before and index < 128:
            self._put(index)
        return _CUDA | before << 8

    def _set(self, _this: int | None, device: int) -> None:
        index = device >> 8
        if index < 128 and index != self._get():
            self._put(index)


def _registry() -> ctypes.Array[ctypes.c_void_p]:
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        return (ctypes.c_void_p * _SLOTS).in_dll(ctypes.CDLL(str(library)), _REGISTRY)
    except (OSError, ValueError) as error:
        raise GuardUnavailable(f"torch {torch.__version__}: {error}") from error
