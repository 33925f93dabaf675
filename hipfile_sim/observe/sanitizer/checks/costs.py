"""Costs: what is right but slow, or takes more memory than it looks."""

from __future__ import annotations

from hipfile_sim.engine.command import Command
from hipfile_sim.observe.observer import Call, Note, Site
from hipfile_sim.observe.sanitizer.family import Family
from hipfile_sim.observe.sanitizer.findings import Place, declare
from hipfile_sim.observe.sanitizer.operation import Operation
from hipfile_sim.observe.sanitizer.state import State

UNREGISTERED = declare(
    "cost.unregistered-stream",
    "note",
    "asynchronous operation on a stream that is not registered",
    why="Each such operation pins a whole bounce buffer of its own (16 MiB by default) and frees it again.",
    fix="Register the stream once with hipFileStreamRegister.",
)
UNUSED = declare(
    "stream.registered-unused",
    "note",
    "registered stream that no operation uses",
    why="A registration pins a bounce buffer. Often the operations went to another stream by mistake.",
    fix="Submit to the registered stream, or do not register it.",
)
PAGEABLE = declare(
    "cost.pageable-copy",
    "note",
    "asynchronous copy with pageable host memory",
    why="The call blocks until the copy is done; nothing overlaps.",
    fix="Use pinned memory (hipHostMalloc, hipHostRegister).",
)
NULL = declare(
    "cost.null-stream",
    "note",
    "asynchronous work on the null stream",
    why="The null stream waits for every blocking stream of its device, and they wait for it: nothing overlaps.",
    fix="Use a stream of your own, created non-blocking.",
)
_QUIET = ("hipMemcpy", "hipMemset", "hipFileRead", "hipFileWrite", "hipEventRecord")


class Costs(Family):
    """Notes; none of them is a bug."""

    def __init__(self, core: State) -> None:
        super().__init__(core)
        self._registered: dict[int, Site | None] = {}
        self._seen: set[int] = set()
        self._null_told = False
        self.returns = {"hipFileStreamRegister": self._register, "hipFileStreamDeregister": self._deregister}

    def _register(self, call: Call) -> None:
        if not getattr(call.result, "err", 1):
            self._registered.setdefault(call.args.get("stream", 0), call.site)

    def _deregister(self, call: Call) -> None:
        handle = call.args.get("stream", 0)
        if handle in self._registered and self._registered[handle] == call.site:
            del self._registered[handle]  # a probe: hipfile.supports_async registers the null stream and deregisters it

    def op_submitted(self, op: Operation) -> None:
        stream = op.object.stream
        self._registered.pop(stream.handle, None)
        if stream.handle in self._seen:
            return
        self._seen.add(stream.handle)
        if not stream.registered and op.object.driver.profile.async_bounce == "per-stream":
            size = op.object.driver.environment.async_buffer_size
            self.core.report(
                UNREGISTERED,
                f"{op.lane.name} is not registered, so each operation on it pins {size} bytes of its own",
                (op.place(),),
                fix="register the stream once with hipFileStreamRegister",
            )
        if stream.handle in (0, 1):
            self._null(op.name, op.lane.name, op.site)

    def command(self, command: Command) -> None:
        if command.deps and command.kind in ("copy", "set", "kernel", "host"):
            call = self.core.current_call()
            if call is not None and call.name not in _QUIET and call.args.get("stream", 0) in (0, 1):
                self._null(call.name, command.lane.name, call.site)

    def _null(self, name: str, lane: str, site: Site | None) -> None:
        if not self._null_told:
            self._null_told = True
            self.core.report(
                NULL,
                f"{name} on the {lane} waits for every blocking stream of the device, and they wait for it",
                (Place("submit", name, site),),
                fix="use a stream of your own, created with hipStreamNonBlocking",
            )

    def note(self, note: Note) -> None:
        if note.id == "cost.pageable-copy":
            call = self.core.current_call()
            self.core.report(
                PAGEABLE,
                "an asynchronous copy with pageable host memory blocks the caller until it is done",
                (Place("call", call.name if call else "copy", note.site),),
                fix="use pinned memory",
            )

    def finish(self) -> None:
        for handle, site in self._registered.items():
            stream = self.core.stream(handle)
            name = stream.lane.name if stream is not None else f"stream {handle:#x}"
            self.core.report(
                UNUSED,
                f"{name} was registered and no operation ever used it",
                (Place("register", "hipFileStreamRegister", site),),
                fix="submit to the registered stream, or do not register it",
            )
