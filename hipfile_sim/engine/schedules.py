"""Schedules: who moves next, at each point where real hardware may or may not have moved.

A schedule sees a `Point` with its options and answers with an index. The engine records the answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from hipfile_sim.engine.errors import EngineError

if TYPE_CHECKING:
    from hipfile_sim.engine.command import Access, Command, Marker

HOST = -1
"""The lane number that stands for "the host goes on"."""


class Option(NamedTuple):
    """One thing that could happen next.

    Parameters
    ----------
    lane : int
        Index of the lane whose head would run (or whose host function would be seen to return), or `HOST`.
    command : Command or None
        The command; None for the host.
    finish : int
        Virtual ns at which it would end.
    needed : bool
        What the host waits for cannot complete without it. Always False at host points.
    """

    lane: int
    command: Command | None
    finish: int
    needed: bool


class Point(NamedTuple):
    """A moment at which something is chosen.

    Parameters
    ----------
    kind : str
        ``"host"``: the host is running and may simply go on (option 0). ``"wait"``: the host is blocked.
    what : str
        The call, for people.
    options : sequence of Option
        In a fixed order: the host first, then lanes by index.
    now : int
        The host's virtual time, ns.
    """

    kind: str
    what: str
    options: Sequence[Option]
    now: int


class Tracker(Protocol):
    """What an explorer hears of a run, beside the points."""

    def called(self, what: str, before: bool) -> None:
        """The host is at a call where the device may have moved, whether or not anything could.

        `before`: until the next point of this kind no code of the program runs on the host.
        """

    def entered(self) -> None:
        """The host is inside a call of a library, which may make calls of its own; no code of the program runs."""

    def left(self, *, at_once: bool) -> None:
        """That call is over. `at_once`: code of the program runs before the next point, since the call raised."""

    def asked(self, targets: Sequence[Marker]) -> None:
        """The host looks whether `targets` are complete, without waiting."""

    def asked_inside(self, command: Command) -> None:
        """The host function `command` asked the runtime something."""

    def touched(self, access: Access) -> None:
        """The host reads, writes or frees memory or a file, or looks at the state of a library."""

    def guarded(self, address: int, length: int) -> None:
        """From now on host code reaches this memory by announced accesses alone."""

    def unguarded(self, address: int) -> None:
        """What begins at `address` is memory like any other again."""

    def meddled(self) -> None:
        """The host changed what may run."""

    def submitted(self, command: Command) -> None:
        """The host put a command into a lane."""

    def began(self, command: Command) -> None:
        """A host function began and has not returned: it waits for something."""

    def ran(self, command: Command) -> None:
        """A command ran, or its host function has returned."""

    def waited(self, targets: Sequence[Marker]) -> None:
        """The host goes on, because `targets` are complete."""


class Schedule:
    """Base class. Subclass it, give it a `name`, and override `choose`.

    Attributes
    ----------
    name : str
        What `str` prints and `parse_schedule` reads.
    passive : bool
        The device never moves while the host runs, so host points are skipped (and are not recorded).
    wants_needed : bool
        `choose` looks at `Option.needed`; the engine computes it only then.
    tracker : Tracker or None
        Is told every step and asked at every point, also where there is nothing to choose. The explorer needs that.
    """

    name: ClassVar[str] = "schedule"
    passive: bool = False
    wants_needed: bool = False
    tracker: Tracker | None = None

    def fresh(self) -> Schedule:
        """An unused copy, for another machine."""
        return type(self)()

    def choose(self, point: Point) -> int:
        """Index in ``point.options`` of what happens next."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<schedule {self}>"


def _soonest(options: Sequence[Option]) -> int:
    best = -1
    finish = 0
    for index, option in enumerate(options):
        if option.lane != HOST and (best < 0 or option.finish < finish):
            best, finish = index, option.finish
    return best


class Parallel(Schedule):
    """Every stream runs at the speed of the cost model, as on hardware: the earliest virtual finish goes first.

    The default: a slow kernel on one stream is overtaken by a quick copy on another, so missing edges show.
    """

    name = "parallel"

    def choose(self, point: Point) -> int:
        best = _soonest(point.options)
        if point.kind == "host" and point.options[best].finish > point.now:
            return 0
        return best


class Lazy(Schedule):
    """Nothing moves before the host waits, and then only what the wait needs."""

    name = "lazy"
    passive = True
    wants_needed = True

    def choose(self, point: Point) -> int:
        best = -1
        finish = 0
        for index, option in enumerate(point.options):
            if option.needed and (best < 0 or option.finish < finish):
                best, finish = index, option.finish
        return best if best >= 0 else _soonest(point.options)


class Eager(Schedule):
    """Everything that can move has moved before the host goes on: the illusion of synchronous calls."""

    name = "eager"

    def choose(self, point: Point) -> int:
        return _soonest(point.options)


