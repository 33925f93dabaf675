"""Synchronous reads and writes: lookups, selection of a backend, and what each failure turns into.

Source of the rules: code of the releases and their tests.
"""

from __future__ import annotations

import errno
import posix
from typing import TYPE_CHECKING

from hipfile_sim.driver.backends.base import HipFailure, Mover, select
from hipfile_sim.driver.buffers import Refused, inspect
from hipfile_sim.driver.codes import HipFileStatus, IOResult, OpError
from hipfile_sim.hip.codes import HipError

if TYPE_CHECKING:
    from hipfile_sim.driver.buffers import Buffer
    from hipfile_sim.driver.driver import Driver
    from hipfile_sim.driver.files import RegisteredFile

CLOSED = IOResult(-1, errno.EINVAL)
UNKNOWN_FILE = IOResult(-OpError.hipFileHandleNotRegistered.value)


def failed(status: HipFileStatus) -> IOResult:
    """A status as the result of synchronous I/O: the negated HIP code if there is one. [sync.error.hip]

    Examples
    --------
    >>> from hipfile_sim.hip.codes import HipError
    >>> failed(HipFileStatus(OpError.hipFileHipDriverError, HipError.hipErrorOutOfMemory))
    IOResult(count=-2, errno=0)
    """
    if status.hip_drv_err:
        return IOResult(-int(status.hip_drv_err))
    return IOResult(-int(status.err))


def transfer(
    driver: Driver, write: bool, handle: int, pointer: int, size: int, file_offset: int, buffer_offset: int
) -> IOResult:
    """``hipFileRead`` and ``hipFileWrite``."""
    if driver.profile.sync_codes == "errno":
        return _through_errno(driver, write, handle, pointer, size, file_offset, buffer_offset)
    return _transfer(driver, write, handle, pointer, size, file_offset, buffer_offset)


def _through_errno(
    driver: Driver, write: bool, handle: int, pointer: int, size: int, file_offset: int, buffer_offset: int
) -> IOResult:
    """As cuFile was observed: codes come through errno, nulls and offsets come first, no stream is waited for."""

    def move(destination: int, source: int, length: int) -> HipError:
        moved = driver.memory.copy(destination, source, length)
        return HipError.hipSuccess if moved else HipError.hipErrorInvalidValue

    if driver.state.use_count == 0 or pointer == 0:  # [sync.closed] [sync.null]
        return CLOSED
    if file_offset < 0:  # [sync.negative-offset]
        return IOResult(-1, OpError.hipFileInvalidValue.value)
    registered = pointer in driver.state.buffers.entries
    if buffer_offset < 0:
        return IOResult(-1, OpError.hipFileInternalError.value if registered else errno.EIO)
    file = driver.state.files.lookup(handle)
    result = _transfer(driver, write, handle, pointer, size, file_offset, buffer_offset, move)
    if result.count == -OpError.hipFileInvalidValue.value:  # [sync.range]
        if not registered:
            return IOResult(-1, errno.EIO if buffer_offset else errno.EPERM)
        return IOResult(-1, (OpError.hipFileInvalidMappingRange if size else OpError.hipFileInternalError).value)
    if result == IOResult(-1, errno.EBADF) and file is not None:  # [sync.error.errno]
        access = file.flags & posix.O_ACCMODE
        if write and access == posix.O_RDONLY:
            return IOResult(-1, errno.EIO)
        if not write and access == posix.O_WRONLY:
            return IOResult(-1, OpError.hipFileInvalidFileOpenFlag.value)
        return IOResult(-1, errno.EPERM)
    return result if result.count >= 0 or result.errno else IOResult(-1, -result.count)


def _transfer(
    driver: Driver,
    write: bool,
    handle: int,
    pointer: int,
    size: int,
    file_offset: int,
    buffer_offset: int,
    mover: Mover | None = None,
) -> IOResult:
    """Lookup order: driver, file, buffer. [sync.lookup-order]"""
    state = driver.state
    user = object()
    with state.lock:
        if state.use_count == 0:  # [sync.closed]
            return CLOSED
        file = state.files.hold(handle)
        if file is None:  # [sync.file-unknown]
            return UNKNOWN_FILE
        buffer = state.buffers.entries.get(pointer)
        if buffer is not None:
            buffer.users.add(user)
    try:
        if buffer is None:  # [buffer.temporary]
            buffer = inspect(driver.runtime, driver.profile, pointer, None)
        if driver.profile.negative_offset == "early-einval" and (file_offset < 0 or buffer_offset < 0):
            return CLOSED  # [sync.negative-offset]
        device = driver.runtime.thread.device
        return run(driver, write, file, buffer, size, file_offset, buffer_offset, device, mover)
    except Refused as refused:
        return failed(refused.status)
    finally:
        if buffer is not None:
            buffer.users.discard(user)
        file.release()


def run(
    driver: Driver,
    write: bool,
    file: RegisteredFile,
    buffer: Buffer,
    size: int,
    file_offset: int,
    buffer_offset: int,
    device: int,
    mover: Mover | None = None,
) -> IOResult:
    """Select a backend and let it move the bytes.

    Parameters
    ----------
    device : int
        Current device of the calling thread, for the statistics.
    mover : callable, optional
        How the backend copies between host and device; None: by ``hipMemcpy``, as a host thread does.
    """
    backend = select(driver.backends, file, buffer, size, file_offset, buffer_offset)
    if backend is None:  # [sync.no-backend]
        return IOResult(-OpError.hipFileInternalError.value)
    clock = driver.engine.clock
    started = clock.now
    try:
        result = IOResult(backend.io(write, file, buffer, size, file_offset, buffer_offset, mover))
    except Refused as refused:
        result = failed(refused.status)
    except HipFailure as failure:  # [sync.error.hip]
        result = IOResult(-int(failure.code))
    except OSError as error:  # [sync.error.errno]
        result = IOResult(-1, error.errno or errno.EIO)
    address = buffer.base + buffer_offset
    driver.stats.transferred(device, backend.name, write, result.count, clock.now - started, address, file_offset)
    return result
