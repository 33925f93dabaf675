"""Random small programs as data, and how to run one on a machine. `oracle` says what they may do, without a machine.

An operation of the host is a tuple that begins with its name. Memory is cells of one byte: of the device, pinned,
signals (pinned or on the device) and of a file. What a run gives is the log of everything that the host saw, and all
memory at the end.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable
from ctypes import addressof, c_int64
from dataclasses import dataclass, field
from typing import Any

from hipfile_mock import current, faults
from hipfile_mock.faces.hipfile import _hipfile
from hipfile_mock.faces.hipfile._hipfile import AsyncIOHandle
from hipfile_sim import Machine
from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.hip.settings import HipSettings

CELLS = 3
FILE = 3
"""Bytes of the file; cell number `FILE` lies past its end."""
Op = tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """What to do.

    Parameters
    ----------
    streams : tuple of str
        ``"null"``, ``"blocking"`` or ``"free"`` (non-blocking), by lane.
    ops : tuple
        Of the host, in order.
    registered : frozenset of int
        Lanes that are registered with hipFile with all values fixed.
    device_signals : bool
        Signals lie in device memory, where the host does not see them.
    one_thread : bool
        One thread runs all host functions.
    announced : bool
        The host says what it touches before it does.
    handles : bool
        Slots are those of the doubles' ``AsyncIOHandle``.
    fault : (str, int) or None
        The system call of a file operation that fails, and which of them.
    """

    streams: tuple[str, ...]
    ops: tuple[Op, ...]
    registered: frozenset[int] = field(default_factory=frozenset)
    device_signals: bool = False
    one_thread: bool = False
    announced: bool = False
    handles: bool = False
    fault: tuple[str, int] | None = None

    @property
    def uses_file(self) -> bool:
        return any(op[0] in FILE_OPS for op in self.ops)

    @property
    def commands(self) -> int:
        """How many commands it puts into streams, those of hipFile's operations counted as one."""
        return sum(op[0] in SUBMITTING for op in self.ops)


SUBMITTING = {
    "kernel",
    "copy_out",
    "copy_in",
    "record",
    "wait",
    "write_value",
    "wait_value",
    "hostfn",
    "hostfn_check",
    "hostfn_block",
    "io_read",
    "io_write",
    "sync_read",
    "sync_write",
    "branch",
}
FILE_OPS = {"io_read", "io_write", "sync_read", "sync_write"}


def compute(kind: str, memory: Any, to: int, origin: int, value: int) -> None:
    """What a kernel does to device memory."""
    if kind == "set":
        memory[to] = value
    elif kind == "mix":
        memory[to] = (memory[to] * 3 + value) % 251
    else:
        memory[to] = (memory[origin] + 1) % 251


