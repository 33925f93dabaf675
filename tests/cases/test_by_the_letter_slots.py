"""Cases C01 to C09, slots and results, as a user of the doubles writes them."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from hipfile_mock import fake, faults, session
from hipfile_mock.faces.slots import quarantined
from hipfile_sim.engine.errors import HostFunctionError
from hipfile_sim.observe.sanitizer import SanitizerError

from .letter import FILL, KIB, SLOW, Slots, c_program, device, pattern, quiet, reported, serious, slab, watched

AMD = ("0.2", "0.3", "0.4", "0.5")
BOTH_WAYS = pytest.mark.parametrize("way", ["read_async", "write_async"])


# -- C01 ---------------------------------------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("schedule", ["parallel", "lazy"])
def test_c01_the_handle_of_the_bindings_leaves_its_scope(tmp_path: Path, way: str, schedule: str) -> None:
    with watched(schedule=schedule) as session:
        import hipfile

        memory, stream = device(session, 4096), session.hip.hipStreamCreate()[1]
        session.hip.launch(stream, lambda: None, cost_ns=SLOW)

        def submit() -> None:
            getattr(file, way)(buffer, 4096, 0, 0, stream)  # dropped

        with (
            hipfile.Buffer(memory, 4096, 0) as buffer,
            hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file,
            hipfile.Stream(stream),
        ):
            submit()
            assert quarantined(session.machine) == 1
            others = [ctypes.create_string_buffer(b"\xee" * 32, 32) for _ in range(64)]  # somebody else's memory
            session.hip.hipStreamSynchronize(stream)
            assert all(other.raw == b"\xee" * 32 for other in others)
            assert quarantined(session.machine) == 0
    reported(session, "slot.owner-collected", "# dropped")


def test_c01_strict_mode_fails_the_run(tmp_path: Path) -> None:
    @fake()
    def program() -> None:
        import hipfile

        hip = session().hip
        memory, stream = device(session(), 4096), hip.hipStreamCreate()[1]
        with hipfile.Buffer(memory, 4096, 0) as buffer, hipfile.FileHandle(slab(tmp_path), os.O_RDONLY) as file:
            file.read_async(buffer, 4096, 0, 0, stream)  # dropped
            hip.hipStreamSynchronize(stream)

    with pytest.raises(SanitizerError, match=r"slot\.owner-collected"):
        program()


def test_c01_local_variables_of_a_hip_python_program(tmp_path: Path) -> None:
    with watched(schedule="lazy", faces=["hip_python-double"]) as session:
        from rocm.bindings import hip
        from rocm.bindings import hipfile as hf

        memory, stream = hip.hipMalloc(4096)[1], hip.hipStreamCreate()[1]
        fd = os.open(slab(tmp_path), os.O_RDONLY)
        descr = hf.hipFileDescr_t(type=hf.hipFileFileHandleType.hipFileHandleTypeOpaqueFD)
        descr.handle.fd = fd
        _, handle = hf.hipFileHandleRegister(descr)

        def submit() -> None:
            size, foff, boff, done = (ctypes.c_size_t(4096), *(ctypes.c_int64(0) for _ in range(3)))
            hf.hipFileReadAsync(handle, memory, size, foff, boff, done, stream)

        submit()
        gc.collect()
        hip.hipStreamSynchronize(stream)
        os.close(fd)
    found = [finding for finding in session.sanitizer.findings if finding.id == "slot.owner-collected"]
    assert found, session.report()
    assert all(any(site.filename == __file__ for site in finding.sites) for finding in found)


def test_c01_slots_in_pinned_memory_that_is_freed(tmp_path: Path) -> None:
    """Freeing pinned memory waits on real hardware, so nothing is lost; a host registration that ends does not."""
    with c_program(schedule="lazy") as c:
        handle, memory, stream = c.file(slab(tmp_path)), c.buffer(), c.stream()
        pinned = c.hip.hipHostMalloc(4096)[1]
        view = c.memory.view(pinned, 32).cast("q")
        view[0], view[1], view[2], view[3] = 4096, 0, 0, 0
        assert c.hipfile.hipFileReadAsync(handle, memory, pinned, pinned + 8, pinned + 16, pinned + 24, stream).err == 0
        del view
        assert c.hip.hipHostFree(pinned) == 0
        assert c.hip.hipStreamSynchronize(stream) == 0
        assert c.bytes_at(memory, 4096) == pattern(4096)


# -- C02 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [*AMD, "cufile"])
@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("call", ["hipFileReadAsync", "hipFileWriteAsync"])
def test_c02_null_slot_leaves_errno(tmp_path: Path, profile: str, which: int, call: str) -> None:
    folder = Path("/var/tmp") if profile == "cufile" else tmp_path
    with c_program(profile=profile) as c:
        path = folder / f"c02-{os.getpid()}"
        path.write_bytes(pattern(4096))
        handle = c.file(path)
        path.unlink()
        memory, stream, slots = c.buffer(), c.stream(), Slots(4096, 0, 0, 77)
        pointers = list(slots.pointers)
        pointers[which] = 0
        ctypes.set_errno(13)
        assert getattr(c.hipfile, call)(handle, memory, *pointers, stream).err == 5022
        assert ctypes.get_errno() == 13
        # cuFile, measured: the refusal is told in the result slot too, where there is one
        assert slots.bytes == (-22 if profile == "cufile" and which < 3 else 77)


# -- C03 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("call", ["hipFileReadAsync", "hipFileWriteAsync"])
@pytest.mark.parametrize("flags", [None, 0, 7, 15])
def test_c03_size_beyond_the_buffer_is_refused_at_submit(
    tmp_path: Path, profile: str, call: str, flags: int | None
) -> None:
    with c_program(profile=profile) as c:
        handle, memory, stream = c.file(slab(tmp_path)), c.buffer(8192), c.stream(register=flags)
        slots = Slots(8192 + 4096, 0, 0, 77)
        assert getattr(c.hipfile, call)(handle, memory, *slots.pointers, stream).err == 5022
        assert slots.bytes == 77
        assert c.hip.hipStreamSynchronize(stream) == 0
        assert slots.bytes == 77


@pytest.mark.parametrize("call", ["hipFileReadAsync", "hipFileWriteAsync"])
@pytest.mark.parametrize("flags", [0, 7])
def test_c03_cufile_says_so_late(call: str, flags: int) -> None:
    with c_program(profile="cufile") as c:
        path = Path(f"/var/tmp/c03-{os.getpid()}")
        path.write_bytes(pattern(64 * KIB))
        handle, memory, stream = c.file(path), c.buffer(8192), c.stream(register=flags)
        path.unlink()
        slots = Slots(8192 + 4096, 0, 0, 77)
        assert getattr(c.hipfile, call)(handle, memory, *slots.pointers, stream).err == 0
        assert c.hip.hipStreamSynchronize(stream) == 0
        assert slots.bytes == -5016


# -- C04 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "count"), [*((name, 4096) for name in AMD), ("cufile", 0)])
@BOTH_WAYS
def test_c04_size_set_to_0_behind_the_fixed_flag(profile: str, count: int, way: str) -> None:
    with watched(profile=profile, schedule="lazy") as session:
        import hipfile

        path = Path(f"/var/tmp/c04-{os.getpid()}")
        path.write_bytes(pattern(8192))
        memory, stream = device(session, 8192), session.hip.hipStreamCreate()[1]
        with (
            hipfile.FileHandle(path, os.O_RDWR) as file,
            hipfile.Buffer(memory, 8192, 0) as buffer,
            hipfile.Stream(stream, 7),
        ):
            path.unlink()
            io = getattr(file, way)(buffer, 4096, 0, 0, stream)
            io.size = 0
            session.hip.hipStreamSynchronize(stream)
            assert io.bytes_done == count
    reported(session, "slot.changed-behind-fixed-flag", "getattr(file, way)", "io.size = 0")


@pytest.mark.parametrize("slot", ["file_offset", "buffer_offset"])
def test_c04_an_offset_behind_its_flag_alone(tmp_path: Path, slot: str) -> None:
    flag = {"buffer_offset": 1, "file_offset": 2}[slot]
    with watched(schedule="lazy") as session:
        import hipfile

        memory, stream = device(session, 8192), session.hip.hipStreamCreate()[1]
        with (
            hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file,
            hipfile.Buffer(memory, 8192, 0) as buffer,
            hipfile.Stream(stream, flag),
        ):
            io = file.read_async(buffer, 4096, 0, 0, stream)
            setattr(io, slot, 4096)
            session.hip.hipStreamSynchronize(stream)
            assert io.bytes_done == 4096
            assert bytes(session.memory.view(memory, 4096)) == pattern(4096)  # as at submit
    reported(session, "slot.changed-behind-fixed-flag", "read_async", "setattr(io, slot, 4096)")


def test_c04_changed_by_c_code_that_nobody_sees(tmp_path: Path) -> None:
    with c_program(schedule="lazy") as c:
        handle, memory, stream, slots = c.file(slab(tmp_path)), c.buffer(), c.stream(register=7), Slots(4096, 0, 0, 0)
        assert c.hipfile.hipFileReadAsync(handle, memory, *slots.pointers, stream).err == 0
        slots.size = 0
        c.hip.hipStreamSynchronize(stream)
        assert slots.bytes == 4096
    reported(c, "slot.changed-behind-fixed-flag", "hipFileReadAsync")


# -- C05 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", AMD)
def test_c05_one_struct_of_slots_for_two_submits(tmp_path: Path, profile: str) -> None:
    with c_program(profile=profile, schedule="lazy") as c:
        handle, memory, stream, slots = c.file(slab(tmp_path)), c.buffer(), c.stream(), Slots(4096, 0, 0, 0)
        assert c.hipfile.hipFileReadAsync(handle, memory, *slots.pointers, stream).err == 0  # first
        slots.size, slots.file_offset, slots.buffer_offset = 2048, 8192, 16384
        assert c.hipfile.hipFileReadAsync(handle, memory, *slots.pointers, stream).err == 0  # second
        c.hip.hipStreamSynchronize(stream)
        assert slots.bytes == 2048
        assert c.bytes_at(memory, 4096) == bytes([FILL]) * 4096  # the first operation went where the second goes
        assert c.bytes_at(memory + 16384, 2048) == pattern(2048, 8192)
    reported(c, "slot.reused", "# first", "# second")


def test_c05_a_handle_of_the_bindings_is_filled_again(tmp_path: Path) -> None:
    with watched(schedule="lazy") as session:
        import hipfile
        from hipfile import _hipfile

        memory, stream = device(session, 16384), session.hip.hipStreamCreate()[1]
        with hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file, hipfile.Buffer(memory, 16384, 0) as buffer:
            io = file.read_async(buffer, 4096, 0, 0, stream)
            io.file_offset = 4096
            assert _hipfile.hipFileReadAsync(file.handle, buffer.ptr, io, stream) == (0, 0)
            session.hip.hipStreamSynchronize(stream)
            assert bytes(session.memory.view(memory, 4096)) == pattern(4096, 4096)
    reported(session, "slot.reused", "file.read_async", "_hipfile.hipFileReadAsync")


# -- C06 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.torch
@BOTH_WAYS
@pytest.mark.parametrize("schedule", ["parallel", "lazy", "eager"])
def test_c06_count_read_early_twice(tmp_path: Path, way: str, schedule: str) -> None:
    with watched(schedule=schedule) as session:
        import hipfile
        import torch

        side = torch.cuda.Stream()
        tensor = torch.zeros(4096, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        with (
            hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file,
            hipfile.Buffer(tensor.data_ptr(), 4096, 0) as buffer,
            hipfile.Stream(side.cuda_stream),
        ):
            io = getattr(file, way)(buffer, 4096, 0, 0, side.cuda_stream)
            done = torch.cuda.Event()
            done.record(side)
            _ = io.bytes_done  # right after submit
            torch.cuda.current_stream().wait_event(done)
            _ = io.bytes_done  # after a wait of another stream
            done.synchronize()
            assert io.bytes_done == 4096  # fine
    early = [finding for finding in session.sanitizer.findings if finding.id == "result.early-read"]
    text = session.report()
    assert len(early) == 2, text
    assert all(len(finding.sites) == 2 for finding in early), text
    assert serious(session) == ["result.early-read"] * 2, text


@pytest.mark.torch
@pytest.mark.parametrize("wait", ["stream", "device", "query"])
def test_c06_other_ways_to_wait_are_fine(tmp_path: Path, wait: str) -> None:
    with watched() as session:
        import hipfile
        import torch

        side = torch.cuda.Stream()
        tensor = torch.zeros(4096, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        with (
            hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file,
            hipfile.Buffer(tensor.data_ptr(), 4096, 0) as buffer,
        ):
            io = file.read_async(buffer, 4096, 0, 0, side.cuda_stream)
            if wait == "stream":
                side.synchronize()
            elif wait == "device":
                torch.cuda.synchronize()
            else:
                while not side.query():
                    pass
            assert io.bytes_done == 4096
    quiet(session)


# -- C07 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-5022, -1, -5])
@pytest.mark.parametrize("way", ["read", "write"])
@pytest.mark.parametrize("engine", ["steps", "threads"])
def test_c07_any_operation_can_fail_late_and_only_there(tmp_path: Path, value: int, way: str, engine: str) -> None:
    with watched(engine=engine, faults=[faults.on(way, nth=2).result(value)]) as session:
        import hipfile

        memory, stream = device(session, 4096), session.hip.hipStreamCreate()[1]
        with hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file, hipfile.Buffer(memory, 4096, 0) as buffer:
            ios = [getattr(file, f"{way}_async")(buffer, 4096, 0, 0, stream) for _ in range(3)]
            assert session.hip.hipStreamSynchronize(stream) == 0
            assert [io.bytes_done for io in ios] == [4096, value, 4096]


# -- C08 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["read", "write"])
def test_c08_one_operation_too_many(tmp_path: Path, way: str) -> None:
    limit = 4
    with watched(faults=[faults.queue_limit(limit)], schedule="lazy") as session:
        import hipfile

        memory, stream = device(session, 4096), session.hip.hipStreamCreate()[1]
        with hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file, hipfile.Buffer(memory, 4096, 0) as buffer:
            ios = [getattr(file, f"{way}_async")(buffer, 4096, 0, 0, stream) for _ in range(limit + 1)]
            session.hip.hipStreamSynchronize(stream)
            counts = [io.bytes_done for io in ios]
            assert counts[:limit] == [4096] * limit
            assert counts[limit] < 0
            again = getattr(file, f"{way}_async")(buffer, 4096, 0, 0, stream)
            session.hip.hipStreamSynchronize(stream)
            assert again.bytes_done == 4096


@pytest.mark.parametrize("way", ["read", "write"])
def test_c08_beyond_a_size_one_page_short(tmp_path: Path, way: str) -> None:
    with watched(faults=[faults.size_limit(16 * KIB)]) as session:
        import hipfile

        memory, stream = device(session, 64 * KIB), session.hip.hipStreamCreate()[1]
        with hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file, hipfile.Buffer(memory, 64 * KIB, 0) as buffer:
            fits = getattr(file, f"{way}_async")(buffer, 16 * KIB, 0, 0, stream)
            over = getattr(file, f"{way}_async")(buffer, 32 * KIB, 0, 0, stream)
            session.hip.hipStreamSynchronize(stream)
            assert fits.bytes_done == 16 * KIB
            assert over.bytes_done == 32 * KIB - 4096


# -- C09 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("engine", ["steps", "threads"])
@pytest.mark.parametrize("call", ["hipFileReadAsync", "hipFileWriteAsync"])
def test_c09_a_host_function_behind_it_sees_the_count(tmp_path: Path, profile: str, engine: str, call: str) -> None:
    with c_program(profile=profile, engine=engine) as c:
        handle, memory, stream, slots = c.file(slab(tmp_path)), c.buffer(), c.stream(), Slots(4096, 0, 0, 0)
        seen: list[int] = []
        assert getattr(c.hipfile, call)(handle, memory, *slots.pointers, stream).err == 0
        assert c.hip.hipLaunchHostFunc(stream, lambda _: seen.append(slots.bytes)) == 0
        assert c.hip.hipStreamSynchronize(stream) == 0
        assert seen == [4096]
    quiet(c)


@pytest.mark.parametrize("engine", ["steps", "threads"])
@pytest.mark.parametrize("add", ["hipLaunchHostFunc", "hipStreamAddCallback"])
def test_c09_an_exception_in_a_host_function_is_fatal_and_clear(engine: str, add: str) -> None:
    def callback(*_: Any) -> None:
        raise KeyError("block 7")

    with c_program(engine=engine) as c:
        stream = c.stream()

        def launch_and_wait() -> None:  # on real threads the function may have run before the first call is over
            getattr(c.hip, add)(stream, callback)
            c.hip.hipStreamSynchronize(stream)

        with pytest.raises(HostFunctionError, match=r"callback.*block 7|block 7"):
            launch_and_wait()


def test_c09_through_the_bindings_a_bytes_done_in_the_host_function(tmp_path: Path) -> None:
    with watched() as session:
        import hipfile

        memory, stream = device(session, 4096), session.hip.hipStreamCreate()[1]
        seen: list[int] = []
        with hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file, hipfile.Buffer(memory, 4096, 0) as buffer:
            io = file.read_async(buffer, 4096, 0, 0, stream)
            session.hip.hipLaunchHostFunc(stream, lambda _: seen.append(io.bytes_done))
            session.hip.hipStreamSynchronize(stream)
        assert seen == [4096]
    quiet(session)
    assert errno.EIO == 5  # the value -5 of C07 is what a caller may take for -EIO
