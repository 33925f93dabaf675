"""Cases C17 to C24, order, as a user of the doubles writes them."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import pytest

from hipfile_mock import faults
from hipfile_sim import explore
from hipfile_sim.hip.settings import HipSettings

from .letter import D2H, FILL, H2D, SLOW, C, Slots, c_program, device, pattern, quiet, reported, slab, watched

SIZE = 4096
NEW = b"\x77" * SIZE
ENGINES = pytest.mark.parametrize("engine", ["steps", "threads"])


def kernel(c: C, stream: int, block: int, *, write: bool, name: str, seen: list[bytes] | None = None) -> None:
    """A slow kernel that writes `NEW`, or reads the block into `seen`."""

    def run() -> None:
        if write:
            c.memory.view(block, SIZE)[:] = NEW
        elif seen is not None:
            seen.append(c.bytes_at(block, SIZE))

    touched = [(block, SIZE)]
    c.hip.launch(stream, run, [] if write else touched, touched if write else [], cost_ns=SLOW, name=name)


def after(c: C, stream: int, other: int) -> None:
    event = c.event()
    c.hip.hipEventRecord(event, other)
    c.hip.hipStreamWaitEvent(stream, event, 0)


# -- C17, C18, C24 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["0.2", "0.3", "0.4", "0.5"])
@pytest.mark.parametrize("ordered", [False, True])
def test_c17_store_of_a_block_that_a_kernel_writes(tmp_path: Path, profile: str, ordered: bool) -> None:
    with c_program(profile=profile) as c:
        path = slab(tmp_path)
        handle, block, compute, side = c.file(path), c.buffer(SIZE), c.stream(), c.stream(register=0)
        slots = Slots(SIZE, 0, 0, 0)
        kernel(c, compute, block, write=True, name="forward")  # kernel
        if ordered:
            after(c, side, compute)
        assert c.hipfile.hipFileWriteAsync(handle, block, *slots.pointers, side).err == 0
        c.hip.hipDeviceSynchronize()
        assert slots.bytes == SIZE
        assert path.read_bytes()[:SIZE] == (NEW if ordered else bytes([FILL]) * SIZE)
    if ordered:
        quiet(c)
    else:
        reported(c, "race.read-write", "hipFileWriteAsync", "launch(stream")


@pytest.mark.torch
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("schedule", ["parallel", "lazy", "eager", "roundrobin", "seeded:3"])
def test_c17_with_tensors_under_every_schedule(tmp_path: Path, ordered: bool, schedule: str) -> None:
    with watched(schedule=schedule) as session:
        import hipfile
        import torch

        side = torch.cuda.Stream()
        block = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        path = slab(tmp_path)
        with (
            hipfile.FileHandle(path, os.O_RDWR) as file,
            hipfile.Buffer(block.data_ptr(), SIZE, 0) as buffer,
            hipfile.Stream(side.cuda_stream),
            faults.stall(torch.cuda.current_stream()),
        ):
            block.fill_(0x77)
            if ordered:
                side.wait_stream(torch.cuda.current_stream())
            io = file.write_async(buffer, SIZE, 0, 0, side.cuda_stream)
            torch.cuda.synchronize()
            assert io.bytes_done == SIZE
        if ordered:
            assert path.read_bytes()[:SIZE] == NEW
        elif schedule in ("parallel", "lazy"):
            assert path.read_bytes()[:SIZE] == bytes(SIZE)
    if ordered:
        quiet(session)
    else:
        reported(session, "race.read-write", "file.write_async", "block.fill_")


@pytest.mark.parametrize("profile", ["0.2", "0.5"])
@pytest.mark.parametrize("ordered", [False, True])
def test_c18_load_into_a_block_that_a_kernel_reads(tmp_path: Path, profile: str, ordered: bool) -> None:
    with c_program(profile=profile) as c:
        handle, block, compute, side = c.file(slab(tmp_path)), c.buffer(SIZE), c.stream(), c.stream(register=0)
        slots, seen = Slots(SIZE, 0, 0, 0), []
        kernel(c, compute, block, write=False, name="attention", seen=seen)
        if ordered:
            after(c, side, compute)
        assert c.hipfile.hipFileReadAsync(handle, block, *slots.pointers, side).err == 0
        c.hip.hipDeviceSynchronize()
        assert seen == [bytes([FILL]) * SIZE if ordered else pattern(SIZE)]
    if ordered:
        quiet(c)
    else:
        reported(c, "race.read-write", "hipFileReadAsync", "launch(stream")


@ENGINES
def test_c18_two_loads_into_one_block_on_two_streams(tmp_path: Path, engine: str) -> None:
    with watched(engine=engine) as session:
        import hipfile

        memory = device(session, SIZE)
        one, two = (session.hip.hipStreamCreateWithFlags(1)[1] for _ in range(2))
        with hipfile.FileHandle(slab(tmp_path), os.O_RDONLY) as file, hipfile.Buffer(memory, SIZE, 0) as buffer:
            ios = [file.read_async(buffer, SIZE, 0, 0, one)]
            ios.append(file.read_async(buffer, SIZE - 8, 4096, 8, two))
            session.hip.hipDeviceSynchronize()
            assert [io.bytes_done for io in ios] == [SIZE, SIZE - 8]
    reported(session, "race.write-write", "ios = [", "ios.append")


# -- C19, C20 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("schedule", ["parallel", "lazy", "eager"])
def test_c19_both_edges_are_needed(tmp_path: Path, first: bool, second: bool, schedule: str) -> None:
    """Copy after forward, and the next forward after the copy."""
    with c_program(schedule=schedule) as c:
        handle, block, compute, side = c.file(slab(tmp_path)), c.buffer(SIZE), c.stream(), c.stream(register=0)
        slots = Slots(SIZE, 0, 0, 0)
        kernel(c, compute, block, write=True, name="forward 1")
        if first:
            after(c, side, compute)
        assert c.hipfile.hipFileWriteAsync(handle, block, *slots.pointers, side).err == 0
        if second:
            after(c, compute, side)
        kernel(c, compute, block, write=True, name="forward 2")
        c.hip.hipDeviceSynchronize()
    races = [f for f in c.sanitizer.findings if f.id.startswith("race.")]
    text = c.sanitizer.format("text")
    assert sum(f.count for f in races) == (not first) + (not second), text  # both kernels are launched on one line
    if first != second:
        assert ("forward 2" if first else "forward 1") in str(races[0]), text


@pytest.mark.torch
@pytest.mark.parametrize("through", ["wait_stream", "host", "null stream"])
@pytest.mark.parametrize("schedule", ["parallel", "lazy", "seeded:1"])
def test_c20_order_through_a_third_party_is_no_alarm(tmp_path: Path, through: str, schedule: str) -> None:
    with watched(schedule=schedule) as session:
        import hipfile
        import torch

        if through == "null stream":
            compute, side = (torch.cuda.ExternalStream(session.hip.hipStreamCreate()[1]) for _ in range(2))
        else:
            compute, side = torch.cuda.Stream(), torch.cuda.Stream()
        third = torch.cuda.Stream()
        block = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        path = slab(tmp_path)
        with hipfile.FileHandle(path, os.O_RDWR) as file, hipfile.Buffer(block.data_ptr(), SIZE, 0) as buffer:
            session.stall(compute.cuda_stream)
            with torch.cuda.stream(compute):
                block.fill_(0x77)
                event = compute.record_event()
            if through == "wait_stream":
                third.wait_event(event)
                side.wait_stream(third)
            elif through == "host":
                event.synchronize()
            else:
                torch.zeros(1, device="cuda")  # on the null stream, between the two
            io = file.write_async(buffer, SIZE, 0, 0, side.cuda_stream)
            side.synchronize()
            assert io.bytes_done == SIZE
        assert path.read_bytes()[:SIZE] == NEW
    quiet(session)


# -- C21 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("how", ["tensor", "hipMemcpyAsync"])
def test_c21_host_looks_at_a_download_too_early(how: str) -> None:
    with watched() as session:
        import torch

        source = torch.full((SIZE,), 7, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        target = torch.full((SIZE,), 0xEE, dtype=torch.uint8, pin_memory=True)
        if how == "tensor":
            target.copy_(source, non_blocking=True)  # copy
        else:
            session.hip.hipMemcpyAsync(target.data_ptr(), source.data_ptr(), SIZE, D2H, 0)  # copy
        assert target[0].item() == 0xEE  # early
        torch.cuda.synchronize()
        assert target[0].item() == 7
    reported(session, "race.host-read", "# copy", "# early")


# -- C22 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("way", ["read_async", "write_async"])
@pytest.mark.parametrize("kept", [False, True])
def test_c22_block_freed_at_home_while_the_side_stream_uses_it(tmp_path: Path, way: str, kept: bool) -> None:
    with watched() as session:
        import hipfile
        import torch

        side, home = torch.cuda.Stream(), torch.cuda.current_stream()
        block = torch.full((SIZE,), 1, dtype=torch.uint8, device="cuda")
        pointer = block.data_ptr()
        with hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file:
            session.stall(side.cuda_stream)
            side.wait_stream(home)
            io = getattr(file, way)(hipfile.Buffer(pointer, SIZE, 0), SIZE, 0, 0, side.cuda_stream)  # side
            if kept:
                block.record_stream(side)
            del block  # freed
            again = torch.full((SIZE,), 2, dtype=torch.uint8, device="cuda")  # handed out again
            assert (again.data_ptr() == pointer) is not kept
            torch.cuda.synchronize()
            assert io.bytes_done == SIZE
    if kept:
        quiet(session)
    else:
        reported(session, "memory.reused-in-flight", "# side")


# -- C23 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("setting", ["block", "stage"])
def test_c23_upload_from_an_array_that_changes(setting: str) -> None:
    with watched(settings=HipSettings(pageable_h2d=setting)) as session:
        import torch

        stream = torch.cuda.Stream()
        results = {}
        for kind in ("pinned", "pageable"):
            source = torch.full((SIZE,), 1, dtype=torch.uint8, pin_memory=kind == "pinned")
            target = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
            torch.cuda.synchronize()
            session.hip.launch(stream.cuda_stream, lambda: None, cost_ns=SLOW)
            before = session.clock.now
            with torch.cuda.stream(stream):
                target.copy_(source, non_blocking=True)  # upload
            blocked = session.clock.now - before > SLOW // 2
            source.fill_(2)  # changed
            torch.cuda.synchronize()
            results[kind] = (target[0].item(), blocked)
        assert results == {"pinned": (2, False), "pageable": (1, setting == "block")}
    reported(session, "race.host-write", "# upload", "# changed")


@pytest.mark.parametrize("profile", ["0.5", "cufile"])
def test_c23_c_calls_with_memory_of_the_profile(profile: str) -> None:
    with c_program(profile=profile) as c:
        stream, block = c.stream(), c.malloc(SIZE)
        source = ctypes.create_string_buffer(b"\x01" * SIZE, SIZE)
        c.hip.launch(stream, lambda: None, cost_ns=SLOW)
        before = c.machine.clock.now
        assert c.hip.hipMemcpyAsync(block, ctypes.addressof(source), SIZE, H2D, stream) == 0
        assert (c.machine.clock.now - before > SLOW // 2) is (profile == "0.5")
        ctypes.memset(source, 2, SIZE)
        c.hip.hipStreamSynchronize(stream)
        assert c.bytes_at(block, 1) == b"\x01"


@ENGINES
def test_c23_download_to_pageable_memory_blocks(engine: str) -> None:
    with c_program(engine=engine) as c:
        stream, block = c.stream(), c.malloc(SIZE, 7)
        target = ctypes.create_string_buffer(SIZE)
        kernel(c, stream, block, write=True, name="slow")
        assert c.hip.hipMemcpyAsync(ctypes.addressof(target), block, SIZE, D2H, stream) == 0
        assert target.raw == NEW
    quiet(c)


# -- C24 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stalled", [False, True])
def test_c24_stall_makes_the_race_happen_every_time(tmp_path: Path, stalled: bool) -> None:
    """A kernel that is quick wins by luck; stalled, it never does."""
    for _ in range(3):
        with c_program() as c:
            path = slab(tmp_path)
            handle, block, compute, side = c.file(path), c.buffer(SIZE), c.stream(), c.stream(register=0)
            slots = Slots(SIZE, 0, 0, 0)
            if stalled:
                c.machine.stall(compute)
            c.hip.hipMemsetAsync(block, 0x77, SIZE, compute)
            c.hipfile.hipFileWriteAsync(handle, block, *slots.pointers, side)
            c.hip.hipDeviceSynchronize()
            assert path.read_bytes()[:SIZE] == (bytes([FILL]) * SIZE if stalled else NEW)
        reported(c, "race.read-write", "hipFileWriteAsync", "hipMemsetAsync")


def test_c24_serial_order_hides_it_and_the_explorer_finds_it(tmp_path: Path) -> None:
    path = slab(tmp_path)

    def body(machine: Any) -> bytes:
        path.write_bytes(pattern(SIZE))
        block, slots = machine.hip.hipMalloc(SIZE)[1], Slots(SIZE, 0, 0, 0)
        machine.hip.hipMemset(block, FILL, SIZE)
        compute, side = (machine.hip.hipStreamCreateWithFlags(1)[1] for _ in range(2))
        fd = os.open(path, os.O_RDWR)
        from hipfile_sim.driver.codes import FileDescr

        _, handle = machine.hipfile.hipFileHandleRegister(FileDescr(1, fd))

        def run() -> None:
            machine.memory.view(block, SIZE)[:] = NEW

        machine.hip.launch(compute, run, writes=[(block, SIZE)], cost_ns=SLOW)
        machine.hipfile.hipFileWriteAsync(handle, block, *slots.pointers, side)
        machine.hip.hipDeviceSynchronize()
        os.close(fd)
        return path.read_bytes()

    from hipfile_sim import Machine

    with Machine(schedule="eager") as machine:
        assert body(machine) == NEW  # serial: hidden
    with Machine() as machine:
        assert body(machine) == bytes([FILL]) * SIZE  # the default shows it
    result = explore(body, schedules=200)
    assert {NEW, bytes([FILL]) * SIZE} <= set(result.outcomes)
