"""What the programs of the catalogue are written with: a machine, and short names for what connectors do.

Another face runs the same programs by providing the same methods.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.engine.command import Access
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.machine import Machine
from hipfile_sim.observe import observer
from hipfile_sim.observe.observer import HostAccess, call_site, current_thread
from hipfile_sim.observe.sanitizer import Sanitizer

if __name__ + "." not in observer.OURS:
    observer.OURS = (*observer.OURS, __name__ + ".")  # this is a face: the user's lines are those of the programs

H2D, D2H, D2D = 1, 2, 3
NON_BLOCKING = 1
KIB = 1024
SLOW_NS = 10_000_000
"""A kernel that takes longer than anything else in these programs."""


class Block(ctypes.Structure):
    """The four slots of one operation."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("file_offset", ctypes.c_int64),
        ("buffer_offset", ctypes.c_int64),
        ("bytes_done", ctypes.c_int64),
    )


class Slots:
    """Slots in real memory; reading and writing them is seen, as a face sees it."""

    def __init__(self, world: World, size: int, file_offset: int, buffer_offset: int) -> None:
        self.world = world
        self.block = Block(size, file_offset, buffer_offset, 0)
        self.base = ctypes.addressof(self.block)
        world.machine.host_access(self.base, ctypes.sizeof(Block), write=True, what="slots made")

    @property
    def addresses(self) -> tuple[int, int, int, int]:
        base = self.base
        return base, base + 8, base + 16, base + 24

    def set(self, **values: int) -> None:
        """Write slots by name."""
        for name, value in values.items():
            offset = getattr(Block, name).offset
            self.world.machine.host_access(self.base + offset, 8, write=True, what=f"{name} set")
            setattr(self.block, name, value)

    def set_unseen(self, **values: int) -> None:
        """As a C program does: nobody is told."""
        for name, value in values.items():
            setattr(self.block, name, value)

    @property
    def bytes_done(self) -> int:
        """The result, as the host sees it now."""
        self.world.machine.host_access(self.base + 24, 8, write=False, what="bytes_done read")
        return int(self.block.bytes_done)


