"""The sanitizer: an observer that finds races, early reads, dead slots and leaks in a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hipfile_sim.observe.observer import Site
from hipfile_sim.observe.sanitizer import report as reports
from hipfile_sim.observe.sanitizer.checks import FAMILIES
from hipfile_sim.observe.sanitizer.core import Core
from hipfile_sim.observe.sanitizer.findings import CHECKS, Finding, Place, SanitizerError
from hipfile_sim.observe.sanitizer.hb import Edge
from hipfile_sim.observe.sanitizer.policy import Policy


class Sanitizer(Core):
    """Watches one machine. Give it to ``Machine(observers=[sanitizer])`` or ``machine.add_observer``.

    Parameters
    ----------
    policy : Policy or str, optional
        Severities and suppressions; a text is taken as levels, such as ``"leak.*=off"``.
    host_threads : str
        ``"assumed"`` or ``"told"``, see `Core`.
    dropped : iterable of Edge
        Kinds of happens-before edges to ignore. For tests of the tests.
    without : iterable of str
        Checks to leave out. For tests of the tests; a user writes a policy.

    Attributes
    ----------
    findings : list of Finding
        What has been found so far; `finish` adds what only the end can tell.

    Examples
    --------
    >>> from hipfile_sim.machine import Machine
    >>> sanitizer = Sanitizer("leak.*=off")
    >>> with Machine(1, observers=[sanitizer]) as machine:
    ...     _, pointer = machine.hip.hipMalloc(64)
    ...     _, one = machine.hip.hipStreamCreate()
    ...     _, two = machine.hip.hipStreamCreate()
    ...     _ = machine.hip.hipMemsetAsync(pointer, 1, 64, one)
    ...     _ = machine.hip.hipMemsetAsync(pointer, 2, 64, two)
    ...     _ = machine.hip.hipDeviceSynchronize()
    >>> [finding.id for finding in sanitizer.findings]
    ['race.write-write']
    """

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        host_threads: str = "assumed",
        dropped: Iterable[Edge] = (),
        without: Iterable[str] = (),
    ) -> None:
        super().__init__(FAMILIES, dropped=dropped, host_threads=host_threads)
        self.policy = policy if isinstance(policy, Policy) else Policy(policy)
        self.findings: list[Finding] = []
        self._without = frozenset(without)
        self._by_key: dict[tuple[object, ...], Finding] = {}
        self._finished = False

    # -- collecting --------------------------------------------------------------------------------------------------

    def report(
        self,
        id: str,
        message: str,
        places: Sequence[Place] = (),
        *,
        missing: str = "",
        fix: str = "",
        objects: dict[str, Any] | None = None,
    ) -> Finding | None:
        if id in self._without:
            return None
        level = self.policy.level(id)
        if level == "off":
            return None
        finding = Finding(
            id, level, message, tuple(places), objects or {}, missing, fix or CHECKS[id].fix, time=self.now
        )
        key = finding.key()
        known = self._by_key.get(key)
        if known is not None:
            known.count += 1
            return known
        if not self.policy.admits(finding):
            return None
        self._by_key[key] = finding
        self.findings.append(finding)
        return finding

    def retract(self, id: str, site: Site | None) -> None:
        for finding in reversed(self.findings):
            if finding.id == id and finding.places and finding.places[0].site == site:
                finding.count -= 1
                if not finding.count:
                    self.findings.remove(finding)
                    del self._by_key[finding.key()]
                return

    def finish(self) -> None:
        """The program is over: report what is left over. Does nothing the second time."""
        if not self._finished:
            self._finished = True
            for hook in self._hooks["finish"]:
                hook()

    # -- asking ------------------------------------------------------------------------------------------------------

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that the policy calls errors."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def summary(self) -> str:
        """One line."""
        return reports.summary(self.findings, self.operations)

    def format(self, format: str = "text", *, colour: bool | None = None) -> str:
        """The report.

        Parameters
        ----------
        format : str
            ``"text"``, ``"json"``, ``"sarif"`` or ``"summary"``.
        colour : bool, optional
            ANSI colours in the text; by default if stderr is a terminal.

        Raises
        ------
        ValueError
            An unknown format.
        """
        if format == "text":
            colour = reports.wants_colour() if colour is None else colour
            unused = self.policy.unused if self._finished else ()
            return reports.text(self.findings, operations=self.operations, colour=colour, unused=unused)
        maker = reports.FORMATS.get(format)
        if maker is None:
            raise ValueError(f"no report format is called {format!r}: choose one of {', '.join(reports.FORMATS)}")
        return maker(self.findings, operations=self.operations)

    def raise_if_errors(self) -> None:
        """`finish`, then complain.

        Raises
        ------
        SanitizerError
            There is a finding that the policy calls an error. The message is the report.
        """
        self.finish()
        if self.errors:
            raise SanitizerError(self.errors, self.format("text", colour=False))
