"""C libraries as a target, through ctypes alone: the part that `abi`, `rocm` and `cufile` share.

One table (:data:`hipfile_conformance.targets.base.SIGNATURES`) says what each function takes; this module turns a row
of it into a ctypes call. A subclass says which library and which symbol stand behind a name.
"""

from __future__ import annotations

import ctypes as C
import itertools
import os
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from hipfile_conformance.targets.base import (
    SIGNATURES,
    BatchEvent,
    BatchOp,
    Hold,
    HoldKind,
    IOResult,
    PointerInfo,
    Status,
    Unavailable,
    Unsupported,
)
from hipfile_conformance.targets.hold import hold_stream

__all__ = ["CTarget", "find_library", "timespec"]


class _StatusStruct(C.Structure):
    _fields_ = (("err", C.c_int), ("drv", C.c_int))


class _Descr(C.Structure):
    class _Handle(C.Union):
        _fields_ = (("fd", C.c_int), ("pointer", C.c_void_p))

    _fields_ = (("type", C.c_int), ("handle", _Handle), ("fs_ops", C.c_void_p))


class _PointerAttributes(C.Structure):
    _fields_ = (
        ("type", C.c_int),
        ("device", C.c_int),
        ("device_pointer", C.c_void_p),
        ("host_pointer", C.c_void_p),
        ("rest", C.c_char * 128),
    )


class _IOParams(C.Structure):
    _fields_ = (
        ("mode", C.c_int),
        ("base", C.c_void_p),
        ("file_offset", C.c_int64),
        ("buffer_offset", C.c_int64),
        ("size", C.c_size_t),
        ("handle", C.c_void_p),
        ("opcode", C.c_int),
        ("cookie", C.c_void_p),
    )


class _IOEvent(C.Structure):
    _fields_ = (("cookie", C.c_void_p), ("status", C.c_int), ("result", C.c_ssize_t))


class _Timespec(C.Structure):
    _fields_ = (("sec", C.c_long), ("nsec", C.c_long))


def timespec(seconds: float | None) -> C.Structure | None:
    """A ``struct timespec``, or None for no time limit."""
    return None if seconds is None else _Timespec(int(seconds), int((seconds % 1) * 1e9))


_SCALARS: dict[str, Any] = {
    "ptr": C.c_void_p,
    "size": C.c_size_t,
    "off": C.c_int64,
    "int": C.c_int,
    "uint": C.c_uint,
    "u32": C.c_uint32,
    "u64": C.c_uint64,
    "bool": C.c_bool,
    "float": C.c_float,
}
_RESULTS: dict[str, Any] = {
    "code": C.c_int,
    "status": _StatusStruct,
    "str": C.c_char_p,
    "io": C.c_ssize_t,
    "count": C.c_ssize_t,
    "void": None,
}
_FUNCTION = C.CFUNCTYPE(None, C.c_void_p)
_CALLBACK = C.CFUNCTYPE(None, C.c_void_p, C.c_int, C.c_void_p)


def find_library(names: Iterable[str], folders: Iterable[str | os.PathLike[str]] = ()) -> C.CDLL:
    """Load the first library of `names` that is found, by the loader first and then in `folders`.

    Raises
    ------
    Unavailable
        None could be loaded; the message has every attempt and its reason.
    """
    tried: list[str] = []
    names = list(names)
    places = [Path(folder) / name for folder in folders for name in names]
    for candidate in itertools.chain(names, (str(p) for p in places if p.exists())):
        try:
            return C.CDLL(str(candidate), mode=C.RTLD_GLOBAL, use_errno=True)
        except OSError as error:
            tried.append(str(error) if str(candidate) in str(error) else f"{candidate}: {error}")
    raise Unavailable(f"no library could be loaded; LD_LIBRARY_PATH can name its folder: {'; '.join(tried)}")


