"""Asynchronous submission: which check comes first, and what it leaves behind."""

from __future__ import annotations

import ctypes
import errno
import threading
from itertools import pairwise
from typing import Any

import pytest
from hipfile_driver_rig import AMD, G1, UNTOUCHED, Recorder, Slots, error, pattern

from hipfile_sim.hip.codes import HipError

amd = pytest.mark.parametrize("profile", AMD)
both = pytest.mark.parametrize("write", [False, True], ids=["read", "write"])


class Call:
    """A correct call, and ways of breaking it."""

    def __init__(self, rig: Any, write: bool) -> None:
        self.rig = rig
        self.write = write
        _, self.handle = rig.file(pattern(64))
        self.pointer = rig.buffer(64)
        self.stream = rig.stream(0)
        self.slots = Slots(64)
        self.pointers = list(self.slots.pointers)

    def go(self) -> Any:
        call = self.rig.f.hipFileWriteAsync if self.write else self.rig.f.hipFileReadAsync
        return call(self.handle, self.pointer, *self.pointers, self.stream)


def _null(call: Call, which: int) -> None:
    if which == 0:
        call.pointer = 0
    else:
        call.pointers[which - 1] = 0


BREAKS: list[tuple[str, Any, Any]] = [
    # in the order of the checks: name, how to break it, (code, HIP code)
    ("closed", lambda c: c.rig.f.hipFileDriverClose(), ("InvalidValue", 0)),
    ("null", lambda c: _null(c, 2), ("InvalidValue", 0)),
    ("file", lambda c: setattr(c, "handle", c.handle + 64), ("HandleNotRegistered", 0)),
    ("memory", lambda c: setattr(c, "pointer", c.rig.hip.hipHostMalloc(64)[1]), ("InternalError", 0)),
    ("stream", lambda c: setattr(c, "stream", 0xBAD), ("HipDriverError", 400)),
    ("range", lambda c: c.slots.set(65, 0, 0), ("InvalidValue", 0)),
    ("device", lambda c: setattr(c, "stream", c.rig.stream(0, device=1)), ("InvalidValue", 0)),
]


@amd
@both
@pytest.mark.parametrize("first", range(len(BREAKS)), ids=[b[0] for b in BREAKS])
def test_the_first_broken_check_decides(make_rig: Any, profile: str, write: bool, first: int) -> None:
    """Alone, and together with each later one. The result slot stays as it was."""
    for second in (None, *range(first + 1, len(BREAKS))):
        rig = make_rig(profile)
        call = Call(rig, write)
        if second is not None:
            BREAKS[second][1](call)
        BREAKS[first][1](call)
        status = call.go()
        expected = BREAKS[first][2]
        assert error(status) == expected[0], (BREAKS[first][0], second)
        if expected[1]:
            assert status.hip_drv_err != 0
        assert call.slots.done == UNTOUCHED
        assert rig.hip.hipDeviceSynchronize() == 0
        assert not rig.f.monitor.active


@amd
@both
@pytest.mark.parametrize("which", range(5), ids=["base", "size", "file offset", "buffer offset", "bytes"])
def test_null_pointers(make_rig: Any, profile: str, write: bool, which: int) -> None:
    call = Call(make_rig(profile), write)
    _null(call, which)
    ctypes.set_errno(errno.EACCES)
    assert error(call.go()) == "InvalidValue"
    assert call.slots.done == UNTOUCHED
    assert ctypes.get_errno() == errno.EACCES


@amd
@both
@pytest.mark.parametrize(
    "values",
    [(65, 0, 0), (0, 0, 64), (1, 0, 64), (64, 0, 1), (1, -1, 0), (1, 0, -1), (-1, 0, 0), (2**40, 0, 0), (0, -1, 0)],
)
def test_ranges(make_rig: Any, profile: str, write: bool, values: tuple[int, int, int]) -> None:
    call = Call(make_rig(profile), write)
    call.slots.set(*values)
    assert error(call.go()) == "InvalidValue"
    assert call.slots.done == UNTOUCHED


