"""Commands, lanes and the byte ranges that a command touches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from hipfile_sim.engine.clock import CostModel
    from hipfile_sim.observe.observer import Site

Space: TypeAlias = "str | tuple[str, int, int]"
"""``"mem"`` for every real address, ``("file", st_dev, st_ino)`` for a file's bytes; the explorer has its own names."""

MEM = "mem"
LIBRARY = "library"
"""State of a library above HIP that lies in no memory of the machine: what is in use, and by whom."""
SLOW = 1
HELD = 2


class Access(NamedTuple):
    """One byte range that a command reads or writes.

    Parameters
    ----------
    space : Space
        ``"mem"`` or ``("file", st_dev, st_ino)``.
    start : int
        First byte: a real address, or an offset in the file.
    length : int
        Bytes.
    write : bool
        False for a read.

    Examples
    --------
    >>> Access("mem", 0x1000, 16, True).overlaps(Access("mem", 0x100F, 1, False))
    True
    """

    space: Space
    start: int
    length: int
    write: bool

    def overlaps(self, other: Access) -> bool:
        """Whether the two ranges share at least one byte."""
        return (
            self.space == other.space
            and self.start < other.start + other.length
            and other.start < self.start + self.length
        )

    def conflicts(self, other: Access) -> bool:
        """Whether the two overlap and at least one of them writes."""
        return (self.write or other.write) and self.overlaps(other)


class Lane:
    """A queue whose commands run one after the other: a stream, seen by the engine.

    Attributes
    ----------
    index : int
        Position in ``Engine.lanes``; the number that schedules and tokens use.
    group : int
        Device ordinal.
    submitted, completed : int
        Ticket of the last command put in, and of the last one finished. The lane is idle when they are equal.
    running : Command or None
        Taken off the queue and not finished yet (a host function that blocks, or any command of the threaded engine).
    stalled : int
        0; `SLOW`: a command starts only when nothing else can move; `HELD`: no command starts.
    time : int
        Virtual ns at which the last finished command ended.
    unblocked : int
        Virtual ns at which the head stopped waiting for another lane; 0 if it never did.
    """

    __slots__ = (
        "completed",
        "group",
        "index",
        "name",
        "queue",
        "running",
        "stalled",
        "submitted",
        "time",
        "unblocked",
    )

    def __init__(self, index: int, name: str, group: int = 0) -> None:
        self.index = index
        self.name = name
        self.group = group
        self.queue: deque[Command] = deque()
        self.submitted = 0
        self.completed = 0
        self.running: Command | None = None
        self.stalled = 0
        self.time = 0
        self.unblocked = 0

    @property
    def idle(self) -> bool:
        """True when every command that was put in has finished."""
        return self.completed == self.submitted

    @property
    def tail(self) -> Marker:
        """The marker of everything submitted so far."""
        return (self, self.submitted)

    def __repr__(self) -> str:
        return f"<Lane {self.index} {self.name}: {self.completed}/{self.submitted}>"


Marker: TypeAlias = tuple[Lane, int]
"""(lane, ticket): complete once that lane has finished its ticket-th command."""


def marker_done(marker: Marker) -> bool:
    """Whether the marked command has finished."""
    return marker[0].completed >= marker[1]


class Command:
    """One unit of work in a lane: what it is, what it touches and how to run it.

    Subclasses set ``kind`` and override `run`, `accesses` and, where time matters, `cost`.

    Attributes
    ----------
    kind : str
        Short name of the sort of work.
    external : bool
        It runs user code, so it runs on the host-function thread and may block for as long as it likes.
    user_code : bool
        `run` calls a function of the user, so it may raise anything and may call back into the runtime.
    on_host_thread : bool
        A host function, of the user or of a library: where the runtime has one thread for all, it waits its turn.
    library : bool
        It belongs to a library above HIP, whose own state it looks at or gives back (`LIBRARY`).
    conditional : bool
        It may start only when `ready` says so (a wait on a value in memory).
    signals : bool
        A conditional command may wait for what it writes, so its effect and its end are seen together.
    deps : tuple of Marker
        What must be complete, besides everything before it in its own lane.
    label : str or None
        A name for people.
    cost_ns : int or None
        Virtual ns; overrides `cost`.
    """

    __slots__ = (
        "cost_ns",
        "deps",
        "finish_time",
        "label",
        "lane",
        "site",
        "start_time",
        "submit_time",
        "ticket",
    )

    kind: ClassVar[str] = "command"
    external: ClassVar[bool] = False
    user_code: ClassVar[bool] = False
    conditional: ClassVar[bool] = False
    signals: ClassVar[bool] = False
    on_host_thread: ClassVar[bool] = False
    library: ClassVar[bool] = False

    lane: Lane
    ticket: int
    deps: tuple[Marker, ...]
    submit_time: int
    start_time: int
    finish_time: int
    site: Site | None
    label: str | None
    cost_ns: int | None

    def __init__(self) -> None:
        self.cost_ns = None
        self.label = None
        self.site = None

    def accesses(self) -> Sequence[Access]:
        """Byte ranges: what it would touch if it ran now or, once it has run, what it touched."""
        return ()

    def cost(self, model: CostModel) -> int:
        """Virtual ns that the command takes, start to finish."""
        return model.command

    def ready(self) -> bool:
        """Whether a conditional command may start. Asked only if `conditional`."""
        return True

    def run(self) -> None:
        """Do the work. An exception means a fault in user code or in the model, never an I/O error."""

    def describe(self) -> str:
        """What the command is, in a few words."""
        return f"{self.kind} {self.label}" if self.label else self.kind

    def __repr__(self) -> str:
        where = f" {self.lane.name}#{self.ticket}" if hasattr(self, "ticket") else ""
        return f"<{self.describe()}{where}>"
