"""Reading and writing any address of this process without the risk of a crash.

The kernel copies the bytes (``process_vm_readv`` on ourselves), so an unmapped or protected address is an error code
instead of a signal. Where a sandbox forbids that call, ``/proc/self/mem`` does the same.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import posix  # not os: a test double of os must not see these descriptors
import struct
import threading

from hipfile_sim.hip.arena import map_file

_libc = ctypes.CDLL(None, use_errno=True)
_WORD = 8
_EPERM, _ENOSYS = 1, 38


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_SIGNATURE = (
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_ulong,
)
_readv = _libc.process_vm_readv
_readv.restype = ctypes.c_ssize_t
_readv.argtypes = _SIGNATURE
_writev = _libc.process_vm_writev
_writev.restype = ctypes.c_ssize_t
_writev.argtypes = _SIGNATURE
_words = ctypes.CDLL(None)  # without errno, which costs more than the call
_pwritev, _preadv = _words.pwritev, _words.preadv
for _function in (_pwritev, _preadv):
    _function.restype = ctypes.c_ssize_t
    _function.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_long)

_unpack3 = struct.Struct("=3q").unpack_from
_pack1 = struct.Struct("=q").pack_into
_unpack1 = struct.Struct("=q").unpack_from


class _Shared:
    """A file in memory with a cell of three words for each thread.

    A word travels from any address into the file by ``pwritev`` and back by ``preadv``: the kernel does the touching,
    in a third of the time that ``process_vm_readv`` takes for so few bytes.

    A program may close descriptors that are not its own (a daemon closes all). The number of this one is therefore
    high: the kernel hands out the lowest free one, so no file of the program ever gets it and has words written to it.
    """

    CELL = 32
    HIGH = 1000

    def __init__(self, size: int = 1 << 20) -> None:
        low = posix.memfd_create("hipfile-sim-words", posix.MFD_CLOEXEC)
        try:
            self.fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, self.HIGH)
        except OSError:  # the process may not have so many
            self.fd = low
        else:
            posix.close(low)
        posix.ftruncate(self.fd, size)
        self.identity = _identity(self.fd)
        # not by an mmap object: it keeps a descriptor of its own, and closes that number whatever it has become
        self.map = memoryview((ctypes.c_char * size).from_address(map_file(self.fd, size))).cast("B")
        self.free = list(range(0, size, self.CELL))


def _identity(fd: int) -> tuple[int, int] | None:
    """Which file `fd` leads to; None if it is closed."""
    try:
        status = posix.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class _Cell:
    """One thread's cell; goes back when the thread ends."""

    def __init__(self, shared: _Shared) -> None:
        self.shared = shared
        self.offset = shared.free.pop()

    def __del__(self) -> None:
        self.shared.free.append(self.offset)


class _Scratch(threading.local):
    """Per thread: a cell of the shared file, and three iovecs for the addresses of the caller."""

    def __init__(self, shared: _Shared) -> None:
        self.shared = shared
        self.cell = _Cell(shared)
        self.fd = shared.fd
        self.offset = self.cell.offset
        self.view = shared.map[self.offset : self.offset + _Shared.CELL]
        self.remote = (_Iovec * 3)(_Iovec(0, _WORD), _Iovec(0, _WORD), _Iovec(0, _WORD))
        self.remote_p = ctypes.addressof(self.remote)
        # the base words of the three iovecs, as integers that can be stored without ctypes field objects
        self.bases = memoryview(self.remote).cast("B").cast("Q")


_scratch = _Scratch(_Shared())
_MAX = 1 << 64
_HALF = 1 << 63


def _blocked() -> bool:
    return ctypes.get_errno() in (_EPERM, _ENOSYS)


_pid = os.getpid()


def _forked() -> None:
    global _pid, _scratch
    _pid = os.getpid()
    _scratch = _Scratch(_Shared())  # the parent goes on using the cells of the old one


os.register_at_fork(after_in_child=_forked)


def _reopened() -> bool:
    """A transfer has failed. If that is because somebody closed the file of the words, make another; True then."""
    global _scratch
    shared = _scratch.shared
    if _identity(shared.fd) == shared.identity:
        return False
    try:
        _scratch = _Scratch(_Shared())
    except OSError:  # no descriptor left
        return False
    return True


def read_i64(address: int) -> int | None:
    """The signed 8-byte word at `address`, or None where nothing readable is mapped."""
    if not 0 < address < _MAX:
        return None
    scratch = _scratch
    scratch.bases[0] = address
    if _pwritev(scratch.fd, scratch.remote_p, 1, scratch.offset) != _WORD:
        return read_i64(address) if _reopened() else None
    return int(_unpack1(scratch.view)[0])


