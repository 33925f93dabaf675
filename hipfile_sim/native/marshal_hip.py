"""HIP functions whose arguments are more than values in and values out, and those that follow from others.

Each function takes the machine and returns what the library calls: C arguments in, a code out. All others need no
entry: ``bridge.py`` derives them from their line in ``table_hip.py``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from hipfile_sim.hip import codes, hostmem
from hipfile_sim.hip.codes import HipError
from hipfile_sim.machine import Machine
from hipfile_sim.native import structs
from hipfile_sim.native.callbacks import HOST_FUNCTION, STREAM_CALLBACK, client_function
from hipfile_sim.native.kernels import Kernels

__all__ = ["CUSTOM", "PER_THREAD", "stored_text"]

Function = Callable[..., Any]
_INVALID = HipError.hipErrorInvalidValue
_SUCCESS = HipError.hipSuccess

CUSTOM: dict[str, Callable[[Machine], Function]] = {}
"""Name -> what makes its function for a machine."""


def _custom(make: Callable[[Machine], Function]) -> Callable[[Machine], Function]:
    CUSTOM[make.__name__] = make
    return make


@_custom
def hipInit(machine: Machine) -> Function:
    """Programs call it before everything, so it has a way round what the threaded engine does for other calls."""
    hip, engine, slow = machine.hip, machine.engine, machine.hip.hipInit
    if not engine.threaded or not hip.device_count:
        return slow  # the schedule has a say; or the answer is an error
    host_functions = engine.host_functions

    def call(flags: int) -> HipError:
        if flags or engine.observers or hip.interpose_hook or hip.refusal or engine.fatal or host_functions:
            return slow(flags)
        return _SUCCESS

    return call


# -- texts ----------------------------------------------------------------------------------------------------------

_texts: dict[str, ctypes.Array[ctypes.c_char]] = {}


def stored_text(text: str) -> int:
    """Address of `text` as a C string that stays for good."""
    kept = _texts.get(text)
    if kept is None:
        kept = _texts.setdefault(text, ctypes.create_string_buffer(text.encode()))
    return ctypes.addressof(kept)


@_custom
def hipGetErrorName(machine: Machine) -> Function:
    return lambda code: stored_text(codes.error_name(code))


@_custom
def hipGetErrorString(machine: Machine) -> Function:
    return lambda code: stored_text(codes.error_string(code))


def _drv_text(text: Callable[[int], str]) -> Function:
    def call(code: int, out: int) -> HipError:
        known = any(code == member for member in HipError)
        stored = hostmem.write(out, stored_text(text(code)).to_bytes(8, "little"))
        return _SUCCESS if stored and known else _INVALID

    return call


@_custom
def hipDrvGetErrorName(machine: Machine) -> Function:
    return _drv_text(codes.error_name)


@_custom
def hipDrvGetErrorString(machine: Machine) -> Function:
    return _drv_text(codes.error_string)


def _write_text(out: int, length: int, text: str) -> HipError:
    """`text` into a caller's array of `length` bytes, cut so that the final zero fits."""
    if length <= 0 or not hostmem.write(out, text.encode()[: length - 1] + b"\0"):
        return _INVALID
    return _SUCCESS


# -- devices --------------------------------------------------------------------------------------------------------


@_custom
def hipDeviceGetName(machine: Machine) -> Function:
    def call(out: int, length: int, device: int) -> HipError:
        code, name = machine.hip.hipDeviceGetName(device)
        return _write_text(out, length, name) if code == 0 else code

    return call


@_custom
def hipGetDevicePropertiesR0600(machine: Machine) -> Function:
    def call(out: int, device: int) -> HipError:
        code, properties = machine.hip.hipGetDeviceProperties(device)
        if properties is None:
            return code
        mine = {field.name.replace("_", ""): getattr(properties, field.name) for field in fields(properties)}
        values = {name: mine.get(name.lower()) for name in structs.DEVICE_PROP.fields}
        return _SUCCESS if hostmem.write(out, structs.DEVICE_PROP.pack(values)) else _INVALID

    return call


@_custom
def hipChooseDeviceR0600(machine: Machine) -> Function:
    def call(out: int, wanted: int) -> HipError:
        code, count = machine.hip.hipGetDeviceCount()
        if code:
            return code
        if hostmem.read(wanted, structs.DEVICE_PROP.size) is None or not count:
            return _INVALID
        # all devices of a machine are alike: the first fits as well as any
        return _SUCCESS if hostmem.write(out, bytes(4)) else _INVALID

    return call


def _pci_id(device: int) -> str:
    return f"0000:{device + 3:02x}:00.0"


