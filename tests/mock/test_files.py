"""Files of the doubles: pyfakefs' descriptors are its own, whatever real file has the same number; mount fixtures."""

from __future__ import annotations

import errno
import fcntl
import os
import posix
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import hipfile_mock
from hipfile_mock.files import AutoFiles, FakeDescriptor, PyfakefsFiles, active_pyfakefs
from hipfile_sim.driver.fileops import FileOps

fake_filesystem_unittest = pytest.importorskip("pyfakefs.fake_filesystem_unittest")

SIZE = 8192
DATA = bytes(range(256)) * (SIZE // 256)


@pytest.fixture
def fs() -> Iterator[Any]:
    with fake_filesystem_unittest.Patcher() as patcher:
        yield patcher.fs


@pytest.fixture
def session() -> Iterator[hipfile_mock.Session]:
    with hipfile_mock.fake(schedule="lazy", strict=None) as made:
        yield made


class Rig:
    """A buffer and a stream."""

    def __init__(self, session: hipfile_mock.Session) -> None:
        import hipfile
        from hipfile.hipMalloc import hipMalloc

        self.session = session
        self.pointer = hipMalloc(SIZE).value
        self.buffer = hipfile.Buffer(self.pointer, SIZE, 0)
        _, self.stream = session.hip.hipStreamCreate()

    def bytes(self, count: int = SIZE) -> bytes:
        return bytes(self.session.memory.view(self.pointer, count))

    def put(self, data: bytes) -> None:
        self.session.memory.view(self.pointer, len(data))[:] = data


def test_detected_only_while_in_place() -> None:
    assert active_pyfakefs() is None
    with fake_filesystem_unittest.Patcher() as patcher:
        assert active_pyfakefs() is patcher.fs
        patcher.pause()
        assert active_pyfakefs() is None
        patcher.resume()
        assert active_pyfakefs() is patcher.fs
    assert active_pyfakefs() is None


@pytest.mark.parametrize("order", ["fs first", "fake first"])
def test_round_trip_sync_and_async(order: str) -> None:
    first, second = fake_filesystem_unittest.Patcher(), hipfile_mock.fake(schedule="lazy", strict=None)
    outer, inner = (first, second) if order == "fs first" else (second, first)
    with outer as one, inner as two:
        session = two if order == "fs first" else one
        import hipfile

        with open("/slab", "wb") as made:
            made.write(DATA)
        rig = Rig(session)
        with hipfile.FileHandle("/slab", os.O_RDWR | os.O_DIRECT) as file:
            assert file.read(rig.buffer, SIZE, 0, 0) == SIZE
            assert rig.bytes() == DATA
            assert file.read(rig.buffer, SIZE, SIZE - 10, 0) == 10
            assert file.write(rig.buffer, 16, SIZE + 100, 0) == 16
            read = file.read_async(rig.buffer, 100, 5, 0, rig.stream)
            write = file.write_async(rig.buffer, 50, 0, 0, rig.stream)
            session.hip.hipStreamSynchronize(rig.stream)
            assert (read.bytes_done, write.bytes_done) == (100, 50)
        with open("/slab", "rb") as made:
            content = made.read()
        assert content[:50] == DATA[5:55]
        assert content[SIZE : SIZE + 100] == bytes(100), "a gap is zeros"
        assert len(content) == SIZE + 116


class Precious(NamedTuple):
    """A real file that is open as descriptor `number`."""

    path: Path
    number: int


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Precious]:
    real = tmp_path / "real"
    real.write_bytes(b"precious" * 1024)
    fd = os.open(real, os.O_RDWR)
    number = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200)  # beyond those that pyfakefs has for itself
    posix.close(fd)
    yield Precious(real, number)
    posix.close(number)


def same_number(number: int) -> Any:
    """A registered file of the fake file system that has this number, too."""
    import hipfile

    fill = [os.open("/fill", os.O_RDWR | os.O_CREAT) for _ in range(number)]
    with open("/slab", "wb") as made:
        made.write(DATA)
    os.close(number)
    file = hipfile.FileHandle("/slab", os.O_RDWR)
    file.open()
    assert file._fd == number in fill, "the numbers clash, which is the point"
    return file


