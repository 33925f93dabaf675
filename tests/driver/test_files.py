"""The file map: every row of file registration. [file.*], [life.init.handle-register*], cases C15, C16, C37"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hipfile_sim.driver.clauses.registry import PROFILES
from hipfile_sim.driver.codes import FileDescr, OpError
from hipfile_sim.driver.fileops import FileInfo, RealFiles
from hipfile_sim.driver.files import FileMap, RegisteredFile
from hipfile_sim.driver.mounts import Mount, MountTable
from hipfile_sim.driver.profiles import get_profile

AMD = PROFILES[:-1]
XFS = "xfs"  # a fixture with O_DIRECT, whatever the file system of this machine can do
OK, INVALID, INTERNAL = OpError.hipFileSuccess, OpError.hipFileInvalidValue, OpError.hipFileInternalError
NOT_SUPPORTED, DUPLICATE = OpError.hipFileIONotSupported, OpError.hipFileHandleAlreadyRegistered


class Files(RealFiles):
    """Real files that note what is opened and closed, and fail or answer as told."""

    __slots__ = ("closed", "extra_flags", "fail", "info", "opened")

    def __init__(self) -> None:
        self.opened: list[tuple[int, int]] = []
        self.closed: list[int] = []
        self.fail: dict[str, int] = {}
        self.extra_flags = 0
        self.info: dict[str, int | None] = {}

    def _may_fail(self, what: str) -> None:
        if what in self.fail:
            raise OSError(self.fail[what], os.strerror(self.fail[what]))

    def inspect(self, fd: int) -> FileInfo:
        self._may_fail("inspect")
        return super().inspect(fd)._replace(**self.info)  # type: ignore[arg-type]

    def getfl(self, fd: int) -> int:
        self._may_fail("getfl")
        return super().getfl(fd) | self.extra_flags

    def reopen(self, fd: int, flags: int) -> int:
        self._may_fail("reopen")
        new = super().reopen(fd, flags & ~os.O_DIRECT)
        self.opened.append((new, flags))
        return new

    def close(self, fd: int) -> None:
        super().close(fd)
        self.closed.append(fd)


class World:
    """A file map over `Files`, with a use count."""

    def __init__(self, profile: str, mount: str | Mount | None = XFS) -> None:
        self.files = Files()
        self.count = 0
        numbers = itertools.count(0x7F00_0000_0000, 64)
        mounts = MountTable.fixture({}, default=mount)
        self.map = FileMap(get_profile(profile), self.files, mounts, lambda kind: next(numbers))

    def init(self) -> None:
        self.count = max(self.count, 1)

    def register(self, fd: int, kind: int = 1) -> tuple[OpError, int]:
        (err, hip), handle = self.map.register(FileDescr(kind, fd), self.init)
        assert hip == 0
        assert (handle != 0) == (err == OK)
        return err, handle

    def file(self, fd: int) -> RegisteredFile:
        err, handle = self.register(fd)
        assert err == OK
        found = self.map.lookup(handle)
        assert found is not None
        return found


@pytest.fixture(params=AMD)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(request.param)
    yield made
    made.map.clear()
    assert sorted(made.files.closed) == sorted(fd for fd, _ in made.files.opened), "a descriptor leaked"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "data"
    file.write_bytes(b"0123456789" * 1000)
    return file


@pytest.fixture
def fd(path: Path) -> Iterator[int]:
    number = os.open(path, os.O_RDWR)
    yield number
    os.close(number)


# ------------------------------------------------------------------------------------- order of checks, implicit init


def test_null(world: World):
    (err, hip), handle = world.map.register(None, world.init)
    assert (err, hip, handle, world.count) == (INVALID, 0, 0, 0)


@pytest.mark.parametrize("kind", [0, 2, 3, 4, -1, 12345, 2**40])
def test_other_handle_types(world: World, fd: int, kind: int):
    assert world.register(fd, kind) == (NOT_SUPPORTED, 0)
    assert world.register(-1, kind) == (NOT_SUPPORTED, 0), "the type comes before the descriptor"
    assert world.count == 0


@pytest.mark.parametrize("number", [-1, 999_999, 2**31, 2**80, -(2**80)])
def test_bad_descriptors(world: World, number: int):
    assert world.register(number) == (INTERNAL, 0)
    assert world.count == 0


@pytest.mark.parametrize("step", ["inspect", "getfl", "reopen"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ENFILE, errno.EPERM, errno.ENOMEM])
def test_a_failing_step_fails_registration(world: World, fd: int, step: str, code: int):
    world.files.fail[step] = code
    assert world.register(fd) == (INTERNAL, 0)
    assert world.count == 0
    del world.files.fail[step]
    assert world.register(fd)[0] == OK


def test_an_unreadable_mount_table_fails_registration(fd: int, tmp_path: Path):
    table = MountTable.host(str(tmp_path / "absent"))
    files = FileMap(get_profile("0.5"), RealFiles(), table, lambda kind: 1)
    assert files.register(FileDescr(1, fd), lambda: None) == ((INTERNAL, 0), 0)


def test_success_initialises(world: World, fd: int):
    err, handle = world.register(fd)
    assert (err, world.count) == (OK, 1)
    assert world.map.lookup(handle).client_fd == fd
    assert len(world.map) == 1


def test_a_duplicate_initialises_too_and_closes_its_second_descriptor(world: World, fd: int):
    first = world.file(fd)
    world.count = 0
    assert world.register(fd) == (DUPLICATE, 0)
    assert world.count == 1
    assert len(world.files.opened) == 2
    assert world.files.closed == [world.files.opened[1][0]]
    assert world.map.lookup(first.handle) is first
    assert [f.client_fd for f in world.map] == [fd]


def test_a_duplicate_that_cannot_be_inspected_is_an_internal_error(world: World, fd: int):
    world.file(fd)
    world.count = 0
    world.files.fail["inspect"] = errno.EIO
    assert world.register(fd) == (INTERNAL, 0)
    assert world.count == 0


def test_one_file_through_two_descriptors_is_two_handles(world: World, fd: int, path: Path):
    other, copy = os.open(path, os.O_RDONLY), os.dup(fd)
    try:
        handles = {world.file(number).handle for number in (fd, other, copy)}
        assert len(handles) == 3
        assert len(world.map) == 3
    finally:
        os.close(other)
        os.close(copy)


def test_fs_ops_are_ignored(world: World, fd: int):
    assert world.map.register(FileDescr(1, fd, 0xDEAD, 0xBEEF), world.init)[0].ok


def test_64_threads_register_one_descriptor_once(world: World, fd: int):
    start, results = threading.Barrier(64), []

    def run() -> None:
        start.wait()
        results.append(world.register(fd)[0])

    threads = [threading.Thread(target=run) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [OK] + [DUPLICATE] * 63
    assert world.count == 1
    assert len(world.files.closed) == 63


def test_cufile_initialises_first(fd: int):
    world = World("cufile")
    assert world.map.register(None, world.init)[0].err == INVALID
    assert world.count == 1


# ------------------------------------------------------------------------------------- the two descriptors, alignment


def test_a_buffered_descriptor_gets_a_direct_one(world: World, fd: int):
    file = world.file(fd)
    assert (file.buffered_fd, file.unbuffered_fd) == (fd, file.owned_fd)
    ((opened, flags),) = world.files.opened
    assert opened == file.owned_fd
    assert flags == os.O_DIRECT | os.O_CLOEXEC | fcntl.fcntl(fd, fcntl.F_GETFL)
    assert (file.dio_mem_align, file.dio_offset_align) == (4, 512)


def test_a_direct_descriptor_gets_a_buffered_one(world: World, fd: int):
    world.files.extra_flags = os.O_DIRECT
    file = world.file(fd)
    assert (file.unbuffered_fd, file.buffered_fd) == (fd, file.owned_fd)
    ((_, flags),) = world.files.opened
    assert flags == (os.O_CLOEXEC | fcntl.fcntl(fd, fcntl.F_GETFL)) & ~os.O_DIRECT


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EACCES, errno.EIO])
def test_the_buffered_second_descriptor_tolerates_nothing(world: World, fd: int, code: int):
    world.files.extra_flags = os.O_DIRECT
    world.files.fail["reopen"] = code
    assert world.register(fd) == (INTERNAL, 0)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_SYNC])
def test_status_flags_carry_over(world: World, path: Path, flags: int):
    number = os.open(path, flags)
    try:
        owned = world.file(number).owned_fd
        mask = os.O_ACCMODE | os.O_APPEND | os.O_SYNC
        assert fcntl.fcntl(owned, fcntl.F_GETFL) & mask == flags & mask
        assert fcntl.fcntl(owned, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    finally:
        os.close(number)


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("mount", ["tmpfs", "nfs", "overlay-no-direct", "ext4,o_direct=EINVAL"])
def test_o_direct_refused_with_einval_registers_for_the_fallback_alone(profile: str, mount: str, fd: int):
    world = World(profile, mount)
    world.files.info = {"dio_mem_align": 512, "dio_offset_align": 512}
    file = world.file(fd)
    assert (file.buffered_fd, file.unbuffered_fd, file.owned_fd) == (fd, -1, -1)
    assert (file.dio_mem_align, file.dio_offset_align) == (0, 0)
    assert world.files.opened == []


@pytest.mark.parametrize("profile", AMD)
def test_o_direct_refused_by_the_system_itself(profile: str, fd: int):
    world = World(profile, Mount("ext4"))
    world.files.fail["reopen"] = errno.EINVAL
    assert world.file(fd).unbuffered_fd == -1
    world.map.clear()
    world.files.fail["reopen"] = errno.EACCES
    assert world.register(fd) == (INTERNAL, 0)


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("mount", ["fuse-no-access", "xfs,o_direct=EACCES"])
def test_o_direct_refused_with_eacces_fails(profile: str, mount: str, fd: int):
    world = World(profile, mount)
    assert world.register(fd) == (INTERNAL, 0)
    assert (world.count, len(world.map), world.files.opened) == (0, 0, [])


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize(
    ("reported", "expected"),
    [((None, None), (4096, 4096)), ((512, 4096), (512, 4096)), ((4, 512), (4, 512)), ((0, 0), (0, 0))],
)
def test_alignment_is_what_the_kernel_reports(
    profile: str, reported: tuple[int | None, int | None], expected: tuple[int, int], fd: int
):
    world = World(profile, Mount("ext4"))
    world.files.info = dict(zip(("dio_mem_align", "dio_offset_align"), reported, strict=True))
    file = world.file(fd)
    assert (file.dio_mem_align, file.dio_offset_align) == expected


@pytest.mark.parametrize(
    ("mount", "expected"),
    [
        ("ext4", (4, 512)),
        ("xfs,dio_mem_align=512,dio_offset_align=4096", (512, 4096)),
        ("btrfs", (4096, 4096)),
        ("ext4-journal", (0, 0)),
        ("overlay", (4, 512)),
    ],
)
def test_alignment_of_fixtures(mount: str, expected: tuple[int, int], fd: int):
    file = World("0.5", mount).file(fd)
    assert file.unbuffered_fd >= 0
    assert (file.dio_mem_align, file.dio_offset_align) == expected


@pytest.mark.parametrize(
    ("mount", "reported", "expected"),
    [
        ("xfs-reflink", None, 512),
        ("ext4", 64, 512),
        (Mount("xfs"), 64, 64),
        (Mount("xfs"), None, 4096),
        ("tmpfs", 64, 0),
    ],
)
def test_alignment_of_direct_reads(mount: str | Mount, reported: int | None, expected: int, fd: int):
    world = World("0.5", mount)
    world.files.info = {"dio_offset_align": 4096, "dio_read_offset_align": reported}
    assert world.file(fd).dio_read_offset_align == expected


def test_a_fixture_with_direct_io_works_where_the_machine_has_none(fd: int, monkeypatch: pytest.MonkeyPatch):
    class NoDirect(RealFiles):
        def reopen(self, fd: int, flags: int) -> int:
            if flags & os.O_DIRECT:
                raise OSError(errno.EINVAL, "no O_DIRECT here")
            return super().reopen(fd, flags)

    for mount, direct in ((XFS, True), (Mount("xfs"), False)):
        files = FileMap(get_profile("0.5"), NoDirect(), MountTable.fixture({}, default=mount), lambda kind: 64)
        _, handle = files.register(FileDescr(1, fd), lambda: None)
        assert (files.lookup(handle).unbuffered_fd >= 0) is direct
        files.clear()


def test_a_mount_that_is_not_found_is_no_obstacle(fd: int):
    file = World("0.2", None).file(fd)
    assert file.mount is None


def test_mounts_by_path(fd: int, path: Path):
    mounts = MountTable.fixture({str(path.parent): "tmpfs"}, default=None)
    files = FileMap(get_profile("0.5"), RealFiles(), mounts, lambda kind: 64)
    _, handle = files.register(FileDescr(1, fd), lambda: None)
    assert files.lookup(handle).mount.type == "tmpfs"


def test_the_caller_s_descriptor_is_untouched(world: World, fd: int):
    os.lseek(fd, 123, os.SEEK_SET)
    before = fcntl.fcntl(fd, fcntl.F_GETFL), fcntl.fcntl(fd, fcntl.F_GETFD)
    file = world.file(fd)
    world.map.deregister(file.handle)
    assert (fcntl.fcntl(fd, fcntl.F_GETFL), fcntl.fcntl(fd, fcntl.F_GETFD)) == before
    assert os.lseek(fd, 0, os.SEEK_CUR) == 123


def test_a_file_costs_one_descriptor(fd: int, path: Path, descriptors_in: Callable[[Path], int]):
    files = FileMap(get_profile("0.5"), RealFiles(), MountTable.fixture({}, default=XFS), lambda kind: 64)
    before = descriptors_in(path)
    _, handle = files.register(FileDescr(1, fd), lambda: None)
    assert descriptors_in(path) == before + 1
    assert files.deregister(handle)
    assert descriptors_in(path) == before


def test_what_is_no_file_is_refused_by_cufile(tmp_path: Path):
    world = World("cufile", "ext4")
    numbers = [os.open(tmp_path, os.O_RDONLY), os.open("/dev/null", os.O_RDWR), *os.pipe()]
    try:
        for number in numbers:
            assert world.register(number) == (OpError.hipFileInvalidFileType, 0)
    finally:
        for number in numbers:
            os.close(number)


def test_unnamed_files_are_refused_by_cufile(tmp_path: Path):
    number = os.open(tmp_path, os.O_TMPFILE | os.O_RDWR)
    try:
        assert World("cufile", "ext4").register(number) == (OpError.hipFileInvalidFileOpenFlag, 0)
    finally:
        os.close(number)


def test_tmpfs_is_refused_by_cufile(fd: int):
    world = World("cufile", "tmpfs")
    assert world.register(fd) == (OpError.hipFileHandleNotRegistered, 0)
    assert World("cufile", "ext4").register(fd)[0] == OK


# --------------------------------------------------------------------------------------------- deregistration, lifetime


@pytest.mark.parametrize("handle", [0, 1, -1, 0xF11E, 2**63, 2**100])
def test_deregistering_an_unknown_handle_does_nothing(world: World, fd: int, handle: int):
    world.file(fd)
    assert not world.map.deregister(handle)
    assert world.map.lookup(handle) is None
    assert world.map.hold(handle) is None
    assert len(world.map) == 1


def test_deregister(world: World, fd: int):
    file = world.file(fd)
    assert world.map.deregister(file.handle)
    assert not world.map.deregister(file.handle)
    assert world.map.lookup(file.handle) is None
    assert world.files.closed == [world.files.opened[0][0]]
    os.fstat(fd)
    assert world.file(fd).handle != file.handle, "a handle is never used again"


def test_a_file_in_use_stays_registered(world: World, fd: int):
    file = world.file(fd)
    assert world.map.hold(file.handle) is file
    assert file.in_use
    assert not world.map.deregister(file.handle)
    assert world.map.lookup(file.handle) is file
    assert file.registered
    assert world.register(fd) == (DUPLICATE, 0)
    file.release()
    assert not file.in_use
    assert world.map.deregister(file.handle)
    assert not file.registered


def test_the_owned_descriptor_lives_as_long_as_the_last_reference(world: World, fd: int):
    file = world.file(fd)
    owned = file.owned_fd
    file.acquire()
    file.acquire()
    world.map.clear()
    assert world.map.lookup(file.handle) is None
    assert len(world.map) == 0
    file.release()
    assert world.files.closed == []
    assert os.fstat(owned).st_ino == file.info.ino
    file.release()
    assert world.files.closed == [owned]
    assert file.owned_fd == -1


def test_after_clear_the_descriptor_registers_anew_although_the_old_one_is_in_flight(world: World, fd: int):
    old = world.file(fd)
    old.acquire()
    world.map.clear()
    new = world.file(fd)
    assert new.handle != old.handle
    old.release()
    assert world.map.lookup(new.handle) is new


def test_cufile_detaches_a_file_in_use(fd: int):
    world = World("cufile")
    file = world.file(fd)
    file.acquire()
    assert world.map.deregister(file.handle)
    assert world.map.lookup(file.handle) is None
    assert world.files.closed == []
    file.release()
    assert len(world.files.closed) == 1


# ------------------------------------------------------------------------------------------ descriptors behind our back


def test_a_closed_descriptor_is_not_noticed_and_blocks_its_number(world: World, path: Path):
    number = os.open(path, os.O_RDWR)
    file = world.file(number)
    assert not file.recycled
    os.close(number)
    assert file.recycled
    assert world.register(number) == (INTERNAL, 0)
    (path.parent / "other").touch()
    other = os.open(path.parent / "other", os.O_RDWR)
    try:
        os.dup2(other, number)
        assert file.recycled
        assert world.register(number) == (DUPLICATE, 0)
        assert file.buffered_fd == number, "buffered I/O now goes to the other file"
    finally:
        os.close(number)
        if other != number:
            os.close(other)


def test_the_owned_descriptor_closed_by_somebody_else_does_no_harm(fd: int):
    files = FileMap(get_profile("0.5"), RealFiles(), MountTable.fixture({}, default=XFS), lambda kind: 64)
    _, handle = files.register(FileDescr(1, fd), lambda: None)
    os.close(files.lookup(handle).owned_fd)
    assert files.deregister(handle)


# ------------------------------------------------------------------------------------------------------ special files


@pytest.mark.timeout(60)
@pytest.mark.parametrize("profile", AMD)
def test_special_files_have_defined_outcomes(profile: str, tmp_path: Path):
    count = itertools.count(64)
    files = FileMap(get_profile(profile), RealFiles(), MountTable.host(), lambda kind: next(count))

    def register(number: int) -> OpError:
        return files.register(FileDescr(1, number), lambda: None)[0].err

    reader, writer = os.pipe()
    directory, full = os.open(tmp_path, os.O_RDONLY), os.open("/dev/full", os.O_RDWR)
    with socket.socket() as sock:
        assert register(sock.fileno()) == INTERNAL
    assert register(directory) == OK
    assert register(full) == OK
    assert [register(reader), register(writer)] == [OK, OK]
    os.mkfifo(tmp_path / "fifo")
    both = os.open(tmp_path / "fifo", os.O_RDWR)
    alone = os.open(tmp_path / "fifo", os.O_WRONLY)
    os.close(both)
    assert register(alone) == INTERNAL, "nobody reads: opening it once more would wait for ever"
    for number in (reader, writer, alone):
        os.close(number)
    files.clear()
    os.close(directory)
    os.close(full)


def test_a_file_made_with_o_tmpfile_cannot_be_registered(tmp_path: Path):
    try:
        number = os.open(tmp_path, os.O_TMPFILE | os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no O_TMPFILE here: {error}")
    files = FileMap(get_profile("0.5"), RealFiles(), MountTable.fixture({}, default=XFS), lambda kind: 64)
    assert files.register(FileDescr(1, number), lambda: None)[0].err == INTERNAL
    os.close(number)
