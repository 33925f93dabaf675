"""Leaks: what is left over when the program ends."""

from __future__ import annotations

from collections.abc import Callable

from hipfile_sim.observe.observer import Call, Site
from hipfile_sim.observe.sanitizer.family import Family
from hipfile_sim.observe.sanitizer.findings import Place, declare
from hipfile_sim.observe.sanitizer.state import State

OPERATION = declare(
    "leak.operation",
    "warning",
    "operation that the host never waited for",
    why="Its result was never looked at; the data may not have arrived when the process ends.",
    fix="Synchronise the stream before the end, and look at bytes_done.",
)
HANDLE = declare(
    "leak.handle",
    "note",
    "file handle still registered at the end",
    why="Each costs a second descriptor; in a long-lived process they run out.",
    fix="Call hipFileHandleDeregister when the file is not needed any more, after synchronising.",
)
BUFFER = declare(
    "leak.buffer",
    "note",
    "buffer still registered at the end",
    why="A registration outlives the memory if it is freed, and the next allocation at that address cannot be "
    "registered.",
    fix="Call hipFileBufDeregister before freeing the memory.",
)
REGISTRATION = declare(
    "leak.stream-registration",
    "note",
    "stream still registered with hipFile at the end",
    why="It keeps a pinned bounce buffer, and survives hipFileDriverClose.",
    fix="Call hipFileStreamDeregister.",
)
BATCH = declare(
    "leak.batch",
    "note",
    "batch context never destroyed",
    why="Its operations may still run, and the context stays for the life of the process.",
    fix="Call hipFileBatchIODestroy.",
)
USE_COUNT = declare(
    "leak.use-count",
    "note",
    "driver opened more often than closed",
    why="The driver stays open, and with it every handle and buffer.",
    fix="Close the driver as often as it was opened.",
)
MEMORY = declare(
    "leak.memory",
    "note",
    "memory never freed",
    why="Device and pinned memory run out in a long-lived process.",
    fix="Free it.",
)
STREAM = declare(
    "leak.stream",
    "note",
    "stream never destroyed",
    why="Streams are a limited resource of the device.",
    fix="Call hipStreamDestroy.",
)
EVENT = declare(
    "leak.event",
    "note",
    "event never destroyed",
    why="Events are a limited resource of the device.",
    fix="Call hipEventDestroy.",
)

_CREATES = {
    "hipStreamCreate": "stream",
    "hipStreamCreateWithFlags": "stream",
    "hipStreamCreateWithPriority": "stream",
    "hipEventCreate": "event",
    "hipEventCreateWithFlags": "event",
    "hipFileBatchIOSetUp": "batch",
    "hipFileHandleRegister": "handle",
}
_ENDS = {"hipStreamDestroy": "stream", "hipEventDestroy": "event", "hipFileBatchIODestroy": "batch"}


class Leaks(Family):
    """Looks at what is there at the end; who made it is noted when it is made."""

    def __init__(self, core: State) -> None:
        super().__init__(core)
        self._made: dict[str, dict[int, Site | None]] = {kind: {} for kind in ("stream", "event", "batch", "handle")}
        self._registered: dict[str, dict[int, Site | None]] = {"buffer": {}, "registration": {}}
        self._opens: list[Site | None] = []
        table: dict[str, Callable[[Call], None]] = dict.fromkeys(_CREATES, self._create)
        table |= dict.fromkeys(_ENDS, self._end)
        table |= {
            "hipFileBufRegister": self._buffer,
            "hipFileStreamRegister": self._stream,
            "hipFileDriverOpen": self._open,
            "hipFileDriverClose": self._close,
        }
        self.returns = table

    def _create(self, call: Call) -> None:
        result = call.result
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], int) and result[1]:
            self._made[_CREATES[call.name]][result[1]] = call.site

    def _end(self, call: Call) -> None:
        kind = _ENDS[call.name]
        self._made[kind].pop(call.args.get(kind, 0), None)

    def _buffer(self, call: Call) -> None:
        self._registered["buffer"][call.args.get("pointer", 0)] = call.site

    def _stream(self, call: Call) -> None:
        self._registered["registration"][call.args.get("stream", 0)] = call.site

    def _open(self, call: Call) -> None:
        self._opens.append(call.site)

    def _close(self, call: Call) -> None:
        if self._opens and not getattr(call.result, "err", 1):
            self._opens.pop()

    def finish(self) -> None:
        core = self.core
        if core.stuck:
            return  # whoever hangs cannot tidy up
        for op in core.in_flight():
            self._say(
                OPERATION,
                f"nothing ever waited for {op.name} on {op.lane.name}",
                Place("submit", op.describe(), op.site),
                "synchronise the stream before the end, and look at bytes_done",
            )
        state = core.driver_state()
        if state is not None:
            for file in state.files:
                site = self._made["handle"].get(file.handle)
                self._left(
                    HANDLE, f"file handle {file.handle:#x} (descriptor {file.client_fd})", "hipFileHandleRegister", site
                )
            for pointer in state.buffers.entries:
                site = self._registered["buffer"].get(pointer)
                self._left(BUFFER, f"buffer {pointer:#x}", "hipFileBufRegister", site)
            for handle in state.streams.entries:
                site = self._registered["registration"].get(handle)
                self._left(
                    REGISTRATION, f"the registration of {self._stream_name(handle)}", "hipFileStreamRegister", site
                )
            if self._opens and state.use_count:
                times = len(self._opens)
                self._say(
                    USE_COUNT,
                    f"the driver was opened {times} time{'s' * (times != 1)} more than it was closed",
                    Place("open", "hipFileDriverOpen", self._opens[-1]),
                    "close the driver as often as it was opened",
                )
        for handle, site in self._made["batch"].items():
            self._left(BATCH, f"batch {handle:#x}", "hipFileBatchIOSetUp", site)
        for handle, site in self._made["stream"].items():
            self._left(STREAM, self._stream_name(handle), "hipStreamCreate", site)
        for handle, site in self._made["event"].items():
            self._left(EVENT, f"event {handle:#x}", "hipEventCreate", site)
        for block in core.names.live():
            self._left(MEMORY, f"{block.kind} block {block.id} ({block.size} bytes)", "allocation", block.site)

    def _stream_name(self, handle: int) -> str:
        stream = self.core.stream(handle)
        return stream.lane.name if stream is not None else f"stream {handle:#x}"

    def _left(self, id: str, what: str, maker: str, site: Site | None) -> None:
        self._say(id, f"{what} is left over at the end", Place("create", maker, site), "")

    def _say(self, id: str, message: str, place: Place, fix: str) -> None:
        self.core.report(id, message, (place,), fix=fix)
