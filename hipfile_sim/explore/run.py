"""One run of a program under one schedule, and what came of it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.errors import DeadlockError, TokenMismatch
from hipfile_sim.engine.schedules import Schedule
from hipfile_sim.engine.token import ChoiceLog
from hipfile_sim.explore.strategies.base import NondeterminismError, Pruned

if TYPE_CHECKING:
    from hipfile_sim.machine import Machine

World = Callable[[Schedule], "AbstractContextManager[Machine]"]
"""Makes a fresh machine for a schedule."""
Body = Callable[["Machine"], Any]
"""The program: gets a fresh machine, returns its result (hashable, for `outcomes`) or raises."""

_PACKAGES = Path(__file__).resolve().parents[2]
_OURS = (f"{_PACKAGES / 'hipfile_sim'}/", f"{_PACKAGES / 'hipfile_mock'}/")


@dataclass(slots=True)
class Run:
    """What one schedule led to.

    Parameters
    ----------
    log : ChoiceLog
        The choices that were made.
    result : object
        What the program returned.
    error : BaseException or None
        What it raised.
    pruned : bool
        It was left early, because its remainder is equivalent to another run's.
    steps : int
        Commands that ran.
    """

    log: ChoiceLog
    result: Any = None
    error: BaseException | None = None
    pruned: bool = False
    steps: int = 0

    def forget(self) -> None:
        """Let go of the error. Its traceback has frames that have this run: both would wait for the collector."""
        self.error = None

    @property
    def token(self) -> str:
        """Reproduces the run."""
        return self.log.token()

    @property
    def choices(self) -> list[tuple[int, int]]:
        """(index chosen, number of options) of each choice."""
        return self.log.pairs()

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
        return self.failed and other.failed and self._kind() == other._kind()

    def _kind(self) -> tuple[object, ...]:
        error = self.error
        assert error is not None
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
        place = (frames[-1].filename, frames[-1].lineno) if frames else None
        ids = tuple(sorted({finding.id for finding in getattr(error, "findings", ())}))
        return type(error), place, ids

    def text(self) -> str:
        """The error with its traceback, without the simulator's own frames around the program's."""
        if self.error is None:
            return "passed"
        tb = without_ours(self.error.__traceback__)
        return "".join(traceback.format_exception(type(self.error), self.error, tb, chain=False)).rstrip()


def without_ours(tb: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame that is not the simulator's; all of it where there is none."""
    first = tb
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OURS):
        first = first.tb_next
    return first or tb


def _call(body: Body, machine: Machine, kept: list[FrameType]) -> Any:
    """Call the program, and keep its first frame.

    Slots of operations are often local variables. A program that ends without waiting for its operations would have
    them freed before these are done, and the late results would be written to whatever is there then.
    """
    if sys.getprofile() is not None:
        return body(machine)

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and not frame.f_code.co_filename.startswith(_OURS):
            sys.setprofile(None)
            kept.append(frame)

    sys.setprofile(profile)
    try:
        return body(machine)
    finally:
        sys.setprofile(None)


def execute(
    body: Body,
    world: World,
    schedule: Schedule,
    *,
    attach: Callable[[Machine], None] | None = None,
    after: Callable[[Machine], None] | None = None,
    wind_up: Callable[[Machine, bool], None] | None = None,
) -> Run:
    """Run `body` once on a fresh machine.

    Parameters
    ----------
    attach : callable, optional
        Called with the machine before the program.
    after : callable, optional
        Called with the machine once everything has run; may raise, which fails the run.
    wind_up : callable, optional
        Called with the machine, and whether the program failed, when the choices of the program are noted.
    """
    run = Run(ChoiceLog())
    failed = True
    begun = False
    try:
        with world(schedule) as machine:
            if attach is not None:
                attach(machine)
            kept: list[FrameType] = []
            begun = True
            try:
                run.result = _call(body, machine, kept)
                machine.finish()
                if after is not None:
                    after(machine)
                failed = False
            finally:
                engine: Any = machine.engine
                run.log = engine.choices.copy()
                run.steps = engine.steps
                if wind_up is not None:
                    wind_up(machine, failed)
                while kept:
                    with suppress(RuntimeError):  # it raised, and is still on its way out
                        kept.pop().clear()
    except Pruned:
        run.pruned = True
    except (KeyboardInterrupt, TokenMismatch, NondeterminismError):
        raise
    except SystemExit as error:
        if error.code not in (None, 0):
            run.error = error
    except Exception as error:
        if not begun:  # no fault of the program
            raise
        run.error = error
    return run
