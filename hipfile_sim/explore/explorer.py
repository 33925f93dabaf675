"""`explore` and `outcomes`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.errors import TokenMismatch
from hipfile_sim.engine.schedules import Schedule
from hipfile_sim.engine.token import TokenSchedule
from hipfile_sim.explore import saved as files
from hipfile_sim.explore.result import Exploration, Failure
from hipfile_sim.explore.run import Body, Run, World, execute
from hipfile_sim.explore.shrink import shrink
from hipfile_sim.explore.strategies import make_strategy
from hipfile_sim.explore.strategies.base import NondeterminismError, Strategy

if TYPE_CHECKING:
    from hipfile_sim.machine import Machine

Progress = Callable[[Exploration], None]
"""Called after every run."""
SAVE_EVERY_S = 5.0
"""Real seconds between two writes of the file to resume from."""


def explore(
    body: Body,
    *,
    schedules: int | None = 1000,
    strategy: str | Strategy = "dpor",
    bound: int = 3,
    seed: int = 0,
    seconds: float | None = None,
    host: str = "opaque",
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
        Gets the machine. Returns a result or raises; an exception is a failure. What it leaves in files or in Python
        objects must not change what its next run does.
    schedules, seconds : int, float, optional
        Budgets: runs, and real seconds. None: no limit.
    strategy : str or Strategy
        ``"dpor"`` (every order that can matter), ``"all"``, ``"bounded"``, ``"pct"``, ``"random"``, or a token.
    bound : int
        Preemptions for ``bounded``, ordering constraints for ``pct``.
    seed : int
        Where ``random`` and ``pct`` begin.
    host : str
        What ``dpor`` takes for granted of the program's own code between two calls. ``"opaque"``: nothing, it may look
        at everything that a host can see. ``"announced"``: it looks where it says so (`Machine.host_access`, attributes
        of an ``AsyncIOHandle``, operations on pinned tensors, hip and hipFile calls), and nowhere else; a program of
        which that is not true has orders that are not covered.
    twice : bool
        Run every schedule a second time and refuse to go on if it does something else.
    sanitize : bool or str
        The sanitizer's errors are failures, too; a text is its policy.
    keep_going : bool
        Collect every kind of failure instead of stopping at the first.
    shard : (int, int), optional
        Part i of n, counted from 0. Together the parts are everything.
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
    ValueError
        Unknown strategy, bad shard, a budget that allows nothing, or a file to resume from that does not fit.

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
    if schedules is not None and (type(schedules) is not int or schedules < 1):
        raise ValueError(f"schedules is {schedules!r}: give the most schedules to run, from 1, or None for no limit")
    if seconds is not None and not seconds >= 0:
        raise ValueError(f"seconds is {seconds!r}: give a time, or None for no limit; one schedule runs in any case")
    plan = make_strategy(strategy, bound=bound, seed=seed, shard=shard, host=host)
    search = _Search(body, world or _machine_world(machine), plan, sanitize, explain)
    result = search.result
    keep = Path(resume) if resume is not None else None
    resumed = keep is not None and keep.exists()
    if keep is not None and resumed:
        for token in files.load(keep, plan, result):
            search.known_failure(token, keep)
    before = result.seconds
    started = written = time.monotonic()
    try:
        while True:
            now = time.monotonic()
            result.seconds = before + now - started
            if result.failures and not keep_going:
                result.stopped = "failure"
                break
            if plan.exhausted:
                result.stopped = "complete"
                break
            if schedules is not None and result.runs >= schedules:
                result.stopped = "schedules"
                break
            if seconds is not None and now - started >= seconds and result.runs:
                result.stopped = "time"
                break
            if keep is not None and now - written > SAVE_EVERY_S:
                files.save(keep, plan, result)
                written = now
            schedule = plan.next()
            if schedule is not None:
                try:
                    search.next(schedule, twice)
                except NondeterminismError as error:
                    if resumed:
                        error.args = (f"{error}. Or it has changed since {keep} was written: then remove that file",)
                    raise
                if progress is not None:
                    search.conclude()
                    progress(result)
    finally:
        search.conclude()
        if keep is not None:
            files.save(keep, plan, result)
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

    if "schedule" in options:
        raise TypeError("explore() has no keyword 'schedule': it chooses them itself; a token goes to strategy=")
    if options.get("engine", "steps") != "steps":
        raise ValueError(f"engine is {options['engine']!r}: only the steps engine has an order to choose")

    def world(schedule: Schedule) -> AbstractContextManager[Machine]:
        return Machine(**options, schedule=schedule)

    return world


class _Search:
    """The program, what it is run with, and what has come of it."""

    def __init__(self, body: Body, world: World, plan: Strategy, sanitize: bool | str, explain: bool) -> None:
        self.body = body
        self.world = world
        self.plan = plan
        self.sanitize = sanitize
        self.explain = explain
        self.result = Exploration(plan.name)
        self._known: list[Run] = []

    def run(self, schedule: Schedule, plan: Strategy | None = None) -> Run:
        """One run, which tells `plan` of itself."""
        sanitizer: Any = None
        if self.sanitize:
            from hipfile_sim.observe.sanitizer import Sanitizer

            sanitizer = Sanitizer(self.sanitize if isinstance(self.sanitize, str) else None)

        def attach(machine: Machine) -> None:
            if plan is not None:
                plan.attach(machine)
            if sanitizer is not None:
                machine.add_observer(sanitizer)

        return execute(
            self.body,
            self.world,
            schedule,
            attach=attach,
            after=None if sanitizer is None else lambda machine: sanitizer.raise_if_errors(),
            wind_up=None if plan is None else plan.wind_up,
        )

    def next(self, schedule: Schedule, twice: bool) -> None:
        """Run a schedule of the plan and take note of what came of it."""
        result = self.result
        run = self.run(schedule, self.plan)
        self.plan.ended(run)
        if run.pruned:
            result.cut += 1
            return
        result.runs += 1
        result.outcomes[_hashable(run.outcome)] += 1
        if twice:
            self._check_repeats(run)
        self.note_failure(run)

    def known_failure(self, token: str, keep: Path) -> None:
        """Run a failure of an earlier process again, to have its error.

        Raises
        ------
        ValueError
            It is no failure of this program.
        """
        try:
            run = self.run(TokenSchedule(token))
        except TokenMismatch as error:
            reason = str(error)
        else:
            if run.failed:
                self.note_failure(run)
                return
            reason = "nothing fails"
        raise ValueError(
            f"cannot resume from {keep}: under the schedule {token}, which failed, {reason}. The program or its "
            "options have changed since; remove the file to start again"
        )

    def note_failure(self, run: Run) -> None:
        """Keep `run` if it failed in a way that is new."""
        if not run.failed:
            return
        if any(run.same_failure(other) for other in self._known):
            run.forget()
        else:
            self._known.append(run)
            self.result.failures.append(self._explained(run) if self.explain else Failure(run, run))

    def conclude(self) -> None:
        """What has been covered by now."""
        plan, result = self.plan, self.result
        result.complete = plan.exhausted
        result.orders = plan.orders
        result.coverage = plan.coverage(result.runs)

    def _explained(self, run: Run) -> Failure:
        """Shrink a failure, then run it once more with everything watching."""
        from hipfile_sim.observe.sanitizer import Sanitizer
        from hipfile_sim.observe.timeline import steps
        from hipfile_sim.observe.trace import Trace

        simplest, departures = shrink(run, self.run)
        failure = Failure(run, simplest, departures)
        trace, sanitizer = Trace(), Sanitizer("leak.*=off")  # what is left over is no wonder

        def attach(machine: Machine) -> None:
            machine.add_observer(trace)
            machine.add_observer(sanitizer)

        try:
            again = execute(
                self.body,
                self.world,
                TokenSchedule(simplest.token),
                attach=attach,
                wind_up=lambda machine, failed: sanitizer.finish(),
            )
        except TokenMismatch as error:
            raise NondeterminismError(f"the failing schedule cannot be repeated ({error})") from error
        if not self.sanitize and not again.same_failure(simplest):
            raise NondeterminismError(
                f"the schedule {simplest.token} failed and then did not, or in another way: first\n\n{simplest.text()}"
                f"\n\nand then\n\n{again.text()}\n\n"
            )
        failure.timeline = steps(trace, all_calls=False)
        if sanitizer.findings:
            failure.report = sanitizer.format("text", colour=False)
        return failure

    def _check_repeats(self, run: Run) -> None:
        try:
            again = self.run(TokenSchedule(run.token))
        except TokenMismatch as error:
            raise NondeterminismError(f"the schedule {run.token} cannot be repeated ({error})") from error
        if again.choices != run.choices or _hashable(again.outcome) != _hashable(run.outcome):
            raise NondeterminismError(
                f"the schedule {run.token} gave {run.outcome!r} and then {again.outcome!r} "
                f"in {len(run.choices)} and {len(again.choices)} choices"
            )


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
