"""Low-level functions: one for each C function, with the names, arguments, results and errors of the compiled module.

A function that returns ``hipFileError_t`` in C returns a pair ``(hipFileOpError_t, hipError_t)`` of ints here. Every
call goes to the driver of the current machine (`hipfile_mock.current`).
"""

from __future__ import annotations

from typing import Any, SupportsIndex, SupportsInt

from hipfile_mock import current as _current
from hipfile_mock.faces.convert import to_int, to_long, to_size_t, to_unsigned
from hipfile_mock.faces.slots import AsyncSlots as _AsyncSlots
from hipfile_mock.faces.slots import flush_quarantine as _flush_quarantine
from hipfile_sim.driver import codes as _codes
from hipfile_sim.driver.codes import BASE_ERR as BASE_ERR

Integer = int | SupportsIndex | SupportsInt

VERSION_MAJOR: int = 0
VERSION_MINOR: int = 0
VERSION_PATCH: int = 0

for _member in (*_codes.OpError, *_codes.HandleType):
    globals()[_member.name] = int(_member)
del _member


def _bind(machine: Any) -> None:
    """Take the version constants, which C fixes at build time, from the release that `machine` models."""
    global VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH
    VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH = machine.profile.version


if (_machine := _current.peek()) is not None:
    _bind(_machine)
del _machine


_HIP_ERROR = int(_codes.OpError.hipFileHipDriverError)


def _pair(status: Any) -> tuple[int, int]:
    return (int(status[0]), int(status[1]))


def _async_pair(status: Any) -> tuple[int, int]:
    """The HIP error counts only beside ``hipFileHipDriverError``; without it the second element is 0."""
    err = int(status[0])
    return (err, int(status[1]) if err == _HIP_ERROR else 0)


# ------------------------------------------------------------------------------------------------------------- errors


def is_hipfile_err(err_code: Integer) -> bool:
    """Whether `err_code`, negated or not, is a code of hipFile rather than of the system."""
    return abs(to_int(err_code)) > BASE_ERR


def hipfile_errstr(err_code: Integer) -> str:
    """Text of `err_code`, negated or not."""
    return hipFileGetOpErrorString(abs(to_int(err_code)))


def is_hip_drv_err(err: tuple[int, int]) -> bool:
    """Whether the pair `err` carries a HIP error."""
    return bool(_tuple(err)[0] == _HIP_ERROR)


def hip_drv_err(err: tuple[int, int]) -> int:
    """The HIP error of the pair `err`."""
    return int(_tuple(err)[1])


def _tuple(err: Any) -> Any:
    if err is not None and type(err) is not tuple:  # None passes the check of a compiled function, and fails later
        raise TypeError(f"Argument 'err' has incorrect type (expected tuple, got {type(err).__name__})")
    return err


def hipFileGetOpErrorString(status: Integer) -> str:
    """Text of a code; an unknown code has a text, too."""
    code = to_int(status)
    machine = _current.peek()
    if machine is None:  # an exception may be printed after its machine is gone
        return _codes.error_string(code)
    text: str = machine.hipfile.hipFileGetOpErrorString(code)
    return text


# -------------------------------------------------------------------------------------------------------- life cycle


def hipFileDriverOpen() -> tuple[int, int]:
    """Open the driver: the use count rises by one."""
    return _pair(_current.get("hipFileDriverOpen").hipfile.hipFileDriverOpen())


def hipFileDriverClose() -> tuple[int, int]:
    """Close the driver once: the use count falls by one."""
    return _pair(_current.get("hipFileDriverClose").hipfile.hipFileDriverClose())


def hipFileUseCount() -> int:
    """How often the driver is open."""
    return int(_current.get("hipFileUseCount").hipfile.hipFileUseCount())


def hipFileGetVersion() -> tuple[tuple[int, int, int], tuple[int, int]]:
    """Version of the library: ``((major, minor, patch), error)``."""
    status, major, minor, patch = _current.get("hipFileGetVersion").hipfile.hipFileGetVersion()
    return ((major, minor, patch), _pair(status))


