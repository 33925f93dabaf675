"""What a target is: one function that makes a HIP or hipFile call by its C name, and a way to hold a stream back.

A target gives the suite an implementation to judge. The suite speaks in the C names of HIP and hipFile and in plain
integers (addresses, sizes in bytes, codes), so that the model, the C libraries and a foreign driver can stand
behind it alike. :data:`SIGNATURES` is the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

__all__ = [
    "CAPABILITIES",
    "HELD_AT_MOST_S",
    "SIGNATURES",
    "BatchEvent",
    "BatchOp",
    "Hold",
    "HoldKind",
    "IOResult",
    "Inexpressible",
    "PointerInfo",
    "Signature",
    "Status",
    "Target",
    "Unavailable",
    "Unsupported",
]

HELD_AT_MOST_S = 15.0
"""A stream held by a host function that nobody releases runs on after so many seconds."""

HoldKind = str
"""How a stream is held back: ``"value"`` (a wait for a memory value) or ``"host"`` (a host function that waits)."""


class Unsupported(Exception):
    """This target cannot make that call or fulfil that request; the cell of the table says so."""


class Inexpressible(Unsupported):
    """The interface of the target refused an argument or an answer: a library of its own stands in front of the API.

    Where that is known it is owned in the target's expectations; where it is not, it is a failed test.
    """


class Unavailable(Exception):
    """The target is not on this machine (no library, no device, or a stub where real hardware is asked for)."""


class Status(NamedTuple):
    """``hipFileError_t``: the operation's code and the HIP code behind it."""

    err: int
    hip_drv_err: int = 0


class IOResult(NamedTuple):
    """Result of a synchronous read or write: the returned count (negative: a code) and ``errno`` after the call."""

    count: int  # type: ignore[assignment]
    errno: int


class PointerInfo(NamedTuple):
    """The fields of ``hipPointerAttribute_t`` that every target has. ``type``: 0 unregistered, 1 host, 2 device."""

    type: int
    device: int
    device_pointer: int
    host_pointer: int


class BatchOp(NamedTuple):
    """One ``hipFileIOParams_t``. ``opcode``: 0 read, 1 write; ``mode``: 1 batch; offsets and size in bytes."""

    pointer: int
    file_offset: int
    buffer_offset: int
    size: int
    handle: int
    opcode: int
    cookie: int = 0
    mode: int = 1


class BatchEvent(NamedTuple):
    """One ``hipFileIOEvents_t``. ``result`` is signed: the C field is unsigned but carries negative codes."""

    cookie: int
    status: int
    result: int


class Signature(NamedTuple):
    """Arguments (``ptr size off int uint u32 u64 fn ops events timespec str``) and what comes back.

    ``result`` is ``code`` (an int), ``status`` (:class:`Status`), ``io`` (:class:`IOResult`), ``void``, ``str`` or
    ``count``.
    ``outs`` are values written through pointers; with outs the call returns ``(result, *outs)``.
    """

    result: str
    args: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()
    outs_first: bool = True  # where the C prototype has them


def _hip(args: str = "", outs: str = "", result: str = "code", *, last: bool = False) -> Signature:
    return Signature(result, tuple(args.split()), tuple(outs.split()), not last)


def _file(args: str = "", outs: str = "", result: str = "status", *, last: bool = False) -> Signature:
    return Signature(result, tuple(args.split()), tuple(outs.split()), not last)


