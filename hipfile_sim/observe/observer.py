"""What an observer is told."""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from hipfile_sim.engine.command import Access, Command, Lane, Marker
    from hipfile_sim.hip.memory import Block


class Site(NamedTuple):
    """A place in the user's source."""

    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} in {self.function}"


@dataclass(slots=True, eq=False)
class Call:
    """One call of the API by the host.

    Parameters
    ----------
    seq : int
        Number of the call on this machine, from 1.
    api : str
        ``"hip"`` or ``"hipfile"``.
    name : str
        Name of the C function.
    args : mapping
        Arguments by parameter name.
    thread : int
        `threading.get_ident` of the caller.
    site : Site or None
        First frame outside the simulator.
    time : int
        Virtual ns at entry.
    result : object
        What the call returned, once it has.
    """

    seq: int
    api: str
    name: str
    args: Mapping[str, Any]
    thread: int
    site: Site | None
    time: int
    result: Any = None
    end_time: int = 0


@dataclass(slots=True, eq=False)
class Wait:
    """The host learnt that commands are complete: by waiting, or by a query that said so."""

    thread: int
    targets: Sequence[Marker]
    what: str
    site: Site | None


@dataclass(slots=True, eq=False)
class HostAccess:
    """A face saw host code read or write memory that the model knows (a slot, a pinned array …)."""

    access: Access
    thread: int
    site: Site | None
    what: str


@dataclass(slots=True, eq=False)
class Note:
    """A remark of the model itself.

    Parameters
    ----------
    id : str
        Stable, dotted; the sanitizer's reports use the same ids.
    message : str
        One sentence.
    objects : mapping
        What it is about, by name.
    severity : str
        ``"error"``, ``"warning"`` or ``"note"``.
    """

    id: str
    message: str
    site: Site | None = None
    objects: Mapping[str, Any] = field(default_factory=dict)
    severity: str = "note"


@dataclass(slots=True, eq=False)
class Release:
    """Memory leaves its owner without a call of the API: a face saw it, the model did not.

    Parameters
    ----------
    start, length : int
        Bytes ``[start, start + length)``.
    kind : str
        ``"freed"``: given back to a pool, in the order of `lane`; ``"cached"``: the same, where that is no mistake even
        while it is in use, because the pool knows when to hand it out; ``"recycled"``: a pool hands it out;
        ``"collected"``: the object that owned it was garbage collected; ``"scope"``: the scope that it lived in has
        ended.
    what : str
        The owner, for people.
    lane : Lane or None
        The stream in whose order a pool hands memory out again; None when the host's order counts.
    """

    start: int
    length: int
    kind: str
    what: str
    thread: int
    site: Site | None
    lane: Lane | None = None


class Observer:
    """Base class: override what you want to see. Methods run under the machine's lock and must not call the API."""

    def attached(self, machine: Any) -> None:
        """The observer was added to `machine`."""

    def call(self, call: Call) -> None:
        """A host call begins."""

    def returned(self, call: Call) -> None:
        """A host call ends; ``call.result`` is set."""

    def lane_added(self, lane: Lane) -> None:
        """A stream came into being."""

    def submitted(self, command: Command) -> None:
        """A command entered its lane; ``deps``, ``site`` and ``ticket`` are set."""

    def started(self, command: Command) -> None:
        """A command begins."""

    def finished(self, command: Command) -> None:
        """A command ended; ``accesses()`` says what it touched."""

    def waited(self, wait: Wait) -> None:
        """The host learnt that commands are complete."""

    def host_access(self, access: HostAccess) -> None:
        """Host code touched memory that the model knows."""

    def allocated(self, block: Block) -> None:
        """Memory was allocated or registered."""

    def freed(self, block: Block) -> None:
        """Memory was freed or unregistered."""

    def released(self, release: Release) -> None:
        """Memory left its owner."""

    def note(self, note: Note) -> None:
        """The model has a remark."""


OURS = ("hipfile_sim.", "hipfile_mock.", "torch.", "contextlib", "ctypes", "rocm.", "hip.", "hipfile.", "_hipfile")
"""Modules whose frames are never the user's."""
_FOLDERS = ("/site-packages/", "/dist-packages/", "<frozen ", f"{sysconfig.get_path('stdlib')}/")
"""Where libraries are: a frame there is the user's only if no other is."""
RUNNERS = ("hipfile_sim.cli.", "_pytest.")
"""Modules that run the user's program: what lies beyond their frames is nobody's."""


_USERS, _LIBRARYS, _NOBODYS = range(3)
_known: dict[CodeType, int] = {}
"""Whose a function is. Looking at the name of its module for every frame of every call would cost more."""
_KNOWN_LIMIT = 4096


foreign_site: Callable[[], Site | None] | None = None
"""Set by the C ABI: the place in a C program that made the call which runs now."""


_calling: dict[int, Site] = {}
"""Thread to the place of the observed API call that it is in. All that happens inside has that place."""


def from_one_place(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `function`, an API call with observers, so that `call_site` walks the frames only once in it."""
    thread = threading.get_ident()
    if thread in _calling:
        return function(*args, **kwargs)
    site = call_site(3)
    if site is None:
        return function(*args, **kwargs)
    _calling[thread] = site
    try:
        return function(*args, **kwargs)
    finally:
        del _calling[thread]


def call_site(depth: int = 1) -> Site | None:
    """The innermost frame that belongs to the user: not to numpy, to the standard library or to an installed package.

    Parameters
    ----------
    depth : int
        Frames to skip at once.

    Returns
    -------
    Site or None
        Where no frame is the user's, the innermost of an installed package; where there is none either, what
        `foreign_site` says of the C code that called; None without it.
    """
    site = _calling.get(threading.get_ident()) if _calling else None
    if site is not None:
        return site
    try:
        frame = sys._getframe(depth)
    except ValueError:  # called from C on a thread without other Python frames
        return foreign_site() if foreign_site is not None else None
    known = _known
    library: Site | None = None
    while frame is not None:
        code = frame.f_code
        whose = known.get(code)
        if whose is None:
            if len(known) > _KNOWN_LIMIT:
                known.clear()
            module = frame.f_globals.get("__name__", "") + "."
            if module.startswith(RUNNERS):
                break
            whose = known[code] = _whose(module, code.co_filename)
        if whose == _USERS:
            return Site(code.co_filename, frame.f_lineno, code.co_name)
        if whose == _LIBRARYS and library is None:
            library = Site(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return library or (foreign_site() if foreign_site is not None else None)


def _whose(module: str, filename: str) -> int:
    if module.startswith(OURS):
        return _NOBODYS
    return _LIBRARYS if module.startswith("numpy.") or any(part in filename for part in _FOLDERS) else _USERS


def current_thread() -> int:
    """Number of the calling thread, as observers know it."""
    return threading.get_ident()
