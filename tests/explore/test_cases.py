"""Programs whose order matters in ways of their own: each finds all results, and no more runs than it needs."""

from __future__ import annotations

import ctypes
import gc
import os
import weakref
from pathlib import Path

import pytest

from hipfile_sim import Machine, outcomes
from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.driver.tasks import BatchOp
from hipfile_sim.engine.command import Access
from hipfile_sim.explore import explore
from hipfile_sim.explore.footprint import Footprint
from hipfile_sim.hip.settings import HipSettings


def streams(machine, count=2):
    return [machine.hip.hipStreamCreateWithFlags(1)[1] for _ in range(count)]


def test_independent_work_has_one_order_that_matters():
    def body(machine):
        hip = machine.hip
        for stream in streams(machine, 4):
            _, pointer = hip.hipMalloc(16)
            for step in range(10):
                hip.hipMemsetAsync(pointer + step, step, 2, stream)
        hip.hipDeviceSynchronize()

    found = explore(body)
    assert (found.complete, found.runs, found.cut) == (True, 1, 0)


def test_host_code_between_a_wait_and_the_next_call_is_overtaken_by_other_streams():
    def body(machine):
        hip = machine.hip
        one, two = streams(machine)
        _, pinned = hip.hipHostMalloc(1)
        view = machine.memory.view(pinned, 1)
        hip.hipMemsetAsync(pinned, 1, 1, one)
        _, event = hip.hipEventCreate()
        hip.hipEventRecord(event, one)
        hip.hipStreamWaitEvent(two, event, 0)
        hip.hipMemsetAsync(pinned, 2, 1, two)
        hip.hipStreamSynchronize(one)
        return view[0]  # without any call

    assert outcomes(body) == {1, 2}


def test_a_query_depends_on_what_it_asks_for_alone():
    def body(machine):
        hip = machine.hip
        one, two = streams(machine)
        _, memory = hip.hipMalloc(64)
        for step in range(4):
            hip.hipMemsetAsync(memory + step, 1, 1, one)
            hip.hipMemsetAsync(memory + 32 + step, 1, 1, two)
        return tuple(int(hip.hipStreamQuery(one)) for _ in range(2))

    found = explore(body)
    assert set(found.outcomes) == {(600, 600), (600, 0), (0, 0)}
    assert found.runs == 3


def test_a_host_function_may_ask():
    def body(machine):
        hip = machine.hip
        one, two = streams(machine)
        _, memory = hip.hipMalloc(8)
        _, event = hip.hipEventCreate()
        seen = []
        hip.hipMemsetAsync(memory, 1, 8, one)
        hip.hipEventRecord(event, one)
        hip.hipLaunchHostFunc(two, lambda _: seen.append(int(hip.hipEventQuery(event))))
        hip.hipDeviceSynchronize()
        return tuple(seen)

    assert outcomes(body) == {(0,), (600,)}


def test_kernels_that_declare_nothing_are_kept_in_every_order():
    def body(machine):
        seen = []
        for number, stream in enumerate(streams(machine, 3)):
            machine.hip.launch(stream, lambda number=number: seen.append(number))
        machine.hip.hipDeviceSynchronize()
        return tuple(seen)

    assert len(outcomes(body)) == 6


def test_memory_freed_while_another_device_uses_it():
    def body(machine):
        hip = machine.hip
        _, memory = hip.hipMalloc(8)
        machine.memory.view(memory, 8)[:] = bytes(8)
        hip.hipSetDevice(1)
        (stream,) = streams(machine, 1)
        _, other = hip.hipMalloc(8)
        hip.hipMemcpyAsync(other, memory, 1, 3, stream)
        hip.hipFree(memory)
        hip.hipStreamSynchronize(stream)
        return machine.memory.view(other, 1)[0]

    assert outcomes(body) == {0, 0xDB}


def test_device_memory_that_the_host_looks_at_when_it_says_so():
    def body(machine, told):
        hip = machine.hip
        _, memory = hip.hipMalloc(1)
        machine.memory.view(memory, 1)[0] = 0
        hip.hipMemsetAsync(memory, 5, 1, streams(machine, 1)[0])
        if told:
            machine.host_access(memory, 1, write=False, what="a debugger")
        return machine.memory.view(memory, 1)[0]

    assert outcomes(lambda machine: body(machine, True)) == {0, 5}
    assert outcomes(lambda machine: body(machine, False), settings=HipSettings(host_visible=True)) == {0, 5}


