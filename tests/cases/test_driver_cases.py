"""Cases from people who do this work: the plain behaviour of the driver. Each test is one case and its whole kind."""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hipfile_sim.driver.codes import FileDescr, IOResult, OpError
from hipfile_sim.driver.mounts import Mount, MountTable
from hipfile_sim.engine.errors import HostFunctionError
from hipfile_sim.hip.codes import HipError


def _rig_module() -> Any:
    name = "hipfile_driver_rig"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "driver" / "rig.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


rigs = _rig_module()
AMD, UNTOUCHED, Slots, error, pattern = rigs.AMD, rigs.UNTOUCHED, rigs.Slots, rigs.error, rigs.pattern
amd = pytest.mark.parametrize("profile", AMD)
both = pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
MIB = 1 << 20


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    made = []

    def make(profile: str = "0.5", **settings: Any) -> Any:
        rig = rigs.Rig(tmp_path, profile, **settings)
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.close()


class Setting:
    """A file, a buffer, a stream and slots."""

    def __init__(self, rig: Any, size: int = 4096, flags: int | None = 0, data: bytes | None = None) -> None:
        self.rig = rig
        self.data = pattern(size, 1) if data is None else data
        self.fd, self.handle = rig.file(self.data)
        self.pointer = rig.buffer(size, b"\xcc" * size)
        self.stream = rig.stream(flags)
        self.slots = Slots(size)

    def go(self, write: bool = False, slots: Any = None, stream: int | None = None) -> str:
        chosen = self.stream if stream is None else stream
        return error(self.rig.go(write, self.handle, self.pointer, slots or self.slots, chosen))

    def bytes(self, size: int, at: int = 0) -> bytes:
        return self.rig.peek(self.pointer + at, size)


# -- C02, C03, C04: what submit says ----------------------------------------------------------------------------------


@amd
@both
def test_c02_null_size_pointer_and_errno(make_rig: Any, profile: str, write: bool) -> None:
    s = Setting(make_rig(profile))
    call = s.rig.f.hipFileWriteAsync if write else s.rig.f.hipFileReadAsync
    ctypes.set_errno(13)
    status = call(s.handle, s.pointer, 0, *s.slots.pointers[1:], s.stream)
    assert status == (5022, 0)
    assert ctypes.get_errno() == 13


@both
@pytest.mark.parametrize("profile", [*AMD, "cufile"])
def test_c03_size_past_the_buffer(make_rig: Any, profile: str, write: bool) -> None:
    s = Setting(make_rig(profile), flags=7)
    s.slots.set(4096 + 4096, 0, 0)
    if profile == "cufile":
        assert s.go(write) == "Success"
        s.rig.sync(s.stream)
        assert s.slots.done == -5016
    else:
        assert s.go(write) == "InvalidValue"
        assert s.slots.done == UNTOUCHED


@both
@pytest.mark.parametrize("profile", [*AMD, "cufile"])
def test_c04_fixed_size_set_to_zero(make_rig: Any, profile: str, write: bool) -> None:
    s = Setting(make_rig(profile), flags=7)
    s.rig.hold(s.stream)
    assert s.go(write) == "Success"
    s.slots.words[0] = 0
    s.rig.release(s.stream)
    assert s.slots.done == (0 if profile == "cufile" else 4096)


# -- C07, C09: late results -------------------------------------------------------------------------------------------


@amd
def test_c07_late_failures_can_be_told_apart(make_rig: Any, profile: str) -> None:
    """Submit and synchronise succeed; only the count tells: -5022 (grown), -1 (I/O error), -5 (seen in the field)."""
    seen = []
    for late in ("grown", "io", "injected"):
        rig = make_rig(profile)
        s = Setting(rig)
        s.slots.set(100, 0, 0)
        rig.hold(s.stream)
        assert s.go() == "Success"
        if late == "grown":
            s.slots.words[0] = 101
        elif late == "io":
            rig.files.reads += [rigs.EIO]
        else:
            rig.f.on_publish = lambda op, value: -5
        rig.release(s.stream)
        seen.append(s.slots.done)
    assert seen == [-5022, -1, -5]


