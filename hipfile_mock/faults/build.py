"""`on`: the sentence that makes a rule, ``on(operation, which).action(how)``."""

from __future__ import annotations

import errno
from collections.abc import Callable
from enum import IntEnum
from fnmatch import filter as filter_names
from typing import Any

from hipfile_mock.faults.rule import MATCH, Rule
from hipfile_mock.near import near, whole

TRANSFERS = ("pread", "pwrite")
FILE_OPERATIONS = (*TRANSFERS, "fdatasync", "open", "reopen", "inspect")
RESULTS = ("read", "write")
ACTIONS = {
    **dict.fromkeys(TRANSFERS, "errno, eintr, partial, short, returns"),
    **dict.fromkeys(("fdatasync", "open"), "errno, eintr"),
    **dict.fromkeys(("reopen", "inspect"), "errno"),
    **dict.fromkeys(RESULTS, "result, short_by"),
    "command": "delay, stall",
}
"""What each operation has, for messages."""
EOF = "eof"
"""Outcome of a transfer: nothing moves."""


def errno_name(code: int) -> str:
    """``"ENOSPC"`` for 28."""
    return errno.errorcode.get(code, str(code))


MANY = 10_000
"""Interruptions in a row."""


class On:
    """The first half of a rule; one of its methods makes it whole.

    Raises
    ------
    TypeError
        An action that the operation does not have; the message lists those that it has.
    """

    def __init__(self, operation: str, match: dict[str, Any]) -> None:
        self._operation = operation
        self._match = match

    def __getattr__(self, name: str) -> Any:
        actions = [action for action in vars(On) if not action.startswith("_")]
        raise AttributeError(
            f"on({self._operation!r}).{name}: there is no such action{near(name, actions) or '.'} "
            f"{self._operation!r} has {self._actions()}"
        )

    def __repr__(self) -> str:
        return f"<half a fault: on({self._operation!r}) needs an action: {self._actions()}>"

    def _actions(self) -> str:
        return ACTIONS.get(self._operation, "error, close_driver" if "hipFile" in self._operation else "error")

    def _rule(self, what: str, allowed: bool, act: Callable[..., Any], **more: Any) -> Rule:
        if not allowed:
            hint = self._actions()
            if self._operation in RESULTS:
                hint += f"; the system call that it makes is 'p{self._operation}'"
            raise TypeError(f"{what!r} is not an action of {self._operation!r}, which has {hint}")
        return Rule(self._operation, what=what, act=act, **{**more, **self._match})

    def _ends(self, times: int | None) -> None:
        """The library repeats an interrupted call, so interruptions at every match would never let it go on."""
        if (times is None or times > MANY) and self._match.get("probability") in (None, 1):
            raise ValueError(
                f"EINTR with times={times!r}: the library repeats an interrupted call, so this would never end; "
                f"at most {MANY} times, or a probability below 1"
            )

    # -- files -------------------------------------------------------------------------------------------------------

    def errno(self, code: int | str) -> Rule:
        """The system call fails with `code`: ``errno.ENOSPC`` or ``"ENOSPC"``."""
        step = _Errno(code)
        if step.code == errno.EINTR:
            self._ends(self._match.get("times", 1))
        return self._rule(f"errno {errno_name(step.code)}", self._operation in FILE_OPERATIONS, lambda: (step,))

    def eintr(self, times: int = 1) -> Rule:
        """`times` calls in a row are interrupted, then it goes on."""
        self._ends(self._match.get("times", times))
        return self._rule(
            "EINTR", self._operation in (*TRANSFERS, "fdatasync", "open"), lambda: (_Errno(errno.EINTR),), times=times
        )

    def partial(self, count: int | None = None, *, fraction: float | None = None) -> Rule:
        """One call moves only so many bytes; whoever repeats it gets the rest."""
        part = _Part(count, fraction)
        return self._rule("partial transfer", self._operation in TRANSFERS, lambda: (part,))

    def short(self, count: int | None = None, *, fraction: float | None = None) -> Rule:
        """The transfer ends after so many bytes: the call that would go on from there moves nothing."""
        part = _Part(count, fraction)
        return self._rule("short transfer", self._operation in TRANSFERS, lambda: (part, _Part(0, None)))

    def returns(self, *outcomes: int | str | OSError) -> Rule:
        """Outcomes of the matching call and of those that go on from it: counts, negated errnos, ``"eof"``, OSErrors.

        ``returns(4096, -errno.EINTR, 100, 0)`` is a read of 4196 bytes for a caller that repeats.
        """
        steps = tuple(_step(outcome) for outcome in outcomes)
        if not steps:
            raise ValueError("returns() needs at least one outcome")
        if all(isinstance(step, _Errno) and step.code == errno.EINTR for step in steps):
            self._ends(self._match.get("times", 1))
        return self._rule(f"returns {', '.join(map(str, outcomes))}", self._operation in TRANSFERS, lambda: steps)

    # -- results -----------------------------------------------------------------------------------------------------

    def result(self, value: int) -> Rule:
        """The operation publishes `value`, whatever it did: -5022, -1, -5 …"""
        value = whole("result", value, "a byte count, or a negative code", least=None)
        return self._rule(f"result {value}", self._operation in RESULTS, lambda op, found: value)

    def short_by(self, nbytes: int) -> Rule:
        """The operation publishes `nbytes` less than it moved (not below 0)."""
        return self._rule(
            f"short by {nbytes}",
            self._operation in RESULTS,
            lambda op, found: max(0, found - nbytes) if found > 0 else found,
        )

    # -- streams -----------------------------------------------------------------------------------------------------

    def delay(self, ns: int) -> Rule:
        """The command takes `ns` of virtual time longer."""
        ns = whole("delay", ns, "ns of virtual time, not below 0")
        return self._rule(
            f"delay of {ns} ns", self._operation == "command", lambda engine, command: _delay(engine, command, ns)
        )

    def stall(self) -> Rule:
        """From this command on its stream is as slow as can be."""
        return self._rule("stall", self._operation == "command", lambda engine, command: engine.stall(command.lane))

    # -- calls -------------------------------------------------------------------------------------------------------

    def error(self, code: int) -> Rule:
        """The call is not made and returns `code`: a hipError_t for HIP, a hipFileOpError_t for hipFile.

        Raises
        ------
        ValueError
            There is no such code, or it is success.
        """
        from hipfile_sim.driver.codes import OpError
        from hipfile_sim.hip.codes import HipError

        known: type[IntEnum] = OpError if self._operation.startswith("hipFile") else HipError
        if code not in set(known) | (set(HipError) if known is OpError else set()) or code == 0:
            name = "hipFileOpError_t, from 5001, or hipError_t" if known is OpError else "hipError_t, such as 2"
            raise ValueError(f"error({code!r}) on {self._operation!r}: the number of a failure of {name}")
        return self._rule(f"error {int(code)}", self._operation.startswith("hip"), lambda driver: code)

    def close_driver(self) -> Rule:
        """Somebody closes the hipFile driver just before the call."""
        return self._rule("driver closed", self._operation.startswith("hipFile"), _close_driver)


