"""Making a failing schedule simple: as few departures from the plain schedule as possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hipfile_sim.engine.schedules import Lazy, Point, Schedule
from hipfile_sim.explore.run import Run


class Departures(Schedule):
    """The plain schedule (the host goes on; a wait runs what it needs) but for a few named choices.

    Parameters
    ----------
    at : mapping of int to int
        Number of the choice to the lane that moves there (`HOST`: the host goes on). A lane that is not offered there is
        ignored.

    Attributes
    ----------
    made : dict
        The departures of the run so far: every choice that was not the plain one.
    """

    name = "departures"
    wants_needed = True

    def __init__(self, at: Mapping[int, int]) -> None:
        self.at = dict(at)
        self.made: dict[int, int] = {}
        self._plain = Lazy()
        self._step = 0

    def fresh(self) -> Schedule:
        return Departures(self.at)

    def plain(self, point: Point) -> int:
        """What the plain schedule would choose."""
        return 0 if point.kind == "host" else self._plain.choose(point)

    def choose(self, point: Point) -> int:
        step = self._step
        self._step += 1
        index = plain = self.plain(point)
        wanted = self.at.get(step)
        if wanted is not None:
            for offered, option in enumerate(point.options):
                if option.lane == wanted:
                    index = offered
        if index != plain:
            self.made[step] = point.options[index].lane
        return index


class _Recorded(Departures):
    """Follows the indexes of a run, to learn which of them depart from the plain schedule."""

    def __init__(self, choices: list[tuple[int, int]]) -> None:
        super().__init__({})
        self._choices = choices

    def choose(self, point: Point) -> int:
        step = self._step
        self._step += 1
        plain = self.plain(point)
        index = plain
        if step < len(self._choices) and self._choices[step][0] < len(point.options):
            index = self._choices[step][0]
        if index != plain:
            self.made[step] = point.options[index].lane
        return index


def shrink(
    failing: Run, run: Callable[[Schedule], Run], *, passive: bool = False, budget: int = 400
) -> tuple[Run, dict[int, int]]:
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
    Run, dict
        The run, and its departures from the plain schedule by number of the choice. Fewest first, then earliest.
    """
    spent = 0

    def attempt(departures: Mapping[int, int]) -> tuple[Run, dict[int, int]] | None:
        nonlocal spent
        if spent >= budget:
            return None
        spent += 1
        schedule = Departures(departures)
        schedule.passive = passive
        result = run(schedule)
        return (result, schedule.made) if result.same_failure(failing) else None

    plain = attempt({})
    if plain is not None:
        return plain
    recorded = _Recorded(failing.choices)
    recorded.passive = passive
    first = run(recorded)
    spent += 1
    if not first.same_failure(failing):
        return failing, dict(recorded.made)
    best = (first, recorded.made)
    width = len(best[1])
    while width >= 1 and spent < budget:
        steps = sorted(best[1], reverse=True)  # the last departures first: what follows them falls into place by itself
        smaller = None
        for start in range(0, len(steps), width):
            dropped = set(steps[start : start + width])
            smaller = attempt({step: lane for step, lane in best[1].items() if step not in dropped})
            if smaller is not None and len(smaller[1]) < len(best[1]):
                break
            smaller = None
        if smaller is None:
            width = width // 2 if width > 1 else 0
        else:
            best = smaller
            width = max(1, min(width, len(best[1])))
            if not best[1]:
                break
    return best
