"""What one run did, as transitions of processes: the host, and each lane.

A transition of a lane is one command. A transition of the host is everything between two moments at which a device could
have moved. The order between transitions that depend on each other is what tells two runs apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hipfile_sim.engine.command import MEM, Access, Command, Marker, Space
from hipfile_sim.engine.schedules import HOST, Point

if TYPE_CHECKING:
    from hipfile_sim.hip.memory import Block, Memory


class Footprint:
    """What a transition touches, as far as order matters.

    Attributes
    ----------
    accesses : tuple of Access
        Declared byte ranges.
    visible : bool
        It touches memory or files that host code can see.
    arbitrary : bool
        It runs user code on the host, which may look at anything that is visible.
    asks : bool
        The host asked how far a lane is.
    """

    __slots__ = ("accesses", "arbitrary", "asks", "visible")

    def __init__(
        self, accesses: Sequence[Access] = (), visible: bool = False, arbitrary: bool = False, asks: bool = False
    ) -> None:
        self.accesses = tuple(accesses)
        self.visible = visible
        self.arbitrary = arbitrary
        self.asks = asks

    def depends(self, other: Footprint) -> bool:
        """Whether the order of the two can matter. Transitions of one process always depend; that is not asked here."""
        if self.asks or other.asks:
            return True
        if self.arbitrary and (other.visible or other.arbitrary):
            return True
        if other.arbitrary and self.visible:
            return True
        if self.accesses and other.accesses:
            for mine in self.accesses:
                for theirs in other.accesses:
                    if mine.conflicts(theirs):
                        return True
        return False


class Transition:
    """One step of one process in a run.

    Attributes
    ----------
    index : int
        Position in the run.
    process : int
        Lane index, or `HOST`.
    number : int
        It is the process's number-th transition, from 1.
    before : dict
        Vector clock of all that precedes it by necessity or through dependence, itself not counted.
    state : int or None
        Number of the choice that picked it; None when there was nothing to choose.
    """

    __slots__ = ("before", "clock", "enabling", "footprint", "index", "number", "process", "state", "what")

    def __init__(self, index: int, process: int, number: int, state: int | None, what: str) -> None:
        self.index = index
        self.process = process
        self.number = number
        self.state = state
        self.what = what
        self.footprint = Footprint()
        self.before: dict[int, int] = {}
        self.clock: dict[int, int] = {}
        self.enabling: list[Transition] = []

    def precedes(self, other: Transition) -> bool:
        """Whether it comes before `other` in every run that is equivalent to this one."""
        return other.clock.get(self.process, 0) >= self.number


def join(clock: dict[int, int], other: dict[int, int]) -> None:
    """Raise `clock` to at least `other`."""
    for process, number in other.items():
        if clock.get(process, 0) < number:
            clock[process] = number


class Places:
    """Names for byte ranges that mean the same in every run of a program, although addresses and inodes differ.

    Memory of the machine is named by the number of its allocation, everything else by the order in which it first appears.
    """

    def __init__(self) -> None:
        self.memory: Memory | None = None
        self._ranges: list[tuple[int, int]] = []
        self._files: dict[Space, int] = {}

    def name(self, access: Access) -> Access:
        """The access with a name in place of its space, and its start relative to that."""
        space, start, length, write = access
        if space != MEM:
            return Access(("file", 0, self._files.setdefault(space, len(self._files))), start, length, write)
        block = self._block(start)
        if block is not None:
            return Access(("block", 0, block.id), start - block.base, length, write)
        for number, (first, end) in enumerate(self._ranges):
            if start < end and first < start + length:
                return Access(("host", 0, number), start - first, length, write)
        self._ranges.append((start, start + length))
        return Access(("host", 0, len(self._ranges) - 1), 0, length, write)

    def visible(self, access: Access) -> bool:
        """Whether host code can see the range: all but device memory and the buffers that a library keeps to itself."""
        if access.space != MEM:
            return True
        block = self._block(access.start)
        return block is None or not (block.kind == "device" or (self.memory and block.base in self.memory.internal))

    def _block(self, address: int) -> Block | None:
        memory = self.memory
        if memory is None:
            return None
        return memory.find(address) or memory.find_freed(address)


class RunTrace:
    """Collects the transitions of a run; the `Tracker` of an exploring schedule.

    Parameters
    ----------
    on_transition : callable, optional
        Called with each transition as soon as its footprint and clocks are known.

    Attributes
    ----------
    places : Places
        Names of memory and files that mean the same in every run.
    """

    def __init__(self, on_transition: Callable[[Transition], None] | None = None) -> None:
        self.transitions: list[Transition] = []
        self.places = Places()
        self._on_transition = on_transition
        self._last: dict[int, Transition] = {}
        self._commands: dict[tuple[int, int], Transition] = {}
        self._submitters: dict[tuple[int, int], Transition] = {}
        self._host = self._open_host(None, [])
        self._state: int | None = None
        self._asking = False

    # -- told by the exploring schedule ------------------------------------------------------------------------------

    def at(self, point: Point) -> None:
        """The run is at a point: the host's transition so far is over."""
        if self._asking and point.kind == "host" and self._host.index < 0:
            return  # opened by `called`; the choice decides what comes before it
        self.settle_host()

    def chose(self, process: int, state: int | None) -> None:
        """The schedule picked `process`; `state` numbers the choice."""
        self._state = state
        if process == HOST:
            if self._host.index >= 0:
                self._host = self._open_host(None, [])
            self._host.state = state

    def settle_host(self) -> None:
        """Close the host's current transition, if it is open."""
        host = self._host
        if host.index < 0:
            self._add(host)

    # -- Tracker -----------------------------------------------------------------------------------------------------

    def called(self, what: str) -> None:
        self._asking = what in ASKING
        if (
            self._asking
        ):  # where nothing can move there is no point, and the question belongs to a transition of its own
            self.settle_host()
            self._host = self._open_host(None, [])
            self._host.footprint.asks = True

    def submitted(self, command: Command) -> None:
        if self._host.index >= 0:  # inside a call that has waited
            self._host = self._open_host(None, [])
        self._submitters[command.lane.index, command.ticket] = self._host
        for access in command.accesses():
            self.places.name(access)  # names follow the order of submission, which does not depend on the schedule

    def ran(self, command: Command) -> None:
        lane = command.lane.index
        transition = self._next(lane, self._state, command.describe())
        key = (lane, command.ticket)
        for enabling in (
            self._submitters.pop(key, None),
            *(self._commands.get((dep.index, ticket)) for dep, ticket in command.deps),
        ):
            if enabling is not None:
                transition.enabling.append(enabling)
        touched = command.accesses()
        visible = any(self.places.visible(access) for access in touched)
        accesses = [self.places.name(access) for access in touched]
        transition.footprint = Footprint(accesses, visible or command.external, command.external)
        self._commands[key] = transition
        self._state = None
        self._add(transition)

    def waited(self, targets: Sequence[Marker]) -> None:
        enabling = []
        for lane, ticket in targets:
            transition = self._commands.get((lane.index, ticket))
            if transition is not None:
                enabling.append(transition)
        self.settle_host()
        self._host = self._open_host(None, enabling)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _open_host(self, state: int | None, enabling: list[Transition]) -> Transition:
        transition = self._next(HOST, state, "host")
        transition.index = -1
        transition.footprint = Footprint(arbitrary=True, visible=True)
        transition.enabling = enabling
        return transition

    def _next(self, process: int, state: int | None, what: str) -> Transition:
        last = self._last.get(process)
        return Transition(len(self.transitions), process, last.number + 1 if last else 1, state, what)

    def _add(self, transition: Transition) -> None:
        transition.index = len(self.transitions)
        before: dict[int, int] = {}
        last = self._last.get(transition.process)
        if last is not None:
            join(before, last.clock)
        for enabling in transition.enabling:
            if enabling.index < 0:
                self._add(enabling)
                transition.index = len(self.transitions)
            join(before, enabling.clock)
        transition.before = before
        clock = dict(before)
        clock[transition.process] = transition.number
        footprint = transition.footprint
        for earlier in reversed(self.transitions):
            if clock.get(earlier.process, 0) < earlier.number and earlier.footprint.depends(footprint):
                join(clock, earlier.clock)
        transition.clock = clock
        self._last[transition.process] = transition
        self.transitions.append(transition)
        if self._on_transition is not None:
            self._on_transition(transition)


ASKING = frozenset({"hipStreamQuery", "hipEventQuery", "hipEventElapsedTime"})
"""Calls whose answer depends on how far lanes are, without waiting for them."""
