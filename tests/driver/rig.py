"""A machine with files, buffers, streams and slots at hand, for the tests of the driver."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hipfile_sim.driver.codes import FileDescr, HipFileStatus
from hipfile_sim.driver.fileops import RealFiles
from hipfile_sim.hip.codes import HipError
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.machine import Machine
from hipfile_sim.observe.observer import Observer

AMD = ("0.2", "0.3", "0.4", "0.5")
G1 = ("0.2", "0.3", "0.4")
ALL = (*AMD, "cufile")
UNTOUCHED = 0x5EED
CHUNK = 16 << 20


def pattern(size: int, seed: int = 1) -> bytes:
    """Bytes that differ at every offset and for every seed."""
    block = bytes((i * 7 + seed * 31 + i // 251) & 0xFF for i in range(min(size, 64 << 10)))
    return (block * (size // max(1, len(block)) + 1))[:size]


class Slots:
    """The four words of an asynchronous call, in real memory."""

    def __init__(self, size: int, file_offset: int = 0, buffer_offset: int = 0) -> None:
        self.words = (ctypes.c_int64 * 4)(size, file_offset, buffer_offset, UNTOUCHED)
        base = ctypes.addressof(self.words)
        self.pointers = (base, base + 8, base + 16, base + 24)

    @property
    def done(self) -> int:
        return int(self.words[3])

    def set(self, size: int, file_offset: int, buffer_offset: int) -> None:
        self.words[0], self.words[1], self.words[2] = size, file_offset, buffer_offset


class Recorder(Observer):
    """Kinds of the commands of hipFile, in the order in which they were queued; and the notes."""

    KINDS = ("bind", "cpu_copy", "memcpy_kernel", "advance", "cleanup", "run_io", "run_copy", "batch_io")

    def __init__(self) -> None:
        self.commands: list[Any] = []
        self.notes: list[Any] = []
        self.finished_kinds: list[str] = []

    def submitted(self, command: Any) -> None:
        if command.kind in self.KINDS:
            self.commands.append(command)

    def finished(self, command: Any) -> None:
        if command.kind in self.KINDS:
            command.accesses()
            self.finished_kinds.append(command.kind)

    def note(self, note: Any) -> None:
        self.notes.append(note)

    @property
    def kinds(self) -> list[str]:
        return [command.kind for command in self.commands]

    @property
    def note_ids(self) -> list[str]:
        return [note.id for note in self.notes]


class FaultyFiles(RealFiles):
    """Real files whose preads, pwrites and syncs can be told to misbehave.

    A fault is a count (a short transfer of at most so many bytes), an errno, a callable run before the real transfer,
    or None for no fault. One is taken for each call.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[Any] = []
        self.writes: list[Any] = []
        self.syncs: list[int | None] = []
        self.log: list[tuple[Any, ...]] = []

    def _fault(self, faults: list[Any], view: memoryview) -> memoryview | None:
        fault = faults.pop(0) if faults else None
        if callable(fault):
            fault()
            return view
        if fault is None:
            return view
        if fault < 0:
            raise OSError(-fault, os.strerror(-fault))
        return view[:fault] if fault else None

    def pread_into(self, fd: int, view: memoryview, offset: int) -> int:
        self.log.append(("pread", fd, len(view), offset))
        part = self._fault(self.reads, view)
        return 0 if part is None else super().pread_into(fd, part, offset)

    def pwrite_from(self, fd: int, view: memoryview, offset: int) -> int:
        self.log.append(("pwrite", fd, len(view), offset))
        part = self._fault(self.writes, view)
        return 0 if part is None else super().pwrite_from(fd, part, offset)

    def fdatasync(self, fd: int) -> None:
        self.log.append(("fdatasync", fd))
        fault = self.syncs.pop(0) if self.syncs else None
        if fault:
            raise OSError(fault, os.strerror(fault))
        super().fdatasync(fd)