SIGNATURES: dict[str, Signature] = {
    # devices and errors
    "hipInit": _hip("uint"),
    "hipDriverGetVersion": _hip(outs="int"),
    "hipRuntimeGetVersion": _hip(outs="int"),
    "hipGetDeviceCount": _hip(outs="int"),
    "hipGetDevice": _hip(outs="int"),
    "hipSetDevice": _hip("int"),
    "hipDeviceSynchronize": _hip(),
    "hipDeviceGetAttribute": _hip("int int", "int"),
    "hipDeviceGetName": _hip("int", "name"),
    "hipGetLastError": _hip(),
    "hipPeekAtLastError": _hip(),
    "hipGetErrorName": _hip("int", result="str"),
    "hipGetErrorString": _hip("int", result="str"),
    # memory
    "hipMalloc": _hip("size", "ptr"),
    "hipFree": _hip("ptr"),
    "hipHostMalloc": _hip("size uint", "ptr"),
    "hipHostFree": _hip("ptr"),
    "hipHostRegister": _hip("ptr size uint"),
    "hipHostUnregister": _hip("ptr"),
    "hipHostGetDevicePointer": _hip("ptr uint", "ptr"),
    "hipMallocManaged": _hip("size uint", "ptr"),
    "hipMemGetInfo": _hip(outs="size size"),
    "hipPointerGetAttributes": _hip("ptr", "pointerinfo"),
    "hipMemGetAddressRange": _hip("ptr", "ptr size"),
    "hipMemcpy": _hip("ptr ptr size int"),
    "hipMemcpyAsync": _hip("ptr ptr size int ptr"),
    "hipMemcpyWithStream": _hip("ptr ptr size int ptr"),
    "hipMemset": _hip("ptr int size"),
    "hipMemsetAsync": _hip("ptr int size ptr"),
    # streams and events
    "hipStreamCreate": _hip(outs="ptr"),
    "hipStreamCreateWithFlags": _hip("uint", "ptr"),
    "hipStreamCreateWithPriority": _hip("uint int", "ptr"),
    "hipStreamDestroy": _hip("ptr"),
    "hipStreamSynchronize": _hip("ptr"),
    "hipStreamQuery": _hip("ptr"),
    "hipStreamWaitEvent": _hip("ptr ptr uint"),
    "hipStreamGetFlags": _hip("ptr", "uint", last=True),
    "hipStreamGetPriority": _hip("ptr", "int", last=True),
    "hipStreamGetDevice": _hip("ptr", "int", last=True),
    "hipDeviceGetStreamPriorityRange": _hip(outs="int int"),
    "hipStreamWriteValue32": _hip("ptr ptr u32 uint"),
    "hipStreamWriteValue64": _hip("ptr ptr u64 uint"),
    "hipStreamWaitValue32": _hip("ptr ptr u32 uint u32"),
    "hipStreamWaitValue64": _hip("ptr ptr u64 uint u64"),
    "hipLaunchHostFunc": _hip("ptr fn ptr"),
    "hipStreamAddCallback": _hip("ptr callback ptr uint"),
    "hipEventCreate": _hip(outs="ptr"),
    "hipEventCreateWithFlags": _hip("uint", "ptr"),
    "hipEventDestroy": _hip("ptr"),
    "hipEventRecord": _hip("ptr ptr"),
    "hipEventQuery": _hip("ptr"),
    "hipEventSynchronize": _hip("ptr"),
    "hipEventElapsedTime": _hip("ptr ptr", "float"),
    # hipFile
    "hipFileDriverOpen": _file(),
    "hipFileDriverClose": _file(),
    "hipFileUseCount": _file(result="count"),
    "hipFileGetVersion": _file(outs="uint uint uint"),
    "hipFileGetOpErrorString": _file("int", result="str"),
    "hipFileHandleRegister": _file("descr", "ptr"),
    "hipFileHandleDeregister": _file("ptr", result="void"),
    "hipFileBufRegister": _file("ptr size int"),
    "hipFileBufDeregister": _file("ptr"),
    "hipFileRead": _file("ptr ptr size off off", result="io"),
    "hipFileWrite": _file("ptr ptr size off off", result="io"),
    "hipFileReadAsync": _file("ptr ptr ptr ptr ptr ptr ptr"),
    "hipFileWriteAsync": _file("ptr ptr ptr ptr ptr ptr ptr"),
    "hipFileStreamRegister": _file("ptr uint"),
    "hipFileStreamDeregister": _file("ptr"),
    "hipFileBatchIOSetUp": _file("uint", "ptr"),
    "hipFileBatchIOSubmit": _file("ptr ops uint"),
    "hipFileBatchIOGetStatus": _file("ptr uint uint timespec", "events"),
    "hipFileBatchIOCancel": _file("ptr"),
    "hipFileBatchIODestroy": _file("ptr", result="void"),
    "hipFileDriverGetProperties": _file(outs="props"),
    "hipFileDriverSetPollMode": _file("bool size"),
    "hipFileDriverSetMaxDirectIOSize": _file("size"),
    "hipFileDriverSetMaxCacheSize": _file("size"),
    "hipFileDriverSetMaxPinnedMemSize": _file("size"),
    "hipFileGetParameterSizeT": _file("int", "size", last=True),
    "hipFileGetParameterBool": _file("int", "bool", last=True),
    "hipFileGetParameterString": _file("int int", "string"),
    "hipFileSetParameterSizeT": _file("int size"),
    "hipFileSetParameterBool": _file("int bool"),
    "hipFileSetParameterString": _file("int str"),
    "hipFileGetStatsL1": _file(outs="stats"),
    "hipFileGetStatsL2": _file(outs="stats"),
    "hipFileGetStatsL3": _file(outs="stats"),
}
"""Every call that a target may be asked for, by its C name. A ``descr`` is ``None`` or ``(type, fd)``."""


class Hold:
    """A stream that does not move until :meth:`release`.

    Parameters
    ----------
    release
        Lets the stream run; called at most once.
    """

    __slots__ = ("_release", "released")

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self.released = False

    def release(self) -> None:
        """Let the stream run. Does nothing the second time."""
        if not self.released:
            self.released = True
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@runtime_checkable
class Target(Protocol):
    """An implementation of the API under test.

    Attributes
    ----------
    name
        Column of the table, such as ``"cufile"``.
    directory
        A writable folder on a file system that the implementation accepts.
    capabilities
        Words from :data:`CAPABILITIES`; a test that needs a missing one is reported as unsupported.
    """

    name: str
    directory: Path
    capabilities: frozenset[str]

    def call(self, name: str, *args: Any) -> Any:
        """Make one call of :data:`SIGNATURES`. Raises :class:`Unsupported` where the target lacks it."""

    def hold(self, stream: int, kind: HoldKind = "value") -> Hold:
        """Hold `stream` back at its present tail."""

    def facts(self) -> dict[str, str]:
        """What ran on what: device, driver, library versions, files of the libraries."""

    def close(self) -> None:
        """Release everything. Safe to call twice."""


CAPABILITIES: dict[str, str] = {
    "real": "runs on real hardware",
    "c": "is called through the C interface",
    "threads": "device work proceeds while host code runs (a host function may block)",
    "steps": "nothing moves on the device unless the schedule says so",
    "hold": "streams can be held by a memory wait",
    "hold-host": "streams can be held by a host function that waits",
    "faults": "I/O faults can be injected",
    "mounts": "file systems can be fixtures",
    "environment": "each test may choose the library's environment variables",
    "devices": "has at least two devices",
    "model": "is the model itself, whose commands and files can be looked at",
    "fastpath": "has the direct path between device memory and files",
}
