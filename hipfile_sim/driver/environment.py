"""The environment variables of the library: parse rules by profile, read once, and why each value is what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TextIO

from hipfile_sim.driver.profiles.base import Profile

__all__ = ["VARIABLES", "Environment", "Resolved", "resolve"]

VARIABLES: tuple[str, ...] = (
    "HIPFILE_ALLOW_COMPAT_MODE",
    "HIPFILE_FORCE_COMPAT_MODE",
    "HIPFILE_UNSUPPORTED_FILE_SYSTEMS",
    "HIPFILE_STATS_LEVEL",
    "HIPFILE_ASYNC_BUFFER_SIZE",
)


class Resolved(NamedTuple):
    """One variable: its text in the environment (None: not set), the value in force (None: not read), and why."""

    name: str
    raw: str | None
    value: bool | int | None
    why: str


def resolve(profile: Profile, env: Mapping[str, str] | None = None) -> list[Resolved]:
    """All five variables as `profile` reads them from `env` (None: ``os.environ`` now)."""
    raise NotImplementedError


class Environment:
    """The variables of one process: each is read at its first use and never again. [env.latched]

    Parameters
    ----------
    source
        The environment, or None for ``os.environ`` at first use.
    stdout, stderr
        Where messages go (None: ``sys.stdout``, ``sys.stderr`` at that moment).
    """

    def __init__(
        self,
        profile: Profile,
        source: Mapping[str, str] | None = None,
        *,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None: ...
    @property
    def allow_compat(self) -> bool: ...
    @property
    def force_compat(self) -> bool: ...
    @property
    def unsupported_file_systems(self) -> bool: ...
    @property
    def stats_level(self) -> int: ...
    @property
    def async_buffer_size(self) -> int:
        """Bytes of the per-stream bounce buffer (the default where the release has no such variable)."""
    @property
    def fallback_enabled(self) -> bool:
        """ALLOW, or forced on by FORCE where the release rescues it (prints the conflict message once)."""
    @property
    def fastpath_enabled(self) -> bool:
        """Not FORCE. (The fastpath also needs both AIS symbols.)"""
    def resolved(self) -> list[Resolved]: ...
