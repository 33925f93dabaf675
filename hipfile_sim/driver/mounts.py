"""File systems: what is mounted where, and how it answers direct I/O. The host's, or fixtures.

>>> table = MountTable.fixture({"/mnt/kv": "tmpfs", "/mnt/fast": "xfs,dio_offset_align=4096"}, default=None)
>>> table.lookup(FileInfo(1, 2, 0o100644), "/mnt/kv/a/b").o_direct
'EINVAL'
>>> table.lookup(FileInfo(1, 2, 0o100644), "/mnt/kv2") is None
True
"""

from __future__ import annotations

import errno
import posix
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, cast

from hipfile_sim.driver.fileops import FileInfo

__all__ = ["PRESETS", "Mount", "MountTable"]

ODirect = Literal["host", "ok", "EINVAL", "EACCES"]
_O_DIRECT: Final = ("host", "ok", "EINVAL", "EACCES")
_ALIGNMENTS: Final = ("dio_mem_align", "dio_offset_align", "dio_read_offset_align")


class Mount(NamedTuple):
    """A mounted file system.

    Attributes
    ----------
    type : str
        As in ``/proc/mounts``: ``ext4``, ``xfs``, ``tmpfs`` ...
    options : str
        Mount and superblock options, separated by commas.
    o_direct : {"host", "ok", "EINVAL", "EACCES"}
        How an open with O_DIRECT ends: as it really does on this machine; well, whatever is below; refused.
    dio_mem_align, dio_offset_align, dio_read_offset_align : int or None
        Alignments in bytes that stand in for those of statx; None leaves those.
    """

    type: str
    options: str = ""
    o_direct: ODirect = "host"
    dio_mem_align: int | None = None
    dio_offset_align: int | None = None
    dio_read_offset_align: int | None = None

    @property
    def ext4_data(self) -> str | None:
        """Journal mode of an ext4: ``ordered`` (also if no option says), ``journal``, ``writeback`` or ``other``.

        None for other file systems. [file.mount.ext4-data]
        """
        if self.type != "ext4":
            return None
        mode = "ordered"
        for option in self.options.split(","):
            name, found, value = option.partition("=")
            if found and name == "data":
                mode = value if value in ("ordered", "journal", "writeback") else "other"
        return mode

    @property
    def fastpath_supported(self) -> bool:
        """ext4 in ordered mode, or xfs. [file.mount.fastpath]"""
        return self.type == "xfs" or self.ext4_data == "ordered"

    @property
    def o_direct_errno(self) -> int:
        """The errno with which O_DIRECT is refused here, or 0."""
        return {"EINVAL": errno.EINVAL, "EACCES": errno.EACCES}.get(self.o_direct, 0)


PRESETS: Final[Mapping[str, Mount]] = MappingProxyType(
    {
        "ext4": Mount("ext4", "rw,relatime", "ok", 4, 512),
        "ext4-ordered": Mount("ext4", "rw,relatime,data=ordered", "ok", 4, 512),
        "ext4-journal": Mount("ext4", "rw,relatime,data=journal", "ok", 0, 0),
        "ext4-writeback": Mount("ext4", "rw,relatime,data=writeback", "ok", 4, 512),
        "ext4-other": Mount("ext4", "rw,relatime,data=none", "ok", 4, 512),
        "xfs": Mount("xfs", "rw,relatime,attr2", "ok", 4, 512),
        "xfs-reflink": Mount("xfs", "rw,relatime,attr2", "ok", 4, 4096, 512),
        "btrfs": Mount("btrfs", "rw,relatime,space_cache=v2", "ok"),
        "tmpfs": Mount("tmpfs", "rw", "EINVAL"),
        "nfs": Mount("nfs4", "rw,relatime,vers=4.2", "EINVAL"),
        "nfs-direct": Mount("nfs4", "rw,relatime,vers=4.2", "ok"),
        "overlay": Mount("overlay", "rw,relatime", "ok", 4, 512),
        "overlay-no-direct": Mount("overlay", "rw,relatime", "EINVAL"),
        "fuse-no-access": Mount("fuse", "rw,nosuid,nodev", "EACCES"),
    }
)
"""Named file systems. Values are typical ones; alignments None mean that the kernel does not report them there."""


