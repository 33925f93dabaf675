"""Driver properties and parameters. AMD's library implements none of them; cuFile does.

Source: code of the releases ("not implemented" in every one), and the public header's enumerations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hipfile_sim.driver.codes import (
    SUCCESS,
    BoolParameter,
    HipFileStatus,
    OpError,
    SizeTParameter,
    StringParameter,
    status,
)

NOT_IMPLEMENTED = status(OpError.hipFileInternalError)
INVALID = status(OpError.hipFileInvalidValue)
ALREADY_OPEN = status(OpError.hipFileDriverAlreadyOpen)


class NvfsProperties(NamedTuple):
    """Part ``nvfs`` of `DriverProperties`. Sizes in KiB, times in ms."""

    major_version: int = 0
    minor_version: int = 0
    poll_thresh_size: int = 4
    max_direct_io_size: int = 16384
    driver_status_flags: int = 0
    driver_control_flags: int = 2


class DriverProperties(NamedTuple):
    """``hipFileDriverProps_t``. Sizes in KiB."""

    nvfs: NvfsProperties = NvfsProperties()
    feature_flags: int = 0b1110
    max_device_cache_size: int = 131072
    per_buffer_cache_size: int = 1024
    max_device_pinned_mem_size: int = 0xFFFFFFFF
    max_batch_io_size: int = 128
    max_batch_io_timeout_msecs: int = 0


class Parameters:
    """The settings of a library that has them. Defaults are those of cuFile's own documentation in kind, not in value.

    Parameters
    ----------
    implemented : bool
        False: every call is answered with 5030, whatever its arguments. [param.not-implemented]
    """

    __slots__ = ("_implemented", "properties", "values")

    def __init__(self, implemented: bool) -> None:
        self._implemented = implemented
        self.properties = DriverProperties()
        self.values: dict[tuple[str, int], Any] = {}
        self.values |= {("size_t", p): 0 for p in SizeTParameter}
        self.values |= {("bool", p): False for p in BoolParameter}
        self.values |= {("string", p): "" for p in StringParameter}

    def get_properties(self) -> tuple[HipFileStatus, DriverProperties | None]:
        """``hipFileDriverGetProperties``. [param.properties.get]"""
        return (SUCCESS, self.properties) if self._implemented else (NOT_IMPLEMENTED, None)

    def set_property(self, name: str, value: int) -> HipFileStatus:
        """One of the four setters: `name` is a field of `DriverProperties` or of its `nvfs`. [param.properties.set]"""
        if not self._implemented:
            return NOT_IMPLEMENTED
        if name in NvfsProperties._fields:
            self.properties = self.properties._replace(nvfs=self.properties.nvfs._replace(**{name: value}))
        else:
            values: dict[str, Any] = {name: value}
            self.properties = self.properties._replace(**values)
        return SUCCESS

    def get(self, kind: str, parameter: int) -> tuple[HipFileStatus, Any]:
        """One of the three getters. [param.get]"""
        if not self._implemented:
            return NOT_IMPLEMENTED, None
        if (kind, parameter) not in self.values:
            return INVALID, None
        return SUCCESS, self.values[kind, parameter]

    def get_text(self, parameter: int, room: int) -> tuple[HipFileStatus, Any]:
        """A text, with the byte that ends it, in `room` bytes; 5022 where it does not fit. [param.arguments-ignored]"""
        answer, value = self.get("string", parameter)
        if answer is SUCCESS and len(str(value).encode()) >= room:
            return INVALID, None
        return answer, value

    def set(self, kind: str, parameter: int, value: Any, is_open: bool) -> HipFileStatus:
        """One of the three setters; refused while the driver is open. [param.set]"""
        if not self._implemented:
            return NOT_IMPLEMENTED
        if (kind, parameter) not in self.values:
            return INVALID
        if is_open:
            return ALREADY_OPEN
        self.values[kind, parameter] = value
        return SUCCESS
