"""Making a failing schedule simple: as few departures from the plain schedule as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hipfile_sim.engine.command import Access, Command, Marker
from hipfile_sim.engine.schedules import HOST, Lazy, Point, Schedule
from hipfile_sim.explore.run import Run


class Departure(NamedTuple):
    """One choice that the plain schedule would not have made: a command goes before its turn.

    Parameters
    ----------
    moment : int
        How many calls and waits of the host came before: a number that other departures hardly change.
    lane, ticket : int
        The command.
    where : str
        The call, for people.
    what : str
        The command, for people.
    """

    moment: int
    lane: int
    ticket: int
    where: str = ""
    what: str = ""

    def __str__(self) -> str:
        return f"{self.what} already at {self.where}"


class Departures(Schedule):
    """The plain schedule (the host goes on; a wait runs what it needs, the soonest first) but for a few named moves.

    Parameters
    ----------
    wanted : sequence of Departure
        Commands that go as soon as they can, from their moment on.

    Attributes
    ----------
    made : list of Departure
        The departures of the run so far: every choice that was not the plain one.
    """

    name = "departures"
    wants_needed = True

    def __init__(self, wanted: Sequence[Departure] = ()) -> None:
        self.tracker = self
        self._wanted = [(departure.moment, departure.lane, departure.ticket) for departure in wanted]
        self.made: list[Departure] = []
        self._plain = Lazy()
        self._moment = 0

    def fresh(self) -> Schedule:
        return self

    def choose(self, point: Point) -> int:
        options = point.options
        plain = 0 if options[0].lane == HOST else self._plain.choose(point)
        index = self._pick(point, plain)
        if index != plain:
            command = options[index].command
            assert command is not None  # the host is the plain choice wherever it is one
            what = f"{command.describe()} on {command.lane.name}"
            self.made.append(Departure(self._moment, command.lane.index, command.ticket, point.what, what))
        return index

    def _pick(self, point: Point, plain: int) -> int:
        for number, (moment, lane, ticket) in enumerate(self._wanted):
            if moment > self._moment:
                break
            for index, option in enumerate(point.options):
                if option.lane == lane and option.command is not None and option.command.ticket == ticket:
                    del self._wanted[number]
                    return index
        return plain

    # -- Tracker: only to count ----------------------------------------------------------------------------------------

    def called(self, what: str, before: bool) -> None:
        self._moment += 1

    def waited(self, targets: Sequence[Marker]) -> None:
        self._moment += 1

    def submitted(self, command: Command) -> None: ...
    def began(self, command: Command) -> None: ...
    def ran(self, command: Command) -> None: ...
    def asked(self, targets: Sequence[Marker]) -> None: ...
    def asked_inside(self, command: Command) -> None: ...
    def touched(self, access: Access) -> None: ...
    def meddled(self) -> None: ...
    def entered(self) -> None: ...
    def left(self, *, at_once: bool) -> None: ...
    def guarded(self, address: int, length: int) -> None: ...
    def unguarded(self, address: int) -> None: ...


class _Recorded(Departures):
    """Follows the choices of a run, to learn which of them depart from the plain schedule."""

    def __init__(self, choices: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self._choices = iter(choices)

    def _pick(self, point: Point, plain: int) -> int:
        if len(point.options) == 1:
            return 0
        choice, options = next(self._choices, (plain, 0))
        return choice if options == len(point.options) else plain


def shrink(failing: Run, run: Callable[[Schedule], Run], *, budget: int = 400) -> tuple[Run, list[Departure]]:
    """The simplest run with the same failure that `budget` runs find.

    Parameters
    ----------
    failing : Run
        With its choices.
    run : callable
        Runs the program under a schedule.
    budget : int
        Most runs.

    Returns
    -------
    Run, list of Departure
        The run, and its departures from the plain schedule. Fewest first, then earliest.
    """
    spent = 0

    def attempt(schedule: Departures) -> tuple[Run, list[Departure]] | None:
        nonlocal spent
        if spent >= budget:
            return None
        spent += 1
        result = run(schedule)
        if result.same_failure(failing):
            return result, schedule.made
        result.forget()
        return None

    best = attempt(Departures())
    if best is not None:
        return best
    recorded = _Recorded(failing.choices)
    best = attempt(recorded)
    if best is None:
        return failing, recorded.made
    return _fewer(best, attempt)


def _fewer(
    best: tuple[Run, list[Departure]], attempt: Callable[[Departures], tuple[Run, list[Departure]] | None]
) -> tuple[Run, list[Departure]]:
    """Drop departures, many at a time and then one by one, until none can be spared."""
    width = max(1, len(best[1]) // 2)
    while best[1]:
        smaller = None
        wanted = best[1]
        # the last first: what follows a departure falls into place by itself
        for end in range(len(wanted), 0, -width):
            tried = attempt(Departures(wanted[: max(0, end - width)] + wanted[end:]))
            if tried is not None and len(tried[1]) < len(wanted):
                smaller = tried
                break
        if smaller is not None:
            best = smaller
            width = max(1, min(width, len(best[1]) // 2))
        elif width > 1:
            width //= 2
        else:
            break
    return best
