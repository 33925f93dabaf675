"""Cases C10 to C16, bytes, as a user of the doubles writes them."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from hipfile_mock import faults
from hipfile_mock.recorder import Recorder
from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.observe.observer import Observer

from .letter import FILL, KIB, MIB, SLOW, C, Slots, c_program, device, pattern, reported, slab, watched

AMD = ("0.2", "0.3", "0.4", "0.5")
CALLS = pytest.mark.parametrize("call", ["hipFileReadAsync", "hipFileWriteAsync"])
ENGINES = pytest.mark.parametrize("engine", ["steps", "threads"])
SIZE = 10 * MIB + 512
OWN = 4096
"""Pinned bytes that an operation may take for itself, besides the buffer of its stream."""


def inject(c: C, *rules: Any) -> None:
    for rule in rules:
        rule.attach(c.machine)


class Seen(Observer):
    """The count and the pinned memory, each time a command of an operation has run."""

    def __init__(self, c: C, slots: Slots) -> None:
        self.c, self.slots = c, slots
        self.steps: list[tuple[str, int]] = []
        self.pinned = 0

    def finished(self, command: Any) -> None:
        self.steps.append((command.kind, self.slots.bytes))
        self.pinned = max(self.pinned, self.c.memory.pinned_used)


# -- C10 ---------------------------------------------------------------------------------------------------------------


@CALLS
@ENGINES
@pytest.mark.parametrize("register", [0, None, 7])
def test_c10_eleven_chunks_through_one_mebibyte(tmp_path: Path, call: str, engine: str, register: int | None) -> None:
    recorder = Recorder()
    with c_program(engine=engine, env={"HIPFILE_ASYNC_BUFFER_SIZE": str(MIB)}) as c:
        c.machine.add_observer(recorder)
        path = slab(tmp_path, SIZE)
        handle, memory, stream = c.file(path), c.buffer(11 * MIB), c.stream(register=register)
        slots = Slots(SIZE, 0, 0, 77)
        seen = Seen(c, slots)
        c.machine.add_observer(seen)
        assert getattr(c.hipfile, call)(handle, memory, *slots.pointers, stream).err == 0
        assert c.memory.pinned_used <= MIB + OWN
        assert c.hip.hipStreamSynchronize(stream) == 0
        assert slots.bytes == SIZE
        assert seen.pinned <= MIB + OWN
        assert len(recorder.find_commands("cpu_copy", stream=stream)) == 11
        assert [count for kind, count in seen.steps if kind != "cleanup"] == [0] * (len(seen.steps) - 1)
        assert seen.steps[-1] == ("cleanup", SIZE)
        if call == "hipFileReadAsync":
            assert c.bytes_at(memory, SIZE) == pattern(SIZE)
            assert c.bytes_at(memory + SIZE, 512) == bytes([FILL]) * 512
        else:
            assert path.read_bytes() == bytes([FILL]) * SIZE


@CALLS
def test_c10_eio_in_the_fourth_chunk(tmp_path: Path, call: str) -> None:
    on = "pread" if "Read" in call else "pwrite"
    with c_program(env={"HIPFILE_ASYNC_BUFFER_SIZE": str(MIB)}) as c:
        path = slab(tmp_path, SIZE)
        handle, memory, stream, slots = c.file(path), c.buffer(11 * MIB), c.stream(register=0), Slots(SIZE, 0, 0, 77)
        inject(c, faults.on(on, nth=4).errno(errno.EIO))
        assert getattr(c.hipfile, call)(handle, memory, *slots.pointers, stream).err == 0
        assert c.hip.hipStreamSynchronize(stream) == 0
        assert slots.bytes == -1
        moved = c.bytes_at(memory, SIZE) if on == "pread" else path.read_bytes()
        old, new = bytes([FILL]) * SIZE, pattern(SIZE)
        if on == "pwrite":
            old, new = new, old
        assert moved[: 3 * MIB] == new[: 3 * MIB]
        assert moved[3 * MIB :] == old[3 * MIB :]


@pytest.mark.parametrize("profile", ["0.2", "0.3", "0.4"])
def test_c10_before_0_5_one_bounce_buffer_for_each_operation(tmp_path: Path, profile: str) -> None:
    with c_program(profile=profile, env={"HIPFILE_ASYNC_BUFFER_SIZE": str(MIB)}, schedule="lazy") as c:
        handle, memory, stream, slots = c.file(slab(tmp_path, SIZE)), c.buffer(11 * MIB), c.stream(), Slots(SIZE)
        assert c.hipfile.hipFileReadAsync(handle, memory, *slots.pointers, stream).err == 0
        assert c.memory.pinned_used >= SIZE
        c.hip.hipStreamSynchronize(stream)
        assert slots.bytes == SIZE


# -- C11 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [*AMD, "cufile"])
@pytest.mark.parametrize("sync", [False, True])
def test_c11_short_and_interrupted_preads_to_the_end_of_file(profile: str, sync: bool) -> None:
    with c_program(profile=profile) as c:
        path = Path(f"/var/tmp/c11-{os.getpid()}")
        path.write_bytes(pattern(64 * KIB))
        handle, memory, stream, slots = c.file(path), c.buffer(), c.stream(), Slots(16 * KIB, 0, 0, 0)
        path.unlink()
        inject(c, faults.on("pread").returns(4096, -errno.EINTR, 100, 0))
        if sync:
            count = c.hipfile.hipFileRead(handle, memory, 16 * KIB, 0, 0).count
        else:
            assert c.hipfile.hipFileReadAsync(handle, memory, *slots.pointers, stream).err == 0
            c.hip.hipStreamSynchronize(stream)
            count = slots.bytes
        assert count == 4196
        assert c.bytes_at(memory, 4196) == pattern(4196)
        untouched = c.bytes_at(memory + 4196, 16 * KIB - 4196) == bytes([FILL]) * (16 * KIB - 4196)
        assert untouched == (not sync or profile != "cufile")  # there, a short read overwrites what was asked for


def test_c11_a_file_that_really_ends(tmp_path: Path) -> None:
    with watched(faults=[faults.on("pread").eintr(2)]) as session:
        import hipfile

        memory, stream = device(session, 16 * KIB), session.hip.hipStreamCreate()[1]
        file = hipfile.FileHandle(slab(tmp_path, 5000), os.O_RDONLY)
        with file, hipfile.Buffer(memory, 16 * KIB, 0) as buffer:
            ios = [file.read_async(buffer, 8192, start, 8192, stream) for start in (4096, 5000, 9000)]
            session.hip.hipStreamSynchronize(stream)
            assert [io.bytes_done for io in ios] == [904, 0, 0]
        assert bytes(session.memory.view(memory + 8192 + 904, 1000)) == bytes([FILL]) * 1000


# -- C12 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", AMD)
@ENGINES
@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(("size", "foff", "boff"), [(1, 4095, 4097), (15000, 3, 12345)])
def test_c12_around_the_range_nothing_changes(
    tmp_path: Path, profile: str, engine: str, sync: bool, size: int, foff: int, boff: int
) -> None:
    env = {"HIPFILE_ASYNC_BUFFER_SIZE": "4096"}
    with c_program(profile=profile, engine=engine, env=env) as c:
        path = slab(tmp_path)
        handle, memory, stream = c.file(path), c.buffer(), c.stream(register=0)
        for call in ("hipFileRead", "hipFileWrite"):
            slots = Slots(size, foff, boff, 0)
            if sync:
                count = getattr(c.hipfile, call)(handle, memory, size, foff, boff).count
            else:
                assert getattr(c.hipfile, f"{call}Async")(handle, memory, *slots.pointers, stream).err == 0
                c.hip.hipStreamSynchronize(stream)
                count = slots.bytes
            assert count == size
            buffer = c.bytes_at(memory, 64 * KIB)
            if call == "hipFileRead":
                wanted = bytes([FILL]) * boff + pattern(size, foff) + bytes([FILL]) * (64 * KIB - boff - size)
                assert buffer == wanted
                assert path.read_bytes() == pattern(64 * KIB)
                c.hip.hipMemset(memory + boff, 0x55, size)
            else:
                assert buffer[boff : boff + size] == b"\x55" * size
                data = pattern(64 * KIB)
                assert path.read_bytes() == data[:foff] + b"\x55" * size + data[foff + size :]


@pytest.mark.parametrize("way", ["write", "write_async"])
def test_c12_a_write_past_the_end_leaves_a_gap_of_zeros(tmp_path: Path, way: str) -> None:
    with watched() as session:
        import hipfile

        path = slab(tmp_path, 1000)
        memory, stream = device(session, 4096, 0x55), session.hip.hipStreamCreate()[1]
        with hipfile.FileHandle(path, os.O_RDWR) as file, hipfile.Buffer(memory, 4096, 0) as buffer:
            if way == "write":
                assert file.write(buffer, 100, 9000, 50) == 100
            else:
                io = file.write_async(buffer, 100, 9000, 50, stream)
                session.hip.hipStreamSynchronize(stream)
                assert io.bytes_done == 100
        assert path.read_bytes() == pattern(1000) + bytes(8000) + b"\x55" * 100


# -- C13 ---------------------------------------------------------------------------------------------------------------


@ENGINES
@pytest.mark.parametrize("way", ["write", "write_async"])
def test_c13_the_second_write_stops_at_60_percent(tmp_path: Path, way: str, engine: str) -> None:
    with watched(engine=engine, faults=[faults.on("pwrite", nth=2).short(fraction=0.6)]) as session:
        import hipfile

        memory, stream = device(session, 10_000, 0x55), session.hip.hipStreamCreate()[1]
        path = slab(tmp_path)
        with hipfile.FileHandle(path, os.O_RDWR) as file, hipfile.Buffer(memory, 10_000, 0) as buffer:
            counts = []
            for index in range(3):
                if way == "write":
                    counts.append(file.write(buffer, 10_000, index * 10_000, 0))
                else:
                    io = file.write_async(buffer, 10_000, index * 10_000, 0, stream)
                    session.hip.hipStreamSynchronize(stream)
                    counts.append(io.bytes_done)
            assert counts == [10_000, 6_000, 10_000]
        new, old = b"\x55" * 10_000, pattern(64 * KIB)
        assert path.read_bytes()[:30_000] == new + new[:6_000] + old[16_000:20_000] + new


def test_c13_one_partial_pwrite_is_made_up_for(tmp_path: Path) -> None:
    with watched(faults=[faults.on("pwrite").partial(fraction=0.6)]) as session:
        import hipfile

        memory, stream = device(session, 10_000), session.hip.hipStreamCreate()[1]
        with hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file, hipfile.Buffer(memory, 10_000, 0) as buffer:
            io = file.write_async(buffer, 10_000, 0, 0, stream)
            session.hip.hipStreamSynchronize(stream)
            assert io.bytes_done == 10_000


# -- C14 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_c14_asynchronously_enospc_and_eio_look_the_same(tmp_path: Path, profile: str, code: int) -> None:
    rule = faults.on("pwrite", nth=2).errno(code)
    with watched(profile=profile, faults=[rule]) as session:
        import hipfile

        memory, stream = device(session, 4096), session.hip.hipStreamCreate()[1]
        with hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file, hipfile.Buffer(memory, 4096, 0) as buffer:
            ios = [file.write_async(buffer, 4096, 0, 0, stream) for _ in range(2)]  # submit
            session.hip.hipStreamSynchronize(stream)
            assert [io.bytes_done for io in ios] == [4096, -1]
    finding = reported(session, "data.error-detail-lost", "# submit")
    assert errno.errorcode[code] in str(finding)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("way", ["write", "write_async"])
def test_c14_a_disk_of_64_mib(tmp_path: Path, way: str, once: bool) -> None:
    part = 24 * MIB
    with watched(faults=[faults.disk(64 * MIB, path="*.kv", once=once)]) as session:
        import hipfile

        memory, stream = device(session, part), session.hip.hipStreamCreate()[1]
        results = []
        with (
            hipfile.FileHandle(tmp_path / "a.kv", os.O_RDWR | os.O_CREAT) as file,
            hipfile.Buffer(memory, part, 0) as buffer,
        ):
            for index in range(4):
                if way == "write":
                    try:
                        results.append(file.write(buffer, part, index * part, 0))
                    except OSError as error:
                        results.append(-1000 - error.errno)
                else:
                    io = file.write_async(buffer, part, index * part, 0, stream)
                    session.hip.hipStreamSynchronize(stream)
                    results.append(io.bytes_done)
            full = -1000 - errno.ENOSPC if way == "write" else -1
            assert results == [part, part, full, part if once else full]
        os.truncate(tmp_path / "a.kv", 0)


# -- C15 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filesystem", ["ext4", "xfs", "tmpfs", "overlay", "btrfs", "nfs"])
@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_RDWR | os.O_APPEND, os.O_RDONLY])
def test_c15_the_callers_descriptor_stays_as_it_was(tmp_path: Path, filesystem: str, flags: int) -> None:
    with watched(filesystem=filesystem) as session:
        memory = device(session, 8192)
        fd = os.open(slab(tmp_path), flags)
        os.lseek(fd, 321, os.SEEK_SET)
        before = fcntl.fcntl(fd, fcntl.F_GETFL)
        status, handle = session.hipfile.hipFileHandleRegister(FileDescr(1, fd))
        assert status.err == 0
        assert session.hipfile.hipFileRead(handle, memory, 4096, 0, 0).count == 4096
        if flags != os.O_RDONLY:
            assert session.hipfile.hipFileWrite(handle, memory, 4096, 0, 0).count == 4096
        assert fcntl.fcntl(fd, fcntl.F_GETFL) == before
        assert os.lseek(fd, 0, os.SEEK_CUR) == 321
        session.hipfile.hipFileHandleDeregister(handle)
        assert fcntl.fcntl(fd, fcntl.F_GETFL) == before
        os.close(fd)


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("filesystem", ["tmpfs", "xfs,o_direct=EINVAL"])
def test_c15_direct_refused_with_einval_leaves_the_fallback(tmp_path: Path, profile: str, filesystem: str) -> None:
    for env, count in (({}, 4096), ({"HIPFILE_ALLOW_COMPAT_MODE": "false"}, -5030)):
        with watched(profile=profile, filesystem=filesystem, env=env) as session:
            memory = device(session, 8192)
            fd = os.open(slab(tmp_path), os.O_RDWR)
            status, handle = session.hipfile.hipFileHandleRegister(FileDescr(1, fd))
            assert status.err == 0
            for call in ("hipFileRead", "hipFileWrite"):
                assert getattr(session.hipfile, call)(handle, memory, 4096, 0, 0).count == count
            os.close(fd)


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("filesystem", ["fuse-no-access", "ext4,o_direct=EACCES"])
def test_c15_direct_refused_with_eacces_fails_the_registration(tmp_path: Path, profile: str, filesystem: str) -> None:
    with watched(profile=profile, filesystem=filesystem):
        import hipfile

        with pytest.raises(hipfile.HipFileException) as caught:
            hipfile.FileHandle(slab(tmp_path), os.O_RDWR).open()
        assert caught.value.hipfile_err == 5030


# -- C16 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["hipFileReadAsync", "hipFileWriteAsync"])
@pytest.mark.parametrize("direct", [False, True])
def test_c16_the_number_belongs_to_another_file_now(tmp_path: Path, call: str, direct: bool) -> None:
    mine, other = slab(tmp_path, name="mine"), slab(tmp_path, name="other", data=b"\x99" * 64 * KIB)
    with c_program(schedule="lazy", env={"HIPFILE_FORCE_COMPAT_MODE": "true"}) as c:
        handle = c.file(mine, os.O_RDWR | (os.O_DIRECT if direct else 0))
        memory, stream, slots = c.buffer(), c.stream(register=0), Slots(4096, 0, 0, 0)
        c.hip.launch(stream, lambda: None, cost_ns=SLOW)
        assert getattr(c.hipfile, call)(handle, memory, *slots.pointers, stream).err == 0  # submit
        fd = c.fds[0]
        os.close(fd)
        c.fds.append(os.open(other, os.O_RDWR))
        if c.fds[-1] == fd:
            c.fds.pop()
        else:  # a lower number was free too
            assert fcntl.fcntl(c.fds[-1], fcntl.F_DUPFD, fd) == fd
        c.hip.hipStreamSynchronize(stream)
        assert slots.bytes == 4096
        if call == "hipFileReadAsync":  # with O_DIRECT the library has a buffered descriptor of its own
            assert c.bytes_at(memory, 4096) == (pattern(4096) if direct else b"\x99" * 4096)
        else:
            written = (mine if direct else other).read_bytes()[:4096]
            assert written == bytes([FILL]) * 4096
            assert (other if direct else mine).read_bytes() == (b"\x99" * 64 * KIB if direct else pattern(64 * KIB))
    reported(c, "fd.recycled-in-flight", "# submit")


@pytest.mark.parametrize("profile", AMD)
def test_c16_closed_and_nobody_takes_the_number(tmp_path: Path, profile: str) -> None:
    with c_program(profile=profile, schedule="lazy", env={"HIPFILE_FORCE_COMPAT_MODE": "true"}) as c:
        handle, memory, stream, slots = c.file(slab(tmp_path)), c.buffer(), c.stream(register=0), Slots(4096, 0, 0, 0)
        assert c.hipfile.hipFileReadAsync(handle, memory, *slots.pointers, stream).err == 0  # submit
        os.close(c.fds.pop())
        c.hip.hipStreamSynchronize(stream)
        assert slots.bytes == -1
    reported(c, "fd.closed-in-flight", "# submit")


def test_c16_the_bindings_close_it_at_the_end_of_a_with_block(tmp_path: Path) -> None:
    with watched(schedule="lazy") as session:
        import hipfile

        memory, stream = device(session), session.hip.hipStreamCreate()[1]
        with hipfile.Buffer(memory, 4096, 0) as buffer:
            with hipfile.FileHandle(slab(tmp_path), os.O_RDONLY) as file:
                io = file.read_async(buffer, 4096, 0, 0, stream)  # submit
            session.hip.hipStreamSynchronize(stream)
            assert io.bytes_done == -1
    reported(session, "deregister.in-flight", "# submit", "hipfile.FileHandle")