def test_a_stream_that_is_held():
    def body(machine):
        hip = machine.hip
        (stream,) = streams(machine, 1)
        _, memory = hip.hipMalloc(1)
        hip.hipMemsetAsync(memory, 5, 1, stream)
        machine.stall(stream, hold=True)
        hip.hipStreamSynchronize(stream)

    assert outcomes(body) == {None, ("deadlock",)}


def test_a_queue_that_is_full():
    def body(machine):
        hip = machine.hip
        one, two = streams(machine)
        _, signal = hip.hipMalloc(4)
        machine.memory.view(signal, 4)[:] = bytes(4)
        hip.hipStreamWaitValue32(one, signal, 1, 1)
        hip.hipStreamWriteValue32(two, signal, 1)
        hip.hipStreamWriteValue32(two, signal, 2)
        hip.hipMemsetAsync(signal, 0, 1, one)
        hip.hipMemsetAsync(signal, 0, 1, one)  # waits for room
        return "through"

    assert outcomes(body, settings=HipSettings(queue_limit=2)) == {"through", ("deadlock",)}


def test_one_thread_for_host_functions_that_need_each_other():
    import threading

    def body(machine):
        flag = threading.Event()
        one, two, three = streams(machine, 3)
        try:
            machine.hip.hipLaunchHostFunc(one, lambda _: flag.wait())
            machine.hip.hipLaunchHostFunc(two, lambda _: flag.set())
            machine.hip.hipLaunchHostFunc(three, lambda _: None)
            machine.hip.hipDeviceSynchronize()
        finally:
            flag.set()

    options = {"watchdog_s": 0.05}
    assert outcomes(body, settings=HipSettings(host_function_threads="one"), **options) == {None, ("deadlock",)}
    assert outcomes(body, settings=HipSettings(host_function_threads="per-stream"), **options) == {None}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a" * 4096 + b"b" * 4096)
    return path


def test_operations_of_a_batch_end_in_any_order(file):
    def body(machine):
        hip, hipfile = machine.hip, machine.hipfile
        fd = os.open(file, os.O_RDONLY)
        try:
            hipfile.hipFileDriverOpen()
            _, handle = hipfile.hipFileHandleRegister(FileDescr(1, fd))
            _, memory = hip.hipMalloc(8192)
            hipfile.hipFileBufRegister(memory, 8192, 0)
            _, batch = hipfile.hipFileBatchIOSetUp(2)
            operations = [BatchOp(1, 0, handle, memory, 0, 4096 * number, 4096, number) for number in range(2)]
            status = hipfile.hipFileBatchIOSubmit(batch, operations, 0)
            assert not status.err, status
            seen = []
            while len(seen) < 2:
                status, events = hipfile.hipFileBatchIOGetStatus(batch, 1, 2, None)
                assert not status.err, status
                seen += [event.cookie for event in events]
            return tuple(seen)
        finally:
            os.close(fd)

    assert outcomes(body, env={}) == {(0, 1), (1, 0)}


def test_bounce_buffers_belong_to_the_library(file):
    for profile in ("0.4", "0.5"):
        with Machine(1, profile=profile, env={}, schedule="lazy") as machine:
            hip, hipfile = machine.hip, machine.hipfile
            fd = os.open(file, os.O_RDONLY)
            hipfile.hipFileDriverOpen()
            _, handle = hipfile.hipFileHandleRegister(FileDescr(1, fd))
            _, memory = hip.hipMalloc(4096)
            (stream,) = streams(machine, 1)
            slots = (ctypes.c_int64 * 4)(4096, 0, 0, 0)
            at = ctypes.addressof(slots)
            status = hipfile.hipFileReadAsync(handle, memory, at, at + 8, at + 16, at + 24, stream)
            assert not status.err, status
            (block,) = [block for block in machine.memory.live() if block.kind == "pinned"]
            assert machine.memory.is_internal(block.base)
            assert not machine.memory.is_internal(memory)
            hip.hipStreamSynchronize(stream)
            assert slots[3] == 4096
            assert not machine.memory.internal
            os.close(fd)