def test_a_real_file_with_the_same_number_is_not_touched(precious: Precious, session: hipfile_mock.Session) -> None:
    rig = Rig(session)
    rig.put(b"\xee" * SIZE)
    with fake_filesystem_unittest.Patcher():
        file = same_number(precious.number)
        assert file.write(rig.buffer, SIZE, 0, 0) == SIZE
        assert file.read(rig.buffer, 8, 0, 0) == 8
        assert rig.bytes(8) == b"\xee" * 8
        file.close()
    assert precious.path.read_bytes() == b"precious" * 1024
    posix.fstat(precious.number)


def test_work_in_flight_when_the_fake_file_system_goes_stays_there(
    precious: Precious, session: hipfile_mock.Session
) -> None:
    rig = Rig(session)
    rig.put(b"\xee" * 64)
    with fake_filesystem_unittest.Patcher():
        file = same_number(precious.number)
        io = file.write_async(rig.buffer, 64, 0, 0, rig.stream)
    session.hip.hipStreamSynchronize(rig.stream)
    assert io.bytes_done == 64
    file.close()
    assert precious.path.read_bytes() == b"precious" * 1024
    posix.fstat(precious.number)  # closing the fake descriptor closed no real one


def test_a_real_file_opened_before_keeps_working(tmp_path: Path, session: hipfile_mock.Session) -> None:
    import hipfile

    real = tmp_path / "real"
    real.write_bytes(DATA)
    rig = Rig(session)
    with hipfile.FileHandle(real, os.O_RDONLY) as file:
        with fake_filesystem_unittest.Patcher():
            assert file.read(rig.buffer, SIZE, 0, 0) == SIZE
        assert rig.bytes() == DATA


def test_a_number_that_is_not_open_in_the_fake_is_refused(tmp_path: Path, session: hipfile_mock.Session) -> None:
    from hipfile._hipfile import hipFileHandleRegister

    real = os.open(tmp_path / "real", os.O_RDWR | os.O_CREAT)
    try:
        with fake_filesystem_unittest.Patcher():
            assert hipFileHandleRegister(real, 1) == (0, (5030, 0))
        handle, status = hipFileHandleRegister(real, 1)
        assert status == (0, 0)
        session.hipfile.hipFileHandleDeregister(handle)
    finally:
        os.close(real)


def test_errors_of_the_fake(session: hipfile_mock.Session, fs: Any) -> None:
    import hipfile

    rig = Rig(session)
    fs.create_file("/slab", contents=DATA)
    with hipfile.FileHandle("/slab", os.O_RDONLY) as file, pytest.raises(OSError) as caught:
        file.write(rig.buffer, 16, 0, 0)
    assert caught.value.errno == errno.EBADF
    with hipfile.FileHandle("/slab", os.O_WRONLY) as file, pytest.raises(OSError) as caught:
        file.read(rig.buffer, 16, 0, 0)
    assert caught.value.errno == errno.EBADF
    fs.set_disk_usage(SIZE + 100, "/")
    with hipfile.FileHandle("/slab", os.O_RDWR) as file:
        with pytest.raises(OSError) as caught:
            file.write(rig.buffer, SIZE, SIZE, 0)
        assert caught.value.errno == errno.ENOSPC
        io = file.write_async(rig.buffer, SIZE, SIZE, 0, rig.stream)
        session.hip.hipStreamSynchronize(rig.stream)
        assert io.bytes_done == -1


def test_operations_one_by_one(fs: Any) -> None:
    files: FileOps = PyfakefsFiles(fs)
    fs.create_file("/a", contents=b"0123456789")
    fd = files.open("/a", os.O_RDWR | os.O_APPEND)
    assert isinstance(fd, FakeDescriptor)
    assert files.getfl(fd) == os.O_RDWR | os.O_APPEND
    assert files.getfl(files.open("/a", os.O_RDONLY)) == os.O_RDONLY
    assert files.getfl(files.open("/a", os.O_WRONLY)) == os.O_WRONLY
    assert files.path(fd) == "/a"
    assert files.inspect(fd).is_regular
    assert files.identity(fd) == (os.stat("/a").st_dev, os.stat("/a").st_ino)
    opened = fs.get_open_file(int(fd))
    opened.seek(4)
    room = bytearray(6)
    assert files.pread_into(fd, memoryview(room), 6) == 4
    assert bytes(room) == b"6789\0\0"
    assert files.pread_into(fd, memoryview(room), 99) == 0
    assert opened.tell() == 4, "the caller's position stays"
    second = files.reopen(fd, os.O_RDWR | os.O_TRUNC)
    assert files.pread_into(second, memoryview(room), 0) == 6, "a second descriptor truncates nothing"
    files.fdatasync(fd)
    for bad in (
        lambda: files.pread_into(fd, memoryview(room), -1),
        lambda: files.pwrite_from(second, memoryview(b"x"), -1),
    ):
        with pytest.raises(OSError) as caught:
            bad()
        assert caught.value.errno == errno.EINVAL
    files.close(second)
    for missing in (int(second), -1, 1 << 40):
        with pytest.raises(OSError) as caught:
            files.pread_into(missing, memoryview(room), 0)
        assert caught.value.errno == errno.EBADF
    fs.create_dir("/d")
    folder = files.open("/d", os.O_RDONLY | os.O_DIRECTORY)
    with pytest.raises(OSError) as caught:
        files.pread_into(folder, memoryview(room), 0)
    assert caught.value.errno == errno.EISDIR


