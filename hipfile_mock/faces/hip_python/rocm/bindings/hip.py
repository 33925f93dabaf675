"""Double of ``rocm.bindings.hip``: the runtime calls that the model has.

Every function returns a tuple that begins with a ``hipError_t``; a null pointer comes back as None. Numbers of the API
(kinds, errors, attributes) must be members of their enumerations.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hipfile_mock import current as _current
from hipfile_mock.faces import slots as _slots
from hipfile_mock.faces.convert import to_int, to_size_t, to_unsigned
from hipfile_sim.hip import codes as _codes
from hipfile_sim.hip.runtime import Runtime as _Runtime
from hipfile_sim.native import structs as _structs
from hipfile_sim.native.callbacks import HOST_FUNCTION as _HOST_FUNCTION
from hipfile_sim.native.callbacks import STREAM_CALLBACK as _STREAM_CALLBACK
from hipfile_sim.native.callbacks import client_function as _client_function

from ._attributes import DEVICE_ATTRIBUTES as _DEVICE_ATTRIBUTES
from .util._struct import Handle as _Handle
from .util._struct import Opaque as _Opaque
from .util._struct import Struct as _Struct
from .util._struct import checked as _checked
from .util._struct import mirror as _mirror
from .util.types import CStr, DeviceArray, Pointer

HIP_VERSION = 71526333
HIP_VERSION_MAJOR = 7
HIP_VERSION_MINOR = 15
HIP_VERSION_PATCH = 26333

# -- numbers ----------------------------------------------------------------------------------------------------------

hipError_t, _hipError_t__Base = _mirror(
    "hipError_t",
    _codes.HipError,
    __name__,
    {
        "hipErrorMemoryAllocation": 2,
        "hipErrorInitializationError": 3,
        "hipErrorMapBufferObjectFailed": 205,
        "hipErrorInvalidResourceHandle": 400,
        "hipErrorInvalidResourceType": 914,
        "hipErrorInvalidResourceConfiguration": 915,
        "hipErrorStreamDetached": 916,
        "hipErrorInvalidClusterSize": 1054,
        "hipErrorTbd": 1055,
    },
)
hipMemcpyKind, _hipMemcpyKind__Base = _mirror(
    "hipMemcpyKind", _codes.MemcpyKind, __name__, {"hipMemcpyDeviceToDeviceNoCU": 1024}
)
hipMemoryType, _ = _mirror("hipMemoryType", _codes.MemoryType, __name__)
hipDeviceAttribute_t, _hipDeviceAttribute_t__Base = _mirror("hipDeviceAttribute_t", (), __name__, _DEVICE_ATTRIBUTES)
del _

hipStreamDefault = 0
hipStreamNonBlocking = 1
hipEventDefault = 0
hipEventBlockingSync = 1
hipEventDisableTiming = 2
hipEventInterprocess = 4
hipEventReleaseToDevice = 0x40000000
hipEventReleaseToSystem = -0x80000000
hipHostMallocDefault = 0
hipHostMallocPortable = 1
hipHostMallocMapped = 2
hipHostMallocWriteCombined = 4
hipHostMallocNumaUser = 0x20000000
hipHostMallocCoherent = 0x40000000
hipHostMallocNonCoherent = -0x80000000
hipHostRegisterDefault = 0
hipHostRegisterPortable = 1
hipHostRegisterMapped = 2
hipHostRegisterIoMemory = 4
hipExtHostRegisterCoarseGrained = 8
hipMemAttachGlobal = 1
hipMemAttachHost = 2
hipMemAttachSingle = 4
hipDeviceMallocDefault = 0
hipDeviceMallocFinegrained = 1
hipMallocSignalMemory = 2
hipStreamWaitValueGte = 0
hipStreamWaitValueEq = 1
hipStreamWaitValueAnd = 2
hipStreamWaitValueNor = 3

# -- objects ----------------------------------------------------------------------------------------------------------


class ihipStream_t(_Handle):
    """A stream."""

    __slots__ = ()


class ihipEvent_t(_Handle):
    """An event."""

    __slots__ = ()


class hipHostFn_t(_Opaque):
    """A host function: the address of a C function."""

    __slots__ = ()


class hipStreamCallback_t(_Opaque):
    """A callback of a stream: the address of a C function."""

    __slots__ = ()


class hipUUID_t(_Struct):
    """Sixteen bytes."""

    __slots__ = ()
    _layout = _structs.Layout("char bytes[16]")


class hipPointerAttribute_t(_Struct):
    """What `hipPointerGetAttributes` says."""

    __slots__ = ()
    _layout = _structs.POINTER_ATTRIBUTE
    _kinds: ClassVar = {"type": hipMemoryType, "devicePointer": Pointer, "hostPointer": Pointer}


class hipDeviceProp_t(_Struct):
    """What `hipGetDeviceProperties` says."""

    __slots__ = ()
    _layout = _structs.DEVICE_PROP
    _kinds: ClassVar = {"name": str, "gcnArchName": str, "hdpMemFlushCntl": Pointer, "hdpRegFlushCntl": Pointer}

    @property
    def uuid(self) -> hipUUID_t:
        """Identity of the device."""
        made = hipUUID_t._at(self._ptr + _structs.DEVICE_PROP.fields["uuid"].offset)
        made._keep = self
        return made


hipStream_t = ihipStream_t
hipEvent_t = ihipEvent_t

# -- functions --------------------------------------------------------------------------------------------------------

# One line a function: the parameters with their C types, and what comes back behind the error.
_TABLE = """
hipInit(flags: unsigned)
hipDriverGetVersion() -> int
hipRuntimeGetVersion() -> int
hipGetDeviceCount() -> int
hipGetDevice() -> int
hipSetDevice(deviceId: int)
hipDeviceSynchronize()
hipDeviceGetAttribute(attr: hipDeviceAttribute_t, deviceId: int) -> int
hipDeviceGetStreamPriorityRange() -> int, int
hipGetLastError()
hipPeekAtLastError()
hipMalloc(size: size_t) -> array
hipExtMallocWithFlags(sizeBytes: size_t, flags: unsigned) -> array
hipHostMalloc(size: size_t, flags: unsigned) -> pointer
hipMallocManaged(size: size_t, flags: unsigned) -> array
hipFree(ptr: pointer)
hipHostFree(ptr: pointer)
hipHostRegister(hostPtr: pointer, sizeBytes: size_t, flags: unsigned)
hipHostUnregister(hostPtr: pointer)
hipHostGetDevicePointer(hstPtr: pointer, flags: unsigned) -> pointer
hipMemGetInfo() -> int, int
hipMemGetAddressRange(dptr: pointer) -> pointer, int
hipMemcpy(dst: pointer, src: pointer, sizeBytes: size_t, kind: hipMemcpyKind)
hipMemcpyAsync(dst: pointer, src: pointer, sizeBytes: size_t, kind: hipMemcpyKind, stream: pointer)
hipMemcpyWithStream(dst: pointer, src: pointer, sizeBytes: size_t, kind: hipMemcpyKind, stream: pointer)
hipMemset(dst: pointer, value: int, sizeBytes: size_t)
hipMemsetAsync(dst: pointer, value: int, sizeBytes: size_t, stream: pointer)
hipStreamCreate() -> stream
hipStreamCreateWithFlags(flags: unsigned) -> stream
hipStreamCreateWithPriority(flags: unsigned, priority: int) -> stream
hipStreamDestroy(stream: pointer)
hipStreamSynchronize(stream: pointer)
hipStreamQuery(stream: pointer)
hipStreamWaitEvent(stream: pointer, event: pointer, flags: unsigned)
hipStreamGetFlags(stream: pointer) -> int
hipStreamGetPriority(stream: pointer) -> int
hipStreamGetDevice(stream: pointer) -> int
hipStreamWriteValue32(stream: pointer, ptr: pointer, value: unsigned, flags: unsigned)
hipStreamWriteValue64(stream: pointer, ptr: pointer, value: size_t, flags: unsigned)
hipStreamWaitValue32(stream: pointer, ptr: pointer, value: unsigned, flags: unsigned, mask: unsigned)
hipStreamWaitValue64(stream: pointer, ptr: pointer, value: size_t, flags: unsigned, mask: size_t)
hipEventCreate() -> event
hipEventCreateWithFlags(flags: unsigned) -> event
hipEventDestroy(event: pointer)
hipEventRecord(event: pointer, stream: pointer)
hipEventQuery(event: pointer)
hipEventSynchronize(event: pointer)
hipEventElapsedTime(start: pointer, stop: pointer) -> float
"""

_IN: dict[str, Callable[[Any], Any]] = {"unsigned": to_unsigned, "int": to_int, "size_t": to_size_t}
_ENUMS = {"hipMemcpyKind": _hipMemcpyKind__Base, "hipDeviceAttribute_t": _hipDeviceAttribute_t__Base}
_OUT: dict[str, Callable[[Any, int], Any]] = {
    "int": lambda value, _size: int(value),
    "float": lambda value, _size: float(value),
    "pointer": lambda value, _size: Pointer._at(value) if value else None,
    "array": lambda value, size: DeviceArray._sized(value, size) if value else None,
    "stream": lambda value, _size: ihipStream_t._at(value) if value else None,
    "event": lambda value, _size: ihipEvent_t._at(value) if value else None,
}


def _function(name: str, parameters: Sequence[tuple[str, str]], results: Sequence[str]) -> Callable[..., Any]:
    names = [parameter for parameter, _ in parameters]
    kinds = [kind for _, kind in parameters]
    signature = inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names])
    outs = [_OUT[result] for result in results]

    def function(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        if kwargs or len(args) != len(names):
            args = signature.bind(*args, **kwargs).args
        held: list[Any] = []
        values: list[Any] = []
        for kind, argument, value in zip(kinds, names, args, strict=True):
            if kind == "pointer":
                pointer = Pointer.fromObj(value)
                held.append(pointer)
                values.append(int(pointer))
            elif kind in _ENUMS:
                values.append(_checked(value, _ENUMS[kind], argument))
            else:
                values.append(_IN[kind](value))
        machine = _current.get(name)
        _slots.flush_quarantine(machine)
        answer = getattr(machine.hip, name)(*values)
        if not outs:
            return (hipError_t(answer),)
        size = values[0] if values else 0
        return (hipError_t(answer[0]), *(out(value, size) for out, value in zip(outs, answer[1:], strict=True)))

    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    function.__doc__ = (getattr(_Runtime, name).__doc__ or "").partition("\n")[0]
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


for _line in _TABLE.split("\n"):
    if _found := re.fullmatch(r"(\w+)\((.*)\)(?: -> (.*))?", _line):
        _parameters = [tuple(part.split(": ")) for part in _found[2].split(", ") if part]
        globals()[_found[1]] = _function(_found[1], _parameters, (_found[3] or "").split(", ") if _found[3] else ())
del _line, _found, _parameters


def hipDeviceGetName(len: Any, device: Any) -> tuple[Any, CStr]:
    """Name of a device, in at most `len` bytes."""
    room, ordinal = to_int(len), to_int(device)
    code, name = _current.get("hipDeviceGetName").hip.hipDeviceGetName(ordinal)
    return (hipError_t(code), CStr(name.encode()[: max(room - 1, 0)]))


def _property_values(properties: Any) -> dict[str, Any]:
    """The model's properties under C's names."""
    values = {}
    for name in _structs.DEVICE_PROP.fields:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
        value = getattr(properties, name, getattr(properties, words, None))
        if value is not None:
            values[name] = value
    return values


def hipGetDeviceProperties(deviceId: Any) -> tuple[Any, hipDeviceProp_t]:
    """Properties of a device."""
    code, properties = _current.get("hipGetDeviceProperties").hip.hipGetDeviceProperties(to_int(deviceId))
    made: hipDeviceProp_t = hipDeviceProp_t.allocate()
    if properties is not None:
        made._fill(_property_values(properties))
    return (hipError_t(code), made)


def hipPointerGetAttributes(ptr: Any) -> tuple[Any, hipPointerAttribute_t]:
    """What kind of memory a pointer leads to."""
    pointer = Pointer.fromObj(ptr)
    code, attributes = _current.get("hipPointerGetAttributes").hip.hipPointerGetAttributes(int(pointer))
    made: hipPointerAttribute_t = hipPointerAttribute_t.allocate()
    if attributes is not None:
        made._fill(attributes._asdict())
    return (hipError_t(code), made)


def _client(name: str, kind: Any, pointer: Pointer) -> Callable[..., Any]:
    """The caller's C function.

    Raises
    ------
    TypeError
        Its address leads to no code. (AMD's library would crash when the stream gets there.)
    """
    function = _client_function(kind, int(pointer))
    if function is None:
        raise TypeError(
            f"{name}: {int(pointer):#x} is not the address of a C function. Pass"
            " ctypes.cast(callback, ctypes.c_void_p), not the ctypes callback itself, and keep the callback alive"
        )
    return function


def hipLaunchHostFunc(stream: Any, fn: Any, userData: Any) -> tuple[Any]:
    """Call a C function when the stream gets there."""
    handle, data = Pointer.fromObj(stream), Pointer.fromObj(userData)
    function = _client("hipLaunchHostFunc", _HOST_FUNCTION, hipHostFn_t.fromObj(fn))
    machine = _current.get("hipLaunchHostFunc")
    return (hipError_t(machine.hip.hipLaunchHostFunc(int(handle), function, int(data))),)


def hipStreamAddCallback(stream: Any, callback: Any, userData: Any, flags: Any) -> tuple[Any]:
    """Call a C function with stream and status when the stream gets there."""
    handle, data, bits = Pointer.fromObj(stream), Pointer.fromObj(userData), to_unsigned(flags)
    function = _client("hipStreamAddCallback", _STREAM_CALLBACK, hipStreamCallback_t.fromObj(callback))
    machine = _current.get("hipStreamAddCallback")
    return (hipError_t(machine.hip.hipStreamAddCallback(int(handle), function, int(data), bits)),)


def hipGetErrorName(hip_error: Any) -> tuple[Any, CStr]:
    """Name of an error. The first element is always success."""
    return (hipError_t(0), CStr(_codes.error_name(_checked(hip_error, _hipError_t__Base, "hip_error"))))


def hipGetErrorString(hipError: Any) -> tuple[Any, CStr]:
    """Text of an error. The first element is always success."""
    return (hipError_t(0), CStr(_codes.error_string(_checked(hipError, _hipError_t__Base, "hipError"))))


_SYMBOLS = frozenset(_Runtime.CALLS) - {"launch"} | {
    "hipGetErrorName",
    "hipGetErrorString",
    "hipGetDevicePropertiesR0600",
}


def has_symbol(name: str | bytes | bytearray) -> bool:
    """Whether the library has the function."""
    if not isinstance(name, (str, bytes, bytearray)):
        raise TypeError("name must be str, bytes, or bytearray")
    return (name if isinstance(name, str) else bytes(name).decode("utf-8", "replace")) in _SYMBOLS


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"the double of rocm.bindings.hip has no {name!r}: the model has {len(_SYMBOLS)} calls of HIP. For others"
        " run the program on real hardware, or with AMD's own wheels under `hipfile-sim exec`, which say what they lack"
    )


__all__ = [name for name in globals() if name.startswith(("hip", "ihip", "HIP_", "has_symbol"))]
