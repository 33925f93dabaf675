"""Cases C30 to C32, devices, threads and deadlocks, as a user of the doubles writes them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from .letter import FILL, Slots, c_program, quiet, reported, slab, watched

ENGINES = pytest.mark.parametrize("engine", ["steps", "threads"])


def ids(c: Any) -> set[str]:
    return {finding.id for finding in c.sanitizer.findings}


# -- C30 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("schedule", ["parallel", "lazy"])
def test_c30_a_wait_across_devices(schedule: str) -> None:
    with watched(devices=2, schedule=schedule) as session:
        import torch

        with torch.cuda.device(0):
            source = torch.zeros(4096, dtype=torch.uint8, device="cuda:0")
            session.stall(torch.cuda.current_stream().cuda_stream)
            source.fill_(7)
            event = torch.cuda.Event()
            event.record()
        with torch.cuda.device(1):
            side = torch.cuda.Stream()
            side.wait_event(event)
            with torch.cuda.stream(side):
                target = torch.empty(4096, dtype=torch.uint8, device="cuda:1")
                target.copy_(source, non_blocking=True)
            side.synchronize()
        assert target[0].item() == 7
    quiet(session)


@pytest.mark.parametrize("profile", ["0.2", "0.3", "0.4", "0.5"])
@pytest.mark.parametrize("call", ["hipFileReadAsync", "hipFileWriteAsync"])
def test_c30_stream_and_buffer_of_two_devices(tmp_path: Path, profile: str, call: str) -> None:
    with c_program(profile=profile, devices=2) as c:
        stream, handle, slots = c.stream(), c.file(slab(tmp_path)), Slots(4096, 0, 0, 77)
        c.hip.hipSetDevice(1)
        block = c.buffer(4096)
        for current in (0, 1):
            c.hip.hipSetDevice(current)
            assert getattr(c.hipfile, call)(handle, block, *slots.pointers, stream).err == 5022
        assert slots.bytes == 77
    assert "device.mismatch" in ids(c)


def test_c30_registered_and_unused_used_and_unregistered(tmp_path: Path) -> None:
    with c_program() as c:
        handle, block, slots = c.file(slab(tmp_path)), c.buffer(4096), Slots(4096, 0, 0, 0)
        registered, used = c.stream(register=0), c.stream()
        assert registered != used
        c.hipfile.hipFileReadAsync(handle, block, *slots.pointers, used)
        c.hip.hipStreamSynchronize(used)
        c.sanitizer.finish()
    assert {"stream.registered-unused", "cost.unregistered-stream"} <= ids(c)


# -- C31 ---------------------------------------------------------------------------------------------------------------


@ENGINES
def test_c31_the_first_call_of_a_fresh_thread(tmp_path: Path, engine: str) -> None:
    with c_program(engine=engine, devices=2) as c:
        c.hip.hipSetDevice(1)
        handle, results = c.file(slab(tmp_path)), []

        def worker() -> None:
            results.append(int(c.hip.hipGetDevice()[1]))
            block, stream, slots = c.buffer(4096), c.stream(), Slots(4096, 0, 0, 0)
            results.append(c.hip.hipPointerGetAttributes(block)[1].device)
            results.append(c.hipfile.hipFileReadAsync(handle, block, *slots.pointers, stream).err)
            c.hip.hipStreamSynchronize(stream)
            results.append(slots.bytes)

        thread = threading.Thread(target=worker)
        thread.start()
        thread.join(60)
        assert results == [0, 0, 0, 4096]
        assert c.hip.hipGetDevice()[1] == 1
    quiet(c)


# -- C32 ---------------------------------------------------------------------------------------------------------------


@ENGINES
@pytest.mark.parametrize("free", ["hipFree", "hipHostFree"])
def test_c32_freeing_while_a_host_function_needs_this_thread(engine: str, free: str, expect_deadlock: Any) -> None:
    with c_program(engine=engine) as c:
        pointer = c.malloc(4096) if free == "hipFree" else c.hip.hipHostMalloc(4096)[1]
        stream, go = c.stream(), threading.Event()
        c.hip.hipLaunchHostFunc(stream, lambda _: go.wait(60))
        with expect_deadlock(c.machine.engine):
            getattr(c.hip, free)(pointer)
        go.set()
    assert "deadlock" in ids(c), c.sanitizer.format("text")


@pytest.mark.torch
@ENGINES
def test_c32_torch_gives_its_cache_back(engine: str, expect_deadlock: Any) -> None:
    with watched(engine=engine) as session:
        import torch

        block, go = torch.ones(1024, device="cuda"), threading.Event()
        torch.cuda.synchronize()
        del block
        stream = torch.cuda.Stream().cuda_stream
        session.hip.hipLaunchHostFunc(stream, lambda _: go.wait(60))  # held
        with expect_deadlock(session.engine):
            torch.cuda.empty_cache()  # freed
        go.set()
    reported(session, "deadlock", "# held", "# freed")


def test_c32_freeing_while_the_stream_waits_for_a_value(tmp_path: Path, expect_deadlock: Any) -> None:
    with c_program() as c:
        handle, block, stream, slots = c.file(slab(tmp_path)), c.buffer(4096), c.stream(), Slots(4096, 0, 0, 0)
        gate = c.hip.hipHostMalloc(8)[1]
        c.memory.view(gate, 8)[:] = bytes(8)
        c.hip.hipStreamWaitValue64(stream, gate, 1, 0, 2**64 - 1)
        c.hipfile.hipFileReadAsync(handle, block, *slots.pointers, stream)
        with expect_deadlock(c.machine.engine):
            c.hip.hipFree(c.malloc(64, None))  # freed
        assert c.bytes_at(block, 1)[0] == FILL
    finding = reported(c, "deadlock", "# freed")
    assert finding.severity == "error"
