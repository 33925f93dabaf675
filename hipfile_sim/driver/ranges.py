"""Ranges of asynchronous operations where a bad one is published as a result instead of refused.

Source: observed on an H200 with cuFile 1.15.1. There, submit looks at a part of the values, and the run at another:
a negative buffer offset is looked at by neither, so the bytes before the buffer are used.
"""

from __future__ import annotations

from collections.abc import Mapping

from hipfile_sim.driver.buffers import Buffer
from hipfile_sim.driver.codes import FIXED_BUF_OFFSET, FIXED_FILE_OFFSET, FIXED_FILE_SIZE, PAGE_ALIGNED_INPUTS

__all__ = ["ALL_FIXED", "PAGE", "at_run", "at_submit", "unaligned"]

ALL_FIXED = FIXED_BUF_OFFSET | FIXED_FILE_OFFSET | FIXED_FILE_SIZE
"""Stream flags that promise all three values. Only then does submit look at negative offsets and at alignment."""

PAGE = 4096
"""Bytes that `PAGE_ALIGNED_INPUTS` promises a multiple of. [submit.page-aligned]"""


def unaligned(size: int, file_offset: int, buffer_offset: int) -> bool:
    """Any of the values is no multiple of a page.

    >>> unaligned(4096, 8192, 0), unaligned(4096, -1, 0)
    (False, True)
    """
    return (size | file_offset | buffer_offset) % PAGE != 0


def _past_end(buffer: Buffer, size: int, buffer_offset: int) -> bool:
    return buffer_offset >= buffer.length or size > buffer.length - buffer_offset


def at_submit(
    codes: Mapping[str, int], buffer: Buffer, flags: int, size: int, file_offset: int, buffer_offset: int
) -> int:
    """What an accepted call publishes at once instead of queueing, or 0. [bind.range.late]

    Parameters
    ----------
    codes : mapping
        ``Profile.async_range_codes``.
    buffer : Buffer
        The size of one that is not registered is not looked at.
    flags : int
        Of the stream.
    size, file_offset, buffer_offset : int
        Bytes.
    """
    if flags & ALL_FIXED == ALL_FIXED:
        if file_offset < 0:
            return codes["submit_file_offset"]
        if buffer_offset < 0:
            return codes["submit_buffer_offset"]
    return codes["submit_size"] if buffer.registered and _past_end(buffer, size, buffer_offset) else 0


def at_run(
    codes: Mapping[str, int], buffer: Buffer, flags: int, size: int, file_offset: int, buffer_offset: int
) -> int:
    """What an operation publishes that finds these values when it runs, or 0. [bind.range.late]"""
    if flags & PAGE_ALIGNED_INPUTS and unaligned(size, file_offset, buffer_offset):
        return codes["run_unaligned"]
    if file_offset < 0:
        return codes["run_file_offset"]
    if _past_end(buffer, size, buffer_offset) if buffer.registered else buffer_offset > 0:
        return codes["run_size"]
    return 0