# -------------------------------------------------------------------------------------------------- files and buffers


def hipFileHandleRegister(handle_value: Integer, handle_type: Integer) -> tuple[int, tuple[int, int]]:
    """Register a descriptor (or a Win32 handle, which no profile accepts).

    Returns
    -------
    tuple
        ``(handle, error)``; the handle is 0 after an error.
    """
    value, kind = to_size_t(handle_value), to_int(handle_type)
    if kind == _codes.HandleType.hipFileHandleTypeOpaqueWin32:
        descr = _codes.FileDescr(kind, -1, handle_ptr=value)
    else:
        low = value & 0xFFFFFFFF  # C narrows the value to an int
        descr = _codes.FileDescr(kind, low - (1 << 32) if low >> 31 else low)
    status, handle = _current.get("hipFileHandleRegister").hipfile.hipFileHandleRegister(descr)
    return (int(handle), _pair(status))


def hipFileHandleDeregister(handle: Integer) -> None:
    """Deregister a file. An unknown handle, or one in use, is ignored: the C function returns nothing."""
    _current.get("hipFileHandleDeregister").hipfile.hipFileHandleDeregister(to_size_t(handle))


def hipFileBufRegister(buffer_base: Integer, length: Integer, flags: Integer = 0) -> tuple[int, int]:
    """Register `length` bytes of device memory at `buffer_base`."""
    base, size, bits = to_size_t(buffer_base), to_size_t(length), to_int(flags)
    return _pair(_current.get("hipFileBufRegister").hipfile.hipFileBufRegister(base, size, bits))


def hipFileBufDeregister(buffer_base: Integer) -> tuple[int, int]:
    """Deregister the buffer that was registered at exactly `buffer_base`."""
    return _pair(_current.get("hipFileBufDeregister").hipfile.hipFileBufDeregister(to_size_t(buffer_base)))


# ---------------------------------------------------------------------------------------------------- synchronous I/O


def hipFileRead(
    handle: Integer, buffer_base: Integer, size: Integer, file_offset: Integer, buffer_offset: Integer
) -> tuple[int, int]:
    """Read `size` bytes of a file into device memory.

    Returns
    -------
    tuple
        ``(bytes, 0)``; ``(-1, errno)``; ``(-5011, hipError_t)``; or ``(negated code, 0)``.
    """
    return _io("hipFileRead", handle, buffer_base, size, file_offset, buffer_offset)


def hipFileWrite(
    handle: Integer, buffer_base: Integer, size: Integer, file_offset: Integer, buffer_offset: Integer
) -> tuple[int, int]:
    """Write `size` bytes of device memory to a file. Results as of `hipFileRead`."""
    return _io("hipFileWrite", handle, buffer_base, size, file_offset, buffer_offset)


def _io(
    name: str, handle: Integer, buffer_base: Integer, size: Integer, file_offset: Integer, buffer_offset: Integer
) -> tuple[int, int]:
    args = (
        to_size_t(handle),
        to_size_t(buffer_base),
        to_size_t(size),
        to_long(file_offset),
        to_long(buffer_offset),
    )
    machine = _current.get(name)
    count, errno = getattr(machine.hipfile, name)(*args)
    if count == -1:
        return (-1, int(errno))
    if count == -_HIP_ERROR:
        return (int(count), int(machine.hip.hipPeekAtLastError()))
    return (int(count), 0)


# --------------------------------------------------------------------------------------------------- asynchronous I/O


class AsyncIOHandle(_AsyncSlots):
    """The four slots of one asynchronous operation, in real memory that does not move.

    The library reads ``size``, ``file_offset`` and ``buffer_offset`` and writes ``bytes_done`` when the stream gets to
    the operation, long after the submitting call. Keep the object until the stream is synchronised, and read
    `bytes_done` only then. The three inputs may be set until the stream reads them, unless the stream was registered
    with flags that promise otherwise.

    Parameters
    ----------
    size : int
        Bytes to move.
    file_offset, buffer_offset : int
        First byte in the file and in the buffer.
    """

    __slots__ = ()