class RoundRobin(Schedule):
    """Lanes take turns, one command each; between two host calls one command runs."""

    name = "roundrobin"

    def __init__(self) -> None:
        self._last = HOST
        self._host_turn = False

    def choose(self, point: Point) -> int:
        if point.kind == "host" and self._host_turn:
            self._host_turn = False
            return 0
        self._host_turn = True
        lanes = [(option.lane, index) for index, option in enumerate(point.options) if option.lane != HOST]
        after = [entry for entry in lanes if entry[0] > self._last]
        self._last, index = (after or lanes)[0]
        return index


class Seeded(Schedule):
    """Random choices from a seed. How far the device runs ahead of the host is drawn once a run.

    Parameters
    ----------
    seed : int
        The same seed makes the same choices on the same program.
    """

    name = "seeded"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._random = random.Random(seed)
        self._advance = self._random.choice((0.1, 0.3, 0.5, 0.8))

    def fresh(self) -> Schedule:
        return Seeded(self.seed)

    def choose(self, point: Point) -> int:
        if point.kind == "host":
            if self._random.random() >= self._advance:
                return 0
            return self._random.randrange(1, len(point.options))
        return self._random.randrange(len(point.options))

    def __str__(self) -> str:
        return f"seeded:{self.seed}"


class Scripted(Schedule):
    """Choices from a list, then those of another schedule.

    Parameters
    ----------
    choices : sequence of int
        Indexes, one for each point with more than one option.
    then : Schedule
        Decides when the list has run out (default `Lazy`).
    passive : bool
        Whether the list was recorded with host points skipped.

    Raises
    ------
    EngineError
        When a choice names an option that is not offered.
    """

    name = "scripted"

    def __init__(self, choices: Sequence[int], then: Schedule | None = None, passive: bool = False) -> None:
        self.choices = tuple(choices)
        self.then = then or Lazy()
        self.passive = passive
        self.wants_needed = self.then.wants_needed
        self._next = 0

    def fresh(self) -> Schedule:
        return Scripted(self.choices, self.then.fresh(), self.passive)

    @property
    def used(self) -> int:
        """How many choices of the list have been made."""
        return self._next

    def choose(self, point: Point) -> int:
        if self._next >= len(self.choices):
            if point.kind == "host" and self.then.passive:
                return 0
            return self.then.choose(point)
        choice = self.choices[self._next]
        if not 0 <= choice < len(point.options):
            raise EngineError(
                f"scripted choice {self._next} is {choice}, but {point.what} offers 0 to {len(point.options) - 1}"
            )
        self._next += 1
        return choice

    def __str__(self) -> str:
        return "scripted:" + ",".join(map(str, self.choices))


def _scripted(text: str) -> Schedule:
    return Scripted([int(part) for part in text.split(",") if part.strip()])


SCHEDULES: dict[str, Callable[[str], Schedule]] = {
    "parallel": lambda text: Parallel(),
    "lazy": lambda text: Lazy(),
    "eager": lambda text: Eager(),
    "roundrobin": lambda text: RoundRobin(),
    "seeded": lambda text: Seeded(int(text or 0)),
    "scripted": _scripted,
}
"""Name to maker; the maker gets what stands behind the colon."""


def parse_schedule(text: str | Schedule) -> Schedule:
    """The schedule that `text` names, unused.

    Parameters
    ----------
    text : str or Schedule
        ``"parallel"``, ``"lazy"``, ``"eager"``, ``"roundrobin"``, ``"seeded:42"``, ``"scripted:0,2,1"`` or a token.

    Raises
    ------
    ValueError
        Unknown name or bad argument; the message lists the names.

    Examples
    --------
    >>> str(parse_schedule("seeded:42"))
    'seeded:42'
    """
    if isinstance(text, Schedule):
        return text.fresh()
    if not isinstance(text, str):
        raise TypeError(f"schedule must be a name, a token or a Schedule, not {type(text).__name__}: {text!r}")
    if text.startswith("hs1-"):
        from hipfile_sim.engine.token import TokenSchedule

        return TokenSchedule(text)
    name, _, argument = text.partition(":")
    maker = SCHEDULES.get(name.strip().lower().replace("-", ""))
    if maker is None:
        raise ValueError(
            f"unknown schedule {text!r}: choose parallel, lazy, eager, roundrobin, seeded:42, scripted:0,2,1 "
            "or a token that begins with hs1-"
        )
    if argument.strip() and maker not in (SCHEDULES["seeded"], SCHEDULES["scripted"]):
        raise ValueError(f"schedule {name.strip()!r} takes no argument, and {text!r} has one")
    try:
        return maker(argument.strip())
    except ValueError:
        raise ValueError(
            f"bad argument in schedule {text!r}: expected numbers after the colon, as in seeded:42"
        ) from None
