"""Allocation, attributes, copies and sets."""

from __future__ import annotations

from typing import NamedTuple

from hipfile_sim.engine.command import MEM, Access, Command
from hipfile_sim.hip import hostmem
from hipfile_sim.hip.base import RuntimeBase
from hipfile_sim.hip.call import hip_call
from hipfile_sim.hip.codes import EXT_MALLOC_FLAGS, HipError, MemcpyKind, MemoryType
from hipfile_sim.hip.commands import Copy, Set
from hipfile_sim.hip.memory import DEVICE, MANAGED, PINNED, REGISTERED, Block
from hipfile_sim.hip.stream import Stream

_OK = HipError.hipSuccess
_INVALID = HipError.hipErrorInvalidValue
_TYPES = {
    DEVICE: MemoryType.hipMemoryTypeDevice,
    PINNED: MemoryType.hipMemoryTypeHost,
    REGISTERED: MemoryType.hipMemoryTypeHost,
    MANAGED: MemoryType.hipMemoryTypeManaged,
}
_HOST_MALLOC_FLAGS = 0xE0000007
_ATTACH_FLAGS = (1, 2, 4)
_LARGEST = (1 << 63) - 1


class PointerAttributes(NamedTuple):
    """hipPointerAttribute_t."""

    type: MemoryType
    device: int
    devicePointer: int
    hostPointer: int
    isManaged: int
    allocationFlags: int


