"""A connector as they are written with ctypes: its own declarations, slots it owns, fixed flags, two devices, threads.

It knows nothing of hipfile-sim. `run` raises on the first thing that is not right.
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import POINTER, Structure, Union, byref, c_int, c_int64, c_size_t, c_ssize_t, c_uint, c_void_p

FIXED_ALL = 7  # buffer offset, file offset and size are known at submit
BLOCK = 64 << 10


class Status(Structure):
    """hipFileError_t, which the library returns by value."""

    _fields_ = [("err", c_int), ("hip_drv_err", c_int)]


class _Handle(Union):
    _fields_ = [("fd", c_int), ("hFile", c_void_p)]


class Descr(Structure):
    """hipFileDescr_t."""

    _fields_ = [("type", c_int), ("handle", _Handle), ("fs_ops", c_void_p)]


class Slots(Structure):
    """What one operation needs until it has ended."""

    _fields_ = [("size", c_size_t), ("file", c_int64), ("buffer", c_int64), ("done", c_ssize_t)]

    def at(self, name: str) -> c_void_p:
        return c_void_p(ctypes.addressof(self) + getattr(type(self), name).offset)


class Libraries:
    """Both libraries with their signatures, opened by bare name."""

    def __init__(self) -> None:
        self.hip = ctypes.CDLL("libamdhip64.so")
        self.file = ctypes.CDLL("libhipfile.so", use_errno=True)
        f = self.file
        f.hipFileHandleRegister.argtypes = [POINTER(c_void_p), POINTER(Descr)]
        f.hipFileHandleDeregister.argtypes = [c_void_p]
        f.hipFileHandleDeregister.restype = None
        f.hipFileBufRegister.argtypes = [c_void_p, c_size_t, c_int]
        f.hipFileBufDeregister.argtypes = [c_void_p]
        f.hipFileStreamRegister.argtypes = [c_void_p, c_uint]
        f.hipFileStreamDeregister.argtypes = [c_void_p]
        for name in ("hipFileReadAsync", "hipFileWriteAsync"):
            getattr(f, name).argtypes = [c_void_p] * 7
        for name in ("HandleRegister", "BufRegister", "BufDeregister", "StreamRegister", "StreamDeregister",
                     "ReadAsync", "WriteAsync", "DriverOpen", "DriverClose"):  # fmt: skip
            getattr(f, f"hipFile{name}").restype = Status
        for name in ("hipFileRead", "hipFileWrite"):
            getattr(f, name).argtypes = [c_void_p, c_void_p, c_size_t, c_int64, c_int64]
            getattr(f, name).restype = c_ssize_t

    def ok(self, result: Status | int) -> None:
        """Raise unless a result of either kind is a success."""
        code = (result.err, result.hip_drv_err) if isinstance(result, Status) else (result, 0)
        if code != (0, 0):
            raise RuntimeError(f"{code}")


class Lane:
    """One device: a stream with fixed slots, a staging buffer, submissions under way."""

    def __init__(self, libraries: Libraries, device: int, blocks: int) -> None:
        self.lib, self.device, self.blocks = libraries, device, blocks
        self.stream, self.buffer = c_void_p(), c_void_p()
        self.inflight: list[Slots] = []
        hip, file, ok = libraries.hip, libraries.file, libraries.ok
        ok(hip.hipSetDevice(device))
        ok(hip.hipStreamCreateWithFlags(byref(self.stream), 1))
        ok(hip.hipMalloc(byref(self.buffer), c_size_t(blocks * BLOCK)))
        ok(file.hipFileBufRegister(self.buffer, blocks * BLOCK, 0))
        ok(file.hipFileStreamRegister(self.stream, FIXED_ALL))

    def submit(self, name: str, handle: c_void_p, block: int, at: int) -> Slots:
        slots = Slots(BLOCK, at * BLOCK, block * BLOCK, -1)
        self.inflight.append(slots)
        call = getattr(self.lib.file, f"hipFile{name}Async")
        self.lib.ok(call(handle, self.buffer, slots.at("size"), slots.at("file"), slots.at("buffer"), slots.at("done"),
                         self.stream))  # fmt: skip
        return slots

    def drain(self) -> list[int]:
        self.lib.ok(self.lib.hip.hipSetDevice(self.device))
        self.lib.ok(self.lib.hip.hipStreamSynchronize(self.stream))
        done, self.inflight = [slots.done for slots in self.inflight], []
        return done

    def put(self, data: bytes) -> None:
        self.lib.ok(self.lib.hip.hipMemcpy(self.buffer, data, c_size_t(len(data)), 1))

    def get(self) -> bytes:
        out = ctypes.create_string_buffer(self.blocks * BLOCK)
        self.lib.ok(self.lib.hip.hipMemcpy(out, self.buffer, c_size_t(len(out)), 2))
        return out.raw

    def close(self) -> None:
        hip, file, ok = self.lib.hip, self.lib.file, self.lib.ok
        ok(file.hipFileStreamDeregister(self.stream))
        ok(file.hipFileBufDeregister(self.buffer))
        ok(hip.hipStreamDestroy(self.stream))
        ok(hip.hipFree(self.buffer))


def run(folder: str, threads: int = 4, blocks: int = 8, rounds: int = 3) -> None:
    """Each thread spills blocks on one device and loads them on the other, again and again."""
    lib = Libraries()
    lib.ok(lib.file.hipFileDriverOpen())
    errors: list[BaseException] = []

    def worker(number: int) -> None:
        try:
            _worker(lib, os.path.join(folder, f"kv{number}"), number, blocks, rounds)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=worker, args=(number,)) for number in range(threads)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    lib.ok(lib.file.hipFileDriverClose())
    if errors:
        raise errors[0]


def _worker(lib: Libraries, path: str, number: int, blocks: int, rounds: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    handle, descr = c_void_p(), Descr(1, _Handle(fd=fd), None)
    lib.ok(lib.file.hipFileHandleRegister(byref(handle), byref(descr)))
    store, load = Lane(lib, number % 2, blocks), Lane(lib, 1 - number % 2, blocks)
    for round_ in range(rounds):
        data = os.urandom(blocks * BLOCK)
        store.put(data)
        for block in range(blocks):
            store.submit("Write", handle, block, (block + round_) % blocks)
        if store.drain() != [BLOCK] * blocks:
            raise AssertionError("short write")
        for block in range(blocks):
            slots = load.submit("Read", handle, block, (block + round_) % blocks)
            slots.size = slots.file = slots.buffer = 0  # fixed: what was promised is what counts
        if load.drain() != [BLOCK] * blocks:
            raise AssertionError("short read")
        if load.get() != data:
            raise AssertionError("other bytes came back")
    ctypes.set_errno(0)
    if lib.file.hipFileRead(handle, store.buffer, BLOCK, -1, 0) != -1 or ctypes.get_errno() != 22:
        raise AssertionError("a negative offset is EINVAL")
    for lane in (store, load):
        lane.close()
    lib.file.hipFileHandleDeregister(handle)
    os.close(fd)


if __name__ == "__main__":
    import sys

    run(sys.argv[1])
    print("ok")
