"""NVIDIA's cuFile behind the same functions, as observed on an H200 (cuFile 1.15.1, CUDA 13.0, compatibility mode)."""

from __future__ import annotations

import errno
import posix
from types import MappingProxyType

from hipfile_sim.driver.codes import OpError
from hipfile_sim.driver.profiles.base import Profile
from hipfile_sim.hip.codes import MemoryType

HOST_AND_DEVICE = frozenset(
    {MemoryType.hipMemoryTypeUnregistered, MemoryType.hipMemoryTypeHost, MemoryType.hipMemoryTypeDevice}
)
"""Plain and pinned host memory, and device memory. Managed memory is not registered, but read and written."""

PROFILE = Profile(
    name="cufile",
    version=(1, 15, 0),
    title="cuFile 1.15.1 (CUDA 13.0)",
    evidence="medium",
    aliases=("cufile-1.15", "cufile-1.15.1"),
    vendor="nvidia",
    hip=MappingProxyType(
        {
            "pageable_h2d": "stage",
            "device_only_calls": "return",
            "host_function_threads": "one",
            "host_function_calls": "refuse",
            "queue_limit": 1020,
        }
    ),
    variables=(),
    open_from_library_load=False,
    register_init="first",
    last_close="drain",
    inspect_error=OpError.hipFileInvalidValue,
    unknown_mount=OpError.hipFileHandleNotRegistered,
    irregular=OpError.hipFileInvalidFileType,
    refused_flags=posix.O_APPEND | posix.O_TMPFILE & ~posix.O_DIRECTORY,
    refused_mounts=MappingProxyType(dict.fromkeys(("tmpfs", "proc"), OpError.hipFileHandleNotRegistered)),
    file_in_use="detach",
    registered_memory=HOST_AND_DEVICE,
    io_memory=HOST_AND_DEVICE | {MemoryType.hipMemoryTypeManaged},
    length_zero=OpError.hipFileInvalidValue,
    buffer_in_use="wait",
    stream_in_use="wait",
    refused_result=-22,
    unknown_file="publish",
    backends=("fallback",),
    negative_offset="range-check",
    sync_codes="errno",
    eof_rest="overwritten",
    async_generation="cufile",
    async_bounce="none",
    async_range_check="publish",
    async_range_codes=MappingProxyType(
        {
            "submit_size": -OpError.hipFileInvalidMappingSize.value,
            "submit_file_offset": -OpError.hipFileInvalidValue.value,
            "submit_buffer_offset": -OpError.hipFileInternalError.value,
            "run_size": -errno.EIO,
            "run_file_offset": -errno.EPERM,
            "run_unaligned": -errno.EIO,
        }
    ),
    async_device_check=False,
    fixed_flags="promise",
    grown_size="use",
    page_aligned="checked",
    size_zero="immediate",
    async_error=-1,
    stream_flags_mask=None,
    batch="cufile",
    batch_failure=-errno.EIO,
    parameters="implemented",
)