class World:
    """Everything of one run."""

    def __init__(self, program: Program, machine: Machine, path: str) -> None:
        self.program = program
        self.machine = machine
        hip = self.hip = machine.hip
        self.device = hip.hipMalloc(CELLS)[1]
        self.pinned = hip.hipHostMalloc(CELLS)[1]
        self.signals = (hip.hipMalloc if program.device_signals else hip.hipHostMalloc)(8)[1]
        self.device_view = machine.memory.view(self.device, CELLS)
        self.pinned_view = machine.memory.view(self.pinned, CELLS)
        self.signal_view = machine.memory.view(self.signals, 8)
        for view in (self.device_view, self.pinned_view, self.signal_view):
            view[:] = bytes(len(view))
        make = {
            "null": lambda: 0,
            "blocking": lambda: hip.hipStreamCreate()[1],
            "free": lambda: hip.hipStreamCreateWithFlags(1)[1],
        }
        self.streams = [make[kind]() for kind in program.streams]
        self.events: dict[int, int] = {}
        self.flags = [threading.Event() for _ in range(2)]
        self.log: list[Any] = []
        self.slots: list[Any] = []
        self.fd = -1
        if program.uses_file:
            self.fd = os.open(path, os.O_RDWR)
            if os.fstat(self.fd).st_size > FILE:
                os.ftruncate(self.fd, FILE)
            os.pwrite(self.fd, bytes(range(100, 100 + FILE)), 0)
            machine.hipfile.hipFileDriverOpen()
            self.handle = machine.hipfile.hipFileHandleRegister(FileDescr(1, self.fd))[1]
            machine.hipfile.hipFileBufRegister(self.device, CELLS, 0)
            for lane in program.registered:
                machine.hipfile.hipFileStreamRegister(self.streams[lane], 7)
            if program.fault is not None:
                name, nth = program.fault
                faults.on(name, nth=nth, kind="async", optional=True).errno(errno.EIO).attach(machine)

    def run(self) -> Any:
        try:
            for op in self.program.ops:
                self.do(op)
            self.hip.hipDeviceSynchronize()
            memory = (bytes(self.device_view), bytes(self.pinned_view), bytes(self.signal_view[:8:4]))
            file = os.pread(self.fd, FILE + 1, 0) if self.fd >= 0 else b""
            return tuple(self.log), *memory, file, tuple(map(self._result, range(len(self.slots))))
        finally:
            for flag in self.flags:
                flag.set()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def do(self, op: Op) -> None:
        getattr(self, op[0])(*op[1:])

    # -- commands ----------------------------------------------------------------------------------------------------

    def kernel(self, lane: int, kind: str, to: int, origin: int, value: int) -> None:
        reads = {"set": [], "mix": [to], "move": [origin]}[kind]
        self.hip.launch(
            self.streams[lane],
            lambda: compute(kind, self.device_view, to, origin, value),
            reads=[(self.device + cell, 1) for cell in reads],
            writes=[(self.device + to, 1)],
        )

    def copy_out(self, lane: int, to: int, origin: int) -> None:
        self.hip.hipMemcpyAsync(self.pinned + to, self.device + origin, 1, 2, self.streams[lane])

    def copy_in(self, lane: int, to: int, origin: int) -> None:
        self.hip.hipMemcpyAsync(self.device + to, self.pinned + origin, 1, 1, self.streams[lane])

    def record(self, lane: int, event: int) -> None:
        if event not in self.events:
            self.events[event] = self.hip.hipEventCreate()[1]
        self.hip.hipEventRecord(self.events[event], self.streams[lane])

    def wait(self, lane: int, event: int) -> None:
        self.hip.hipStreamWaitEvent(self.streams[lane], self.events[event], 0)

    def write_value(self, lane: int, signal: int, value: int) -> None:
        self.hip.hipStreamWriteValue32(self.streams[lane], self.signals + 4 * signal, value)

    def wait_value(self, lane: int, signal: int, value: int, flag: int) -> None:
        self.hip.hipStreamWaitValue32(self.streams[lane], self.signals + 4 * signal, value, flag)

    def hostfn(self, lane: int, cell: int, value: int) -> None:
        def function(_: Any) -> None:
            self.log.append(self.pinned_view[cell])
            self.pinned_view[cell] = (self.pinned_view[cell] * 3 + value) % 251

        self.hip.hipLaunchHostFunc(self.streams[lane], function)

    def hostfn_check(self, lane: int, cell: int, value: int) -> None:
        def function(_: Any) -> None:
            if self.pinned_view[cell] == value:
                raise ValueError

        self.hip.hipLaunchHostFunc(self.streams[lane], function)

    def hostfn_block(self, lane: int, flag: int) -> None:
        self.hip.hipLaunchHostFunc(self.streams[lane], lambda _: self.flags[flag].wait())

    def io_read(self, lane: int, cell: int, offset: int) -> None:
        self._io(self.machine.hipfile.hipFileReadAsync, lane, cell, offset)

    def io_write(self, lane: int, cell: int, offset: int) -> None:
        self._io(self.machine.hipfile.hipFileWriteAsync, lane, cell, offset)

    def _io(self, call: Callable[..., Any], lane: int, cell: int, offset: int) -> None:
        if self.program.handles:
            io = AsyncIOHandle(1, offset, cell)
            self.slots.append(io)
            code = getattr(_hipfile, call.__name__)(self.handle, self.device, io, self.streams[lane])[0]
        else:
            slot = (c_int64 * 4)(1, offset, cell, -77)
            self.slots.append(slot)
            at = addressof(slot)
            code = call(self.handle, self.device, at, at + 8, at + 16, at + 24, self.streams[lane]).err
        assert not code, code

    def sync_read(self, cell: int, offset: int) -> None:
        self.log.append(self.machine.hipfile.hipFileRead(self.handle, self.device, 1, offset, cell).count)

    def sync_write(self, cell: int, offset: int) -> None:
        self.log.append(self.machine.hipfile.hipFileWrite(self.handle, self.device, 1, offset, cell).count)

    # -- the host ----------------------------------------------------------------------------------------------------

    def _touches(self, address: int, length: int, *, write: bool = False) -> None:
        """A moment at which the device may move, and in programs that announce, what the host does then."""
        if self.program.announced:
            self.machine.host_access(address, length, write=write, what="host")
        else:
            self.hip.hipGetLastError()

    def branch(self, event: int, then: Op, otherwise: Op) -> None:
        self.do(then if self.hip.hipEventQuery(self.events[event]) == 0 else otherwise)

    def query(self, lane: int) -> None:
        self.log.append(int(self.hip.hipStreamQuery(self.streams[lane])))

    def query_event(self, event: int) -> None:
        self.log.append(int(self.hip.hipEventQuery(self.events[event])))

    def read(self, cell: int) -> None:
        self.machine.host_access(self.pinned + cell, 1, write=False, what="read")
        self.log.append(self.pinned_view[cell])

    def peek(self, cell: int) -> None:
        self._touches(self.pinned + cell, 1)
        self.log.append(self.pinned_view[cell])

    def look(self, cell: int) -> None:
        """At device memory, announced."""
        self.machine.host_access(self.device + cell, 1, write=False, what="look")
        self.log.append(self.device_view[cell])

    def poke(self, cell: int, value: int) -> None:
        self._touches(self.pinned + cell, 1, write=True)
        self.pinned_view[cell] = value

    def signal(self, signal: int, value: int) -> None:
        self.machine.host_access(self.signals + 4 * signal, 4, write=True, what="signal")
        self.signal_view[4 * signal] = value

    def check(self, cell: int, value: int) -> None:
        self._touches(self.pinned + cell, 1)
        assert self.pinned_view[cell] != value

    def set_flag(self, flag: int) -> None:
        self.hip.hipGetLastError()
        self.flags[flag].set()

    def set_offset(self, number: int, offset: int) -> None:
        slot = self.slots[number]
        if self.program.handles:
            slot.file_offset = offset
        else:
            self._touches(addressof(slot) + 8, 8, write=True)
            slot[1] = offset

    def bytes_done(self, number: int) -> None:
        self.log.append(self._result(number))

    def _result(self, number: int) -> int:
        slot = self.slots[number]
        if self.program.handles:
            return int(slot.bytes_done)
        self._touches(addressof(slot) + 24, 8)
        return int(slot[3])

    def file(self, cell: int) -> None:
        self.hip.hipGetLastError()
        self.log.append(os.pread(self.fd, 1, cell))

    def sync(self, lane: int) -> None:
        self.hip.hipStreamSynchronize(self.streams[lane])

    def sync_event(self, event: int) -> None:
        self.hip.hipEventSynchronize(self.events[event])

    def sync_device(self) -> None:
        self.hip.hipDeviceSynchronize()


