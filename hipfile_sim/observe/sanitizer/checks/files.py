"""Files: descriptors and registrations that go away in flight, and data that is not where the program thinks."""

from __future__ import annotations

import posix
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hipfile_sim.engine.command import Lane, Space
from hipfile_sim.observe.observer import Call, HostAccess, Note
from hipfile_sim.observe.sanitizer.family import Family
from hipfile_sim.observe.sanitizer.findings import Place, declare
from hipfile_sim.observe.sanitizer.operation import Operation
from hipfile_sim.observe.sanitizer.state import State

if TYPE_CHECKING:
    from hipfile_sim.driver.files import RegisteredFile
    from hipfile_sim.driver.tasks import Task

CLOSED = declare(
    "fd.closed-in-flight",
    "error",
    "file descriptor closed while an operation on its handle is in flight",
    why="hipFile does not duplicate the caller's descriptor; what it does next with the number fails, or works on "
    "the second descriptor by luck.",
    fix="Wait for the operations and deregister the handle before closing the descriptor.",
)
REUSED = declare(
    "fd.recycled-in-flight",
    "error",
    "file descriptor closed in flight, and its number now means another file",
    why="hipFile only knows the number: it reads from, or writes over, the other file.",
    fix="Wait for the operations and deregister the handle before closing the descriptor.",
)
DEREGISTER = declare(
    "deregister.in-flight",
    "error",
    "handle or buffer deregistered while an operation on it is in flight",
    why="AMD's library silently keeps a handle that is in use, and refuses a buffer with 5030; it stays registered "
    "for the rest of the process, and the descriptor's number with it.",
    fix="Synchronise the stream before deregistering.",
)
UNSYNCED = declare(
    "data.unsynced-write",
    "note",
    "asynchronous write never made durable",
    why="The asynchronous fallback does not call fdatasync, the synchronous one does. After a power cut the file "
    "may be empty or torn although bytes_done said otherwise.",
    fix="Call os.fdatasync on the descriptor after synchronising, or open the file with O_DSYNC.",
)
DETAIL = declare(
    "data.error-detail-lost",
    "note",
    "an operation failed with an errno that the program never sees",
    why="The result slot of an asynchronous operation only says that something failed: a full disk and a broken one "
    "look the same.",
    fix="Look at free space and quota before the retry, or repeat the operation with the synchronous call, which "
    "sets errno.",
)


class _User(NamedTuple):
    """Something in flight that uses a file and a buffer."""

    handle: int
    pointer: int
    path: str
    name: str
    lane: Lane
    place: Place


