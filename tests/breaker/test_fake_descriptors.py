"""pyfakefs comes and goes while files are registered: no handle ever leads to a file of the other kind."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from hipfile_mock import fake
from hipfile_mock.files import DescriptorClash, PyfakefsFiles
from hipfile_sim.driver.codes import FileDescr

pyfakefs = pytest.importorskip("pyfakefs.fake_filesystem_unittest")
# pyfakefs' own, about its files that are left open
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def _real_file_with_number(path: Path, number: int) -> int:
    """A real descriptor of `path` with that number, which must be free."""
    fd = os.open(path, os.O_RDWR)
    if fd != number:
        os.dup2(fd, number)
        os.close(fd)
    return number


def _free_number(fds: list[int]) -> int:
    """A number that is free in this process, and that pyfakefs has given out as the last of `fds`."""
    for fd in reversed(fds):
        try:
            os.fstat(fd)
        except OSError:
            return fd
    raise AssertionError("pyfakefs did not go beyond the real descriptors")


def test_real_file_does_not_get_the_bytes_of_a_fake_handle(tmp_path: Path) -> None:
    """The fake handle is still registered when a real file of the same number comes: refused, and nothing moves."""
    real = tmp_path / "real"
    real.write_bytes(b"R" * 4096)
    with fake(strict=False) as session:
        driver, hip = session.hipfile, session.hip
        driver.hipFileDriverOpen()
        pointer = hip.hipMalloc(4096)[1]
        hip.hipMemset(pointer, 0x5A, 4096)
        many = len(os.listdir("/proc/self/fd")) + 8  # more than there are real ones, so some number is free
        with pyfakefs.Patcher() as patcher:
            patcher.fs.create_file("/x", contents="F" * 4096)
            import os as fake_os  # pyfakefs has replaced it

            fds = [fake_os.open("/x", fake_os.O_RDWR) for _ in range(many)]
            handles = {fd: driver.hipFileHandleRegister(FileDescr(1, fd))[1] for fd in fds}
            inside = patcher.fs
        number = _free_number(fds)
        fd = _real_file_with_number(real, number)
        try:
            with pytest.raises(DescriptorClash, match=f"descriptor {number} "):
                driver.hipFileHandleRegister(FileDescr(1, fd))
            assert driver.hipFileWrite(handles[number], pointer, 100, 0, 0).count == 100
            assert real.read_bytes() == b"R" * 4096
            assert inside.get_object("/x").byte_contents[:101] == b"\x5a" * 100 + b"F"
            driver.hipFileHandleDeregister(handles[number])
            status, handle = driver.hipFileHandleRegister(FileDescr(1, fd))
            assert status.err == 0
            assert driver.hipFileWrite(handle, pointer, 10, 0, 0).count == 10
            assert real.read_bytes()[:11] == b"\x5a" * 10 + b"R"
        finally:
            os.close(fd)
            for left in fds:
                PyfakefsFiles(inside).close(left)


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63 - 50, 2**62, 2**45])
def test_write_far_behind_the_end_of_a_fake_file(offset: int) -> None:
    """A code, as a file system that has a largest size gives it, and not the memory of the machine."""
    with pyfakefs.Patcher() as patcher, fake(strict=False) as session:
        patcher.fs.create_file("/x", contents="F" * 4096)
        fake_os: Any = __import__("os")
        driver, hip = session.hipfile, session.hip
        driver.hipFileDriverOpen()
        pointer = hip.hipMalloc(4096)[1]
        fd = fake_os.open("/x", fake_os.O_RDWR)
        handle = driver.hipFileHandleRegister(FileDescr(1, fd))[1]
        assert driver.hipFileWrite(handle, pointer, 100, offset, 0) == (-1, errno.EFBIG)
        slots = (ctypes.c_int64 * 4)(100, offset, 0, -7)
        first = ctypes.addressof(slots)
        assert driver.hipFileWriteAsync(handle, pointer, first, first + 8, first + 16, first + 24, 0).err == 0
        assert hip.hipDeviceSynchronize() == 0
        assert slots[3] == -1
        assert driver.hipFileRead(handle, pointer, 100, offset, 0).count == 0
        driver.hipFileHandleDeregister(handle)
        fake_os.close(fd)


@pytest.mark.parametrize("schedule", ["lazy", "eager"])
def test_real_handle_goes_on_while_pyfakefs_is_in_place(tmp_path: Path, schedule: str) -> None:
    real = tmp_path / "real"
    real.write_bytes(b"R" * 4096)
    with fake(strict=False, schedule=schedule) as session:
        driver, hip = session.hipfile, session.hip
        driver.hipFileDriverOpen()
        pointer = hip.hipMalloc(4096)[1]
        fd = os.open(real, os.O_RDWR)
        handle = driver.hipFileHandleRegister(FileDescr(1, fd))[1]
        with pyfakefs.Patcher() as patcher:
            patcher.fs.create_file("/x", contents="F" * 4096)
            fake_os: Any = __import__("os")
            fds = [fake_os.open("/x", fake_os.O_RDWR) for _ in range(fd + 1)]
            assert fd in fds
            with pytest.raises(DescriptorClash):
                driver.hipFileHandleRegister(FileDescr(1, fd))
            assert driver.hipFileRead(handle, pointer, 4096, 0, 0).count == 4096
            assert bytes(session.memory.view(pointer, 4)) == b"RRRR"
            for left in fds:
                fake_os.close(left)
        driver.hipFileHandleDeregister(handle)
        os.close(fd)