@_custom
def hipDeviceGetPCIBusId(machine: Machine) -> Function:
    def call(out: int, length: int, device: int) -> HipError:
        code, count = machine.hip.hipGetDeviceCount()
        if code or not 0 <= device < count:
            return code or HipError.hipErrorInvalidDevice
        return _write_text(out, length, _pci_id(device))

    return call


@_custom
def hipDeviceGetByPCIBusId(machine: Machine) -> Function:
    def call(out: int, text: int) -> HipError:
        code, count = machine.hip.hipGetDeviceCount()
        if code:
            return code
        wanted = _read_text(text, 32)
        for device in range(count):
            if wanted == _pci_id(device):
                return _SUCCESS if hostmem.write(out, device.to_bytes(4, "little")) else _INVALID
        return _INVALID if wanted is None else HipError.hipErrorInvalidDevice

    return call


def _read_text(address: int, most: int) -> str | None:
    """A C string of at most `most` bytes, or None. Read byte by byte: it may end right before unmapped memory."""
    text = bytearray()
    while len(text) < most:
        byte = hostmem.read(address + len(text), 1)
        if byte is None:
            return None
        if byte == b"\0":
            return text.decode(errors="replace")
        text += byte
    return None


@_custom
def hipDeviceGetUuid(machine: Machine) -> Function:
    def call(out: int, device: int) -> HipError:
        code, properties = machine.hip.hipGetDeviceProperties(device)
        if properties is None:
            return code
        return _SUCCESS if hostmem.write(out, bytes(properties.uuid)[:16].ljust(16, b"\0")) else _INVALID

    return call


# -- memory ---------------------------------------------------------------------------------------------------------


@_custom
def hipPointerGetAttributes(machine: Machine) -> Function:
    def call(out: int, pointer: int) -> HipError:
        if not out:
            return _INVALID
        code, attributes = machine.hip.hipPointerGetAttributes(pointer)
        if code:
            return code
        values = {name: getattr(attributes, name) for name in structs.POINTER_ATTRIBUTE.fields}
        return _SUCCESS if hostmem.write(out, structs.POINTER_ATTRIBUTE.pack(values)) else _INVALID

    return call


# -- host functions -------------------------------------------------------------------------------------------------


@_custom
def hipLaunchHostFunc(machine: Machine) -> Function:
    launch = machine.hip.hipLaunchHostFunc

    def call(stream: int, address: int, user_data: int) -> HipError:
        function = client_function(HOST_FUNCTION, address)
        return _INVALID if function is None else launch(stream, function, user_data)

    return call


@_custom
def hipStreamAddCallback(machine: Machine) -> Function:
    add = machine.hip.hipStreamAddCallback

    def call(stream: int, address: int, user_data: int, flags: int) -> HipError:
        function = client_function(STREAM_CALLBACK, address)
        return _INVALID if function is None else add(stream, function, user_data, flags)

    return call


@_custom
def hipGetStreamDeviceId(machine: Machine) -> Function:
    def call(stream: int) -> int:
        code, device = machine.hip.hipStreamGetDevice(stream)
        return -1 if code else int(device)

    return call


# -- kernels --------------------------------------------------------------------------------------------------------


@_custom
def hipfileSimKernelRegister(machine: Machine) -> Function:
    return Kernels.of(machine).register


@_custom
def hipLaunchKernel(machine: Machine) -> Function:
    return Kernels.of(machine).launch


# -- the same under another name, or with arguments fixed -----------------------------------------------------------

_H2D, _D2H, _D2D, _DEFAULT = 1, 2, 3, 4


def _derived(name: str, make: Callable[[Any], Function]) -> None:
    CUSTOM[name] = lambda machine: make(machine.hip)


_derived("hipFreeHost", lambda hip: hip.hipHostFree)
_derived("hipMemsetD8", lambda hip: hip.hipMemset)
_derived("hipMemsetD8Async", lambda hip: hip.hipMemsetAsync)
_derived("hipMemcpyHtoD", lambda hip: lambda dst, src, n: hip.hipMemcpy(dst, src, n, _H2D))
_derived("hipMemcpyDtoH", lambda hip: lambda dst, src, n: hip.hipMemcpy(dst, src, n, _D2H))
_derived("hipMemcpyDtoD", lambda hip: lambda dst, src, n: hip.hipMemcpy(dst, src, n, _D2D))
_derived("hipMemcpyHtoDAsync", lambda hip: lambda dst, src, n, s: hip.hipMemcpyAsync(dst, src, n, _H2D, s))
_derived("hipMemcpyDtoHAsync", lambda hip: lambda dst, src, n, s: hip.hipMemcpyAsync(dst, src, n, _D2H, s))
_derived("hipMemcpyDtoDAsync", lambda hip: lambda dst, src, n, s: hip.hipMemcpyAsync(dst, src, n, _D2D, s))
_derived("hipEventRecordWithFlags", lambda hip: lambda event, stream, flags: hip.hipEventRecord(event, stream))