class Files(Family):
    """Checks of handles, descriptors and durability."""

    def __init__(self, core: State) -> None:
        super().__init__(core)
        self._unsynced: dict[Space, Operation] = {}
        self._lost: set[int] = set()
        """Operations whose descriptor is gone."""
        self._early: set[int] = set()
        """Handles that were deregistered in flight."""
        self.calls = {
            "hipFileHandleDeregister": self._handle,
            "hipFileBufDeregister": self._buffer,
            "hipFileDriverClose": self._close,
        }
        self.returns = {"hipFileWrite": self._sync_write}

    # -- registrations -----------------------------------------------------------------------------------------------

    def _handle(self, call: Call) -> None:
        handle = call.args.get("handle", 0)
        user = next((user for user in self._users() if user.handle == handle), None)
        if user is not None:
            self._early.add(handle)
            effect = "the library silently ignores the call and the file stays registered"
            self._deregistered(user, call, f"the handle of {user.path or hex(handle)}", effect)

    def _buffer(self, call: Call) -> None:
        pointer = call.args.get("pointer", 0)
        user = next((user for user in self._users() if user.pointer == pointer), None)
        if user is not None:
            effect = "the library refuses with 5030 and the buffer stays registered"
            self._deregistered(user, call, f"buffer {pointer:#x}", effect)

    def _close(self, call: Call) -> None:
        state = self.core.driver_state()
        user = next(iter(self._users()), None)
        if user is not None and state is not None and state.use_count == 1:
            effect = "handles and buffers are forgotten, and what is in flight goes on with what it holds"
            self._deregistered(user, call, "everything", effect)

    def _users(self) -> Iterator[_User]:
        """What is in flight, with the handle and the registered buffer that it uses."""
        for op in self.core.in_flight():
            pointer = op.pointer if op.registered_buffer else 0
            yield _User(op.handle, pointer, op.file_path, op.name, op.lane, op.place())
        for task in self.core.batched():
            pointer = task.buffer.base if task.buffer.registered else 0
            yield _User(task.file.handle, pointer, *self._batch(task))

    def _batch(self, task: Task) -> tuple[str, str, Lane, Place]:
        """Path of the file, name, stream and place of an operation of a batch."""
        path = self.core.names.file(self.core.file_space(task.file))
        name = f"batch {'write' if task.writes else 'read'}"
        what = f"{name} of {task.op.size} bytes {'to' if task.writes else 'from'} {path} at {task.op.file_offset}"
        return path, name, task.lane, Place("submit", what, task.site)

    def _deregistered(self, user: _User, call: Call, what: str, effect: str) -> None:
        lane = user.lane.name
        wait = "collect its event with hipFileBatchIOGetStatus" if lane.startswith("batch") else f"synchronise {lane}"
        self.core.report(
            DEREGISTER,
            f"{what} is deregistered while {user.name} on {lane} is in flight; {effect}",
            (user.place, Place("deregister", call.name, call.site)),
            missing=f"the host did not wait for {lane}",
            fix=f"{wait} before deregistering",
        )

    # -- descriptors -------------------------------------------------------------------------------------------------

    def note(self, note: Note) -> None:
        if note.id == "file.descriptor-recycled":
            self._descriptor(note)
        elif note.id == "result.hidden-errno":
            op = self.core.op_of(note.objects.get("operation"))
            if op is not None and op.seq in self._lost:
                return  # its descriptor is gone, and that was said
            self.core.report(DETAIL, note.message, () if op is None else (op.place(),), fix=DETAIL_FIX)

    def _descriptor(self, note: Note) -> None:
        file = note.objects["file"]
        ops = [op for op in self.core.pending() if op.handle == file.handle]
        task = next((task for task in self.core.batched() if task.file is file), None)
        place = Place("use", "synchronous operation", note.site) if task is None else self._batch(task)[3]
        self._gone(file, ops, place)

    def op_known(self, ops: Sequence[Operation]) -> None:
        """Operations may have run before the descriptor was closed, by luck; the program did not know that."""
        by_file: dict[int, list[Operation]] = {}
        for op in ops:
            if op.seq not in self._lost:
                by_file.setdefault(id(op.file), []).append(op)
        for group in by_file.values():
            file = group[0].file
            if file.registered and file.recycled:
                self._gone(file, group, group[0].place())

    def _gone(self, file: RegisteredFile, ops: Sequence[Operation], place: Place) -> None:
        """The caller's descriptor of `file` is closed, or means another file by now."""
        self._lost.update(op.seq for op in ops)
        if file.handle in self._early:
            return  # deregistered in flight, which was said; whoever does that closes it, too
        try:
            self.core.machine.hipfile.files.identity(file.client_fd)
            id = REUSED
        except OSError:
            id = CLOSED
        name = ops[0].file_path if ops else f"handle {file.handle:#x}"
        now = "now means another file" if id == REUSED else "is closed"
        owned = file.client_fd != file.buffered_fd
        effect = "the operation goes on with its own second descriptor" if owned else "the operation uses that number"
        self.core.report(
            id,
            f"descriptor {file.client_fd} of {name} {now}, but the file is still registered; {effect}",
            (ops[0].place() if ops else place,),
            missing=f"the host did not wait for {ops[0].lane.name} before it closed the descriptor" if ops else "",
            fix="wait for the operations and deregister the handle before closing the descriptor",
        )

    # -- durability --------------------------------------------------------------------------------------------------

    def op_done(self, op: Operation) -> None:
        if not op.write or op.object.value <= 0 or op.object.file.flags & (posix.O_SYNC | posix.O_DSYNC):
            return
        if op.object.driver.profile.async_generation != "g3":  # that one syncs
            self._unsynced[op.file_space] = op

    def host_file(self, access: HostAccess) -> None:
        if access.what == "sync":
            self._unsynced.clear()
        elif access.what in ("fsync", "fdatasync"):
            self._unsynced.pop(access.access.space, None)

    def _sync_write(self, call: Call) -> None:
        file = self.core.file(call.args.get("handle", 0))
        if file is not None and getattr(call.result, "count", -1) > 0:
            self._unsynced.pop(self.core.file_space(file), None)

    def finish(self) -> None:
        for op in self._unsynced.values():
            if op.site is not None and not op.site.line:
                continue  # a C program: whether it has called fsync is not seen
            self.core.report(
                UNSYNCED,
                f"{op.file_path} was written by {op.name} and never synced to disk",
                (op.place(),),
                fix="call os.fdatasync on the descriptor after synchronising the stream",
            )


DETAIL_FIX = "look at free space before the retry, or repeat the operation with the synchronous call, which sets errno"
