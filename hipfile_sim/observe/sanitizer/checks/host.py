"""Host code: what it may not call, where it waits for ever, and pointers of the wrong side."""

from __future__ import annotations

from collections.abc import Callable

from hipfile_sim.engine.command import MEM
from hipfile_sim.engine.errors import DeadlockError
from hipfile_sim.observe.observer import Call, HostAccess, Note
from hipfile_sim.observe.sanitizer.checks.slots import SET_AT_SUBMIT
from hipfile_sim.observe.sanitizer.deeds import Deed
from hipfile_sim.observe.sanitizer.family import Family
from hipfile_sim.observe.sanitizer.findings import Place, declare
from hipfile_sim.observe.sanitizer.state import State

HIP_CALL = declare(
    "hostfn.hip-call",
    "error",
    "HIP call inside a host function",
    why="The runtime's own thread runs host functions. A HIP call there is refused, or waits for the very thread "
    "that it runs on.",
    fix="Let the host function set an event or fill a queue, and make the call on a thread of your own.",
)
NEEDS_TWO = declare(
    "hostfn.needs-two",
    "error",
    "host functions of two streams wait for each other",
    why="One thread may run the host functions of all streams, one after the other: the first waits for ever for "
    "the second.",
    fix="Order the streams with events instead of waiting inside a host function.",
)
DEADLOCK = declare(
    "deadlock",
    "error",
    "the host waits for something that cannot happen",
    why="The process hangs.",
    fix="Let somebody else do what the stream waits for, before this thread waits.",
)
UNRECORDED = declare(
    "event.wait-unrecorded",
    "warning",
    "wait for an event that was never recorded",
    why="The wait succeeds at once and orders nothing.",
    fix="Record the event before anybody waits for it.",
)
QUERIED = declare(
    "event.query-unrecorded",
    "note",
    "query or synchronisation of an event that was never recorded",
    why="It says success at once, which is not what the program wants to know.",
    fix="Record the event first.",
)
DEVICE = declare(
    "device.mismatch",
    "error",
    "stream, buffer and current device do not belong together",
    why="hipFile refuses a buffer of another device than the stream's with 5022, and launches its kernels on "
    "whatever device is current in the calling thread.",
    fix="Use a stream of the buffer's device, and make that device current before the call.",
)
POINTER = declare(
    "device.pointer-as-host",
    "error",
    "device pointer used as host memory",
    why="A segmentation fault on a discrete GPU; slow and unordered elsewhere.",
    fix="Copy the bytes to host memory first; keep slots in host memory.",
)
FORK = declare(
    "fork.after-init",
    "error",
    "HIP or hipFile used in a forked child",
    why="The runtime does not survive fork(): its threads and its device context are gone.",
    fix='Start children with the "spawn" method, or fork before the first call.',
)
REMARK = declare(
    "model.remark",
    "warning",
    "the model has a remark that no other check covers",
    why="Something is modelled only in part, or the library would only have logged it.",
    fix="See the message.",
)

_SIMPLE = {
    "hostfn.hip-call": HIP_CALL,
    "event.wait-unrecorded": UNRECORDED,
    "event.query-unrecorded": QUERIED,
    "fork.after-init": FORK,
}
_ELSEWHERE = {
    "submit.dangling-slot",
    "slot.owner-collected",
    "file.descriptor-recycled",
    "result.hidden-errno",
    "chunk.memory-fault",
    "cost.pageable-copy",
}
_SLOT_PARAMETERS = {
    "size_p": "size",
    "file_offset_p": "file_offset",
    "buffer_offset_p": "buffer_offset",
    "bytes_read_p": "bytes_done",
    "bytes_written_p": "bytes_done",
}
_NEEDS_HIP = (
    "hipFileRead",
    "hipFileWrite",
    "hipFileBufRegister",
    "hipFileStreamRegister",
    "hipFileStreamDeregister",
    "hipFileBatchIOSubmit",
    "hipFileBatchIOGetStatus",
)
"""Calls of hipFile, besides the asynchronous ones, that make HIP calls or wait for such."""
_DEFAULT = 4
_INVALID_VALUE = 5022


