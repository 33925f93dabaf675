"""Streams as hipFile sees them: registered ones, and the temporary object of an operation on any other stream.

Source of the rules: code of the releases and their tests.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from hipfile_sim.driver.buffers import Refused
from hipfile_sim.driver.codes import OpError
from hipfile_sim.engine.errors import DeadlockError
from hipfile_sim.hip.codes import HipError

if TYPE_CHECKING:
    from hipfile_sim.driver.driver import Driver

CAN_USE_STREAM_WAIT_VALUE = 10013
"""``hipDeviceAttributeCanUseStreamWaitValue``."""


class Bounce:
    """Pinned host memory that the bytes of asynchronous fallback operations pass through.

    Parameters
    ----------
    driver : Driver
    pointer : int
        Host address.
    size : int
        Bytes.
    """

    __slots__ = ("_driver", "_view", "pointer", "size")

    def __init__(self, driver: Driver, pointer: int, size: int) -> None:
        self._driver = driver
        self._view: memoryview | None = None
        self.pointer = pointer
        self.size = size

    @property
    def view(self) -> memoryview:
        """The memory, writable. Made when first needed: operations that wait hold no view."""
        view = self._view
        if view is None:
            view = self._view = self._driver.memory.view(self.pointer, self.size)
        return view


class IOStream:
    """hipFile's object for one HIP stream.

    Attributes
    ----------
    handle : int
        The HIP stream, as the caller gave it.
    device : int
        Ordinal, as HIP said when the object was made. [stream.device]
    flags : int
        What the caller promised; 0 for a temporary object. [stream.unregistered.flags]
    registered : bool
        False for a temporary object, and after deregistration.
    bounce : Bounce or None
        Pinned memory that the operations on this object share, where the release has it. [stream.memory]
    users : set
        Operations in flight; they keep the object, and its memory, alive. [stream.deregister.in-flight]
    """

    __slots__ = ("_mutex", "bounce", "device", "flags", "handle", "registered", "users")

    def __init__(self, handle: int, device: int, flags: int, bounce: Bounce | None) -> None:
        self.handle = handle
        self.device = device
        self.flags = flags
        self.bounce = bounce
        self.registered = False
        self.users: set[object] = set()
        self._mutex = threading.Lock()

    def __repr__(self) -> str:
        kind = "registered" if self.registered else "temporary"
        return f"<{kind} stream {self.handle:#x} on device {self.device}, flags {self.flags:#x}>"

    def enter(self, driver: Driver) -> None:
        """Take the mutex under which all commands of one operation are put on the stream. [order.one-op-at-a-time]

        Raises
        ------
        DeadlockError
            Whoever holds it makes no progress: it waits for something that waits for this thread.
        """
        if self._mutex.acquire(blocking=False):
            return
        engine = driver.engine
        while True:
            progress = sum(lane.completed for lane in list(engine.lanes.values()))
            if self._mutex.acquire(timeout=engine.watchdog_s):
                return
            if progress == sum(lane.completed for lane in list(engine.lanes.values())):
                raise DeadlockError(
                    f"submitting to stream {self.handle:#x}",
                    "another thread holds the stream's mutex while its own submission waits for room in the queue",
                )

    def leave(self) -> None:
        """Let the next operation in."""
        self._mutex.release()


def make_stream(driver: Driver, handle: int, flags: int) -> IOStream:
    """The object for `handle`, with the pinned memory that the release gives it.

    Raises
    ------
    Refused
        5011 with the HIP code where HIP does not know the stream, or has no pinned memory left; 5030 where it hands out
        NULL.
    """
    runtime = driver.runtime
    code, device = runtime.hipStreamGetDevice(handle)
    if code != HipError.hipSuccess:  # [stream.register.device-error]
        raise Refused(OpError.hipFileHipDriverError, code)
    if driver.profile.async_bounce != "per-stream":  # [stream.memory]
        return IOStream(handle, device, flags, None)
    size = driver.environment.async_buffer_size  # [env.async-buffer.latched]
    code, _ = runtime.hipDeviceGetAttribute(CAN_USE_STREAM_WAIT_VALUE, device)
    if code != HipError.hipSuccess:
        raise Refused(OpError.hipFileHipDriverError, code)
    code, pointer = runtime.hipHostMalloc(size, 0)
    if code != HipError.hipSuccess:  # [stream.memory.exhausted]
        raise Refused(OpError.hipFileHipDriverError, code)
    if pointer == 0:  # [stream.memory.null]
        raise Refused(OpError.hipFileInternalError)
    code, _ = runtime.hipHostGetDevicePointer(pointer, 0)
    if code != HipError.hipSuccess:
        driver.release_pinned(pointer)
        raise Refused(OpError.hipFileHipDriverError, code)
    driver.memory.internal.add(pointer)
    return IOStream(handle, device, flags, Bounce(driver, pointer, size))


class StreamTable:
    """Registered streams by handle. They survive the driver being closed. [life.close.streams-survive]

    Parameters
    ----------
    driver : Driver
    lock : lock
        The driver's; never held while HIP is called.
    """

    __slots__ = ("_driver", "_lock", "entries")

    def __init__(self, driver: Driver, lock: AbstractContextManager[object]) -> None:
        self._driver = driver
        self._lock = lock
        self.entries: dict[int, IOStream] = {}

    def register(self, handle: int, flags: int) -> None:
        """Register `handle`; the null stream and the per-thread one are accepted. [stream.null]

        Raises
        ------
        Refused
            5022 for a duplicate, found first, and for unknown flags, found before HIP is asked; else what `make_stream`
            raises.
        """
        if handle in self.entries:  # [stream.register.duplicate]
            raise Refused(OpError.hipFileInvalidValue)
        mask = self._driver.profile.stream_flags_mask
        if mask is not None and flags & ~mask:  # [stream.register.flags]
            raise Refused(OpError.hipFileInvalidValue)
        stream = make_stream(self._driver, handle, flags)
        stream.registered = True
        with self._lock:
            kept = self.entries.setdefault(handle, stream)
        if kept is not stream:
            stream.registered = False
            self._driver.monitor.release_stream(stream, synchronous=True)
            raise Refused(OpError.hipFileInvalidValue)

    def deregister(self, handle: int) -> None:
        """Forget `handle`. Operations in flight keep the object. [stream.deregister.in-flight]

        Raises
        ------
        Refused
            5022 for a stream that is not registered. [stream.deregister.unknown]
        """
        with self._lock:
            stream = self.entries.pop(handle, None)
            if stream is None:
                raise Refused(OpError.hipFileInvalidValue)
            stream.registered = False
            idle = not stream.users
        if idle:
            self._driver.monitor.release_stream(stream, synchronous=True)