def _submit(name: str, handle: Integer, buffer_base: Integer, io: AsyncIOHandle, queue: Integer) -> tuple[int, int]:
    if not isinstance(io, _AsyncSlots):
        raise TypeError(
            f"Argument 'io' has incorrect type (expected hipfile._hipfile.AsyncIOHandle, got {type(io).__name__})"
        )
    args = (to_size_t(handle), to_size_t(buffer_base))
    handle_of_stream = to_size_t(queue)
    machine = _current.get(name)
    _flush_quarantine(machine)
    stream = machine.hip.lookup_stream(handle_of_stream) if machine.hip.device_count else None
    before = stream.lane.submitted if stream is not None else 0
    io._guard(machine)
    status = getattr(machine.hipfile, name)(*args, *io._addresses(), handle_of_stream)
    # Commands may be in the queue even after an error: a failed launch still publishes. [async.submit.failed-launch]
    if stream is not None and stream.lane.submitted != before:
        io._submitted(machine, stream.lane, stream.lane.submitted)
    else:
        io._unguard(machine)
    return _async_pair(status)


def hipFileReadAsync(
    handle: Integer, buffer_base: Integer, io: AsyncIOHandle, stream_handle: Integer
) -> tuple[int, int]:
    """Queue a read on a stream: ``(0, 0)``, or the code of the refusal and, beside 5011, the HIP error."""
    return _submit("hipFileReadAsync", handle, buffer_base, io, stream_handle)


def hipFileWriteAsync(
    handle: Integer, buffer_base: Integer, io: AsyncIOHandle, stream_handle: Integer
) -> tuple[int, int]:
    """Queue a write on a stream. Results as of `hipFileReadAsync`."""
    return _submit("hipFileWriteAsync", handle, buffer_base, io, stream_handle)


def hipFileStreamRegister(stream_handle: Integer, flags: Integer = 0) -> tuple[int, int]:
    """Register a stream; the four flags say which slots stay as they are."""
    stream, bits = to_size_t(stream_handle), to_unsigned(flags)
    return _async_pair(_current.get("hipFileStreamRegister").hipfile.hipFileStreamRegister(stream, bits))


def hipFileStreamDeregister(stream_handle: Integer) -> tuple[int, int]:
    """Deregister a stream; operations in flight keep what they need of it."""
    stream = to_size_t(stream_handle)
    return _async_pair(_current.get("hipFileStreamDeregister").hipfile.hipFileStreamDeregister(stream))


def supports_async() -> bool:
    """Whether the library has the asynchronous functions. Registers the null stream to find out, and deregisters it."""
    driver = _current.get("supports_async").hipfile
    err = int(driver.hipFileStreamRegister(0, 0)[0])
    if err == _codes.OpError.hipFileSuccess:
        driver.hipFileStreamDeregister(0)
    return err != _codes.OpError.hipFileAsyncNotSupported


# --------------------------------------------------------------------------------------------------------- properties

_PROPERTIES = (
    "nvfs_major_version",
    "nvfs_minor_version",
    "nvfs_poll_thresh_size",
    "nvfs_max_direct_io_size",
    "nvfs_driver_status_flags",
    "nvfs_driver_control_flags",
    "feature_flags",
    "max_device_cache_size",
    "per_buffer_cache_size",
    "max_device_pinned_mem_size",
    "max_batch_io_count",
    "max_batch_io_timeout_msecs",
)


def hipFileDriverGetProperties() -> tuple[dict[str, int], tuple[int, int]]:
    """Properties by name, and the error. All are 0 after an error, which is what AMD's library returns."""
    status, props = _current.get("hipFileDriverGetProperties").hipfile.hipFileDriverGetProperties()
    return ({name: int(getattr(props, name, 0)) for name in _PROPERTIES}, _pair(status))
