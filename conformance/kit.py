"""What a test is given: calls by C name, small helpers, and the checks against the clauses.

A check never holds an expected value of its own: it says how an observation reads as an answer, and the registry's
answer for the release decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hipfile_conformance.holding import Holding
from hipfile_conformance.pieces import (
    D2D,
    D2H,
    DEFAULT,
    H2D,
    KIB,
    MIB,
    SENTINEL,
    Slots,
    code_text,
    io_text,
    pattern,
)
from hipfile_conformance.results import Check, State, answer
from hipfile_conformance.targets.base import IOResult, Status, Target
from hipfile_sim.driver.clauses import get
from hipfile_sim.driver.profiles import get_profile

if TYPE_CHECKING:
    from hipfile_conformance.scripted import Recorder, ScriptedFiles
    from hipfile_sim.driver.profiles import Profile
    from hipfile_sim.machine import Machine

__all__ = [
    "D2D",
    "D2H",
    "DEFAULT",
    "H2D",
    "KIB",
    "MIB",
    "SENTINEL",
    "Kit",
    "NotRun",
    "Slots",
    "code_text",
    "io_text",
    "pattern",
]


class NotRun(Exception):
    """The test cannot say anything here; the reason goes into the cell."""


class Kit(Holding):
    """See the module.

    Parameters
    ----------
    target
        Who answers the calls.
    release
        Whose answers are expected.
    clauses
        Ids that the test named; a check of another id is an error in the test.
    """

    def __init__(self, target: Target, release: str, *, clauses: tuple[str, ...] = ()) -> None:
        super().__init__(target)
        self.release = release
        self.clauses = clauses
        self.checks: list[Check] = []

    @property
    def profile(self) -> Profile:
        """The release's profile: its named values decide which cases a test makes."""
        return get_profile(self.release)

    def need(self, condition: object, reason: str) -> None:
        """End the test as not run unless `condition` holds."""
        if not condition:
            raise NotRun(reason)

    # --------------------------------------------------------------------------------------------------------- checks
    def expect(self, clause: str, observed: Any, expected: Any, what: str = "", *, variants: Any = ()) -> bool:
        """Hold an observation against what a clause answers.

        Parameters
        ----------
        clause
            Id.
        observed
            What the target did.
        expected
            The value that the answer means; or a mapping from answers to values. The answer ``unspecified``
            needs no entry: the observation is written down and nothing is judged.
        variants
            Other values that the clause allows.
        """
        if clause not in self.clauses:
            raise KeyError(f"the test checks {clause!r} but does not name it")
        reply = answer(get(clause), self.release)
        if reply == "unspecified":
            return self._record(clause, State.UNSPECIFIED, observed, None, what)
        if isinstance(expected, Mapping):
            if reply not in expected:
                raise KeyError(f"the test of {clause!r} does not know the answer {reply!r}; it knows {list(expected)}")
            expected = expected[reply]
        if observed == expected:
            return self._record(clause, State.PASS, observed, expected, what)
        allowed = observed in tuple(variants)
        return self._record(clause, State.VARIANT if allowed else State.FAIL, observed, expected, what)

    def code(self, clause: str, status: Status | IOResult | int, what: str = "", **also: Any) -> bool:
        """The answer is the name of a code: ``InvalidValue``, ``Success``, ``{HipDriverError, e}``, ``-5022``."""
        reply = answer(get(clause), self.release)
        seen = code_text(status)
        if isinstance(status, Status) and status.err == 5011 and reply.startswith("{HipDriverError"):
            seen = reply if status.hip_drv_err > 0 else f"{{HipDriverError, {status.hip_drv_err}}}"
        return self.expect(clause, seen, reply, what, **also)

    def io(self, clause: str, result: IOResult, what: str = "", **also: Any) -> bool:
        """The answer is a result of synchronous I/O: ``-1/EINVAL``, ``-5027``, ``4096``."""
        return self.expect(clause, io_text(result), answer(get(clause), self.release), what, **also)

    def answer(self, clause: str) -> str:
        """What the registry answers for this release."""
        return answer(get(clause), self.release)

    def _record(self, clause: str, state: State, observed: Any, expected: Any, what: str) -> bool:
        self.checks.append(Check(clause, state, observed, expected, what))
        return state is not State.FAIL

    # -------------------------------------------------------------------------------------------------- the model only
    @property
    def files(self) -> ScriptedFiles:
        """The model's files, with faults on request; needs the capability ``faults``."""
        found: ScriptedFiles = self.target.files  # type: ignore[attr-defined]
        return found

    @property
    def machine(self) -> Machine:
        """The model; needs the capability ``model``."""
        found: Machine = self.target.machine  # type: ignore[attr-defined]
        return found

    def record(self) -> Recorder:
        """What is queued and noted from now on; needs the capability ``model``."""
        found: Recorder = self.target.record()  # type: ignore[attr-defined]
        return found

    # ------------------------------------------------------------------------------------------------------------ end
    def cleanup(self) -> None:
        """Release holds, wait for threads left waiting, give back what was made, close and remove files."""
        self.release_holds()
        self.give_back()
        self.close_files()
