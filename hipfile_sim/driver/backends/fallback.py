"""The fallback: file to host memory to device memory, and back. The only backend that works everywhere.

Source of the rules: code of the releases and their tests.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from hipfile_sim.driver.backends.base import REFUSED, Backend, HipFailure, Mover
from hipfile_sim.driver.backends.commands import GENERATIONS
from hipfile_sim.driver.buffers import Refused, in_range
from hipfile_sim.driver.codes import MAX_RW_COUNT, HipFileStatus, OpError
from hipfile_sim.engine.command import MEM, Access
from hipfile_sim.hip.codes import HipError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hipfile_sim.driver.buffers import Buffer
    from hipfile_sim.driver.driver import Driver
    from hipfile_sim.driver.files import RegisteredFile
    from hipfile_sim.driver.operations import AsyncOp

HOST_TO_DEVICE = 1
DEVICE_TO_HOST = 2
SPARES = 4
"""Host buffers kept for the next call; each costs memory only where it was touched."""


class HostBuffer:
    """Anonymous, pageable memory for one synchronous call at a time.

    Parameters
    ----------
    size : int
        Bytes.
    """

    __slots__ = ("_map", "address", "view")

    def __init__(self, size: int) -> None:
        self._map = mmap.mmap(-1, size)
        self.view = memoryview(self._map)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))


class Fallback(Backend):
    """Copies through host memory, in chunks of 16 MiB for synchronous calls.

    Attributes
    ----------
    allocate : callable
        Makes a `HostBuffer` of so many bytes; raises OSError. Tests replace it.
    """

    __slots__ = ("_enabled", "_spare", "allocate")
    name: ClassVar[str] = "fallback"

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self._enabled: bool | None = None
        self._spare: list[HostBuffer] = []
        self.allocate: Callable[[int], HostBuffer] = HostBuffer

    def score(self, file: RegisteredFile, buffer: Buffer, size: int, file_offset: int, buffer_offset: int) -> int:
        # [sync.fallback.accepts] what memory is taken was decided before, so nothing else matters
        return 0 if self.enabled else REFUSED

    @property
    def enabled(self) -> bool:
        """What the environment says, evaluated at the first use."""
        enabled = self._enabled
        if enabled is None:
            enabled = self._enabled = self.driver.environment.fallback_enabled
        return enabled

    def submit(self, op: AsyncOp) -> HipFileStatus:
        return GENERATIONS[self.driver.profile.async_generation](op)

    def io(
        self,
        write: bool,
        file: RegisteredFile,
        buffer: Buffer,
        size: int,
        file_offset: int,
        buffer_offset: int,
        mover: Mover | None = None,
    ) -> int:
        driver = self.driver
        if not self.enabled:  # [sync.backend.disabled]
            raise Refused(OpError.hipFileInternalError)
        size = min(size, MAX_RW_COUNT)  # [sync.fallback.clamp] before the range check
        if not in_range(buffer.length, size, file_offset, buffer_offset):  # [sync.range]
            raise Refused(OpError.hipFileInvalidValue)
        driver.check_descriptor(file)
        step = self._write_chunk if write else self._read_chunk
        with self._bounce(driver.profile.fallback_sync_chunk) as bounce:
            if mover is not None or not driver.profile.sync_switches_device:
                return self._loop(step, file, bounce, size, buffer.base + buffer_offset, file_offset, mover)
            with self._current_device(buffer.device):  # [sync.fallback.device]
                return self._loop(step, file, bounce, size, buffer.base + buffer_offset, file_offset, mover)

    def _loop(
        self,
        step: Callable[[RegisteredFile, memoryview, int, int, int, Mover | None], int],
        file: RegisteredFile,
        bounce: HostBuffer,
        size: int,
        address: int,
        offset: int,
        mover: Mover | None,
    ) -> int:
        """Chunk by chunk until everything has moved or a chunk moves nothing. [sync.fallback.chunks]"""
        chunk = len(bounce.view)
        total = 0
        while True:
            view = bounce.view[: min(chunk, size - total)]
            try:
                moved = step(file, view, bounce.address, address + total, offset + total, mover)
            except InterruptedError:  # [sync.eintr] the chunk is repeated; with nothing left to move, it just ends
                if total < size:
                    continue
                return total
            total += moved
            if moved == 0 or total >= size:  # [sync.eof]
                return total

    def _read_chunk(
        self, file: RegisteredFile, view: memoryview, bounce: int, address: int, offset: int, mover: Mover | None
    ) -> int:
        driver = self.driver
        self._touches(file, offset, address, len(view), mover, write=False)
        moved = driver.files.pread_into(file.buffered_fd, view, offset)
        driver.engine.clock.advance(driver.engine.costs.file(moved))
        if moved > 0:
            length = moved if driver.profile.eof_rest == "untouched" else len(view)  # [sync.eof.rest]
            if mover is not None:
                self._check(mover(address, bounce, length))
            else:
                self._check(driver.runtime.hipMemcpy(address, bounce, length, HOST_TO_DEVICE))
        return moved

    def _write_chunk(
        self, file: RegisteredFile, view: memoryview, bounce: int, address: int, offset: int, mover: Mover | None
    ) -> int:
        driver = self.driver
        if mover is not None:
            self._check(mover(bounce, address, len(view)))
        else:
            self._check(driver.runtime.hipMemcpy(bounce, address, len(view), DEVICE_TO_HOST))
            self._check(driver.runtime.hipStreamSynchronize(0))  # [sync.write.null-sync]
        self._touches(file, offset, address, len(view), mover, write=True)
        moved = driver.files.pwrite_from(file.buffered_fd, view, offset)
        driver.engine.clock.advance(driver.engine.costs.file(moved))
        driver.files.fdatasync(file.buffered_fd)  # [sync.write.fdatasync] its failure fails the call
        return moved

    def _touches(
        self, file: RegisteredFile, offset: int, address: int, length: int, mover: Mover | None, *, write: bool
    ) -> None:
        """Tell an explorer of a chunk that a call of the host moves itself."""
        driver = self.driver
        if driver.engine.tracker is None:
            return
        driver.touched(Access(driver.file_space(file), offset, length, write))
        if mover is not None:
            driver.touched(Access(MEM, address, length, not write))

    @staticmethod
    def _check(code: HipError) -> None:
        if code != HipError.hipSuccess:
            raise HipFailure(code)

    @contextmanager
    def _bounce(self, size: int) -> Iterator[HostBuffer]:
        try:
            buffer = self._spare.pop()
        except IndexError:
            buffer = self.allocate(size)  # [sync.fallback.bounce] its failure is -1 with the errno
        try:
            yield buffer
        finally:
            if len(self._spare) < SPARES:
                self._spare.append(buffer)

    @contextmanager
    def _current_device(self, device: int) -> Iterator[None]:
        runtime = self.driver.runtime
        code, before = runtime.hipGetDevice()
        self._check(code)
        if before == device:
            yield
            return
        self._check(runtime.hipSetDevice(device))
        try:
            yield
        finally:
            if runtime.hipSetDevice(before) != HipError.hipSuccess:  # only logged by the real one
                self.driver.note("sync.fallback.device", f"the current device {before} could not be restored")
