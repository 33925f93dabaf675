"""Clauses of driver properties and parameters."""

from __future__ import annotations

from hipfile_sim.driver.clauses.registry import SAME, Row

_SET = (
    "hipFileDriverSetPollMode hipFileDriverSetMaxDirectIOSize "
    "hipFileDriverSetMaxCacheSize hipFileDriverSetMaxPinnedMemSize"
)
_GETP = "hipFileGetParameterSizeT hipFileGetParameterBool hipFileGetParameterString"
_SETP = "hipFileSetParameterSizeT hipFileSetParameterBool hipFileSetParameterString"
_NO = "InternalError (not implemented)"

ROWS: tuple[Row, ...] = (
    (
        "param.properties.get",
        "must",
        "test",
        "Driver properties cannot be read.",
        _NO,
        "works",
        "hipFileDriverGetProperties",
    ),
    (
        "param.properties.null",
        "must",
        "test",
        "A null pointer for the properties.",
        _NO,
        "InvalidValue",
        "hipFileDriverGetProperties",
    ),
    ("param.properties.set", "must", "test", "Driver properties cannot be set.", _NO, "works", _SET),
    ("param.get", "must", "test", "Parameters cannot be read.", _NO, "works", _GETP),
    ("param.set", "must", "test", "Parameters cannot be set.", _NO, "works", _SETP),
    (
        "param.set.open",
        "must",
        "test",
        "Setting a parameter while the driver is open.",
        _NO,
        "DriverAlreadyOpen",
        _SETP,
    ),
    (
        "param.not-implemented",
        "must",
        "test",
        "All properties and parameters are unimplemented, in every driver state.",
        _NO,
        "implemented",
        f"hipFileDriverGetProperties {_SET} {_GETP} {_SETP}",
    ),
    (
        "param.arguments-ignored",
        "must",
        "test",
        "Arguments do not matter, null ones included.",
        "ignored",
        "InvalidValue outside the lists",
        f"hipFileDriverGetProperties {_SET} {_GETP} {_SETP}",
    ),
    (
        "param.no-init",
        "must",
        "test",
        "None of these functions opens the driver.",
        "count stays 0",
        SAME,
        f"hipFileDriverGetProperties {_SET} {_GETP} {_SETP}",
    ),
    (
        "param.enums",
        "must",
        "header",
        "There are 12 size, 12 boolean and 3 text parameters, each counted from 0 in header order.",
        "12, 12, 3",
        SAME,
        f"{_GETP} {_SETP}",
    ),
    (
        "param.properties.layout",
        "must",
        "header",
        "The structure of driver properties is 72 bytes.",
        "72",
        SAME,
        "hipFileDriverGetProperties",
    ),
)
