"""What one installation of the double knows: its machine, the current streams, the memory of each device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from hipfile_mock.faces.torch.allocator import DeviceAllocator, Piece
from hipfile_mock.faces.torch.dlpack import storage_bytes, tensor_at
from hipfile_mock.faces.torch.pinned import HostAllocator
from hipfile_sim.engine.errors import DeadlockError
from hipfile_sim.hip.codes import HipError
from hipfile_sim.hip.commands import Kernel
from hipfile_sim.observe.observer import Call, call_site, current_thread

if TYPE_CHECKING:
    from hipfile_sim.engine.command import Access
    from hipfile_sim.hip.stream import Stream
    from hipfile_sim.machine import Machine

__all__ = ["POOL", "Session", "StreamState", "TracedKernel"]

POOL = 32
"""Streams of one priority on one device: the 33rd `torch.cuda.Stream` is the first one again."""

_PRIORITIES = (0, -1)  # what torch makes pools for on this hardware: normal and high

Ranges = Sequence[tuple[int, int]]


class StreamState:
    """A stream as torch knows it.

    Attributes
    ----------
    id : int
        What `torch.cuda.Stream.stream_id` says: 0 for the default stream.
    handle : int
        Of the emulated HIP stream; 0 for the null stream.
    device, priority : int
        Ordinal; 0 or -1.
    """

    __slots__ = ("device", "handle", "id", "priority")

    def __init__(self, id: int, handle: int, device: int, priority: int) -> None:
        self.id = id
        self.handle = handle
        self.device = device
        self.priority = priority


class TracedKernel(Kernel):
    """A kernel whose exact footprint is known only when it runs, because it depends on values: which rows, for one.

    Until then it declares all that it might touch.
    """

    __slots__ = ("touched",)

    def __init__(self, function: Callable[[], Any], reads: Ranges, writes: Ranges) -> None:
        super().__init__(function, reads, writes)
        self.touched: tuple[Access, ...] | None = None

    def accesses(self) -> Sequence[Access]:
        return super().accesses() if self.touched is None else self.touched

    def run(self) -> None:
        found = self.function()
        if found is not None:
            self.touched = found


class _Thread(threading.local):
    """Current streams of a thread, by device; nothing means the default stream."""

    def __init__(self) -> None:
        self.streams: dict[int, StreamState] = {}
        self.known = False


class Session:
    """One installation of the double over one machine.

    Parameters
    ----------
    machine : Machine
        Whose devices ``cuda:0``, ``cuda:1`` … are.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.hip = machine.hip
        self.engine = machine.engine
        self.memory = machine.memory
        self.alive = True
        self.count = self.hip.device_count
        self.allocators = [DeviceAllocator(self, device) for device in range(self.count)]
        self.host = HostAllocator(self)
        self.generators = tuple(torch.Generator().manual_seed(torch.initial_seed()) for _ in range(self.count))
        self.defaults = [StreamState(0, 0, device, 0) for device in range(self.count)]
        self._thread = _Thread()
        self._streams: dict[tuple[int, int], StreamState] = {}
        self._pools: dict[tuple[int, int], list[StreamState]] = {}
        self._next: dict[tuple[int, int], int] = {}
        self._events: dict[int, list[int]] = {}
        self.pieces: dict[int, Piece] = {}
        self._lock = threading.RLock()

    # -- calls of torch itself ---------------------------------------------------------------------------------------

    def check(self, code: int) -> None:
        """Raise what torch raises for a HIP error.

        Raises
        ------
        torch.AcceleratorError
            `code` is not hipSuccess.
        MachineClosedError
            The machine was closed while the double was in place.
        """
        if not code:
            return
        if code == HipError.hipErrorDeinitialized and self.engine.ended:
            raise self.engine.closed_error("torch's call")
        text = self.hip.hipGetErrorString(code)
        self.hip.hipGetLastError()
        error: Exception = torch.AcceleratorError(f"HIP error: {text}")
        error.error_code = int(code)  # type: ignore[attr-defined]
        raise error

    def own(self, name: str, *args: Any) -> Any:
        """A HIP call that torch makes on its own account: faults apply, but it is no call of the program."""
        hip = self.hip
        function = getattr(type(hip), name)
        if self.engine.ended:
            raise self.engine.closed_error(f"{name} of torch")
        if hip.interpose_hook is not None:
            code = hip.interpose_hook(name, args)
            if code is not None and code != HipError.hipSuccess:
                outputs = hip.CALLS[name].outputs
                return (HipError(code), *outputs) if outputs else HipError(code)
        try:
            with self.engine.lock:
                return function.__wrapped__(hip, *args)
        except DeadlockError as error:
            self._stuck(name, args, error)
            raise

    def _stuck(self, name: str, args: tuple[Any, ...], error: DeadlockError) -> None:
        """A program that hangs in such a call is told so as in one of its own."""
        engine, hip = self.engine, self.hip
        hip.call_count += 1
        given = dict(zip(hip.CALLS[name].parameters, args, strict=False))
        call = Call(hip.call_count, "hip", name, given, current_thread(), call_site(2), engine.clock.now)
        with engine.lock:
            for observer in engine.observers:
                observer.call(call)
            call.result, call.end_time = error, engine.clock.now
            for observer in engine.observers:
                observer.returned(call)

    # -- devices -----------------------------------------------------------------------------------------------------

    @property
    def device(self) -> int:
        """The calling thread's current device."""
        return self.hip.thread.device

    def switch(self, device: int) -> int:
        """Make `device` current without a call of the program; returns the one before."""
        thread = self.hip.thread
        before = thread.device
        if device != before and 0 <= device < self.count:
            thread.device = device
        return before

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """`device` is current inside."""
        before = self.switch(device)
        try:
            yield
        finally:
            self.switch(before)

    def index(self, device: torch.device | None) -> int:
        """Ordinal of a device; one without a number is the current one.

        Raises
        ------
        torch.AcceleratorError
            There is no such device.
        """
        index = device.index if device is not None else None
        if index is None:
            return self.device
        if not 0 <= index < self.count:
            self.check(HipError.hipErrorInvalidDevice)
        return int(index)

    # -- streams -----------------------------------------------------------------------------------------------------

    def current(self, device: int) -> StreamState:
        """The stream that this thread's work on `device` goes to."""
        thread = self._thread
        thread.known = True
        return thread.streams.get(device) or self.defaults[device]

    def select(self, stream: StreamState) -> None:
        """Make a stream current on its device, for this thread."""
        self._thread.known = True
        self._thread.streams[stream.device] = stream

    def pooled(self, device: int, priority: int) -> StreamState:
        """The next stream of the pool, made when it is first reached."""
        key = (device, max(min(priority, _PRIORITIES[0]), _PRIORITIES[-1]))
        with self._lock:
            pool = self._pools.setdefault(key, [])
            turn = self._next.get(key, 0)
            self._next[key] = (turn + 1) % POOL
            if turn < len(pool):
                return pool[turn]
            with self.on(device):
                code, handle = self.own("hipStreamCreateWithPriority", 1, key[1])
            self.check(code)
            stream = StreamState(1 + 2 * turn + (1 if key[1] else 0), handle, device, key[1])
            pool.append(stream)
            self._streams[device, stream.id] = stream
            return stream

    def external(self, handle: int, device: int) -> StreamState:
        """A stream that somebody else made."""
        if handle == 0:
            return self.defaults[device]
        with self._lock:
            known = next((s for s in self._streams.values() if s.handle == handle and s.device == device), None)
            if known is None:
                known = self._streams[device, handle] = StreamState(handle, handle, device, 0)
            return known

    def stream(self, id: int, device: int) -> StreamState:
        """The stream with this id.

        Raises
        ------
        RuntimeError
            There is none: it belongs to another installation of the double.
        """
        found = self.defaults[device] if id == 0 and 0 <= device < self.count else self._streams.get((device, id))
        if found is None:
            raise RuntimeError(
                f"cuda stream {id} of device {device} is not of this emulated machine: it was made under an earlier "
                "fake or on a real GPU; make streams inside the test"
            )
        return found

    def find_stream(self, stream: StreamState) -> Stream | None:
        """The emulated HIP stream."""
        return self.hip.null_stream(stream.device) if stream.handle == 0 else self.hip.lookup_stream(stream.handle)

    def synchronize(self, stream: StreamState) -> None:
        """Block until the stream is empty."""
        with self.on(stream.device):
            self.check(self.hip.hipStreamSynchronize(stream.handle))

    # -- events of torch's own ---------------------------------------------------------------------------------------

    @property
    def may_record(self) -> bool:
        """Whether this thread may put an event into a stream now: it is one of the program's, outside the engine.

        A storage can die anywhere, because the garbage collector runs anywhere.
        """
        engine = self.engine
        return self._thread.known and not engine.in_host_function and not engine.lock._is_owned()  # type: ignore[attr-defined]

    def record_event(self, stream: StreamState) -> int:
        """An event at this point of `stream`, or 0 when the stream is gone, or the machine."""
        if not self.alive or self.engine.ended or self.find_stream(stream) is None:
            return 0
        with self.on(stream.device):
            spare = self._events.setdefault(stream.device, [])
            if spare:
                event = spare.pop()
            else:
                code, event = self.own("hipEventCreateWithFlags", 2)
                self.check(code)
            self.check(self.own("hipEventRecord", event, stream.handle))
        return int(event)

    def event_passed(self, event: int) -> bool:
        """Whether the point has been reached. If so the host knows it from here on, as after a query."""
        if not self.alive or self.engine.ended:
            return True
        found = self.hip.events[event]
        if not found.done:
            return False
        marker = found.marker
        if marker is not None:
            self.hip.learnt([marker], "the allocator's query")
        return True

    def give_event(self, event: int) -> None:
        """Keep an event for the next time."""
        if self.alive:
            self._events[self.hip.events[event].device].append(event)

    def order(self, first: StreamState, then: StreamState) -> None:
        """What comes next in `then` waits for what is in `first`."""
        event = self.record_event(first)
        if event:
            with self.on(then.device):
                self.check(self.own("hipStreamWaitEvent", then.handle, event, 0))
            self.give_event(event)

    # -- work --------------------------------------------------------------------------------------------------------

    def launch(
        self,
        device: int,
        function: Callable[[], Any],
        reads: Ranges,
        writes: Ranges,
        name: str,
        *,
        traced: bool = False,
        stream: StreamState | None = None,
    ) -> StreamState:
        """Put a kernel into the current stream of `device`, or into `stream`; returns the stream.

        Parameters
        ----------
        function : callable
            Does the work on host aliases, when the stream gets there.
        reads, writes : sequence of (address, bytes)
            Device addresses.
        name : str
            Of the operation.
        traced : bool
            `function` returns what it has touched.
        """
        stream = stream or self.current(device)
        before = self.switch(device)
        try:
            if not traced:
                self.check(self.hip.launch(stream.handle, function, reads, writes, None, name))
                return stream
            found = self.find_stream(stream)
            if found is None:
                self.check(HipError.hipErrorInvalidHandle)
            else:
                command = TracedKernel(function, reads, writes)
                command.label = name
                with self.engine.lock:
                    self.engine.clock.advance(self.engine.costs.host_call)
                    self.check(self.hip.enqueue(found, command))
                self.engine.host_point("launch")
            return stream
        finally:
            self.switch(before)

    # -- memory ------------------------------------------------------------------------------------------------------

    def handed_out(self, base: int, size: int, stream: StreamState) -> None:
        """Tell observers that the allocator hands memory out, with whatever is in it, in the order of `stream`."""
        if self.engine.observers:
            found = self.find_stream(stream)
            if found is not None:
                what = f"a tensor's memory ({size} bytes of torch's cache on cuda:{stream.device})"
                self.machine.released(base, size, kind="recycled", what=what, lane=found.lane)

    def new_tensor(
        self,
        size: Sequence[int],
        stride: Sequence[int] | None,
        dtype: torch.dtype,
        device: int,
    ) -> torch.Tensor:
        """A tensor in device memory, not initialised."""
        nbytes = storage_bytes(size, stride, dtype.itemsize)
        if nbytes == 0:
            return tensor_at(0, size, stride, dtype, device, _nothing)
        allocator = self.allocators[device]
        piece = allocator.allocate(nbytes, self.current(device))
        base = piece.base
        self.pieces[base] = piece

        def release() -> None:
            self.pieces.pop(base, None)
            allocator.release(piece)

        return tensor_at(base, size, stride, dtype, device, release)

    def piece_of(self, tensor: torch.Tensor) -> Piece | None:
        """The allocator's record of a tensor's storage."""
        return self.pieces.get(tensor.untyped_storage().data_ptr())

    def alias_of(self, tensor: torch.Tensor) -> int:
        """Where host code finds the tensor's first element.

        Raises
        ------
        RuntimeError
            The tensor's memory is not of this machine.
        """
        address: int = tensor.data_ptr()
        arena = self.memory.arena_of(address)
        if arena is None:
            raise RuntimeError(
                f"the memory of this tensor on {tensor.device} ({address:#x}) is not of the emulated machine that is "
                "in use: the tensor outlived the fake that it was made under"
            )
        return address + arena.offset

    def close(self) -> None:
        """The double is taken away. Tensors that live on keep their metadata; what they do fails."""
        self.alive = False


def _nothing() -> None:
    pass