@pytest.mark.parametrize("profile", [*AMD, "cufile"])
@pytest.mark.parametrize("schedule", ["lazy", "eager", "parallel", "seeded:5"])
def test_c09_a_host_function_sees_the_final_count(make_rig: Any, profile: str, schedule: str) -> None:
    s = Setting(make_rig(profile, schedule=schedule))
    seen: list[int] = []
    assert s.go() == "Success"
    s.rig.hip.hipLaunchHostFunc(s.stream, lambda data: seen.append(s.slots.done), None)
    s.rig.sync(s.stream)
    assert seen == [4096]


@amd
def test_c09_an_exception_in_a_host_function_is_fatal_and_no_hang(make_rig: Any, profile: str) -> None:
    s = Setting(make_rig(profile))

    def host(data: Any) -> None:
        raise KeyError("what the user forgot")

    s.rig.hip.hipLaunchHostFunc(s.stream, host, None)
    assert s.go() == "Success"
    with pytest.raises(HostFunctionError, match="what the user forgot"):
        s.rig.hip.hipStreamSynchronize(s.stream)


# -- C10 to C14: bytes ------------------------------------------------------------------------------------------------


def test_c10_ten_mib_and_a_bit_through_one_mib(make_rig: Any) -> None:
    size = 10 * MIB + 512
    rig = make_rig("0.5", buffer_size=MIB)
    s = Setting(rig, size)
    pinned = rig.pinned
    assert pinned == MIB
    recorder = rig.watch()
    published: list[int] = []
    rig.f.on_publish = lambda op, value: published.append(len(rig.files.log)) or value
    assert s.go() == "Success"
    assert recorder.kinds.count("cpu_copy") == recorder.kinds.count("memcpy_kernel") == 11
    assert rig.pinned - pinned < 4096, "the operations add no bounce buffer"
    rig.sync(s.stream)
    assert s.slots.done == size
    assert s.bytes(size) == s.data
    assert published == [11], "after the last chunk, and once"


def test_c10_eio_in_chunk_4(make_rig: Any) -> None:
    size = 10 * MIB + 512
    rig = make_rig("0.5", buffer_size=MIB)
    s = Setting(rig, size)
    rig.files.reads += [None, None, None, rigs.EIO]
    assert s.go() == "Success"
    rig.sync(s.stream)
    assert s.slots.done == -1
    assert s.bytes(3 * MIB) == s.data[: 3 * MIB]
    assert s.bytes(size - 3 * MIB, 3 * MIB) == b"\xcc" * (size - 3 * MIB)


@amd
def test_c11_short_reads(make_rig: Any, profile: str) -> None:
    s = Setting(make_rig(profile), 16384)
    s.rig.files.reads += [4096, rigs.EINTR, 100, 0]
    assert s.go() == "Success"
    s.rig.sync(s.stream)
    assert s.slots.done == 4196
    assert s.bytes(16384) == s.data[:4196] + b"\xcc" * (16384 - 4196)
    s.rig.files.reads += [4096, rigs.EINTR, 100, 0]
    s.rig.poke(s.pointer, b"\xcc" * 16384)
    assert s.rig.f.hipFileRead(s.handle, s.pointer, 16384, 0, 0) == IOResult(4196)
    assert s.bytes(16384) == s.data[:4196] + b"\xcc" * (16384 - 4196)


@amd
@pytest.mark.parametrize("buffer_size", [1, 100, 4096, 65536])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("size", "file_offset", "buffer_offset"), [(1, 0, 1), (777, 13, 64), (3000, 500, 1000)])
def test_c12_neighbours_are_intact(
    make_rig: Any, profile: str, buffer_size: int, asynchronous: bool, size: int, file_offset: int, buffer_offset: int
) -> None:
    rig = make_rig(profile, buffer_size=buffer_size)
    s = Setting(rig)
    slots = Slots(size, file_offset, buffer_offset)

    def move(write: bool, where: int) -> None:
        slots.set(size, where, buffer_offset)
        if asynchronous:
            assert s.go(write, slots) == "Success"
            rig.sync(s.stream)
            assert slots.done == size
        else:
            io = rig.f.hipFileWrite if write else rig.f.hipFileRead
            assert io(s.handle, s.pointer, size, where, buffer_offset) == IOResult(size)

    move(False, file_offset)
    device = bytearray(b"\xcc" * 4096)
    device[buffer_offset : buffer_offset + size] = s.data[file_offset : file_offset + size]
    assert s.bytes(4096) == bytes(device)
    move(True, 5000)  # past the end: a gap of zeros
    assert os.pread(s.fd, 99999, 0) == s.data + bytes(904) + device[buffer_offset : buffer_offset + size]


