"""Python objects to C integers, with the checks and messages of a compiled extension module.

An ``int``, and any object with ``__index__`` or ``__int__`` (a float too: it is cut off), is taken; a value that does
not fit raises OverflowError instead of wrapping.
"""

from __future__ import annotations

from typing import SupportsIndex, SupportsInt

__all__ = ["to_int", "to_long", "to_size_t", "to_unsigned"]

Integer = int | SupportsIndex | SupportsInt


def _number(value: Integer) -> int:
    if isinstance(value, (str, bytes, bytearray)):  # int() would read these as numerals
        raise TypeError("an integer is required")
    try:
        return int(value)
    except TypeError:
        raise TypeError("an integer is required") from None


def to_size_t(value: Integer) -> int:
    """`value` as ``size_t``, ``uintptr_t`` (0 to 2**64 - 1).

    >>> to_size_t(-1)
    Traceback (most recent call last):
        ...
    OverflowError: can't convert negative value to size_t
    """
    number = value if type(value) is int else _number(value)
    if number < 0:
        raise OverflowError("can't convert negative value to size_t")
    if number >> 64:
        raise OverflowError("Python int too large to convert to C unsigned long")
    return number


def to_long(value: Integer) -> int:
    """`value` as ``off_t``, ``int64_t``."""
    number = value if type(value) is int else _number(value)
    if not -(1 << 63) <= number < (1 << 63):
        raise OverflowError("Python int too large to convert to C long")
    return number


def to_int(value: Integer) -> int:
    """`value` as ``int`` (32 bits)."""
    number = value if type(value) is int else _number(value)
    if not -(1 << 31) <= number < (1 << 31):
        raise OverflowError("value too large to convert to int")
    return number


def to_unsigned(value: Integer) -> int:
    """`value` as ``unsigned int`` (32 bits)."""
    number = value if type(value) is int else _number(value)
    if number < 0:
        raise OverflowError("can't convert negative value to unsigned int")
    if number >> 32:
        raise OverflowError("value too large to convert to unsigned int")
    return number
