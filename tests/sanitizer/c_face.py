"""The same programs through the C functions of libamdhip64 and libhipfile. Loads and stores of C code are not seen."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, ClassVar, NamedTuple

from catalogue.world import Block, Slots, World

from hipfile_sim.machine import Machine
from hipfile_sim.observe import observer

if __name__ + "." not in observer.OURS:
    observer.OURS = (*observer.OURS, __name__ + ".")

Pointer = ctypes.c_void_p
Size = ctypes.c_size_t
HOST_FUNCTION = ctypes.CFUNCTYPE(None, Pointer)


class Descriptor(ctypes.Structure):
    """hipFileDescr_t."""

    class Handle(ctypes.Union):
        """The descriptor, or a pointer elsewhere."""

        _fields_ = (("fd", ctypes.c_int), ("pointer", Pointer))

    _fields_ = (("type", ctypes.c_int), ("handle", Handle), ("fs_ops", Pointer))


class Status(NamedTuple):
    """hipFileError_t."""

    err: int
    hip_drv_err: int


class Count(NamedTuple):
    """What a synchronous call returns."""

    count: int


class Hip:
    """HIP by its C functions. What C has no word for (a Python kernel) goes to the runtime itself."""

    _SIGNATURES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "hipSetDevice": (ctypes.c_int,),
        "hipMemset": (Pointer, ctypes.c_int, Size),
        "hipMemcpy": (Pointer, Pointer, Size, ctypes.c_int),
        "hipMemcpyAsync": (Pointer, Pointer, Size, ctypes.c_int, Pointer),
        "hipFree": (Pointer,),
        "hipHostFree": (Pointer,),
        "hipHostRegister": (Pointer, Size, ctypes.c_uint),
        "hipHostUnregister": (Pointer,),
        "hipStreamDestroy": (Pointer,),
        "hipStreamSynchronize": (Pointer,),
        "hipStreamQuery": (Pointer,),
        "hipEventDestroy": (Pointer,),
        "hipEventRecord": (Pointer, Pointer),
        "hipEventSynchronize": (Pointer,),
        "hipEventQuery": (Pointer,),
        "hipDeviceSynchronize": (),
    }
    _OUT: ClassVar[dict[str, tuple[Any, ...]]] = {
        "hipMalloc": (Size,),
        "hipStreamCreateWithFlags": (ctypes.c_uint,),
        "hipEventCreateWithFlags": (ctypes.c_uint,),
    }

    def __init__(self, library: ctypes.CDLL, runtime: Any) -> None:
        self._library = library
        self._runtime = runtime
        self._kept: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name in self._SIGNATURES or name in self._OUT:
            signature = self._SIGNATURES.get(name) or self._OUT.get(name, ())
            function = getattr(self._library, name)

            def call(*args: Any) -> Any:
                converted = [kind(arg) for kind, arg in zip(signature, args, strict=True)]
                if name not in self._OUT:
                    return function(*converted)
                out = Pointer()
                return function(ctypes.byref(out), *converted), out.value or 0

            return call
        return getattr(self._runtime, name)

    def hipHostMalloc(self, size: int, flags: int = 0) -> tuple[int, int]:
        out = Pointer()
        return self._library.hipHostMalloc(ctypes.byref(out), Size(size), ctypes.c_uint(flags)), out.value or 0

    def hipStreamWaitEvent(self, stream: int, event: int) -> int:
        return int(self._library.hipStreamWaitEvent(Pointer(stream), Pointer(event), ctypes.c_uint(0)))

    def hipStreamWaitValue64(self, stream: int, pointer: int, value: int) -> int:
        mask = ctypes.c_uint64(2**64 - 1)
        function = self._library.hipStreamWaitValue64
        return int(function(Pointer(stream), Pointer(pointer), ctypes.c_uint64(value), ctypes.c_uint(0), mask))

    def hipStreamWriteValue64(self, stream: int, pointer: int, value: int) -> int:
        function = self._library.hipStreamWriteValue64
        return int(function(Pointer(stream), Pointer(pointer), ctypes.c_uint64(value), ctypes.c_uint(0)))

    def hipLaunchHostFunc(self, stream: int, function: Callable[[Any], Any], user_data: object) -> int:
        callback = HOST_FUNCTION(lambda _: function(None) and None)
        self._kept.append(callback)
        return int(self._library.hipLaunchHostFunc(Pointer(stream), callback, None))


class HipFile:
    """hipFile by its C functions."""

    def __init__(self, library: ctypes.CDLL, driver: Any) -> None:
        self._library = library
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def _status(self, name: str, *args: Any) -> Status:
        function = getattr(self._library, name)
        function.restype = ctypes.c_uint64
        packed = function(*args)
        return Status(packed & 0xFFFFFFFF, packed >> 32)

    def hipFileDriverOpen(self) -> Status:
        return self._status("hipFileDriverOpen")

    def hipFileDriverClose(self) -> Status:
        return self._status("hipFileDriverClose")

    def hipFileHandleRegister(self, descr: Any) -> tuple[Status, int]:
        out = Pointer()
        descriptor = Descriptor(descr.type, Descriptor.Handle(descr.fd), None)
        status = self._status("hipFileHandleRegister", ctypes.byref(out), ctypes.byref(descriptor))
        return status, out.value or 0

    def hipFileHandleDeregister(self, handle: int) -> None:
        self._library.hipFileHandleDeregister(Pointer(handle))

    def hipFileBufRegister(self, pointer: int, length: int, flags: int = 0) -> Status:
        return self._status("hipFileBufRegister", Pointer(pointer), Size(length), ctypes.c_int(flags))

    def hipFileBufDeregister(self, pointer: int) -> Status:
        return self._status("hipFileBufDeregister", Pointer(pointer))

    def hipFileStreamRegister(self, stream: int, flags: int = 0) -> Status:
        return self._status("hipFileStreamRegister", Pointer(stream), ctypes.c_uint(flags))

    def hipFileStreamDeregister(self, stream: int) -> Status:
        return self._status("hipFileStreamDeregister", Pointer(stream))

    def hipFileReadAsync(self, *args: int) -> Status:
        return self._status("hipFileReadAsync", *map(Pointer, args))

    def hipFileWriteAsync(self, *args: int) -> Status:
        return self._status("hipFileWriteAsync", *map(Pointer, args))

    def hipFileRead(self, *args: int) -> Count:
        return self._blocking("hipFileRead", *args)

    def hipFileWrite(self, *args: int) -> Count:
        return self._blocking("hipFileWrite", *args)

    def _blocking(self, name: str, handle: int, pointer: int, size: int, file_offset: int, buffer_offset: int) -> Count:
        function = getattr(self._library, name)
        function.restype = ctypes.c_ssize_t
        offsets = ctypes.c_int64(file_offset), ctypes.c_int64(buffer_offset)
        return Count(function(Pointer(handle), Pointer(pointer), Size(size), *offsets))


class CSlots(Slots):
    """Variables of a C program: nobody sees who touches them."""

    def __init__(self, world: World, size: int, file_offset: int, buffer_offset: int) -> None:
        self.world = world
        self.block = Block(size, file_offset, buffer_offset, 0)
        self.base = ctypes.addressof(self.block)

    def set(self, **values: int) -> None:
        """A plain store."""
        self.set_unseen(**values)

    @property
    def bytes_done(self) -> int:
        """A plain load."""
        return int(self.block.bytes_done)


class CWorld(World):
    """Every call through the C ABI."""

    def make_machine(self, **options: Any) -> Machine:
        from hipfile_sim.native.activation import activate

        machine = super().make_machine(**options)
        self._stack = ExitStack()
        native = self._stack.enter_context(activate(machine))
        self._libraries = native.library("libamdhip64"), native.library("libhipfile")
        return machine

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.hip = Hip(self._libraries[0], self.machine.hip)  # type: ignore[assignment]
        self.hipfile = HipFile(self._libraries[1], self.machine.hipfile)  # type: ignore[assignment]

    def slots(self, size: int = 4096, file_offset: int = 0, buffer_offset: int = 0) -> Slots:
        slots = CSlots(self, size, file_offset, buffer_offset)
        self._keep.append(slots)
        return slots

    def poke(self, pointer: int, data: bytes) -> None:
        assert self.machine.memory.write(pointer, data)
        self.machine.engine.poke()

    def peek(self, pointer: int, length: int = 8) -> bytes:
        return self.machine.memory.read(pointer, length) or b""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._stack:
            super().__exit__(kind, error, traceback)
