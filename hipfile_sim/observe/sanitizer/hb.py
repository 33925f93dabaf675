"""Happens-before: which epoch is known to whom.

The core is fed with integers only. It knows hosts (threads that call the API), lanes (streams) and functions (user
code that runs on a stream), and nothing of HIP or hipFile. Each is an *actor* with a clock; ``(actor, clock)`` is an
*epoch*. An actor knows an epoch when its vector clock holds that clock or a later one, and whatever an actor knows is
ordered before what it does next. Vector clocks are never changed in place, so a snapshot costs nothing.

Every edge has a kind (`Edge`). A kind can be left out when a core is built: the mutation tests do so.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TypeAlias

Epoch: TypeAlias = tuple[int, int]
Clocks: TypeAlias = Mapping[int, int]

HISTORY_LIMIT = 4096
"""Versions of a lane's vector clock that are kept before old ones are thinned out."""

NEVER = 1 << 62
"""Later than every clock."""


class Edge(IntEnum):
    """Why one thing is known to come before another."""

    ENQUEUE = 0
    """Host code comes before the commands that it submits afterwards."""
    STREAM_ORDER = 1
    """Commands of one stream run one after the other."""
    STREAM_SYNC = 2
    """The host waited for a stream."""
    EVENT_SYNC = 3
    """The host waited for an event."""
    DEVICE_SYNC = 4
    """The host waited for a device."""
    COPY_SYNC = 5
    """A copy or an I/O call blocked the host until it was done."""
    FREE_SYNC = 6
    """Freeing memory waits for the device."""
    QUERY = 7
    """A query of a stream or an event said that it is complete."""
    EVENT_WAIT = 8
    """A stream waits for what an event recorded."""
    NULL_STREAM = 9
    """The null stream orders itself with the blocking streams."""
    HOST_FUNCTION = 10
    """User code on a stream comes after what was queued before it, and before what is queued behind it."""
    VALUE = 11
    """A wait for a value in memory comes after the write of that value."""
    THREAD = 12
    """A thread starts after what its creator did; whoever joins it comes after what it did."""


class Snapshot:
    """What an actor knew at one moment.

    Parameters
    ----------
    actor, clock : int
        The epoch of that moment.
    clocks : mapping
        Clocks of the other actors, by actor.
    """

    __slots__ = ("actor", "clock", "clocks")

    def __init__(self, actor: int, clock: int, clocks: Clocks) -> None:
        self.actor = actor
        self.clock = clock
        self.clocks = clocks


class _Actor:
    __slots__ = ("clock", "clocks", "released")

    def __init__(self) -> None:
        self.clock = 1
        self.clocks: Clocks = {}
        self.released: Snapshot | None = None


class _Lane(_Actor):
    __slots__ = ("active", "function", "heard", "last", "latest", "pending", "tickets", "versions")

    def __init__(self) -> None:
        super().__init__()
        self.clock = 0
        self.active = False
        self.function = -1
        self.heard: Snapshot | None = None
        self.last = 0
        """The latest ticket that was given out, and what its submitter knew."""
        self.latest: Snapshot | None = None
        self.pending: deque[tuple[int, Snapshot]] = deque()
        self.tickets: list[int] = [0]
        self.versions: list[Clocks] = [self.clocks]