def test_two_reads_through_bounce_buffers_do_not_depend_on_each_other(file):
    def body(machine):
        hip, hipfile = machine.hip, machine.hipfile
        fd = os.open(file, os.O_RDONLY)
        try:
            hipfile.hipFileDriverOpen()
            _, handle = hipfile.hipFileHandleRegister(FileDescr(1, fd))
            slots = machine.slots = [(ctypes.c_int64 * 4)(4096, 0, 0, 0) for _ in range(2)]
            pairs = [(hip.hipMalloc(4096)[1], stream) for stream in streams(machine)]
            for _, stream in pairs:
                hipfile.hipFileStreamRegister(stream, 7)
            for slot, (memory, stream) in zip(slots, pairs, strict=True):
                at = ctypes.addressof(slot)
                status = hipfile.hipFileReadAsync(handle, memory, at, at + 8, at + 16, at + 24, stream)
                assert not status.err, status
            hip.hipDeviceSynchronize()
            return tuple(slot[3] for slot in slots)
        finally:
            os.close(fd)

    found = explore(body, env={"HIPFILE_ASYNC_BUFFER_SIZE": "4096"}, keep_going=True)
    assert set(found.outcomes) == {(4096, 4096)}
    assert found.complete
    assert found.runs < found.orders / 50


def test_a_footprint_survives_being_written_down():
    footprint = Footprint(
        [Access(("block", 0, 3), 4, 8, True)], visible=True, arbitrary=True, asked=[(1, 2)], asks_all=False, ends=(4, 5)
    )
    again = Footprint.load(footprint.save())
    assert again.save() == footprint.save()
    assert again.depends(Footprint(ends=(1, 2)))
    assert again.depends(Footprint([Access(("block", 0, 3), 11, 1, False)]))
    assert not Footprint([Access(("block", 0, 3), 11, 1, False)]).depends(Footprint(ends=(1, 2)))


def test_slots_of_a_program_that_does_not_wait_outlive_it(file):
    alive = []

    class Slots(ctypes.Structure):
        _fields_ = (("values", ctypes.c_int64 * 4),)

        def __del__(self):
            alive.remove(id(self))

    def body(machine):
        hip, hipfile = machine.hip, machine.hipfile
        fd = os.open(file, os.O_RDONLY)
        hipfile.hipFileDriverOpen()
        _, handle = hipfile.hipFileHandleRegister(FileDescr(1, fd))
        os.close(fd)
        slots = Slots((4096, 0, 0, 0))
        alive.append(id(slots))
        at = ctypes.addressof(slots)
        machine.hipfile.on_publish = lambda op, value: published.append(len(alive)) or value
        _, memory = hip.hipMalloc(4096)
        status = hipfile.hipFileReadAsync(handle, memory, at, at + 8, at + 16, at + 24, streams(machine, 1)[0])
        assert not status.err, status

    published: list[int] = []
    found = explore(body, env={}, schedules=20)
    assert found.ok, found
    assert published
    assert set(published) == {1}
    assert not alive  # and no longer


@pytest.mark.parametrize("fails", [False, True])
def test_machines_go_with_their_runs(fails):
    machines: list[weakref.ref[Machine]] = []
    most = 0

    def body(machine):
        nonlocal most
        machines.append(weakref.ref(machine))
        most = max(most, sum(ref() is not None for ref in machines))
        hip = machine.hip
        _, memory = hip.hipMalloc(1)
        for stream in streams(machine, 4):
            hip.hipMemsetAsync(memory, 1, 1, stream)
        hip.hipDeviceSynchronize()
        assert not fails

    gc.collect()
    gc.disable()
    try:
        found = explore(body, keep_going=True)
    finally:
        gc.enable()
    assert found.runs == 24
    assert most <= 6


def test_runs_leave_no_descriptors(file, descriptors_in):
    def body(machine):
        fd = os.open(file, os.O_RDONLY)
        machine.hipfile.hipFileDriverOpen()
        assert not machine.hipfile.hipFileHandleRegister(FileDescr(1, fd))[0].err
        os.close(fd)

    explore(body, env={})
    explore(body, env={}, strategy="random", schedules=30)
    gc.collect()
    assert descriptors_in(Path(file)) == 0
