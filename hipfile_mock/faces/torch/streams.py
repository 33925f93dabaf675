"""What stands under `torch.cuda.Stream` and `torch.cuda.Event`.

torch's own classes stay as they are, so names that a program imported earlier keep working; the functions here become
attributes of their base classes, which are empty in a CPU build.
"""

from __future__ import annotations

from typing import Any

import torch

from hipfile_mock.faces.torch.kernels import stack
from hipfile_mock.faces.torch.session import Session, StreamState
from hipfile_sim.hip.codes import HipError

__all__ = ["EVENT", "STREAM", "state_of"]

_CUDA = 1


def _session(what: str) -> Session:
    if not stack:
        raise RuntimeError(
            f"{what}: the emulated machine that it belongs to is gone; make streams and events inside the test"
        )
    return stack[-1]


def state_of(stream: Any) -> StreamState:
    """The session's record of a stream object."""
    return _session("stream").stream(stream.stream_id, stream.device_index)


# -------------------------------------------------------------------------------------------------------------- streams


def _stream_new(
    cls: type,
    priority: int = 0,
    stream_id: int | None = None,
    device_index: int | None = None,
    device_type: int | None = None,
    stream_ptr: int = 0,
) -> Any:
    session = _session("torch.cuda.Stream()")
    torch.cuda._lazy_init()
    if stream_id is not None and device_index is not None:
        state = session.stream(stream_id, device_index)
    elif stream_ptr:
        state = session.external(stream_ptr, session.device)
    else:
        state = session.pooled(session.device, priority)
    self: Any = object.__new__(cls)
    self.stream_id = state.id
    self.device_index = state.device
    self.device_type = _CUDA
    self.cuda_stream = state.handle
    return self


def _stream_init(self: Any, *args: Any, **kwargs: Any) -> None:
    pass


def _stream_device(self: Any) -> torch.device:
    return torch.device("cuda", self.device_index)


def _stream_priority(self: Any) -> int:
    session = _session("Stream.priority")
    with session.on(self.device_index):
        code, priority = session.hip.hipStreamGetPriority(self.cuda_stream)
    session.check(code)
    return int(priority)


def _stream_query(self: Any) -> bool:
    session = _session("Stream.query()")
    with session.on(self.device_index):
        return _ready(session, session.hip.hipStreamQuery(self.cuda_stream))


def _stream_synchronize(self: Any) -> None:
    session = _session("Stream.synchronize()")
    session.synchronize(state_of(self))


def _stream_eq(self: Any, other: Any) -> bool:
    return (self.stream_id, self.device_index) == (other.stream_id, other.device_index)


def _stream_enter(self: Any) -> Any:
    session = _session("with stream")
    self.__dict__.setdefault("_outer", []).append((session.device, session.current(self.device_index)))
    session.switch(self.device_index)
    session.select(state_of(self))
    return self


def _stream_exit(self: Any, *error: Any) -> None:
    session = _session("with stream")
    device, before = self._outer.pop()
    session.select(before)
    session.switch(device)


def _not_capturing(self: Any) -> bool:
    return False


STREAM: dict[str, Any] = {
    "__new__": _stream_new,
    "__init__": _stream_init,
    "__eq__": _stream_eq,
    "__hash__": lambda self: hash((self.stream_id, self.device_index)),
    "__enter__": _stream_enter,
    "__exit__": _stream_exit,
    "device": property(_stream_device),
    "priority": property(_stream_priority),
    "native_handle": property(lambda self: self.cuda_stream),
    "query": _stream_query,
    "synchronize": _stream_synchronize,
    "is_capturing": _not_capturing,
}
"""Attributes of ``torch._C._CudaStreamBase``."""


# --------------------------------------------------------------------------------------------------------------- events


def _ready(session: Session, code: HipError) -> bool:
    if code == HipError.hipErrorNotReady:
        session.hip.hipGetLastError()
        return False
    session.check(code)
    return True


