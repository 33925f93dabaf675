"""Programs with one bug each, as people write them, and the fewest choices that show it.

The plain schedule lets the host go on at once and runs what a wait needs, the soonest first. ``fewest`` is how many
choices must differ from it, found by hand: the comment above each program says which.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import addressof, c_int64
from dataclasses import dataclass, field
from typing import Any

from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.hip.settings import HipSettings

SIZE = 512
D2H, H2D = 2, 1
SLOW = 50_000
"""Virtual ns of a kernel that takes longer than anything else here."""


@dataclass(frozen=True)
class Wrong:
    """A program, the fewest choices that make it fail, and the machine that it runs on."""

    body: Callable[[Any], Any]
    fewest: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.body.__name__


WRONG: list[Wrong] = []


def wrong(fewest: int, **options: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    def register(body: Callable[[Any], Any]) -> Callable[[Any], Any]:
        WRONG.append(Wrong(body, fewest, {"env": {}, **options}))
        return body

    return register


class Kit:
    """Shorthand for one machine: memory as one-byte values, streams, kernels, files."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.hip = machine.hip
        self.hipfile = machine.hipfile
        self.slots: list[Any] = []
        machine.kit = self  # slots must live as long as something may still write to them

    def stream(self) -> int:
        return self.hip.hipStreamCreateWithFlags(1)[1]

    def device(self, size: int = SIZE) -> int:
        pointer = self.hip.hipMalloc(size)[1]
        self.view(pointer, size)[:] = bytes(size)
        return pointer

    def pinned(self, size: int = SIZE) -> tuple[int, memoryview]:
        pointer = self.hip.hipHostMalloc(size)[1]
        view = self.view(pointer, size)
        view[:] = bytes(size)
        return pointer, view

    def view(self, pointer: int, size: int = SIZE) -> memoryview:
        return self.machine.memory.view(pointer, size)

    def kernel(
        self, stream: int, function: Callable[[], Any], reads: tuple = (), writes: tuple = (), ns: int = 100
    ) -> None:
        pairs = [[(pointer, 1) for pointer in pointers] for pointers in (reads, writes)]
        assert not self.hip.launch(stream, function, *pairs, cost_ns=ns)

    def add(self, stream: int, pointer: int, value: int, ns: int = 100) -> None:
        def function() -> None:
            self.view(pointer, 1)[0] += value

        self.kernel(stream, function, (pointer,), (pointer,), ns)

    def move(self, stream: int, to: int, origin: int, ns: int = 100) -> None:
        def function() -> None:
            self.view(to, 1)[:] = self.view(origin, 1)

        self.kernel(stream, function, (origin,), (to,), ns)

    def event(self, stream: int) -> int:
        event = self.hip.hipEventCreate()[1]
        self.hip.hipEventRecord(event, stream)
        return event

    def value(self, pointer: int) -> int:
        """Of device memory, after waiting for everything."""
        self.hip.hipDeviceSynchronize()
        return self.view(pointer, 1)[0]

    @contextmanager
    def file(self, data: bytes) -> Iterator[tuple[int, int]]:
        """(descriptor, hipFile handle)."""
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            fd = os.open(os.path.join(folder, "file"), os.O_RDWR | os.O_CREAT)
            try:
                os.pwrite(fd, data, 0)
                self.hipfile.hipFileDriverOpen()
                status, handle = self.hipfile.hipFileHandleRegister(FileDescr(1, fd))
                if status.err:  # not AssertionError: the programs raise that
                    raise RuntimeError(status)
                yield fd, handle
            finally:
                os.close(fd)

    def io(self, write: bool, handle: int, buffer: int, stream: int, offset: int = 0, slots: Any = None) -> Any:
        if slots is None:
            slots = (c_int64 * 4)(SIZE, offset, 0, 0)
        self.slots.append(slots)
        at = addressof(slots)
        call = self.hipfile.hipFileWriteAsync if write else self.hipfile.hipFileReadAsync
        status = call(handle, buffer, at, at + 8, at + 16, at + 24, stream)
        if status.err:
            raise RuntimeError(status)
        return slots


# 0: the read has not begun when the host looks
@wrong(0)
def result_read_behind_a_wait_of_the_device(machine):
    kit = Kit(machine)
    copy, compute = kit.stream(), kit.stream()
    with kit.file(bytes(SIZE)) as (_, handle):
        slots = kit.io(False, handle, kit.device(), copy)
        kit.hip.hipStreamWaitEvent(compute, kit.event(copy), 0)
        assert slots[3] == SIZE


# 0: the wait for the copy stream does not need the kernel
@wrong(0)
def spill_without_waiting_for_the_kernel(machine):
    kit = Kit(machine)
    copy, compute, buffer = kit.stream(), kit.stream(), kit.device()
    with kit.file(bytes(SIZE)) as (fd, handle):
        kit.add(compute, buffer, 7, SLOW)
        kit.io(True, handle, buffer, copy)
        kit.hip.hipStreamSynchronize(copy)
        assert os.pread(fd, 1, 0) == b"\7"


