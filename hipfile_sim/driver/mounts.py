"""File systems: what is mounted where, and how it answers direct I/O. The host's, or fixtures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from hipfile_sim.driver.fileops import FileInfo

__all__ = ["PRESETS", "Mount", "MountTable"]


class Mount(NamedTuple):
    """A mounted file system.

    `o_direct` says how opening with O_DIRECT ends ("host": as the host's file system really does).
    Alignments in bytes override what statx says; None leaves it.
    """

    type: str
    options: str = ""
    o_direct: Literal["host", "ok", "EINVAL", "EACCES"] = "host"
    dio_mem_align: int | None = None
    dio_offset_align: int | None = None
    dio_read_offset_align: int | None = None


PRESETS: Mapping[str, Mount] = {}


class MountTable:
    """Answers which `Mount` a file lives on."""

    needs_path: bool
    """`lookup` wants the path (fixtures by path prefix)."""

    @classmethod
    def host(cls) -> MountTable:
        """The mounts of this process, read from mountinfo at each lookup."""
        raise NotImplementedError

    @classmethod
    def fixture(cls, mounts: Mapping[str | int, str | Mount], *, default: str | Mount | None = "host") -> MountTable:
        """Fixed mounts by path prefix or ``st_dev``; elsewhere `default` (None: no mount is found)."""
        raise NotImplementedError

    def lookup(self, info: FileInfo, path: str | None = None) -> Mount | None:
        """The mount, or None if none is found. Raises OSError if the table cannot be read."""
        raise NotImplementedError