@amd
def test_c13_a_write_of_60_percent(make_rig: Any, profile: str) -> None:
    """The nth operation is short; the caller can see it."""
    s = Setting(make_rig(profile), 1000)
    for nth in range(3):
        if nth == 1:
            s.rig.files.writes += [600, 0]
        assert s.go(True) == "Success"
        s.rig.sync(s.stream)
        assert s.slots.done == (600 if nth == 1 else 1000)
    s.rig.files.writes += [600, 0]
    assert s.rig.f.hipFileWrite(s.handle, s.pointer, 1000, 0, 0) == IOResult(600)


@amd
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
def test_c14_disk_full(make_rig: Any, profile: str, lasting: bool) -> None:
    rig = make_rig(profile)
    s = Setting(rig, 1000)
    recorder = rig.watch()
    rig.files.writes += [rigs.ENOSPC] * (2 if lasting else 1)
    assert s.go(True) == "Success"
    rig.sync(s.stream)
    assert s.slots.done == -1
    assert [(n.id, n.objects["errno"]) for n in recorder.notes] == [("result.hidden-errno", errno.ENOSPC)]
    result = rig.f.hipFileWrite(s.handle, s.pointer, 1000, 0, 0)
    assert result == (IOResult(-1, errno.ENOSPC) if lasting else IOResult(1000))


# -- C15, C16: descriptors --------------------------------------------------------------------------------------------


@amd
@pytest.mark.parametrize(("refusal", "answer"), [("EINVAL", "Success"), ("EACCES", "InternalError")])
def test_c15_direct_reopen_refused(make_rig: Any, tmp_path: Path, profile: str, refusal: str, answer: str) -> None:
    mounts = MountTable.fixture({str(tmp_path): Mount("nfs", o_direct=refusal)})
    rig = make_rig(profile, mounts=mounts)
    fd = rig.fd(pattern(4096, 1))
    os.lseek(fd, 11, os.SEEK_SET)
    import fcntl

    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    status, handle = rig.f.hipFileHandleRegister(FileDescr(1, fd))
    assert error(status) == answer
    assert (fcntl.fcntl(fd, fcntl.F_GETFL), os.lseek(fd, 0, os.SEEK_CUR)) == (flags, 11)
    if answer == "Success":
        pointer = rig.buffer(4096)
        assert rig.f.hipFileRead(handle, pointer, 4096, 0, 0) == IOResult(4096)
        assert rig.peek(pointer, 4096) == pattern(4096, 1)
        assert (fcntl.fcntl(fd, fcntl.F_GETFL), os.lseek(fd, 0, os.SEEK_CUR)) == (flags, 11)


@amd
@pytest.mark.parametrize("direct", [False, True], ids=["buffered", "direct"])
def test_c16_closed_and_recycled_descriptor(make_rig: Any, profile: str, direct: bool) -> None:
    """A write in flight; its number means another file by then. Buffered: that file is written to; reported."""
    rig = make_rig(profile)
    fd = rig.fd(bytes(64), os.O_RDWR | (os.O_DIRECT if direct else 0))
    mine = os.dup(fd)
    rig.fds.append(mine)
    handle, pointer, stream = rig.register(fd), rig.buffer(64, b"w" * 64), rig.stream(0)
    victim = rig.folder / "victim"
    victim.write_bytes(b"v" * 64)
    slots = Slots(64)
    recorder = rig.watch()
    rig.hold(stream)
    assert rig.write(handle, pointer, slots, stream) == 0
    other = os.open(victim, os.O_RDWR)
    os.dup2(other, fd)
    os.close(other)
    rig.release(stream)
    assert slots.done == 64
    written = (os.stat(mine).st_size, os.path.getsize(victim))
    assert written == (64, 64)
    assert victim.read_bytes() == (b"v" if direct else b"w") * 64
    assert recorder.note_ids == ["file.descriptor-recycled"]


