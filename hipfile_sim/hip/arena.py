"""Address space for emulated memory: one file in memory, mapped twice.

The first mapping has the addresses that programs see; for device memory it is inaccessible, so a host that touches
it by accident faults. The second, always readable and writable, is the model's own way in: alias = address + constant.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import posix  # not os: a test double of os must not see these descriptors
from bisect import bisect_left, insort

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_munmap = _libc.munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

_PROT_NONE = 0
_RW = mmap.PROT_READ | mmap.PROT_WRITE
_NORESERVE = 0x4000
_FAILED = ctypes.c_void_p(-1).value
PAGE = 4096


def _map(size: int, prot: int, flags: int, fd: int) -> int:
    address = _mmap(None, size, prot, flags, fd, 0)
    if address == _FAILED or address is None:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot map {size} bytes of address space for emulated memory: {os.strerror(error)}")
    return int(address)


def map_file(fd: int, size: int) -> int:
    """Map `size` bytes of a file, shared, readable and writable, for good; returns the address."""
    return _map(size, _RW, mmap.MAP_SHARED | _NORESERVE, fd)


class _Mapping:
    """Both mappings of one file in memory; unmapped when the last view of them is gone."""

    def __init__(self, size: int, host_visible: bool) -> None:
        self.size = size
        fd = posix.memfd_create("hipfile-sim", posix.MFD_CLOEXEC)
        try:
            posix.ftruncate(fd, size)
            self.alias = _map(size, _RW, mmap.MAP_SHARED | _NORESERVE, fd)
            try:
                self.base = self.alias if host_visible else _map(size, _PROT_NONE, mmap.MAP_SHARED | _NORESERVE, fd)
            except OSError:
                _munmap(self.alias, size)
                raise
        finally:
            posix.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "base"):
            _munmap(self.alias, self.size)
            if self.base != self.alias:
                _munmap(self.base, self.size)


class Arena:
    """A range of real addresses that memory is handed out from.

    Parameters
    ----------
    size : int
        Bytes of address space; no memory is used until it is touched.
    host_visible : bool
        Whether the public addresses can be touched by host code.

    Attributes
    ----------
    base : int
        First public address.
    offset : int
        Add it to a public address to get the alias.
    view : memoryview
        All bytes, through the alias. Every slice of it keeps the mapping alive.
    """

    def __init__(self, size: int, host_visible: bool) -> None:
        self.size = size
        mapping = _Mapping(size, host_visible)
        self.base = mapping.base
        self.offset = mapping.alias - mapping.base
        window = (ctypes.c_char * size).from_address(mapping.alias)
        window.mapping = mapping  # type: ignore[attr-defined]
        self.view = memoryview(window).cast("B")
        self._bump = 0
        self._free: list[tuple[int, int]] = []  # (offset, size), sorted by offset, merged

    def contains(self, address: int) -> bool:
        """Whether `address` is one of this arena's public addresses."""
        return self.base <= address < self.base + self.size

    def take(self, size: int) -> tuple[int, bool] | None:
        """A public address of `size` bytes and whether they were in use before, or None when no range is free."""
        for index, (start, length) in enumerate(self._free):
            if length >= size:
                if length == size:
                    del self._free[index]
                else:
                    self._free[index] = (start + size, length - size)
                return self.base + start, True
        if self._bump + size > self.size:
            return None
        start = self._bump
        self._bump += size
        return self.base + start, False

    def give(self, address: int, size: int) -> None:
        """Take back a range from `take`."""
        start = address - self.base
        index = bisect_left(self._free, (start, 0))
        if index < len(self._free) and self._free[index][0] == start + size:
            size += self._free[index][1]
            del self._free[index]
        if index > 0 and self._free[index - 1][0] + self._free[index - 1][1] == start:
            previous, length = self._free[index - 1]
            self._free[index - 1] = (previous, length + size)
            return
        insort(self._free, (start, size))


class Reserved:
    """Addresses that mean something and can never be touched: handles.

    Parameters
    ----------
    size : int
        Bytes of address space.
    """

    STRIDE = 64

    def __init__(self, size: int = 1 << 32) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
        while True:
            try:
                self.base = _map(size, _PROT_NONE, flags, -1)
                break
            except OSError:  # the process may not have that much address space (ulimit -v)
                if size <= 1 << 16:
                    raise
                size //= 4
        self.size = size
        self._next = self.STRIDE

    def take(self) -> int:
        """An address that was never given out before."""
        if self._next >= self.size:
            raise MemoryError(f"more than {self.size // self.STRIDE} handles on one machine; make a fresh Machine")
        address = self.base + self._next
        self._next += self.STRIDE
        return address

    def __del__(self) -> None:
        if hasattr(self, "base"):
            _munmap(self.base, self.size)
