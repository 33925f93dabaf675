"""Drop-in for the package ``hipfile`` 0.4.0.dev0: same names, arguments, results and errors, over the emulated driver.

It is imported as ``hipfile`` while the face is installed (`hipfile_mock.fake`, `hipfile_mock.install`).
"""

from typing import Any as _Any

from . import _hipfile
from .buffer import Buffer
from .driver import Driver
from .enums import FileHandleType, OpError
from .error import HipFileException
from .file import FileHandle, Stream, supports_async
from .properties import driver_get_properties, get_version

__all__ = [
    "Buffer",
    "Driver",
    "FileHandle",
    "FileHandleType",
    "HipFileException",
    "OpError",
    "Stream",
    "__version__",
    "driver_get_properties",
    "get_version",
    "supports_async",
]
__version__ = ""


def _bind(machine: _Any) -> None:
    """The version is that of the release that `machine` models, as if the package had been built on it."""
    global __version__
    __version__ = f"{_hipfile.VERSION_MAJOR}.{_hipfile.VERSION_MINOR}.{_hipfile.VERSION_PATCH}"


_bind(None)
