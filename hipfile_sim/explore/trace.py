"""What one run did, as transitions of processes: the host, and each lane.

A transition of a lane is one command. A transition of the host is everything between two moments at which a device
could have moved. The order between transitions that depend on each other is what tells two runs apart.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hipfile_sim.engine.command import Access, Command, Marker
from hipfile_sim.engine.schedules import HOST, Point
from hipfile_sim.explore.footprint import HOST_THREAD, LIBRARY_STATE, Footprint, Places

if TYPE_CHECKING:
    from hipfile_sim.machine import Machine

ASKING = frozenset({"hipFileBatchIOSubmit", "hipFileBatchIOGetStatus", "hipFileBatchIOCancel", "hipFileBatchIODestroy"})
"""Calls that look at the progress of lanes of their own."""


COUNTED = frozenset({"hipMemcpy", "hipFileRead", "hipFileWrite"})
"""Calls that do what commands of a library do, too, and what faults count."""
UNCOUNTED = frozenset({"bind", "advance", "memcpy_kernel"})
"""Commands of a library that no fault counts."""


class Transition:
    """One step of one process in a run.

    Attributes
    ----------
    index : int
        Position in the run; -1 while it is not over.
    process : int
        Lane index, or `HOST`.
    number : int
        It is the process's number-th transition, from 1.
    state : int or None
        Number of the choice that picked it; None when there was nothing to choose.
    footprint : Footprint
        What it touches.
    before, clock : dict
        Vector clock of all that must precede it; and of all that precedes it in equivalent runs, itself included.
    enabling : list of Transition
        Without these it cannot happen.
    conditional : bool
        Others can make it impossible and possible again.
    woken : list of Transition
        What the host found complete when it came to wait for it.
    wake : bool
        The host returns from a wait that blocked it: it goes on as soon as it can, so this is no step of its own.
    """

    __slots__ = (
        "before",
        "clock",
        "conditional",
        "enabling",
        "footprint",
        "index",
        "number",
        "process",
        "state",
        "wake",
        "woken",
    )

    def __init__(self, process: int, number: int, state: int | None, footprint: Footprint) -> None:
        self.index = -1
        self.process = process
        self.number = number
        self.state = state
        self.footprint = footprint
        self.before: dict[int, int] = {}
        self.clock: dict[int, int] = {}
        self.enabling: list[Transition] = []
        self.conditional = False
        self.woken: list[Transition] = []
        self.wake = False

    def precedes(self, other: Transition) -> bool:
        """Whether it comes before `other` in every run that is equivalent to this one."""
        return other.clock.get(self.process, 0) >= self.number


def join(clock: dict[int, int], other: dict[int, int]) -> None:
    """Raise `clock` to at least `other`."""
    for process, number in other.items():
        if clock.get(process, 0) < number:
            clock[process] = number


class RunTrace:
    """Collects the transitions of a run; the `Tracker` of an exploring schedule.

    Parameters
    ----------
    on_transition : callable, optional
        Called with each transition as soon as its footprint and clocks are known.
    host : str
        ``"opaque"``: code of the program may look at anything that the host can see. ``"announced"``: it looks where
        it says so, and nowhere else.

    Attributes
    ----------
    places : Places
        Names of memory and files that mean the same in every run.
    off : bool
        The run has been given up; what its cleanup does is of no interest.
    """

    def __init__(self, on_transition: Callable[[Transition], None] | None = None, host: str = "opaque") -> None:
        self._machine: Machine | None = None
        self._opaque = host == "opaque"
        self.transitions: list[Transition] = []
        self.places = Places()
        self.off = False
        self._on_transition = on_transition
        self._last: dict[int, Transition] = {}
        self._commands: dict[tuple[int, int], Transition] = {}
        self._submitters: dict[tuple[int, int], Transition] = {}
        self._inquisitive: set[Command] = set()
        self._one_thread = False
        self._library = False
        self._inside = 0
        self._state: int | None = None
        self._host = self._open_host()

    def attach(self, machine: Machine) -> None:
        """The run is on `machine`."""
        self._machine = weakref.proxy(machine)  # its engine has this object
        self.places.memory = machine.memory
        self._one_thread = machine.engine.host_threads == "one"

    # -- told by the exploring schedule ------------------------------------------------------------------------------

    def at(self, point: Point) -> None:
        """The run is at a point. Where the host waits, its transition so far is over."""
        if point.kind != "host":
            self.settle_host()

    def chose(self, process: int, state: int | None) -> None:
        """The schedule picked `process`; `state` numbers the choice."""
        if process == HOST:
            self._host.state = state
        else:
            self._state = state

    def settle_host(self) -> None:
        """Close the host's current transition, if it is open."""
        if self._host.index < 0:
            self._add(self._host)

    def blocked(self, command: Command) -> Transition:
        """The transition that `command`, which cannot run now, would be."""
        lane = command.lane.index
        transition = self._next(lane, None, self._footprint(command))
        transition.footprint.ends = (lane, command.ticket)
        transition.conditional = True
        transition.enabling = self._enablers(command)
        self._clocks(transition)
        transition.index = len(self.transitions)
        return transition

    # -- Tracker -----------------------------------------------------------------------------------------------------

    def called(self, what: str, before: bool) -> None:
        if self.off:
            return
        if what in ASKING:
            self._host.footprint.asks_all = True
        if what in COUNTED and self._faulty():
            footprint = self._host.footprint
            footprint.accesses = (*footprint.accesses, _COUNTED)
        self.settle_host()
        self._library = before
        self._host = self._open_host()
        if what in ASKING:
            self._host.footprint.asks_all = True

    def entered(self) -> None:
        self._inside += 1

    def left(self, *, at_once: bool) -> None:
        self._inside -= 1
        if at_once:
            self._host.footprint.visible = True
            self._host.footprint.arbitrary = self._opaque

    def asked(self, targets: Sequence[Marker]) -> None:
        footprint = self._host.footprint
        footprint.asked = footprint.asked.union((lane.index, ticket) for lane, ticket in targets)

    def asked_inside(self, command: Command) -> None:
        self._inquisitive.add(command)

    def touched(self, access: Access) -> None:
        if self.off:
            return
        assert self._machine is not None
        inside = self._machine.engine.host_function
        if inside is not None:
            self._inquisitive.add(inside)
            return
        footprint = self._host.footprint
        footprint.accesses = (*footprint.accesses, self.places.name(access))

    def guarded(self, address: int, length: int) -> None:
        self.places.guard(address, length)

    def unguarded(self, address: int) -> None:
        self.places.unguard(address)

    def meddled(self) -> None:
        self._host.footprint.asks_all = True

    def submitted(self, command: Command) -> None:
        if self.off:
            return
        if self._host.index >= 0:  # inside a call that has waited
            self._host = self._open_host()
        self._submitters[command.lane.index, command.ticket] = self._host
        for access in command.accesses():
            self.places.name(access)  # names follow the order of submission, which does not depend on the schedule

    def began(self, command: Command) -> None:
        if self.off:
            return
        footprint = Footprint(visible=True, arbitrary=True, asks_all=command in self._inquisitive)
        if self._one_thread:
            footprint.accesses = (Access(HOST_THREAD, 0, 1, True),)
        self._step(command, footprint, self._enablers(command))

    def ran(self, command: Command) -> None:
        if self.off:
            return
        footprint = self._footprint(command)
        if self._machine is not None and self._machine.engine.fatal is not None:
            footprint.asks_all = True  # whatever the host does next fails
        key = (command.lane.index, command.ticket)
        footprint.ends = key
        last = self._last.get(key[0])
        if self._one_thread and command.external and last is not None and last.footprint.accesses[:1] == _TAKEN:
            footprint.accesses = _TAKEN  # it gives the thread back
        transition = self._step(command, footprint, self._enablers(command))
        self._submitters.pop(key, None)
        self._commands[key] = transition

    def waited(self, targets: Sequence[Marker]) -> None:
        if self.off:
            return
        if self._host.index >= 0:
            self._host = self._open_host()
            self._host.wake = True
        found = self._host.enabling if self._host.wake else self._host.woken
        for lane, ticket in targets:
            transition = self._commands.get((lane.index, ticket))
            if transition is not None:
                found.append(transition)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _footprint(self, command: Command) -> Footprint:
        touched = command.accesses()
        places = self.places
        visible = False
        for access in touched:
            if places.visible(access):
                visible = True
                break
        accesses = [places.name(access) for access in touched]
        if self._one_thread and command.on_host_thread:
            accesses.append(Access(HOST_THREAD, 0, 1, False))
        if command.library:
            accesses.append(_IN_USE)
            if command.kind not in UNCOUNTED and self._faulty():
                accesses.append(_COUNTED)
        # a kernel that declares nothing does something all the same
        unknown = command.external or (command.kind == "kernel" and not touched)
        return Footprint(accesses, visible=visible or unknown, arbitrary=unknown, asks_all=command in self._inquisitive)

    def _faulty(self) -> bool:
        """Whether somebody counts what the library does (the third write fails), so that order matters to it."""
        machine = self._machine
        if machine is None:
            return False
        driver = machine.hipfile
        return machine.hip.interpose is not None or driver.interpose is not None or driver.on_publish is not None

    def _enablers(self, command: Command) -> list[Transition]:
        submitter = self._submitters.get((command.lane.index, command.ticket))
        found = [] if submitter is None else [submitter]
        for lane, ticket in command.deps:
            transition = self._commands.get((lane.index, ticket))
            if transition is not None:
                found.append(transition)
        return found

    def _step(self, command: Command, footprint: Footprint, enabling: list[Transition]) -> Transition:
        transition = self._next(command.lane.index, self._state, footprint)
        transition.conditional = command.conditional or (self._one_thread and command.on_host_thread)
        transition.enabling = enabling
        self._state = None
        self._add(transition)
        return transition

    def _open_host(self) -> Transition:
        # between the points around a call that waits or asks, and within a call of a library, no code of the program
        # runs, but for what somebody has put between the program and the runtime
        mine = not (self._library or self._inside) or (self._inside > 0 and self._faulty())
        return self._next(HOST, None, Footprint(arbitrary=mine and self._opaque, visible=mine))

    def _next(self, process: int, state: int | None, footprint: Footprint) -> Transition:
        last = self._last.get(process)
        return Transition(process, last.number + 1 if last else 1, state, footprint)

    def _clocks(self, transition: Transition) -> None:
        before: dict[int, int] = {}
        last = self._last.get(transition.process)
        if last is not None:
            before.update(last.clock)
        for enabling in (*transition.enabling, *transition.woken):
            if enabling.index < 0:
                self._add(enabling)
            join(before, enabling.clock)
        transition.before = before
        clock = dict(before)
        clock[transition.process] = transition.number
        depends = transition.footprint.depends
        for earlier in reversed(self.transitions):
            if clock.get(earlier.process, 0) < earlier.number and depends(earlier.footprint):
                join(clock, earlier.clock)
        transition.clock = clock

    def _add(self, transition: Transition) -> None:
        self._clocks(transition)
        transition.index = len(self.transitions)
        self._last[transition.process] = transition
        self.transitions.append(transition)
        if self._on_transition is not None:
            self._on_transition(transition)


_TAKEN = (Access(HOST_THREAD, 0, 1, True),)
_IN_USE = Access(LIBRARY_STATE, 0, 1, False)
_COUNTED = Access(LIBRARY_STATE, 1, 1, True)
