"""State of the runtime and what its calls share."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hipfile_sim.engine.base import Engine
from hipfile_sim.engine.command import MEM, Access, Command, Marker
from hipfile_sim.engine.errors import closed_at
from hipfile_sim.hip import hostmem
from hipfile_sim.hip.call import CALLS, CallInfo, Ending
from hipfile_sim.hip.codes import LEGACY_STREAM, PER_THREAD_STREAM, HipError
from hipfile_sim.hip.memory import Block, Memory
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.hip.stream import Event, Stream
from hipfile_sim.observe.observer import Note, Site, Wait, call_site, current_thread

Interpose = Callable[[str, Sequence[Any]], "int | None"]


class ThreadState(threading.local):
    """What HIP keeps for each host thread: it starts at device 0 without an error."""

    def __init__(self) -> None:
        self.device = 0
        self.last_error = HipError.hipSuccess
        self.streams: dict[int, Stream] = {}
        self.owner = _ThreadStreams()


class _ThreadStreams:
    """Lets a thread's default streams go when the thread ends."""


_runtimes: weakref.WeakSet[RuntimeBase] = weakref.WeakSet()


def _after_fork() -> None:
    for runtime in list(_runtimes):
        runtime.refusal = HipError.hipErrorNotInitialized
        runtime.engine.after_fork()


os.register_at_fork(after_in_child=_after_fork)


