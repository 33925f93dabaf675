"""Version and properties."""

from __future__ import annotations

from ._hipfile import hipFileDriverGetProperties, hipFileGetVersion
from .error import HipFileException


def driver_get_properties() -> dict[str, int]:
    """Properties of the driver by name.

    Raises
    ------
    HipFileException
        5030, always: AMD's library does not implement the call. [param.not-implemented]
    """
    properties, status = hipFileDriverGetProperties()
    if status[0] != 0:
        raise HipFileException(status[0], status[1])
    return properties


def get_version() -> tuple[int, int, int]:
    """Major, minor and patch number of the library.

    Raises
    ------
    HipFileException
        The library refused.
    """
    version, status = hipFileGetVersion()
    if status[0] != 0:
        raise HipFileException(status[0], status[1])
    return version
