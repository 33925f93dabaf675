"""Every row that was measured on CUDA streams; HIP follows them, or a named setting says where it differs."""

from __future__ import annotations

import ctypes
import mmap

import pytest

from hipfile_sim import HipSettings
from hipfile_sim.engine import DeadlockError
from hipfile_sim.hip import HipError, MemoryType

from .conftest import NON_BLOCKING, Held, create, malloc

NULL, PER_THREAD = 0, 2
NOT_READY = HipError.hipErrorNotReady


def runs(hip, stream, pointer, expected):
    """Whether a memset on `stream` completes while something is held. What is expected not to is given up soon."""
    assert hip.hipMemsetAsync(pointer, 1, 64, stream) == 0
    _, event = hip.hipEventCreate()
    hip.hipEventRecord(event, stream)
    usual = hip.engine.watchdog_s
    if not expected:
        hip.engine.watchdog_s = 0.15
    try:
        return hip.hipEventSynchronize(event) == 0
    except DeadlockError:
        return False
    finally:
        hip.engine.watchdog_s = usual


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ("null", {"null": False, "blocking": False, "non-blocking": True, "per-thread": False}),
        ("blocking", {"null": False, "another blocking": True, "non-blocking": True, "per-thread": True}),
        ("non-blocking", {"null": True, "blocking": True, "another non-blocking": True}),
    ],
)
def test_who_runs_while_a_stream_is_held(hip, held, expected):
    streams = {
        "null": NULL,
        "per-thread": PER_THREAD,
        "blocking": create(hip),
        "another blocking": create(hip),
        "non-blocking": create(hip, NON_BLOCKING),
        "another non-blocking": create(hip, NON_BLOCKING),
    }
    pointer = malloc(hip)
    hold = Held(hip, streams[held])
    for name, expectation in expected.items():
        if name == "null" and not expectation and held != "null":
            continue  # a blocked command on the null stream would block the streams that are asked after it
        assert runs(hip, streams[name], pointer, expectation) is expectation, name
    if "null" in expected:
        assert runs(hip, NULL, pointer, expected["null"]) is expected["null"]
    hold.release()
    assert hip.hipDeviceSynchronize() == 0


def test_host_functions_of_two_streams_share_a_thread_when_set_so(make, expect_deadlock):
    machine = make(HipSettings(host_function_threads="one"))
    hip = machine.hip
    a, b = create(hip, NON_BLOCKING), create(hip, NON_BLOCKING)
    hold = Held(hip, a)
    if machine.engine.threaded:
        assert hold.started.wait(60)
    else:
        hip.hipStreamQuery(a)
    ran = []
    hip.hipLaunchHostFunc(b, ran.append, 1)
    if str(getattr(machine.engine, "schedule", "threads")) not in ("lazy", "roundrobin", "seeded:1"):
        with expect_deadlock(hip.engine):
            hip.hipStreamSynchronize(b)
        assert ran == []
    hold.release()
    assert hip.hipDeviceSynchronize() == 0
    assert ran == [1]


def test_host_functions_of_two_streams_by_default_do_not(hip):
    a, b = create(hip), create(hip)
    hold = Held(hip, a)
    ran = []
    hip.hipLaunchHostFunc(b, ran.append, 1)
    assert hip.hipStreamSynchronize(b) == 0
    assert ran == [1]
    hold.release()
    hip.hipDeviceSynchronize()


def test_a_wait_value_does_not_hold_up_host_functions_of_others(make):
    hip = make(HipSettings(host_function_threads="one")).hip
    a, b = create(hip, NON_BLOCKING), create(hip, NON_BLOCKING)
    _, word = hip.hipHostMalloc(8)
    ctypes.c_uint64.from_address(word).value = 0
    hip.hipStreamWaitValue64(a, word, 1)
    ran = []
    hip.hipLaunchHostFunc(b, ran.append, 1)
    assert hip.hipStreamSynchronize(b) == 0
    assert ran == [1]
    ctypes.c_uint64.from_address(word).value = 1
    assert hip.hipStreamSynchronize(a) == 0


def test_200_host_functions_run_in_order(hip):
    stream = create(hip)
    seen = []
    for number in range(200):
        hip.hipLaunchHostFunc(stream, seen.append, number)
    hip.hipStreamSynchronize(stream)
    assert seen == list(range(200))


def test_an_event_that_was_never_recorded(hip):
    stream = create(hip)
    _, event = hip.hipEventCreate()
    assert hip.hipEventQuery(event) == 0
    assert hip.hipStreamWaitEvent(stream, event, 0) == 0
    assert hip.hipEventSynchronize(event) == 0
    assert hip.hipStreamSynchronize(stream) == 0