class Rig:
    """One machine and the things that tests need on it.

    Parameters
    ----------
    folder : Path
        For files.
    profile : str
    **settings
        For `Machine`; ``buffer_size`` sets HIPFILE_ASYNC_BUFFER_SIZE, ``hip`` the `HipSettings`.
    """

    def __init__(self, folder: Path, profile: str = "0.5", **settings: Any) -> None:
        self.folder = folder
        env = dict(settings.pop("env", {}))
        if "buffer_size" in settings:
            env["HIPFILE_ASYNC_BUFFER_SIZE"] = str(settings.pop("buffer_size"))
        hip = settings.pop("hip", None)
        if hip is not None:
            settings["settings"] = HipSettings(**hip)
        settings.setdefault("schedule", "lazy")
        self.files = settings.pop("files", None) or FaultyFiles()
        self.machine = Machine(profile=profile, env=env, files=self.files, **settings)
        self.profile = self.machine.profile
        self.hip = self.machine.hip
        self.f = self.machine.hipfile
        self.fds: list[int] = []
        self._names = 0

    def close(self) -> None:
        self.machine.close()
        for fd in self.fds:
            try:
                os.close(fd)
            except OSError:
                pass

    # -- things ------------------------------------------------------------------------------------------------------

    def fd(self, data: bytes = b"", flags: int = os.O_RDWR) -> int:
        self._names += 1
        path = self.folder / f"file{self._names}"
        path.write_bytes(data)
        fd = os.open(path, flags)
        self.fds.append(fd)
        return fd

    def register(self, fd: int) -> int:
        status, handle = self.f.hipFileHandleRegister(FileDescr(1, fd))
        assert status.ok, status
        return handle

    def file(self, data: bytes = b"", flags: int = os.O_RDWR) -> tuple[int, int]:
        """Descriptor and handle; the driver is open afterwards."""
        fd = self.fd(data, flags)
        return fd, self.register(fd)

    def memory(self, size: int, fill: bytes | None = None, device: int = 0) -> int:
        assert self.hip.hipSetDevice(device) == 0
        code, pointer = self.hip.hipMalloc(size)
        assert code == 0, code
        assert self.hip.hipSetDevice(0) == 0
        self.poke(pointer, fill if fill is not None else pattern(size, 9))
        return pointer

    def buffer(self, size: int, fill: bytes | None = None, device: int = 0) -> int:
        pointer = self.memory(size, fill, device)
        assert self.f.hipFileBufRegister(pointer, size, 0).ok
        return pointer

    def stream(self, flags: int | None = 0, *, blocking: bool = False, device: int = 0) -> int:
        """A HIP stream, registered with `flags` unless they are None."""
        assert self.hip.hipSetDevice(device) == 0
        code, stream = self.hip.hipStreamCreateWithFlags(0 if blocking else 1)
        assert code == 0
        assert self.hip.hipSetDevice(0) == 0
        if flags is not None:
            status = self.f.hipFileStreamRegister(stream, flags)
            assert status.ok, status
        return stream

    # -- doing -------------------------------------------------------------------------------------------------------

    def go(self, write: bool, handle: int, pointer: int, slots: Slots, stream: int) -> HipFileStatus:
        call = self.f.hipFileWriteAsync if write else self.f.hipFileReadAsync
        return call(handle, pointer, *slots.pointers, stream)

    def read(self, handle: int, pointer: int, slots: Slots, stream: int) -> int:
        return int(self.go(False, handle, pointer, slots, stream).err)

    def write(self, handle: int, pointer: int, slots: Slots, stream: int) -> int:
        return int(self.go(True, handle, pointer, slots, stream).err)

    def hold(self, stream: int) -> None:
        self.machine.stall(stream, hold=True)

    def release(self, stream: int) -> None:
        self.machine.unstall(stream)
        assert self.hip.hipStreamSynchronize(stream) == 0

    def sync(self, stream: int) -> None:
        assert self.hip.hipStreamSynchronize(stream) == 0

    def peek(self, pointer: int, size: int) -> bytes:
        return bytes(self.machine.memory.view(pointer, size))

    def poke(self, pointer: int, data: bytes) -> None:
        self.machine.memory.view(pointer, len(data))[:] = data

    def watch(self) -> Recorder:
        recorder = Recorder()
        self.machine.add_observer(recorder)
        return recorder

    def fail_hip(self, name: str, code: HipError, skip: int = 0) -> Callable[[], int]:
        """Let calls of `name` behind the first `skip` fail. Returns how often it was asked."""
        seen = [0]

        def hook(called: str, args: Any) -> int | None:
            if called == name:
                seen[0] += 1
                if seen[0] > skip:
                    return int(code)
            return None

        self.hip.interpose = hook
        return lambda: seen[0]

    @property
    def count(self) -> int:
        return self.f.hipFileUseCount()

    @property
    def pinned(self) -> int:
        return self.machine.memory.pinned_used


def error(status: Any) -> str:
    """Name of the code of a status, or of the status in a tuple, without its prefix."""
    found = status if isinstance(status, HipFileStatus) else status[0]
    return found.err.name.removeprefix("hipFile")


ENOSPC, EIO, EINTR = -errno.ENOSPC, -errno.EIO, -errno.EINTR