def _event_new(
    cls: type, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
) -> Any:
    if interprocess or external:
        raise NotImplementedError(
            "torch.cuda.Event(interprocess=True) and external=True are not modelled: an emulated GPU belongs to one "
            "process"
        )
    self: Any = object.__new__(cls)
    self._flags = (1 if blocking else 0) | (0 if enable_timing else 2)
    self._timed = enable_timing
    self._session = None
    self.cuda_event = 0  # made when it is first recorded, as torch does
    self._index = -1
    return self


def _event_device(self: Any) -> torch.device | None:
    return torch.device("cuda", self._index) if self.cuda_event else None


def _event_record(self: Any, stream: Any) -> None:
    state = state_of(stream)
    session = _session("Event.record()")
    if not self.cuda_event:
        with session.on(state.device):
            code, self.cuda_event = session.own("hipEventCreateWithFlags", self._flags)
        session.check(code)
        self._session, self._index = session, state.device
    elif self._session is not session:
        raise RuntimeError("Event.record(): the event was recorded under an earlier fake; make events inside the test")
    if state.device != self._index:
        raise RuntimeError(f"Event device {self._index} does not match recording stream's device {state.device}.")
    with session.on(state.device):
        session.check(session.hip.hipEventRecord(self.cuda_event, state.handle))


def _unrecorded(session: Session, id: str, message: str) -> None:
    session.hip.tell(id, message, severity="warning")


def _event_wait(self: Any, stream: Any) -> None:
    state = state_of(stream)
    session = _session("Event.wait()")
    if not self.cuda_event:
        _unrecorded(session, "event.wait-unrecorded", "the stream does not wait: the event has never been recorded")
        return
    with session.on(state.device):
        session.check(session.hip.hipStreamWaitEvent(state.handle, self.cuda_event, 0))


def _event_query(self: Any) -> bool:
    session = _session("Event.query()")
    if not self.cuda_event:
        _unrecorded(
            session, "event.query-unrecorded", "Event.query on an event that was never recorded succeeds at once"
        )
        return True
    return _ready(session, session.hip.hipEventQuery(self.cuda_event))


def _event_synchronize(self: Any) -> None:
    session = _session("Event.synchronize()")
    if not self.cuda_event:
        _unrecorded(
            session, "event.query-unrecorded", "Event.synchronize on an event that was never recorded returns at once"
        )
        return
    session.check(session.hip.hipEventSynchronize(self.cuda_event))


def _event_elapsed_time(self: Any, end_event: Any) -> float:
    session = _session("Event.elapsed_time()")
    if not self._timed or not end_event._timed:
        raise ValueError("Both events must be created with argument 'enable_timing=True'.")
    if not self.cuda_event or not end_event.cuda_event:
        raise ValueError("Both events must be recorded before calculating elapsed time.")
    code, milliseconds = session.hip.hipEventElapsedTime(self.cuda_event, end_event.cuda_event)
    if code == HipError.hipErrorNotReady:
        raise RuntimeError("Both events must be completed before calculating elapsed time.")
    session.check(code)
    return float(milliseconds)


def _event_del(self: Any) -> None:
    session = self.__dict__.get("_session")
    if session is not None and session.alive and self.cuda_event:
        session.hip.events.pop(self.cuda_event, None)


def _no_ipc(*args: Any) -> Any:
    raise NotImplementedError("events cannot be shared with other processes: an emulated GPU belongs to one process")


EVENT: dict[str, Any] = {
    "__new__": _event_new,
    "__init__": _stream_init,
    "__del__": _event_del,
    "device": property(_event_device),
    "record": _event_record,
    "wait": _event_wait,
    "query": _event_query,
    "synchronize": _event_synchronize,
    "elapsed_time": _event_elapsed_time,
    "ipc_handle": _no_ipc,
    "from_ipc_handle": classmethod(_no_ipc),
}
"""Attributes of ``torch._C._CudaEventBase``."""