# 2: both steps of the read (file, then device) before the kernel, which is quick and would go first
@wrong(2)
def load_into_a_buffer_that_is_still_read(machine):
    kit = Kit(machine)
    copy, compute, buffer, result = kit.stream(), kit.stream(), kit.device(), kit.device()
    kit.hipfile.hipFileDriverOpen()
    kit.hipfile.hipFileStreamRegister(copy, 7)
    with kit.file(b"\7" * SIZE) as (_, handle):
        kit.move(compute, result, buffer)
        kit.io(False, handle, buffer, copy)
        assert kit.value(result) == 0


# 0: the upload has not begun when the array is filled again
@wrong(0)
def pinned_array_filled_again_too_early(machine):
    kit = Kit(machine)
    stream, target, (array, view) = kit.stream(), kit.device(), kit.pinned()
    view[0] = 1
    kit.hip.hipMemcpyAsync(target, array, 1, H2D, stream)
    view[0] = 2
    assert kit.value(target) == 1


# 1: the upload goes at once
@wrong(1)
def pinned_array_filled_too_late(machine):
    kit = Kit(machine)
    stream, target, (array, view) = kit.stream(), kit.device(), kit.pinned()
    kit.hip.hipMemcpyAsync(target, array, 1, H2D, stream)
    view[0] = 2
    assert kit.value(target) == 2


# 0: the first operation reads its slots when they are those of the second already
@wrong(0)
def slots_used_twice(machine):
    kit = Kit(machine)
    stream, first, second = kit.stream(), kit.device(), kit.device()
    with kit.file(b"\1" * SIZE + b"\2" * SIZE) as (_, handle):
        slots = kit.io(False, handle, first, stream, 0)
        slots[1] = SIZE
        kit.io(False, handle, second, stream, slots=slots)
        assert kit.value(first) == 1


# 1: the operation binds its values at once
@wrong(1)
def offset_corrected_after_submit(machine):
    kit = Kit(machine)
    stream, buffer = kit.stream(), kit.device()
    with kit.file(b"\1" * SIZE + b"\2" * SIZE) as (_, handle):
        slots = kit.io(False, handle, buffer, stream, 0)
        slots[1] = SIZE
        assert kit.value(buffer) == 2


# 2: kernel and record are over before the question
@wrong(2)
def takes_for_granted_that_work_is_slow(machine):
    kit = Kit(machine)
    stream, buffer = kit.stream(), kit.device()
    kit.add(stream, buffer, 1, SLOW)
    event = kit.event(stream)
    assert kit.hip.hipEventQuery(event) != 0


# 1: the second stream reads between the two steps of the first
@wrong(1)
def update_lost_between_two_streams(machine):
    kit = Kit(machine)
    one, two, total = kit.stream(), kit.stream(), kit.device()
    for stream, ns in ((one, 1), (two, SLOW)):
        own = kit.device()
        kit.move(stream, own, total, ns)
        kit.add(stream, own, 1, ns)
        kit.move(stream, total, own, ns)
    assert kit.value(total) == 2


# 2: the kernel and the second write go before the waiting stream looks
@wrong(2)
def signal_taken_back_before_it_is_seen(machine):
    kit = Kit(machine)
    one, two, signal, scratch = kit.stream(), kit.stream(), kit.device(), kit.device()
    kit.hip.hipStreamWriteValue32(one, signal, 1)
    kit.add(one, scratch, 1, SLOW)
    kit.hip.hipStreamWriteValue32(one, signal, 0)
    kit.hip.hipStreamWaitValue32(two, signal, 1, 1)
    kit.hip.hipStreamSynchronize(two)


# 1: the function that waits gets the only thread before the one that it waits for
@wrong(1, settings=HipSettings(host_function_threads="one"), watchdog_s=0.1)
def host_functions_that_need_each_other(machine):
    kit = Kit(machine)
    one, two, flag = kit.stream(), kit.stream(), threading.Event()
    try:
        kit.hip.hipLaunchHostFunc(one, lambda _: flag.set())
        kit.hip.hipLaunchHostFunc(two, lambda _: flag.wait())
        kit.hip.hipDeviceSynchronize()
    finally:
        flag.set()


# 1: the second stream's function first
@wrong(1)
def order_of_callbacks_taken_for_granted(machine):
    kit = Kit(machine)
    called: list[int] = []
    for number in (1, 2):
        kit.hip.hipLaunchHostFunc(kit.stream(), called.append, number)
    kit.hip.hipDeviceSynchronize()
    assert called == [1, 2]


# 0: a copy on the null stream does not wait for a non-blocking stream
@wrong(0)
def null_stream_taken_for_a_barrier(machine):
    kit = Kit(machine)
    stream, buffer, (host, view) = kit.stream(), kit.device(), kit.pinned()
    kit.add(stream, buffer, 5)
    kit.hip.hipMemcpy(host, buffer, 1, D2H)
    assert view[0] == 5


