"""Between the C libraries and the model: one function for each exported symbol, in one list that C calls into.

C hands over integers and takes back a code, a pair or nothing (``src/core.h``). Everything behind a client's pointer is
read and written by the kernel's copy (``hip/hostmem.py``), so a wild pointer is an error code.

The machine is made by the first call, from ``config.py``; or it is one that `use` was given. The list stays the same
object for the life of the process: a change of machine changes its items.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hipfile_sim.driver.codes import HipFileStatus, IOResult, OpError, hip_status
from hipfile_sim.driver.profiles import NEWEST
from hipfile_sim.engine.steps import StepEngine
from hipfile_sim.hip import hostmem
from hipfile_sim.hip.codes import HipError
from hipfile_sim.machine import Machine
from hipfile_sim.native import config, marshal_hip, marshal_hipfile, stacks
from hipfile_sim.native.callers import CallerSites
from hipfile_sim.native.entry import SignalsHeld
from hipfile_sim.native.shims import called
from hipfile_sim.native.symbols import Symbol
from hipfile_sim.observe import observer

__all__ = ["bind", "finish", "machine", "thread_ended", "use"]

Function = Callable[..., Any]

_symbols: tuple[Symbol, ...] = called()
_functions: list[Function] = []
_lock = threading.RLock()
_machine: Machine | None = None  # what the list calls now
_own: Machine | None = None  # made by a first call
_config: config.Config | None = None
_trace: Any = None
_sanitizer: Any = None
_library = ""
_controls: list[Callable[[int], int]] = []  # of each copy of the library: prefixes of two releases have one each
_embedded = False  # a C program started this interpreter
_failed = False

_CLOSING, _IN_FLIGHT, _EMBEDDED = 1, 2, 3  # operations of hipfile_sim_control
_INVALID = HipError.hipErrorInvalidValue
_NOT_SUPPORTED = HipError.hipErrorNotSupported


def bind(names: str, library: str) -> list[Function]:
    """Called once by the library at `library`: the functions for its `names`, in order.

    Raises
    ------
    ImportError
        The library was built from other tables than this package has.
    """
    global _embedded, _library
    mine = [symbol.name for symbol in _symbols]
    if names.split() != mine:
        raise ImportError(
            f"{library} was built from another version of hipfile-sim: rebuild it with "
            "`python -m hipfile_sim.native.build`, or install the package again"
        )
    with _lock:
        _library = library
        control = ctypes.CDLL(library).hipfile_sim_control
        _controls.append(control)
        _embedded = bool(control(_EMBEDDED))
        if not _functions:
            _functions[:] = [_starter(index) for index in range(len(_symbols))]
            if _machine is not None:
                _install(_machine)
            observer.foreign_site = CallerSites(library).site
            if not _embedded:
                atexit.register(_before_exit)  # an embedded interpreter is never finalised; C calls `finish`
    return _functions


def machine() -> Machine:
    """The machine behind the libraries, made now if there is none yet.

    Raises
    ------
    config.ConfigError
        The configuration is wrong.
    """
    global _own, _machine
    with _lock:
        if _machine is None:
            if _own is None:
                _own = _make()
            _machine = _own
            _install(_machine)
        return _machine


def use(other: Machine | None) -> Machine | None:
    """From now on the libraries work on `other`; None: on the process's own machine. Returns what they worked on.

    Calls that have begun end on the machine that they began on.
    """
    global _machine
    with _lock:
        before = _machine
        _machine = other if other is not None else _own
        if _functions:
            if _machine is not None:
                _install(_machine)
            else:
                _functions[:] = [_starter(index) for index in range(len(_symbols))]
        return before


def finish() -> None:
    """Write what is written at the end of a program. Safe to call more than once."""
    global _sanitizer, _trace
    if _embedded:  # nobody else does it there
        sys.stdout.flush()
        sys.stderr.flush()
    with _lock:
        trace, _trace = _trace, None
        sanitizer, _sanitizer = _sanitizer, None
    if sanitizer is not None:
        sanitizer.finish()
        print(sanitizer.format("text") if sanitizer.findings else sanitizer.summary(), file=sys.stderr)
    if trace is None or _config is None or _config.trace is None or _own is None:
        return
    from hipfile_sim.observe.chrome import write_chrome

    _own.remove_observer(trace)
    try:
        write_chrome(trace, _config.trace)
    except OSError as error:
        print(f"hipfile-sim: the trace was not written to {_config.trace}: {error.strerror}", file=sys.stderr)
    else:
        print(f"hipfile-sim: trace of {len(trace.commands)} commands in {_config.trace}", file=sys.stderr)


def _make() -> Machine:
    global _config, _sanitizer, _trace
    _config = config.load(default_profile=_prefix_profile())
    made = _config.make()
    if _config.trace is not None:
        from hipfile_sim.observe.trace import Trace

        _trace = Trace()
        made.add_observer(_trace)
    if _config.sanitize is not None:
        from hipfile_sim.observe import syncs
        from hipfile_sim.observe.sanitizer import Sanitizer

        _sanitizer = Sanitizer(_config.sanitize or None)
        made.add_observer(_sanitizer)
        syncs.watch(made)  # a Python program's; those of C code are not seen
    return made


def _prefix_profile() -> str:
    """The release of the prefix that the library was loaded from; the newest one outside of a prefix."""
    try:
        lines = (Path(_library).parent.parent / "hipfile-sim.conf").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.removeprefix("profile=") for line in lines if line.startswith("profile=")]
    return named[0] if named else NEWEST


def _forked() -> None:
    """In a forked child: what was not made before the fork is never made; other threads may have held any lock."""
    global _lock, _sanitizer, _trace
    _lock = threading.RLock()
    _trace = _sanitizer = None
    if not _functions:
        return
    for index, symbol in enumerate(_symbols):
        if _machine is None or _functions[index].__name__ == "first":
            _functions[index] = _refusal(symbol, _say_forked)


def _say_forked() -> None:
    global _failed
    if not _failed:
        _failed = True
        os.write(2, b"hipfile-sim: HIP and hipFile do not survive fork(): every call in this child fails.\n")


os.register_at_fork(after_in_child=_forked)


def _before_exit() -> None:
    """The interpreter goes: serve no other thread than this one, and let those that are inside come out."""
    for control in _controls:
        control(_CLOSING)
    try:
        deadline = time.monotonic() + 0.5
        time.sleep(0.002)  # threads that wait for the GIL now come in, and are counted
        while any(control(_IN_FLIGHT) > 0 for control in _controls) and time.monotonic() < deadline:
            time.sleep(0.001)
    finally:  # Ctrl-C ends the waiting, not what is to be written
        finish()


# -- the functions --------------------------------------------------------------------------------------------------


def _starter(index: int) -> Function:
    """Stands in the list until the first call makes the machine."""

    def start(*args: int) -> Any:
        with SignalsHeld():
            try:
                machine()
            except Exception as error:
                _refuse_all(error)
        return _functions[index](*args)

    return start


def _refuse_all(error: Exception) -> None:
    """There is no machine to be had: say why once, and answer every call with an error."""
    global _failed
    with _lock:
        if not _failed:
            _failed = True
            if isinstance(error, config.ConfigError):
                print(f"hipfile-sim: {error}", file=sys.stderr)
            else:
                sys.excepthook(type(error), error, error.__traceback__)
            print("hipfile-sim: every HIP and hipFile call fails with hipErrorNotInitialized.", file=sys.stderr)
            _functions[:] = [_refusal(symbol) for symbol in _symbols]


def _refusal(symbol: Symbol, first: Callable[[], None] = lambda: None) -> Function:
    """Answers every call of `symbol` with hipErrorNotInitialized, after `first`."""
    code = HipError.hipErrorNotInitialized
    answers: dict[str, Any] = {
        "hipError_t": code,
        "hipFileError_t": hip_status(code),
        "ssize_t": IOResult(-OpError.hipFileInternalError),
        "const char *": marshal_hip.stored_text("hipfile-sim is not configured: see stderr"),
        "void": None,
    }
    answer = answers.get(symbol.returns, -1)

    def refuse(*args: int) -> Any:
        first()
        return answer

    return refuse


def _install(target: Machine) -> None:
    if _embedded and isinstance(target.engine, StepEngine):
        target.engine.foreign_threads = True  # threads of a C program can bring progress, and Python does not know them
    if stacks.wanted(target):
        _watch(target)
        return
    _functions[:] = [
        _late(index, target) if symbol.name.startswith("hipFile") else _function(symbol, target)
        for index, symbol in enumerate(_symbols)
    ]


def _watch(target: Machine) -> stacks.StackSlots:
    """From now on every call looks which slots on its thread's stack have died."""
    watcher = stacks.of(target) or stacks.StackSlots(target, _library)

    def watched(function: Function) -> Function:
        def call(*args: int) -> Any:
            watcher.check()
            return function(*args)

        return call

    _functions[:] = [watched(_function(symbol, target)) for symbol in _symbols]
    return watcher


