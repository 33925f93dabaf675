"""What a family of checks is: hooks that the core calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from hipfile_sim.engine.command import Access, Command
from hipfile_sim.observe.observer import Call, HostAccess, Note, Release
from hipfile_sim.observe.sanitizer.deeds import Clash, Deed
from hipfile_sim.observe.sanitizer.operation import Operation

if TYPE_CHECKING:
    from hipfile_sim.hip.memory import Block
    from hipfile_sim.observe.sanitizer.state import State


class Family:
    """Checks that belong together. Override the hooks you need; each is called under the machine's lock.

    Attributes
    ----------
    calls, returns : mapping
        Name of a function of the API to a method, called when such a call begins or has returned.
    """

    def __init__(self, core: State) -> None:
        self.core = core
        self.calls: dict[str, Callable[[Call], None]] = {}
        self.returns: dict[str, Callable[[Call], None]] = {}

    def conflict(self, clash: Clash) -> bool:
        """Two deeds race. True: it is this family's to report, and it has decided."""
        return False

    def command(self, command: Command) -> None:
        """A command was submitted that belongs to no hipFile operation."""

    def op_submitted(self, op: Operation) -> None:
        """The first command of an operation was submitted."""

    def op_command(self, op: Operation, command: Command, accesses: Sequence[Access]) -> None:
        """A command of an operation that reads or writes its slots has run."""

    def op_done(self, op: Operation) -> None:
        """All commands of an operation have run."""

    def op_known(self, ops: Sequence[Operation]) -> None:
        """The host has just learnt that these operations are complete."""

    def host_read(self, access: HostAccess, deed: Deed) -> None:
        """Host code reads memory."""

    def host_on_device(self, access: HostAccess, deed: Deed) -> None:
        """Host code touches addresses among which the device memory is."""

    def host_file(self, access: HostAccess) -> None:
        """Host code touches a file."""

    def touched(self, deed: Deed, accesses: Iterable[Access]) -> None:
        """Bytes were touched, by host code or by a command. Called only while ``core.watch_touched``."""

    def released(self, release: Release) -> None:
        """Memory left its owner."""

    def allocated(self, block: Block, internal: bool) -> None:
        """Memory was allocated; `internal`: by the library for itself."""

    def freed(self, block: Block, internal: bool) -> None:
        """Memory was freed."""

    def note(self, note: Note) -> None:
        """The model has a remark."""

    def finish(self) -> None:
        """The program is over."""
