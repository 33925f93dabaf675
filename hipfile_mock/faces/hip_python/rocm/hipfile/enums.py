"""Codes and handle types with names in Python's manner, made from C's: ``hipFileDIONotSet`` is ``DIO_NOT_SET``."""

import re
from enum import IntEnum
from typing import Any

from rocm.bindings.hipfile import hipFileFileHandleType as _HandleType
from rocm.bindings.hipfile import hipFileOpError as _Code

__all__ = ["FileHandleType", "OpError"]

_make: Any = IntEnum


def _enumeration(name: str, source: Any, prefix: str) -> Any:
    words = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
    names = {words.sub("_", member.name.removeprefix(prefix)).upper(): member for member in source}
    return _make(name, names, module=__name__)


OpError = _enumeration("OpError", _Code, "hipFile")
"""``hipFileOpError_t``. Its members are not members of `rocm.bindings.hipfile.hipFileOpError`."""

FileHandleType = _enumeration("FileHandleType", _HandleType, "hipFileHandleType")
"""``hipFileFileHandleType_t``."""
