"""One run of a program under one schedule, and what came of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.errors import DeadlockError, TokenMismatch
from hipfile_sim.engine.schedules import Schedule
from hipfile_sim.explore.strategies.base import Pruned

if TYPE_CHECKING:
    from hipfile_sim.machine import Machine

World = Callable[[Schedule], "AbstractContextManager[Machine]"]
"""Makes a fresh machine for a schedule."""
Body = Callable[["Machine"], Any]
"""The program: gets a fresh machine, returns its result (hashable, for `outcomes`) or raises."""


@dataclass(slots=True)
class Run:
    """What one schedule led to.

    Parameters
    ----------
    token : str
        Reproduces it.
    choices : list of (int, int)
        (index chosen, number of options).
    result : object
        What the program returned.
    error : BaseException or None
        What it raised.
    pruned : bool
        It was left early, because its remainder is equivalent to another run's.
    """

    token: str = ""
    choices: list[tuple[int, int]] = field(default_factory=list)
    result: Any = None
    error: BaseException | None = None
    pruned: bool = False
    steps: int = 0

    @property
    def failed(self) -> bool:
        """Whether the program raised."""
        return self.error is not None

    @property
    def outcome(self) -> Any:
        """The result, or ``("raised", name, message)``; deadlocks are ``("deadlock",)``."""
        if self.error is None:
            return self.result
        if isinstance(self.error, DeadlockError):
            return ("deadlock",)
        return ("raised", type(self.error).__name__, str(self.error).split("\n", 1)[0])

    def same_failure(self, other: Run) -> bool:
        """Whether both failed in the same way: the same kind of error from the same line."""
        return self.failed and other.failed and type(self.error) is type(other.error) and _place(self) == _place(other)

    def text(self) -> str:
        """The error with its traceback, without the simulator's own frames at the top."""
        if self.error is None:
            return "passed"
        return "".join(traceback.format_exception(self.error)).rstrip()


def _place(run: Run) -> tuple[str, int] | None:
    assert run.error is not None
    frames = traceback.extract_tb(run.error.__traceback__)
    mine = [frame for frame in frames if "hipfile_sim" not in frame.filename and "hipfile_mock" not in frame.filename]
    if not mine:
        return None
    return mine[-1].filename, mine[-1].lineno or 0


def execute(
    body: Body,
    world: World,
    schedule: Schedule,
    *,
    attach: Callable[[Machine], None] | None = None,
    after: Callable[[Machine], None] | None = None,
) -> Run:
    """Run `body` once on a fresh machine.

    Parameters
    ----------
    attach : callable, optional
        Called with the machine before the program.
    after : callable, optional
        Called with the machine once everything has run; may raise, which fails the run.
    """
    run = Run()
    machine: Machine | None = None
    try:
        with world(schedule) as machine:
            if attach is not None:
                attach(machine)
            try:
                run.result = body(machine)
                machine.finish()
                if after is not None:
                    after(machine)
            finally:
                engine: Any = machine.engine
                run.token = engine.token()
                run.choices = engine.choices.pairs()
                run.steps = engine.steps
    except Pruned:
        run.pruned = True
    except (KeyboardInterrupt, TokenMismatch):
        raise
    except SystemExit as error:
        if error.code not in (None, 0):
            run.error = error
    except Exception as error:
        run.error = error
    return run