def make_body(program: Program, path: str) -> Callable[[Machine], Any]:
    """The program as `explore` takes it."""

    def body(machine: Machine) -> Any:
        current.push(machine)  # for the handles
        try:
            world = World(program, machine, path)
            try:
                return world.run()
            finally:
                world.close()
        finally:
            current.pop(machine)

    return body


def machine_options(program: Program) -> dict[str, Any]:
    """Of the machine that a program runs on."""
    threads = "one" if program.one_thread else "per-stream"
    return {
        "devices": 1,
        "env": {"HIPFILE_ASYNC_BUFFER_SIZE": "4096"},
        "settings": HipSettings(host_function_threads=threads),
        "watchdog_s": 0.1,
    }


def plain(outcome: Any) -> Any:
    """An outcome without the text of an error."""
    return outcome[:2] if outcome and outcome[0] == "raised" else outcome


#: How likely each operation is, by the kind of program.
WEIGHTS: dict[str, dict[str, float]] = {
    "device": {"kernel": 6, "record": 1.5, "wait": 2, "sync": 0.5, "write_value": 0.5, "wait_value": 0.5},
    "host": {
        "kernel": 4, "copy_out": 1.5, "copy_in": 1, "record": 1, "wait": 1, "sync": 1, "sync_event": 0.5,
        "read": 1, "peek": 0.5, "poke": 0.6, "query": 0.5, "query_event": 0.5, "hostfn": 0.5, "look": 0.4,
    },
    "values": {
        "kernel": 3, "write_value": 3, "wait_value": 2.5, "signal": 0.7, "record": 0.5, "wait": 0.5, "sync": 0.5,
    },
    "files": {
        "kernel": 3, "io_read": 1, "io_write": 1, "record": 1, "wait": 1, "sync": 1, "bytes_done": 0.8,
        "set_offset": 0.5, "file": 0.3,
    },
    "branches": {"kernel": 4, "record": 2, "wait": 1, "branch": 1.5, "query": 0.7, "query_event": 0.7, "sync": 0.5},
    "failures": {
        "kernel": 2, "copy_out": 2, "check": 1.5, "hostfn_check": 1, "record": 1, "wait": 1, "sync": 1, "copy_in": 1,
        "wait_value": 0.3, "write_value": 0.5,
    },
    "announced": {
        "kernel": 2.5, "io_read": 1, "io_write": 1, "record": 1, "wait": 1, "sync": 0.7, "bytes_done": 0.8,
        "set_offset": 0.6, "copy_out": 0.7, "copy_in": 0.4, "peek": 0.5, "poke": 0.4, "look": 0.3, "query": 0.3,
        "query_event": 0.3, "sync_event": 0.3, "hostfn": 0.3, "sync_read": 0.4, "sync_write": 0.4, "check": 0.2,
    },
    "faults": {
        "kernel": 1.5, "io_read": 1, "io_write": 1.5, "record": 0.7, "wait": 0.7, "sync": 0.5, "bytes_done": 0.5,
    },
    "blocks": {"kernel": 3, "hostfn_block": 2, "set_flag": 2, "hostfn": 0.7, "record": 1, "wait": 1, "sync": 0.4},
}  # fmt: skip
WEIGHTS["handles"] = WEIGHTS["files"]
MOST: dict[str, int] = {
    "device": 10, "host": 7, "values": 8, "files": 6, "branches": 8, "failures": 7, "blocks": 5, "announced": 7,
    "handles": 6, "faults": 5,
}  # fmt: skip
"""Most commands of a program, by kind."""


