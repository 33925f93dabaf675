"""Who did what: the records behind a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipfile_sim.engine.command import Lane, Space
from hipfile_sim.observe.sanitizer.findings import Place

if TYPE_CHECKING:
    from hipfile_sim.observe.observer import Site
    from hipfile_sim.observe.sanitizer.operation import Operation


class Deed:
    """One command, or one deed of host code, that touched bytes.

    Attributes
    ----------
    lane : Lane or None
        The stream; None for host code.
    kind, label : str
        As of the command; for host code, ``"host"`` and what it did.
    site : Site or None
        Where it was submitted or, for host code, done.
    op : Operation or None
        The hipFile operation that the command belongs to.
    flagged : bool
        It is part of a finding already.
    """

    __slots__ = ("flagged", "kind", "label", "lane", "op", "site", "ticket")

    def __init__(
        self, lane: Lane | None, ticket: int, kind: str, label: str | None, site: Site | None, op: Operation | None
    ) -> None:
        self.lane = lane
        self.ticket = ticket
        self.kind = kind
        self.label = label
        self.site = site
        self.op = op
        self.flagged = False

    @property
    def is_host(self) -> bool:
        """Whether host code did it (a host function on a stream counts as a command)."""
        return self.lane is None

    def __str__(self) -> str:
        if self.lane is None:
            return f"host code{': ' + self.label if self.label else ''}"
        if self.op is not None:
            return f"{self.op.name} on {self.lane.name}"
        name = {"host": "host function", "set": "memset", "batch_io": "batch operation"}.get(self.kind, self.kind)
        return f"{name}{' ' + self.label if self.label else ''} on {self.lane.name}"

    def place(self, role: str, detail: str = "") -> Place:
        """This end of a finding."""
        return Place(role, str(self), self.site, detail, self.label or "")


class Clash:
    """Two deeds that touch the same bytes, at least one writes, and nothing orders them. `later` was seen later."""

    __slots__ = ("earlier", "earlier_write", "end", "later", "later_write", "space", "start")

    def __init__(
        self,
        earlier: Deed,
        earlier_write: bool,
        later: Deed,
        later_write: bool,
        space: Space,
        start: int,
        end: int,
    ) -> None:
        self.earlier = earlier
        self.earlier_write = earlier_write
        self.later = later
        self.later_write = later_write
        self.space = space
        self.start = start
        self.end = end
