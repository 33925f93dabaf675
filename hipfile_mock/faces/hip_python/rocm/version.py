"""Versions of the release that is doubled."""

ROCM_VERSION_NAME = rocm_version_name = "10.0.0"
ROCM_VERSION_TUPLE = rocm_version_tuple = (10, 0, 0)
ROCM_VERSION = 100000000
HIP_VERSION_NAME = hip_version_name = "7.15.26333-0000000"
HIP_VERSION_TUPLE = hip_version_tuple = (7, 15, 26333, "0000000")
HIP_VERSION = 71526333
HIP_COMMIT = "0000000"
HIP_FULL_VERSION = HIP_VERSION_NAME
__version__ = "10.0.0.0.1.2"
