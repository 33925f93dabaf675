"""What a check has found, and the list of all checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hipfile_sim.observe.observer import Site

SEVERITIES = ("error", "warning", "note")
"""From worst to mildest."""


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of finding.

    Parameters
    ----------
    id : str
        Stable, ``family.what``.
    severity : str
        ``"error"``, ``"warning"`` or ``"note"``, unless the policy says otherwise.
    title : str
        What is wrong, in a few words.
    why : str
        What happens on real hardware.
    fix : str
        What would make it right, in general.
    """

    id: str
    severity: str
    title: str
    why: str
    fix: str


CHECKS: dict[str, Check] = {}
"""Every check by id. The modules of `checks` fill it."""


def declare(id: str, severity: str, title: str, *, why: str, fix: str) -> str:
    """Add a check to `CHECKS` and return its id.

    Raises
    ------
    ValueError
        The id is taken, or the severity is none of `SEVERITIES`.
    """
    if id in CHECKS:
        raise ValueError(f"two checks claim the id {id!r}; an id names one thing for good")
    if severity not in SEVERITIES:
        raise ValueError(f"severity {severity!r} of {id} is none of {', '.join(SEVERITIES)}")
    CHECKS[id] = Check(id, severity, title, why, fix)
    return id


@dataclass(frozen=True, slots=True)
class Place:
    """One end of a finding: who did what, and where in the user's source.

    Parameters
    ----------
    role : str
        ``"read"``, ``"write"``, ``"submit"``, ``"free"`` …
    what : str
        Who: a command with its stream, or host code.
    site : Site or None
        The user's line that did or submitted it.
    detail : str
        Which bytes, for example.
    name : str
        The user's name for it, such as a kernel's: places of different names are different.
    """

    role: str
    what: str
    site: Site | None
    detail: str = ""
    name: str = ""


@dataclass(slots=True, eq=False)
class Finding:
    """One report.

    Parameters
    ----------
    id : str
        Which check.
    severity : str
        ``"error"``, ``"warning"`` or ``"note"``: as the policy made it.
    message : str
        What happened, one sentence.
    places : tuple of Place
        The ends, what came first in the program first.
    objects : mapping
        What it is about, by name.
    missing : str
        The edge that is not there; empty where no edge would help.
    fix : str
        What would make it right.
    count : int
        How often it was seen at the same places.
    time : int
        Virtual ns.
    """

    id: str
    severity: str
    message: str
    places: tuple[Place, ...] = ()
    objects: Mapping[str, Any] = field(default_factory=dict)
    missing: str = ""
    fix: str = ""
    count: int = 1
    time: int = 0

    @property
    def sites(self) -> tuple[Site, ...]:
        """The user's lines, without repeats."""
        return tuple(dict.fromkeys(place.site for place in self.places if place.site is not None))

    def key(self) -> tuple[object, ...]:
        """Findings with the same key are one, seen again."""
        return (self.id, *((p.role, p.site, p.name if p.site is not None else p.what) for p in self.places))

    def __str__(self) -> str:
        where = f" ({self.sites[0]})" if self.sites else ""
        return f"{self.severity} {self.id}: {self.message}{where}"


class SanitizerError(AssertionError):
    """The program did something that the policy calls an error.

    Attributes
    ----------
    findings : tuple of Finding
        The errors.
    report : str
        All of the report as text.
    """

    def __init__(self, findings: tuple[Finding, ...], report: str) -> None:
        self.findings = findings
        self.report = report
        super().__init__(report)
