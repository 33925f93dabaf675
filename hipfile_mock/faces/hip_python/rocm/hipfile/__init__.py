"""Double of ``rocm.hipfile``: objects over ``rocm.bindings.hipfile``, without the asynchronous calls (as released)."""

from rocm.bindings.hipfile import HIPFILE_VERSION_MAJOR as _VERSION_MAJOR
from rocm.bindings.hipfile import HIPFILE_VERSION_MINOR as _VERSION_MINOR
from rocm.bindings.hipfile import HIPFILE_VERSION_PATCH as _VERSION_PATCH

from .buffer import Buffer
from .driver import Driver
from .enums import FileHandleType, OpError
from .error import HipFileException
from .file import FileHandle
from .properties import driver_get_properties, get_version

__all__ = [
    "Buffer",
    "Driver",
    "FileHandle",
    "FileHandleType",
    "HipFileException",
    "OpError",
    "__version__",
    "driver_get_properties",
    "get_version",
]
__version__ = f"{_VERSION_MAJOR}.{_VERSION_MINOR}.{_VERSION_PATCH}"
