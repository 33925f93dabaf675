"""AMD's Python bindings (``rocm.bindings``) as a target: on the emulated libraries or on a real ROCm.

A call goes through the bindings where they have it and can express it, else through ctypes on the same libraries
(see :data:`BY_CTYPES`). What the bindings refuse (an argument that must be a member of an enumeration, a code that
their enumeration lacks) is never passed round them: the tests and clauses that lose by it are listed, with the reason,
in ``expectations/bindings.toml``, and a refusal that is not listed there fails.
"""

from __future__ import annotations

import ctypes as C
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hipfile_conformance.targets.abi import MARKER, AbiTarget, RocmTarget
from hipfile_conformance.targets.base import (
    SIGNATURES,
    BatchEvent,
    BatchOp,
    Inexpressible,
    IOResult,
    PointerInfo,
    Status,
    Unavailable,
    Unsupported,
)
from hipfile_conformance.targets.clib import CTarget, timespec

__all__ = ["BY_CTYPES", "AbiPythonTarget", "BindingsTarget", "RocmPythonTarget"]

BY_CTYPES = frozenset({"hipFileGetStatsL1", "hipFileGetStatsL2", "hipFileGetStatsL3"})
"""Calls that release 10.0.0.0.1.2 of the bindings does not have; they are made through ctypes."""

_ENUMS: dict[str, tuple[int, str]] = {
    "hipDeviceGetAttribute": (0, "hipDeviceAttribute_t"),
    "hipGetErrorName": (0, "hipError_t"),
    "hipGetErrorString": (0, "hipError_t"),
    "hipMemcpy": (3, "hipMemcpyKind"),
    "hipMemcpyAsync": (3, "hipMemcpyKind"),
    "hipMemcpyWithStream": (3, "hipMemcpyKind"),
    "hipFileGetOpErrorString": (0, "hipFileOpError"),
    "hipFileGetParameterSizeT": (0, "hipFileSizeTConfigParameter_t"),
    "hipFileGetParameterBool": (0, "hipFileBoolConfigParameter_t"),
    "hipFileGetParameterString": (0, "hipFileStringConfigParameter_t"),
    "hipFileSetParameterSizeT": (0, "hipFileSizeTConfigParameter_t"),
    "hipFileSetParameterBool": (0, "hipFileBoolConfigParameter_t"),
    "hipFileSetParameterString": (0, "hipFileStringConfigParameter_t"),
}
"""Which argument must be a member of which enumeration."""

_WORDS = frozenset({"name", "string"})


