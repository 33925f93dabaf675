"""The seam to the operating system: real files, wild descriptors, special files."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipfile_sim.driver import fileops
from hipfile_sim.driver.fileops import FileInfo, FileOps, RealFiles

FILES = RealFiles()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "data"
    file.write_bytes(bytes(range(256)) * 16)
    return file


@pytest.fixture
def fd(path: Path) -> Iterator[int]:
    number = os.open(path, os.O_RDWR)
    yield number
    os.close(number)


def refused(code: int, call: object, *args: object) -> None:
    with pytest.raises(OSError) as caught:
        call(*args)  # type: ignore[operator]
    assert caught.value.errno == code
    assert type(caught.value.strerror) is str


def test_it_is_a_file_ops():
    assert isinstance(FILES, FileOps)


def test_transfers_go_straight_into_memory_and_move_no_offset(fd: int):
    os.lseek(fd, 100, os.SEEK_SET)
    room = bytearray(b"\xdb" * 16)
    assert FILES.pread_into(fd, memoryview(room)[4:12], 250) == 8
    assert room == b"\xdb" * 4 + bytes([250, 251, 252, 253, 254, 255, 0, 1]) + b"\xdb" * 4
    assert FILES.pwrite_from(fd, memoryview(b"xyz"), 250) == 3
    assert os.pread(fd, 4, 249) == b"\xf9xyz"
    assert os.lseek(fd, 0, os.SEEK_CUR) == 100


def test_the_end_of_a_file(fd: int):
    room = memoryview(bytearray(32))
    assert FILES.pread_into(fd, room, 4096 - 10) == 10
    assert FILES.pread_into(fd, room, 4096) == 0
    assert FILES.pread_into(fd, room, 2**40) == 0
    assert FILES.pread_into(fd, room[:0], 0) == 0
    assert FILES.pwrite_from(fd, room[:0], 0) == 0
    FILES.pwrite_from(fd, memoryview(b"z"), 8191)
    assert os.pread(fd, 8192, 4096) == bytes(4095) + b"z"
    FILES.fdatasync(fd)


@pytest.mark.parametrize("number", [-1, 2**31 - 1, 2**31, 2**63, 2**200, -(2**70), 999_999])
def test_numbers_that_are_no_descriptor(number: int):
    room = memoryview(bytearray(1))
    for call in (
        lambda: FILES.pread_into(number, room, 0),
        lambda: FILES.pwrite_from(number, room, 0),
        lambda: FILES.fdatasync(number),
        lambda: FILES.getfl(number),
        lambda: FILES.inspect(number),
        lambda: FILES.identity(number),
        lambda: FILES.reopen(number, os.O_RDONLY),
        lambda: FILES.close(number),
    ):
        refused(errno.EBADF, call)
    assert FILES.path(number) is None


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63, 2**200])
def test_offsets_out_of_range(fd: int, offset: int):
    room = memoryview(bytearray(1))
    refused(errno.EINVAL, FILES.pread_into, fd, room, offset)
    refused(errno.EINVAL, FILES.pwrite_from, fd, room, offset)


def test_open(tmp_path: Path):
    number = FILES.open(str(tmp_path / "new"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    assert stat.S_IMODE(os.fstat(number).st_mode) == 0o600
    FILES.close(number)
    refused(errno.ENOENT, FILES.open, str(tmp_path / "absent"), os.O_RDONLY)
    refused(errno.EINVAL, FILES.open, "a\0b", os.O_RDONLY)


def test_inspect(fd: int, path: Path):
    info, status = FILES.inspect(fd), path.stat()
    assert (info.dev, info.ino, info.mode, info.rdev) == (status.st_dev, status.st_ino, status.st_mode, 0)
    assert info.is_regular
    assert not info.is_block_device
    assert FILES.identity(fd) == (status.st_dev, status.st_ino)
    for align in info[4:]:
        assert align is None or (align >= 0 and align & (align - 1) == 0)
    assert (info.dio_mem_align is None) == (info.dio_offset_align is None)


def test_inspect_device_files():
    number = os.open("/dev/null", os.O_RDWR)
    try:
        info = FILES.inspect(number)
        assert info.rdev == os.makedev(1, 3)
        assert not info.is_regular
    finally:
        os.close(number)
    assert FileInfo(1, 2, stat.S_IFBLK | 0o600).is_block_device


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_without_statx_alignments_are_unknown(fd: int, code: int, monkeypatch: pytest.MonkeyPatch):
    with_statx = FILES.inspect(fd)

    def fails(*_: object) -> int:
        fileops.ctypes.set_errno(code)
        return -1

    for stand_in in (fails, None):
        monkeypatch.setattr(fileops, "_statx", stand_in)
        info = FILES.inspect(fd)
        assert info == (*with_statx[:4], None, None, None)


def test_a_statx_failure_is_reported(fd: int, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> int:
        fileops.ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(fileops, "_statx", fails)
    refused(errno.EIO, FILES.inspect, fd)


@pytest.mark.parametrize(
    ("mask", "expected"), [(0x2000, (512, 4096, None)), (0x22000, (512, 4096, 512)), (0, (None,) * 3)]
)
def test_alignments_count_if_the_kernel_says_so(fd: int, mask: int, expected: object, monkeypatch: pytest.MonkeyPatch):
    def answers(*args: object) -> int:
        room = args[4]._obj  # type: ignore[attr-defined]
        room.stx_mask, room.stx_mode = 0x7FF | mask, stat.S_IFREG
        room.stx_dio_mem_align, room.stx_dio_offset_align, room.stx_dio_read_offset_align = 512, 4096, 512
        return 0

    monkeypatch.setattr(fileops, "_statx", answers)
    assert FILES.inspect(fd)[4:] == expected


def test_the_structure_of_statx_has_the_size_of_the_kernel():
    room = fileops._Statx
    assert fileops.ctypes.sizeof(room) == 256
    assert (room.stx_ino.offset, room.stx_dev_major.offset, room.stx_dio_mem_align.offset) == (0x20, 0x88, 0x98)
    assert room.stx_dio_read_offset_align.offset == 0xB4


def test_reopen_is_independent_and_keeps_the_file(fd: int, path: Path):
    path.unlink()
    os.lseek(fd, 7, os.SEEK_SET)
    second = FILES.reopen(fd, FILES.getfl(fd) | os.O_CLOEXEC)
    try:
        assert FILES.identity(second) == FILES.identity(fd)
        assert os.lseek(second, 0, os.SEEK_CUR) == 0
        assert fcntl.fcntl(second, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        os.close(os.dup(fd))
        assert os.pread(second, 2, 0) == b"\x00\x01"
    finally:
        FILES.close(second)
    refused(errno.EBADF, FILES.close, second)


def test_reopen_drops_what_would_harm_the_file(fd: int):
    second = FILES.reopen(fd, os.O_RDWR | os.O_TRUNC | os.O_CREAT | os.O_EXCL)
    assert os.fstat(fd).st_size == 4096
    FILES.close(second)


def test_paths(fd: int, path: Path):
    assert FILES.path(fd) == str(path)
    path.unlink()
    assert FILES.path(fd) == str(path)
    reader, writer = os.pipe()
    try:
        assert FILES.path(reader) is None
    finally:
        os.close(reader)
        os.close(writer)


def test_a_directory(tmp_path: Path):
    number = os.open(tmp_path, os.O_RDONLY)
    try:
        refused(errno.EISDIR, FILES.pread_into, number, memoryview(bytearray(1)), 0)
        refused(errno.EBADF, FILES.pwrite_from, number, memoryview(b"x"), 0)
        assert stat.S_ISDIR(FILES.inspect(number).mode)
    finally:
        os.close(number)


def test_a_pipe():
    reader, writer = os.pipe()
    refused(errno.ESPIPE, FILES.pread_into, reader, memoryview(bytearray(1)), 0)
    refused(errno.ESPIPE, FILES.pwrite_from, writer, memoryview(b"x"), 0)
    os.close(writer)
    os.close(FILES.reopen(reader, os.O_RDONLY))
    os.close(reader)


@pytest.mark.timeout(60)
def test_the_free_end_of_a_fifo_does_not_block(tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    both = os.open(fifo, os.O_RDWR)
    reader, writer = os.open(fifo, os.O_RDONLY), os.open(fifo, os.O_WRONLY)
    os.close(both)
    os.close(writer)
    second = FILES.reopen(reader, os.O_RDONLY)  # a plain open would wait for a writer
    assert not FILES.getfl(second) & os.O_NONBLOCK
    writer = os.open(fifo, os.O_WRONLY)
    os.close(second)
    os.close(reader)
    refused(errno.ENXIO, FILES.reopen, writer, os.O_WRONLY)
    os.close(writer)


def test_a_socket():
    with socket.socket() as sock:
        refused(errno.ESPIPE, FILES.pread_into, sock.fileno(), memoryview(bytearray(1)), 0)
        refused(errno.ENXIO, FILES.reopen, sock.fileno(), os.O_RDWR)


def test_dev_full():
    number = os.open("/dev/full", os.O_RDWR)
    try:
        refused(errno.ENOSPC, FILES.pwrite_from, number, memoryview(b"x"), 0)
        room = bytearray(b"x")
        assert FILES.pread_into(number, memoryview(room), 0) == 1
        assert room == b"\0"
    finally:
        os.close(number)


def test_access_modes(path: Path):
    reader, writer = os.open(path, os.O_RDONLY), os.open(path, os.O_WRONLY)
    try:
        refused(errno.EBADF, FILES.pwrite_from, reader, memoryview(b"x"), 0)
        refused(errno.EBADF, FILES.pread_into, writer, memoryview(bytearray(1)), 0)
        assert FILES.getfl(reader) & os.O_ACCMODE == os.O_RDONLY
        assert FILES.getfl(writer) & os.O_ACCMODE == os.O_WRONLY
    finally:
        os.close(reader)
        os.close(writer)


def test_out_of_descriptors(fd: int):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (fd, hard))
    try:
        refused(errno.EMFILE, FILES.reopen, fd, os.O_RDONLY)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
