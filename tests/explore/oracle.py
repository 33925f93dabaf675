"""What a program may do, found by walking its states. Knows nothing of the engine: the rules of streams, once more.

A state is what is left of the host's program, what is left in each queue, all memory and the log. From each state the
host or any lane whose first command may run takes a step; states that come again are not walked again.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from small_programs import CELLS, FILE, Program, compute

Marker = tuple[int, int]
DEADLOCK = ("deadlock",)
FAILED = -2
"""What is under way of an operation that failed."""


class State(NamedTuple):
    rest: tuple[Any, ...]
    queues: tuple[tuple[Any, ...], ...]  # of (command, deps)
    done: tuple[int, ...]
    submitted: tuple[int, ...]
    running: tuple[int, ...]  # by lane: the flag that its host function waits for, or -1
    device: tuple[int, ...]
    pinned: tuple[int, ...]
    signals: tuple[int, ...]
    file: tuple[int, ...]
    slots: tuple[tuple[int, int], ...]  # (file offset, bytes done) of each operation
    flights: tuple[tuple[int, int], ...]  # (file offset as bound, byte under way or -1) of each operation
    events: tuple[tuple[int, Marker], ...]
    flags: tuple[bool, ...]
    calls: int  # system calls that count for the fault
    scratch: int  # what a synchronous operation holds in its host buffer; -1: nothing
    log: tuple[Any, ...]


class Raised(Exception):
    pass


class Oracle:
    """All outcomes of a program, and how many schedules lead to them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._memo: dict[State, tuple[frozenset[Any], int]] = {}
        lanes = len(program.streams)
        sys.setrecursionlimit(10_000)
        self.outcomes, self.schedules = self._walk(
            State(
                (*program.ops, ("sync_device",)),
                ((),) * lanes,
                (0,) * lanes,
                (0,) * lanes,
                (-1,) * lanes,
                (0,) * CELLS,
                (0,) * CELLS,
                (0, 0),
                tuple(range(100, 100 + FILE)) if program.uses_file else (),
                (),
                (),
                (),
                (False, False),
                0,
                -1,
                (),
            )
        )
        self.states = len(self._memo)

    def _walk(self, state: State) -> tuple[frozenset[Any], int]:
        known = self._memo.get(state)
        if known is not None:
            return known
        found: set[Any] = set()
        schedules = 0
        if not state.rest:
            signals = bytes(state.signals)
            memory = (bytes(state.device), bytes(state.pinned), signals, bytes(state.file))
            found.add((state.log, *memory, tuple(done for _, done in state.slots)))
            schedules = 1
        else:
            steps = [self._host] if self._host_can(state) else []
            steps += [
                lambda s, lane=lane: self._lane(s, lane) for lane in range(len(state.done)) if self._can(state, lane)
            ]
            if not steps:
                found.add(DEADLOCK)
                schedules = 1
            for step in steps:
                try:
                    outcomes, count = self._walk(step(state))
                except Raised as raised:
                    outcomes, count = frozenset([("raised", str(raised))]), 1
                found |= outcomes
                schedules += count
        result = self._memo[state] = frozenset(found), schedules
        return result

    # -- lanes -------------------------------------------------------------------------------------------------------

    def _complete(self, state: State, marker: Marker) -> bool:
        return state.done[marker[0]] >= marker[1]

    def _can(self, state: State, lane: int) -> bool:
        if state.running[lane] >= 0:
            return state.flags[state.running[lane]]
        if not state.queues[lane]:
            return False
        (name, *args), deps = state.queues[lane][0]
        if not all(self._complete(state, dep) for dep in deps):
            return False
        if name == "wait_value":
            signal, value, flag = args
            return state.signals[signal] >= value if flag == 0 else state.signals[signal] == value
        busy = self.program.one_thread and any(flag >= 0 for flag in state.running)
        return not (busy and name.startswith(("hostfn", "bind", "file_", "advance", "publish")))

    def _lane(self, state: State, lane: int) -> State:
        (name, *args), _ = state.queues[lane][0]
        if name == "hostfn_block" and state.running[lane] < 0 and not state.flags[args[0]]:
            return state._replace(running=_put(state.running, lane, args[0]))
        state = state._replace(
            queues=_put(state.queues, lane, state.queues[lane][1:]),
            done=_put(state.done, lane, state.done[lane] + 1),
            running=_put(state.running, lane, -1),
        )
        return getattr(self, f"_run_{name}", lambda s, *_: s)(state, *args)

    def _run_kernel(self, state: State, kind: str, to: int, origin: int, value: int) -> State:
        memory = list(state.device)
        compute(kind, memory, to, origin, value)
        return state._replace(device=tuple(memory))

    def _run_copy_out(self, state: State, to: int, origin: int) -> State:
        return state._replace(pinned=_put(state.pinned, to, state.device[origin]))

    def _run_copy_in(self, state: State, to: int, origin: int) -> State:
        return state._replace(device=_put(state.device, to, state.pinned[origin]))

    def _run_write_value(self, state: State, signal: int, value: int) -> State:
        return state._replace(signals=_put(state.signals, signal, value))

    def _run_hostfn(self, state: State, cell: int, value: int) -> State:
        now = state.pinned[cell]
        return state._replace(log=(*state.log, now), pinned=_put(state.pinned, cell, (now * 3 + value) % 251))

    def _run_hostfn_check(self, state: State, cell: int, value: int) -> State:
        if state.pinned[cell] == value:
            raise Raised("HostFunctionError")
        return state

    def _run_bind(self, state: State, number: int) -> State:
        return state._replace(flights=_put(state.flights, number, (state.slots[number][0], -1)))

    def _call(self, state: State, name: str) -> tuple[State, bool]:
        """A system call of an asynchronous operation, and whether it fails."""
        fault = self.program.fault
        if fault is None or fault[0] != name:
            return state, False
        return state._replace(calls=state.calls + 1), state.calls + 1 == fault[1]

    def _run_file_read(self, state: State, number: int, cell: int) -> State:
        state, failed = self._call(state, "pread")
        offset = state.flights[number][0]
        byte = state.file[offset] if offset < len(state.file) else -1
        return state._replace(flights=_put(state.flights, number, (offset, FAILED if failed else byte)))

    def _run_to_device(self, state: State, number: int, cell: int) -> State:
        byte = state.flights[number][1]
        return state if byte < 0 else state._replace(device=_put(state.device, cell, byte))

    def _run_from_device(self, state: State, number: int, cell: int) -> State:
        return state._replace(flights=_put(state.flights, number, (state.flights[number][0], state.device[cell])))

    def _run_file_write(self, state: State, number: int, cell: int) -> State:
        offset, byte = state.flights[number]
        state, failed = self._call(state, "pwrite")
        if failed:
            return state._replace(flights=_put(state.flights, number, (offset, FAILED)))
        return self._write(state, offset, byte)

    def _write(self, state: State, offset: int, byte: int) -> State:
        file = state.file + (0,) * (offset + 1 - len(state.file))
        return state._replace(file=_put(file, offset, byte))

    def _run_sync_in(self, state: State, cell: int) -> State:
        return state._replace(device=_put(state.device, cell, state.scratch))

    def _run_sync_out(self, state: State, cell: int) -> State:
        return state._replace(scratch=state.device[cell])

    def _run_publish(self, state: State, number: int) -> State:
        byte = state.flights[number][1]
        value = -1 if byte == FAILED else int(byte >= 0)
        return state._replace(slots=_put(state.slots, number, (state.slots[number][0], value)))

    # -- the host ----------------------------------------------------------------------------------------------------

    def _tails(self, state: State, lane: int) -> list[Marker]:
        """What a wait for `lane` waits for."""
        kinds = self.program.streams
        lanes = [lane] + [n for n, kind in enumerate(kinds) if kinds[lane] == "null" and kind == "blocking"]
        return [(n, state.submitted[n]) for n in lanes]

    def _host_can(self, state: State) -> bool:
        name, *args = state.rest[0]
        targets: list[Marker] = []
        if name == "sync":
            targets = self._tails(state, args[0])
        elif name == "sync_event":
            targets = [dict(state.events)[args[0]]]
        elif name == "sync_device":
            targets = list(enumerate(state.submitted))
        elif name == "wait_null":
            targets = [(0, state.submitted[0])]
        return all(self._complete(state, target) for target in targets)

    def _submit(self, state: State, lane: int, command: tuple[Any, ...], deps: tuple[Marker, ...] = ()) -> State:
        kinds = self.program.streams
        if kinds[lane] == "null":
            deps += tuple((n, state.submitted[n]) for n, kind in enumerate(kinds) if kind == "blocking")
        elif kinds[lane] == "blocking":
            deps += tuple((n, state.submitted[n]) for n, kind in enumerate(kinds) if kind == "null")
        return state._replace(
            queues=_put(state.queues, lane, (*state.queues[lane], (command, deps))),
            submitted=_put(state.submitted, lane, state.submitted[lane] + 1),
        )

    def _host(self, state: State) -> State:
        op, *rest = state.rest
        state = state._replace(rest=tuple(rest))
        name, *args = op
        log = state.log
        if name in (
            "kernel",
            "copy_out",
            "copy_in",
            "write_value",
            "wait_value",
            "hostfn",
            "hostfn_check",
            "hostfn_block",
        ):
            return self._submit(state, args[0], (name, *args[1:]))
        if name == "record":
            lane, event = args
            state = self._submit(state, lane, (name,))
            events = dict(state.events) | {event: (lane, state.submitted[lane])}
            return state._replace(events=tuple(sorted(events.items())))
        if name == "wait":
            return self._submit(state, args[0], (name,), (dict(state.events)[args[1]],))
        if name in ("io_read", "io_write"):
            return self._io(state, name, *args)
        if name == "sync_read":  # it reads, copies with hipMemcpy, and that waits
            cell, offset = args
            if offset >= len(state.file):
                return self._answer(state, 0)
            return state._replace(
                scratch=state.file[offset], rest=(("memcpy", "sync_in", cell), ("wait_null",), ("moved",), *rest)
            )
        if name == "sync_write":
            cell, offset = args
            rest = [("memcpy", "sync_out", cell), ("wait_null",), ("sync", 0), ("pwrite", offset), ("moved",), *rest]
            return self._host(state._replace(rest=tuple(rest)))
        if name == "memcpy":
            return self._submit(state, 0, tuple(args))
        if name == "pwrite":
            return self._write(state, args[0], state.scratch)
        if name == "moved":
            return state._replace(scratch=-1, log=(*log, 1))
        if name == "branch":
            event, then, otherwise = args
            return self._host(state._replace(rest=(then if self._ready(state, event) else otherwise, *rest)))
        if name == "query":
            ready = all(self._complete(state, marker) for marker in self._tails(state, args[0]))
            return self._answer(state, 0 if ready else 600)
        if name == "query_event":
            return self._answer(state, 0 if self._ready(state, args[0]) else 600)
        if name == "answer":
            return state._replace(log=(*log, *args))
        if name in ("read", "peek"):
            return state._replace(log=(*log, state.pinned[args[0]]))
        if name == "look":
            return state._replace(log=(*log, state.device[args[0]]))
        if name == "poke":
            return state._replace(pinned=_put(state.pinned, *args))
        if name == "signal":
            return state._replace(signals=_put(state.signals, *args))
        if name == "check":
            if state.pinned[args[0]] == args[1]:
                raise Raised("AssertionError")
            return state
        if name == "set_flag":
            return state._replace(flags=_put(state.flags, args[0], True))
        if name == "set_offset":
            number, offset = args
            return state._replace(slots=_put(state.slots, number, (offset, state.slots[number][1])))
        if name == "bytes_done":
            return state._replace(log=(*log, state.slots[args[0]][1]))
        if name == "file":
            return state._replace(log=(*log, bytes(state.file[args[0] : args[0] + 1])))
        assert name.startswith("sync") or name == "wait_null", name
        return state

    def _answer(self, state: State, value: int) -> State:
        """What a call found. The device may move before the caller writes it down; only a host function could tell."""
        if any(op[0] == "hostfn" for op in self.program.ops):
            return state._replace(rest=(("answer", value), *state.rest))
        return state._replace(log=(*state.log, value))

    def _ready(self, state: State, event: int) -> bool:
        return self._complete(state, dict(state.events)[event])

    def _io(self, state: State, name: str, lane: int, cell: int, offset: int) -> State:
        number = len(state.slots)
        state = state._replace(slots=(*state.slots, (offset, 0)), flights=(*state.flights, (offset, -1)))
        if lane not in self.program.registered:
            state = self._submit(state, lane, ("bind", number))
        moves = ("file_read", "to_device") if name == "io_read" else ("from_device", "file_write")
        for move in moves:
            state = self._submit(state, lane, (move, number, cell))
        for last in ("advance", "publish"):
            state = self._submit(state, lane, (last, number))
        return state


def _put(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])
