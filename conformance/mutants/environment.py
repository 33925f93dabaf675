"""Parse slips, values read at the wrong time, switches that do the opposite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hipfile_conformance.mutants.registry import changed, mutant
from hipfile_sim.driver import environment
from hipfile_sim.driver.environment import Environment
from hipfile_sim.driver.profiles import get_profile
from hipfile_sim.driver.profiles.base import ParsedInt, Profile

parse = environment._parse


@mutant("0 and 1 are booleans")
def digits_are_booleans() -> Iterator[None]:
    def digits(profile: Profile, variable: Any, text: bytes) -> Any:
        if variable.kind == "bool" and text in (b"0", b"1"):
            return text == b"1", "set"
        return parse(profile, variable, text)

    with changed((environment, "_parse", digits)):
        yield


@mutant("booleans are case-sensitive")
def case_sensitive() -> Iterator[None]:
    def strict(profile: Profile, variable: Any, text: bytes) -> Any:
        if variable.kind == "bool" and text != text.lower():
            return variable.default, "ignored"
        return parse(profile, variable, text)

    with changed((environment, "_parse", strict)):
        yield


@mutant("white space around a boolean is stripped")
def stripped() -> Iterator[None]:
    def strip(profile: Profile, variable: Any, text: bytes) -> Any:
        return parse(profile, variable, text.strip() if variable.kind == "bool" else text)

    with changed((environment, "_parse", strip)):
        yield


@mutant("everything but true is false")
def junk_is_false() -> Iterator[None]:
    def strict(profile: Profile, variable: Any, text: bytes) -> Any:
        if variable.kind == "bool" and text.lower() != b"true":
            return False, "set"
        return parse(profile, variable, text)

    with changed((environment, "_parse", strict)):
        yield


def _parse_int_changed(release: str, how: Any) -> Iterator[None]:
    profile = get_profile(release)
    real = profile.parse_int
    object.__setattr__(profile, "parse_int", lambda text, maximum: how(real, text, maximum))
    try:
        yield
    finally:
        object.__setattr__(profile, "parse_int", real)


@mutant("a number with characters behind it is read up to them")
def trailing_junk() -> Iterator[None]:
    def lenient(real: Any, text: bytes, maximum: int) -> ParsedInt:
        digits = text[: len(text) - len(text.lstrip(b"0123456789"))]
        return real(digits, maximum) if digits else real(text, maximum)  # type: ignore[no-any-return]

    yield from _parse_int_changed("0.5", lenient)


@mutant("numbers accept a sign and white space in 0.5, as they did before")
def old_numbers() -> Iterator[None]:
    def old(real: Any, text: bytes, maximum: int) -> ParsedInt:
        return real(text.strip().lstrip(b"+"), maximum)  # type: ignore[no-any-return]

    yield from _parse_int_changed("0.5", old)


@mutant("a negative number is ignored in 0.2", release="0.2")
def negative_ignored() -> Iterator[None]:
    def ignore(real: Any, text: bytes, maximum: int) -> ParsedInt:
        return ParsedInt(None, "ignored") if b"-" in text else real(text, maximum)

    yield from _parse_int_changed("0.2", ignore)


@mutant("a number out of range is ignored in 0.5")
def overflow_ignored() -> Iterator[None]:
    def ignore(real: Any, text: bytes, maximum: int) -> ParsedInt:
        return ParsedInt(None, "ignored") if len(text) > 20 else real(text, maximum)

    yield from _parse_int_changed("0.5", ignore)


@mutant("variables are read at every use")
def not_latched() -> Iterator[None]:
    real = Environment._get

    def fresh(self: Environment, name: str) -> Any:
        self._latched.pop(name, None)
        return real(self, name)

    with changed((Environment, "_get", fresh)):
        yield


@mutant("forcing the fallback wins over forbidding it, in 0.2 already", release="0.2")
def rescued_early() -> Iterator[None]:
    with changed((Environment, "_decide_fallback", lambda self: self.allow_compat or self.force_compat)):
        yield


@mutant("the conflict of the two switches is silent")
def silent_conflict() -> Iterator[None]:
    with changed((Environment, "_decide_fallback", lambda self: self.allow_compat or self.force_compat)):
        yield


@mutant("the asynchronous path of 0.2 asks whether the fallback is allowed", release="0.2")
def allow_checked_early() -> Iterator[None]:
    profile = get_profile("0.2")
    object.__setattr__(profile, "async_selection", True)
    try:
        yield
    finally:
        object.__setattr__(profile, "async_selection", False)


@mutant("the buffer size defaults to 1 MiB")
def small_default() -> Iterator[None]:
    real = Environment._get

    def small(self: Environment, name: str) -> Any:
        value = real(self, name)
        return 1 << 20 if name == environment.BUFFER and value == 16 << 20 else value

    with changed((Environment, "_get", small)):
        yield


@mutant("the buffer size is rounded up to a page")
def rounded_size() -> Iterator[None]:
    real = Environment._get

    def rounded(self: Environment, name: str) -> Any:
        value = real(self, name)
        return -(-value // 4096) * 4096 if name == environment.BUFFER else value

    with changed((Environment, "_get", rounded)):
        yield


@mutant("the statistics level is not clamped")
def level_unclamped() -> Iterator[None]:
    def wide(profile: Profile, variable: Any, text: bytes) -> Any:
        if variable.name == environment.STATS and text.isdigit() and len(text) < 9:
            return int(text), "set"
        return parse(profile, variable, text)

    with changed((environment, "_parse", wide)):
        yield