@amd
@both
def test_references_of_a_refused_call_are_given_back(make_rig: Any, profile: str, write: bool) -> None:
    rig = make_rig(profile)
    call = Call(rig, write)
    call.slots.set(65, 0, 0)
    call.go()
    assert error(rig.f.hipFileBufDeregister(call.pointer)) == "Success"
    rig.f.hipFileHandleDeregister(call.handle)
    assert rig.f.state.files.lookup(call.handle) is None


@amd
@both
@pytest.mark.parametrize("flags", [None, 0, 7, 15])
def test_size_zero_is_done_at_once(make_rig: Any, profile: str, write: bool, flags: int | None) -> None:
    rig = make_rig(profile)
    call = Call(rig, write)
    call.stream = rig.stream(flags)
    call.slots.set(0, 0, 0)
    recorder = rig.watch()
    assert error(call.go()) == "Success"
    assert call.slots.done == 0
    assert recorder.kinds == []
    assert error(rig.f.hipFileBufDeregister(call.pointer)) == "Success"


@amd
@both
def test_accepted(make_rig: Any, profile: str, write: bool) -> None:
    rig = make_rig(profile)
    call = Call(rig, write)
    rig.hold(call.stream)
    assert error(call.go()) == "Success"
    assert call.slots.done == 0
    rig.release(call.stream)
    assert call.slots.done == 64


@amd
@both
def test_no_selection_before_0_5(make_rig: Any, profile: str, write: bool) -> None:
    """Up to 0.4 the fallback is used for asynchronous operations even if it is not allowed."""
    rig = make_rig(profile, env={"HIPFILE_ALLOW_COMPAT_MODE": "false"})
    call = Call(rig, write)
    if profile in G1:
        assert error(call.go()) == "Success"
        rig.sync(call.stream)
        assert call.slots.done == 64
        call.slots.set(65, 0, 0)
        assert error(call.go()) == "InvalidValue"
    else:
        assert error(call.go()) == "InternalError"
        assert call.slots.done == UNTOUCHED
        call.slots.set(65, 0, 0)
        assert error(call.go()) == "InternalError"  # selection comes before the range check


@amd
@both
def test_no_pinned_memory_for_the_operation(make_rig: Any, profile: str, write: bool) -> None:
    rig = make_rig(profile)
    call = Call(rig, write)
    rig.fail_hip("hipHostMalloc", HipError.hipErrorOutOfMemory)
    status = call.go()
    assert (error(status), status.hip_drv_err) == ("HipDriverError", HipError.hipErrorOutOfMemory)
    assert call.slots.done == 0
    rig.hip.interpose = None
    assert error(rig.f.hipFileBufDeregister(call.pointer)) == "Success"


