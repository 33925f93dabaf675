"""NVIDIA's cuFile behind the same functions, as observed on an H200 (cuFile 1.15.1, CUDA 13.0, compatibility mode)."""

from __future__ import annotations

import posix
from types import MappingProxyType

from hipfile_sim.driver.codes import OpError
from hipfile_sim.driver.profiles.base import Profile

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
    refused_flags=posix.O_APPEND,
    refused_mounts=MappingProxyType({"tmpfs": OpError.hipFileHandleNotRegistered}),
    file_in_use="detach",
    buffer_in_use="wait",
    stream_in_use="wait",
    refused_result=-22,
    unknown_file="publish",
    backends=("fallback",),
    negative_offset="range-check",
    sync_codes="errno",
    async_generation="cufile",
    async_bounce="none",
    async_range_check="run",
    async_range_codes=MappingProxyType(
        {
            "size": -OpError.hipFileInvalidMappingSize.value,
            "buffer_offset_high": -OpError.hipFileInvalidMappingSize.value,
            "file_offset": -1,
            "file_offset_fixed": -OpError.hipFileInvalidValue.value,
            "buffer_offset": -OpError.hipFileInternalError.value,
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
    parameters="implemented",
)
