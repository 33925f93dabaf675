"""Double of ``rocm.bindings.hipfile``: the C functions, each returning a tuple."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from hipfile_mock import current as _current
from hipfile_mock.faces import slots as _slots
from hipfile_mock.faces.convert import Integer, to_int, to_long, to_size_t, to_unsigned
from hipfile_sim.driver import codes as _codes
from hipfile_sim.native import structs as _structs
from hipfile_sim.native.table_hipfile import HIPFILE as _TABLE

from .hip import hipError_t
from .util._pointer import has_buffer as _has_buffer
from .util._struct import Struct as _Struct
from .util._struct import checked as _checked
from .util._struct import mirror as _mirror
from .util.types import CStr, Pointer, PointerToInt64, PointerToUnsigned

HIPFILE_VERSION_MAJOR = 0
HIPFILE_VERSION_MINOR = 4
HIPFILE_VERSION_PATCH = 0
HIPFILE_BASE_ERR = _codes.BASE_ERR

_SYMBOLS = frozenset(symbol.name for symbol in _TABLE)


def has_symbol(name: str | bytes | bytearray) -> bool:
    """Whether the library has the function."""
    if not isinstance(name, (str, bytes, bytearray)):
        raise TypeError("name must be str, bytes, or bytearray")
    return (name if isinstance(name, str) else bytes(name).decode("utf-8", "replace")) in _SYMBOLS


# -- enumerations -----------------------------------------------------------------------------------------------------

hipFileOpError, _hipFileOpError__Base = _mirror("hipFileOpError", _codes.OpError, __name__)
hipFileFileHandleType, _ = _mirror("hipFileFileHandleType", _codes.HandleType, __name__)
hipFileOpcode, _ = _mirror("hipFileOpcode", _codes.BatchOpcode, __name__)
hipFileStatus, _ = _mirror("hipFileStatus", _codes.BatchStatus, __name__)
hipFileBatchMode, _ = _mirror("hipFileBatchMode", _codes.BatchMode, __name__)
hipFileDriverStatusFlags, _ = _mirror("hipFileDriverStatusFlags", _codes.DriverStatusFlag, __name__)
hipFileDriverControlFlags, _ = _mirror("hipFileDriverControlFlags", _codes.DriverControlFlag, __name__)
hipFileFeatureFlags, _ = _mirror("hipFileFeatureFlags", _codes.DriverFeatureFlag, __name__)
hipFileSizeTConfigParameter_t, _SizeT = _mirror("hipFileSizeTConfigParameter_t", _codes.SizeTParameter, __name__)
hipFileBoolConfigParameter_t, _Bool = _mirror("hipFileBoolConfigParameter_t", _codes.BoolParameter, __name__)
hipFileStringConfigParameter_t, _String = _mirror("hipFileStringConfigParameter_t", _codes.StringParameter, __name__)
del _

hipFileOpError_t = hipFileOpError
hipFileFileHandleType_t = hipFileFileHandleType
hipFileOpcode_t = hipFileOpcode
hipFileStatus_t = hipFileStatus
hipFileBatchMode_t = hipFileBatchMode
hipFileDriverStatusFlags_t = hipFileDriverStatusFlags
hipFileDriverControlFlags_t = hipFileDriverControlFlags
hipFileFeatureFlags_t = hipFileFeatureFlags
hipFileHandle_t = hipFileBatchHandle_t = Pointer

# -- structures -------------------------------------------------------------------------------------------------------


class hipFileError(_Struct):
    """What most functions return first."""

    __slots__ = ()
    _layout = _structs.Layout("int err; int hip_drv_err")
    _kinds: ClassVar = {"err": hipFileOpError, "hip_drv_err": hipError_t}


class hipFileDescr_union_0(_Struct):
    """The file: a descriptor, or a handle of Windows."""

    __slots__ = ()
    _layout = _structs.Layout("void *hFile")
    _kinds: ClassVar = {"hFile": Pointer}

    @property
    def fd(self) -> int:
        """The descriptor."""
        return ctypes.c_int.from_address(self._ptr).value

    @fd.setter
    def fd(self, value: Integer) -> None:
        ctypes.c_int.from_address(self._ptr).value = to_int(value)

    @classmethod
    def PROPERTIES(cls) -> list[str]:
        """Names of the members."""
        return ["fd", "hFile"]


class hipFileDescr(_Struct):
    """What `hipFileHandleRegister` takes."""

    __slots__ = ()
    _layout = _structs.FILE_DESCR
    _kinds: ClassVar = {"type": hipFileFileHandleType, "handle": hipFileDescr_union_0, "fs_ops": Pointer}


class hipFileDriverProps_struct_0(_Struct):
    """Properties of the kernel driver."""

    __slots__ = ()
    _layout = _structs.DRIVER_PROPS.nested["struct nvfs"]


class hipFileDriverProps(_Struct):
    """Properties of the driver."""

    __slots__ = ()
    _layout = _structs.DRIVER_PROPS
    _kinds: ClassVar = {"nvfs": hipFileDriverProps_struct_0}


class hipFileIOParams_union_0_struct_0(_Struct):
    """Where an operation of a batch reads and writes."""

    __slots__ = ()
    _layout = _structs.BATCH_PARAMS.nested["union u"]
    _kinds: ClassVar = {"devPtr_base": Pointer}


class hipFileIOParams_union_0(_Struct):
    """Holds ``batch``."""

    __slots__ = ()
    _layout = _structs.Layout("struct batch batch", {"struct batch": hipFileIOParams_union_0_struct_0._layout})
    _kinds: ClassVar = {"batch": hipFileIOParams_union_0_struct_0}


class hipFileIOParams(_Struct):
    """One operation of a batch."""

    __slots__ = ()
    _layout = _structs.BATCH_PARAMS
    _kinds: ClassVar = {
        "mode": hipFileBatchMode,
        "u": hipFileIOParams_union_0,
        "fh": Pointer,
        "opcode": hipFileOpcode,
        "cookie": Pointer,
    }


class hipFileIOEvents(_Struct):
    """What became of an operation of a batch."""

    __slots__ = ()
    _layout = _structs.BATCH_EVENT
    _kinds: ClassVar = {"cookie": Pointer, "status": hipFileStatus}


hipFileError_t = hipFileError
hipFileDescr_t = hipFileDescr
hipFileDriverProps_t = hipFileDriverProps
hipFileIOParams_t = hipFileIOParams
hipFileIOEvents_t = hipFileIOEvents


def _status(status: Any) -> hipFileError:
    made: hipFileError = hipFileError.allocate()
    ctypes.memmove(int(made), int(status[0]).to_bytes(4, "little") + int(status[1]).to_bytes(4, "little"), 8)
    return made


def _driver(name: str) -> Any:
    machine = _current.get(name)
    _slots.flush_quarantine(machine)
    return machine.hipfile


def _pointer(address: int) -> Pointer | None:
    return Pointer._at(address) if address else None


# -- life cycle, files, buffers ---------------------------------------------------------------------------------------


def hipFileGetOpErrorString(status: Any) -> tuple[CStr]:
    """Text of a code."""
    code = _checked(status, _hipFileOpError__Base, "status")
    return (CStr(_codes.error_string(code)),)


def hipFileGetVersion() -> tuple[hipFileError, int, int, int]:
    """Version of the library."""
    status, major, minor, patch = _driver("hipFileGetVersion").hipFileGetVersion()
    return (_status(status), major, minor, patch)


def hipFileDriverOpen() -> tuple[hipFileError]:
    """Raise the use count."""
    return (_status(_driver("hipFileDriverOpen").hipFileDriverOpen()),)


def hipFileDriverClose() -> tuple[hipFileError]:
    """Lower the use count."""
    return (_status(_driver("hipFileDriverClose").hipFileDriverClose()),)


def hipFileUseCount() -> tuple[int]:
    """The use count."""
    return (int(_driver("hipFileUseCount").hipFileUseCount()),)


def hipFileHandleRegister(descr: Any) -> tuple[hipFileError, Pointer | None]:
    """Register a file."""
    given: Any = hipFileDescr.fromObj(descr)
    request = None
    if given:
        data = ctypes.string_at(int(given), _structs.FILE_DESCR.size)
        members = _structs.FILE_DESCR.unpack(data)
        request = _codes.FileDescr(members["type"], given.handle.fd, members["handle"], members["fs_ops"])
    status, handle = _driver("hipFileHandleRegister").hipFileHandleRegister(request)
    return (_status(status), _pointer(handle))


def hipFileHandleDeregister(fh: Any) -> None:
    """Deregister a file."""
    _driver("hipFileHandleDeregister").hipFileHandleDeregister(int(Pointer.fromObj(fh)))


def hipFileBufRegister(buffer_base: Any, length: Integer, flags: Integer) -> tuple[hipFileError]:
    """Register device memory."""
    base, size, bits = int(Pointer.fromObj(buffer_base)), to_size_t(length), to_int(flags)
    return (_status(_driver("hipFileBufRegister").hipFileBufRegister(base, size, bits)),)


def hipFileBufDeregister(buffer_base: Any) -> tuple[hipFileError]:
    """Deregister device memory."""
    return (_status(_driver("hipFileBufDeregister").hipFileBufDeregister(int(Pointer.fromObj(buffer_base)))),)


# -- input and output -------------------------------------------------------------------------------------------------


def _io(name: str, fh: Any, base: Any, size: Integer, file_offset: Integer, buffer_offset: Integer) -> Any:
    handle, memory = Pointer.fromObj(fh), Pointer.fromObj(base)
    args = (int(handle), int(memory), to_size_t(size), to_long(file_offset), to_long(buffer_offset))
    count, errno = getattr(_driver(name), name)(*args)
    return (int(count), int(errno), int(_current.get(name).hip.hipPeekAtLastError()))


def hipFileRead(
    fh: Any, buffer_base: Any, size: Integer, file_offset: Integer, buffer_offset: Integer
) -> tuple[int, int, int]:
    """Read: ``(bytes or negative code, errno, HIP's last error)``."""
    result: tuple[int, int, int] = _io("hipFileRead", fh, buffer_base, size, file_offset, buffer_offset)
    return result


def hipFileWrite(
    fh: Any, buffer_base: Any, size: Integer, file_offset: Integer, buffer_offset: Integer
) -> tuple[int, int, int]:
    """Write; results as of `hipFileRead`."""
    result: tuple[int, int, int] = _io("hipFileWrite", fh, buffer_base, size, file_offset, buffer_offset)
    return result


def _buffer_slot() -> tuple[Any, Any]:
    slot = ctypes.c_int64()
    return slot, Pointer(slot)


def _pointer_slot() -> tuple[Any, Any]:
    slot = PointerToInt64.allocate()
    return slot, slot


_BUFFER_ALONE = _slots.references_when_alone(_buffer_slot)
_POINTER_ALONE = _slots.references_when_alone(_pointer_slot)


def _submit(name: str, fh: Any, base: Any, slots: tuple[Any, ...], stream: Any) -> tuple[hipFileError]:
    handle, memory, queue = Pointer.fromObj(fh), Pointer.fromObj(base), int(Pointer.fromObj(stream))
    pointers = [Pointer.fromObj(slot) for slot in slots]
    driver = _driver(name)
    machine = _current.get(name)
    found = machine.hip.lookup_stream(queue) if machine.hip.device_count else None
    before = found.lane.submitted if found is not None else 0
    status = getattr(driver, name)(int(handle), int(memory), *map(int, pointers), queue)
    if found is not None and found.lane.submitted != before:
        _slots.keep_alive(
            machine,
            found.lane,
            [
                (slot, pointer, _POINTER_ALONE if pointer is slot else _BUFFER_ALONE)
                for slot, pointer in zip(slots, pointers, strict=True)
                if pointer is slot or _has_buffer(slot)
            ],
        )
    return (_status(status),)


def hipFileReadAsync(
    fh: Any, buffer_base: Any, size_p: Any, file_offset_p: Any, buffer_offset_p: Any, bytes_read_p: Any, stream: Any
) -> tuple[hipFileError]:
    """Queue a read. The four slots are addresses, ctypes objects or writable buffers; keep them until it is done."""
    return _submit("hipFileReadAsync", fh, buffer_base, (size_p, file_offset_p, buffer_offset_p, bytes_read_p), stream)


def hipFileWriteAsync(
    fh: Any, buffer_base: Any, size_p: Any, file_offset_p: Any, buffer_offset_p: Any, bytes_written_p: Any, stream: Any
) -> tuple[hipFileError]:
    """Queue a write. Slots as of `hipFileReadAsync`."""
    slots = (size_p, file_offset_p, buffer_offset_p, bytes_written_p)
    return _submit("hipFileWriteAsync", fh, buffer_base, slots, stream)


def hipFileStreamRegister(stream: Any, flags: Integer) -> tuple[hipFileError]:
    """Register a stream."""
    handle, bits = int(Pointer.fromObj(stream)), to_unsigned(flags)
    return (_status(_driver("hipFileStreamRegister").hipFileStreamRegister(handle, bits)),)


def hipFileStreamDeregister(stream: Any) -> tuple[hipFileError]:
    """Deregister a stream."""
    return (_status(_driver("hipFileStreamDeregister").hipFileStreamDeregister(int(Pointer.fromObj(stream)))),)


# -- batches ----------------------------------------------------------------------------------------------------------


def hipFileBatchIOSetUp(max_nr: Integer) -> tuple[hipFileError, Pointer | None]:
    """Make a batch."""
    status, handle = _driver("hipFileBatchIOSetUp").hipFileBatchIOSetUp(to_unsigned(max_nr))
    return (_status(status), _pointer(handle or 0))


def _native(name: str, *args: int) -> tuple[hipFileError]:
    """A function that takes structures: the C libraries' own reading of them."""
    from hipfile_sim.native.marshal_hipfile import CUSTOM

    machine = _current.get(name)
    return (_status(CUSTOM[name](machine)(*args)),)


def hipFileBatchIOSubmit(batch_idp: Any, nr: Integer, iocbp: Any, flags: Integer) -> tuple[hipFileError]:
    """Submit `nr` operations."""
    array = hipFileIOParams.fromObj(iocbp)
    return _native(
        "hipFileBatchIOSubmit", int(Pointer.fromObj(batch_idp)), to_unsigned(nr), int(array), to_unsigned(flags)
    )


def hipFileBatchIOGetStatus(batch_idp: Any, min_nr: Integer, nr: Any, iocbp: Any, timeout: Any) -> tuple[hipFileError]:
    """Collect events; `nr` points to their number, in and out."""
    count, array, time = PointerToUnsigned.fromObj(nr), hipFileIOEvents.fromObj(iocbp), Pointer.fromObj(timeout)
    handle = int(Pointer.fromObj(batch_idp))
    return _native("hipFileBatchIOGetStatus", handle, to_unsigned(min_nr), int(count), int(array), int(time))


def hipFileBatchIOCancel(batch_idp: Any) -> tuple[hipFileError]:
    """Cancel what has not begun."""
    return (_status(_driver("hipFileBatchIOCancel").hipFileBatchIOCancel(int(Pointer.fromObj(batch_idp)))),)


def hipFileBatchIODestroy(batch_idp: Any) -> None:
    """Destroy a batch."""
    _driver("hipFileBatchIODestroy").hipFileBatchIODestroy(int(Pointer.fromObj(batch_idp)))


# -- properties and parameters ----------------------------------------------------------------------------------------


def hipFileDriverGetProperties(props: Any) -> tuple[hipFileError]:
    """Properties, into `props`."""
    return _native("hipFileDriverGetProperties", int(hipFileDriverProps.fromObj(props)))


def hipFileDriverSetPollMode(poll: Any, poll_threshold_size: Integer) -> tuple[hipFileError]:
    """Set the poll mode."""
    size = to_size_t(poll_threshold_size)
    return (_status(_driver("hipFileDriverSetPollMode").hipFileDriverSetPollMode(bool(poll), size)),)


def hipFileDriverSetMaxDirectIOSize(max_direct_io_size: Integer) -> tuple[hipFileError]:
    """Set the largest direct transfer."""
    size = to_size_t(max_direct_io_size)
    return (_status(_driver("hipFileDriverSetMaxDirectIOSize").hipFileDriverSetMaxDirectIOSize(size)),)


def hipFileDriverSetMaxCacheSize(max_cache_size: Integer) -> tuple[hipFileError]:
    """Set the cache's size."""
    size = to_size_t(max_cache_size)
    return (_status(_driver("hipFileDriverSetMaxCacheSize").hipFileDriverSetMaxCacheSize(size)),)


def hipFileDriverSetMaxPinnedMemSize(max_pinned_size: Integer) -> tuple[hipFileError]:
    """Set the most pinned memory."""
    size = to_size_t(max_pinned_size)
    return (_status(_driver("hipFileDriverSetMaxPinnedMemSize").hipFileDriverSetMaxPinnedMemSize(size)),)


def hipFileGetParameterSizeT(param: Any) -> tuple[hipFileError, int]:
    """A number."""
    status, value = _driver("hipFileGetParameterSizeT").hipFileGetParameterSizeT(_checked(param, _SizeT, "param"))
    return (_status(status), int(value or 0))


def hipFileGetParameterBool(param: Any) -> tuple[hipFileError, bool]:
    """A switch."""
    status, value = _driver("hipFileGetParameterBool").hipFileGetParameterBool(_checked(param, _Bool, "param"))
    return (_status(status), bool(value))


def hipFileGetParameterString(param: Any, len: Integer) -> tuple[hipFileError, CStr]:
    """A text of at most `len` bytes."""
    which, length = _checked(param, _String, "param"), to_int(len)
    status, value = _driver("hipFileGetParameterString").hipFileGetParameterString(which, length)
    return (_status(status), CStr(value or ""))


def hipFileSetParameterSizeT(param: Any, value: Integer) -> tuple[hipFileError]:
    """Set a number."""
    which, number = _checked(param, _SizeT, "param"), to_size_t(value)
    return (_status(_driver("hipFileSetParameterSizeT").hipFileSetParameterSizeT(which, number)),)


def hipFileSetParameterBool(param: Any, value: Any) -> tuple[hipFileError]:
    """Set a switch."""
    which = _checked(param, _Bool, "param")
    return (_status(_driver("hipFileSetParameterBool").hipFileSetParameterBool(which, bool(value))),)


def hipFileSetParameterString(param: Any, desc_str: Any) -> tuple[hipFileError]:
    """Set a text."""
    which, text = _checked(param, _String, "param"), str(CStr.fromObj(desc_str))
    return (_status(_driver("hipFileSetParameterString").hipFileSetParameterString(which, text)),)


__all__ = [name for name in globals() if name.startswith(("hipFile", "HIPFILE_", "has_symbol"))]