class CTarget:
    """A target made of C libraries.

    Parameters
    ----------
    libraries
        Searched in order for each symbol.
    directory
        Folder for the files of the tests.
    """

    name: str = "c"
    capabilities: frozenset[str] = frozenset({"c", "threads", "hold", "hold-host"})
    #: C symbol behind a HIP name where it is another one; None: the target lacks the function.
    symbols: ClassVar[dict[str, str | None]] = {}
    #: the wait and write functions take a mask (HIP) or not (CUDA)
    wait_has_mask: ClassVar[bool] = True

    def __init__(self, libraries: list[C.CDLL], directory: Path) -> None:
        self.libraries = libraries
        self.directory = directory
        self.faults: list[str] = []  # exceptions that left host functions
        self._kept: list[Any] = []  # C function pointers must outlive the calls that use them
        self._functions: dict[str, Callable[..., Any]] = {}
        self._holds: list[Hold] = []

    # ---------------------------------------------------------------- calls
    def call(self, name: str, *args: Any) -> Any:
        """Make a call; see :class:`hipfile_conformance.targets.base.Target`."""
        function = self._functions.get(name)
        if function is None:
            special = getattr(self, "call_" + name, None)
            function = special if special is not None else self._make(name)
            self._functions[name] = function
        return function(*args)

    def symbol(self, name: str) -> Any:
        """The ctypes function for a C name. Raises :class:`Unsupported` where no library has it."""
        symbol = self.symbols.get(name, name)
        if symbol is not None:
            for library in self.libraries:
                found = getattr(library, symbol, None)
                if found is not None:
                    found.restype = _RESULTS[SIGNATURES[name].result]
                    return found
        raise Unsupported(f"{self.name} has no {name}" + (f" (symbol {symbol})" if symbol != name else ""))

    def _make(self, name: str) -> Callable[..., Any]:
        signature = SIGNATURES[name]
        function = self.symbol(name)
        inputs, outputs = signature.args, signature.outs

        def invoke(*args: Any) -> Any:
            if len(args) != len(inputs):
                raise TypeError(f"{name} takes {len(inputs)} arguments ({', '.join(inputs)}), not {len(args)}")
            passed = [self._pack(kind, value) for kind, value in zip(inputs, args, strict=True)]
            cells = [_SCALARS[kind]() for kind in outputs]
            C.set_errno(0)
            places = [C.byref(cell) for cell in cells]
            raw = function(*(places + passed if signature.outs_first else passed + places))
            if signature.result == "io":
                return IOResult(raw, C.get_errno())
            result = _unpack(signature.result, raw)
            return (result, *(_value(cell) for cell in cells)) if cells else result

        special = {"pointerinfo", "events", "props", "stats", "string", "name"} & set(outputs)
        special |= {"descr", "ops"} & set(inputs)
        if special:
            raise Unsupported(f"{self.name} has no binding for {name}")
        return invoke

    def _pack(self, kind: str, value: Any) -> Any:
        if kind == "fn":
            return C.cast(self._keep(_FUNCTION(self._guard(value))), C.c_void_p)
        if kind == "callback":
            return C.cast(self._keep(_CALLBACK(self._guard(value))), C.c_void_p)
        if kind == "str":
            return C.c_char_p(value.encode() if isinstance(value, str) else value)
        return _SCALARS[kind](value)

    def _keep(self, thing: Any) -> Any:
        self._kept.append(thing)
        return thing

    def _guard(self, function: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any) -> None:
            try:
                function(*(0 if a is None else a for a in args))
            except BaseException:
                self.faults.append(traceback.format_exc())

        return run

    # ------------------------------------------------- calls with structures
    def call_hipFileHandleRegister(self, descr: tuple[int, int] | None) -> tuple[Status, int]:
        function = self.symbol("hipFileHandleRegister")
        handle = C.c_void_p()
        if descr is None:
            return _status(function(C.byref(handle), None)), handle.value or 0
        struct = _Descr()
        struct.type, struct.handle.fd = descr
        raw = function(C.byref(handle), C.byref(struct))
        return _status(raw), handle.value or 0

    def call_hipPointerGetAttributes(self, pointer: int) -> tuple[int, PointerInfo | None]:
        function = self.symbol("hipPointerGetAttributes")
        struct = _PointerAttributes()
        code = function(C.byref(struct), C.c_void_p(pointer))
        info = PointerInfo(struct.type, struct.device, struct.device_pointer or 0, struct.host_pointer or 0)
        return code, info

    def call_hipDeviceGetName(self, device: int) -> tuple[int, str]:
        function = self.symbol("hipDeviceGetName")
        text = C.create_string_buffer(256)
        code = function(text, C.c_int(256), C.c_int(device))
        return code, text.value.decode(errors="replace")

    def call_hipMemGetAddressRange(self, pointer: int) -> tuple[int, int, int]:
        function = self.symbol("hipMemGetAddressRange")
        base, size = C.c_void_p(), C.c_size_t()
        code = function(C.byref(base), C.byref(size), C.c_void_p(pointer))
        return code, base.value or 0, size.value

    def call_hipStreamWaitValue32(self, stream: int, pointer: int, value: int, flags: int, mask: int) -> int:
        return self._wait_value("hipStreamWaitValue32", C.c_uint32, stream, pointer, value, flags, mask)

    def call_hipStreamWaitValue64(self, stream: int, pointer: int, value: int, flags: int, mask: int) -> int:
        return self._wait_value("hipStreamWaitValue64", C.c_uint64, stream, pointer, value, flags, mask)

    def _wait_value(self, name: str, kind: Any, stream: int, pointer: int, value: int, flags: int, mask: int) -> int:
        function = self.symbol(name)
        extra = (kind(mask),) if self.wait_has_mask else ()
        code: int = function(C.c_void_p(stream), C.c_void_p(pointer), kind(value), C.c_uint(flags), *extra)
        return code

    def call_hipFileBatchIOSubmit(
        self, handle: int, ops: list[BatchOp] | None, flags: int, nr: int | None = None
    ) -> Status:
        function = self.symbol("hipFileBatchIOSubmit")
        count = len(ops) if ops else 0
        array = (_IOParams * max(count, 1))()
        for slot, op in zip(array, ops or (), strict=False):
            slot.mode, slot.base, slot.file_offset, slot.buffer_offset = (
                op.mode,
                op.pointer,
                op.file_offset,
                op.buffer_offset,
            )
            slot.size, slot.handle, slot.opcode, slot.cookie = op.size, op.handle, op.opcode, op.cookie
        number = C.c_uint(count if nr is None else nr)
        return _status(function(C.c_void_p(handle), number, array if ops is not None else None, C.c_uint(flags)))

    def call_hipFileBatchIOGetStatus(
        self, handle: int, min_nr: int, max_nr: int, timeout: float | None
    ) -> tuple[Status, list[BatchEvent]]:
        function = self.symbol("hipFileBatchIOGetStatus")
        events = (_IOEvent * max(max_nr, 1))()
        number = C.c_uint(max_nr)
        limit = timespec(timeout)
        place = None if limit is None else C.byref(limit)
        raw = function(C.c_void_p(handle), C.c_uint(min_nr), C.byref(number), events, place)
        seen = min(number.value, max_nr)
        return _status(raw), [BatchEvent(e.cookie or 0, e.status, e.result) for e in events[:seen]]

    def call_hipFileDriverGetProperties(self) -> tuple[Status, bytes]:
        function = self.symbol("hipFileDriverGetProperties")
        room = C.create_string_buffer(256)
        return _status(function(room)), room.raw

    def call_hipFileGetParameterString(self, parameter: int, length: int) -> tuple[Status, str]:
        function = self.symbol("hipFileGetParameterString")
        room = C.create_string_buffer(max(length, 1))
        status = _status(function(C.c_int(parameter), room, C.c_int(length)))
        return status, room.value.decode(errors="replace")

    def _stats(self, name: str) -> tuple[Status, bytes]:
        function = self.symbol(name)
        room = C.create_string_buffer(1 << 20)
        return _status(function(room)), room.raw[:4096]

    def call_hipFileGetStatsL1(self) -> tuple[Status, bytes]:
        return self._stats("hipFileGetStatsL1")

    def call_hipFileGetStatsL2(self) -> tuple[Status, bytes]:
        return self._stats("hipFileGetStatsL2")

    def call_hipFileGetStatsL3(self) -> tuple[Status, bytes]:
        return self._stats("hipFileGetStatsL3")

    # ------------------------------------------------------------------ holds
    def hold(self, stream: int, kind: HoldKind = "value") -> Hold:
        """Hold a stream; see :func:`hipfile_conformance.targets.hold.hold_stream`."""
        hold = hold_stream(self, stream, kind)
        self._holds.append(hold)
        return hold

    def release_all(self) -> None:
        """Release each hold that a failed test left behind."""
        for hold in self._holds:
            hold.release()
        self._holds.clear()

    def facts(self) -> dict[str, str]:
        """Versions and paths of the libraries."""
        return {"libraries": ", ".join(str(library._name) for library in self.libraries)}

    def close(self) -> None:
        """Release the holds; the libraries stay loaded."""
        self.release_all()


def _status(raw: Any) -> Status:
    return Status(raw.err, raw.drv)


def _value(cell: Any) -> Any:
    return 0 if cell.value is None else cell.value


def _unpack(result: str, raw: Any) -> Any:
    if result == "status":
        return _status(raw)
    if result == "str":
        return raw.decode(errors="replace") if raw else ""
    return raw