class Host(Family):
    """Checks of what host code does."""

    def __init__(self, core: State) -> None:
        super().__init__(core)
        transfers: dict[str, Callable[[Call], None]] = dict.fromkeys(
            ("hipFileReadAsync", "hipFileWriteAsync"), self._async_returned
        )
        inside = dict.fromkeys(_NEEDS_HIP, self._inside)
        copies = dict.fromkeys(("hipMemcpy", "hipMemcpyAsync", "hipMemcpyWithStream"), self._copied)
        self.returns = {**transfers, **copies, "*": self._any}
        self.calls = {**inside, **dict.fromkeys(transfers, self._async_called)}

    def note(self, note: Note) -> None:
        id = _SIMPLE.get(note.id)
        if id is not None:
            self.core.report(id, note.message, self._places(note), fix=_FIXES.get(id, ""))
        elif note.id not in _ELSEWHERE and note.severity != "note":
            self.core.report(REMARK, f"{note.message} [{note.id}]", self._places(note))

    def _places(self, note: Note) -> tuple[Place, ...]:
        call = self.core.current_call()
        function = self.core.running_function()
        places = [Place("call", call.name if call else note.id, note.site)]
        if function is not None:
            places.insert(0, Place("submit", f"{function.describe()} on {function.lane.name}", function.site))
        return tuple(places)

    # -- deadlocks ---------------------------------------------------------------------------------------------------

    def _any(self, call: Call) -> None:
        error = call.result
        if not isinstance(error, DeadlockError):
            return
        self.core.stuck = True
        places = [Place("wait", call.name, call.site)]
        functions = 0
        for state in self.core.lanes():
            command = state.lane.running or (state.lane.queue[0] if state.lane.queue else None)
            if command is not None:
                functions += command.on_host_thread
                places.append(Place("stuck", f"{command.describe()} on {state.lane.name}", command.site))
        two = functions > 1 and self.core.machine.settings.host_function_threads == "one"
        self.core.report(
            NEEDS_TWO if two else DEADLOCK,
            "one thread runs the host functions of all streams, and the one that runs waits for another"
            if two
            else f"{call.name} can never return",
            places,
            objects={"waits": error.graph.strip("\n").lstrip()},
            missing="nothing that can still run brings about what is waited for",
            fix=_FIXES[NEEDS_TWO]
            if two
            else "do what the stream waits for before this thread waits, or on another thread",
        )

    # -- devices and pointers ----------------------------------------------------------------------------------------

    def _async_returned(self, call: Call) -> None:
        if self.core.machine.hip.device_count < 2:
            return
        args = call.args
        block = self.core.names.find(args.get("pointer", 0))
        stream = self.core.stream(args.get("stream", 0))
        if block is None or stream is None or block.kind != "device":
            return
        error = getattr(call.result, "err", 0)
        place = Place("submit", call.name, call.site)
        if error == _INVALID_VALUE and block.device != stream.device:
            self.core.report(
                DEVICE,
                f"{call.name} is refused with 5022: the buffer is on device {block.device}, {stream.lane.name} on "
                f"device {stream.device}",
                (Place("allocate", f"{block.kind} block {block.id}", block.site), place),
                fix=f"use a stream of device {block.device}",
            )
        elif not error and stream.device != self.core.machine.hip.thread.device:
            current = self.core.machine.hip.thread.device
            self.core.report(
                DEVICE,
                f"{call.name} on {stream.lane.name} of device {stream.device} while device {current} is current; "
                "the library launches its kernel on the current device",
                (place,),
                fix=f"call hipSetDevice({stream.device}) before submitting",
            )

    def _copied(self, call: Call) -> None:
        side = self._wrong_side(call) if call.result else ""
        if side:
            self.core.report(
                POINTER,
                f"{call.name} says that its {side} is host memory, but it is device memory; the call is refused",
                (Place("call", call.name, call.site),),
                fix="give the right direction, or hipMemcpyDefault",
            )

    def _wrong_side(self, call: Call) -> str:
        """The end of a copy that is said to be on the host and is not."""
        kind = call.args.get("kind", _DEFAULT)
        for side, on_host in (("destination", kind in (0, 2)), ("source", kind in (0, 1))):
            block = self.core.names.find_device(call.args.get(side, 0))
            if on_host and block is not None:
                return side
        return ""

    def _inside(self, call: Call) -> None:
        """A call of hipFile in user code on a stream needs HIP as well."""
        function = self.core.running_function()
        if function is not None:
            self.core.report(
                HIP_CALL,
                f"{call.name} inside a host function: it makes HIP calls, which are not allowed there and can deadlock",
                (
                    Place("submit", f"{function.describe()} on {function.lane.name}", function.site),
                    Place("call", call.name, call.site),
                ),
                fix=_FIXES[HIP_CALL],
            )

    def _async_called(self, call: Call) -> None:
        self._inside(call)
        self._slots_in_device_memory(call)

    def _slots_in_device_memory(self, call: Call) -> None:
        args, names = call.args, self.core.names
        start, end = names.device_span
        for name, slot in _SLOT_PARAMETERS.items():
            address = args.get(name, 0)
            block = names.find_device(address) if start <= address < end else None
            if block is not None:
                self.core.report(
                    POINTER,
                    f"the {slot} slot of {call.name} is device memory ({block.kind} block {block.id}); the library "
                    "reads and writes slots on the host",
                    (
                        Place("allocate", f"{block.kind} block {block.id}", block.site),
                        Place("submit", call.name, call.site),
                    ),
                    fix="keep the slots in host memory",
                )
                return

    def host_on_device(self, access: HostAccess, deed: Deed) -> None:
        _, start, length, write = access.access
        block = self.core.names.find_device(start)
        if block is not None and not self.core.machine.settings.host_visible:
            if deed.label == SET_AT_SUBMIT:
                return
            deed.flagged = True
            self.core.report(
                POINTER,
                f"host code {'writes' if write else 'reads'} device memory: "
                f"{self.core.names.describe(MEM, start, start + length)}",
                (
                    Place("allocate", f"{block.kind} block {block.id}", block.site),
                    deed.place("write" if write else "read"),
                ),
                fix="copy the bytes to host memory first",
            )


_FIXES = {
    HIP_CALL: "let the host function set a flag or fill a queue, and make the call on a thread of your own",
    NEEDS_TWO: "order the streams with events instead of waiting inside a host function",
    UNRECORDED: "record the event before the stream waits for it",
    QUERIED: "record the event first",
    FORK: 'start children with the "spawn" method, or fork before the first call',
}
