"""Files, buffers, descriptors, memory and streams that go while operations are in flight."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hipfile_driver_rig import AMD, G1, Slots, error, pattern

from hipfile_sim.driver.codes import IOResult

amd = pytest.mark.parametrize("profile", AMD)
DATA = pattern(4096, 1)


class InFlight:
    """A read of 4096 bytes that waits on a held stream."""

    def __init__(self, rig: Any, flags: int = os.O_RDWR, *, registered: bool = True) -> None:
        self.rig = rig
        self.fd, self.handle = rig.file(DATA, flags)
        self.pointer = rig.buffer(4096, bytes(4096)) if registered else rig.memory(4096, bytes(4096))
        self.stream = rig.stream(0)
        self.slots = Slots(4096)
        rig.hold(self.stream)
        assert rig.read(self.handle, self.pointer, self.slots, self.stream) == 0

    def finish(self) -> int:
        self.rig.release(self.stream)
        return self.slots.done


@amd
def test_a_handle_in_use_silently_stays(make_rig: Any, profile: str) -> None:
    op = InFlight(rig := make_rig(profile))
    assert rig.f.hipFileHandleDeregister(op.handle) is None
    assert rig.f.hipFileRead(op.handle, op.pointer, 16, 0, 0) == IOResult(16)
    assert op.finish() == 4096
    rig.f.hipFileHandleDeregister(op.handle)
    assert rig.f.hipFileRead(op.handle, op.pointer, 16, 0, 0) == IOResult(-5027)
    os.fstat(op.fd)


def test_cufile_detaches_a_handle_at_once(make_rig: Any) -> None:
    op = InFlight(rig := make_rig("cufile"))
    rig.f.hipFileHandleDeregister(op.handle)
    assert rig.f.hipFileRead(op.handle, op.pointer, 16, 0, 0) == IOResult(-1, 5027)
    assert op.finish() == 4096
    assert rig.peek(op.pointer, 4096) == DATA


@amd
def test_both_are_free_once_the_count_is_there(make_rig: Any, profile: str) -> None:
    """References go before the result is stored."""
    rig = make_rig(profile)
    op = InFlight(rig)
    seen = []

    def publish(operation: Any, value: int) -> int:
        seen.append((error(rig.f.hipFileBufDeregister(op.pointer)), op.slots.done))
        return value

    rig.f.on_publish = publish
    assert op.finish() == 4096
    assert seen == [("Success", 0)]


@amd
def test_the_hook_for_results(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    rig.f.on_publish = lambda op, value: -5
    assert InFlight(rig).finish() == -5
    rig.f.on_publish = lambda op, value: None
    op = InFlight(rig)
    assert op.finish() == 0  # never published; everything else is done
    assert error(rig.f.hipFileBufDeregister(op.pointer)) == "Success"


@amd
def test_an_operation_that_the_monitor_does_not_know(make_rig: Any, profile: str) -> None:
    op = InFlight(rig := make_rig(profile))
    rig.f.monitor.active.clear()
    assert op.finish() == -5030


@amd
def test_temporary_things_go_with_the_operation(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    pinned = rig.pinned
    op = InFlight(rig, registered=False)
    assert op.finish() == 4096
    error(rig.f.hipFileStreamDeregister(op.stream))
    gc.collect()
    assert rig.pinned == pinned
    assert not rig.f.monitor.active


@amd
@pytest.mark.parametrize("direct", [False, True], ids=["buffered", "direct"])
def test_a_recycled_descriptor(make_rig: Any, profile: str, direct: bool) -> None:
    """The number is closed in flight and means another file: what is used depends on which one the library opened."""
    rig = make_rig(profile)
    op = InFlight(rig, os.O_RDWR | (os.O_DIRECT if direct else 0))
    other = b"other file's data" * 240
    path = rig.folder / "other"
    path.write_bytes(other)
    os.close(op.fd)
    new = os.open(path, os.O_RDONLY)
    if new != op.fd:
        os.dup2(new, op.fd)
        os.close(new)
    recorder = rig.watch()
    assert op.finish() == (4096 if direct else len(other))
    assert rig.peek(op.pointer, 4096)[:16] == (DATA if direct else other)[:16]
    assert recorder.note_ids == ["file.descriptor-recycled"]


@amd
def test_a_closed_descriptor(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    op = InFlight(rig)
    os.close(op.fd)
    assert op.finish() == -1
    assert rig.f.hipFileRead(op.handle, op.pointer, 16, 0, 0) == IOResult(-1, 9)


@amd
def test_device_memory_freed_behind_a_registration(make_rig: Any, profile: str) -> None:
    """A registered buffer whose memory is gone: submit does not notice; the device sees what is there now."""
    rig = make_rig(profile)
    fd, handle = rig.file(DATA)
    pointer, stream, slots = rig.buffer(4096), rig.stream(0), Slots(4096)
    assert rig.hip.hipFree(pointer) == 0
    assert rig.write(handle, pointer, slots, stream) == 0
    rig.sync(stream)
    assert slots.done in (4096, -5030)
    if slots.done == 4096:
        assert os.pread(fd, 4096, 0) == b"\xdb" * 4096
    assert rig.f.hipFileRead(handle, pointer, 16, 0, 0).count < 0
    assert error(rig.f.hipFileBufDeregister(pointer)) == "Success"


@amd
def test_stream_destroyed_in_flight(make_rig: Any, profile: str) -> None:
    op = InFlight(rig := make_rig(profile))
    assert rig.hip.hipStreamDestroy(op.stream) == 0
    for lane in list(rig.machine.engine.lanes.values()):
        rig.machine.engine.unstall(lane)
    rig.machine.finish()
    assert op.slots.done == 4096
    assert error(rig.f.hipFileStreamDeregister(op.stream)) == "Success"
    assert rig.pinned == 0


@amd
def test_deregistering_the_stream_frees_its_memory_late(make_rig: Any, profile: str) -> None:
    rig = make_rig(profile)
    op = InFlight(rig)
    held = rig.pinned
    assert error(rig.f.hipFileStreamDeregister(op.stream)) == "Success"
    assert rig.pinned == held
    assert error(rig.f.hipFileStreamRegister(op.stream, 7)) == "Success"  # a new object beside the old one
    assert op.finish() == 4096
    assert error(rig.f.hipFileStreamDeregister(op.stream)) == "Success"
    assert rig.pinned == 0


@amd
def test_files_in_flight_keep_their_second_descriptor(
    make_rig: Any, profile: str, tmp_path: Path, descriptors_in: Callable[[Path], int]
) -> None:
    rig = make_rig(profile)
    op = InFlight(rig, os.O_RDWR | os.O_DIRECT)
    before = descriptors_in(tmp_path)
    rig.f.hipFileDriverClose()
    assert descriptors_in(tmp_path) == before
    assert op.finish() == 4096
    assert descriptors_in(tmp_path) == before - 1


@pytest.mark.parametrize("profile", ["0.2", "0.5", "cufile"])
def test_registering_and_deregistering_under_load(make_rig: Any, profile: str) -> None:
    """Threads that submit, synchronise, register and deregister: codes only, everything is given back."""
    rig = make_rig(profile, engine="threads", buffer_size=4096)
    _, handle = rig.file(DATA)
    allowed = {"Success", "InternalError", "MemoryAlreadyRegistered", "MemoryNotRegistered"}
    pointer = rig.memory(4096)
    failures: list[Any] = []

    def work(number: int) -> None:
        stream = rig.stream(0 if number % 2 else None)
        for step in range(60):
            slots = Slots(512, 512 * (step % 8), 512 * (step % 8))
            codes = [
                error(rig.f.hipFileBufRegister(pointer, 4096, 0)),
                error(rig.go(bool(step % 3 == 0), handle, pointer, slots, stream)),
                error(rig.f.hipFileBufDeregister(pointer)),
            ]
            if set(codes) - allowed or rig.hip.hipStreamSynchronize(stream) or slots.done != 512:
                failures.append((codes, slots.done))
        rig.f.hipFileStreamDeregister(stream)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not rig.f.monitor.active
    assert rig.pinned == 0
    assert error(rig.f.hipFileBufDeregister(pointer)) in ("Success", "MemoryNotRegistered")
    rig.f.hipFileHandleDeregister(handle)
    assert rig.f.state.files.lookup(handle) is None
    assert profile not in G1 or rig.machine.memory.pinned_peak > 0
