"""The drop-in ``hipfile`` package over the model: results, errors, slots, and what outlives a machine."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hipfile_mock
from hipfile_mock.faces.slots import quarantined
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.observe.observer import Note, Observer, Release

SIZE = 1 << 16


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.releases: list[Release] = []

    def note(self, note: Note) -> None:
        self.notes.append(note)

    def released(self, release: Release) -> None:
        self.releases.append(release)

    def ids(self) -> list[str]:
        return [note.id for note in self.notes]


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def fake(notes: Notes) -> Iterator[hipfile_mock.Session]:
    with hipfile_mock.fake(schedule="lazy", strict=None, observers=[notes]) as session:
        yield session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "slab.bin"
    made.write_bytes(bytes(range(256)) * (SIZE // 256))
    return made


class Rig:
    """A file, a stream and a buffer on the current machine."""

    def __init__(self, session: hipfile_mock.Session, path: Path, flags: int = os.O_RDWR) -> None:
        import hipfile
        from hipfile.hipMalloc import hipMalloc

        self.session = session
        self.pointer = hipMalloc(SIZE)
        self.buffer = hipfile.Buffer.from_ctypes_void_p(self.pointer, SIZE, 0)
        self.buffer.register()
        self.file = hipfile.FileHandle(path, flags)
        self.file.open()
        _, self.stream = session.hip.hipStreamCreate()

    def bytes(self, count: int = SIZE) -> bytes:
        return bytes(self.session.memory.view(self.pointer.value, count))

    def sync(self) -> None:
        assert self.session.hip.hipStreamSynchronize(self.stream) == 0

    def close(self) -> None:
        self.file.close()
        self.buffer.deregister()


@pytest.fixture
def rig(fake: hipfile_mock.Session, path: Path) -> Iterator[Rig]:
    made = Rig(fake, path)
    yield made
    made.close()


def test_round_trip_sync(rig: Rig, path: Path) -> None:
    assert rig.file.read(rig.buffer, SIZE, 0, 0) == SIZE
    assert rig.bytes() == path.read_bytes()
    assert rig.file.write(rig.buffer, 100, SIZE, 7) == 100
    assert path.read_bytes()[SIZE:] == bytes(range(7, 107))


def test_round_trip_async(rig: Rig, path: Path) -> None:
    import hipfile

    assert hipfile.supports_async() is True
    with hipfile.Stream(rig.stream) as stream:
        assert stream.registered
        read = rig.file.read_async(rig.buffer, 4096, 256, 0, stream.handle)
        write = rig.file.write_async(rig.buffer, 512, SIZE, 0, stream.handle)
        assert (read.bytes_done, write.bytes_done) == (0, 0)
        rig.sync()
        assert (read.bytes_done, write.bytes_done) == (4096, 512)
    assert path.read_bytes()[SIZE:] == path.read_bytes()[256:768]


def test_end_of_file_and_errors(rig: Rig) -> None:
    import hipfile

    assert rig.file.read(rig.buffer, SIZE, SIZE - 10, 0) == 10
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        rig.file.read(rig.buffer, 1, -1, 0)
    with pytest.raises(hipfile.HipFileException) as failed:
        rig.file.read(rig.buffer, SIZE + 1, 0, 0)
    assert failed.value.hipfile_err == hipfile.OpError.INVALID_VALUE
    assert str(failed.value).startswith("5022 - ")
    with pytest.raises(hipfile.HipFileException) as failed:
        rig.file.read_async(rig.buffer, SIZE + 1, 0, 0, rig.stream)
    assert (failed.value.hipfile_err, failed.value.hip_err) == (5022, 0)


def test_late_failure_is_a_negative_number_and_no_exception(fake: hipfile_mock.Session, path: Path) -> None:
    rig = Rig(fake, path, os.O_WRONLY)
    io = rig.file.read_async(rig.buffer, 4096, 0, 0, rig.stream)
    rig.sync()
    assert io.bytes_done == -1
    rig.close()


def test_read_and_write_need_an_open_file(fake: hipfile_mock.Session, path: Path) -> None:
    import hipfile

    file, memory = hipfile.FileHandle(path, os.O_RDONLY), hipfile.Buffer(0x1000, 1, 0)
    for call in (file.read, file.write):
        with pytest.raises(RuntimeError, match="not open"):
            call(memory, 1, 0, 0)
    for submit in (file.read_async, file.write_async):
        with pytest.raises(RuntimeError, match="not open"):
            submit(memory, 1, 0, 0, 0)


def test_life_cycle_counts_and_import_initialises_nothing(fake: hipfile_mock.Session) -> None:
    import hipfile

    assert hipfile.Driver.use_count() == 0
    with pytest.raises(hipfile.HipFileException, match="5001"):
        hipfile.Driver().close()
    with hipfile.Driver() as one, hipfile.Driver():
        assert one.use_count() == 2
    assert hipfile.Driver.use_count() == 0


def test_first_async_call_opens_the_driver_and_fails(rig: Rig) -> None:
    import hipfile

    while hipfile.Driver.use_count():
        hipfile.Driver().close()
    with pytest.raises(hipfile.HipFileException, match="5022"):
        rig.file.read_async(rig.buffer, 1, 0, 0, rig.stream)
    assert hipfile.Driver.use_count() == 1
    rig.buffer.register()


@pytest.mark.parametrize(("profile", "version"), [("0.2", (0, 2, 0)), ("0.4", (0, 4, 0)), ("0.5", (0, 5, 0))])
def test_version_follows_the_profile(profile: str, version: tuple[int, int, int]) -> None:
    with hipfile_mock.fake(profile):
        import hipfile
        import hipfile._hipfile as low

        assert hipfile.get_version() == version
        assert hipfile.__version__ == ".".join(map(str, version))
        assert version == (low.VERSION_MAJOR, low.VERSION_MINOR, low.VERSION_PATCH)


def test_properties_are_not_implemented(fake: hipfile_mock.Session) -> None:
    import hipfile
    from hipfile._hipfile import hipFileDriverGetProperties

    with pytest.raises(hipfile.HipFileException, match="5030"):
        hipfile.driver_get_properties()
    properties, status = hipFileDriverGetProperties()
    assert status == (5030, 0)
    assert len(properties) == 12
    assert set(properties.values()) == {0}


def test_registration_failure_closes_the_descriptor(
    fake: hipfile_mock.Session, path: Path, descriptors_in: Callable[[Path], int]
) -> None:
    import hipfile

    file = hipfile.FileHandle(path, os.O_RDONLY, handle_type=hipfile.FileHandleType.USERSPACE_FS)
    with pytest.raises(hipfile.HipFileException, match="5008"):
        file.open()
    assert descriptors_in(path) == 0
    assert file.handle is None


def test_hip_malloc_helpers(fake: hipfile_mock.Session) -> None:
    from hipfile.hipMalloc import hipFree, hipMalloc

    pointer = hipMalloc(4096)
    assert isinstance(pointer, ctypes.c_void_p)
    hipFree(pointer)
    with pytest.raises(RuntimeError, match=r"hipFree failed \(1\)"):
        hipFree(pointer)
    with pytest.raises(RuntimeError, match=r"hipMalloc failed \(2\)"):
        hipMalloc(1 << 50)
    assert hipMalloc(0).value is None
    hipFree(ctypes.c_void_p())
    with pytest.raises(ctypes.ArgumentError):
        hipFree(object())  # type: ignore[arg-type]


# -- the low-level functions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((1, 2, -3, 4, 5), OverflowError, "can't convert negative value to size_t"),
        ((1, 2, 1 << 64, 4, 5), OverflowError, "Python int too large to convert to C unsigned long"),
        ((1, 2, 3, 1 << 63, 5), OverflowError, "Python int too large to convert to C long"),
        ((1, 2, "3", 4, 5), TypeError, "an integer is required"),
        ((None, 2, 3, 4, 5), TypeError, "an integer is required"),
    ],
)
def test_arguments_are_converted_as_c_does(
    fake: hipfile_mock.Session, args: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    from hipfile._hipfile import hipFileRead

    with pytest.raises(error, match=message):
        hipFileRead(*args)


def test_odd_numbers_are_taken_as_the_compiled_module_takes_them(fake: hipfile_mock.Session) -> None:
    import hipfile
    from hipfile._hipfile import hipFileBufRegister, hipFileHandleRegister, hipFileRead, hipFileStreamRegister

    class Number:
        def __index__(self) -> int:
            return 7

    with hipfile.Driver():
        assert hipFileRead(1.9, Number(), 3.7, True, 0) == (-5027, 0)
    assert hipFileHandleRegister((1 << 33) + 5000, 1) == (0, (5030, 0)), (
        "an fd is cut to 32 bits, and this one is not open"
    )
    with pytest.raises(OverflowError, match="unsigned int"):
        hipFileStreamRegister(0, -1)
    with pytest.raises(OverflowError, match="to int"):
        hipFileBufRegister(1, 2, 1 << 31)


def test_error_helpers(fake: hipfile_mock.Session) -> None:
    import hipfile._hipfile as low

    assert low.is_hipfile_err(-5001)
    assert not low.is_hipfile_err(5000)
    assert low.hipfile_errstr(-5022) == low.hipFileGetOpErrorString(5022) != ""
    assert low.hipFileGetOpErrorString(5021) == "Unknown hipFile error"
    assert low.is_hip_drv_err((5011, 3))
    assert low.hip_drv_err((5011, 3)) == 3
    with pytest.raises(TypeError, match="expected tuple, got list"):
        low.is_hip_drv_err([5011, 3])  # type: ignore[arg-type]


# -- slots -----------------------------------------------------------------------------------------------


def test_handle_is_real_memory_that_does_not_move(fake: hipfile_mock.Session) -> None:
    from hipfile._hipfile import AsyncIOHandle

    io = AsyncIOHandle(1, 2, 3)
    size, file_offset, buffer_offset, done = io._addresses()
    io.size, io.file_offset, io.buffer_offset = 10, -20, 30
    assert ctypes.c_size_t.from_address(size).value == 10
    assert ctypes.c_int64.from_address(file_offset).value == -20
    assert ctypes.c_int64.from_address(buffer_offset).value == 30
    ctypes.c_int64.from_address(done).value = -5022
    assert (io.size, io.file_offset, io.buffer_offset, io.bytes_done) == (10, -20, 30, -5022)
    assert io._addresses() == (size, file_offset, buffer_offset, done)


def test_handle_refuses_what_the_compiled_class_refuses(fake: hipfile_mock.Session) -> None:
    import copy
    import weakref

    from hipfile._hipfile import AsyncIOHandle, hipFileReadAsync

    io = AsyncIOHandle(1, 2, 3)
    with pytest.raises(AttributeError):
        io.bytes_done = 3
    with pytest.raises(AttributeError):
        io.other = 3
    with pytest.raises(OverflowError, match="negative"):
        io.size = -1
    with pytest.raises(TypeError):
        copy.copy(io)
    with pytest.raises(TypeError):
        weakref.ref(io)
    with pytest.raises(TypeError):
        AsyncIOHandle(1, 2)
    for wrong in (None, 5):
        with pytest.raises(TypeError, match=r"expected hipfile\._hipfile\.AsyncIOHandle"):
            hipFileReadAsync(1, 2, wrong, 0)


def test_slots_set_after_the_submission_count(rig: Rig) -> None:
    io = rig.file.read_async(rig.buffer, 4096, 0, 0, rig.stream)
    io.size = 100
    io.file_offset = 256 * 3 + 5
    rig.sync()
    assert io.bytes_done == 100
    assert rig.bytes(3) == bytes([5, 6, 7])


def test_dropped_handle_is_quarantined_until_the_stream_has_been_there(rig: Rig, notes: Notes) -> None:
    io = rig.file.read_async(rig.buffer, 4096, 0, 0, rig.stream)
    address = io._addresses()[3]
    del io
    gc.collect()
    assert quarantined(rig.session.machine) == 1
    assert notes.ids() == ["slot.owner-collected"]
    assert notes.notes[0].site is not None
    assert notes.notes[0].site.filename == __file__
    assert notes.releases[0].kind == "collected"
    others = [bytearray(32) for _ in range(100)]
    rig.sync()
    assert ctypes.c_int64.from_address(address).value == 4096, "the late write lands in the block that is kept"
    assert all(not any(other) for other in others)
    assert quarantined(rig.session.machine) == 0


def test_handle_dropped_in_time_is_no_remark(rig: Rig, notes: Notes) -> None:
    io = rig.file.read_async(rig.buffer, 4096, 0, 0, rig.stream)
    rig.sync()
    del io
    rejected = rig.file.read_async
    for _ in range(3):
        rejected(rig.buffer, 0, 0, 0, rig.stream)  # size 0 is complete at once
    gc.collect()
    assert notes.ids() == []
    assert quarantined(rig.session.machine) == 0


def test_observers_see_the_host_touch_slots(rig: Rig) -> None:
    seen: list[tuple[str, bool, int]] = []

    class Accesses(Observer):
        def host_access(self, access: Any) -> None:
            seen.append((access.what, access.access.write, access.access.length))

    rig.session.machine.add_observer(Accesses())
    io = rig.file.read_async(rig.buffer, 4096, 0, 0, rig.stream)
    seen.clear()
    io.size = 10
    _ = io.bytes_done
    assert seen == [("AsyncIOHandle.size", True, 8), ("AsyncIOHandle.bytes_done", False, 8)]
    rig.sync()


# -- beyond one machine ----------------------------------------------------------------------------------


def test_leftovers_of_an_ended_machine_do_not_touch_the_next(path: Path) -> None:
    with hipfile_mock.fake(strict=False) as session:
        old = Rig(session, path)
        handle, fd, pointer = old.file.handle, old.file._fd, old.buffer.ptr
    with hipfile_mock.fake() as session:
        import hipfile

        code, address = session.hip.hipMalloc(SIZE)
        assert code == 0
        mine = hipfile.Buffer(address, SIZE, 0)
        mine.register()
        seen: list[str] = []

        class Calls(Observer):
            def call(self, call: Any) -> None:
                seen.append(call.name)

        session.machine.add_observer(Calls())
        del old
        gc.collect()
        assert seen == [], f"handle {handle} and buffer {pointer:#x} belong to another machine"
        mine.deregister()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(fd)


def test_leftovers_of_an_outer_machine_do_not_touch_the_inner_one(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hipfile_mock.fake(strict=None) as outer:
        old = Rig(outer, path)
        fd = old.file._fd
        with hipfile_mock.fake() as inner:
            seen: list[str] = []

            class Calls(Observer):
                def call(self, call: Any) -> None:
                    seen.append(call.name)

            inner.machine.add_observer(Calls())
            del old
            gc.collect()
            assert seen == []
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            os.fstat(fd)
    assert capsys.readouterr().err == ""


def test_closing_by_hand_after_the_end_closes_the_descriptor_and_no_more(path: Path) -> None:
    with hipfile_mock.fake(strict=False) as session:
        rig = Rig(session, path)
    fd = rig.file._fd
    rig.close()
    assert rig.file.handle is None
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(fd)


def test_without_a_machine_it_says_what_to_do(path: Path) -> None:
    with hipfile_mock.fake():
        import hipfile
    with pytest.raises(hipfile_mock.NoMachineError, match=r"hipFileDriverOpen was called.*hipfile_mock\.fake"):
        hipfile.Driver().open()
    assert "5022 - " in str(hipfile.HipFileException(5022, 0)), "an exception can be printed after its machine is gone"


def test_a_machine_without_devices(path: Path) -> None:
    with hipfile_mock.fake(devices=0) as session:
        import hipfile
        from hipfile.hipMalloc import hipMalloc

        with pytest.raises(RuntimeError, match=r"hipMalloc failed \(100\)"):
            hipMalloc(16)
        with hipfile.FileHandle(path, os.O_RDONLY) as file, pytest.raises(hipfile.HipFileException):
            file.read_async(hipfile.Buffer(0x1000, 16, 0), 16, 0, 0, 0)
        assert session.hip.hipGetDeviceCount()[0] == 100


@pytest.mark.parametrize("engine", ["steps", "threads"])
def test_many_threads_at_once(path: Path, engine: str) -> None:
    """Real host threads, each with a stream; strict, so that every finding fails the test."""
    from concurrent.futures import ThreadPoolExecutor

    def work(number: int) -> int:
        import hipfile
        from hipfile.hipMalloc import hipFree, hipMalloc

        hip = session.hip
        pointer = hipMalloc(4096)
        _, stream = hip.hipStreamCreate()
        moved = 0
        with (
            hipfile.FileHandle(path, os.O_RDONLY) as file,
            hipfile.Buffer(pointer.value, 4096, 0) as memory,
            hipfile.Stream(stream),
        ):
            for index in range(20):
                io = file.read_async(memory, 100 + index, 256 * number, 0, stream)
                assert hip.hipStreamSynchronize(stream) == 0
                moved += io.bytes_done
                assert file.read(memory, 16, 0, 200) == 16
        hipFree(pointer)
        hip.hipStreamDestroy(stream)
        return moved

    settings = HipSettings(pinned_memory=1 << 30)
    env = {"HIPFILE_ASYNC_BUFFER_SIZE": "65536"}
    with hipfile_mock.fake(engine=engine, settings=settings, env=env) as session, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [sum(range(100, 120))] * 8
