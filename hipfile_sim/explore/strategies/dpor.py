"""Exhaustive search with partial-order reduction: source sets and sleep sets over the commands' declared accesses.

Two runs that differ only in the order of independent transitions give the same result, so one of them is enough. While
a run goes on, every race in it (two dependent transitions that nothing orders) asks for a run in which they come the
other way round, at the choice where that was still possible. Sleep sets cut off runs that would only repeat another.
The method is source-DPOR of Abdulla, Aronis, Jonsson and Sagonas (POPL 2014).

Two things go beyond it. A wait on a value in memory can become impossible again, so what comes before it is not hidden
by what made it possible last, and one that never ran still races with what made it impossible. And a program that
fails leaves work behind: that work is run after its end, only to see what it races with.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.schedules import Point, Schedule
from hipfile_sim.explore.footprint import UNKNOWN, Footprint
from hipfile_sim.explore.orders import count_orders
from hipfile_sim.explore.strategies.base import NondeterminismError, Pruned, Strategy
from hipfile_sim.explore.trace import RunTrace, Transition, join

if TYPE_CHECKING:
    from hipfile_sim.explore.run import Run
    from hipfile_sim.machine import Machine


class State:
    """One choice of the current run, with what has been and what must be tried there."""

    __slots__ = ("backtrack", "chosen", "done", "enabled", "footprint", "sleep")

    def __init__(self, enabled: tuple[int, ...], chosen: int, sleep: dict[int, Footprint]) -> None:
        self.enabled = enabled
        self.chosen = chosen
        self.sleep = sleep
        self.backtrack = {chosen}
        self.done: dict[int, Footprint] = {}
        self.footprint = UNKNOWN

    def remaining(self) -> list[int]:
        """What must still be tried."""
        return sorted(self.backtrack - self.done.keys() - self.sleep.keys())

    def save(self) -> list[Any]:
        """As JSON types."""
        named = [
            [[process, footprint.save()] for process, footprint in kept.items()] for kept in (self.done, self.sleep)
        ]
        return [list(self.enabled), self.chosen, sorted(self.backtrack), *named]

    @classmethod
    def load(cls, saved: list[Any]) -> State:
        """From `save`."""
        enabled, chosen, backtrack, done, sleep = saved
        state = cls(tuple(enabled), chosen, {process: Footprint.load(kept) for process, kept in sleep})
        state.backtrack = set(backtrack)
        state.done = {process: Footprint.load(kept) for process, kept in done}
        return state


class _Schedule(Schedule):
    """The schedule of one run; asks its strategy."""

    name = "explored"

    def __init__(self, strategy: Dpor) -> None:
        self._strategy = strategy
        self.tracker = strategy.trace

    def fresh(self) -> Schedule:
        return self

    def choose(self, point: Point) -> int:
        return self._strategy.choose(point)


class Dpor(Strategy):
    """Every result that any order allows, in as few runs as the declared accesses permit.

    Parameters
    ----------
    reduce : bool
        False tries every order (to check the reduction against).
    shard : (int, int), optional
        Explore only part i of n; the parts together are everything.
    host : str
        What is taken for granted of the program's own code: see `RunTrace`.
    """

    name = "dpor"

    def __init__(self, *, reduce: bool = True, shard: tuple[int, int] | None = None, host: str = "opaque") -> None:
        self.reduce = reduce
        self.host = host
        self.shard = shard
        self.states: list[State] = []
        self._shared_depth = 0
        if shard is not None and shard[1] > 1:
            while 2**self._shared_depth < 4 * shard[1]:
                self._shared_depth += 1
        self._depth = 0
        self._sleep: dict[int, Footprint] = {}
        self._broken: NondeterminismError | None = None
        self.trace = RunTrace()

    # -- Strategy ----------------------------------------------------------------------------------------------------

    def next(self) -> Schedule | None:
        if self.exhausted:
            return None
        self._depth = 0
        self._sleep = {}
        self.trace = RunTrace(self._ran, self.host)
        return _Schedule(self)

    def attach(self, machine: Machine) -> None:
        self.trace.attach(machine)

    def wind_up(self, machine: Machine, failed: bool) -> None:
        trace = self.trace
        if trace.off:
            return
        trace.settle_host()
        if self.orders is None and not failed:
            self.orders = count_orders(trace.transitions) or 0
        if not self.reduce:
            return
        engine: Any = machine.engine
        engine.run_out()
        for lane in engine.lanes.values():
            if lane.queue:
                self._races(trace.blocked(lane.queue[0]))

    def ended(self, run: Run) -> None:
        if self._broken is not None:
            raise self._broken
        if self._depth < len(self.states):
            raise NondeterminismError(
                f"the program ended after {self._depth} choices where it made at least {len(self.states)} before"
            )
        if self.trace.off or (self._depth < self._shared_depth and not self._ours()):
            run.pruned = True
        while self.states:
            state = self.states[-1]
            state.done[state.chosen] = state.footprint
            state.footprint = UNKNOWN
            left = state.remaining()
            if left:
                state.chosen = left[0]
                return
            self.states.pop()
        self.exhausted = True

    def save(self) -> dict[str, Any]:
        return {
            "reduce": self.reduce,
            "host": self.host,
            "shard": self.shard,
            "over": self.exhausted,
            "orders": self.orders,
            "states": [state.save() for state in self.states],
        }

    def load(self, saved: dict[str, Any]) -> None:
        shard = None if saved["shard"] is None else tuple(saved["shard"])
        if saved["reduce"] != self.reduce or shard != self.shard:
            raise ValueError(
                f"it is of {'a search' if shard is None else f'shard {shard[0]}/{shard[1]}'}, not of this one"
            )
        if saved["host"] != self.host:
            raise ValueError(f"it takes host code for {saved['host']}, this search for {self.host}")
        self.exhausted = saved["over"]
        self.orders = saved["orders"]
        self.states = [State.load(state) for state in saved["states"]]

    def coverage(self, runs: int) -> str:
        orders = f"{_number(self.orders)} orders" if self.orders else "orders, too many to count"
        part = "" if self.shard is None else f"shard {self.shard[0]}/{self.shard[1]} of "
        trust = "" if self.host == "opaque" or not self.reduce else ", if host code looks only where it announces"
        if self.exhausted and self.orders is None and not runs:
            return f"{part}all orders: none is left for it"
        if self.exhausted and self.orders is None:  # every run failed before its end
            return f"{part}all orders up to the failure, {runs:,} run{trust}"
        if self.exhausted and self.orders == 1:
            return f"{part}the only order"
        if self.exhausted:
            return f"{part}all {orders}, {runs:,} {f'after reduction{trust}' if self.reduce else 'run'}"
        if self.orders is None:
            return f"{runs:,} of an unknown number of schedules"
        return f"{runs:,} schedules of {part}{orders}, the rest not covered"

    # -- one run -----------------------------------------------------------------------------------------------------

    def choose(self, point: Point) -> int:
        """The index of the option that this run takes."""
        trace = self.trace
        if trace.off:
            return 0
        trace.at(point)
        processes = tuple(option.lane for option in point.options)
        if len(processes) == 1:
            if processes[0] in self._sleep:
                self._prune()
            trace.chose(processes[0], None)
            return 0
        depth = self._depth
        if depth < len(self.states):
            state = self.states[depth]
            if state.enabled != processes:
                self._broken = NondeterminismError(
                    f"choice {depth} at {point.what} offered {_names(state.enabled)} before and {_names(processes)} now"
                )
                trace.off = True
                raise self._broken
        else:
            state = self._new_state(processes)
        self._depth = depth + 1
        if self._depth == self._shared_depth and not self._ours():
            self._prune()
        self._sleep = state.sleep | state.done if self.reduce else {}
        self._sleep.pop(state.chosen, None)
        trace.chose(state.chosen, depth)
        return processes.index(state.chosen)

    def _new_state(self, processes: tuple[int, ...]) -> State:
        awake = [process for process in processes if process not in self._sleep]
        if not awake:
            self._prune()
        state = State(processes, awake[0], dict(self._sleep))
        if not self.reduce or len(self.states) < self._shared_depth:
            state.backtrack = set(processes)
        self.states.append(state)
        return state

    def _ours(self) -> bool:
        """Whether the beginning of this run belongs to this shard."""
        if self.shard is None:
            return True
        path = ",".join(str(state.chosen) for state in self.states[: self._shared_depth])
        return zlib.crc32(path.encode()) % self.shard[1] == self.shard[0]

    def _prune(self) -> None:
        self.trace.off = True
        raise Pruned

    def _ran(self, transition: Transition) -> None:
        """A transition of the run is complete: who sleeps on, and what does it race with?"""
        if transition.state is not None:
            self.states[transition.state].footprint = transition.footprint
        if not self.reduce:
            return
        if transition.wake and transition.index:
            number = self.trace.transitions[transition.index - 1].state
            if number is not None:
                self.states[number].footprint = self.states[number].footprint.joined(transition.footprint)
        if self._sleep:
            depends = transition.footprint.depends
            self._sleep = {
                process: sleeping
                for process, sleeping in self._sleep.items()
                if process != transition.process and not depends(sleeping)
            }
        self._races(transition)

    def _races(self, transition: Transition) -> None:
        """Ask for the reversal of every race between `transition` and something before it."""
        depends = transition.footprint.depends
        reached = dict(transition.before)
        transitions = self.trace.transitions
        for index in range(transition.index - 1, -1, -1):
            earlier = transitions[index]
            if reached.get(earlier.process, 0) >= earlier.number or earlier.process == transition.process:
                continue
            if depends(earlier.footprint):
                reversible = self._reverse(earlier, transition)
                if reversible and not transition.conditional:  # else it may have been possible before, too
                    join(reached, earlier.clock)

    def _reverse(self, earlier: Transition, later: Transition) -> bool:
        """Ask for a run in which `later` comes before `earlier`, at the choice that picked `earlier`.

        Returns
        -------
        bool
            There is such a choice, and `later` was possible there or something that leads to it.
        """
        if earlier.state is None:
            self._before(earlier)
            return False
        state = self.states[earlier.state]
        moved = [t for t in self.trace.transitions[earlier.index + 1 : later.index] if not earlier.precedes(t)]
        moved.append(later)
        initials: list[int] = []
        for position, transition in enumerate(moved):
            clock = transition.clock
            if transition.process not in initials and not any(
                clock.get(other.process, 0) >= other.number for other in moved[:position]
            ):
                initials.append(transition.process)
        candidates = [process for process in initials if process in state.enabled]
        if not candidates:
            state.backtrack.update(state.enabled)
            return False
        if not any(process in state.backtrack for process in candidates):
            state.backtrack.add(candidates[0])
        return True

    def _before(self, earlier: Transition) -> None:
        """`earlier` followed from what came before it (the host wakes up as soon as it can): try all that could."""
        for index in range(earlier.index - 1, -1, -1):
            number = self.trace.transitions[index].state
            if number is not None:
                self.states[number].backtrack.update(self.states[number].enabled)
                return


def _number(count: int) -> str:
    """Digits where they say something, else the power of ten below.

    >>> _number(5040), _number(3 * 10**20)
    ('5,040', 'over 10^20')
    """
    return f"{count:,}" if count < 10**15 else f"over 10^{len(str(count)) - 1}"


def _names(processes: tuple[int, ...]) -> str:
    return ", ".join("the host" if process < 0 else f"lane {process}" for process in processes)
