"""Kernels that are functions of the host program.

A program that is built for the CPU against our headers has its kernels as plain functions. The header registers each
with a function that calls it for every thread of the grid, and with the sizes of its parameters; the launch copies
the parameters, as HIP does, and the call is a command of the stream like any other.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from typing import Any, NamedTuple

from hipfile_sim.hip import hostmem
from hipfile_sim.hip.codes import HipError
from hipfile_sim.machine import Machine
from hipfile_sim.native.callbacks import KERNEL_CALL, client_function, executable

__all__ = ["Kernels"]

_MOST_PARAMETERS = 256
_MOST_BYTES = 4096
_MOST_THREADS = 1 << 31
_READ, _WRITE = 1, 2  # modes of a parameter: a pointer that the kernel reads through, or writes through
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class _Kernel(NamedTuple):
    call: Any
    sizes: tuple[int, ...]
    modes: bytes


_machines: weakref.WeakKeyDictionary[Machine, Kernels] = weakref.WeakKeyDictionary()
_registered: dict[int, _Kernel] = {}  # functions belong to the process, whatever its machine


class Kernels:
    """The kernels of one process, launched on one machine."""

    def __init__(self, machine: Machine) -> None:
        self._hip = machine.hip
        self._exposed: set[int] = set()

    @staticmethod
    def of(machine: Machine) -> Kernels:
        """The one of this machine."""
        found = _machines.get(machine)
        if found is None:
            found = _machines.setdefault(machine, Kernels(machine))
        return found

    def register(self, function: int, call: int, sizes: int, modes: int, count: int) -> HipError:
        """``hipfileSimKernelRegister``: `function` takes `count` parameters of these sizes and is called by `call`."""
        caller = client_function(KERNEL_CALL, call)
        if caller is None or not executable(function) or count > _MOST_PARAMETERS:
            return HipError.hipErrorInvalidDeviceFunction
        bytes_of_sizes = hostmem.read(sizes, 8 * count)
        kinds = hostmem.read(modes, count)
        if bytes_of_sizes is None or kinds is None:
            return HipError.hipErrorInvalidValue
        lengths = struct.unpack(f"={count}Q", bytes_of_sizes)
        if sum(lengths) > _MOST_BYTES:
            return HipError.hipErrorInvalidValue
        _registered[function] = _Kernel(caller, lengths, kinds)
        return HipError.hipSuccess

    def launch(self, function: int, *rest: int) -> HipError:
        """``hipLaunchKernel``: grid, block, pointers to the parameters, shared memory, stream."""
        grid, block, (args, shared, stream) = rest[0:3], rest[3:6], rest[6:9]
        kernel = _registered.get(function)
        if kernel is None:
            return HipError.hipErrorInvalidDeviceFunction
        if not all(grid) or not all(block) or block[0] * block[1] * block[2] > 1024:
            return HipError.hipErrorInvalidConfiguration
        if grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2] > _MOST_THREADS:
            return HipError.hipErrorInvalidConfiguration
        values = self._values(kernel, args)
        if values is None:
            return HipError.hipErrorInvalidValue
        self._expose()
        storage = [ctypes.create_string_buffer(value, len(value) or 1) for value in values]
        pointers = (ctypes.c_void_p * max(len(storage), 1))(*map(ctypes.addressof, storage))
        geometry = ctypes.create_string_buffer(struct.pack("=6IQ", *grid, *block, shared))

        def run(kept: object = storage) -> None:
            kernel.call(function, ctypes.addressof(pointers), ctypes.addressof(geometry))

        reads, writes = self._touched(kernel, values)
        code: HipError = self._hip.launch(stream, run, reads=reads, writes=writes, name=f"kernel {function:#x}")
        return code

    @staticmethod
    def _values(kernel: _Kernel, args: int) -> list[bytes] | None:
        count = len(kernel.sizes)
        pointers = hostmem.read(args, 8 * count)
        if pointers is None:
            return None
        values = []
        for size, pointer in zip(kernel.sizes, struct.unpack(f"={count}Q", pointers), strict=True):
            value = hostmem.read(pointer, size)
            if value is None:
                return None
            values.append(value)
        return values

    def _touched(self, kernel: _Kernel, values: list[bytes]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """What the kernel may touch: from each pointer to the end of its allocation. Nothing better is known."""
        reads: list[tuple[int, int]] = []
        writes: list[tuple[int, int]] = []
        for value, mode in zip(values, kernel.modes, strict=True):
            if mode in (_READ, _WRITE) and len(value) == 8:
                pointer = int.from_bytes(value, "little")
                block = self._hip.memory.find(pointer)
                if block is not None:
                    (reads if mode == _READ else writes).append((pointer, block.end - pointer))
        return reads, writes

    def _expose(self) -> None:
        """A kernel is host code here: from the first launch on, host code can touch device memory."""
        for arena in self._hip.memory.device_arenas():
            if arena.base not in self._exposed:
                self._exposed.add(arena.base)
                _libc.mprotect(arena.base, arena.size, 3)
