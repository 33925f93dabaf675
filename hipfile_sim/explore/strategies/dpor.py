"""Exhaustive search with partial-order reduction: source sets and sleep sets over the commands' declared accesses.

Two runs that differ only in the order of independent transitions give the same result, so one of them is enough. While a
run goes on, every race in it (two dependent transitions that nothing orders) asks for a run in which they come the other
way round, at the choice where that was still possible. Sleep sets cut off runs that would only repeat a known one.
The method is source-DPOR of Abdulla, Aronis, Jonsson and Sagonas (POPL 2014).
"""

from __future__ import annotations

import zlib
from typing import Any

from hipfile_sim.engine.errors import EngineError
from hipfile_sim.engine.schedules import Point, Schedule
from hipfile_sim.explore.strategies.base import Pruned, Strategy
from hipfile_sim.explore.trace import Footprint, RunTrace, Transition, join


class NondeterminismError(EngineError):
    """The same choices led to different options: the program depends on something that the machine does not control."""


class State:
    """One choice of the current run, with what has been and what must be tried there."""

    __slots__ = ("backtrack", "chosen", "done", "enabled", "footprint", "sleep")

    def __init__(self, enabled: tuple[int, ...], chosen: int, sleep: dict[int, Footprint]) -> None:
        self.enabled = enabled
        self.chosen = chosen
        self.sleep = sleep
        self.backtrack = {chosen}
        self.done: dict[int, Footprint] = {}
        self.footprint = Footprint(arbitrary=True, visible=True, asks=True)

    def remaining(self) -> list[int]:
        """What must still be tried."""
        return sorted(self.backtrack - self.done.keys() - self.sleep.keys())


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
    """

    name = "dpor"

    def __init__(self, *, reduce: bool = True, shard: tuple[int, int] | None = None) -> None:
        self.reduce = reduce
        self.shard = shard
        self.states: list[State] = []
        self.pruned = 0
        self._shared_depth = 0
        if shard is not None:
            while 2**self._shared_depth < 4 * shard[1]:
                self._shared_depth += 1
        self._depth = 0
        self._sleep: dict[int, Footprint] = {}
        self._over = False
        self.trace = RunTrace()

    # -- Strategy ----------------------------------------------------------------------------------------------------

    def next(self) -> Schedule | None:
        if self._over:
            return None
        self._depth = 0
        self._sleep = {}
        self.trace = RunTrace(self._ran)
        return _Schedule(self)

    def attach(self, machine: Any) -> None:
        self.trace.places.memory = machine.memory

    def ended(self, run: object) -> None:
        if self._depth < len(self.states):
            raise NondeterminismError(
                f"the program ended after {self._depth} choices where it made at least {len(self.states)} before; "
                "it depends on a clock, on randomness or on state that outlives a run"
            )
        while self.states:
            state = self.states[-1]
            state.done[state.chosen] = state.footprint
            left = state.remaining()
            if left:
                state.chosen = left[0]
                return
            self.states.pop()
        self._over = True
        self.exhausted = True

    def save(self) -> dict[str, Any]:
        return {
            "over": self._over,
            "states": [
                [list(state.enabled), state.chosen, sorted(state.backtrack), sorted(state.done)]
                for state in self.states
            ],
        }

    def load(self, saved: dict[str, Any]) -> None:
        # addresses differ from process to process, so what slept wakes up: more runs, never fewer results
        self._over = self.exhausted = saved["over"]
        for enabled, chosen, backtrack, done in saved["states"]:
            state = State(tuple(enabled), chosen, {})
            state.backtrack = set(backtrack)
            state.done = {process: Footprint(arbitrary=True, visible=True, asks=True) for process in done}
            self.states.append(state)

    # -- one run -----------------------------------------------------------------------------------------------------

    def choose(self, point: Point) -> int:
        """The index of the option that this run takes."""
        trace = self.trace
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
                raise NondeterminismError(
                    f"choice {depth} at {point.what} offered {state.enabled} before and {processes} now; "
                    "the program depends on a clock, on randomness or on state that outlives a run"
                )
        else:
            state = self._new_state(processes)
        self._depth = depth + 1
        if self._depth == self._shared_depth and not self._ours():
            state.footprint = Footprint(arbitrary=True, visible=True, asks=True)
            self._prune()
        sleep = dict(state.sleep)
        sleep.update(state.done)
        sleep.pop(state.chosen, None)
        self._sleep = sleep if self.reduce else {}
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
        assert self.shard is not None
        path = ",".join(str(state.chosen) for state in self.states[: self._shared_depth])
        return zlib.crc32(path.encode()) % self.shard[1] == self.shard[0]

    def _prune(self) -> None:
        self.pruned += 1
        raise Pruned

    def _ran(self, transition: Transition) -> None:
        """A transition of the run is complete: who sleeps on, and what does it race with?"""
        footprint = transition.footprint
        if transition.state is not None:
            self.states[transition.state].footprint = footprint
        if not self.reduce:
            return
        self._sleep = {
            process: sleeping
            for process, sleeping in self._sleep.items()
            if process != transition.process and not sleeping.depends(footprint)
        }
        transitions = self.trace.transitions
        reached = dict(transition.before)
        for earlier in reversed(transitions[: transition.index]):
            if reached.get(earlier.process, 0) >= earlier.number or earlier.process == transition.process:
                continue
            if earlier.footprint.depends(footprint):
                if earlier.state is not None:
                    self._reverse(earlier, transition)
                join(reached, earlier.clock)

    def _reverse(self, earlier: Transition, later: Transition) -> None:
        """Ask for a run in which `later` comes before `earlier`, at the choice that picked `earlier`."""
        assert earlier.state is not None
        state = self.states[earlier.state]
        moved = [t for t in self.trace.transitions[earlier.index + 1 : later.index] if not earlier.precedes(t)]
        moved.append(later)
        initials: list[int] = []
        for position, transition in enumerate(moved):
            if transition.process in initials:
                continue
            clock = transition.clock
            if not any(clock.get(other.process, 0) >= other.number for other in moved[:position]):
                initials.append(transition.process)
        candidates = [process for process in initials if process in state.enabled]
        if not candidates:
            state.backtrack.update(state.enabled)
        elif not any(process in state.backtrack for process in candidates):
            state.backtrack.add(candidates[0])