class RuntimeBase(Ending):
    """Devices, streams and events of one machine.

    Parameters
    ----------
    engine : Engine
        Runs the commands.
    devices : int
        How many; 0 gives hipErrorNoDevice everywhere.
    settings : HipSettings
        See there.

    Attributes
    ----------
    refusal : HipError or None
        What every call answers from now on: hipErrorNotInitialized in a forked child, hipErrorDeinitialized ("driver
        shutting down", what the CUDA runtime gives to calls during its own end) once the machine is closed.
    """

    CALLS: ClassVar[dict[str, CallInfo]] = CALLS

    def __init__(self, engine: Engine, devices: int, settings: HipSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.device_count = devices
        self.memory = Memory(devices, settings)
        self.hostmem = hostmem
        self.thread = ThreadState()
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, Event] = {}
        self.interpose_hook: Interpose | None = None
        self.refusal: HipError | None = None
        self.call_count = 0
        self._signals: set[int] = set()  # bases of signal memory
        self._null: list[Stream | None] = [None] * devices
        self._blocking: list[dict[int, Stream]] = [{} for _ in range(devices)]
        self._stream_count = 0
        self._zombies: list[Stream] = []
        _runtimes.add(self)

    # -- hooks -------------------------------------------------------------------------------------------------------

    @property
    def interpose(self) -> Interpose | None:
        """Asked at each call: a code other than None or hipSuccess is returned instead of making it."""
        return self.interpose_hook

    @interpose.setter
    def interpose(self, hook: Interpose | None) -> None:
        self.interpose_hook = hook

    def tell(self, id: str, message: str, *, severity: str = "note", **objects: Any) -> None:
        """Send a `Note` to the observers."""
        observers = self.engine.observers
        if observers:
            note = Note(id, message, call_site(2), objects, severity)
            with self.engine.lock:
                for observer in observers:
                    observer.note(note)

    def learnt(self, targets: Sequence[Marker], what: str) -> None:
        """Tell the observers that the calling thread now knows `targets` to be complete."""
        observers = self.engine.observers
        if observers:
            wait = Wait(current_thread(), targets, what, call_site(2))
            with self.engine.lock:
                for observer in observers:
                    observer.waited(wait)

    def site(self) -> Site | None:
        """The caller's place, taken only when somebody observes."""
        return call_site(2) if self.engine.observers else None

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The machine is closed: calls are refused, and memory is not to be looked at."""
        self.refusal = self.refusal or HipError.hipErrorDeinitialized
        self.memory.close(self.engine.closed_at)

    def say_closed(self, name: str) -> None:
        """Tell whoever still observes that a call came too late."""
        where = closed_at(self.engine.closed_at)
        self.tell("machine.closed", f"{name} after the machine was closed{where}: refused, nothing is done")

    # -- streams -----------------------------------------------------------------------------------------------------

    def lookup_stream(self, handle: int) -> Stream | None:
        """The stream behind a handle, special handles included; None when there is none."""
        stream = self.streams.get(handle)
        if stream is not None:
            return stream
        if not self.device_count:
            return None
        if handle in (0, LEGACY_STREAM):
            return self.null_stream(self.thread.device)
        if handle == PER_THREAD_STREAM:
            return self._thread_stream(self.thread.device)
        return None

    def null_stream(self, device: int) -> Stream:
        """The legacy default stream of `device`."""
        stream = self._null[device]
        if stream is None:
            lane = self.engine.add_lane(f"null stream of device {device}", device)
            stream = self._null[device] = Stream(0, lane, device, 0, 0, is_null=True)
        return stream

    def _thread_stream(self, device: int) -> Stream:
        streams = self.thread.streams
        stream = streams.get(device)
        if stream is None:
            name = f"default stream of {threading.current_thread().name} on device {device}"
            stream = streams[device] = self._make_stream(PER_THREAD_STREAM, device, 0, 0, name)
            weakref.finalize(self.thread.owner, self._retire_stream, stream)
        return stream

    def _make_stream(self, handle: int, device: int, flags: int, priority: int, name: str | None = None) -> Stream:
        self._stream_count += 1
        lane = self.engine.add_lane(name or f"stream {self._stream_count}", device)
        stream = Stream(handle, lane, device, flags, priority)
        if stream.blocking:
            self._blocking[device][lane.index] = stream
        return stream

    def _retire_stream(self, stream: Stream) -> None:
        """No handle leads to it any more; what is in it still runs."""
        with self.engine.lock:
            self._zombies.append(stream)
            for zombie in list(self._zombies):
                if zombie.lane.idle:
                    self._zombies.remove(zombie)
                    self._blocking[zombie.device].pop(zombie.lane.index, None)
                    self.engine.retire(zombie.lane)

    def enqueue(self, stream: Stream, command: Command, deps: tuple[Marker, ...] = ()) -> HipError:
        """Put a command into a stream, with the null stream's implicit order and the queue limit."""
        engine = self.engine
        lane = stream.lane
        limit = self.settings.queue_limit
        if limit is not None and lane.submitted - lane.completed >= limit:
            engine.wait(
                [(lane, lane.submitted - limit + 1)], f"submit to {lane.name}, whose queue holds {limit} commands"
            )
        if engine.observers and command.site is None:
            command.site = call_site(2)
        engine.submit(lane, command, self._implicit_order(stream, deps))
        return HipError.hipSuccess

    def enqueue_all(self, stream: Stream, commands: Sequence[Command]) -> None:
        """Put `commands` into a stream with nothing between them, as `enqueue` does for one."""
        if self.settings.queue_limit is None:
            self.engine.submit_all(stream.lane, commands, self._implicit_order(stream, ()))
        else:
            for command in commands:
                self.enqueue(stream, command)

    def _implicit_order(self, stream: Stream, deps: tuple[Marker, ...]) -> tuple[Marker, ...]:
        """`deps`, and what the next command of `stream` waits for by the rules of the null stream."""
        if stream.is_null:
            seen = stream.seen
            for other in self._blocking[stream.device].values():
                tail = other.lane.submitted
                if tail and seen.get(other.lane.index) != tail:
                    seen[other.lane.index] = tail
                    deps = (*deps, (other.lane, tail))
        elif stream.blocking:
            null = self._null[stream.device]
            if null is not None and null.lane.submitted and stream.seen.get(0) != null.lane.submitted:
                stream.seen[0] = null.lane.submitted
                deps = (*deps, (null.lane, null.lane.submitted))
        return deps

    def wait(self, targets: Sequence[Marker], what: str) -> None:
        """Block the calling thread until `targets` are complete, and tell the observers."""
        self.engine.wait(targets, what)
        self.learnt(targets, what)

    def null_order(self, device: int) -> tuple[Marker, ...]:
        """What a copy on the null stream of `device` would wait for now."""
        lanes = [other.lane for other in self._blocking[device].values()]
        null = self._null[device]
        if null is not None:
            lanes.append(null.lane)
        return tuple(lane.tail for lane in lanes if not lane.idle)

    def device_lanes(self, device: int | None = None) -> list[Marker]:
        """Markers of everything in flight on `device`, or on all."""
        return [lane.tail for lane in self.engine.lanes.values() if device is None or lane.group == device]

    # -- memory ------------------------------------------------------------------------------------------------------

    def new_handle(self, kind: str = "handle") -> int:
        """A unique reserved address; `kind` says for whom."""
        with self.engine.lock:
            return self.memory.new_handle()

    def _allocated(self, block: Block) -> None:
        for observer in self.engine.observers:
            observer.allocated(block)

    def asks(self, targets: Sequence[Marker], what: str) -> None:
        """The answer of `what` depends on the progress of `targets`: an explorer wants to know, and the engine, too."""
        self.engine.looked(targets, what)
        tracker = self.engine.tracker
        if tracker is not None:
            tracker.asked(targets)

    def _freed(self, block: Block) -> None:
        if self.engine.tracker is not None:
            self.engine.tracker.touched(Access(MEM, block.base, block.size, True))
        for observer in self.engine.observers:
            observer.freed(block)

    def _bad_device(self, device: int) -> bool:
        return not 0 <= device < self.device_count