class _Errno:
    __slots__ = ("code",)

    def __init__(self, code: int | str) -> None:
        number = getattr(errno, code, None) if isinstance(code, str) else code
        if not isinstance(number, int) or number <= 0:
            hint = near(code, errno.errorcode.values()) if isinstance(code, str) else ""
            raise ValueError(f"errno {code!r}: a positive number or a name from the module errno{hint}")
        self.code = number


class _Part:
    __slots__ = ("count", "fraction")

    def __init__(self, count: int | None, fraction: float | None) -> None:
        if (count is None) == (fraction is None):
            raise ValueError("give either a number of bytes or fraction=")
        if count is not None:
            whole("short or partial", count, "bytes, not below 0")
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"fraction={fraction!r}: between 0 and 1")
        self.count = count
        self.fraction = fraction

    def of(self, length: int) -> int:
        """Bytes out of `length`."""
        if self.count is not None:
            return min(self.count, length)
        assert self.fraction is not None
        return int(length * self.fraction)


Step = _Errno | _Part


def _step(outcome: int | str | OSError) -> Step:
    if isinstance(outcome, OSError):
        return _Errno(outcome.errno or 0)
    if outcome == EOF:
        return _Part(0, None)
    if isinstance(outcome, int):
        return _Errno(-outcome) if outcome < 0 else _Part(outcome, None)
    raise ValueError(f"outcome {outcome!r}: a count, a negated errno, 'eof', or an OSError")


def _delay(engine: Any, command: Any, ns: int) -> None:
    if command.cost_ns is None:
        command.cost_ns = command.cost(engine.costs)
    command.cost_ns += ns


def _close_driver(driver: Any) -> None:
    while driver.hipFileUseCount() > 0:
        driver.hipFileDriverClose()


def on(operation: str, **match: Any) -> On:
    """Begin a rule: ``on("pwrite", nth=3, path="*.kv").errno(errno.ENOSPC)``.

    Parameters
    ----------
    operation : str
        See the table of this package.
    **match
        ``nth``, ``times``, ``path``, ``within``, ``stream``, ``device``, ``kind``, ``when``, ``probability``, ``seed``,
        ``optional``: see `Rule`.

    Raises
    ------
    ValueError
        An operation that does not exist.
    TypeError
        An unknown keyword.
    """
    known = {*FILE_OPERATIONS, *RESULTS, "command"}
    if not isinstance(operation, str):
        raise TypeError(f"on({operation!r}): the name of an operation, such as 'pwrite' or 'hipMalloc'")
    if operation.startswith("hip"):
        calls = _calls()
        if not filter_names(calls, operation):
            raise ValueError(f"on({operation!r}): no call of HIP or hipFile has this name{near(operation, calls)}")
    elif operation not in known:
        raise ValueError(
            f"on({operation!r}): unknown operation{near(operation, known) or '.'} There are "
            f"{', '.join(sorted(known))}, and hip… and hipFile… calls (also as globs)"
        )
    unknown = sorted(match.keys() - set(MATCH))
    if unknown:
        raise TypeError(
            f"on({operation!r}, {unknown[0]}=…): a rule has no keyword {unknown[0]!r}"
            f"{near(unknown[0], MATCH) or '.'} It has {', '.join(MATCH)}"
        )
    Rule(operation, **match)  # complains about wrong values here, not when the action is named
    return On(operation, match)


def _calls() -> set[str]:
    """Every call that a rule can act on."""
    from hipfile_sim.driver import Driver
    from hipfile_sim.hip import Runtime

    return {*Runtime.CALLS, *Driver.CALLS}