class HappensBefore:
    """Vector clocks of hosts, lanes and functions.

    Parameters
    ----------
    dropped : iterable of Edge
        Kinds of edges to ignore. For tests of the tests.

    Examples
    --------
    >>> hb = HappensBefore()
    >>> host, lane = hb.add_host(), hb.add_lane()
    >>> before = hb.stamp(host)
    >>> hb.enqueue(host, lane, 1)
    >>> hb.start(lane, 1)
    >>> hb.knows(lane, host, before)
    True
    >>> hb.knows(host, lane, 1)
    False
    >>> hb.sync(host, lane, 1, Edge.STREAM_SYNC)
    >>> hb.knows(host, lane, 1)
    True
    """

    __slots__ = ("_hosts", "_lanes", "_on", "actors", "stream_order")

    def __init__(self, dropped: Iterable[Edge] = ()) -> None:
        off = frozenset(dropped)
        self._on = tuple(edge not in off for edge in Edge)
        self.stream_order = self._on[Edge.STREAM_ORDER]
        self.actors: list[_Actor] = []
        self._hosts: dict[int, _Actor] = {}
        self._lanes: dict[int, _Lane] = {}

    def _add(self, actor: _Actor) -> int:
        self.actors.append(actor)
        return len(self.actors) - 1

    def add_host(self) -> int:
        """A new host thread: its number."""
        actor = _Actor()
        number = self._add(actor)
        self._hosts[number] = actor
        return number

    def add_lane(self) -> int:
        """A new stream: its number. The clock of a lane is the ticket of its latest command."""
        lane = _Lane()
        number = self._add(lane)
        self._lanes[number] = lane
        return number

    # ------------------------------------------------------------------------------------------------ what actors do

    def stamp(self, host: int) -> int:
        """The clock for something that a host or function does now; whoever took a snapshot before does not know it."""
        actor = self.actors[host]
        if actor.released is not None:
            actor.released = None
            actor.clock += 1
        return actor.clock

    def release(self, host: int) -> Snapshot:
        """What a host or function knows now, its own deeds included."""
        actor = self.actors[host]
        snapshot = actor.released
        if snapshot is None:
            snapshot = actor.released = Snapshot(host, actor.clock, actor.clocks)
        return snapshot

    def acquire(self, number: int, snapshot: Snapshot, edge: Edge) -> None:
        """Let an actor know what `snapshot` knew."""
        if self._on[edge]:
            self._acquire(number, self.actors[number], snapshot)

    def _acquire(self, number: int, actor: _Actor, snapshot: Snapshot) -> None:
        source = snapshot.actor
        clocks = actor.clocks
        if source == number or clocks.get(source, -1) >= snapshot.clock:
            return
        merged = dict(clocks)
        get = merged.get
        for other, clock in snapshot.clocks.items():
            if other != number and get(other, -1) < clock:
                merged[other] = clock
        merged[source] = snapshot.clock
        if actor.released is not None:
            actor.released = None
            actor.clock += 1
        actor.clocks = merged

    def enqueue(self, host: int, lane: int, ticket: int) -> None:
        """`host` submits command `ticket` of `lane`. Tickets of a lane come in order, from 1."""
        snapshot = self.actors[host].released
        if snapshot is None:
            snapshot = self.release(host)
        actor = self._lanes[lane]
        actor.last = ticket
        if snapshot is not actor.latest or not self.stream_order:  # else the lane has heard it by then
            actor.latest = snapshot
            actor.pending.append((ticket, snapshot))

    def start(self, lane: int, ticket: int, after: Iterable[tuple[int, int, Edge]] = ()) -> None:
        """Command `ticket` of `lane` begins, after the commands ``(lane, ticket, edge)`` of `after`."""
        actor = self._step(lane, ticket)
        actor.active = True
        for other, number, edge in after:
            if self._on[edge] and other != lane and actor.clocks.get(other, -1) < number:
                self._acquire(lane, actor, self.at(other, number))
        if actor.versions[-1] is not actor.clocks:
            self._keep(actor)

    def step(self, lane: int, ticket: int) -> None:
        """`start` and `finish` in one, for a command that waits for no other stream."""
        actor = self._lanes[lane]
        pending = actor.pending
        if self.stream_order and (not pending or pending[0][0] != ticket):
            actor.clock = ticket
        else:
            self._step(lane, ticket)
        if actor.versions[-1] is not actor.clocks:
            self._keep(actor)

    def _step(self, lane: int, ticket: int) -> _Lane:
        actor = self._lanes[lane]
        if not self.stream_order:
            actor.clocks = {}
            actor.heard = None
        actor.clock = ticket
        pending = actor.pending
        if pending and pending[0][0] == ticket:  # not so for what was queued before anybody watched, or with no news
            snapshot = pending.popleft()[1]
            if snapshot is not actor.heard and self._on[Edge.ENQUEUE]:
                actor.heard = snapshot
                self._acquire(lane, actor, snapshot)
        return actor

    @staticmethod
    def _keep(actor: _Lane) -> None:
        """Remember what the lane knows from this ticket on."""
        actor.tickets.append(actor.clock)
        actor.versions.append(actor.clocks)
        if len(actor.tickets) > HISTORY_LIMIT:
            _thin(actor)

    def finish(self, lane: int) -> None:
        """The running command of `lane` ended."""
        actor = self._lanes[lane]
        actor.active = False
        if actor.versions[-1] is not actor.clocks:
            self._keep(actor)

    def begin_function(self, lane: int) -> int:
        """User code begins to run as the current command of `lane`: the actor that stands for it."""
        actor = self._lanes[lane]
        if actor.function < 0:
            actor.function = self._add(_Actor())
        number = actor.function
        if self._on[Edge.HOST_FUNCTION]:
            self._acquire(number, self.actors[number], Snapshot(lane, actor.clock, actor.clocks))
        return number

    def end_function(self, lane: int) -> None:
        """That user code returned."""
        actor = self._lanes[lane]
        if self._on[Edge.HOST_FUNCTION]:
            self._acquire(lane, actor, self.release(actor.function))

    def sync(self, host: int, lane: int, ticket: int, edge: Edge) -> None:
        """`host` learns that command `ticket` of `lane` is complete."""
        if self._on[edge]:
            actor = self.actors[host]
            if actor.clocks.get(lane, -1) < ticket:
                self._acquire(host, actor, self.at(lane, ticket))

    def at(self, lane: int, ticket: int) -> Snapshot:
        """What was known when command `ticket` of `lane` was complete."""
        actor = self._lanes[lane]
        index = bisect_right(actor.tickets, ticket) - 1
        return Snapshot(lane, ticket, actor.versions[max(index, 0)])

    def retire(self, host: int) -> None:
        """A host thread ended: it never does anything again."""
        self._hosts.pop(host, None)

    # --------------------------------------------------------------------------------------------------- what is known

    def knows(self, number: int, actor: int, clock: int) -> bool:
        """Whether what `number` does next is ordered after the epoch ``(actor, clock)``."""
        if number == actor:
            return self.stream_order or number not in self._lanes
        return self.actors[number].clocks.get(actor, -1) >= clock

    def clocks(self, number: int) -> Clocks:
        """What an actor knows of the others."""
        return self.actors[number].clocks

    def clock(self, number: int) -> int:
        """The clock of an actor."""
        return self.actors[number].clock

    def heard_since(self, lane: int, snapshot: Snapshot) -> bool:
        """Whether `lane` knows of user code, on a host or on a stream, that ran after `snapshot` was taken."""
        clocks = self._lanes[lane].clocks
        if clocks is snapshot.clocks:
            return False
        known = snapshot.clocks
        return any(
            clock > (snapshot.clock if number == snapshot.actor else known.get(number, -1))
            for number, clock in clocks.items()
            if number not in self._lanes
        )

    def floor(self) -> dict[int, int]:
        """For each actor the clock that everybody who may still act knows: older deeds of it can race with nothing."""
        floor = dict.fromkeys(range(len(self.actors)), NEVER)

        def lower(me: int, clocks: Clocks) -> None:
            for number in floor:
                if number != me:
                    floor[number] = min(floor[number], clocks.get(number, -1))

        for number, host in self._hosts.items():
            lower(number, host.clocks)
        seen: set[int] = set()
        for number, lane in self._lanes.items():
            if lane.active or lane.last > lane.clock:
                lower(number, lane.clocks)
                if lane.function >= 0:
                    lower(lane.function, self.actors[lane.function].clocks)
            for _, snapshot in lane.pending:
                if id(snapshot) not in seen:
                    seen.add(id(snapshot))
                    lower(-1, {**snapshot.clocks, snapshot.actor: snapshot.clock})
        return floor

    def forget(self, floor: Mapping[int, int]) -> None:
        """Drop versions of lanes that would tell nobody anything new."""
        for number, lane in self._lanes.items():
            index = bisect_right(lane.tickets, floor.get(number, -1)) - 1
            if index > 0:
                del lane.tickets[:index], lane.versions[:index]

    def __len__(self) -> int:
        """Versions of lanes held."""
        return sum(len(lane.tickets) for lane in self._lanes.values())


def _thin(lane: _Lane) -> None:
    """Halve the older half of a lane's history. An old ticket then stands for a slightly later one: an edge may be
    believed that was not there, so a race may be missed; none is made up."""
    half = HISTORY_LIMIT // 2 & ~1
    lane.tickets[:half] = lane.tickets[0:half:2]
    lane.versions[:half] = lane.versions[1:half:2]