class BindingsTarget(CTarget):
    """The calls of :class:`hipfile_conformance.targets.clib.CTarget`, made by ``rocm.bindings`` where it has them."""

    hip: Any
    hipfile: Any

    def bind(self, root: Path, *, emulated: bool) -> None:
        """Import the bindings and have them open the libraries below `root`.

        They look a library up at the first call: ``ROCM_PATH`` is set here and must not change after it.

        Raises
        ------
        Unavailable
            They cannot be imported, found no library, or found another kind than `emulated` says.
        """
        self.hip, self.hipfile = _bindings()
        os.environ["ROCM_PATH"] = str(root)
        for module, name in ((self.hip, "hipInit"), (self.hipfile, "hipFileDriverOpen")):
            if not module.has_symbol(name):
                raise Unavailable(f"{module.__name__} found no library with {name} (ROCM_PATH is {root})")
            if module.has_symbol(MARKER) != emulated:
                found, wanted = ("a real", "the emulated") if emulated else ("the emulated", "a real")
                raise Unavailable(f"{module.__name__} opened {found} library; {wanted} one below {root} is asked for")

    def call(self, name: str, *args: Any) -> Any:
        """Make a call; see :class:`hipfile_conformance.targets.base.Target`."""
        if name not in self._functions and name not in BY_CTYPES:
            special = getattr(self, "bound_" + name, None)
            self.bound(name)  # the bindings' wrappers report success where the symbol is missing
            self._functions[name] = _refusals(name, special or self._bind(name))
        return super().call(name, *args)

    def bound(self, name: str) -> Callable[..., tuple[Any, ...]]:
        """The bindings' function. Raises :class:`Unsupported` where they or the library lack it."""
        module = self.hipfile if name.startswith("hipFile") else self.hip
        function: Callable[..., tuple[Any, ...]] | None = getattr(module, name, None)
        if function is None or not module.has_symbol(name):
            raise Unsupported(f"{module.__name__} has no {name}, or the library has no such symbol")
        return function

    def member(self, enumeration: str, value: int) -> Any:
        """`value` as a member of one of the bindings' enumerations; ValueError where there is none."""
        return getattr(self.hipfile if enumeration.startswith("hipFile") else self.hip, enumeration)(value)

    def _bind(self, name: str) -> Callable[..., Any]:
        function, signature = self.bound(name), SIGNATURES[name]
        position, enumeration = _ENUMS.get(name, (-1, ""))
        if signature.result not in ("code", "status"):
            return self._bind_other(name, signature.result, position, enumeration)

        def invoke(*args: Any) -> Any:
            raw = function(*self._passed(signature.args, args, position, enumeration))
            code = _status(raw[0]) if signature.result == "status" else int(raw[0])
            if not signature.outs:
                return code
            return (code, *(_plain(kind, value) for kind, value in zip(signature.outs, raw[1:], strict=True)))

        return invoke

    def _bind_other(self, name: str, result: str, position: int, enumeration: str) -> Callable[..., Any]:
        function, inputs = self.bound(name), SIGNATURES[name].args

        def invoke(*args: Any) -> Any:
            raw = function(*self._passed(inputs, args, position, enumeration))
            if result == "io":  # errno says something only beside -1
                return IOResult(raw[0], raw[1] if raw[0] == -1 else 0)
            if result == "str":
                return _plain("string", raw[-1])
            return raw[0] if result == "count" else None

        return invoke

    def _passed(self, inputs: tuple[str, ...], args: tuple[Any, ...], position: int, enumeration: str) -> list[Any]:
        assert len(args) == len(inputs), f"takes {inputs}, not {len(args)} arguments"
        passed = []
        for index, (kind, value) in enumerate(zip(inputs, args, strict=True)):
            if index == position:
                passed.append(self.member(enumeration, value))
            else:
                passed.append(self._pack(kind, value) if kind in ("fn", "callback") else value)
        return passed

    # ------------------------------------------------- calls with structures
    def bound_hipFileHandleRegister(self, descr: tuple[int, int] | None) -> tuple[Status, int]:
        struct = None
        if descr is not None:
            struct = self.hipfile.hipFileDescr()
            struct.type = self.member("hipFileFileHandleType", descr[0])
            struct.handle.fd = descr[1]
        error, handle = self.hipfile.hipFileHandleRegister(struct)
        return _status(error), _plain("ptr", handle)

    def bound_hipPointerGetAttributes(self, pointer: int) -> tuple[int, PointerInfo | None]:
        error, found = self.hip.hipPointerGetAttributes(pointer)
        if int(error):  # the structure need not be filled, nor its enumeration have a member
            return int(error), PointerInfo(0, 0, 0, 0)
        places = (_plain("ptr", found.devicePointer), _plain("ptr", found.hostPointer))
        return int(error), PointerInfo(int(found.type), found.device, *places)

    def bound_hipDeviceGetName(self, device: int) -> tuple[int, str]:
        error, name = self.hip.hipDeviceGetName(256, device)
        return int(error), "" if int(error) else _plain("name", name)

    def bound_hipFileBatchIOSubmit(
        self, handle: int, ops: list[BatchOp] | None, flags: int, nr: int | None = None
    ) -> Status:
        array = None
        if ops is not None:
            array = self.hipfile.hipFileIOParams.allocate(max(len(ops), 1))
            for slot, op in enumerate(ops):
                array.set_mode(slot, self.member("hipFileBatchMode", op.mode))
                array.set_opcode(slot, self.member("hipFileOpcode", op.opcode))
                array.set_fh(slot, op.handle)
                array.set_cookie(slot, op.cookie)
                batch = array.get_u(slot).batch
                batch.devPtr_base, batch.file_offset = op.pointer, op.file_offset
                batch.devPtr_offset, batch.size = op.buffer_offset, op.size
        number = len(ops or ()) if nr is None else nr
        return _status(self.hipfile.hipFileBatchIOSubmit(handle, number, array, flags)[0])

    def bound_hipFileBatchIOGetStatus(
        self, handle: int, min_nr: int, max_nr: int, timeout: float | None
    ) -> tuple[Status, list[BatchEvent]]:
        events = self.hipfile.hipFileIOEvents.allocate(max(max_nr, 1))
        number = C.c_uint(max_nr)
        limit = timespec(timeout)
        place = None if limit is None else C.addressof(limit)
        status = _status(self.hipfile.hipFileBatchIOGetStatus(handle, min_nr, number, events, place)[0])
        if status.err:  # nothing was written: the number is still the room, a zero status is no member
            return status, []
        found = [
            BatchEvent(
                _plain("ptr", events.get_cookie(i)),
                int(events.get_status(i)),
                C.c_ssize_t(events.get_ret(i)).value,
            )
            for i in range(min(number.value, max_nr))
        ]
        return status, found

    def bound_hipFileDriverGetProperties(self) -> tuple[Status, bytes]:
        props = self.hipfile.hipFileDriverProps()
        status = _status(self.hipfile.hipFileDriverGetProperties(props)[0])
        return status, C.string_at(int(props), props.c_sizeof())

    def bound_hipFileGetParameterString(self, parameter: int, length: int) -> tuple[Status, str]:
        place = self.member("hipFileStringConfigParameter_t", parameter)
        error, text = self.hipfile.hipFileGetParameterString(place, length)
        status = _status(error)  # the text is uninitialized memory where the call failed
        return status, "" if status.err else _plain("string", text)

    def facts(self) -> dict[str, str]:
        """Versions and paths of the libraries, and the release of the bindings."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            release = version("rocm-bindings-systems")
        except PackageNotFoundError:
            release = "unknown"
        return {**super().facts(), "bindings": release}


class AbiPythonTarget(BindingsTarget, AbiTarget):
    """The target `abi-python`: the bindings on the emulated libraries.

    Parameters
    ----------
    directory
        Folder for the files of the tests.
    prefix
        Folder in the shape of a ROCm (``lib`` in it); None: the one that this project makes for the release.

    Raises
    ------
    Unavailable
        The bindings cannot be imported, the libraries are not built, or the bindings found other ones.
    """

    name = "abi-python"

    def __init__(self, directory: str | os.PathLike[str], prefix: str | os.PathLike[str] | None = None) -> None:
        _bindings()  # the cheapest reason first
        root = Path(prefix) if prefix is not None else _prefix()
        super().__init__(directory, root / "lib")
        self.bind(root, emulated=True)


class RocmPythonTarget(BindingsTarget, RocmTarget):
    """The target `rocm-python`: the bindings on a real ROCm.

    Raises
    ------
    Unavailable
        As :class:`hipfile_conformance.targets.abi.RocmTarget`, or the bindings cannot be imported.
    """

    name = "rocm-python"

    def __init__(self, directory: str | os.PathLike[str], prefix: str | os.PathLike[str] | None = None) -> None:
        _bindings()
        super().__init__(directory, prefix)
        self.bind(Path(prefix or os.environ.get("ROCM_PATH") or "/opt/rocm"), emulated=False)


def _bindings() -> tuple[Any, Any]:
    try:
        return importlib.import_module("rocm.bindings.hip"), importlib.import_module("rocm.bindings.hipfile")
    except ImportError as error:
        raise Unavailable(
            f"AMD's Python bindings cannot be imported: {error}; pip install hip-python rocm-bindings-systems"
        ) from error


def _prefix() -> Path:
    from hipfile_sim.driver.profiles import NEWEST
    from hipfile_sim.native.prefix import NativeUnavailable, prefix

    try:
        return prefix(os.environ.get("HIPFILE_SIM_PROFILE") or NEWEST)
    except NativeUnavailable as error:
        raise Unavailable(str(error)) from error


def _refusals(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """What the bindings cannot convert, there or back, as :class:`Inexpressible`."""

    def invoke(*args: Any) -> Any:
        try:
            return function(*args)
        except (TypeError, ValueError, OverflowError) as error:
            given = ", ".join(str(value) for value in args)
            given = given if len(given) <= 80 else given[:77] + "..."
            raise Inexpressible(
                f"the bindings' {name}({given}) cannot express an argument or the answer: "
                f"{type(error).__name__}: {error}"
            ) from error

    return invoke


def _status(error: Any) -> Status:
    return Status(int(error.err), int(error.hip_drv_err))


def _plain(kind: str, value: Any) -> Any:
    if kind in _WORDS:
        return "" if value is None else bytes(value).split(b"\0", 1)[0].decode(errors="replace")
    if kind == "ptr":
        return 0 if value is None else int(value)
    return value