def generate(seed: int, kind: str) -> Program:
    """The random program of a seed."""
    rng = random.Random(f"{kind}-{seed}")
    weights = WEIGHTS[kind]
    streams = tuple(
        "null" if lane == 0 and rng.random() < 0.2 else rng.choice(("free", "free", "blocking"))
        for lane in range(rng.randint(2, 4))
    )
    lanes = range(len(streams))
    wanted = rng.randint(2, MOST[kind])
    ops: list[Op] = []
    events: list[int] = []
    operations = flags = 0

    def simple(value: int) -> Op:
        return (
            "kernel",
            rng.choice(lanes),
            rng.choice(("set", "mix", "move")),
            *(rng.randrange(CELLS) for _ in "ab"),
            value,
        )

    while sum(op[0] in SUBMITTING for op in ops) < wanted and len(ops) < 3 * wanted:
        name = rng.choices(list(weights), list(weights.values()))[0]
        lane, cell, other, value = rng.choice(lanes), rng.randrange(CELLS), rng.randrange(CELLS), len(ops) + 1
        if name == "kernel":
            ops.append(simple(value))
        elif name in ("copy_out", "copy_in"):
            ops.append((name, lane, cell, other))
        elif name == "record":
            event = rng.choice([*events, len(events)])
            if event == len(events):
                events.append(event)
            ops.append((name, lane, event))
        elif name == "wait" and events:
            ops.append((name, lane, rng.choice(events)))
        elif name == "branch" and events:
            ops.append((name, rng.choice(events), simple(value), simple(value + 100)))
        elif name in ("query_event", "sync_event") and events:
            ops.append((name, rng.choice(events)))
        elif name in ("hostfn", "poke"):
            ops.append((name, lane, cell, value) if name == "hostfn" else (name, cell, value))
        elif name in ("check", "hostfn_check"):
            known = rng.choice([0, *(op[-1] for op in ops if op[0] == "kernel")])
            ops.append((name, cell, known) if name == "check" else (name, lane, cell, known))
        elif name in ("query", "sync"):
            ops.append((name, lane))
        elif name in ("read", "peek", "look"):
            ops.append((name, cell))
        elif name == "write_value":
            ops.append((name, lane, rng.randrange(2), rng.randint(0, 2)))
        elif name == "wait_value":
            ops.append((name, lane, rng.randrange(2), rng.randint(1, 2), rng.randint(0, 1)))
        elif name == "signal":
            ops.append((name, rng.randrange(2), rng.randint(0, 2)))
        elif name in ("io_read", "io_write"):
            ops.append((name, lane, cell, rng.randrange(FILE + 1)))
            operations += 1
        elif name in ("sync_read", "sync_write") and streams[0] == "null":
            ops.append((name, cell, rng.randrange(FILE + 1)))
        elif name == "bytes_done" and operations:
            ops.append((name, rng.randrange(operations)))
        elif name == "set_offset" and operations:
            ops.append((name, rng.randrange(operations), rng.randrange(FILE)))
        elif name == "file" and operations:
            ops.append((name, cell))
        elif name == "hostfn_block":
            ops.append((name, lane, rng.randrange(2)))
        elif name == "set_flag" and flags < 2:
            ops.append((name, flags))
            flags += 1
    return Program(
        streams,
        tuple(ops),
        frozenset(lane for lane in lanes if rng.random() < 0.5),
        device_signals=kind != "values" or rng.random() < 0.5,
        one_thread=kind == "blocks" and rng.random() < 0.5,
        announced=kind == "announced" or (kind == "faults" and rng.random() < 0.5),
        handles=kind == "handles" or (kind in ("announced", "faults") and rng.random() < 0.5),
        fault=(rng.choice(("pread", "pwrite")), rng.randint(1, 2)) if kind == "faults" else None,
    )