def test_query_while_the_last_command_runs_and_no_last_error(hip):
    stream = create(hip)
    hold = Held(hip, stream)
    _, event = hip.hipEventCreate()
    hip.hipEventRecord(event, stream)
    assert hip.hipStreamQuery(stream) == NOT_READY
    assert hip.hipEventQuery(event) == NOT_READY
    assert hip.hipPeekAtLastError() == 0
    hold.release()
    hip.hipStreamSynchronize(stream)
    assert hip.hipStreamQuery(stream) == 0


def test_query_with_an_empty_queue_while_the_last_command_still_runs(make):
    machine = make()
    if str(getattr(machine.engine, "schedule", "threads")) not in ("eager", "threads"):
        pytest.skip("only these engines are sure to have started the command")
    hip = machine.hip
    stream = create(hip)
    hold = Held(hip, stream)
    assert hold.started.wait(60)
    lane = hip.lookup_stream(stream).lane
    assert not lane.queue
    assert lane.running is not None
    assert hip.hipStreamQuery(stream) == NOT_READY
    hold.release()
    hip.hipStreamSynchronize(stream)


def test_wait_is_for_the_record_that_was_current(hip):
    a, b, c = create(hip, NON_BLOCKING), create(hip, NON_BLOCKING), create(hip, NON_BLOCKING)
    _, event = hip.hipEventCreate()
    hip.hipEventRecord(event, a)
    hip.hipStreamWaitEvent(b, event, 0)
    hold = Held(hip, c)
    hip.hipEventRecord(event, c)  # the event now names a point behind a held stream
    assert hip.hipStreamSynchronize(b) == 0
    assert hip.hipEventQuery(event) == NOT_READY
    hold.release()
    hip.hipDeviceSynchronize()


def test_a_waiter_on_an_old_pending_record_still_waits(hip):
    a, b, c = create(hip, NON_BLOCKING), create(hip, NON_BLOCKING), create(hip, NON_BLOCKING)
    _, event = hip.hipEventCreate()
    hold = Held(hip, a)
    hip.hipEventRecord(event, a)
    hip.hipStreamWaitEvent(b, event, 0)
    hip.hipEventRecord(event, c)
    hip.hipStreamSynchronize(c)
    assert hip.hipEventQuery(event) == 0
    assert hip.hipStreamQuery(b) == NOT_READY
    hold.release()
    assert hip.hipStreamSynchronize(b) == 0


@pytest.mark.parametrize(("flags", "expected"), [(0, NOT_READY), (NON_BLOCKING, HipError.hipSuccess)])
def test_event_on_the_null_stream_while_another_is_held(make, flags, expected):
    machine = make()
    hip = machine.hip
    stream = create(hip, flags)
    hold = Held(hip, stream)
    _, event = hip.hipEventCreate()
    hip.hipEventRecord(event, NULL)
    if expected == 0:
        assert hip.hipEventSynchronize(event) == 0
    assert hip.hipEventQuery(event) == expected
    hold.release()
    hip.hipDeviceSynchronize()


@pytest.mark.parametrize(("flags", "waits"), [(0, True), (NON_BLOCKING, False)])
@pytest.mark.parametrize("call", ["hipStreamSynchronize", "hipMemcpy"])
def test_what_the_null_stream_waits_for(hip, flags, waits, call, expect_deadlock):
    pointer, other = malloc(hip), malloc(hip)
    hold = Held(hip, create(hip, flags))
    arguments = (NULL,) if call == "hipStreamSynchronize" else (pointer, other, 64, 3)
    if waits:
        with expect_deadlock(hip.engine):
            getattr(hip, call)(*arguments)
    else:
        assert getattr(hip, call)(*arguments) == 0
    hold.release()
    hip.hipDeviceSynchronize()


def test_destroying_a_stream_with_work_pending(machine):
    hip = machine.hip
    stream = create(hip)
    pointer = malloc(hip)
    hold = Held(hip, stream)
    hip.hipMemsetAsync(pointer, 9, 64, stream)
    assert hip.hipStreamDestroy(stream) == 0
    assert hip.hipStreamSynchronize(stream) == HipError.hipErrorInvalidHandle
    hold.release()
    assert hip.hipDeviceSynchronize() == 0
    assert bytes(machine.memory.view(pointer, 64)) == b"\x09" * 64


def registered(hip):
    memory = mmap.mmap(-1, 4096)
    pointer = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return hip.hipHostRegister(pointer, 4096), pointer, memory


