"""The machine that the drop-in packages talk to.

The model itself has no global state. The doubles must have one, because `hipfile.Driver()` names no machine. It is a
stack, kept here and nowhere else:

- the machine pushed last is current, for every thread of the process (connectors start threads of their own, and these
  must see the machine of the test that started them);
- machines are popped in the reverse order, by naming the machine, so that a forgotten pop is noticed where it happens;
- while one is current, only the thread that pushed it may push another: two tests that ran side by side in one process
  would each see the other's machine half of the time. An empty stack is open to every thread.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing import TypeAlias

    Host: TypeAlias = Any
    """A `hipfile_sim.machine.Machine`, or what a stub offers in its place: ``.hipfile``, ``.hip``, ``.engine``."""

__all__ = [
    "CurrentMachineError",
    "NoMachineError",
    "check_owner",
    "depth",
    "get",
    "gone",
    "peek",
    "pop",
    "push",
    "reference",
    "refers",
    "why_not_registered",
]


class CurrentMachineError(RuntimeError):
    """The stack of current machines was used against its rules."""


class NoMachineError(RuntimeError):
    """A double was called while no machine is current."""


class _Entry(NamedTuple):
    machine: Host
    thread: int
    thread_name: str
    pid: int


_stack: list[_Entry] = []
_last = ""
"""Which machine was current last, and where it ended, for messages."""
_lock = threading.Lock()


def push(machine: Host) -> None:
    """Make `machine` the current one.

    Parameters
    ----------
    machine : Machine
        Any object with the attributes ``hip`` and ``hipfile``.

    Raises
    ------
    CurrentMachineError
        Another thread has a machine in use, or this machine is on the stack already.
    """
    me = threading.current_thread()
    with _lock:
        if _stack:
            top = _stack[-1]
            if top.thread != me.ident and top.pid == os.getpid():
                raise CurrentMachineError(
                    f"thread {me.name!r} cannot make {machine!r} current: thread {top.thread_name!r} has"
                    f" {top.machine!r} in use. The doubles have one current machine a process; run the tests one after"
                    " the other, or in processes of their own."
                )
            if any(entry.machine is machine for entry in _stack):
                raise CurrentMachineError(f"{machine!r} is on the stack of current machines already; make a fresh one.")
        _stack.append(_Entry(machine, me.ident or 0, me.name, os.getpid()))


def pop(machine: Host) -> None:
    """Take `machine` off the stack; it must be the current one.

    Raises
    ------
    CurrentMachineError
        It is not the machine that was pushed last. It is taken off all the same: nothing stays behind.
    """
    global _last
    from hipfile_sim.observe.observer import call_site

    with _lock:
        index = next((i for i, entry in enumerate(_stack) if entry.machine is machine), None)
        if index is None:
            raise CurrentMachineError(f"{machine!r} cannot be popped: it is not on the stack of current machines.")
        _last = f"{machine!r}, was current until {call_site(2) or 'the end of its block'}"
        del _stack[index]
        if index < len(_stack):
            raise CurrentMachineError(
                f"{machine!r} was popped while {_stack[-1].machine!r}, pushed later, is still in use: fakes must be"
                " left in the reverse order of entry. (Two coroutines that each enter one cannot run at the same time.)"
            )


def peek() -> Host | None:
    """The current machine, or None."""
    try:
        return _stack[-1].machine
    except IndexError:
        return None


def depth() -> int:
    """How many machines are on the stack."""
    return len(_stack)


def get(what: str = "the double") -> Host:
    """The current machine.

    Parameters
    ----------
    what : str
        The function that was called, for the message.

    Raises
    ------
    NoMachineError
        No machine is current, or the one that is has been closed.

    Examples
    --------
    >>> get("hipfile.Driver.open")
    Traceback (most recent call last):
        ...
    hipfile_mock.current.NoMachineError: hipfile.Driver.open was called, but no emulated machine is current. ...
    """
    try:
        machine = _stack[-1].machine
    except IndexError:
        before = f" (The last one, {_last}.)" if _last else ""
        raise NoMachineError(
            f"{what} was called, but no emulated machine is current.{before} Run the code inside `with"
            " hipfile_mock.fake():`, with the fixture `hipfile_fake`, after `hipfile_mock.install()`, or under"
            " `hipfile-sim run`."
        ) from None
    if getattr(getattr(machine, "engine", None), "ended", False):
        raise NoMachineError(f"{what} was called, but {machine!r} cannot answer any more.")
    return machine


def reference() -> weakref.ref[Host] | None:
    """A weak reference to the current machine: what an object remembers of the machine that it belongs to."""
    machine = peek()
    return None if machine is None else weakref.ref(machine)


def refers(ref: weakref.ref[Host] | None) -> bool:
    """Whether `ref`, made by `reference`, means the machine that is current now."""
    return ref is not None and (machine := ref()) is not None and machine is peek()


def check_owner(ref: weakref.ref[Host] | None, what: str) -> None:
    """Raise unless `ref`, made by `reference`, means the current machine: what `what` holds means nothing on another.

    Raises
    ------
    NoMachineError
        The machine of `what` has ended.
    CurrentMachineError
        It is another one.
    """
    if refers(ref):
        return
    machine = ref() if ref is not None else None
    if gone(ref):
        ended = "a machine that is gone" if machine is None else f"{machine!r}, which has ended"
        raise NoMachineError(f"{what} belongs to {ended}; make a new one on the machine that is current now.")
    raise CurrentMachineError(f"{what} belongs to {machine!r}; the current machine is {peek()!r}.")


def gone(ref: weakref.ref[Host] | None) -> bool:
    """Whether the machine that `ref` means has ended, and with it all that was registered there."""
    if ref is None:
        return False
    machine = ref()
    return machine is None or bool(machine.engine.closed)


def why_not_registered() -> str:
    """Why the operating system made the last registration of a file fail; empty if it did not, or nobody knows."""
    state = getattr(getattr(peek(), "hipfile", None), "state", None)
    return str(getattr(getattr(state, "files", None), "why", ""))


def host_os() -> Any:
    """The module ``os`` by which a double opens files: a stub's, pyfakefs' while that is in place, or the real one.

    Asked for at each use: a module that is loaded while pyfakefs is in place would keep its ``os`` for good.
    """
    return getattr(peek(), "os", None) or sys.modules["os"]


def host_close(module: Any, fd: int) -> None:
    """Close a descriptor by the ``os`` that opened it, even where that was pyfakefs' and is gone since."""
    if type(module).__module__.startswith("pyfakefs"):
        module.filesystem.get_open_file(fd).close_fd(fd)
    else:
        module.close(fd)
