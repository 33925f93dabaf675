"""What the examples need of the HIP runtime, over HIP-Python: AMD's own bindings, or their double under hipfile-sim."""

from __future__ import annotations

import ctypes

try:
    from hip import hip
except ImportError:  # the namespace of newer wheels
    from rocm.bindings import hip

H2D = hip.hipMemcpyKind.hipMemcpyHostToDevice
D2H = hip.hipMemcpyKind.hipMemcpyDeviceToHost
D2D = hip.hipMemcpyKind.hipMemcpyDeviceToDevice


def call(result):
    """Unpack a result of HIP-Python: raise on an error code, else return the value, the values, or None."""
    error, *values = result
    if error != hip.hipError_t.hipSuccess:
        raise RuntimeError(f"HIP call failed: {error!r}")
    return values[0] if len(values) == 1 else tuple(values) or None


class DeviceMemory:
    """Device memory, freed at the end of its ``with`` block."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.handle = call(hip.hipMalloc(nbytes))
        self.ptr = int(self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        call(hip.hipFree(self.handle))


class PinnedMemory:
    """Pinned host memory: copies to and from it do not hold up the host."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.handle = call(hip.hipHostMalloc(nbytes, 0))
        self.ptr = int(self.handle)
        self.view = memoryview((ctypes.c_ubyte * nbytes).from_address(self.ptr)).cast("B")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.view.release()
        call(hip.hipHostFree(self.handle))


class Stream:
    """A stream that does not wait for the null stream."""

    NON_BLOCKING = 1

    def __init__(self) -> None:
        self.handle = call(hip.hipStreamCreateWithFlags(self.NON_BLOCKING))

    def __int__(self) -> int:
        return int(self.handle)

    def copy(self, dst: int, src: int, nbytes: int, kind) -> None:
        call(hip.hipMemcpyAsync(dst, src, nbytes, kind, self.handle))

    def fill(self, dst: int, value: int, nbytes: int) -> None:
        call(hip.hipMemsetAsync(dst, value, nbytes, self.handle))

    def record(self) -> Event:
        event = Event()
        call(hip.hipEventRecord(event.handle, self.handle))
        return event

    def wait(self, event: Event) -> None:
        """What is submitted from now on runs after `event`; the host does not wait."""
        call(hip.hipStreamWaitEvent(self.handle, event.handle, 0))

    def host_function(self, function) -> None:
        """Run ``function()`` on the host when the stream gets there; the stream waits for it."""
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: function())
        self._callbacks = [*getattr(self, "_callbacks", ()), callback]  # alive until the stream is
        call(hip.hipLaunchHostFunc(self.handle, ctypes.cast(callback, ctypes.c_void_p), None))

    def synchronize(self) -> None:
        call(hip.hipStreamSynchronize(self.handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.synchronize()
        call(hip.hipStreamDestroy(self.handle))


class Event:
    """A mark in a stream. Destroyed with the object."""

    def __init__(self) -> None:
        self.handle = call(hip.hipEventCreate())

    def synchronize(self) -> None:
        call(hip.hipEventSynchronize(self.handle))

    def ms_since(self, start: Event) -> float:
        """Milliseconds on the device between two events that have happened."""
        return call(hip.hipEventElapsedTime(start.handle, self.handle))

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)
        if handle is not None:
            hip.hipEventDestroy(handle)