@pytest.mark.parametrize("profile", G1)
def test_no_pinned_memory_for_the_bounce_buffer(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    call = Call(rig, False)
    before = rig.pinned
    rig.fail_hip("hipHostMalloc", HipError.hipErrorOutOfMemory, skip=1)
    status = call.go()
    assert (error(status), int(status.hip_drv_err)) == ("HipDriverError", 2)
    assert call.slots.done == 0
    assert rig.pinned == before


@pytest.mark.parametrize("profile", G1)
def test_the_pinned_budget_ends(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile, hip={"pinned_memory": 1 << 20})
    _, handle = rig.file(pattern(64))
    pointer, stream = rig.buffer(1 << 19), rig.stream(0)
    rig.hold(stream)
    slots = [Slots(400 << 10) for _ in range(4)]
    codes = [rig.read(handle, pointer, one, stream) for one in slots]
    assert codes == [0, 0, 5011, 5011]
    rig.release(stream)
    assert [one.done for one in slots] == [64, 64, 0, 0]
    assert rig.pinned == 0
    assert rig.read(handle, pointer, slots[3], stream) == 0


@amd
@both
@pytest.mark.parametrize("failing", range(5))
def test_launch_errors(make_rig: Any, profile: str, write: bool, failing: int) -> None:
    """The command that fails is reported, the cleanup is still queued, and everything is given back."""
    rig = make_rig(profile)
    call = Call(rig, write)
    recorder = rig.watch()
    launches = [0]

    def hook(name: str, args: Any) -> int | None:
        if name in ("hipLaunchHostFunc", "hipLaunchKernel"):
            launches[0] += 1
            if launches[0] == failing + 1:
                return int(HipError.hipErrorLaunchFailure)
        return None

    rig.hip.interpose = hook
    status = call.go()
    rig.hip.interpose = None
    total = 4 if profile in G1 else 5  # with bind and cleanup
    if failing >= total:
        assert error(status) == "Success"
        return
    assert (error(status), status.hip_drv_err) == ("HipDriverError", HipError.hipErrorLaunchFailure)
    assert call.slots.done == 0
    is_cleanup = failing == total - 1
    assert len(recorder.kinds) == (failing if is_cleanup else failing + 1)
    assert (recorder.kinds[-1:] == ["cleanup"]) is not is_cleanup
    rig.sync(call.stream)
    if profile == "0.5":
        assert call.slots.done == 0
    if is_cleanup:  # nothing is left that could end the operation
        assert recorder.note_ids == ["submit.launch-error"]
        assert error(rig.f.hipFileBufDeregister(call.pointer)) == "InternalError"
        return
    assert error(rig.f.hipFileBufDeregister(call.pointer)) == "Success"
    rig.f.hipFileHandleDeregister(call.handle)
    assert rig.f.state.files.lookup(call.handle) is None


DANGLING = 0x10


@pytest.mark.parametrize("profile", [*AMD, "cufile"])
@both
@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("kind", ["unmapped", "kernel", "huge", "negative", "device", "read-only"])
def test_slots_that_are_no_memory(make_rig: Any, profile: str, write: bool, which: int, kind: str) -> None:
    rig = make_rig(profile)
    call = Call(rig, write)
    recorder: Recorder = rig.watch()
    if kind == "read-only" and which < 3:
        return  # a parameter may live in read-only memory
    call.pointers[which] = {
        "unmapped": DANGLING,
        "kernel": 0xFFFF800000000000,
        "huge": 2**64 + 8,
        "negative": -8,
        "device": rig.memory(64),
        "read-only": ctypes.cast(ctypes.pythonapi.Py_GetVersion, ctypes.c_void_p).value,
    }[kind]
    assert error(call.go()) == "InvalidValue"
    assert recorder.note_ids == ["submit.dangling-slot"]
    assert call.slots.done == UNTOUCHED
    assert error(rig.f.hipFileBufDeregister(call.pointer)) == "Success"


@amd
def test_misaligned_slots_work(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    _, handle = rig.file(pattern(64))
    pointer, stream = rig.buffer(64), rig.stream(0)
    raw = (ctypes.c_char * 64)()
    base = ctypes.addressof(raw) + 1
    for n, value in enumerate((40, 8, 16)):
        ctypes.memmove(base + 9 * n, value.to_bytes(8, "little"), 8)
    assert rig.f.hipFileReadAsync(handle, pointer, base, base + 9, base + 18, base + 27, stream).ok
    rig.sync(stream)
    assert int.from_bytes(raw.raw[28:36], "little") == 40
    assert rig.peek(pointer, 64)[16:56] == pattern(64)[8:48]


def test_submitting_from_a_host_function(make_rig: Any) -> None:
    rig = make_rig()
    call = Call(rig, False)
    answers: list[Any] = []
    other = rig.stream(None)
    rig.hip.hipLaunchHostFunc(other, lambda _: answers.append(call.go()), None)
    rig.sync(other)
    assert (error(answers[0]), answers[0].hip_drv_err) == ("HipDriverError", HipError.hipErrorNotPermitted)
    assert not rig.f.monitor.active


@amd
def test_threads_on_one_stream_do_not_interleave(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile, engine="threads")
    data = pattern(4096)
    _, handle = rig.file(data)
    pointer, stream = rig.buffer(4096, bytes(4096)), rig.stream(0)
    recorder = rig.watch()
    slots = [Slots(16, 16 * n, 16 * n) for n in range(256)]

    def submit(first: int) -> None:
        for one in slots[first::4]:
            assert rig.read(handle, pointer, one, stream) == 0

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rig.sync(stream)
    assert rig.peek(pointer, 4096) == data
    assert {one.done for one in slots} == {16}
    ops = [command.op for command in recorder.commands]
    changes = sum(a is not b for a, b in pairwise(ops))
    assert changes == 255
