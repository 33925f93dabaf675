"""The programmable double: answers, late results, recorded calls."""

from __future__ import annotations

import errno
import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import hipfile_mock
from hipfile_mock import current

PTR = 0x10_0000


@pytest.fixture
def lib() -> Any:
    with hipfile_mock.stub() as made:
        yield made


def open_file(path: str = "/nowhere/slab.bin") -> Any:
    import hipfile

    file = hipfile.FileHandle(path, os.O_RDWR)
    file.open()
    return file


def buffer(length: int = 4096) -> Any:
    import hipfile

    return hipfile.Buffer(PTR, length, 0)


def test_defaults_are_success_and_no_file_is_touched(lib: Any) -> None:
    import hipfile

    with hipfile.Driver() as driver, hipfile.FileHandle("/nowhere/at/all", os.O_RDONLY) as file, buffer() as memory:
        assert driver.use_count() == 1
        assert file.read(memory, 4096, 0, 0) == 4096
        assert file.write(memory, 100, 8, 16) == 100
    assert hipfile.Driver.use_count() == 0
    assert [call.name for call in lib.calls] == [
        "hipFileDriverOpen",
        "hipFileHandleRegister",
        "hipFileBufRegister",
        "hipFileUseCount",
        "hipFileRead",
        "hipFileWrite",
        "hipFileBufDeregister",
        "hipFileHandleDeregister",
        "hipFileDriverClose",
        "hipFileUseCount",
    ]
    lib.write.assert_called(times=1, ptr=PTR, size=100, file_offset=8, buffer_offset=16)


def test_one_answer_stands_several_are_in_order(lib: Any) -> None:
    file, memory = open_file(), buffer()
    lib.read.returns(7)
    assert [file.read(memory, 64, 0, 0) for _ in range(3)] == [7, 7, 7]
    lib.read.returns(64, 10, 0)
    assert [file.read(memory, 64, 0, 0) for _ in range(3)] == [64, 10, 0]
    with pytest.raises(AssertionError, match="only"):
        file.read(memory, 64, 0, 0)
    file.close()


def test_answers_that_nobody_asked_for_fail_the_test() -> None:
    with pytest.raises(AssertionError, match="hipFileWrite: 2"), hipfile_mock.stub() as lib:
        lib.write.returns(1, 2)
    with hipfile_mock.stub(strict=False) as lib:
        lib.write.returns(1, 2)


def test_errors_of_the_system_of_hipfile_and_of_hip(lib: Any) -> None:
    import hipfile

    file, memory = open_file(), buffer()
    lib.read.fails(errno.EIO)
    with pytest.raises(OSError) as caught:
        file.read(memory, 64, 0, 0)
    assert caught.value.errno == errno.EIO
    lib.read.fails(hipfile.OpError.INVALID_VALUE)
    with pytest.raises(hipfile.HipFileException) as failed:
        file.read(memory, 64, 0, 0)
    assert (failed.value.hipfile_err, failed.value.hip_err) == (5022, 0)
    lib.write.fails(hipfile.OpError.HIP_DRIVER_ERROR, 700)
    with pytest.raises(hipfile.HipFileException) as failed:
        file.write(memory, 64, 0, 0)
    assert (failed.value.hipfile_err, failed.value.hip_err) == (5011, 700)
    lib.register_buffer.fails(5013)
    with pytest.raises(hipfile.HipFileException, match="5013"):
        memory.register()
    lib.register_file.fails(5030)
    with pytest.raises(hipfile.HipFileException, match="5030"):
        open_file()
    file.close()


def test_late_results(lib: Any) -> None:
    file, memory = open_file(), buffer()
    first = file.read_async(memory, 100, 0, 0, 7)
    second = file.read_async(memory, 200, 0, 0, 7)
    other = file.write_async(memory, 300, 0, 0, 8)
    assert [io.bytes_done for io in (first, second, other)] == [0, 0, 0]
    assert [op.name for op in lib.pending] == ["hipFileReadAsync", "hipFileReadAsync", "hipFileWriteAsync"]
    with pytest.raises(ValueError, match="in order"):
        lib.complete(second)
    lib.complete(other, -5022)
    lib.complete()
    second.size = 50
    lib.complete(second)
    assert [io.bytes_done for io in (first, second, other)] == [100, 50, -5022]
    with pytest.raises(LookupError):
        lib.complete()
    file.close()


def test_programmed_late_result_and_refused_submission(lib: Any) -> None:
    import hipfile

    file, memory = open_file(), buffer()
    lib.read_async.returns(-1)
    io = file.read_async(memory, 100, 0, 0, 0)
    lib.complete_all()
    assert io.bytes_done == -1
    lib.read_async.fails(5022)
    with pytest.raises(hipfile.HipFileException, match="5022"):
        file.read_async(memory, 100, 0, 0, 0)
    assert not lib.pending
    file.close()


def test_late_result_of_a_dropped_handle_lands_in_quarantine(lib: Any) -> None:
    from hipfile_mock.faces.slots import quarantined

    file, memory = open_file(), buffer()
    io = file.read_async(memory, 100, 0, 0, 7)
    del io
    gc.collect()
    assert quarantined(lib) == 1
    lib.complete()
    assert quarantined(lib) == 0
    file.close()


def test_does_calls_a_function_with_the_arguments(lib: Any) -> None:
    seen: list[int] = []

    def read(size: int, file_offset: int, **_: Any) -> int:
        seen.append(file_offset)
        return size // 2

    lib.read.does(read)
    file = open_file()
    assert file.read(buffer(), 64, 4096, 0) == 32
    assert seen == [4096]
    file.close()


def test_real_files_on_request(tmp_path: Path) -> None:
    with hipfile_mock.stub(files=True):
        with pytest.raises(FileNotFoundError):
            open_file(str(tmp_path / "missing"))
        (tmp_path / "there").write_bytes(b"x")
        file = open_file(str(tmp_path / "there"))
        assert os.fstat(file._fd).st_size == 1
        file.close()


def test_what_it_does_not_have_is_said(lib: Any) -> None:
    with pytest.raises(AttributeError, match=r"did you mean read.* It has"):
        _ = lib.reed
    with pytest.raises(AttributeError, match=r"hipfile_mock\.fake"):
        current.get().hip.hipStreamCreate()
    with pytest.raises(AssertionError, match="saw 0"):
        lib.read.assert_called()


def test_everything_is_undone() -> None:
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "hipfile"}

    @hipfile_mock.stub()
    def body() -> int:
        file = open_file()
        number = int(file._fd)
        file.close()
        return number

    assert body() >= 1 << 20
    assert {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "hipfile"} == before
    assert current.depth() == 0