def parse(text: str) -> Mount:
    """A mount from ``"name"`` or ``"name,field=value,..."``; fields are those of `Mount`, without ``options``.

    >>> parse("xfs,o_direct=EACCES").o_direct_errno == errno.EACCES
    True

    Raises
    ------
    ValueError
        Unknown name, field or value; the message lists what is possible.
    """
    name, *settings = (part.strip() for part in text.split(","))
    if name not in PRESETS:
        raise ValueError(f"no file system fixture {name!r}; known: {', '.join(PRESETS)}")
    mount = PRESETS[name]
    for setting in settings:
        key, _, value = setting.partition("=")
        if key == "o_direct" and value in _O_DIRECT:
            mount = mount._replace(o_direct=cast(ODirect, value))
        elif key == "data" and value:
            mount = mount._replace(options=f"{mount.options},data={value}")
        elif key in _ALIGNMENTS and value.isascii() and value.isdigit():
            changes: dict[str, Any] = {key: int(value)}
            mount = mount._replace(**changes)
        else:
            raise ValueError(
                f"file system fixture {text!r}: {setting!r} is not understood; possible: "
                f"o_direct={'|'.join(_O_DIRECT)}, data=MODE, {', '.join(f'{name}=BYTES' for name in _ALIGNMENTS)}"
            )
    return mount


def _mount(value: str | Mount) -> Mount:
    mount = parse(value) if isinstance(value, str) else value
    for name in _ALIGNMENTS:
        align = getattr(mount, name)
        if align is not None and (align < 0 or align & (align - 1)):
            raise ValueError(f"{name} of the {mount.type} fixture is {align}; it must be 0 or a power of two (bytes)")
    return mount


class MountTable:
    """Answers which `Mount` a file lives on. Make one with `host` or `fixture`.

    Attributes
    ----------
    needs_path : bool
        `lookup` wants the path of the file (there are fixtures by path prefix).
    """

    __slots__ = ("_by_device", "_by_prefix", "_elsewhere", "_source", "needs_path")

    def __init__(
        self,
        by_prefix: tuple[tuple[str, Mount], ...] = (),
        by_device: Mapping[int, Mount] = MappingProxyType({}),
        elsewhere: Mount | None = None,
        source: str | None = "/proc/self/mountinfo",
    ) -> None:
        self._by_prefix = by_prefix
        self._by_device = by_device
        self._elsewhere = elsewhere
        self._source = source
        self.needs_path = bool(by_prefix)

    @classmethod
    def host(cls, source: str = "/proc/self/mountinfo") -> MountTable:
        """The mounts of this process, read at each lookup (mounts change; registering a file is rare)."""
        return cls(source=source)

    @classmethod
    def fixture(cls, mounts: Mapping[str | int, str | Mount], *, default: str | Mount | None = "host") -> MountTable:
        """Fixed mounts.

        Parameters
        ----------
        mounts
            Absolute path prefix, or ``st_dev``, to a `Mount`, a name of `PRESETS` or a text for `parse`.
            The longest prefix wins, and a prefix wins over a device.
        default
            What files elsewhere live on; ``"host"``: what they really live on; None: no mount is found.
        """
        prefixes, devices = [], {}
        for key, value in mounts.items():
            if isinstance(key, int):
                devices[key] = _mount(value)
            elif key.startswith("/"):
                prefixes.append((key.rstrip("/"), _mount(value)))
            else:
                raise ValueError(f"mount fixture {key!r}: the path must be absolute")
        prefixes.sort(key=lambda item: -len(item[0]))
        if default == "host":
            return cls(tuple(prefixes), devices)
        return cls(tuple(prefixes), devices, None if default is None else _mount(default), None)

    def lookup(self, info: FileInfo, path: str | None = None) -> Mount | None:
        """The mount that a file lives on, by path prefix, fixture device, then device number.

        Returns
        -------
        Mount or None
            None: not found, so the file system is neither ext4 nor xfs. [file.mount.unknown]

        Raises
        ------
        OSError
            The host's table cannot be read. [file.mount.error]
        """
        if path is not None:
            for prefix, mount in self._by_prefix:
                if path == prefix or path.startswith(f"{prefix}/"):
                    return mount
        if info.dev in self._by_device:
            return self._by_device[info.dev]
        if self._source is None:
            return self._elsewhere
        found = None
        for dev, mount in _read_mountinfo(self._source):
            if dev == info.dev:
                found = mount  # the last one lies on top
        return found


def _read_mountinfo(source: str) -> Iterator[tuple[int, Mount]]:
    fd = posix.open(source, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        data = b"".join(iter(lambda: posix.read(fd, 1 << 16), b""))
    finally:
        posix.close(fd)
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
        before, found, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        major, _, minor = fields[2].partition(":") if len(fields) >= 6 else ("", "", "")
        if not found or len(tail) < 3 or not (major.isdecimal() and minor.isdecimal()):
            raise OSError(errno.EINVAL, f"unreadable line in {source}: {line!r}")
        yield posix.makedev(int(major), int(minor)), Mount(tail[0], f"{fields[5]},{tail[2]}")
