"""Tokens: the choices of one run as a short, versioned text."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable

from hipfile_sim.engine.errors import TokenMismatch
from hipfile_sim.engine.schedules import Point, Schedule
from hipfile_sim.observe.observer import call_site

PREFIX = "hs1-"
LARGEST = 256 << 20
"""Bytes of choices in a token: more than any run makes, and little enough to unpack."""


class ChoiceLog:
    """The choices of a run: pairs (index chosen, number of options), in a few bytes each."""

    __slots__ = ("data", "passive")

    def __init__(self, passive: bool = False) -> None:
        self.data = bytearray()
        self.passive = passive

    def add(self, choice: int, options: int) -> None:
        """Append a choice."""
        data = self.data
        for value in (choice, options):
            while value >= 0x80:
                data.append(value & 0x7F | 0x80)
                value >>= 7
            data.append(value)

    def copy(self) -> ChoiceLog:
        """The choices so far, which later ones do not change."""
        log = ChoiceLog(self.passive)
        log.data[:] = self.data
        return log

    def pairs(self) -> list[tuple[int, int]]:
        """All choices, in order."""
        return list(_pairs(self.data))

    def token(self) -> str:
        """The text form."""
        packed = zlib.compress(bytes([self.passive]) + bytes(self.data), 9)
        return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def _pairs(data: Iterable[int]) -> Iterable[tuple[int, int]]:
    numbers: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            continue
        numbers.append(value)
        value = shift = 0
    return zip(numbers[::2], numbers[1::2], strict=True)


def decode(token: str) -> tuple[bool, list[tuple[int, int]]]:
    """Whether host points were skipped, and the (choice, options) pairs of `token`.

    Raises
    ------
    ValueError
        Not a token, damaged, or of a version that this release does not read.

    Examples
    --------
    >>> log = ChoiceLog()
    >>> log.add(1, 3)
    >>> decode(log.token())
    (False, [(1, 3)])
    """
    if not token.startswith(PREFIX):
        raise ValueError(f"not a token of this version: {token!r} does not begin with {PREFIX!r}")
    body = token[len(PREFIX) :]
    shown = token if len(token) <= 60 else token[:60] + "…"
    try:
        packed = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(packed, LARGEST)
        if not unpacker.eof:
            raise ValueError("it does not end" if len(data) < LARGEST else f"it is longer than {LARGEST} bytes")
        pairs = list(_pairs(data[1:]))
        for number, (choice, options) in enumerate(pairs):
            if not choice < options:
                raise ValueError(f"choice {number} takes option {choice} of {options}")
        return bool(data[0]), pairs
    except (binascii.Error, zlib.error, IndexError, ValueError) as error:
        raise ValueError(f"damaged token {shown!r}: {error}; was it copied whole?") from None


class TokenSchedule(Schedule):
    """Replays a token and refuses to guess when the program offers something else."""

    name = "token"

    def __init__(self, token: str) -> None:
        self.token = token
        self.passive, self.pairs = decode(token)
        self._next = 0
        self.mismatch: TokenMismatch | None = None

    def fresh(self) -> Schedule:
        return TokenSchedule(self.token)

    @property
    def unused(self) -> int:
        """Choices of the token that have not been made yet."""
        return len(self.pairs) - self._next

    def check_used(self) -> None:
        """Raise `TokenMismatch` when the program ended before the token did."""
        if self.mismatch is not None:  # and the program carried on
            raise self.mismatch
        if self.unused:
            raise TokenMismatch(self._next, f"{self.unused} more choices", "the end of the run")

    def choose(self, point: Point) -> int:
        if self.mismatch is not None:  # somebody caught it; what happens from there on says nothing
            raise self.mismatch
        step = self._next
        found = f"{len(point.options)} options at {point.what}"
        choice, options = self.pairs[step] if step < len(self.pairs) else (0, 0)
        if options != len(point.options):
            expected = f"{options} options" if options else "the run to be over"
            self.mismatch = TokenMismatch(step, expected, found)
            self.mismatch.site = call_site(2)
            raise self.mismatch
        self._next += 1
        return choice

    def __str__(self) -> str:
        return self.token
