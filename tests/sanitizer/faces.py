"""The same programs through what people import: the ``hipfile`` package and ``torch.cuda``, as doubles."""

from __future__ import annotations

import gc
from pathlib import Path
from types import TracebackType
from typing import Any

from catalogue.world import KIB, Slots, World

import hipfile_mock
from hipfile_sim.machine import Machine
from hipfile_sim.observe import observer

if __name__ + "." not in observer.OURS:
    observer.OURS = (*observer.OURS, __name__ + ".")


class HandleSlots(Slots):
    """An ``AsyncIOHandle``; before the submit only the values that it will get."""

    def __init__(self, world: PythonWorld, size: int, file_offset: int, buffer_offset: int) -> None:
        self.world = world
        self.values = {"size": size, "file_offset": file_offset, "buffer_offset": buffer_offset}
        self.io: Any = None

    def set(self, **values: int) -> None:
        """Set attributes of the handle."""
        for name, value in values.items():
            setattr(self.io, name, value)

    @property
    def bytes_done(self) -> int:
        """The result, as the host sees it now."""
        return int(self.io.bytes_done)


class PythonWorld(World):
    """Files, buffers, registrations and operations through the ``hipfile`` package."""

    faces = ("hipfile",)

    def make_machine(self, **options: Any) -> Machine:
        options = {name: value for name, value in options.items() if value is not None}
        self._fake = hipfile_mock.fake(strict=None, faces=list(self.faces), observers=[self.sanitizer], **options)
        machine: Machine = self._fake.__enter__().machine
        import hipfile

        self.package = hipfile
        self._objects: dict[int, Any] = {}
        self._buffers: dict[int, Any] = {}
        self._sizes: dict[int, int] = {}
        return machine

    def device(self, size: int = 4 * KIB, *, device: int = 0, fill: int | None = 1) -> int:
        pointer = super().device(size, device=device, fill=fill)
        self._sizes[pointer] = size
        return pointer

    def buffer(self, size: int = 4 * KIB, *, device: int = 0, fill: int | None = 1) -> int:
        pointer = self.device(size, device=device, fill=fill)
        buffer = self._buffers[pointer] = self.package.Buffer(pointer, size, 0)
        buffer.register()
        return pointer

    def file_at(self, path: str | Path, flags: int) -> int:
        handle = self.package.FileHandle(path, flags)
        handle.open()
        self._objects[handle.handle] = handle
        self._fds[handle.handle] = handle._fd
        return int(handle.handle)

    def close_fd(self, file: int) -> int:
        self._objects[file]._fd = None
        return super().close_fd(file)

    def register_stream(self, handle: int, flags: int = 0) -> None:
        """Register a stream with hipFile."""
        stream = self.package.Stream(handle, flags)
        stream.register()
        self._keep.append(stream)

    def stream(self, *, register: bool = True, flags: int = 0, blocking: bool = False, device: int = 0) -> int:
        handle = super().stream(register=False, blocking=blocking, device=device)
        if register:
            self.register_stream(handle, flags)
        return handle

    def slots(self, size: int = 4 * KIB, file_offset: int = 0, buffer_offset: int = 0) -> HandleSlots:
        slots = HandleSlots(self, size, file_offset, buffer_offset)
        self._keep.append(slots)
        return slots

    def _submit(self, name: str, file: int, buffer: int, slots: Slots, stream: int) -> Slots:
        assert isinstance(slots, HandleSlots)
        target = self._buffers.get(buffer) or self.package.Buffer(buffer, self._sizes[buffer], 0)
        slots.io = getattr(self._objects[file], name)(target, *slots.values.values(), stream)
        return slots

    def read(self, file: int, buffer: int, slots: Slots, stream: int) -> Slots:
        return self._submit("read_async", file, buffer, slots, stream)

    def write(self, file: int, buffer: int, slots: Slots, stream: int) -> Slots:
        return self._submit("write_async", file, buffer, slots, stream)

    def drop(self, slots: Slots, kind: str) -> None:
        """The last reference goes; nobody is told but by the object itself."""
        assert isinstance(slots, HandleSlots)
        slots.io = None
        gc.collect()

    def tidy(self) -> None:
        for slots in self._keep:
            if isinstance(slots, HandleSlots):
                slots.values = {}
        super().tidy()
        for handle in self._objects.values():
            handle._handle = handle._fd = None  # `tidy` has closed them
        for buffer in self._buffers.values():
            buffer._registered = False
        for stream in self._keep:
            if isinstance(stream, self.package.Stream):
                stream._registered = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, traceback)
        finally:
            self._fake.__exit__(None, None, None)


class TorchWorld(PythonWorld):
    """Memory, streams and events through ``torch.cuda``, too."""

    faces = ("hipfile", "torch")

    def make_machine(self, **options: Any) -> Machine:
        machine = super().make_machine(**options)
        import torch

        self.torch = torch
        self._events: dict[int, Any] = {}
        return machine

    def device(self, size: int = 4 * KIB, *, device: int = 0, fill: int | None = 1) -> int:
        tensor = self.torch.empty(size, dtype=self.torch.uint8, device=f"cuda:{device}")
        if fill is not None:
            tensor.fill_(fill)
            self.torch.cuda.synchronize(device)
        self._keep.append(tensor)
        pointer = int(tensor.data_ptr())
        self._sizes[pointer] = size
        return pointer

    def stream(self, *, register: bool = True, flags: int = 0, blocking: bool = False, device: int = 0) -> int:
        if blocking:
            return super().stream(register=register, flags=flags, blocking=True, device=device)
        stream = self.torch.cuda.Stream(device=device)
        self._keep.append(stream)
        if register:
            self.register_stream(stream.cuda_stream, flags)
        return int(stream.cuda_stream)

    def _stream(self, handle: int) -> Any:
        return self.torch.cuda.ExternalStream(handle)

    def event(self) -> int:
        event = self.torch.cuda.Event()
        self._events[len(self._events) + 1] = event
        return len(self._events)

    def record(self, event: int, stream: int) -> None:
        self._events[event].record(self._stream(stream))

    def wait(self, stream: int, event: int) -> None:
        self._stream(stream).wait_event(self._events[event])

    def wait_stream(self, waits: int, other: int) -> None:
        self._stream(waits).wait_stream(self._stream(other))

    def sync(self, stream: int) -> None:
        self._stream(stream).synchronize()

    def sync_event(self, event: int) -> None:
        self._events[event].synchronize()

    def sync_device(self) -> None:
        self.torch.cuda.synchronize()
