"""One program, two faces: Python methods and C symbols give the same bytes, counts and codes in every release."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from connector import Descr, Libraries, Status, _Handle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.driver.profiles import list_profiles
from hipfile_sim.machine import Machine
from hipfile_sim.native.activation import activate

FILE, BUFFER = 20_000, 16_384


class PythonFace:
    """The model's own methods."""

    def __init__(self, machine: Machine) -> None:
        self.hip, self.file = machine.hip, machine.hipfile

    def malloc(self, size: int) -> int:
        return self.hip.hipMalloc(size)[1]

    def stream(self, flags: int) -> int:
        return self.hip.hipStreamCreateWithFlags(flags)[1]

    def register(self, kind: int, fd: int) -> tuple[Any, int]:
        status, handle = self.file.hipFileHandleRegister(FileDescr(kind, fd))
        return tuple(map(int, status)), handle

    def call(self, name: str, *args: int) -> Any:
        result = getattr(self.file if name.startswith("hipFile") else self.hip, name)(*args)
        return None if result is None else tuple(map(int, result)) if isinstance(result, tuple) else int(result)

    def last_error(self) -> int:
        # C's library says "no error" by itself, so that is no call of the model and takes no virtual time there.
        return int(self.hip.hipGetLastError()) if self.hip.thread.last_error else 0

    def download(self, pointer: int, size: int) -> bytes:
        out = ctypes.create_string_buffer(size)
        assert self.hip.hipMemcpy(ctypes.addressof(out), pointer, size, 2) == 0
        return out.raw


class CFace:
    """The exported symbols."""

    SIGNED = ctypes.c_int64

    def __init__(self, machine: Machine) -> None:
        self.lib = Libraries()
        self.last_error()  # the thread may still have that of the program before

    def malloc(self, size: int) -> int:
        out = ctypes.c_void_p()
        assert self.lib.hip.hipMalloc(ctypes.byref(out), ctypes.c_size_t(size)) == 0
        return out.value or 0

    def stream(self, flags: int) -> int:
        out = ctypes.c_void_p()
        assert self.lib.hip.hipStreamCreateWithFlags(ctypes.byref(out), flags) == 0
        return out.value or 0

    def register(self, kind: int, fd: int) -> tuple[Any, int]:
        handle = ctypes.c_void_p()
        status = self.lib.file.hipFileHandleRegister(ctypes.byref(handle), Descr(kind, _Handle(fd=fd), None))
        return (status.err, status.hip_drv_err), handle.value or 0

    def call(self, name: str, *args: int) -> Any:
        function = getattr(self.lib.file if name.startswith("hipFile") else self.lib.hip, name)
        ctypes.set_errno(0)
        if function.argtypes is None:
            args = tuple(ctypes.c_uint64(value & (1 << 64) - 1) for value in args)  # type: ignore[assignment]
        result = function(*args)
        if isinstance(result, Status):
            return result.err, result.hip_drv_err
        return (result, ctypes.get_errno()) if name in ("hipFileRead", "hipFileWrite") else result

    def last_error(self) -> int:
        return int(self.lib.hip.hipGetLastError())

    def download(self, pointer: int, size: int) -> bytes:
        out = ctypes.create_string_buffer(size)
        assert self.lib.hip.hipMemcpy(out, ctypes.c_void_p(pointer), ctypes.c_size_t(size), 2) == 0
        return out.raw


@contextmanager
def face(kind: type, profile: str, schedule: str) -> Iterator[Any]:
    with Machine(profile=profile, schedule=schedule, env={}) as machine:
        if kind is PythonFace:
            yield PythonFace(machine)
        else:
            with activate(machine, profile="newest"):
                yield CFace(machine)


small = st.integers(0, 5000)
sizes = st.one_of(small, small, small, st.sampled_from([0, 1, 4096, BUFFER, BUFFER + 1, FILE, 1 << 40, (1 << 64) - 1]))
offsets = st.one_of(small, small, small, st.sampled_from([0, 4096, FILE - 7, -1, -4096, FILE + 1, (1 << 63) - 1]))
asynchronous = st.sampled_from(["hipFileReadAsync", "hipFileWriteAsync"])
of_a_stream = st.sampled_from(["hipFileStreamDeregister", "hipStreamSynchronize", "hipStreamQuery", "hipStreamDestroy"])
steps = st.one_of(
    st.tuples(st.sampled_from(["hipFileRead", "hipFileWrite"]), st.integers(0, 3), sizes, offsets, offsets),
    st.tuples(asynchronous, st.integers(0, 3), sizes, offsets, offsets, st.integers(0, 3)),
    st.tuples(st.just("change"), st.integers(0, 3), st.sampled_from([0, 1, 2]), st.integers(0, FILE)),
    st.tuples(st.just("register"), st.integers(0, 3), st.sampled_from([0, 1, 1, 1, 2, 3, 77]), st.booleans()),
    st.tuples(st.just("hipFileStreamRegister"), st.integers(0, 3), st.integers(0, 17)),
    st.tuples(of_a_stream, st.integers(0, 3)),
    st.tuples(st.just("hipFileBufRegister"), st.integers(-1, 4), sizes),
    st.tuples(st.just("hipFileBufDeregister"), st.integers(-1, 4)),
    st.tuples(st.just("hipFileHandleDeregister"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["hipFileDriverOpen", "hipFileDriverClose", "hipFileUseCount", "hipDeviceSynchronize"])),
    st.tuples(st.just("hipFree"), st.integers(-1, 4)),
)  # fmt: skip


