"""What is wrong with a name or a number that somebody wrote, in words."""

from __future__ import annotations

import operator
from collections.abc import Iterable


def near(word: object, known: Iterable[str]) -> str:
    """``"; did you mean …?"`` with the names most like `word`, or nothing.

    >>> near("schedul", ["schedule", "profile"])
    '; did you mean schedule?'
    """
    from difflib import get_close_matches

    found = get_close_matches(str(word), sorted(known), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def whole(what: str, value: object, words: str, *, least: int | None = 0) -> int:
    """`value`, if it is a whole number of at least `least`.

    Raises
    ------
    TypeError, ValueError
        It is not; the message has `what`, the value, and `words`.

    >>> whole("disk", -1, "bytes, not below 0")
    Traceback (most recent call last):
        ...
    ValueError: disk(-1): bytes, not below 0
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what}({value!r}): {words}")
    number = operator.index(value)
    if least is not None and number < least:
        raise ValueError(f"{what}({value!r}): {words}")
    return number