# -- C30, C33, C34, C38: devices, life cycle --------------------------------------------------------------------------


@amd
@both
def test_c30_stream_buffer_and_current_device(make_rig: Any, profile: str, write: bool) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(4096, 1))
    pointers = [rig.buffer(4096, device=n) for n in range(2)]
    streams = [rig.stream(0, device=n) for n in range(2)]
    bare = [rig.stream(None, device=n) for n in range(2)]
    for current in range(2):
        rig.hip.hipSetDevice(current)
        for buffer_device in range(2):
            for stream_device in range(2):
                for kind in (streams, bare):
                    slots = Slots(4096)
                    status = rig.go(write, handle, pointers[buffer_device], slots, kind[stream_device])
                    matches = buffer_device == stream_device
                    assert error(status) == ("Success" if matches else "InvalidValue")
                    rig.sync(kind[stream_device])
                    assert slots.done == (4096 if matches else UNTOUCHED)
            # the null stream is that of the current device
            slots = Slots(4096)
            status = rig.go(write, handle, pointers[buffer_device], slots, 0)
            assert error(status) == ("Success" if buffer_device == current else "InvalidValue")
            rig.sync(0)


@amd
def test_c33_nothing_is_initialised_until_asked(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    assert rig.count == 0
    slots = Slots(16)
    assert rig.f.hipFileReadAsync(0x1000, rig.memory(64), *slots.pointers, 0) == (5022, 0)
    assert rig.count == 1
    assert slots.done == UNTOUCHED


@amd
def test_c34_closed_twice_and_reopened(make_rig: Any, profile: str) -> None:
    s = Setting(rig := make_rig(profile))
    assert rig.count == 1
    assert [error(rig.f.hipFileDriverClose()) for _ in range(2)] == ["Success", "DriverNotInitialized"]
    assert rig.count == 0
    rig.f.hipFileDriverOpen()
    assert rig.count == 1
    assert rig.f.hipFileRead(s.handle, s.pointer, 16, 0, 0) == IOResult(-OpError.hipFileHandleNotRegistered)
    assert s.go() == "HandleNotRegistered"
    assert error(rig.f.hipFileStreamRegister(s.stream, 0)) == "InvalidValue"
    assert error(rig.f.hipFileStreamDeregister(s.stream)) == "Success"


@amd
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "locks held by other threads"])
def test_c38_fork(make_rig: Any, profile: str, busy: bool) -> None:
    """Every call of the child is a defined error and a report, at once; the parent goes on."""
    s = Setting(rig := make_rig(profile))
    recorder = rig.watch()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            rig.f.hipFileBufRegister(s.pointer, 4096, 0)

    thread = threading.Thread(target=work, daemon=True)
    if busy:
        thread.start()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answers = [s.go(), error(rig.f.hipFileDriverOpen()), error(rig.f.hipFileBufRegister(s.pointer + 1, 1, 0))]
            answers.append(str(rig.f.hipFileRead(s.handle, s.pointer, 16, 0, 0).count))
            reported = recorder.note_ids.count("fork.after-init")
            os.write(write, f"{answers} {reported}".encode())
        finally:
            os._exit(0)
    os.close(write)
    answer = os.read(read, 1000).decode()
    os.waitpid(pid, 0)
    os.close(read)
    stop.set()
    if busy:
        thread.join()
    hip = -int(HipError.hipErrorNotInitialized)
    assert answer == f"['HipDriverError', 'HipDriverError', 'HipDriverError', '{hip}'] 4"
    assert s.go() == "Success"
    rig.sync(s.stream)
    assert s.slots.done == 4096