def _devices_exist(hip: Any, *devices: int) -> HipError:
    code, count = hip.hipGetDeviceCount()
    if code:
        return HipError(code)
    return _SUCCESS if all(0 <= device < count for device in devices) else HipError.hipErrorInvalidDevice


_derived(
    "hipMemcpyPeer",
    lambda hip: lambda dst, d, src, s, n: _devices_exist(hip, d, s) or hip.hipMemcpy(dst, src, n, _DEFAULT),
)
_derived(
    "hipMemcpyPeerAsync",
    lambda hip: (
        lambda dst, d, src, s, n, stream: _devices_exist(hip, d, s) or hip.hipMemcpyAsync(dst, src, n, _DEFAULT, stream)
    ),
)
_derived("hipDeviceEnablePeerAccess", lambda hip: lambda peer, flags: _devices_exist(hip, peer))
_derived("hipDeviceDisablePeerAccess", lambda hip: lambda peer: _devices_exist(hip, peer))


def _outputs(name: str, make: Callable[[Any], Function]) -> None:
    """A derived function that returns (code, value...) and whose table line has the ``out`` arguments."""
    DERIVED_OUTPUTS[name] = make


DERIVED_OUTPUTS: dict[str, Callable[[Any], Function]] = {}
"""Name -> function of the runtime that gives (code, values...) for the ``in`` arguments."""

_outputs("hipHostAlloc", lambda hip: hip.hipHostMalloc)
_outputs("hipMallocHost", lambda hip: lambda size: hip.hipHostMalloc(size, 0))
_outputs("hipMemAllocHost", lambda hip: lambda size: hip.hipHostMalloc(size, 0))
_outputs("hipDeviceGet", lambda hip: lambda ordinal: (_devices_exist(hip, ordinal), ordinal))
_outputs("hipDeviceCanAccessPeer", lambda hip: lambda device, peer: (_devices_exist(hip, device, peer), device != peer))


def _property(*names: str) -> Callable[[Any], Function]:
    def make(hip: Any) -> Function:
        def call(device: int) -> tuple[Any, ...]:
            code, properties = hip.hipGetDeviceProperties(device)
            return (code, *(0 if code else getattr(properties, name) for name in names))

        return call

    return make


_outputs("hipDeviceTotalMem", _property("total_global_mem"))
_outputs("hipDeviceComputeCapability", _property("major", "minor"))


def _mem_ptr_info(hip: Any) -> Function:
    def call(pointer: int) -> tuple[HipError, int]:
        code, _, size = hip.hipMemGetAddressRange(pointer)
        return (HipError.hipErrorInvalidValue if code else _SUCCESS), size

    return call


_outputs("hipMemPtrGetInfo", _mem_ptr_info)


def _host_flags(hip: Any) -> Function:
    def call(pointer: int) -> tuple[HipError, int]:
        code, attributes = hip.hipPointerGetAttributes(pointer)
        if code or attributes.type != 1:
            return _INVALID, 0
        return _SUCCESS, attributes.allocationFlags

    return call


_outputs("hipHostGetFlags", _host_flags)

# -- per-thread default stream --------------------------------------------------------------------------------------

_PER_THREAD_STREAM = 2

PER_THREAD: dict[str, int | None] = {
    "hipMemcpy": None,
    "hipMemcpyAsync": 4,
    "hipMemset": None,
    "hipMemsetAsync": 3,
    "hipStreamQuery": 0,
    "hipStreamSynchronize": 0,
    "hipStreamGetPriority": 0,
    "hipStreamWaitEvent": 0,
    "hipStreamGetFlags": 0,
    "hipStreamAddCallback": 0,
    "hipEventRecord": 1,
    "hipLaunchHostFunc": 0,
    "hipLaunchKernel": 9,
}
"""Functions with an ``_spt`` form -> where their stream argument stands, None for those that have none."""


def per_thread(name: str, function: Function, machine: Machine) -> Function:
    """The ``_spt`` form of `name`: the null stream means the calling thread's own default stream."""
    position = PER_THREAD[name]
    hip = machine.hip
    if name == "hipMemcpy":
        return lambda dst, src, n, kind: hip.hipMemcpyWithStream(dst, src, n, kind, _PER_THREAD_STREAM)
    if position is None:  # hipMemset
        return lambda dst, value, n: (
            hip.hipMemsetAsync(dst, value, n, _PER_THREAD_STREAM) or hip.hipStreamSynchronize(_PER_THREAD_STREAM)
        )

    def call(*args: int) -> Any:
        if not args[position]:
            args = (*args[:position], _PER_THREAD_STREAM, *args[position + 1 :])
        return function(*args)

    return call
