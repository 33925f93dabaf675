"""Streams, host functions, values in memory, kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hipfile_sim.hip.base import RuntimeBase
from hipfile_sim.hip.call import hip_call
from hipfile_sim.hip.codes import HipError, WaitValueFlag
from hipfile_sim.hip.commands import HostFunction, Kernel, WaitValue, WriteValue

_OK = HipError.hipSuccess
_INVALID = HipError.hipErrorInvalidValue
_BAD_STREAM = HipError.hipErrorInvalidHandle


class StreamCalls(RuntimeBase):
    """Streams and what is put into them. Unknown or destroyed handles: hipErrorInvalidHandle."""

    @hip_call(outputs=(0,))
    def hipStreamCreate(self) -> tuple[HipError, int]:
        """A blocking stream on the current device."""
        return self._create(0, 0)

    @hip_call(outputs=(0,))
    def hipStreamCreateWithFlags(self, flags: int) -> tuple[HipError, int]:
        """A stream; flag 1 makes it non-blocking. Other flags: hipErrorInvalidValue."""
        return self._create(flags, 0)

    @hip_call(outputs=(0,))
    def hipStreamCreateWithPriority(self, flags: int, priority: int) -> tuple[HipError, int]:
        """A stream with a priority, clamped to the range 1 (least) to -1."""
        return self._create(flags, max(-1, min(1, priority)))

    def _create(self, flags: int, priority: int) -> tuple[HipError, int]:
        if flags not in (0, 1):
            return _INVALID, 0
        if not self.device_count:
            return HipError.hipErrorNoDevice, 0
        handle = self.memory.new_handle()
        self.streams[handle] = self._make_stream(handle, self.thread.device, flags, priority)
        return _OK, handle

    @hip_call()
    def hipStreamDestroy(self, stream: int) -> HipError:
        """Give the handle up. Returns at once; work that is pending completes [hip.stream.destroy-pending]."""
        found = self.streams.pop(stream, None)
        if found is None:
            return _BAD_STREAM
        self._retire_stream(found)
        return _OK

    @hip_call(observes=True)
    def hipStreamSynchronize(self, stream: int) -> HipError:
        """Wait for everything submitted to the stream; the null stream's work includes what it is ordered behind."""
        found = self.lookup_stream(stream)
        if found is None:
            return _BAD_STREAM
        targets = [found.lane.tail]
        if found.is_null:
            targets += [other.lane.tail for other in self._blocking[found.device].values()]
        self.wait(targets, "hipStreamSynchronize")
        return _OK

    @hip_call(observes=True)
    def hipStreamQuery(self, stream: int) -> HipError:
        """hipSuccess when all of it is complete, hipErrorNotReady while anything queues or still runs."""
        found = self.lookup_stream(stream)
        if found is None:
            return _BAD_STREAM
        lanes = [found.lane]
        if found.is_null:
            lanes += [other.lane for other in self._blocking[found.device].values()]
        self.asks([lane.tail for lane in lanes], "hipStreamQuery")
        if not all(lane.idle for lane in lanes):
            return HipError.hipErrorNotReady
        self.learnt([lane.tail for lane in lanes], "hipStreamQuery")
        return _OK

    @hip_call(outputs=(0,))
    def hipStreamGetFlags(self, stream: int) -> tuple[HipError, int]:
        """The flags it was created with."""
        found = self.lookup_stream(stream)
        return (_BAD_STREAM, 0) if found is None else (_OK, found.flags)

    @hip_call(outputs=(0,))
    def hipStreamGetPriority(self, stream: int) -> tuple[HipError, int]:
        """Its priority; 0 for the default streams."""
        found = self.lookup_stream(stream)
        return (_BAD_STREAM, 0) if found is None else (_OK, found.priority)

    @hip_call(outputs=(0,))
    def hipStreamGetDevice(self, stream: int) -> tuple[HipError, int]:
        """Ordinal of its device; for the null stream, the current one."""
        found = self.lookup_stream(stream)
        return (_BAD_STREAM, 0) if found is None else (_OK, found.device)

    # -- host functions ----------------------------------------------------------------------------------------------

    @hip_call()
    def hipLaunchHostFunc(self, stream: int, function: Callable[[Any], Any] | None, user_data: Any = None) -> HipError:
        """Call ``function(user_data)`` when the stream gets there; the stream stands still until it returns.

        A NULL function is hipErrorInvalidValue. An exception that leaves the function is fatal for the machine.
        """
        return self._host(stream, function, (user_data,))

    @hip_call()
    def hipStreamAddCallback(
        self, stream: int, function: Callable[[int, int, Any], Any] | None, user_data: Any = None, flags: int = 0
    ) -> HipError:
        """As hipLaunchHostFunc, calling ``function(stream, status, user_data)``. Flags must be 0."""
        if flags:
            return _INVALID
        return self._host(stream, function, (stream, 0, user_data))

    def _host(self, stream: int, function: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> HipError:
        found = self.lookup_stream(stream)
        if found is None:
            return _BAD_STREAM
        if function is None or not callable(function):
            return _INVALID
        return self.enqueue(found, HostFunction(function, arguments))

    # -- values in memory --------------------------------------------------------------------------------------------

    @hip_call()
    def hipStreamWriteValue32(self, stream: int, pointer: int, value: int, flags: int = 0) -> HipError:
        """Store 4 bytes when the stream gets there."""
        return self._write_value(stream, pointer, value, flags, 4)

    @hip_call()
    def hipStreamWriteValue64(self, stream: int, pointer: int, value: int, flags: int = 0) -> HipError:
        """Store 8 bytes when the stream gets there."""
        return self._write_value(stream, pointer, value, flags, 8)

    def _write_value(self, stream: int, pointer: int, value: int, flags: int, width: int) -> HipError:
        found = self.lookup_stream(stream)
        if found is None:
            return _BAD_STREAM
        if flags or not self._value_ok(pointer, width):
            return _INVALID
        return self.enqueue(found, WriteValue(self.memory, pointer, value, width))

    @hip_call()
    def hipStreamWaitValue32(
        self, stream: int, pointer: int, value: int, flags: int = 0, mask: int = 0xFFFFFFFF
    ) -> HipError:
        """Hold the stream until 4 bytes compare (0 >=, 1 ==, 2 and, 3 nor)."""
        return self._wait_value(stream, pointer, value, flags, mask, 4)

    @hip_call()
    def hipStreamWaitValue64(
        self, stream: int, pointer: int, value: int, flags: int = 0, mask: int = 0xFFFFFFFFFFFFFFFF
    ) -> HipError:
        """Hold the stream until 8 bytes compare (0 >=, 1 ==, 2 and, 3 nor)."""
        return self._wait_value(stream, pointer, value, flags, mask, 8)

    def _wait_value(self, stream: int, pointer: int, value: int, flags: int, mask: int, width: int) -> HipError:
        found = self.lookup_stream(stream)
        if found is None:
            return _BAD_STREAM
        if flags not in WaitValueFlag._value2member_map_ or not self._value_ok(pointer, width):
            return _INVALID
        return self.enqueue(found, WaitValue(self.memory, pointer, value, flags, mask, width))

    def _value_ok(self, pointer: int, width: int) -> bool:
        block = self.memory.find(pointer)
        return pointer % width == 0 and block is not None and pointer + width <= block.end

    # -- kernels -----------------------------------------------------------------------------------------------------

    @hip_call()
    def launch(
        self,
        stream: int,
        function: Callable[[], Any],
        reads: Sequence[tuple[int, int]] = (),
        writes: Sequence[tuple[int, int]] = (),
        cost_ns: int | None = None,
        name: str | None = None,
    ) -> HipError:
        """Launch a kernel: a Python callable that says what it touches.

        Parameters
        ----------
        stream : int
            Handle.
        function : callable
            Called without arguments when the stream gets there. Use ``memory.view`` in it to reach device memory.
        reads, writes : sequence of (pointer, bytes)
            Ranges inside allocations. They feed the timeline, the sanitizer and the explorer.
        cost_ns : int, optional
            Virtual ns that it takes.
        name : str, optional
            For people.

        Returns
        -------
        HipError
            hipErrorInvalidValue when a range is not inside one allocation, or `function` cannot be called.
        """
        found = self.lookup_stream(stream)
        if found is None:
            return _BAD_STREAM
        if not callable(function):
            return _INVALID
        for pointer, length in (*reads, *writes):
            block = self.memory.find(pointer)
            if length < 0 or (length and (block is None or pointer + length > block.end)):
                return _INVALID
        command = Kernel(function, reads, writes)
        command.label = name or getattr(function, "__name__", None)
        command.cost_ns = cost_ns
        return self.enqueue(found, command)
