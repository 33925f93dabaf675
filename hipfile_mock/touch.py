"""Host code that touches device memory: reported like any other mistake, instead of a crash without a word.

Emulated device memory is inaccessible at the addresses that programs see. A load or store there is a SIGSEGV, whose
handler tells the observers of the machine (the sanitizer says ``device.pointer-as-host``, with the line), opens the
pages of that block and lets the instruction go on. So each block is reported once. Any other fault goes to whoever
handled it before. Linux only, as the model itself.
"""

from __future__ import annotations

import ctypes
import platform
import posix  # not os: a test double of os must not get these words
import signal
import weakref
from collections.abc import Callable
from typing import Any

from hipfile_sim.engine.command import MEM, Access
from hipfile_sim.observe.observer import HostAccess, call_site, current_thread

__all__ = ["watch"]

_PAGE = 4096
_READ_WRITE = 3
_SIGINFO, _NODEFER = 0x4, 0x40000000
_ADDRESS_AT = 16
"""Where a ``siginfo_t`` has the address, on 64 bits."""
_ERROR_AT = 192
"""Where a ``ucontext_t`` of x86-64 has the error code of the fault; its second bit is a write."""
_X86 = platform.machine() in ("x86_64", "AMD64")


class _Action(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_libc = ctypes.CDLL(None, use_errno=True)
_sigaction = _libc.sigaction
_sigaction.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_mprotect = _libc.mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

_machines: list[weakref.ref[Any]] = []
_before = _Action()


def _on_fault(number: int, info: int, context: int) -> None:
    """On the stack of the thread that faulted. To return is to try the instruction again."""
    try:
        address = ctypes.c_uint64.from_address(info + _ADDRESS_AT).value
        write = _X86 and bool(ctypes.c_uint64.from_address(context + _ERROR_AT).value & 2)
        machines = [machine for machine in (entry() for entry in _machines) if machine is not None]
        if any(_reported(machine, address, write) for machine in machines):
            return
    except BaseException as error:  # nothing may leave a signal handler
        posix.write(2, f"hipfile-sim: {error!r} while a touch of device memory was looked at\n".encode())
    _sigaction(signal.SIGSEGV, ctypes.byref(_before), None)  # not ours: it faults again, before the old handler


def _reported(machine: Any, address: int, write: bool) -> bool:
    """Whether `address` is live device memory of `machine`, which the host may touch from now on."""
    memory = machine.memory
    if not memory.is_device_address(address):
        return False
    site = call_site(3)
    block = memory.find(address)
    if block is None:
        old = memory.find_freed(address)
        what = f"device block {old.id}, which was freed" if old is not None else "device memory that is not allocated"
        posix.write(2, f"hipfile-sim: host code touched {address:#x} at {site}: {what}\n".encode())
        return False
    access = HostAccess(Access(MEM, address, 1, write), current_thread(), site, "load or store")
    engine = machine.engine
    with engine.lock:
        for observer in engine.observers:
            observer.host_access(access)
    start = block.base // _PAGE * _PAGE
    end = (block.base + block.size + _PAGE - 1) // _PAGE * _PAGE
    return bool(_mprotect(start, end - start, _READ_WRITE) == 0)


_handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_on_fault)
_ours = ctypes.cast(_handler, ctypes.c_void_p).value


def watch(machine: Any) -> Callable[[], None]:
    """Report touches of the device memory of `machine` until the function that is returned is called."""
    if not _machines:
        action = _Action(_ours, (ctypes.c_ubyte * 128)(), _SIGINFO | _NODEFER, None)
        _sigaction(signal.SIGSEGV, ctypes.byref(action), ctypes.byref(_before))
    entry = weakref.ref(machine)
    _machines.append(entry)

    def undo() -> None:
        _machines.remove(entry)
        if not _machines:
            now = _Action()
            _sigaction(signal.SIGSEGV, None, ctypes.byref(now))
            if now.handler == _ours:  # else somebody else has come since, and stays
                _sigaction(signal.SIGSEGV, ctypes.byref(_before), None)

    return undo