class MemoryCalls(RuntimeBase):
    """Memory of all kinds. Sizes in bytes; pointers are integers, 0 is NULL."""

    # -- allocation --------------------------------------------------------------------------------------------------

    @hip_call(outputs=(0,))
    def hipMalloc(self, size: int) -> tuple[HipError, int]:
        """Device memory on the current device. Size 0 gives NULL and success; hipErrorOutOfMemory past the budget."""
        return self._allocate(size, DEVICE, 0)

    @hip_call(outputs=(0,))
    def hipExtMallocWithFlags(self, size: int, flags: int) -> tuple[HipError, int]:
        """Device memory with flags. Signal memory (flag 2) is exactly 8 bytes and can be touched by the host."""
        if flags not in EXT_MALLOC_FLAGS:
            return _INVALID, 0
        if EXT_MALLOC_FLAGS[flags] == "hipMallocSignalMemory":
            if size != 8:
                return _INVALID, 0
            code, base = self._allocate(size, PINNED, flags)
            self._signals.add(base)
            return code, base
        return self._allocate(size, DEVICE, flags)

    @hip_call(outputs=(0,))
    def hipHostMalloc(self, size: int, flags: int = 0) -> tuple[HipError, int]:
        """Pinned host memory, with the same address on host and device. hipErrorInvalidValue for unknown flags."""
        if flags & ~_HOST_MALLOC_FLAGS:
            return _INVALID, 0
        return self._allocate(size, PINNED, flags)

    @hip_call(outputs=(0,))
    def hipMallocManaged(self, size: int, flags: int = 1) -> tuple[HipError, int]:
        """Memory that host and device share. Size 0: hipErrorInvalidValue."""
        if flags not in _ATTACH_FLAGS or size == 0:
            return _INVALID, 0
        return self._allocate(size, MANAGED, flags)

    def _allocate(self, size: int, kind: str, flags: int) -> tuple[HipError, int]:
        if size == 0:
            return _OK, 0
        if not self.device_count:
            return HipError.hipErrorNoDevice, 0
        if not 0 < size <= _LARGEST:
            return HipError.hipErrorOutOfMemory, 0
        block = self.memory.allocate(size, kind, self.thread.device, flags, self.site())
        if block is None:
            return HipError.hipErrorOutOfMemory, 0
        self._allocated(block)
        return _OK, block.base

    @hip_call(observes=True)
    def hipFree(self, pointer: int) -> HipError:
        """Free device, signal or managed memory. Waits for all on its device first [hip.free.synchronises].

        NULL is success; a pointer that is not the base of such a block (freed before, interior, foreign) is
        hipErrorInvalidValue.
        """
        kinds = (DEVICE, MANAGED, PINNED) if pointer in self._signals else (DEVICE, MANAGED)
        return self._free(pointer, kinds, "hipFree")

    @hip_call(observes=True)
    def hipHostFree(self, pointer: int) -> HipError:
        """Free pinned memory. Waits for every device first. Errors as hipFree."""
        return self._free(pointer, (PINNED,), "hipHostFree")

    def _free(self, pointer: int, kinds: tuple[str, ...], what: str) -> HipError:
        if pointer == 0:
            return _OK
        block = self.memory.find(pointer)
        if block is None or block.base != pointer or block.kind not in kinds:
            return _INVALID
        self.wait(self.device_lanes(block.device if block.kind == DEVICE else None), what)
        if block.freed:  # another thread was quicker while this one waited
            return _INVALID
        self._signals.discard(pointer)
        self.memory.release(block)
        self._freed(block)
        return _OK

    @hip_call()
    def hipHostRegister(self, pointer: int, size: int, flags: int = 0) -> HipError:
        """Pin host memory of the caller. Overlap with a registered range: hipErrorHostMemoryAlreadyRegistered."""
        if pointer == 0 or size <= 0 or flags & ~0xF:
            return _INVALID
        if self.memory.find(pointer) or self.memory.find(pointer + size - 1):
            return HipError.hipErrorHostMemoryAlreadyRegistered
        if self.memory.is_device_address(pointer) or not hostmem.readable(pointer, size):
            return _INVALID
        self._allocated(self.memory.register(pointer, size, self.thread.device, flags, self.site()))
        return _OK

    @hip_call(observes=True)
    def hipHostUnregister(self, pointer: int) -> HipError:
        """Undo hipHostRegister. Waits for every device first. Not a registered base: hipErrorHostMemoryNotRegistered.

        That it waits was observed on CUDA (13.0, H200: held back by a stream of either kind).
        """
        code = self._free(pointer, (REGISTERED,), "hipHostUnregister") if pointer else _INVALID
        return HipError.hipErrorHostMemoryNotRegistered if code is _INVALID else code

    # -- questions ---------------------------------------------------------------------------------------------------

    @hip_call(outputs=(0,))
    def hipHostGetDevicePointer(self, pointer: int, flags: int = 0) -> tuple[HipError, int]:
        """The device's address of pinned, registered or managed host memory: the same one."""
        block = self.memory.find(pointer)
        if flags or block is None or block.kind == DEVICE:
            return _INVALID, 0
        return _OK, pointer

    @hip_call(outputs=(0, 0))
    def hipMemGetInfo(self) -> tuple[HipError, int, int]:
        """(free, total) bytes of the current device."""
        total = self.settings.device_memory
        return _OK, total - self.memory.used[self.thread.device], total

    @hip_call(outputs=(None,))
    def hipPointerGetAttributes(self, pointer: int) -> tuple[HipError, PointerAttributes]:
        """What kind of memory `pointer` lies in; unknown addresses and NULL are "unregistered", with success."""
        block = self.memory.find(pointer)
        if block is None:
            return _OK, PointerAttributes(MemoryType.hipMemoryTypeUnregistered, 0, 0, 0, 0, 0)
        host = 0 if block.kind == DEVICE else pointer
        managed = int(block.kind == MANAGED)
        return _OK, PointerAttributes(_TYPES[block.kind], block.device, pointer, host, managed, block.flags)

    @hip_call(outputs=(0, 0))
    def hipMemGetAddressRange(self, pointer: int) -> tuple[HipError, int, int]:
        """(base, size) of the allocation around `pointer`. hipErrorNotFound where there is none."""
        block = self.memory.find(pointer)
        if block is None:
            return HipError.hipErrorNotFound, 0, 0
        return _OK, block.base, block.size

    # -- moving bytes ------------------------------------------------------------------------------------------------

    @hip_call(observes=True)
    def hipMemcpy(self, destination: int, source: int, size: int, kind: int = 4) -> HipError:
        """Copy and wait. Runs on the null stream, so it orders with blocking streams only [hip.memcpy.null-stream].

        Between device memory it waits or not, by the setting ``device_only_calls``.
        """
        return self._copy(destination, source, size, kind, 0, wait=True)

    @hip_call()
    def hipMemcpyAsync(self, destination: int, source: int, size: int, kind: int = 4, stream: int = 0) -> HipError:
        """Copy when the stream gets there.

        Pinned and device memory: returns at once. Pageable source: by the setting ``pageable_h2d``. Pageable
        destination: returns when the copy is done.
        """
        return self._copy(destination, source, size, kind, stream, wait=False)

    @hip_call(observes=True)
    def hipMemcpyWithStream(self, destination: int, source: int, size: int, kind: int = 4, stream: int = 0) -> HipError:
        """Copy on a stream and wait for it."""
        return self._copy(destination, source, size, kind, stream, wait=True)

    def _copy(self, destination: int, source: int, size: int, kind: int, handle: int, *, wait: bool) -> HipError:
        if kind not in MemcpyKind._value2member_map_:
            return HipError.hipErrorInvalidMemcpyDirection
        if size == 0:
            return _OK
        stream = self.lookup_stream(handle)
        if stream is None:
            return HipError.hipErrorInvalidHandle
        if destination == 0 or source == 0 or not 0 < size <= _LARGEST:
            return _INVALID
        to = self.memory.find(destination)
        origin = self.memory.find(source)
        if not self._copyable(destination, size, to) or not self._copyable(source, size, origin):
            return _INVALID
        code = _direction(kind, to, origin)
        if code is not _OK:
            return code
        staged: bytes | None = None
        if wait:
            wait = handle != 0 or self._host_waits(to, origin)
        else:
            if to is None:
                wait = True
            elif origin is None:
                if self.settings.pageable_h2d == "stage":
                    staged = hostmem.read(source, size)
                    if staged is None:
                        return _INVALID
                    if self.engine.tracker is not None:
                        self.engine.tracker.touched(Access(MEM, source, size, False))
                else:
                    wait = True
            if wait:
                self.tell("cost.pageable-copy", "an asynchronous copy with pageable memory blocks until it is done")
        return self._run(stream, Copy(self.memory, destination, source, size, staged), wait)

    def _copyable(self, pointer: int, size: int, block: Block | None) -> bool:
        if block is not None:
            return pointer + size <= block.end
        return not self.memory.is_device_address(pointer) and hostmem.read(pointer, 1) is not None

    @hip_call(observes=True)
    def hipMemset(self, pointer: int, value: int, size: int) -> HipError:
        """Set bytes on the null stream and wait; for device memory, by the setting ``device_only_calls``."""
        return self._set(pointer, value, size, 0, wait=True)

    @hip_call()
    def hipMemsetAsync(self, pointer: int, value: int, size: int, stream: int = 0) -> HipError:
        """Set bytes when the stream gets there."""
        return self._set(pointer, value, size, stream, wait=False)

    def _set(self, pointer: int, value: int, size: int, handle: int, *, wait: bool) -> HipError:
        if size == 0:
            return _OK
        stream = self.lookup_stream(handle)
        if stream is None:
            return HipError.hipErrorInvalidHandle
        block = self.memory.find(pointer)
        if block is None or size < 0 or pointer + size > block.end:
            return _INVALID
        return self._run(stream, Set(self.memory, pointer, value, size), wait and self._host_waits(block))

    def _host_waits(self, *blocks: Block | None) -> bool:
        """Whether a plain copy or set that touches `blocks` is over when the call returns."""
        if self.settings.device_only_calls == "wait":
            return True
        return any(block is None or block.kind != DEVICE for block in blocks)

    def _run(self, stream: Stream, command: Command, wait: bool) -> HipError:
        code = self.enqueue(stream, command)
        if code is _OK and wait:
            self.wait([(stream.lane, command.ticket)], command.kind)
            if getattr(command, "failed", False):
                return _INVALID
        return code


def _direction(kind: int, to: Block | None, origin: Block | None) -> HipError:
    """Whether the declared direction fits the memory."""
    if kind == MemcpyKind.hipMemcpyDefault:
        return _OK
    to_device = kind in (MemcpyKind.hipMemcpyHostToDevice, MemcpyKind.hipMemcpyDeviceToDevice)
    from_device = kind in (MemcpyKind.hipMemcpyDeviceToHost, MemcpyKind.hipMemcpyDeviceToDevice)
    for declared, block in ((to_device, to), (from_device, origin)):
        if declared and block is None:
            return _INVALID
        if not declared and block is not None and block.kind == DEVICE:
            return _INVALID
    return _OK
