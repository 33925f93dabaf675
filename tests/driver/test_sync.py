"""Synchronous reads and writes: codes, chunks, faults."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from hipfile_driver_rig import AMD, CHUNK, EINTR, EIO, ENOSPC, G1, error, pattern

from hipfile_sim.driver.codes import IOResult
from hipfile_sim.hip.codes import HipError

amd = pytest.mark.parametrize("profile", AMD)
both = pytest.mark.parametrize("write", [False, True], ids=["read", "write"])


def _io(rig: Any, write: bool) -> Any:
    return rig.f.hipFileWrite if write else rig.f.hipFileRead


@amd
def test_lookup_order(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))
    host = rig.hip.hipHostMalloc(64)[1]
    for call in (rig.f.hipFileRead, rig.f.hipFileWrite):
        assert call(handle + 1, host, 64, -1, -1) == IOResult(-5027)  # the file before the buffer
        assert call(0, 0, 0, 0, 0) == IOResult(-5027)
        assert call(handle, host, 64, -1, -1) == IOResult(-5013)  # the buffer before offsets
    rig.f.hipFileDriverClose()
    assert rig.f.hipFileRead(handle, host, 64, -1, -1) == IOResult(-1, errno.EINVAL)


@amd
@both
@pytest.mark.parametrize(("file_offset", "buffer_offset"), [(-1, 0), (0, -1), (-5, -5), (-(2**63), 0)])
def test_negative_offsets(make_rig: Any, profile: str, write: bool, file_offset: int, buffer_offset: int) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))
    early = profile in ("0.4", "0.5")
    expected = IOResult(-1, errno.EINVAL) if early else IOResult(-5022)
    assert _io(rig, write)(handle, rig.buffer(64), 8, file_offset, buffer_offset) == expected


@amd
@both
def test_negative_offset_without_the_fallback(make_rig: Any, profile: str, write: bool) -> None:
    rig = make_rig(profile, env={"HIPFILE_ALLOW_COMPAT_MODE": "false"})
    _, handle = rig.file(pattern(64))
    expected = IOResult(-1, errno.EINVAL) if profile in ("0.4", "0.5") else IOResult(-5030)
    assert _io(rig, write)(handle, rig.buffer(64), 8, -1, 0) == expected
    assert _io(rig, write)(handle, rig.buffer(64), 8, 0, 0) == IOResult(-5030)  # every backend refuses


@amd
@both
def test_force_without_allow(make_rig: Any, profile: str, write: bool, capfd: pytest.CaptureFixture[str]) -> None:
    rig = make_rig(profile, env={"HIPFILE_ALLOW_COMPAT_MODE": "false", "HIPFILE_FORCE_COMPAT_MODE": "true"})
    _, handle = rig.file(pattern(64))
    expected = IOResult(64) if profile in ("0.4", "0.5") else IOResult(-5030)
    assert _io(rig, write)(handle, rig.buffer(64), 64, 0, 0) == expected
    capfd.readouterr()


@amd
@both
@pytest.mark.parametrize(("size", "buffer_offset"), [(65, 0), (1, 64), (0, 64), (2, 63), (2**64 - 1, 0), (-1, 0)])
def test_range(make_rig: Any, profile: str, write: bool, size: int, buffer_offset: int) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))
    assert _io(rig, write)(handle, rig.buffer(64), size, 0, buffer_offset) == IOResult(-5022)


@amd
def test_bytes_and_neighbours(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    data = pattern(5000, 3)
    fd, handle = rig.file(data)
    pointer = rig.buffer(8192, b"\xaa" * 8192)
    assert rig.f.hipFileRead(handle, pointer, 1000, 77, 501) == IOResult(1000)
    assert rig.peek(pointer, 8192) == b"\xaa" * 501 + data[77:1077] + b"\xaa" * (8192 - 1501)
    assert rig.f.hipFileRead(handle, pointer, 4096, 4000, 0) == IOResult(1000)  # the file ends
    assert rig.f.hipFileRead(handle, pointer, 4096, 5000, 0) == IOResult(0)
    assert rig.f.hipFileRead(handle, pointer, 0, 0, 0) == IOResult(0)
    rig.poke(pointer, pattern(8192, 5))
    assert rig.f.hipFileWrite(handle, pointer, 100, 6000, 4000) == IOResult(100)
    assert os.pread(fd, 9999, 0) == data + bytes(1000) + pattern(8192, 5)[4000:4100]


@amd
@both
def test_several_chunks(make_rig: Any, profile: str, write: bool) -> None:
    rig = make_rig(profile)
    size = 2 * CHUNK + 513
    data = pattern(size, 4)
    fd, handle = rig.file(b"" if write else data)
    pointer = rig.buffer(size, data if write else bytes(size))
    assert _io(rig, write)(handle, pointer, size, 0, 0) == IOResult(size)
    sizes = [entry[2] for entry in rig.files.log if entry[0] in ("pread", "pwrite")]
    assert sizes == [CHUNK, CHUNK, 513]
    assert (os.pread(fd, size, 0) if write else rig.peek(pointer, size)) == data
    assert [e[0] for e in rig.files.log] == (["pwrite", "fdatasync"] * 3 if write else ["pread"] * 3)


@amd
@both
def test_short_transfers_go_on_until_nothing_moves(make_rig: Any, profile: str, write: bool) -> None:
    rig = make_rig(profile)
    data = pattern(16384, 6)
    fd, handle = rig.file(b"" if write else data)
    pointer = rig.buffer(16384, data if write else bytes(16384))
    faults = rig.files.writes if write else rig.files.reads
    faults += [4096, EINTR, 100, EINTR, EINTR, 0]
    assert _io(rig, write)(handle, pointer, 16384, 0, 0) == IOResult(4196)
    assert (os.pread(fd, 16384, 0) if write else rig.peek(pointer, 4196)) == data[:4196]
    assert not faults
    syncs = sum(entry[0] == "fdatasync" for entry in rig.files.log)
    assert syncs == (3 if write else 0)  # after 4096, after 100, after 0


@amd
@both
def test_size_zero(make_rig: Any, profile: str, write: bool) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))
    pointer = rig.buffer(64)
    faults = rig.files.writes if write else rig.files.reads
    assert _io(rig, write)(handle, pointer, 0, 0, 63) == IOResult(0)
    assert [e[0] for e in rig.files.log] == (["pwrite", "fdatasync"] if write else ["pread"])
    faults += [EINTR]
    assert _io(rig, write)(handle, pointer, 0, 0, 0) == IOResult(0)  # interrupted: it just ends
    assert not faults
    faults += [EIO]
    assert _io(rig, write)(handle, pointer, 0, 0, 0) == IOResult(-1, errno.EIO)


@amd
@both
@pytest.mark.parametrize("fault", [EIO, ENOSPC, -errno.EBADF])
def test_errors_lose_what_was_moved(make_rig: Any, profile: str, write: bool, fault: int) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))
    faults = rig.files.writes if write else rig.files.reads
    faults += [16, fault]
    assert _io(rig, write)(handle, rig.buffer(64), 64, 0, 0) == IOResult(-1, -fault)


@amd
def test_failed_sync_fails_a_write_that_was_written(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    fd, handle = rig.file()
    rig.files.syncs += [errno.EIO]
    assert rig.f.hipFileWrite(handle, rig.buffer(64, b"w" * 64), 64, 0, 0) == IOResult(-1, errno.EIO)
    assert os.pread(fd, 64, 0) == b"w" * 64


@amd
@both
@pytest.mark.parametrize("code", [HipError.hipErrorInvalidValue, HipError.hipErrorUnknown])
def test_hip_errors_come_out_raw(make_rig: Any, profile: str, write: bool, code: HipError) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))
    pointer = rig.buffer(64)
    rig.fail_hip("hipMemcpy", code)
    assert _io(rig, write)(handle, pointer, 64, 0, 0) == IOResult(-int(code))


@amd
def test_null_stream_synchronise_may_fail(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    fd, handle = rig.file()
    pointer = rig.buffer(64)
    rig.fail_hip("hipStreamSynchronize", HipError.hipErrorLaunchFailure)
    assert rig.f.hipFileWrite(handle, pointer, 64, 0, 0) == IOResult(-719)
    assert os.fstat(fd).st_size == 0


@amd
def test_no_host_buffer(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))

    def allocate(size: int) -> Any:
        assert size == CHUNK
        raise OSError(errno.ENOMEM, "no memory")

    rig.f.fallback.allocate = allocate
    assert rig.f.hipFileRead(handle, rig.buffer(64), 1, 0, 0) == IOResult(-1, errno.ENOMEM)


@amd
@both
def test_access_mode_of_the_descriptor(make_rig: Any, profile: str, write: bool) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64), os.O_RDONLY if write else os.O_WRONLY)
    assert _io(rig, write)(handle, rig.buffer(64), 64, 0, 0) == IOResult(-1, errno.EBADF)


@amd
def test_current_device(make_rig: Any, profile: str) -> None:
    """0.5 makes the buffer's device current while it copies, and restores the caller's."""
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))
    pointer = rig.buffer(64, device=1)
    seen = []
    copy = type(rig.hip).hipMemcpy

    class Watch:
        def __call__(self, *args: Any) -> Any:
            seen.append(rig.hip.hipGetDevice()[1])
            return copy(rig.hip, *args)

    rig.hip.hipMemcpy = Watch()
    assert rig.f.hipFileRead(handle, pointer, 64, 0, 0) == IOResult(64)
    assert rig.f.hipFileWrite(handle, pointer, 64, 0, 0) == IOResult(64)
    assert seen == ([0, 0] if profile in G1 else [1, 1])
    assert rig.hip.hipGetDevice()[1] == 0


@amd
def test_order_with_streams(make_rig: Any, profile: str) -> None:
    """The copies are plain ones: they wait for blocking streams and not for others."""
    rig = make_rig(profile)
    fd, handle = rig.file()
    pointer = rig.buffer(64, b"o" * 64)
    blocking, other = rig.stream(None, blocking=True), rig.stream(None)
    rig.hip.hipMemsetAsync(pointer, ord("n"), 32, blocking)
    rig.hip.hipMemsetAsync(pointer + 32, ord("n"), 32, other)
    assert rig.f.hipFileWrite(handle, pointer, 64, 0, 0) == IOResult(64)
    assert os.pread(fd, 64, 0) == b"n" * 32 + b"o" * 32


@amd
def test_caller_keeps_flags_and_position(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    fd, handle = rig.file(pattern(64))
    os.lseek(fd, 7, os.SEEK_SET)
    flags = os.get_inheritable(fd)
    rig.f.hipFileRead(handle, rig.buffer(64), 64, 0, 0)
    rig.f.hipFileWrite(handle, rig.memory(64), 64, 0, 0)
    assert os.lseek(fd, 0, os.SEEK_CUR) == 7
    assert os.get_inheritable(fd) == flags


def test_clamp_comes_before_the_range_check(make_rig: Any) -> None:
    """A size above MAX_RW_COUNT on a buffer of exactly that many bytes is in range; the file's end stops it."""
    rig = make_rig("0.5")
    _, handle = rig.file(pattern(64))
    pointer = rig.hip.hipMalloc(0x7FFFF000)[1]
    assert rig.f.hipFileRead(handle, pointer, 2**40, 0, 0) == IOResult(64)
    assert rig.f.hipFileRead(handle, pointer, 2**40, 0, 1) == IOResult(-5022)
    assert error(rig.f.hipFileBufRegister(pointer, 0x7FFFEFFF, 0)) == "Success"
    assert rig.f.hipFileRead(handle, pointer, 2**40, 0, 0) == IOResult(-5022)
