"""The seam for test runners: one test function under many schedules, and a process's share of a spread test run."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.schedules import Schedule
from hipfile_sim.explore.explorer import explore
from hipfile_sim.explore.result import Exploration

if TYPE_CHECKING:
    from hipfile_sim.machine import Machine


def explore_test(
    function: Callable[..., Any],
    kwargs: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
    schedules: int | None = 100,
    *,
    fake: Callable[[Schedule], AbstractContextManager[Any]],
    fixture: str = "hipfile_fake",
    **options: Any,
) -> Exploration:
    """Run a test function under many schedules, with a fresh fake for each.

    Parameters
    ----------
    function : callable
        The test. A coroutine function is run in an event loop of its own.
    kwargs : mapping or callable
        Its arguments. A callable is asked for them before every run: a test that leaves files behind wants a folder of
        its own each time.
    schedules : int or None
        Most schedules. None: no limit.
    fake : callable
        From a schedule to a context manager that gives an object with ``machine``, such as
        ``lambda schedule: hipfile_mock.fake(schedule=schedule)``. What it raises at its end (the sanitizer's errors, a
        fault that never fired) fails that schedule.
    fixture : str
        The argument that gets that object, if the function has it.
    **options
        As for `explore`: ``strategy``, ``bound``, ``seed``, ``seconds``, ``shard``, ``keep_going`` …

    Returns
    -------
    Exploration
        Call `Exploration.check` on it to raise what was found. An exception that is no `Exception`, such as pytest's
        skip, ends the search and is passed on.

    Examples
    --------
    >>> from contextlib import contextmanager
    >>> from types import SimpleNamespace
    >>> from hipfile_sim import Machine
    >>> @contextmanager
    ... def fake(schedule):
    ...     with Machine(1, schedule=schedule) as machine:
    ...         yield SimpleNamespace(machine=machine)
    >>> def test(hipfile_fake, size):
    ...     hip = hipfile_fake.machine.hip
    ...     _, pointer = hip.hipHostMalloc(size)
    ...     _ = hip.hipMemsetAsync(pointer, 7, size, hip.hipStreamCreate()[1])
    ...     assert hipfile_fake.machine.memory.view(pointer, size)[0] == 7
    >>> explore_test(test, {"size": 16}, fake=fake).ok
    False
    """
    takes_fake = fixture in inspect.signature(function).parameters
    current: list[Any] = []

    @contextmanager
    def world(schedule: Schedule) -> Iterator[Machine]:
        with fake(schedule) as session:
            current[:] = [session]
            try:
                yield session.machine
            finally:
                current.clear()

    def body(machine: Machine) -> None:
        arguments = dict(kwargs() if callable(kwargs) else kwargs)
        if takes_fake:
            arguments[fixture] = current[0]
        result = function(**arguments)
        if inspect.iscoroutine(result):
            asyncio.run(result)

    return explore(body, schedules=schedules, world=world, **options)


def shard_from_xdist(environ: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """This process's share of a test run that pytest-xdist spreads: (number of the worker from 0, workers).

    None outside xdist. Give it as ``shard`` where every worker runs the same exploration.

    Examples
    --------
    >>> shard_from_xdist({"PYTEST_XDIST_WORKER": "gw2", "PYTEST_XDIST_WORKER_COUNT": "4"})
    (2, 4)
    """
    environ = os.environ if environ is None else environ
    worker, count = environ.get("PYTEST_XDIST_WORKER", ""), environ.get("PYTEST_XDIST_WORKER_COUNT", "")
    if not worker.startswith("gw") or not worker[2:].isdigit() or not count.isdigit():
        return None
    index, total = int(worker[2:]), int(count)
    return (index % total, total) if total else None
