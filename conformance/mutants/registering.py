"""Files, buffers and streams: what may be registered, and when it may go."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

from hipfile_conformance.mutants.registry import changed, mutant
from hipfile_sim.driver import buffers, submit
from hipfile_sim.driver.buffers import Buffer, BufferTable, Refused
from hipfile_sim.driver.codes import SUCCESS, OpError, status
from hipfile_sim.driver.driver import Driver
from hipfile_sim.driver.files import FileMap, RegisteredFile
from hipfile_sim.driver.streams import IOStream, StreamTable


@mutant("a buffer in flight can be deregistered")
def buffer_goes_in_flight() -> Iterator[None]:
    def go(self: Any, pointer: int) -> Any:
        with self.state.lock:
            if self.state.use_count == 0:
                return status(OpError.hipFileDriverClosing)
            gone = self.state.buffers.entries.pop(pointer, None)
        return SUCCESS if gone else status(OpError.hipFileMemoryNotRegistered)

    with changed((Driver, "hipFileBufDeregister", go)):
        yield


@mutant("a file in flight can be deregistered")
def file_goes_in_flight() -> Iterator[None]:
    real = RegisteredFile._leave

    def go(self: RegisteredFile, *, even_in_use: bool) -> bool:
        return real(self, even_in_use=True)

    with changed((RegisteredFile, "_leave", go)):
        yield


@mutant("a descriptor can be registered twice")
def file_twice() -> Iterator[None]:
    real = FileMap.register

    def twice(self: FileMap, descr: Any, init: Any) -> Any:
        if descr is not None:
            self._by_fd.pop(descr.fd, None)
        return real(self, descr, init)

    with changed((FileMap, "register", twice)):
        yield


@mutant("duplicates are found by file, not by descriptor number")
def file_by_identity() -> Iterator[None]:
    real = FileMap.register

    def same(self: FileMap, descr: Any, init: Any) -> Any:
        try:
            here = os.fstat(descr.fd).st_ino if descr is not None and descr.fd >= 0 else None
        except OSError:
            here = None
        if here is not None and any(f.info.ino == here and f.client_fd != descr.fd for f in self):
            init()
            return status(OpError.hipFileHandleAlreadyRegistered), 0
        return real(self, descr, init)

    with changed((FileMap, "register", same)):
        yield


@mutant("the extra descriptor is leaked")
def descriptor_leaked() -> Iterator[None]:
    def leak(self: RegisteredFile) -> None:
        self.owned_fd = -1

    with changed((RegisteredFile, "_close_if_last", leak)):
        yield


@mutant("the caller's descriptor is closed at deregistration")
def caller_closed() -> Iterator[None]:
    real = FileMap.deregister

    def close(self: FileMap, handle: int) -> bool:
        file = self.lookup(handle)
        gone = real(self, handle)
        if gone and file is not None:
            try:
                os.close(os.dup(file.client_fd))
                os.close(file.client_fd)
            except OSError:
                pass
        return gone

    with changed((FileMap, "deregister", close)):
        yield


@mutant("O_DIRECT refused with any error is tolerated")
def direct_error_tolerated() -> Iterator[None]:
    real = RegisteredFile._open_direct

    def lenient(self: RegisteredFile, flags: int) -> int:
        try:
            return real(self, flags)
        except OSError as error:
            raise OSError(errno.EINVAL, "refused") from error

    with changed((RegisteredFile, "_open_direct", lenient)):
        yield


@mutant("unknown handle types register")
def any_type() -> Iterator[None]:
    real = FileMap.register

    def lenient(self: FileMap, descr: Any, init: Any) -> Any:
        return real(self, None if descr is None else descr._replace(type=1), init)

    with changed((FileMap, "register", lenient)):
        yield


@mutant("a buffer may reach past its allocation by one byte")
def range_off_by_one() -> Iterator[None]:
    real = buffers.inspect

    def lenient(runtime: Any, profile: Any, pointer: int, length: int | None) -> Buffer:
        if length is None:
            return real(runtime, profile, pointer, None)
        found = real(runtime, profile, pointer, max(0, length - 1))
        found.length = length
        return found

    with changed((buffers, "inspect", lenient)):
        yield


@mutant("the buffer offset may equal the length")
def offset_at_the_end() -> Iterator[None]:
    from hipfile_sim.driver.backends import fallback

    def loose(length: int, size: int, file_offset: int, buffer_offset: int) -> bool:
        return file_offset >= 0 and 0 <= buffer_offset <= length and size <= length - buffer_offset

    with changed((fallback, "in_range", loose), (submit, "in_range", loose)):
        yield


@mutant("host memory registers")
def host_registers() -> Iterator[None]:
    real = buffers.inspect

    def lenient(runtime: Any, profile: Any, pointer: int, length: int | None) -> Buffer:
        try:
            return real(runtime, profile, pointer, length)
        except Refused as refused:
            if refused.status.err == OpError.hipFileHipMemoryTypeInvalid and length is not None:
                return Buffer(pointer, length, 0)
            raise

    with changed((buffers, "inspect", lenient)):
        yield


@mutant("a pointer inside a registered buffer is taken for it")
def interior_is_registered() -> Iterator[None]:
    real = buffers.inspect

    def within(runtime: Any, profile: Any, pointer: int, length: int | None) -> Buffer:
        found = real(runtime, profile, pointer, length)
        if length is None:
            found.length = min(found.length, 1024)
        return found

    with changed((buffers, "inspect", within), (submit, "inspect", within)):
        from hipfile_sim.driver import sync

        with changed((sync, "inspect", within)):
            yield


@mutant("the same base registers twice")
def buffer_twice() -> Iterator[None]:
    real = BufferTable.register

    def twice(self: BufferTable, pointer: int, length: int, flags: int) -> None:
        self.entries.pop(pointer, None)
        real(self, pointer, length, flags)

    with changed((BufferTable, "register", twice)):
        yield


@mutant("deregistering an unknown buffer succeeds")
def unknown_buffer_ok() -> Iterator[None]:
    real = Driver.hipFileBufDeregister

    def lenient(self: Any, pointer: int) -> Any:
        answer = real(self, pointer)
        return SUCCESS if answer.err == OpError.hipFileMemoryNotRegistered else answer

    with changed((Driver, "hipFileBufDeregister", lenient)):
        yield


@mutant("unknown stream flags are masked off")
def stream_flags_masked() -> Iterator[None]:
    real = StreamTable.register

    def mask(self: StreamTable, handle: int, flags: int) -> None:
        real(self, handle, flags & 0xF)

    with changed((StreamTable, "register", mask)):
        yield


@mutant("a stream registers twice")
def stream_twice() -> Iterator[None]:
    real = StreamTable.register

    def twice(self: StreamTable, handle: int, flags: int) -> None:
        self.entries.pop(handle, None)
        real(self, handle, flags)

    with changed((StreamTable, "register", twice)):
        yield


@mutant("a stream in flight cannot be deregistered")
def stream_kept_in_flight() -> Iterator[None]:
    real = StreamTable.deregister

    def keep(self: StreamTable, handle: int) -> None:
        stream = self.entries.get(handle)
        if stream is not None and stream.users:
            raise Refused(OpError.hipFileInternalError)
        real(self, handle)

    with changed((StreamTable, "deregister", keep)):
        yield


@mutant("stream flags are kept after deregistration")
def stale_flags() -> Iterator[None]:
    make = IOStream.__init__
    last: dict[int, int] = {}

    def remember(self: IOStream, handle: int, device: int, flags: int, bounce: Any) -> None:
        last[handle] = flags or last.get(handle, 0)
        make(self, handle, device, last[handle] if flags == 0 else flags, bounce)
        if flags == 0 and not self.registered:
            self.flags = 7

    with changed((IOStream, "__init__", remember)):
        yield


@mutant("buffer and stream of different GPUs are accepted")
def device_unchecked() -> Iterator[None]:
    check = submit._check

    def lenient(driver: Any, op: Any) -> Any:
        op.buffer.device, kept = op.stream.device, op.buffer.device
        try:
            return check(driver, op)
        finally:
            op.buffer.device = kept

    with changed((submit, "_check", lenient)):
        yield


@mutant("the file is looked up after the buffer")
def lookup_swapped() -> Iterator[None]:
    real = submit.submit

    def swapped(driver: Any, write: bool, handle: int, pointer: int, *args: int) -> Any:
        try:
            if driver.state.use_count and pointer and all(args[:4]):
                buffers.inspect(driver.runtime, driver.profile, pointer, None)
        except Refused:
            return status(OpError.hipFileInternalError)
        return real(driver, write, handle, pointer, *args)

    with changed((submit, "submit", swapped)):
        yield
