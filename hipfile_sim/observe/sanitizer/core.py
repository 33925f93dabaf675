"""From what an observer is told to happens-before, shadow memory and operations; the checks are called on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.command import MEM, Access, Command, Lane
from hipfile_sim.observe.observer import Call, HostAccess, Note, Release, Wait, current_thread
from hipfile_sim.observe.sanitizer.deeds import Deed
from hipfile_sim.observe.sanitizer.hb import Edge, Snapshot
from hipfile_sim.observe.sanitizer.operation import LaneState, Operation
from hipfile_sim.observe.sanitizer.state import BATCH, LOOK_EVERY, State

if TYPE_CHECKING:
    from hipfile_sim.hip.memory import Block

SYNC_EDGES = {
    "hipStreamSynchronize": Edge.STREAM_SYNC,
    "hipEventSynchronize": Edge.EVENT_SYNC,
    "hipDeviceSynchronize": Edge.DEVICE_SYNC,
    "hipFree": Edge.FREE_SYNC,
    "hipHostFree": Edge.FREE_SYNC,
    "hipHostUnregister": Edge.FREE_SYNC,
    "hipStreamQuery": Edge.QUERY,
    "hipEventQuery": Edge.QUERY,
    "hipEventElapsedTime": Edge.QUERY,
}
"""Calls through which the host learns that commands are complete. All others wait for their own work."""

SLOT_KINDS = frozenset({"bind", "run_io", "fastpath_copy", "cleanup"})
"""Commands of an operation that read or write its slots."""

ASYNC_CALLS = frozenset({"hipFileReadAsync", "hipFileWriteAsync"})
"""Calls that submit an operation."""

READ_AT_SUBMIT = "slot read at submit"
"""What the driver says when it looks at the input slots."""

BATCHED = 256
"""Operations of batches that are kept before those are dropped that the host knows to be complete."""

UNKNOWN_LIMIT = 65_536
"""Operations of one stream that are remembered until the host knows that they are complete."""


class Core(State):
    """The observer. It keeps the books; what to say about them is for the families."""

    # -- what the machine says ---------------------------------------------------------------------------------------

    def attached(self, machine: Any) -> None:
        if self.machine is not None and self.machine is not machine:
            raise ValueError("this sanitizer watches another machine already: make one for each")
        self.machine = machine

    def lane_added(self, lane: Lane) -> None:
        self.lane_state(lane)

    def call(self, call: Call) -> None:
        self.now = call.time
        stack = self._calls.get(call.thread)
        if stack is None:
            stack = self._calls[call.thread] = []
        stack.append(call)
        if len(stack) == 1:
            if call.name in ASYNC_CALLS:
                self._before[call.seq] = self.hb.actors[self.actor()].clocks
            for hook in self._on_call.get(call.name, ()):
                hook(call)

    def returned(self, call: Call) -> None:
        stack = self._calls.get(call.thread)
        while stack and stack.pop() is not call:
            pass
        if self._before:
            self._before.pop(call.seq, None)
        op = self._open.pop(call.seq, None) if self._open else None
        if op is not None:
            op.open = False
            if op.lane.completed >= op.last:
                self._op_done(op)
        if not stack:
            if call.name == "hipFileRead" or call.name == "hipFileWrite":
                self._synchronous(call)
            for hook in self._on_return.get(call.name, ()):
                hook(call)
            for hook in self._on_return.get("*", ()):
                hook(call)

    def _synchronous(self, call: Call) -> None:
        """Blocking I/O reaches the file on the caller's thread; its copies are commands like any others."""
        count = getattr(call.result, "count", 0)
        file = self.file(call.args.get("handle", 0)) if count > 0 else None
        if file is not None:
            deed = Deed(None, 0, "host", call.name, call.site, None)
            space = self.file_space(file)
            self._host_touch(Access(space, call.args.get("file_offset", 0), count, call.name == "hipFileWrite"), deed)

    def submitted(self, command: Command) -> None:
        state = self._lanes.get(command.lane.index) or self.lane_state(command.lane)
        actor = self.actor() if self._functions or self._told else self._host
        self.hb.enqueue(actor, state.id, command.ticket)
        kind = command.kind
        object = getattr(command, "op", None)
        if object is not None and kind != BATCH:
            op = self._ops.get(id(object))
            if op is not None:
                op.last = command.ticket
            else:
                self._new_op(object, command, state, actor)
            return
        if kind == "wait_value":
            address = command.accesses()[0].start
            self._value_waits[address] = self._value_waits.get(address, 0) + 1
        call = self.current_call()
        if kind == BATCH:
            if len(self._batched) >= self._batched_limit:
                self._batched_limit = max(BATCHED, 2 * len(self.batched()))
            self._batched.append((state, command))  # type: ignore[arg-type]  # its kind says so
            self.file_space(command.file)  # type: ignore[attr-defined]
        elif call is not None and call.api == "hipfile":
            self._inner.add((command.lane.index, command.ticket))
        for hook in self._on_command:
            hook(command)

    def _new_op(self, object: Any, command: Command, state: LaneState, actor: int) -> None:
        call = self.current_call()
        if call is None:
            return
        self.operations += 1
        after = self.hb.release(actor)
        known = Snapshot(after.actor, after.clock, self._before.get(call.seq, after.clocks))
        op = Operation(call, object, command.lane, state.id, command.ticket, known)
        op.file_path = self.names.name_file(op.file_space, op.file, object.driver.files)
        self._ops[id(object)] = self._open[call.seq] = op
        state.unknown.append(op)
        if len(state.unknown) > UNKNOWN_LIMIT:
            self.slots.remove(state.unknown.popleft())
        for hook in self._hooks["op_submitted"]:
            hook(op)
        self.slots.add(op)

    def started(self, command: Command) -> None:
        deps = command.deps
        if not deps and not command.external and command.kind != "kernel":
            return  # nothing happens between start and finish: both are done then
        state = self._lanes[command.lane.index]
        after: list[tuple[int, int, Edge]] = []
        if deps:
            first = Edge.EVENT_WAIT if command.kind == "wait" else Edge.NULL_STREAM
            after = [(self.lane_state(lane).id, ticket, Edge.NULL_STREAM) for lane, ticket in deps]
            after[0] = (after[0][0], after[0][1], first)
        self.hb.start(state.id, command.ticket, after)
        if command.external:
            self._functions[command.lane.index] = self.hb.begin_function(state.id)
            if not self._told:
                self.overheard()
        elif command.kind == "kernel":
            self._kernels[current_thread()] = command

    def finished(self, command: Command) -> None:
        self.now = command.finish_time
        lane = command.lane
        state = self._lanes[lane.index]
        kind = command.kind
        object = getattr(command, "op", None) if kind != BATCH else None
        if object is not None and not command.deps:
            self.hb.step(state.id, command.ticket)
            self._op_command(state, command, object)
            return
        at_once = not command.deps and not command.external and kind != "kernel"
        if at_once:
            self.hb.step(state.id, command.ticket)
        if command.external:
            if not self._told:
                self.overheard()
            self._functions.pop(lane.index, None)
            self.hb.end_function(state.id)
        elif kind == "wait_value" or kind == "write_value":
            self._value(command, state)
        else:
            if kind == "kernel":
                self._kernels.pop(current_thread(), None)
            if object is not None:
                self._op_command(state, command, object)
            else:
                self._touch(state, command, command.accesses())
        if not at_once or kind == "wait_value":
            self.hb.finish(state.id)

    def _op_command(self, state: LaneState, command: Command, object: Any) -> None:
        """A command of a hipFile operation has run."""
        op = self._ops.get(id(object))
        accesses = command.accesses()
        kind = command.kind
        if accesses:
            if kind == "bind" and len(accesses) == 3:
                accesses = _joined(accesses)
            deed = Deed(command.lane, command.ticket, kind, command.label, command.site, op)
            self._record(state, deed, accesses, -1 if op is None else op.bounce)
        if op is not None:
            if kind in SLOT_KINDS:
                for hook in self._on_op_command:
                    hook(op, command, accesses)
            if op.last == command.ticket and not op.open:
                self._op_done(op)

    def _op_done(self, op: Operation) -> None:
        if not op.done:
            op.done = True
            self._ops.pop(id(op.object), None)
            for hook in self._hooks["op_done"]:
                hook(op)
            op.object = None

    def _touch(self, state: LaneState, command: Command, accesses: Sequence[Access]) -> None:
        """A command of no operation has run."""
        if self._inner and (key := (command.lane.index, command.ticket)) in self._inner:
            self._inner.discard(key)  # a copy inside the library: its own host memory is nobody's business
            accesses = [access for access in accesses if self.names.find(access.start) is not None]
        deed = Deed(command.lane, command.ticket, command.kind, command.label, command.site, None)
        self._record(state, deed, accesses)

    def _record(self, state: LaneState, deed: Deed, accesses: Sequence[Access], bounce: int = -1) -> None:
        """Bytes were touched; `bounce`: but not those, which are the library's."""
        number = state.id
        hb = self.hb
        ticket = deed.ticket
        known = hb.actors[number].clocks
        me = number if hb.stream_order else -1
        shadow_access = self.shadow.access
        for space, start, length, write in accesses:
            if start == bounce:
                continue
            found = shadow_access(space, start, start + length, write, number, ticket, known, me, deed)
            if found:
                self._clash(found, deed, write, space)
        if self.watch_touched:
            for hook in self._on_touched:
                hook(deed, accesses)
        self._work += 1
        if self._work >= LOOK_EVERY:
            self._tick()

    def _value(self, command: Command, state: LaneState) -> None:
        access = command.accesses()[0]
        address = access.start
        if access.write:
            self._values[address] = self.hb.at(state.id, command.ticket), getattr(command, "value", None)
            for hook in self._on_touched if self.watch_touched else ():
                hook(Deed(command.lane, command.ticket, command.kind, None, command.site, None), (access,))
            return
        snapshot, value = self._values.get(address, (None, None))
        if snapshot is not None:
            self.hb.acquire(state.id, snapshot, Edge.VALUE)
        if snapshot is None or (value is not None and value != self._word(address, access.length)):
            self.hb.stamp(self._host)  # a value that nobody was seen to write: host code did, and went on
            self.hb.acquire(state.id, self.hb.release(self._host), Edge.VALUE)
        left = self._value_waits.get(address, 0) - 1
        if left > 0:
            self._value_waits[address] = left
        else:
            self._value_waits.pop(address, None)

    def _word(self, address: int, length: int) -> int | None:
        data = None if self.machine is None else self.machine.memory.read(address, length)
        return None if data is None else int.from_bytes(data, "little")

    def waited(self, wait: Wait) -> None:
        name = wait.what.split("(", 1)[0].split(" ", 1)[0]
        if name == "drain":  # the machine, not the program
            return
        edge = SYNC_EDGES.get(name, Edge.COPY_SYNC)
        host = self.actor()
        hb = self.hb
        for lane, ticket in wait.targets:
            state = self._lanes.get(lane.index)
            if state is None or not ticket:
                continue
            known = hb.clocks(host).get(state.id, -1)
            hb.sync(host, state.id, ticket, edge)
            self._retire(state, host, ticket, known)

    def _retire(self, state: LaneState, host: int, ticket: int, known: int) -> None:
        """Operations up to `ticket` are nobody's any more; up to `known`, the host knew that before."""
        unknown = state.unknown
        fresh = []
        while unknown and unknown[0].last <= ticket and unknown[0].done:
            if not self.hb.knows(host, state.id, unknown[0].last):
                break  # an edge is left out
            op = unknown.popleft()
            self.slots.remove(op)
            if op.last > known:
                fresh.append(op)
        if fresh:
            for hook in self._hooks["op_known"]:
                hook(fresh)

    def host_access(self, access: HostAccess) -> None:
        if access.what == READ_AT_SUBMIT:
            return  # only to validate them; what counts is when they are bound
        touched = access.access
        if (self._values or self._value_waits) and touched.space == MEM and self._value_touch(touched):
            return
        kernel = self._kernels.get(current_thread()) if self._kernels else None
        if kernel is not None:  # the Python that stands for a kernel is no host code
            self._touch(self._lanes[kernel.lane.index], kernel, (touched,))
            return
        function = self.running_function() if self._functions else None
        if function is None:
            deed = Deed(None, 0, "host", access.what, access.site, None)
        else:
            deed = Deed(function.lane, function.ticket, "host", access.what, access.site or function.site, None)
        space, start, length, write = touched
        if space != MEM:
            for file_hook in self._on_host_file:
                file_hook(access)
        else:
            if not write:
                for hook in self._on_host_read:
                    hook(access, deed)
            first, last = self.names.device_span
            if first <= start < last and length:
                for hook in self._on_host_on_device:
                    hook(access, deed)
        self._host_touch(touched, deed)

    def _value_touch(self, access: Access) -> bool:
        """Memory that streams wait on, or write values to, is how host and stream order each other, no race."""
        _, start, length, write = access
        if not write:
            held = self._values.get(start)
            if held is not None:
                self.hb.acquire(self.actor(), held[0], Edge.VALUE)
            return held is not None
        waited_on = [address for address in self._value_waits if start <= address < start + length]
        for address in waited_on:
            self._values[address] = self.hb.release(self.actor()), None
        return bool(waited_on)

    def _host_touch(self, access: Access, deed: Deed) -> None:
        space, start, length, write = access
        actor = self.actor() if self._functions or self._told else self._host
        hb = self.hb
        clock = hb.stamp(actor)
        known = hb.actors[actor].clocks
        found = self.shadow.access(space, start, start + length, write, actor, clock, known, actor, deed)
        if found:
            self._clash(found, deed, write, space)
        if self.watch_touched:
            for hook in self._on_touched:
                hook(deed, (access,))
        self._work += 1
        if self._work >= LOOK_EVERY:
            self._tick()

    def allocated(self, block: Block) -> None:
        call = self.current_call()
        internal = call is None or call.api == "hipfile"
        self.names.add(block, internal)
        self.shadow.forget(MEM, block.base, block.base + block.size)
        for hook in self._hooks["allocated"]:
            hook(block, internal)

    def freed(self, block: Block) -> None:
        internal = block.base in self.names.internal
        for hook in self._hooks["freed"]:
            hook(block, internal)
        self.names.remove(block)
        self.shadow.forget(MEM, block.base, block.base + block.size)

    def released(self, release: Release) -> None:
        for hook in self._hooks["released"]:
            hook(release)
        if release.kind != "cached" and (release.kind != "freed" or release.lane is None):
            self.shadow.forget(MEM, release.start, release.start + release.length)

    def note(self, note: Note) -> None:
        for hook in self._hooks["note"]:
            hook(note)


def _joined(accesses: Sequence[Access]) -> Sequence[Access]:
    """Three reads of neighbouring slots as one."""
    space, start, length, write = accesses[0]
    if accesses[1].start == start + length and accesses[2].start == start + 2 * length:
        return (Access(space, start, 3 * length, write),)
    return accesses