class World:
    """A machine with a sanitizer, and everything that a program of the catalogue uses.

    Parameters
    ----------
    sanitizer : Sanitizer
    tidy : bool
        At the end of the program synchronise, deregister, close and free what it did not.
    """

    def __init__(
        self,
        sanitizer: Sanitizer | None = None,
        *,
        schedule: str = "parallel",
        engine: str = "steps",
        profile: str = "0.5",
        settings: HipSettings | None = None,
        tidy: bool = True,
        devices: int = 2,
        host_threads: str = "assumed",
    ) -> None:
        self._tidy = tidy
        self.sanitizer = sanitizer if sanitizer is not None else Sanitizer(host_threads=host_threads)
        self.machine = self.make_machine(
            devices=devices,
            schedule=schedule,
            engine=engine,
            profile=profile,
            env={"HIPFILE_ASYNC_BUFFER_SIZE": "65536"},
            settings=settings,
        )
        self.hip = self.machine.hip
        self.hipfile = self.machine.hipfile
        self._folder = tempfile.TemporaryDirectory(prefix="catalogue-")
        self._fds: dict[int, int] = {}
        self._keep: list[Any] = []
        self.fsync_at_end = True

    def make_machine(self, **options: Any) -> Machine:
        """The machine, watched by the sanitizer. Only programs that are not tidy end in a deadlock, and then soon."""
        return Machine(watchdog_s=5.0 if self._tidy else 0.3, observers=[self.sanitizer], **options)

    # -- things ------------------------------------------------------------------------------------------------------

    def ok(self, result: Any) -> Any:
        """The value behind a code that must be success."""
        code, *values = result if isinstance(result, tuple) and not hasattr(result, "err") else (result,)
        assert not getattr(code, "err", code), f"unexpected {code!r}"
        return values[0] if len(values) == 1 else tuple(values) or None

    def stream(self, *, register: bool = True, flags: int = 0, blocking: bool = False, device: int = 0) -> int:
        """A stream, registered with hipFile unless told otherwise."""
        self.ok(self.hip.hipSetDevice(device))
        handle: int = self.ok(self.hip.hipStreamCreateWithFlags(0 if blocking else NON_BLOCKING))
        if register:
            self.ok(self.hipfile.hipFileStreamRegister(handle, flags))
        self.ok(self.hip.hipSetDevice(0))
        return handle

    def event(self) -> int:
        """An event."""
        handle: int = self.ok(self.hip.hipEventCreateWithFlags(2))
        return handle

    def device(self, size: int = 4 * KIB, *, device: int = 0, fill: int | None = 1) -> int:
        """Device memory, filled."""
        self.ok(self.hip.hipSetDevice(device))
        pointer: int = self.ok(self.hip.hipMalloc(size))
        if fill is not None:
            self.ok(self.hip.hipMemset(pointer, fill, size))
            self.sync(0)  # CUDA's memset returns before it is done
        self.ok(self.hip.hipSetDevice(0))
        return pointer

    def buffer(self, size: int = 4 * KIB, *, device: int = 0, fill: int | None = 1) -> int:
        """Device memory that is registered with hipFile."""
        pointer = self.device(size, device=device, fill=fill)
        self.ok(self.hipfile.hipFileBufRegister(pointer, size))
        return pointer

    def pinned(self, size: int = 4 * KIB) -> int:
        """Pinned host memory."""
        pointer: int = self.ok(self.hip.hipHostMalloc(size))
        return pointer

    def signal(self) -> int:
        """Eight bytes that streams and host can wait on, zero."""
        pointer = self.pinned(8)
        self.poke(pointer, bytes(8))
        return pointer

    def pageable(self, size: int = 4 * KIB) -> int:
        """Ordinary host memory."""
        memory = ctypes.create_string_buffer(size)
        self._keep.append(memory)
        return ctypes.addressof(memory)

    def path(self, name: str = "data.bin", size: int = 64 * KIB) -> Path:
        """A file of `size` bytes."""
        path = Path(self._folder.name) / name
        path.write_bytes(bytes(range(256)) * (size // 256))
        return path

    def file(self, name: str = "data.bin", size: int = 64 * KIB, flags: int = os.O_RDWR) -> int:
        """A file that is registered with hipFile: its handle."""
        return self.file_at(self.path(name, size), flags)

    def file_at(self, path: str | Path, flags: int) -> int:
        """A file that is there, registered with hipFile: its handle."""
        fd = os.open(path, flags)
        handle: int = self.ok(self.hipfile.hipFileHandleRegister(FileDescr(1, fd)))
        self._fds[handle] = fd
        return handle

    def fd(self, handle: int) -> int:
        """The descriptor behind a handle of `file`."""
        return self._fds[handle]

    def slots(self, size: int = 4 * KIB, file_offset: int = 0, buffer_offset: int = 0) -> Slots:
        """Slots of an operation."""
        slots = Slots(self, size, file_offset, buffer_offset)
        self._keep.append(slots)
        return slots

    # -- doing -------------------------------------------------------------------------------------------------------

    def read(self, file: int, buffer: int, slots: Slots, stream: int) -> Slots:
        """An asynchronous read."""
        self.ok(self.hipfile.hipFileReadAsync(file, buffer, *slots.addresses, stream))
        return slots

    def write(self, file: int, buffer: int, slots: Slots, stream: int) -> Slots:
        """An asynchronous write."""
        self.ok(self.hipfile.hipFileWriteAsync(file, buffer, *slots.addresses, stream))
        return slots

    def kernel(
        self,
        stream: int,
        *,
        reads: Sequence[tuple[int, int]] = (),
        writes: Sequence[tuple[int, int]] = (),
        name: str = "kernel",
        slow: bool = False,
    ) -> None:
        """A kernel that writes ones."""

        def run() -> None:
            for pointer, length in writes:
                self.machine.memory.fill(pointer, 1, length)

        self.ok(self.hip.launch(stream, run, reads, writes, SLOW_NS if slow else None, name))

    def copy(self, destination: int, source: int, stream: int, kind: int, size: int = 4 * KIB) -> None:
        """An asynchronous copy."""
        self.ok(self.hip.hipMemcpyAsync(destination, source, size, kind, stream))

    def host_function(self, stream: int, function: Callable[[], Any]) -> None:
        """User code on a stream."""
        self.ok(self.hip.hipLaunchHostFunc(stream, lambda _: function(), None))

    def record(self, event: int, stream: int) -> None:
        """Record an event."""
        self.ok(self.hip.hipEventRecord(event, stream))

    def wait(self, stream: int, event: int) -> None:
        """Let a stream wait for an event."""
        self.ok(self.hip.hipStreamWaitEvent(stream, event))

    def wait_stream(self, waits: int, other: int) -> None:
        """Let a stream wait for all that another has been given."""
        event = self.event()
        self.record(event, other)
        self.wait(waits, event)

    def sync(self, stream: int) -> None:
        """Wait for a stream on the host."""
        self.ok(self.hip.hipStreamSynchronize(stream))

    def sync_event(self, event: int) -> None:
        """Wait for an event on the host."""
        self.ok(self.hip.hipEventSynchronize(event))

    def sync_device(self) -> None:
        """Wait for the device on the host."""
        self.ok(self.hip.hipDeviceSynchronize())

    def start(self, thread: threading.Thread) -> None:
        """Start a thread, and tell."""
        parent, run = threading.get_ident(), thread.run

        def told() -> None:
            with self.machine.engine.lock:
                self.sanitizer.thread_started(threading.get_ident(), parent)
            run()

        thread.run = told  # type: ignore[method-assign]
        thread.start()

    def join(self, thread: threading.Thread) -> None:
        """Join a thread, and tell."""
        child = thread.ident
        thread.join()
        with self.machine.engine.lock:
            self.sanitizer.thread_joined(child or 0, threading.get_ident())

    def poke(self, pointer: int, data: bytes) -> None:
        """Host code writes memory."""
        self.machine.host_access(pointer, len(data), write=True, what="host write")
        assert self.machine.memory.write(pointer, data)
        self.machine.engine.poke()

    def peek(self, pointer: int, length: int = 8) -> bytes:
        """Host code reads memory."""
        self.machine.host_access(pointer, length, write=False, what="host read")
        data = self.machine.memory.read(pointer, length)
        return data if data is not None else b""

    def released(self, pointer: int, length: int, kind: str, what: str, home: int | None = None) -> None:
        """Memory leaves its owner, as a face sees it."""
        lane = None if home is None else self.hip.lookup_stream(home).lane
        self.machine.released(pointer, length, kind=kind, what=what, lane=lane)

    def drop(self, slots: Slots, kind: str) -> None:
        """The owner of slots goes away; the memory is kept in quarantine, so that nothing is harmed."""
        self.released(
            slots.base, ctypes.sizeof(Block), kind, "AsyncIOHandle" if kind == "collected" else "local variables"
        )

    def fsync(self, file: int) -> None:
        """Make a file durable."""
        os.fdatasync(self.fd(file))
        info = os.fstat(self.fd(file))
        access = HostAccess(
            Access(("file", info.st_dev, info.st_ino), 0, 0, False), current_thread(), call_site(1), "fdatasync"
        )
        with self.machine.engine.lock:
            self.sanitizer.host_access(access)

    def close_fd(self, file: int) -> int:
        """Close the descriptor behind a handle, which stays registered."""
        fd = self._fds[file]
        os.close(fd)
        del self._fds[file]
        return fd

    def recycle_fd(self, file: int, name: str) -> None:
        """Close the descriptor behind a handle, and open another file, which gets the number."""
        fd = self.close_fd(file)
        other = os.open(self.path(name), os.O_RDWR)
        if other != fd:  # a lower number was free too
            assert fcntl.fcntl(other, fcntl.F_DUPFD, fd) == fd
            os.close(other)
        self._fds[file] = fd

    # -- the end -----------------------------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Everything that the program left: synchronised, deregistered, closed, freed, in the right order."""
        for device in range(self.hip.device_count):
            self.ok(self.hip.hipSetDevice(device))
            self.sync_device()
        state = self.hipfile.state
        if self.fsync_at_end:
            for file in self._fds:
                self.fsync(file)
        for stream in list(state.streams.entries):
            self.ok(self.hipfile.hipFileStreamDeregister(stream))
        for pointer in list(state.buffers.entries):
            self.ok(self.hipfile.hipFileBufDeregister(pointer))
        for file in list(state.files):
            self.hipfile.hipFileHandleDeregister(file.handle)
        for fd in self._fds.values():
            os.close(fd)
        for event in list(self.hip.events):
            self.ok(self.hip.hipEventDestroy(event))
        for stream in list(self.hip.streams):
            self.ok(self.hip.hipStreamDestroy(stream))
        free = {
            "device": self.hip.hipFree,
            "pinned": self.hip.hipHostFree,
            "registered": self.hip.hipHostUnregister,
            "managed": self.hip.hipFree,
        }
        for block in self.machine.memory.live():
            self.ok(free[block.kind](block.base))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._tidy:
                self.tidy()
            self.sanitizer.finish()
        finally:
            self.machine.close()
            self._folder.cleanup()
