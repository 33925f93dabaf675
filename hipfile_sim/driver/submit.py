"""Submission of asynchronous operations: every check, in the order of the library.

Source of the rules: code of the releases and their tests; for cuFile, observed on an H200 with cuFile 1.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipfile_sim.driver import ranges
from hipfile_sim.driver.backends.base import Backend, select
from hipfile_sim.driver.buffers import U64, Refused, in_range, inspect
from hipfile_sim.driver.codes import (
    FIXED_BUF_OFFSET,
    FIXED_FILE_OFFSET,
    FIXED_FILE_SIZE,
    MAX_RW_COUNT,
    PAGE_ALIGNED_INPUTS,
    SUCCESS,
    HipFileStatus,
    OpError,
    status,
)
from hipfile_sim.driver.operations import AsyncOp
from hipfile_sim.driver.streams import make_stream

if TYPE_CHECKING:
    from hipfile_sim.driver.driver import Driver

INVALID = status(OpError.hipFileInvalidValue)
UNKNOWN_FILE = status(OpError.hipFileHandleNotRegistered)
INTERNAL = status(OpError.hipFileInternalError)
EINVAL_PUBLISHED = -22
CHECKED_FLAGS = PAGE_ALIGNED_INPUTS | ranges.ALL_FIXED
"""Stream flags with which submit itself looks at alignment."""


def submit(
    driver: Driver,
    write: bool,
    handle: int,
    pointer: int,
    size_p: int,
    file_offset_p: int,
    buffer_offset_p: int,
    bytes_p: int,
    stream_handle: int,
) -> HipFileStatus:
    """``hipFileReadAsync`` and ``hipFileWriteAsync``.

    Until every check has passed, ``*bytes_p`` is left alone. [submit.untouched]
    """
    if driver.engine.tracker is not None:
        inputs = (size_p, file_offset_p, buffer_offset_p)
        driver.slots_touched(inputs, bytes_p, counted=driver.interpose is not None)
    op = AsyncOp()
    state = driver.state
    with state.lock:
        if state.use_count == 0:  # [submit.closed] whatever the arguments; and the driver is open from now on
            state.use_count = 1
            return _refuse(driver, bytes_p)
        if not (pointer and size_p and file_offset_p and buffer_offset_p and bytes_p):  # [submit.null-pointer]
            return _refuse(driver, bytes_p)
        file = state.files.hold(handle)
        if file is None:  # [submit.file-unknown]
            if driver.profile.unknown_file == "refuse":
                return UNKNOWN_FILE
            if not handle:
                return _refuse(driver, bytes_p)
            driver.hostmem.write_i64(bytes_p, -UNKNOWN_FILE.err)
            return SUCCESS
        op.file = file
        buffer = state.buffers.entries.get(pointer)
        if buffer is not None:
            op.buffer = buffer
            buffer.users.add(op)
        stream = state.streams.entries.get(stream_handle)
        if stream is not None:
            op.stream = stream
            stream.users.add(op)
    op.driver = driver
    op.write = write
    op.pinned = ()
    op.pinned_bytes = 0
    op.marker = None
    op.bounce = None
    queued = False
    try:
        if buffer is None:
            try:
                buffer = inspect(driver.runtime, driver.profile, pointer, None)
            except Refused as refused:
                # [submit.memory-type] the exception for the type is not caught on this path
                if refused.status.err == OpError.hipFileHipMemoryTypeInvalid:
                    return INTERNAL
                return refused.status
            op.buffer = buffer
        if stream is None:  # [stream.unregistered]
            try:
                stream = make_stream(driver, stream_handle, 0)
            except Refused as refused:  # [submit.stream-error]
                return refused.status
            op.stream = stream
            stream.users.add(op)
        op.size_p, op.file_offset_p, op.buffer_offset_p, op.bytes_p = size_p, file_offset_p, buffer_offset_p, bytes_p
        refused_with, backend = _check(driver, op)
        if backend is None:
            return refused_with
        if not driver.hostmem.write_i64(bytes_p, 0):  # [submit.dangling-slot]
            op.lost_slot("the result slot")
            return INVALID
        if driver.engine.observers:
            driver.slot_written(bytes_p)
        if op.limit == 0 and driver.profile.size_zero == "immediate":  # [submit.size-zero]
            return SUCCESS
        queued = True  # from here on the operation's own clean-up gives everything back
        return backend.submit(op)
    finally:
        if not queued:  # a refused or empty operation drops what it held
            driver.monitor.drop(op)


def _refuse(driver: Driver, bytes_p: int) -> HipFileStatus:
    """Refuse a call for what it was given; some publish that, too. [submit.untouched]"""
    value = driver.profile.refused_result
    if value is not None and bytes_p:
        driver.hostmem.write_i64(bytes_p, value)
    return INVALID


def _check(driver: Driver, op: AsyncOp) -> tuple[HipFileStatus, Backend | None]:
    """Steps that look at the values behind the pointers, and what is captured of them. A backend means: queue it."""
    profile = driver.profile
    words = driver.hostmem.read3(op.size_p, op.file_offset_p, op.buffer_offset_p)
    if words is None:  # [submit.dangling-slot]
        op.size = op.file_offset = op.value = 0
        op.lost_slot("a size or offset slot")
        return INVALID, None
    size, file_offset, buffer_offset = words
    size &= U64
    if driver.engine.observers:
        driver.slots_read(op)
    flags = op.flags = op.stream.flags
    if profile.async_selection:  # [submit.selection] by the values of this moment
        backend = select(driver.backends, op.file, op.buffer, size, file_offset, buffer_offset)
        if backend is None:
            return INTERNAL, None
    else:
        backend = driver.fallback
    clamped = size if size <= MAX_RW_COUNT else MAX_RW_COUNT
    if profile.async_range_check == "submit" and not in_range(op.buffer.length, clamped, file_offset, buffer_offset):
        return INVALID, None  # [submit.range] the size is clamped first
    if profile.async_device_check and op.buffer.device != op.stream.device:  # [submit.device]
        return INVALID, None
    if (  # [submit.page-aligned]
        profile.page_aligned == "checked"
        and flags & CHECKED_FLAGS == CHECKED_FLAGS
        and ranges.unaligned(size, file_offset, buffer_offset)
    ):
        driver.hostmem.write_i64(op.bytes_p, EINVAL_PUBLISHED)
        return INVALID, None
    if profile.async_range_check == "publish":  # [bind.range.late] what is not found here the run finds, or nobody
        value = ranges.at_submit(profile.async_range_codes, op.buffer, flags, size, file_offset, buffer_offset)
        if value:
            driver.hostmem.write_i64(op.bytes_p, value)
            return SUCCESS, None
    op.size = clamped if profile.fixed_size_clamped else size
    op.limit = size
    op.file_offset = file_offset
    op.buffer_offset = buffer_offset
    op.done = op.chunk = op.value = 0
    if flags and profile.fixed_flags == "captured":  # [bind.fixed]
        if flags & FIXED_FILE_SIZE:
            op.size_p = 0
        if flags & FIXED_FILE_OFFSET:
            op.file_offset_p = 0
        if flags & FIXED_BUF_OFFSET:
            op.buffer_offset_p = 0
    return SUCCESS, backend