# 0: free waits for the memory's own device alone
@wrong(0)
def freed_while_another_device_reads(machine):
    kit = Kit(machine)
    buffer = kit.device()
    kit.hip.hipSetDevice(1)
    stream, (host, view) = kit.stream(), kit.pinned()
    kit.hip.hipMemcpyAsync(host, buffer, 1, D2H, stream)
    kit.hip.hipFree(buffer)
    kit.hip.hipStreamSynchronize(stream)
    assert view[0] == 0


# 1: the reader goes before the second producer
@wrong(1)
def wait_taken_for_the_latest_record(machine):
    kit = Kit(machine)
    producer, reader, buffer, result = kit.stream(), kit.stream(), kit.device(), kit.device()
    kit.add(producer, buffer, 1)
    event = kit.event(producer)
    kit.hip.hipStreamWaitEvent(reader, event, 0)
    kit.add(producer, buffer, 1)
    kit.hip.hipEventRecord(event, producer)
    kit.move(reader, result, buffer, SLOW)
    assert kit.value(result) == 2


# 0: the event of the buffer before says nothing about this one
@wrong(0)
def staging_buffer_freed_by_the_wrong_event(machine):
    kit = Kit(machine)
    stream, target, (staging, view) = kit.stream(), kit.device(), kit.pinned()
    events = []
    for number in range(2):
        view[number] = number + 1
        kit.hip.hipMemcpyAsync(target + number, staging + number, 1, H2D, stream)
        events.append(kit.event(stream))
    kit.hip.hipEventSynchronize(events[0])
    view[1] = 9
    assert kit.value(target + 1) == 2


# 0: the host blocks in submit while the function waits for it
@wrong(0, settings=HipSettings(queue_limit=2), watchdog_s=0.1)
def stream_filled_while_a_function_holds_it(machine):
    kit = Kit(machine)
    stream, buffer, flag = kit.stream(), kit.device(), threading.Event()
    try:
        kit.hip.hipLaunchHostFunc(stream, lambda _: flag.wait())
        for _ in range(3):
            kit.add(stream, buffer, 1)
        flag.set()
        kit.hip.hipStreamSynchronize(stream)
    finally:
        flag.set()


# 4: all four steps of the first operation before the question
@wrong(4)
def the_other_operation_taken_for_done(machine):
    kit = Kit(machine)
    one, two = kit.stream(), kit.stream()
    kit.hipfile.hipFileDriverOpen()
    for stream in (one, two):
        kit.hipfile.hipFileStreamRegister(stream, 7)
    with kit.file(bytes(2 * SIZE)) as (_, handle):
        kit.io(False, handle, kit.device(), one)
        slots = kit.io(False, handle, kit.device(), two, SIZE)
        if kit.hip.hipStreamQuery(one) == 0:
            assert slots[3] == SIZE


# 2: both steps of the second write before the file step of the first
@wrong(2)
def last_submitted_taken_for_last_written(machine):
    kit = Kit(machine)
    one, two, first, second = kit.stream(), kit.stream(), kit.device(), kit.device()
    kit.view(first)[:] = b"\1" * SIZE
    kit.view(second)[:] = b"\2" * SIZE
    kit.hipfile.hipFileDriverOpen()
    for stream in (one, two):
        kit.hipfile.hipFileStreamRegister(stream, 7)
    with kit.file(bytes(SIZE)) as (fd, handle):
        kit.io(True, handle, first, one)
        kit.io(True, handle, second, two)
        kit.hip.hipDeviceSynchronize()
        assert os.pread(fd, 1, 0) == b"\2"


# 1: the flag is there and the data is not
@wrong(1)
def flag_raised_before_the_data(machine):
    kit = Kit(machine)
    stream, buffer, (host, view) = kit.stream(), kit.device(), kit.pinned()
    kit.view(buffer)[:] = b"\1" * SIZE
    kit.hip.hipMemcpyAsync(host, buffer, 1, D2H, stream)
    kit.hip.hipMemcpyAsync(host + 1, buffer, 1, D2H, stream)
    if view[0]:
        assert view[1]


# 1: the first kernel of the second layer goes while the buffer still holds what the first layer's kernel wants
@wrong(1)
def double_buffer_with_one_edge_of_two(machine):
    kit = Kit(machine)
    copy, compute, buffer = kit.stream(), kit.stream(), kit.device()
    results = [kit.device() for _ in range(2)]
    for layer in range(2):
        kit.add(copy, buffer, 1, SLOW)
        kit.hip.hipStreamWaitEvent(compute, kit.event(copy), 0)
        kit.move(compute, results[layer], buffer)  # nothing makes the next copy wait for this
    assert [kit.value(result) for result in results] == [1, 2]
