"""Events."""

from __future__ import annotations

from hipfile_sim.engine.command import Marker
from hipfile_sim.hip.base import RuntimeBase
from hipfile_sim.hip.call import hip_call
from hipfile_sim.hip.codes import HipError
from hipfile_sim.hip.commands import Record, WaitEvent
from hipfile_sim.hip.stream import Event

_OK = HipError.hipSuccess
_INVALID = HipError.hipErrorInvalidValue
_BAD_HANDLE = HipError.hipErrorInvalidHandle
_EVENT_FLAGS = 0xE0000007


class EventCalls(RuntimeBase):
    """Events. Unknown or destroyed handles: hipErrorInvalidHandle."""

    @hip_call(outputs=(0,))
    def hipEventCreate(self) -> tuple[HipError, int]:
        """An event with timing, on the current device."""
        return self._create_event(0)

    @hip_call(outputs=(0,))
    def hipEventCreateWithFlags(self, flags: int) -> tuple[HipError, int]:
        """An event; 1 blocking sync, 2 no timing, 4 interprocess (needs 2). Others: hipErrorInvalidValue."""
        if flags & ~_EVENT_FLAGS or (flags & 4 and not flags & 2):
            return _INVALID, 0
        return self._create_event(flags)

    def _create_event(self, flags: int) -> tuple[HipError, int]:
        if not self.device_count:
            return HipError.hipErrorNoDevice, 0
        handle = self.memory.new_handle()
        self.events[handle] = Event(handle, self.thread.device, flags)
        return _OK, handle

    @hip_call()
    def hipEventDestroy(self, event: int) -> HipError:
        """Give the handle up. Waits that were made on it stay."""
        return _BAD_HANDLE if self.events.pop(event, None) is None else _OK

    @hip_call()
    def hipEventRecord(self, event: int, stream: int = 0) -> HipError:
        """Make the event name this point of the stream. They must be of one device, else hipErrorInvalidHandle."""
        found = self.events.get(event)
        target = self.lookup_stream(stream)
        if found is None or target is None or found.device != target.device:
            return _BAD_HANDLE
        command = Record(event)
        code = self.enqueue(target, command)
        found.record = command
        return code

    @hip_call()
    def hipStreamWaitEvent(self, stream: int, event: int, flags: int = 0) -> HipError:
        """Hold the stream until the record that is current now [hip.event.wait-captures]; never recorded: no effect."""
        target = self.lookup_stream(stream)
        found = self.events.get(event)
        if target is None or found is None:
            return _BAD_HANDLE
        if flags:
            return _INVALID
        marker = found.marker
        if marker is None:
            self.tell(
                "event.wait-unrecorded",
                "the stream does not wait: the event has never been recorded",
                severity="warning",
                event=event,
                stream=target.lane.name,
            )
            return _OK
        return self.enqueue(target, WaitEvent(event), (marker,))

    @hip_call(observes=True, in_host_function=True)
    def hipEventQuery(self, event: int) -> HipError:
        """hipSuccess when the last record is complete or there is none, else hipErrorNotReady."""
        found = self.events.get(event)
        if found is None:
            return _BAD_HANDLE
        if found.marker is not None:
            self.asks([found.marker], "hipEventQuery")
        if not found.done:
            return HipError.hipErrorNotReady
        self._learnt_event(found.marker, event, "hipEventQuery")
        return _OK

    @hip_call(observes=True)
    def hipEventSynchronize(self, event: int) -> HipError:
        """Wait for the last record; success at once when there is none."""
        found = self.events.get(event)
        if found is None:
            return _BAD_HANDLE
        marker = found.marker
        if marker is not None:
            self.engine.wait([marker], "hipEventSynchronize")
        self._learnt_event(marker, event, "hipEventSynchronize")
        return _OK

    def _learnt_event(self, marker: Marker | None, event: int, what: str) -> None:
        if marker is not None:
            self.learnt([marker], what)
        else:
            self.tell(
                "event.query-unrecorded", f"{what} on an event that was never recorded succeeds at once", event=event
            )

    @hip_call(outputs=(0.0,), observes=True)
    def hipEventElapsedTime(self, start: int, stop: int) -> tuple[HipError, float]:
        """Milliseconds between two records.

        Not recorded or no timing: hipErrorInvalidHandle. Pending: hipErrorNotReady.
        """
        first, second = self.events.get(start), self.events.get(stop)
        if first is None or second is None or not first.timed or not second.timed:
            return _BAD_HANDLE, 0.0
        if first.record is None or second.record is None:
            return _BAD_HANDLE, 0.0
        markers = [event.marker for event in (first, second) if event.marker is not None]
        self.asks(markers, "hipEventElapsedTime")
        if not first.done or not second.done:
            return HipError.hipErrorNotReady, 0.0
        self.learnt([(record.lane, record.ticket) for record in (first.record, second.record)], "hipEventElapsedTime")
        return _OK, (second.record.finish_time - first.record.finish_time) / 1e6
