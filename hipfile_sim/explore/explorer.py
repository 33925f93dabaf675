"""`explore` and `outcomes`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.schedules import Schedule
from hipfile_sim.engine.token import TokenSchedule
from hipfile_sim.explore.orders import count_orders
from hipfile_sim.explore.result import Exploration, Failure
from hipfile_sim.explore.run import Body, Run, World, execute
from hipfile_sim.explore.shrink import shrink
from hipfile_sim.explore.strategies import make_strategy
from hipfile_sim.explore.strategies.base import Strategy
from hipfile_sim.explore.strategies.dpor import Dpor, NondeterminismError

if TYPE_CHECKING:
    from hipfile_sim.machine import Machine

Progress = Callable[[Exploration], None]
"""Called after every run."""


def explore(
    body: Body,
    *,
    schedules: int | None = 1000,
    strategy: str | Strategy = "dpor",
    bound: int = 3,
    seed: int = 0,
    seconds: float | None = None,
    twice: bool = False,
    sanitize: bool | str = False,
    keep_going: bool = False,
    shard: tuple[int, int] | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    world: World | None = None,
    explain: bool = True,
    **machine: Any,
) -> Exploration:
    """Run `body` under many schedules, each on a fresh machine, and find those that break it.

    Parameters
    ----------
    body : callable
        Gets the machine. Returns a result or raises; an exception is a failure.
    schedules, seconds : int, float, optional
        Budgets. None: no limit.
    strategy : str or Strategy
        ``"dpor"`` (every order that can matter), ``"all"``, ``"bounded"``, ``"pct"``, ``"random"``, or a token.
    bound : int
        Preemptions for ``bounded``, ordering constraints for ``pct``.
    seed : int
        Where ``random`` and ``pct`` begin.
    twice : bool
        Run every schedule a second time and refuse to go on if it does something else.
    sanitize : bool or str
        The sanitizer's errors are failures, too; a text is its policy.
    keep_going : bool
        Collect every kind of failure instead of stopping at the first.
    shard : (int, int), optional
        Part i of n.
    resume : path, optional
        A file that keeps the state of the search. Where it exists, the search goes on from it.
    progress : callable, optional
        Called with the state so far after every run.
    world : callable, optional
        Makes the machine from a schedule, as a context manager; by default ``Machine(**machine, schedule=...)``.
    explain : bool
        Shrink failures and print their timeline and the sanitizer's report.
    **machine
        For `Machine`.

    Returns
    -------
    Exploration
        ``ok``, ``failures`` with their tokens, ``outcomes``, and exactly what was covered.

    Raises
    ------
    NondeterminismError
        The program depends on something that the machine does not control.

    Examples
    --------
    >>> def body(machine):
    ...     hip = machine.hip
    ...     _, pointer = hip.hipMalloc(1)
    ...     streams = [hip.hipStreamCreate()[1] for _ in range(2)]
    ...     for value, stream in enumerate(streams, 1):
    ...         _ = hip.hipMemsetAsync(pointer, value, 1, stream)
    ...     _ = hip.hipDeviceSynchronize()
    ...     return machine.memory.view(pointer, 1)[0]
    >>> sorted(explore(body).outcomes)
    [1, 2]
    """
    plan = make_strategy(strategy, bound=bound, seed=seed, shard=shard)
    make = world or _machine_world(machine)
    result = Exploration(plan.name)
    saved = Path(resume) if resume is not None else None
    if saved is not None and saved.exists():
        _load(saved, plan, result)
    started = time.monotonic()
    known: list[Run] = []
    while True:
        result.seconds = time.monotonic() - started
        if schedules is not None and result.runs >= schedules:
            result.stopped = "schedules"
            break
        if seconds is not None and result.seconds >= seconds:
            result.stopped = "time"
            break
        schedule = plan.next()
        if schedule is None:
            result.stopped = "complete"
            break
        run = execute(body, make, schedule, **_hooks(plan, sanitize))
        if result.orders is None and isinstance(plan, Dpor) and not run.pruned:
            result.orders = count_orders(plan.trace.transitions) or 0
        plan.ended(run)
        if run.pruned:
            result.cut += 1
        else:
            result.runs += 1
            result.outcomes[_hashable(run.outcome)] += 1
            if twice:
                _check_repeats(run, body, make, sanitize)
            if run.failed and not any(run.same_failure(other) for other in known):
                known.append(run)
                result.failures.append(_explain(run, body, make, sanitize) if explain else Failure(run, run))
        result.complete = plan.exhausted
        result.coverage = _coverage(plan, result)
        if progress is not None:
            progress(result)
        if known and not keep_going:
            result.stopped = "failure"
            break
    result.seconds = time.monotonic() - started
    result.complete = plan.exhausted
    result.coverage = _coverage(plan, result)
    if saved is not None:
        _save(saved, plan, result)
    return result


def outcomes(body: Body, *, schedules: int | None = None, **options: Any) -> set[Any]:
    """Every result that any order of the program allows.

    Parameters
    ----------
    body : callable
        As for `explore`; its result must be hashable. Exceptions and deadlocks are results, too (`Run.outcome`).
    schedules : int, optional
        Refuse to search longer than this.
    **options
        As for `explore`.

    Raises
    ------
    RuntimeError
        The budget ran out before every order was covered.

    Examples
    --------
    >>> def body(machine):
    ...     _, pointer = machine.hip.hipMalloc(1)
    ...     machine.hip.hipMemset(pointer, 7, 1)
    ...     return machine.memory.view(pointer, 1)[0]
    >>> outcomes(body)
    {7}
    """
    found = explore(body, schedules=schedules, keep_going=True, explain=False, **options)
    if not found.complete:
        raise RuntimeError(f"not every order was covered: {found.summary()}; raise the budget")
    return set(found.outcomes)


def _machine_world(options: dict[str, Any]) -> World:
    from hipfile_sim.machine import Machine

    def world(schedule: Schedule) -> AbstractContextManager[Machine]:
        return Machine(**options, schedule=schedule)

    return world


def _hooks(plan: Strategy | None, sanitize: bool | str) -> dict[str, Any]:
    """What `execute` does before and after the program."""
    if not sanitize:
        return {} if plan is None else {"attach": plan.attach}
    from hipfile_sim.observe.sanitizer import Sanitizer

    sanitizer = Sanitizer(sanitize if isinstance(sanitize, str) else None)

    def attach(machine: Machine) -> None:
        if plan is not None:
            plan.attach(machine)
        machine.add_observer(sanitizer)

    return {"attach": attach, "after": lambda machine: sanitizer.raise_if_errors()}


def _explain(run: Run, body: Body, world: World, sanitize: bool | str) -> Failure:
    """Shrink a failure, then run it once more with everything watching."""
    simplest, departures = shrink(run, lambda schedule: execute(body, world, schedule, **_hooks(None, sanitize)))
    failure = Failure(run, simplest, departures)
    from hipfile_sim.observe.sanitizer import Sanitizer
    from hipfile_sim.observe.timeline import steps
    from hipfile_sim.observe.trace import Trace

    trace, sanitizer = Trace(), Sanitizer()

    def attach(machine: Machine) -> None:
        machine.add_observer(trace)
        machine.add_observer(sanitizer)

    execute(body, world, TokenSchedule(simplest.token), attach=attach)
    failure.timeline = steps(trace)
    if sanitizer.findings:
        failure.report = sanitizer.report("text")
    return failure


def _check_repeats(run: Run, body: Body, world: World, sanitize: bool | str) -> None:
    again = execute(body, world, TokenSchedule(run.token), **_hooks(None, sanitize))
    if again.choices != run.choices or _hashable(again.outcome) != _hashable(run.outcome):
        raise NondeterminismError(
            f"the schedule {run.token} gave {run.outcome!r} and then {again.outcome!r} in {len(run.choices)} and "
            f"{len(again.choices)} choices; the program depends on a clock, on randomness or on state that outlives a run"
        )


def _coverage(plan: Strategy, result: Exploration) -> str:
    if not isinstance(plan, Dpor):
        return plan.coverage(result.runs)
    part = f" of shard {plan.shard[0]}/{plan.shard[1]}" if plan.shard else ""
    orders = f"{result.orders:,} orders" if result.orders else "orders, too many to count"
    if result.complete:
        return f"all {orders}{part}, {result.runs:,} after reduction" if plan.reduce else f"all {orders}{part}"
    return f"{result.runs:,} schedules{part} of a program with {orders}, not all of them covered"


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _save(path: Path, plan: Strategy, result: Exploration) -> None:
    state = {"version": 1, "strategy": plan.name, "runs": result.runs, "cut": result.cut, "state": plan.save()}
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(state))
    temporary.replace(path)


def _load(path: Path, plan: Strategy, result: Exploration) -> None:
    try:
        state = json.loads(path.read_text())
        if state["version"] != 1 or state["strategy"] != plan.name:
            raise ValueError(f"it was written by the strategy {state.get('strategy')!r}")
        plan.load(state["state"])
        result.runs, result.cut = state["runs"], state["cut"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"cannot resume from {path}: {error}; remove the file to start again") from error
