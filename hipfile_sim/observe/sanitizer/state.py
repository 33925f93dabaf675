"""What is known of one machine, and the questions that checks ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.command import MEM, Command, Lane, Space
from hipfile_sim.observe.observer import Call, Observer, Site, current_thread
from hipfile_sim.observe.sanitizer.deeds import Clash, Deed
from hipfile_sim.observe.sanitizer.family import Family
from hipfile_sim.observe.sanitizer.findings import Place
from hipfile_sim.observe.sanitizer.hb import Clocks, Edge, HappensBefore, Snapshot
from hipfile_sim.observe.sanitizer.names import Names
from hipfile_sim.observe.sanitizer.operation import LaneState, Operation, SlotIndex
from hipfile_sim.observe.sanitizer.shadow import Shadow

if TYPE_CHECKING:
    from hipfile_sim.driver.files import RegisteredFile
    from hipfile_sim.driver.tasks import Task

BATCH = "batch_io"
"""The kind of an operation of a batch: one command from end to end, without slots."""

LOOK_EVERY = 1024
"""Accesses between two looks at how much is remembered."""

PRUNE_AT = 8192
"""Records at which old ones are looked through for the first time."""


class State(Observer):
    """Follows one machine.

    Parameters
    ----------
    families : sequence of type
        The checks.
    dropped : iterable of Edge
        Kinds of edges to ignore. For tests of the tests.
    host_threads : str
        ``"assumed"``: what host threads do is ordered as it was seen, and the host knows what a host function knows,
        because their locks and queues are invisible; no false alarm, and no finding between two host threads.
        ``"told"``: only by `thread_started` and `thread_joined`.
    """

    def __init__(
        self, families: Sequence[type[Family]], *, dropped: Iterable[Edge] = (), host_threads: str = "assumed"
    ) -> None:
        if host_threads not in ("assumed", "told"):
            raise ValueError(f'host_threads={host_threads!r}: choose "assumed" or "told"')
        self.hb = HappensBefore(dropped)
        self.shadow: Shadow[Deed] = Shadow()
        self.names = Names()
        self.slots = SlotIndex()
        self.machine: Any = None
        self.operations = 0
        self.now = 0
        self.stuck = False
        """The program hangs."""
        self._told = host_threads == "told"
        self._host = self.hb.add_host()
        self._threads: dict[int, int] = {}
        self._lanes: dict[int, LaneState] = {}
        self._calls: dict[int, list[Call]] = {}
        self._ops: dict[int, Operation] = {}
        self._open: dict[int, Operation] = {}
        self._before: dict[int, Clocks] = {}
        self._functions: dict[int, int] = {}
        self._kernels: dict[int, Command] = {}
        self._inner: set[tuple[int, int]] = set()
        self._batched: list[tuple[LaneState, Task]] = []
        self._batched_limit = 0
        self._values: dict[int, tuple[Snapshot, int | None]] = {}
        self._value_waits: dict[int, int] = {}
        self._prune_at = PRUNE_AT
        self._work = 0
        self.watch_touched = False
        """Whether a family wants to know of every access (`Family.touched`)."""
        self.families = [family(self) for family in families]
        self._on_call = self._table("calls")
        self._on_return = self._table("returns")
        self._hooks = {name: self._overriding(name) for name in vars(Family) if not name.startswith("_")}
        self._on_conflict = self._hooks["conflict"]
        self._on_command = self._hooks["command"]
        self._on_touched = self._hooks["touched"]
        self._on_op_command = self._hooks["op_command"]
        self._on_host_read = self._hooks["host_read"]
        self._on_host_on_device = self._hooks["host_on_device"]
        self._on_host_file = self._hooks["host_file"]

    def _table(self, which: str) -> dict[str, list[Callable[[Call], None]]]:
        table: dict[str, list[Callable[[Call], None]]] = {}
        for family in self.families:
            for name, method in getattr(family, which).items():
                table.setdefault(name, []).append(method)
        return table

    def _overriding(self, name: str) -> list[Callable[..., Any]]:
        base = getattr(Family, name)
        return [getattr(family, name) for family in self.families if getattr(type(family), name) is not base]

    # -- who acts ----------------------------------------------------------------------------------------------------

    def actor(self) -> int:
        """The actor that the calling thread is: a host, or the host function that it runs."""
        if self._functions and self.machine is not None:
            command = self.machine.engine.host_function
            if command is not None:
                return self._functions.get(command.lane.index, self._host)
            if not self._told:
                self.overheard()
        if not self._told:
            return self._host
        thread = current_thread()
        host = self._threads.get(thread)
        if host is None:
            host = self._threads[thread] = self.hb.add_host() if self._threads else self._host
        return host

    def overheard(self) -> None:
        """A host function may tell the host anything at any time, by an event or a queue that nobody sees."""
        for function in self._functions.values():
            self.hb.acquire(self._host, self.hb.release(function), Edge.THREAD)

    def running_function(self) -> Command | None:
        """The host function that the calling thread runs."""
        if self._functions and self.machine is not None:
            command: Command | None = self.machine.engine.host_function
            return command
        return None

    def thread_started(self, child: int, parent: int) -> None:
        """Thread `parent` started thread `child` (numbers of `threading.get_ident`)."""
        self._thread_edge(parent, child)

    def thread_joined(self, child: int, by: int) -> None:
        """Thread `by` saw that thread `child` has ended."""
        self._thread_edge(child, by)
        if self._told and child in self._threads:
            self.hb.retire(self._threads.pop(child))

    def _thread_edge(self, source: int, target: int) -> None:
        if self._told:
            for thread in (source, target):
                if thread not in self._threads:
                    self._threads[thread] = self.hb.add_host() if self._threads else self._host
            self.hb.acquire(self._threads[target], self.hb.release(self._threads[source]), Edge.THREAD)

    def current_call(self) -> Call | None:
        """The outermost call of the API that the calling thread is in."""
        stack = self._calls.get(current_thread())
        return stack[0] if stack else None

    def lane_state(self, lane: Lane) -> LaneState:
        """What is kept for a stream."""
        state = self._lanes.get(lane.index)
        if state is None:
            state = self._lanes[lane.index] = LaneState(lane, self.hb.add_lane())
        return state

    def lanes(self) -> Iterable[LaneState]:
        """Every stream that was seen."""
        return self._lanes.values()

    def host_knows(self, op: Operation) -> bool:
        """Whether host code of the calling thread comes after the end of `op`."""
        return op.done and self.hb.knows(self.actor(), op.lane_id, op.last)

    def settle(self, op: Operation) -> bool:
        """`host_knows`, and if so the slots of `op` are nobody's any more."""
        if not self.host_knows(op):
            return False
        self.slots.remove(op)
        return True

    def in_flight(self) -> Iterable[Operation]:
        """Operations that the host does not know to be complete."""
        for state in self._lanes.values():
            for op in state.unknown:
                if not self.host_knows(op):
                    yield op

    def batched(self) -> list[Task]:
        """Operations of batches that the host does not know to be complete."""
        me = self.actor()
        self._batched = [
            (state, task)
            for state, task in self._batched
            if task.accesses() and (state.lane.completed < task.ticket or not self.hb.knows(me, state.id, task.ticket))
        ]
        return [task for _, task in self._batched]

    def pending(self) -> list[Operation]:
        """Operations with commands that have not run."""
        return list(self._ops.values())

    def op_of(self, object: Any) -> Operation | None:
        """The record of an operation of the driver."""
        op = self._ops.get(id(object))
        return op if op is not None and op.object is object else None

    # -- what checks ask ---------------------------------------------------------------------------------------------

    def stream(self, handle: int) -> Any:
        """The runtime's stream behind a handle, or None."""
        return None if self.machine is None else self.machine.hip.lookup_stream(handle)

    def driver_state(self) -> Any:
        """Maps of the driver, or None while no program has used it."""
        if self.machine is None or "hipfile" not in vars(self.machine):
            return None
        return self.machine.hipfile.state

    def registered_stream(self, handle: int) -> bool:
        """Whether hipFile has the stream registered."""
        state = self.driver_state()
        return state is not None and handle in state.streams.entries

    def file(self, handle: int) -> RegisteredFile | None:
        """The file behind a registered handle."""
        state = self.driver_state()
        return None if state is None else state.files.lookup(handle)

    def file_space(self, file: RegisteredFile) -> Space:
        """The bytes of a registered file, whose name is known from now on."""
        space: Space = ("file", file.info.dev, file.info.ino)
        self.names.name_file(space, file, self.machine.hipfile.files)
        return space

    def stream_waits(self, lane: Lane, actor: int, clock: int) -> bool:
        """Whether everything that `lane` is given from now on comes after the epoch ``(actor, clock)``."""
        return self._waits(lane, lane.submitted, actor, clock, set())

    def _waits(self, lane: Lane, ticket: int, actor: int, clock: int, seen: set[tuple[int, int]]) -> bool:
        state = self.lane_state(lane)
        if state.id == actor:
            return clock <= ticket
        if (lane.index, ticket) in seen:
            return False
        seen.add((lane.index, ticket))
        if self.hb.at(state.id, min(ticket, lane.completed)).clocks.get(actor, -1) >= clock:
            return True
        waiting = ((lane.running,) if lane.running else ()) + tuple(lane.queue)
        return any(
            self._waits(other, number, actor, clock, seen)
            for command in waiting
            if command.ticket <= ticket
            for other, number in command.deps
        )

    # -- what checks say ---------------------------------------------------------------------------------------------

    def report(
        self,
        id: str,
        message: str,
        places: Sequence[Place] = (),
        *,
        missing: str = "",
        fix: str = "",
        objects: dict[str, Any] | None = None,
    ) -> Any:
        """A finding. `Sanitizer` keeps it if the policy lets it."""
        raise NotImplementedError

    def retract(self, id: str, site: Site | None) -> None:
        """Take back the latest finding `id` whose operation was submitted at `site`."""
        raise NotImplementedError

    # -- conflicts -----------------------------------------------------------------------------------------------------

    def promise(self, op: Operation, start: int, end: int) -> None:
        """Count bytes as read by the latest command of `op`, although the model did not look at them."""
        deed = Deed(op.lane, op.last, "promise", None, op.site, op)
        known = self.hb.clocks(op.lane_id)
        me = op.lane_id if self.hb.stream_order else -1
        clock = self.hb.clock(op.lane_id)
        found = self.shadow.access(MEM, start, end, False, actor=op.lane_id, clock=clock, known=known, me=me, info=deed)
        if found:
            self._clash(found, deed, False, MEM)

    def _clash(self, found: Sequence[Any], deed: Deed, write: bool, space: Any) -> None:
        for earlier, earlier_write, start, end in found:
            clash = Clash(earlier, earlier_write, deed, write, space, start, end)
            for hook in self._on_conflict:
                if hook(clash):
                    break

    # -- memory bounds -----------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Called now and then: is it time to forget?"""
        self._work = 0
        if self.records > self._prune_at:
            self.prune()

    @property
    def records(self) -> int:
        """How much is remembered."""
        return len(self.shadow) + len(self.hb)

    def prune(self) -> None:
        """Forget what can no longer race."""
        floor = self.hb.floor()
        self.shadow.prune(floor)
        self.hb.forget(floor)
        self._prune_at = max(PRUNE_AT, 2 * self.records)
