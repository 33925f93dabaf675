"""What is used after its fake has ended says so; what only goes away then goes quietly."""

from __future__ import annotations

import gc
import os

import pytest

import hipfile_mock
from hipfile_mock import current, faults
from hipfile_sim.engine import MachineClosedError
from hipfile_sim.hip import HipError

LAST = r"(was current until|closed at) .*test_after_the_end\.py:\d+ in "


@pytest.fixture
def slab(tmp_path):
    path = tmp_path / "slab"
    path.write_bytes(bytes(8192))
    return str(path)


def test_a_session(slab):
    with hipfile_mock.fake() as session:
        _, stream = session.hip.hipStreamCreate()
        _, pointer = session.hip.hipMalloc(64)
    assert session.hip.hipMalloc(64) == (HipError.hipErrorDeinitialized, 0)
    assert session.hipfile.hipFileDriverOpen().err == 5001
    for late in (
        session.finish,
        lambda: session.stall(stream),
        lambda: session.memory.view(pointer, 64),
        lambda: faults.stall(stream).attach(session.machine),
    ):
        with pytest.raises(MachineClosedError, match=r"closed at .*test_after_the_end\.py:\d+ in test_a_session"):
            late()
    assert session.token()
    assert "leak.stream" in session.report()
    assert session.recorder.find_calls("hipMalloc")


def test_a_face_names_the_machine_that_ended(slab):
    with hipfile_mock.fake(devices=3, strict=False, faces=["hipfile", "hip_python-double"]):
        import hipfile
        from hip import hip
        from hipfile.hipMalloc import hipMalloc

        file = hipfile.FileHandle(slab, os.O_RDONLY)
        file.open()
    buffer = hipfile.Buffer(4096, 4096, 0)
    for late in (
        hipfile.Driver().open,
        buffer.register,
        hipfile.Stream(64).register,
        lambda: file.read(buffer, 4096, 0, 0),
        lambda: file.read_async(buffer, 4096, 0, 0, 0),
        lambda: hipMalloc(64),
        lambda: hip.hipMalloc(64),
    ):
        with pytest.raises(current.NoMachineError, match=f"3 devices.*{LAST}test_a_face_names"):
            late()
    file.close()  # the descriptor is the program's own
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file._fd if file._fd is not None else -1)


def test_a_machine_that_is_closed_while_it_is_current():
    with hipfile_mock.fake(strict=False) as session:
        import hipfile

        session.machine.close()
        with pytest.raises(current.NoMachineError, match=r"Driver.*closed at .*test_after_the_end"):
            hipfile.Driver().open()


@pytest.mark.parametrize("module", ["hipfile", "rocm.hipfile"])
def test_a_file_of_another_machine_reads_nothing_of_this_one(slab, module):
    faces = ["hipfile", "hip_python-double"]
    with hipfile_mock.fake(strict=False, faces=faces):
        import importlib

        package = importlib.import_module(module)
        outer = package.FileHandle(slab, os.O_RDONLY)
        outer.open()
        with hipfile_mock.fake(strict=False, faces=faces) as inner:
            pointer = inner.hip.hipMalloc(4096)[1]
            buffer = package.Buffer(pointer, 4096, 0)
            with pytest.raises(current.CurrentMachineError, match=r"the FileHandle of .*slab.* belongs to"):
                outer.read(buffer, 4096, 0, 0)
            with pytest.raises(current.CurrentMachineError, match="belongs to"):
                outer.write(buffer, 4096, 0, 0)
        outer.close()
    with hipfile_mock.fake(strict=False, faces=faces):
        old = package.FileHandle(slab, os.O_RDONLY)
        old.open()
    fresh = hipfile_mock.fake(strict=False, faces=faces)
    with fresh, pytest.raises(current.NoMachineError, match=r"has ended|is gone"):
        old.read(buffer, 4096, 0, 0)


@pytest.mark.parametrize("engine", ["steps", "threads"])
@pytest.mark.parametrize("closed_by", ["the end of the block", "hand"])
def test_what_is_left_goes_quietly(slab, engine, closed_by, capfd, recwarn):
    """Handles, buffers, streams, operations in flight, at the latest when the process ends."""
    with hipfile_mock.fake(engine=engine, strict=False) as session:
        import hipfile

        _, stream = session.hip.hipStreamCreate()
        _, pointer = session.hip.hipMalloc(4096)
        file, buffer = hipfile.FileHandle(slab, os.O_RDONLY), hipfile.Buffer(pointer, 4096, 0)
        file.open()
        buffer.register()
        registered = hipfile.Stream(stream)
        registered.register()
        session.stall(stream, hold=True)
        io = file.read_async(buffer, 4096, 0, 0, stream)
        if closed_by == "hand":
            session.machine.close()
            del file, buffer, registered, io
            gc.collect()
    if closed_by != "hand":
        assert io.bytes_done == 0  # the slot is the program's own memory
        del file, buffer, registered, io
        gc.collect()
    assert capfd.readouterr().err == ""
    assert not recwarn.list


def test_a_stub(slab):
    with hipfile_mock.stub() as lib:
        import hipfile

        with hipfile.FileHandle(slab, 0) as file:
            io = file.read_async(hipfile.Buffer(64, 64, 0), 64, 0, 0, 7)
    where = r"ended at .*test_after_the_end\.py:\d+ in test_a_stub"
    with pytest.raises(current.NoMachineError, match=where):
        lib.complete(io)
    with pytest.raises(current.NoMachineError, match=where):
        lib.hipfile.hipFileDriverOpen()
    with pytest.raises(current.NoMachineError, match="<stub>, was current until"):
        hipfile.Driver().open()
    lib.read_async.assert_called(times=1)  # what it saw can be looked at
    with lib:  # and used again
        hipfile.Driver().open()
