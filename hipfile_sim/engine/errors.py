"""Errors of the engine. Each says what happened, where, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hipfile_sim.observe.observer import Site


class EngineError(RuntimeError):
    """Base of everything that the engine raises."""


class DeadlockError(EngineError):
    """No progress is possible: every runnable thing waits for something that cannot happen.

    Attributes
    ----------
    graph : str
        The wait graph, one line a waiter.
    seconds : float or None
        How long nothing moved, where only time can tell: something outside the machine might have helped.
    """

    def __init__(self, what: str, graph: str, seconds: float | None = None) -> None:
        self.what = what
        self.graph = graph
        self.seconds = seconds
        never = "can never return" if seconds is None else f"has not returned for {seconds:g} s"
        super().__init__(f"deadlock: {what} {never}; nothing on the machine can move\n{graph}")


class StillRunningError(EngineError):
    """Nothing moved for as long as the watchdog waits, but a host function is busy or asleep: it may yet return.

    Attributes
    ----------
    graph : str
        The wait graph, one line a waiter, then the host functions.
    seconds : float
        How long nothing moved.
    """

    def __init__(self, what: str, graph: str, seconds: float) -> None:
        self.what = what
        self.graph = graph
        self.seconds = seconds
        super().__init__(
            f"{what} has not returned for {seconds:g} s, because a host function is still running; this need not be a "
            f"deadlock\n{graph}"
        )


class MachineClosedError(EngineError):
    """The machine was closed, so what was asked of it cannot happen.

    Attributes
    ----------
    what : str
        What was asked.
    site : Site or None
        Where the machine was closed.
    """

    def __init__(self, what: str, site: Site | None) -> None:
        self.what = what
        self.site = site
        super().__init__(f"{what}: the machine was closed{closed_at(site)}; nothing on it moves any more. {REMEDY}")


REMEDY = "Do this before it is closed, or make a fresh machine"


def closed_at(site: Site | None) -> str:
    """Where a machine was closed, to be put behind a sentence."""
    return f" at {site}" if site is not None else ""


class HostFunctionError(EngineError):
    """A host function raised. Real HIP would terminate the process; the machine is unusable from here on."""


class TokenMismatch(EngineError):
    """A token does not fit the program that it is replayed on.

    Attributes
    ----------
    step : int
        Number of the choice, counted from 0, at which it stopped fitting.
    site : Site or None
        Where the program was then.
    """

    site: Site | None = None

    def __init__(self, step: int, expected: str, found: str) -> None:
        self.step = step
        super().__init__(
            f"the token stopped fitting at choice {step}: it expects {expected}, the program offers {found}; "
            "replay it on the program, arguments and version that it was recorded with"
        )
