"""Device buffers: registered ones, and the temporary ones that an operation on any other device pointer builds.

Source of the rules: code of the releases and their unit tests.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from hipfile_sim.driver.codes import HipFileStatus, OpError
from hipfile_sim.hip.codes import HipError, MemoryType

if TYPE_CHECKING:
    from hipfile_sim.driver.profiles import Profile
    from hipfile_sim.hip.runtime import Runtime

U64 = (1 << 64) - 1
"""Mask of a ``size_t``."""


class Buffer:
    """A range of device memory that operations move bytes to and from.

    Attributes
    ----------
    base : int
        Device address, as the caller gave it.
    length : int
        Bytes from `base`. A temporary buffer ends where its allocation ends.
    device : int
        Ordinal of the device that owns the memory.
    flags : int
        Stored, never used. [buffer.register.flags]
    registered : bool
        False for the temporary buffer of one operation.
    users : set
        The operations in flight that hold a reference.
    """

    __slots__ = ("base", "device", "flags", "length", "registered", "users")

    def __init__(self, base: int, length: int, device: int, flags: int = 0, registered: bool = False) -> None:
        self.base = base
        self.length = length
        self.device = device
        self.flags = flags
        self.registered = registered
        self.users: set[object] = set()

    def __repr__(self) -> str:
        kind = "registered" if self.registered else "temporary"
        return f"<{kind} buffer {self.base:#x}+{self.length} on device {self.device}>"


def in_range(length: int, size: int, file_offset: int, buffer_offset: int) -> bool:
    """The range rule that every operation obeys. [buffer.range-rule]

    Parameters
    ----------
    length : int
        Bytes of the buffer.
    size, file_offset, buffer_offset : int
        Bytes; offsets are signed.

    Returns
    -------
    bool
        False when an offset is negative, when `buffer_offset` is not strictly inside the buffer (also for size 0), or
        when `size` bytes do not fit behind it.

    Examples
    --------
    >>> in_range(4096, 4096, 0, 0), in_range(4096, 0, 0, 4096), in_range(4096, 1, -1, 0)
    (True, False, False)
    """
    return file_offset >= 0 and 0 <= buffer_offset < length and size <= length - buffer_offset


class Refused(Exception):
    """A check failed; `status` is what the call reports. Internal: it never leaves the driver.

    Parameters
    ----------
    err : OpError
        The hipFile code.
    hip : HipError
        The HIP code behind it.
    """

    def __init__(self, err: OpError, hip: HipError = HipError.hipSuccess) -> None:
        super().__init__(err, hip)
        self.status = HipFileStatus(err, hip)


def inspect(runtime: Runtime, profile: Profile, pointer: int, length: int | None) -> Buffer:
    """Ask HIP about `pointer` and build a buffer on it.

    Parameters
    ----------
    runtime : Runtime
    profile : Profile
        Says which kinds of memory are taken.
    pointer : int
        Device address; may be inside an allocation. [buffer.interior-pointer]
    length : int or None
        Bytes to register, or None for the temporary buffer of one operation: everything up to the end of the
        allocation. [buffer.temporary-length]

    Returns
    -------
    Buffer

    Raises
    ------
    Refused
        5022 for NULL; 5013 for memory of a kind that is not taken; 5014 for a length past the end of the allocation;
        5011 with the HIP code where HIP fails. Registration turns HIP's "invalid value" and "not found" into 5022.
    """
    if pointer == 0:  # [buffer.register.null]
        raise Refused(OpError.hipFileInvalidValue)
    code, attributes = runtime.hipPointerGetAttributes(pointer)
    if code != HipError.hipSuccess or attributes is None:
        if length is not None and code == HipError.hipErrorInvalidValue:  # [buffer.register.attributes]
            raise Refused(OpError.hipFileInvalidValue)
        raise Refused(OpError.hipFileHipDriverError, code)
    if attributes.type not in (profile.io_memory if length is None else profile.registered_memory):
        raise Refused(OpError.hipFileHipMemoryTypeInvalid)  # [buffer.register.type]
    if attributes.type == MemoryType.hipMemoryTypeUnregistered:  # nobody knows where it ends
        if length is None:
            length = 0 if runtime.memory.is_device_address(pointer) else (1 << 64) - pointer
        return Buffer(pointer, length, attributes.device)
    code, base, size = runtime.hipMemGetAddressRange(pointer)
    if code != HipError.hipSuccess:
        if length is not None and code in (HipError.hipErrorNotFound, HipError.hipErrorInvalidValue):
            raise Refused(OpError.hipFileInvalidValue)  # [buffer.register.range-query]
        raise Refused(OpError.hipFileHipDriverError, code)
    room = base + size - pointer
    if length is None:
        length = room
    elif length > room:  # [buffer.register.range] a pointer + length that overflows ends here, too
        raise Refused(OpError.hipFileHipPointerRangeError)
    return Buffer(pointer, length, attributes.device)


class BufferTable:
    """The registered buffers of one driver, by exact base pointer.

    Overlapping registrations with different bases are independent of each other. [buffer.register.overlap]

    Parameters
    ----------
    runtime : Runtime
    profile : Profile
    lock : lock
        The driver's; never held while HIP is called.
    """

    __slots__ = ("_lock", "_profile", "_runtime", "entries")

    def __init__(self, runtime: Runtime, profile: Profile, lock: AbstractContextManager[object]) -> None:
        self._runtime = runtime
        self._profile = profile
        self._lock = lock
        self.entries: dict[int, Buffer] = {}

    def register(self, pointer: int, length: int, flags: int) -> None:
        """Register `length` bytes at `pointer`.

        Raises
        ------
        Refused
            5023 for a base that is registered, and all that `inspect` raises; the duplicate is found first.
        """
        if pointer in self.entries:  # [buffer.register.duplicate]
            raise Refused(OpError.hipFileMemoryAlreadyRegistered)
        if length == 0 and self._profile.length_zero is not None:  # [buffer.register.length-zero]
            raise Refused(self._profile.length_zero)
        buffer = inspect(self._runtime, self._profile, pointer, length)
        buffer.flags = flags  # [buffer.register.flags]
        buffer.registered = True
        with self._lock:
            if self.entries.setdefault(pointer, buffer) is not buffer:
                raise Refused(OpError.hipFileMemoryAlreadyRegistered)

    def clear(self) -> None:
        """Forget every registration; operations in flight keep their own references. [life.close.clears]"""
        self.entries.clear()
