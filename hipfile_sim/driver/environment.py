"""The environment variables of the library: parse rules by profile, read once, and why each value is what it is.

>>> from hipfile_sim.driver.profiles import get_profile
>>> for row in resolve(get_profile("0.5"), {"HIPFILE_ALLOW_COMPAT_MODE": "0", "HIPFILE_STATS_LEVEL": "2"}):
...     print(row.name, row.value, "|", row.why)
HIPFILE_ALLOW_COMPAT_MODE True | ignored: neither 'true' nor 'false'; the default
HIPFILE_FORCE_COMPAT_MODE False | not set; the default
HIPFILE_UNSUPPORTED_FILE_SYSTEMS False | not set; the default
HIPFILE_STATS_LEVEL 2 | set
HIPFILE_ASYNC_BUFFER_SIZE 16777216 | not set; the default
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple, TextIO

from hipfile_sim.driver.codes import CONFLICT_TEXT
from hipfile_sim.driver.profiles.base import DEFAULT_ASYNC_BUFFER, Profile, Variable

__all__ = ["VARIABLES", "Environment", "Resolved", "resolve"]

ALLOW: Final = "HIPFILE_ALLOW_COMPAT_MODE"
FORCE: Final = "HIPFILE_FORCE_COMPAT_MODE"
UNSUPPORTED: Final = "HIPFILE_UNSUPPORTED_FILE_SYSTEMS"
STATS: Final = "HIPFILE_STATS_LEVEL"
BUFFER: Final = "HIPFILE_ASYNC_BUFFER_SIZE"

VARIABLES: Final[tuple[str, ...]] = (ALLOW, FORCE, UNSUPPORTED, STATS, BUFFER)
"""Every variable that some release reads."""

_WITHOUT: Final[dict[str, bool | int]] = {
    ALLOW: True,
    FORCE: False,
    UNSUPPORTED: False,
    STATS: 0,
    BUFFER: DEFAULT_ASYNC_BUFFER,
}
"""What the model goes by where a release has no such variable."""


class Resolved(NamedTuple):
    """One variable as a release sees it.

    Attributes
    ----------
    name : str
    raw : str or None
        Its text; None if it is not set.
    value : bool, int or None
        The value in force; None if this release does not read the variable.
    why : str
        One phrase.
    """

    name: str
    raw: str | None
    value: bool | int | None
    why: str


def _read(profile: Profile, name: str, env: Mapping[str, str]) -> Resolved:
    raw = env.get(name)
    variable = profile.variable(name)
    if variable is None:
        return Resolved(name, raw, None, f"not read by profile {profile.name}")
    if raw is None:
        return Resolved(name, None, variable.default, "not set; the default")
    try:
        text = os.fsencode(raw)
    except UnicodeEncodeError:  # only from a mapping; a real environment holds bytes
        text = raw.encode("utf-8", "surrogatepass")
    return Resolved(name, raw, *_parse(profile, variable, text))


def _parse(profile: Profile, variable: Variable, text: bytes) -> tuple[bool | int, str]:
    if variable.kind == "bool":  # [env.bool]
        word = text.lower()
        if word in (b"true", b"false"):
            return word == b"true", "set"
        return variable.default, "ignored: neither 'true' nor 'false'; the default"
    value, why = profile.parse_int(text, variable.maximum)
    if value is None:
        return variable.default, f"{why}; the default"
    if value == 0 and variable.zero_is_default:  # [env.async-buffer.zero]
        return variable.default, "0 stands for the default"
    if variable.name == STATS and profile.stats_level_max is not None and value > profile.stats_level_max:
        return profile.stats_level_max, f"clamped to {profile.stats_level_max}"  # [env.stats-level.clamp]
    return value, why


def resolve(profile: Profile, env: Mapping[str, str] | None = None) -> list[Resolved]:
    """All five variables as `profile` reads them, in the order of `VARIABLES`. Reads only; nothing is latched.

    Parameters
    ----------
    profile : Profile
    env
        Variables by name; None: ``os.environ`` as it is now.
    """
    return [_read(profile, name, os.environ if env is None else env) for name in VARIABLES]


class Environment:
    """The variables of one process: each is read at its own first use and never again. [env.latched]

    Parameters
    ----------
    profile : Profile
        Which variables there are and how they are parsed.
    source
        Variables by name, or None for ``os.environ``; looked at when a variable is first used.
    stdout, stderr
        Where messages of the library go; None: ``sys.stdout`` and ``sys.stderr`` at that moment.

    >>> from hipfile_sim.driver.profiles import get_profile
    >>> env = {"HIPFILE_ALLOW_COMPAT_MODE": "False"}
    >>> seen = Environment(get_profile("0.2"), env)
    >>> seen.allow_compat, env.update(HIPFILE_ALLOW_COMPAT_MODE="true"), seen.allow_compat
    (False, None, False)
    """

    __slots__ = ("_fallback", "_latched", "_lock", "_source", "_stderr", "_stdout", "profile")

    def __init__(
        self,
        profile: Profile,
        source: Mapping[str, str] | None = None,
        *,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        for name in VARIABLES:
            text: object = "" if source is None else source.get(name, "")
            if not isinstance(text, str):
                raise TypeError(f"env[{name!r}] is {text!r}; variables are text, so write {str(text)!r}")
        self.profile = profile
        self._source = source
        self._stdout = stdout
        self._stderr = stderr
        self._latched: dict[str, Resolved] = {}
        self._fallback: bool | None = None
        self._lock = threading.Lock()

    def _get(self, name: str) -> bool | int:
        found = self._latched.get(name)
        if found is None:
            source = os.environ if self._source is None else self._source
            found = self._latched.setdefault(name, _read(self.profile, name, source))
        return _WITHOUT[name] if found.value is None else found.value

    @property
    def allow_compat(self) -> bool:
        """HIPFILE_ALLOW_COMPAT_MODE: the fallback may be used. [env.allow]"""
        return bool(self._get(ALLOW))

    @property
    def force_compat(self) -> bool:
        """HIPFILE_FORCE_COMPAT_MODE: the fastpath may not be used. [env.force]"""
        return bool(self._get(FORCE))

    @property
    def unsupported_file_systems(self) -> bool:
        """HIPFILE_UNSUPPORTED_FILE_SYSTEMS: the fastpath takes files of any file system. [env.unsupported-fs]"""
        return bool(self._get(UNSUPPORTED))

    @property
    def stats_level(self) -> int:
        """HIPFILE_STATS_LEVEL: 0 none, 1 basic, 2 detailed. [env.stats-level.default]"""
        return int(self._get(STATS))

    @property
    def async_buffer_size(self) -> int:
        """HIPFILE_ASYNC_BUFFER_SIZE: bytes of a stream's bounce buffer (the default where it is not read)."""
        return int(self._get(BUFFER))

    @property
    def fallback_enabled(self) -> bool:
        """The fallback backend is on: allowed, or forced although it is not allowed. [env.force-without-allow]

        The first evaluation of that conflict prints one line where the release says so.
        """
        if self._fallback is None:
            with self._lock:
                if self._fallback is None:
                    self._fallback = self._decide_fallback()
        return self._fallback

    def _decide_fallback(self) -> bool:
        if self.allow_compat:
            return True
        if not self.force_compat or self.profile.force_without_allow != "rescue":
            return False
        where = self.profile.conflict_message
        if where is not None:  # [env.force-without-allow.message]
            out = (self._stdout or sys.stdout) if where == "stdout" else (self._stderr or sys.stderr)
            if out is not None:  # a process without standard streams
                try:
                    print(CONFLICT_TEXT[where], file=out, flush=True)
                except (OSError, ValueError):
                    pass  # a closed stream: C++ streams ignore that too
        return True

    @property
    def fastpath_enabled(self) -> bool:
        """The fastpath backend is not switched off. (It also needs both of its symbols in the HIP runtime.)"""
        return not self.force_compat

    def resolved(self) -> list[Resolved]:
        """All variables: latched values where a variable has been used, what it would be now where not."""
        now = resolve(self.profile, self._source)
        return [self._latched.get(row.name, row) for row in now]