def _with_slots(function: Function, target: Machine) -> Function:
    """An asynchronous call: the sanitizer, which may have come since `_install`, asks where its slots lie."""
    engine = target.engine

    def submit(*args: int) -> Any:
        if not engine.observers or not stacks.wanted(target):
            return function(*args)
        watcher = stacks.of(target) or _watch(target)
        stack = watcher.here()
        answer = function(*args)
        if not answer.err:
            watcher.submitted_with(stack, *args[2:6])
        return answer

    return submit


def thread_ended(low: int, high: int) -> None:
    """Called by the library at the end of a thread that has made calls: its stack is ``[low, high)``."""
    watcher = stacks.of(_machine) if _machine is not None else None
    if watcher is not None:
        watcher.ended(low, high)


def _late(index: int, target: Machine) -> Function:
    """A hipFile function, made by its first call: a program without file I/O does not load the driver."""

    def first(*args: int) -> Any:
        with SignalsHeld():  # modules may be imported
            function = _function(_symbols[index], target)
        with _lock:
            if _functions[index] is first:
                _functions[index] = function
        return function(*args)

    return first


def _function(symbol: Symbol, target: Machine) -> Function:
    """What C calls for `symbol`: by its own entry, by its arguments, or the model's method as it is."""
    name = symbol.name
    if name == "hipPeekAtLastError":  # asked by the core after each failure: no call of the client's
        thread = target.hip.thread
        return lambda: thread.last_error
    for custom in (marshal_hip.CUSTOM, marshal_hipfile.CUSTOM):
        if name in custom:
            return custom[name](target)
    base = name.removesuffix("_spt")
    if base != name:
        plain = next(other for other in _symbols if other.name == base)
        return marshal_hip.per_thread(base, _function(plain, target), target)
    if name in marshal_hip.DERIVED_OUTPUTS:
        method: Function | None = marshal_hip.DERIVED_OUTPUTS[name](target.hip)
    else:
        method = getattr(target.hipfile if name.startswith("hipFile") else target.hip, name, None)
    if method is None:
        return _not_modelled(name)
    if any(arg.role != "in" for arg in symbol.args):
        return _with_outputs(symbol, method, getattr(target.hip, symbol.undo) if symbol.undo else None)
    if name in ("hipFileReadAsync", "hipFileWriteAsync"):
        return _with_slots(method, target)
    return method