def play(face: Any, program: list[tuple[Any, ...]], path: str, prepared: bool) -> list[Any]:
    """Run the program; handles and pointers stand in the log by their number, never by their value.

    `prepared`: two handles, a buffer and a stream are registered before it begins, so that most of it gets somewhere.
    """
    with open(path, "wb") as file:
        file.write(bytes(i * 7 % 251 for i in range(FILE)))
    fd = os.open(path, os.O_RDWR)
    second = os.open(path, os.O_RDWR)
    bad = os.open(os.path.dirname(path), os.O_RDONLY)
    pointers = {-1: 0, **{i: face.malloc(BUFFER) for i in range(4)}, 4: 0x1234}
    streams = [0, face.stream(0), face.stream(1), 0x999]
    handles = [0, 0, 0, 0xF11E]
    slots = [(ctypes.c_int64 * 4)() for _ in range(4)]
    log: list[Any] = []
    for pointer in (pointers[i] for i in range(4)):
        assert face.call("hipMemset", pointer, 0x33, BUFFER) == 0
    try:
        if prepared:
            handles[:2] = [face.register(1, fd)[1], face.register(1, second)[1]]
            log += [
                face.call("hipFileBufRegister", pointers[0], BUFFER, 0),
                face.call("hipFileStreamRegister", streams[1], 7),
            ]
        for name, *args in program:
            if name == "change":
                slots[args[0]][args[1]] = args[2]
                continue
            if name == "register":
                code, handle = face.register(args[1], fd if args[2] else bad)
                if code == (0, 0):
                    handles[args[0]] = handle
                log.append((name, code, face.last_error()))
                continue
            if name in ("hipFileRead", "hipFileWrite"):
                values = [handles[args[0] % 2], pointers[args[0]], *args[1:]]
            elif name.endswith("Async"):
                which, size, file_offset, buffer_offset, stream = args
                slot = slots[which]
                face.call("hipStreamSynchronize", streams[stream])  # one operation at a time may own a set of slots
                slot[:] = [(size + (1 << 63)) % (1 << 64) - (1 << 63), file_offset, buffer_offset, -9]
                base = ctypes.addressof(slot)
                values = [handles[which % 2], pointers[which], *(base + 8 * i for i in range(4)), streams[stream]]
            elif name in ("hipFileBufRegister",):
                values = [pointers[args[0]], args[1], 0]
            elif name in ("hipFileBufDeregister", "hipFree"):
                values = [pointers[args[0]]]
            elif name == "hipFileHandleDeregister":
                values = [handles[args[0]]]
            elif name == "hipFileStreamRegister":
                values = [streams[args[0]], args[1]]
            else:
                values = [streams[args[0]]] if args else []
            code = face.call(name, *values)
            if name == "hipFileHandleDeregister":
                code = None
            log.append((name, code, face.last_error()))
        log.append(face.call("hipDeviceSynchronize"))
        log.append([list(slot) for slot in slots])
        for i in range(4):
            if face.call("hipMemset", pointers[i], 0, 0) == 0 and ("hipFree", i) not in program:
                log.append(face.download(pointers[i], BUFFER))
    finally:
        for descriptor in (fd, second, bad):
            os.close(descriptor)
    with open(path, "rb") as file:
        log.append(file.read(4 * FILE))
    return log


@pytest.mark.hypothesis
@pytest.mark.parametrize("profile", list_profiles())
def test_both_faces_agree(native_prefix: Path, tmp_path: Path, profile: str) -> None:
    @settings(max_examples=60, suppress_health_check=list(HealthCheck), database=None)
    @given(
        program=st.lists(steps, max_size=12),
        schedule=st.sampled_from(["parallel", "lazy", "eager", "seeded:1"]),
        prepared=st.sampled_from([True, True, False]),
    )
    def compare(program: list[tuple[Any, ...]], schedule: str, prepared: bool) -> None:
        logs = []
        for kind in (PythonFace, CFace):
            with face(kind, profile, schedule) as one:
                logs.append(play(one, program, str(tmp_path / "data"), prepared))
        assert logs[0] == logs[1]

    compare()
