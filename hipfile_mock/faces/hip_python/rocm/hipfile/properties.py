"""Version and properties."""

from typing import Any

from rocm.bindings.hipfile import hipFileDriverGetProperties as _driver_get_properties
from rocm.bindings.hipfile import hipFileGetVersion as _get_version

from .error import check as _check


def driver_get_properties() -> Any:
    """Raises TypeError, always: release 10.0.0.0.1.2 forgets the argument of the binding, and so does the double."""
    status, properties = _driver_get_properties()  # type: ignore[call-arg, unused-ignore]
    _check(status)
    return properties


def get_version() -> tuple[int, int, int]:
    """Version of the library."""
    status, major, minor, patch = _get_version()
    _check(status)
    return (major, minor, patch)