def test_both_are_complete_file_operations(fs: Any) -> None:
    assert isinstance(PyfakefsFiles(fs), FileOps)
    assert isinstance(AutoFiles(), FileOps)


@pytest.mark.parametrize(
    ("mount", "direct"), [("ext4", True), ("xfs", True), ("tmpfs", False), ("nfs", False), ("overlay-no-direct", False)]
)
def test_mount_fixtures_by_name(
    tmp_path: Path, mount: str, direct: bool, descriptors_in: Callable[[Path], int]
) -> None:
    path = tmp_path / "slab"
    path.write_bytes(DATA)
    with hipfile_mock.fake(filesystem=mount) as session:
        import hipfile

        with hipfile.FileHandle(path, os.O_RDONLY) as file:
            assert descriptors_in(path) == (2 if direct else 1)
            rig = Rig(session)
            assert file.read(rig.buffer, SIZE, 0, 0) == SIZE


def test_mount_fixtures_by_path_and_refusal(tmp_path: Path) -> None:
    path = tmp_path / "denied" / "slab"
    path.parent.mkdir()
    path.write_bytes(DATA)
    with hipfile_mock.fake(filesystem={str(path.parent): "fuse-no-access"}):
        import hipfile

        with pytest.raises(hipfile.HipFileException, match="5030"):
            hipfile.FileHandle(path, os.O_RDONLY).open()
        other = tmp_path / "slab"
        other.write_bytes(DATA)
        with hipfile.FileHandle(other, os.O_RDONLY):
            pass


def test_file_operations_of_one_s_own(tmp_path: Path) -> None:
    class Counting(AutoFiles):
        reads = 0

        def pread_into(self, fd: int, view: memoryview, offset: int) -> int:
            self.reads += 1
            return super().pread_into(fd, view[:1000], offset)

    path = tmp_path / "slab"
    path.write_bytes(DATA)
    counting = Counting()
    with hipfile_mock.fake(filesystem=counting) as session:
        import hipfile

        rig = Rig(session)
        with hipfile.FileHandle(path, os.O_RDONLY) as file:
            assert file.read(rig.buffer, SIZE, 0, 0) == SIZE
        assert rig.bytes() == DATA
    assert counting.reads == 9
    with pytest.raises(TypeError, match=r"filesystem=3\.5"), hipfile_mock.fake(filesystem=3.5):  # type: ignore[arg-type]
        pass


def test_the_model_first_imported_under_pyfakefs_stays_sound(tmp_path: Path) -> None:
    """Modules loaded while pyfakefs is in place must not keep its ``os`` for good."""
    import subprocess

    code = f"""
import os
from pyfakefs.fake_filesystem_unittest import Patcher
import hipfile_mock
def use(path):
    with hipfile_mock.fake() as session:
        import hipfile
        from hipfile.hipMalloc import hipMalloc
        pointer = hipMalloc(4096)
        session.hip.hipMemset(pointer.value, 1, 4096)
        with hipfile.FileHandle(path, os.O_RDWR | os.O_CREAT) as file:
            assert file.write(hipfile.Buffer(pointer.value, 4096, 0), 4096, 0, 0) == 4096
with Patcher():
    use("/in-the-fake")
    assert os.path.getsize("/in-the-fake") == 4096
use({str(tmp_path / "real")!r})
assert os.path.getsize({str(tmp_path / "real")!r}) == 4096
assert not os.path.exists("/in-the-fake")
with Patcher():
    use("/again")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
