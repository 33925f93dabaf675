"""Small helpers that build what a test needs: streams, memory, files, registrations, operations."""

from __future__ import annotations

import builtins
import ctypes
import os
import time
from pathlib import Path
from typing import Any

from hipfile_conformance.calls import Calls
from hipfile_conformance.pieces import D2H, KIB, Slots, code_text, pattern
from hipfile_conformance.targets.base import BatchEvent, Status, Target

__all__ = ["Building"]


class Building(Calls):
    """Everything made here goes at the end of the test."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._fds: list[int] = []
        self._paths: list[str] = []
        self._kept: list[Any] = []
        self._count = 0

    def ok(self, result: Any, what: str = "a call of the set-up") -> Any:
        """Unwrap a result of the set-up that must be a success; a failure there is a failed test."""
        code, *values = result if isinstance(result, tuple) and not isinstance(result, Status) else (result,)
        number = code.err if isinstance(code, Status) else code
        if number:
            raise AssertionError(f"{what} failed: {code_text(code)} ({code!r})")
        return values[0] if len(values) == 1 else tuple(values) if values else None

    def stream(self, flags: int = 1, register: int | None = None) -> int:
        """A stream (non-blocking unless `flags` is 0), registered with hipFile where `register` gives flags."""
        stream = int(self.ok(self.hipStreamCreateWithFlags(flags), "hipStreamCreateWithFlags"))
        if register is not None:
            self.ok(self.hipFileStreamRegister(stream, register), "hipFileStreamRegister")
        return stream

    def event(self, flags: int = 0) -> int:
        """An event."""
        return int(self.ok(self.hipEventCreateWithFlags(flags), "hipEventCreateWithFlags"))

    def device(self, size: int, fill: int = 0xAA) -> int:
        """Device memory, filled."""
        pointer = int(self.ok(self.hipMalloc(size), "hipMalloc"))
        self.ok(self.hipMemset(pointer, fill, size), "hipMemset")
        self.ok(self.hipDeviceSynchronize(), "hipDeviceSynchronize")
        return pointer

    def pinned(self, size: int, fill: int = 0) -> int:
        """Pinned host memory, filled."""
        pointer = int(self.ok(self.hipHostMalloc(size, 0), "hipHostMalloc"))
        ctypes.memset(pointer, fill, size)
        return pointer

    def host(self, size: int, fill: int = 0) -> int:
        """Plain host memory, filled."""
        room = ctypes.create_string_buffer(bytes([fill]) * size, size)
        self._kept.append(room)
        return ctypes.addressof(room)

    def peek(self, pointer: int, size: int) -> builtins.bytes:
        """Bytes of host or pinned memory, without a call."""
        return ctypes.string_at(pointer, size)

    def bytes(self, pointer: int, size: int) -> builtins.bytes:
        """Bytes of device memory."""
        room = ctypes.create_string_buffer(size)
        self.ok(self.hipMemcpy(ctypes.addressof(room), pointer, size, D2H), "hipMemcpy")
        return room.raw

    def path(self) -> str:
        """A path for a new file; the file is removed at the end of the test."""
        self._count += 1
        path = os.path.join(self.target.directory, f"c{os.getpid()}-{id(self):x}-{self._count}")
        self._paths.append(path)
        return path

    def buffer(self, size: int, fill: int = 0xAA) -> int:
        """Device memory, registered."""
        pointer = self.device(size, fill)
        self.ok(self.hipFileBufRegister(pointer, size, 0), "hipFileBufRegister")
        return pointer

    def file(self, content: int | builtins.bytes = 64 * KIB, flags: int = os.O_RDWR, path: str | None = None) -> int:
        """Descriptor of a new file: `content` bytes of :func:`pattern`, or the bytes given."""
        path = path or self.path()
        Path(path).write_bytes(pattern(content) if isinstance(content, int) else content)
        return self.keep_fd(os.open(path, flags))

    def keep_fd(self, fd: int) -> int:
        """Close `fd` at the end of the test."""
        self._fds.append(fd)
        return fd

    def forget_fd(self, fd: int) -> None:
        """The test closed it itself."""
        self._fds.remove(fd)

    def handle(self, fd: int | None = None, **file: Any) -> int:
        """A registered file: of `fd`, or of a new file made with the arguments of :meth:`file`."""
        descriptor = self.file(**file) if fd is None else fd
        return int(self.ok(self.hipFileHandleRegister((1, descriptor)), "hipFileHandleRegister"))

    def unknown_handle(self) -> int:
        """A handle that is not registered any more (a made-up one could crash a real library)."""
        handle = self.handle()
        self.hipFileHandleDeregister(handle)
        return handle

    def open(self) -> None:
        """Open the driver, and let the first asynchronous operation's lazy set-up pass where there is one."""
        self.ok(self.hipFileDriverOpen(), "hipFileDriverOpen")
        if self.has("real"):
            handle, pointer, stream = self.handle(), self.device(4096), self.stream()
            self.read(handle, pointer, Slots(4096), stream)
            self.ok(self.hipStreamSynchronize(stream), "hipStreamSynchronize")
            self.hipFileHandleDeregister(handle)

    def read(self, handle: int, pointer: int, slots: Slots, stream: int) -> Status:
        """``hipFileReadAsync``."""
        self._kept.append(slots)
        return Status(*self.hipFileReadAsync(handle, pointer, *slots.addresses, stream))

    def write(self, handle: int, pointer: int, slots: Slots, stream: int) -> Status:
        """``hipFileWriteAsync``."""
        self._kept.append(slots)
        return Status(*self.hipFileWriteAsync(handle, pointer, *slots.addresses, stream))

    def finish(self, stream: int) -> None:
        """Synchronise a stream; a failure fails the test."""
        self.ok(self.hipStreamSynchronize(stream), "hipStreamSynchronize")

    def batch_events(self, batch: int, wanted: int, capacity: int = 16) -> list[BatchEvent]:
        """Collect events until `wanted` have come or 2 s have passed."""
        events: list[BatchEvent] = []
        end = time.monotonic() + 2
        while len(events) < wanted and time.monotonic() < end:
            status, some = self.hipFileBatchIOGetStatus(batch, min(1, wanted), capacity, 0.2)
            if Status(*status).err:
                raise AssertionError(f"hipFileBatchIOGetStatus gave {status}")
            events += some
        return events

    def close_files(self) -> None:
        """Close the descriptors and remove the files."""
        for fd in self._fds:
            try:
                os.close(fd)
            except OSError:
                pass
        for path in self._paths:
            Path(path).unlink(missing_ok=True)
