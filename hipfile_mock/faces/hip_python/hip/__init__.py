"""Double of the package ``hip``: the older names of ``rocm.bindings``."""

from rocm.bindings import hip, hipfile
from rocm.bindings import util as _util
from rocm.bindings.util import types as _util_types
from rocm.version import (
    HIP_VERSION,
    HIP_VERSION_NAME,
    HIP_VERSION_TUPLE,
    ROCM_VERSION,
    ROCM_VERSION_NAME,
    ROCM_VERSION_TUPLE,
    hip_version_name,
    hip_version_tuple,
    rocm_version_name,
    rocm_version_tuple,
)
from rocm.version import __version__ as __version__

VERSION = __version__

__all__ = [
    "HIP_VERSION",
    "HIP_VERSION_NAME",
    "HIP_VERSION_TUPLE",
    "ROCM_VERSION",
    "ROCM_VERSION_NAME",
    "ROCM_VERSION_TUPLE",
    "VERSION",
    "_util",
    "_util_types",
    "hip",
    "hip_version_name",
    "hip_version_tuple",
    "hipfile",
    "rocm_version_name",
    "rocm_version_tuple",
]