def read_u64(address: int) -> int | None:
    """The unsigned 8-byte word at `address`, or None where nothing readable is mapped."""
    value = read_i64(address)
    return None if value is None else value & (_MAX - 1)


def read3(first: int, second: int, third: int) -> tuple[int, int, int] | None:
    """Three signed words in one system call, or None if any of them is not readable.

    Examples
    --------
    >>> import ctypes
    >>> words = (ctypes.c_int64 * 3)(1, -2, 3)
    >>> base = ctypes.addressof(words)
    >>> read3(base, base + 8, base + 16)
    (1, -2, 3)
    """
    if not (0 < first < _MAX and 0 < second < _MAX and 0 < third < _MAX):
        return None
    scratch = _scratch
    bases = scratch.bases
    bases[0] = first
    bases[2] = second
    bases[4] = third
    if _pwritev(scratch.fd, scratch.remote_p, 3, scratch.offset) != 3 * _WORD:
        return read3(first, second, third) if _reopened() else None
    return _unpack3(scratch.view)


def write_i64(address: int, value: int) -> bool:
    """Store a signed word; a value that does not fit wraps, as in C. False unless all of it is writable."""
    if not 0 < address < _MAX:
        return False
    scratch = _scratch
    try:
        _pack1(scratch.view, 0, value)
    except struct.error:
        _pack1(scratch.view, 0, (value + _HALF) % _MAX - _HALF)
    scratch.bases[0] = address
    if _preadv(scratch.fd, scratch.remote_p, 1, scratch.offset) == _WORD:
        return True
    return _reopened() and write_i64(address, value)


def read(address: int, length: int) -> bytes | None:
    """`length` bytes at `address`, or None unless all of them are readable."""
    if length == 0:
        return b""
    if not 0 < address < _MAX or address + length > _MAX:
        return None
    data = bytearray(length)
    buffer = (ctypes.c_char * length).from_buffer(data)
    local = _Iovec(ctypes.addressof(buffer), length)
    remote = _Iovec(address, length)
    if _readv(_pid, ctypes.addressof(local), 1, ctypes.addressof(remote), 1, 0) != length:
        return _read_slow(address, length) if _blocked() else None
    return bytes(data)


def write(address: int, data: bytes | bytearray | memoryview) -> bool:
    """Store `data` at `address`. False unless all of the range is writable; then some of it may have been stored."""
    length = len(data)
    if length == 0:
        return True
    if not 0 < address < _MAX or address + length > _MAX:
        return False
    copy = ctypes.create_string_buffer(bytes(data), length)
    local = _Iovec(ctypes.addressof(copy), length)
    remote = _Iovec(address, length)
    if _writev(_pid, ctypes.addressof(local), 1, ctypes.addressof(remote), 1, 0) == length:
        return True
    return _blocked() and _write_slow(address, bytes(data))


def readable(address: int, length: int) -> bool:
    """Whether every page of the range can be read."""
    if length <= 0 or not 0 < address < _MAX or address + length > _MAX:
        return False
    page = 4096
    last = address + length - 1
    probe = address
    while probe <= last:
        if read(probe, 1) is None:
            return False
        probe = (probe // page + 1) * page
    return True


def _read_slow(address: int, length: int) -> bytes | None:
    try:
        fd = posix.open("/proc/self/mem", posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            data = posix.pread(fd, length, address)
        finally:
            posix.close(fd)
    except (OSError, OverflowError):
        return None
    return data if len(data) == length else None


def _write_slow(address: int, data: bytes) -> bool:
    try:
        fd = posix.open("/proc/self/mem", posix.O_WRONLY | posix.O_CLOEXEC)
        try:
            return posix.pwrite(fd, data, address) == len(data)
        finally:
            posix.close(fd)
    except (OSError, OverflowError):
        return False


def fetch(local: int, remote: int, length: int) -> bool:
    """Copy `length` bytes from any address to `local`, known to be valid. False if not all could be."""
    return _move(_readv, local, remote, length)


def store(remote: int, local: int, length: int) -> bool:
    """Copy `length` bytes from `local`, known to be valid, to any address. False if not all could be."""
    return _move(_writev, local, remote, length)


def _move(call: ctypes._NamedFuncPointer, local: int, remote: int, length: int) -> bool:
    if not 0 < remote < _MAX or remote + length > _MAX:
        return False
    done = 0
    while done < length:
        here = _Iovec(local + done, length - done)
        there = _Iovec(remote + done, length - done)
        moved = call(_pid, ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0)
        if moved <= 0:
            if not _blocked():
                return False
            if call is _readv:
                data = _read_slow(remote + done, length - done)
                if data is not None:
                    ctypes.memmove(local + done, data, len(data))
                return data is not None
            return _write_slow(remote + done, ctypes.string_at(local + done, length - done))
        done += moved
    return True
