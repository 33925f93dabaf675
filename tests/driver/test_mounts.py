"""File systems, of the host and as fixtures. [file.mount.*], case C37"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from hipfile_sim.driver.fileops import FileInfo, RealFiles
from hipfile_sim.driver.mounts import PRESETS, Mount, MountTable, parse

REGULAR = FileInfo(os.makedev(259, 7), 42, stat.S_IFREG | 0o644)
MOUNTINFO = """\
22 1 0:21 / /proc rw,nosuid - proc proc rw
30 1 259:7 / / rw,relatime shared:1 - ext4 /dev/root rw,errors=remount-ro,data=journal
31 30 259:8 /sub /mnt/with\\040space rw,noatime master:1 propagate_from:2 - xfs /dev/nvme0n1 rw,attr2
32 30 0:99 / /tmp rw - tmpfs tmpfs rw,size=1024k
"""


def host(tmp_path: Path, text: str = MOUNTINFO) -> MountTable:
    source = tmp_path / "mountinfo"
    source.write_text(text)
    return MountTable.host(str(source))


def test_the_host_by_device_number(tmp_path: Path):
    table = host(tmp_path)
    assert not table.needs_path
    assert table.lookup(REGULAR) == Mount("ext4", "rw,relatime,rw,errors=remount-ro,data=journal")
    assert table.lookup(REGULAR._replace(dev=os.makedev(259, 8))).type == "xfs"
    assert table.lookup(REGULAR._replace(dev=os.makedev(0, 99))).type == "tmpfs"
    assert table.lookup(REGULAR._replace(dev=os.makedev(259, 9))) is None


def test_the_topmost_mount_of_a_device_counts(tmp_path: Path):
    table = host(tmp_path, MOUNTINFO + "40 30 259:7 / /again rw - ext4 /dev/root rw\n")
    assert table.lookup(REGULAR).ext4_data == "ordered"


def test_the_table_is_read_at_each_lookup(tmp_path: Path):
    table = host(tmp_path)
    assert table.lookup(REGULAR) is not None
    host(tmp_path, "")
    assert table.lookup(REGULAR) is None


@pytest.mark.parametrize(
    "text", ["nonsense\n", "22 1 x:y / / rw - proc proc rw\n", "22 1 0:21 / /proc rw proc proc rw\n"]
)
def test_a_table_that_cannot_be_read(tmp_path: Path, text: str):
    with pytest.raises(OSError, match="unreadable line"):
        host(tmp_path, text).lookup(REGULAR)
    with pytest.raises(FileNotFoundError):
        MountTable.host(str(tmp_path / "absent")).lookup(REGULAR)


def test_this_machine():
    fd = os.open("/proc/self/status", os.O_RDONLY)
    try:
        mount = MountTable.host().lookup(RealFiles().inspect(fd))
        assert mount is not None
        assert mount.type == "proc"
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ("", "ordered"),
        ("rw,relatime", "ordered"),
        ("rw,data=ordered", "ordered"),
        ("rw,data=journal", "journal"),
        ("data=writeback,rw", "writeback"),
        ("rw,data=none", "other"),
        ("rw,data=", "other"),
        ("rw,metadata=journal,data_err=abort", "ordered"),
    ],
)
def test_the_journal_mode_of_ext4(options: str, mode: str):
    assert Mount("ext4", options).ext4_data == mode
    assert Mount("ext4", options).fastpath_supported is (mode == "ordered")
    assert Mount("xfs", options).ext4_data is None


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str):
    mount = parse(name)
    assert mount.fastpath_supported is (name in ("ext4", "ext4-ordered", "xfs", "xfs-reflink"))
    table = MountTable.fixture({"/mnt/x": name}, default=None)
    assert table.lookup(REGULAR, "/mnt/x/file") is mount


def test_the_file_systems_of_the_case_are_there():
    kinds = {"tmpfs": "EINVAL", "nfs": "EINVAL", "overlay": "ok", "btrfs": "ok", "ext4-journal": "ok", "xfs": "ok"}
    assert {name: PRESETS[name].o_direct for name in kinds} == kinds
    assert PRESETS["ext4-journal"].ext4_data == "journal"
    assert PRESETS["fuse-no-access"].o_direct_errno == errno.EACCES
    assert PRESETS["xfs-reflink"].dio_offset_align != PRESETS["xfs-reflink"].dio_read_offset_align


def test_fixtures_by_prefix_and_device():
    table = MountTable.fixture(
        {"/mnt": "xfs", "/mnt/a/": "tmpfs", 7: Mount("zfs")}, default="ext4,data=writeback,o_direct=EINVAL"
    )
    assert table.needs_path
    assert table.lookup(REGULAR, "/mnt/a/b/c").type == "tmpfs"
    assert table.lookup(REGULAR, "/mnt/a").type == "tmpfs"
    assert table.lookup(REGULAR, "/mnt/ab").type == "xfs"
    assert table.lookup(REGULAR._replace(dev=7), "/mnt/ab").type == "xfs"
    assert table.lookup(REGULAR._replace(dev=7), "/elsewhere").type == "zfs"
    assert table.lookup(REGULAR._replace(dev=7), None).type == "zfs"
    elsewhere = table.lookup(REGULAR, "/elsewhere")
    assert elsewhere.ext4_data == "writeback"
    assert elsewhere.o_direct_errno == errno.EINVAL
    assert MountTable.fixture({"/": "nfs"}, default=None).lookup(REGULAR, "/any/where").type == "nfs4"


def test_elsewhere_is_the_host_unless_said_otherwise():
    info = RealFiles().inspect(fd := os.open("/proc/self/status", os.O_RDONLY))
    os.close(fd)
    assert MountTable.fixture({"/mnt": "xfs"}).lookup(info, "/proc/self/status").type == "proc"
    assert MountTable.fixture({"/mnt": "xfs"}, default=None).lookup(info, "/proc/self/status") is None


@pytest.mark.parametrize(
    ("mounts", "message"),
    [
        ({"/a": "ext5"}, "no file system fixture 'ext5'; known: ext4, "),
        ({"/a": "xfs,o_direct=EIO"}, "'o_direct=EIO' is not understood; possible: o_direct=host|ok|EINVAL|EACCES"),
        ({"/a": "xfs,dio_mem_align=-4"}, "'dio_mem_align=-4' is not understood"),
        ({"/a": "xfs,dio_offset_align=3"}, "dio_offset_align of the xfs fixture is 3; it must be 0 or a power of two"),
        ({"/a": Mount("xfs", dio_mem_align=-1)}, "it must be 0 or a power of two"),
        ({"a": "xfs"}, "mount fixture 'a': the path must be absolute"),
    ],
)
def test_bad_fixtures(mounts: dict[str | int, str | Mount], message: str):
    with pytest.raises(ValueError) as caught:
        MountTable.fixture(mounts)
    assert message in str(caught.value)