@pytest.mark.parametrize("flags", [0, NON_BLOCKING])
@pytest.mark.parametrize(
    ("free", "get"),
    [
        ("hipFree", lambda hip: hip.hipMalloc(64)),
        ("hipFree", lambda hip: hip.hipMallocManaged(64)),
        ("hipHostFree", lambda hip: hip.hipHostMalloc(64)),
        ("hipHostUnregister", registered),
    ],
    ids=["device", "managed", "pinned", "registered"],
)
def test_frees_wait_for_every_stream(hip, flags, free, get, expect_deadlock):
    code, pointer, *_keep = get(hip)
    assert code == 0
    hold = Held(hip, create(hip, flags))
    with expect_deadlock(hip.engine, match=free):  # nobody else could let the stream go
        getattr(hip, free)(pointer)
    hold.release()
    assert getattr(hip, free)(pointer) == 0
    assert getattr(hip, free)(pointer) == {"hipHostUnregister": 713}.get(free, 1)


@pytest.mark.parametrize("flags", [0, NON_BLOCKING])
def test_what_does_not_wait(hip, flags):
    held, other = create(hip, flags), create(hip)
    (_, pending), (_, unrecorded) = hip.hipEventCreate(), hip.hipEventCreate()
    hold = Held(hip, held)
    assert hip.hipEventRecord(pending, held) == 0
    assert hip.hipMalloc(64)[0] == 0
    assert hip.hipHostMalloc(64)[0] == 0
    assert hip.hipStreamCreate()[0] == 0
    assert hip.hipEventCreate()[0] == 0
    code, _, _keep = registered(hip)
    assert code == 0
    assert [hip.hipEventDestroy(event) for event in (pending, unrecorded)] == [0, 0]
    assert hip.hipStreamDestroy(other) == 0
    assert hip.hipStreamQuery(held) == 600
    hold.release()
    hip.hipDeviceSynchronize()


DEVICE_ONLY = [
    ("hipMemset", lambda hip: (malloc(hip), 7, 64)),
    ("hipMemcpy", lambda hip: (malloc(hip), malloc(hip), 64, 3)),
]
WITH_HOST_MEMORY = [
    ("hipMemset", lambda hip: (hip.hipHostMalloc(64)[1], 7, 64)),
    ("hipMemset", lambda hip: (hip.hipMallocManaged(64)[1], 7, 64)),
    ("hipMemcpy", lambda hip: (malloc(hip), hip.hipHostMalloc(64)[1], 64, 1)),
    ("hipMemcpy", lambda hip: (hip.hipHostMalloc(64)[1], malloc(hip), 64, 2)),
    ("hipMemcpy", lambda hip: (hip.hipHostMalloc(64)[1], hip.hipHostMalloc(64)[1], 64, 0)),
]


@pytest.mark.parametrize(("call", "arguments"), DEVICE_ONLY + WITH_HOST_MEMORY)
@pytest.mark.parametrize("setting", ["wait", "return"])
def test_which_plain_copies_and_sets_wait_for_a_blocking_stream(make, setting, call, arguments, expect_deadlock):
    hip = make(HipSettings(device_only_calls=setting)).hip
    given = arguments(hip)
    hold = Held(hip, create(hip))
    if setting == "return" and (call, arguments) in DEVICE_ONLY:
        assert getattr(hip, call)(*given) == 0
        assert hip.hipStreamQuery(0) == 600  # it has its place in the null stream's order all the same
    else:
        with expect_deadlock(hip.engine):
            getattr(hip, call)(*given)
    hold.release()
    assert hip.hipDeviceSynchronize() == 0


@pytest.mark.parametrize(("call", "arguments"), DEVICE_ONLY + WITH_HOST_MEMORY)
def test_plain_copies_and_sets_do_not_wait_for_a_nonblocking_stream(hip, call, arguments):
    given = arguments(hip)
    held = create(hip, NON_BLOCKING)
    hold = Held(hip, held)
    assert getattr(hip, call)(*given) == 0
    assert hip.hipStreamQuery(held) == 600
    hold.release()
    hip.hipDeviceSynchronize()


@pytest.mark.parametrize("size", [4096, 1 << 20])
def test_upload_from_pageable_memory_staged(make, size):
    machine = make(HipSettings(pageable_h2d="stage"))
    hip = machine.hip
    stream, pointer = create(hip), malloc(hip, size)
    source = ctypes.create_string_buffer(b"o" * size, size)
    hold = Held(hip, stream)
    assert hip.hipMemcpyAsync(pointer, ctypes.addressof(source), size, 1, stream) == 0
    ctypes.memset(source, ord("n"), size)
    hold.release()
    hip.hipStreamSynchronize(stream)
    assert bytes(machine.memory.view(pointer, size)) == b"o" * size


def test_upload_from_pageable_memory_blocks_by_default(machine, expect_deadlock):
    hip = machine.hip
    stream, pointer = create(hip), malloc(hip)
    source = ctypes.create_string_buffer(b"o" * 4096, 4096)
    assert hip.hipMemcpyAsync(pointer, ctypes.addressof(source), 4096, 1, stream) == 0
    ctypes.memset(source, ord("n"), 4096)
    assert bytes(machine.memory.view(pointer, 4096)) == b"o" * 4096
    hold = Held(hip, stream)
    with expect_deadlock(hip.engine):
        hip.hipMemcpyAsync(pointer, ctypes.addressof(source), 4096, 1, stream)
    hold.release()
    hip.hipDeviceSynchronize()