def _not_modelled(name: str) -> Function:
    said = False

    def refuse(*args: int) -> HipError:
        nonlocal said
        if not said:
            said = True
            print(f"hipfile-sim: {name} is not modelled: it returns hipErrorNotSupported.", file=sys.stderr)
        return _NOT_SUPPORTED

    return refuse


def _with_outputs(symbol: Symbol, method: Function, undo: Function | None) -> Function:
    """Call `method` with the inputs, store its values behind the ``out`` and ``opt`` pointers."""
    roles = [arg.role for arg in symbol.args]
    inputs = [i for i, role in enumerate(roles) if role == "in"]
    outputs = [(i, roles[i] == "opt", struct.Struct("=" + symbol.args[i].format).pack) for i in range(len(roles))
               if roles[i] != "in"]  # fmt: skip
    write = hostmem.write

    def call(*args: int) -> int:
        for i, optional, _ in outputs:
            if not args[i] and not optional:
                return _INVALID
        code, *values = method(*[args[i] for i in inputs])
        if code:
            return int(code)
        stored = False
        try:
            stored = all(
                not args[i] or write(args[i], pack(value)) for (i, _, pack), value in zip(outputs, values, strict=True)
            )
        finally:  # an interrupted call has failed for the caller, who cannot undo it
            if not stored and undo is not None:
                undo(*values)
        return 0 if stored else _INVALID

    return call


assert HipFileStatus._fields == ("err", "hip_drv_err"), "core.c reads a status by position"
assert IOResult._fields == ("count", "errno"), "core.c reads a count by position"