def test_download_to_pageable_memory_blocks(hip):
    stream, pointer = create(hip), malloc(hip)
    target = ctypes.create_string_buffer(64)
    hip.hipMemsetAsync(pointer, 5, 64, stream)
    assert hip.hipMemcpyAsync(ctypes.addressof(target), pointer, 64, 2, stream) == 0
    assert target.raw == b"\x05" * 64


def test_copies_with_pinned_memory_take_the_bytes_late(machine):
    hip = machine.hip
    stream, pointer = create(hip), malloc(hip)
    _, pinned = hip.hipHostMalloc(64)
    ctypes.memset(pinned, ord("o"), 64)
    hold = Held(hip, stream)
    assert hip.hipMemcpyAsync(pointer, pinned, 64, 1, stream) == 0
    ctypes.memset(pinned, ord("n"), 64)
    hold.release()
    hip.hipStreamSynchronize(stream)
    assert bytes(machine.memory.view(pointer, 64)) == b"n" * 64


def test_calls_inside_a_host_function(hip):
    stream = create(hip)
    _, event = hip.hipEventCreate()
    codes = []

    def inside(_):
        codes.append(hip.hipMalloc(64)[0])
        codes.append(hip.hipStreamQuery(stream))
        codes.append(hip.hipEventQuery(event))

    hip.hipLaunchHostFunc(stream, inside, None)
    hip.hipStreamSynchronize(stream)
    assert codes == [800, 800, 0]


def test_calls_inside_a_host_function_can_be_let_through(make):
    hip = make(HipSettings(host_function_calls="report")).hip
    stream = create(hip)
    codes = []
    hip.hipLaunchHostFunc(stream, lambda _: codes.append(hip.hipMalloc(64)[0]), None)
    hip.hipStreamSynchronize(stream)
    assert codes == [0]


def test_a_full_queue_blocks_the_submit_call(make, expect_deadlock):
    hip = make(HipSettings(queue_limit=16)).hip
    stream, pointer = create(hip), malloc(hip)
    hold = Held(hip, stream)
    for _ in range(15):
        assert hip.hipMemsetAsync(pointer, 1, 64, stream) == 0
    with expect_deadlock(hip.engine, match="whose queue holds 16 commands"):
        hip.hipMemsetAsync(pointer, 1, 64, stream)
    hold.release()
    assert hip.hipMemsetAsync(pointer, 1, 64, stream) == 0
    hip.hipDeviceSynchronize()


def test_no_queue_limit_by_default(lazy):
    hip = lazy.hip
    pointer = malloc(hip)
    for _ in range(3000):
        assert hip.hipMemsetAsync(pointer, 1, 64, 0) == 0
    assert hip.hipDeviceSynchronize() == 0


def test_pointer_attributes(hip):
    device, (_, pinned) = malloc(hip), hip.hipHostMalloc(64)
    plain = ctypes.create_string_buffer(64)
    kinds = []
    for pointer in (device, device + 100, pinned, ctypes.addressof(plain), 0):
        code, attributes = hip.hipPointerGetAttributes(pointer)
        assert code == 0
        kinds.append(attributes.type)
    assert kinds == [2, 2, 1, 0, 0]
    assert kinds[0] is MemoryType.hipMemoryTypeDevice


def test_elapsed_time(hip):
    stream, pointer = create(hip), malloc(hip)
    (_, first), (_, second) = hip.hipEventCreate(), hip.hipEventCreate()
    (_, untimed), (_, unrecorded) = hip.hipEventCreateWithFlags(2), hip.hipEventCreate()
    hip.hipEventRecord(first, stream)
    hip.hipEventRecord(untimed, stream)
    hold = Held(hip, stream)
    hip.hipMemsetAsync(pointer, 1, 4096, stream)
    hip.hipEventRecord(second, stream)
    assert hip.hipEventElapsedTime(first, unrecorded)[0] == 400
    assert hip.hipEventElapsedTime(first, untimed)[0] == 400
    assert hip.hipEventElapsedTime(first, second)[0] == 600
    hold.release()
    hip.hipStreamSynchronize(stream)
    code, milliseconds = hip.hipEventElapsedTime(first, second)
    assert code == 0
    assert milliseconds > 0
    assert hip.hipEventElapsedTime(second, first)[1] == -milliseconds


def test_free_null_twice_and_interior(hip):
    pointer = malloc(hip)
    assert hip.hipFree(0) == 0
    assert hip.hipFree(pointer + 16) == 1
    assert hip.hipFree(pointer) == 0
    assert hip.hipFree(pointer) == 1
