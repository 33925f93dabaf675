"""What a test is given: calls by C name, small helpers, and the checks against the clauses.

``t.hipMalloc(n)`` makes the call on the target. A check never holds an expected value of its own: it says how an
observation reads as an answer, and the registry's answer for the release decides.
"""

from __future__ import annotations

import builtins
import ctypes
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipfile_conformance.pieces import (
    D2D,
    D2H,
    DEFAULT,
    GONE,
    H2D,
    KIB,
    MADE,
    MIB,
    SENTINEL,
    Slots,
    code_text,
    io_text,
    pattern,
)
from hipfile_conformance.results import Check, State, answer
from hipfile_conformance.targets.base import BatchEvent, Hold, HoldKind, IOResult, Status, Target
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
    "Blocked",
    "Kit",
    "NotRun",
    "Slots",
    "code_text",
    "io_text",
    "pattern",
]


class NotRun(Exception):
    """The test cannot say anything here; the reason goes into the cell."""


class Blocked(Exception):
    """A call did not return although it should have."""


class Kit:
    """See the module.

    Parameters
    ----------
    target
        Who answers the calls.
    release
        Whose answers are expected.
    seed
        Drives :attr:`random`; part of the rerun line.
    clauses
        Ids that the test named; a check of another id is an error in the test.
    """

    def __init__(
        self, target: Target, release: str, *, depth: str = "quick", seed: int = 0, clauses: tuple[str, ...] = ()
    ) -> None:
        self.target = target
        self.release = release
        self.depth = depth
        self.seed = seed
        self.random = random.Random(seed)
        self.clauses = clauses
        self.checks: list[Check] = []
        self._holds: list[Hold] = []
        self._fds: list[int] = []
        self._paths: list[str] = []
        self._kept: list[Any] = []
        self._made: list[tuple[str, int]] = []
        self._count = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("hip"):
            raise AttributeError(name)
        call = self.target.call
        keep = MADE.get(name)
        if name in GONE and self._made:

            def take_back(*args: Any) -> Any:
                self._made = [made for made in self._made if made != (name, args[0])]
                return call(name, *args)

            return take_back
        if keep is None or self.has("model"):  # the model is thrown away with all that it holds

            def make(*args: Any) -> Any:
                return call(name, *args)

        else:
            undo, outs = keep

            def make(*args: Any) -> Any:
                result = call(name, *args)
                status = result[0] if outs else result
                if (status[0] if isinstance(status, tuple) else status) == 0:
                    self._made.append((undo, result[1] if outs else args[0]))
                return result

        return make

    # ----------------------------------------------------------------------------------------------------- what is it
    @property
    def profile(self) -> Profile:
        """The release's profile: its named values decide which cases a test makes."""
        return get_profile(self.release)

    def has(self, capability: str) -> bool:
        """Has the target that capability?"""
        return capability in self.target.capabilities

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

    # ------------------------------------------------------------------------------------------------------- building
    def ok(self, result: Any, what: str = "a call of the set-up") -> Any:
        """Unwrap a result of the set-up that must be a success; a failure there is a failed test."""
        code, *values = result if isinstance(result, tuple) and not isinstance(result, Status) else (result,)
        number = code.err if isinstance(code, Status) else code
        if number:
            raise AssertionError(f"{what} failed: {code_text(code)} ({code!r})")
        return values[0] if len(values) == 1 else tuple(values) if values else None

    def stream(self, flags: int = 1, register: int | None = None) -> int:
        """A stream (non-blocking unless `flags` is 0), registered with hipFile where `register` gives flags."""
        stream = int(self.ok(self.hipStreamCreateWithFlags(flags), "hipStreamCreateWithFlags"))
        if register is not None:
            self.ok(self.hipFileStreamRegister(stream, register), "hipFileStreamRegister")
        return stream

    def event(self, flags: int = 0) -> int:
        """An event."""
        return int(self.ok(self.hipEventCreateWithFlags(flags), "hipEventCreateWithFlags"))

    def device(self, size: int, fill: int = 0xAA) -> int:
        """Device memory, filled."""
        pointer = int(self.ok(self.hipMalloc(size), "hipMalloc"))
        self.ok(self.hipMemset(pointer, fill, size), "hipMemset")
        self.ok(self.hipDeviceSynchronize(), "hipDeviceSynchronize")
        return pointer

    def pinned(self, size: int, fill: int = 0) -> int:
        """Pinned host memory, filled."""
        pointer = int(self.ok(self.hipHostMalloc(size, 0), "hipHostMalloc"))
        ctypes.memset(pointer, fill, size)
        return pointer

    def host(self, size: int, fill: int = 0) -> int:
        """Plain host memory, filled."""
        room = ctypes.create_string_buffer(bytes([fill]) * size, size)
        self._kept.append(room)
        return ctypes.addressof(room)

    def peek(self, pointer: int, size: int) -> builtins.bytes:
        """Bytes of host or pinned memory, without a call."""
        return ctypes.string_at(pointer, size)

    def bytes(self, pointer: int, size: int) -> builtins.bytes:
        """Bytes of device memory."""
        room = ctypes.create_string_buffer(size)
        self.ok(self.hipMemcpy(ctypes.addressof(room), pointer, size, D2H), "hipMemcpy")
        return room.raw

    def path(self) -> str:
        """A path for a new file; the file is removed at the end of the test."""
        self._count += 1
        path = os.path.join(self.target.directory, f"c{os.getpid()}-{id(self):x}-{self._count}")
        self._paths.append(path)
        return path

    def buffer(self, size: int, fill: int = 0xAA) -> int:
        """Device memory, registered."""
        pointer = self.device(size, fill)
        self.ok(self.hipFileBufRegister(pointer, size, 0), "hipFileBufRegister")
        return pointer

    def file(self, content: int | builtins.bytes = 64 * KIB, flags: int = os.O_RDWR, path: str | None = None) -> int:
        """Descriptor of a new file: `content` bytes of :func:`pattern`, or the bytes given."""
        path = path or self.path()
        Path(path).write_bytes(pattern(content) if isinstance(content, int) else content)
        return self.keep_fd(os.open(path, flags))

    def keep_fd(self, fd: int) -> int:
        """Close `fd` at the end of the test."""
        self._fds.append(fd)
        return fd

    def forget_fd(self, fd: int) -> None:
        """The test closed it itself."""
        self._fds.remove(fd)

    def handle(self, fd: int | None = None, **file: Any) -> int:
        """A registered file: of `fd`, or of a new file made with the arguments of :meth:`file`."""
        descriptor = self.file(**file) if fd is None else fd
        return int(self.ok(self.hipFileHandleRegister((1, descriptor)), "hipFileHandleRegister"))

    def unknown_handle(self) -> int:
        """A handle that is not registered any more (a made-up one could crash a real library)."""
        handle = self.handle()
        self.hipFileHandleDeregister(handle)
        return handle

    def open(self) -> None:
        """Open the driver, and let the first asynchronous operation's lazy set-up pass where there is one."""
        self.ok(self.hipFileDriverOpen(), "hipFileDriverOpen")
        if self.has("real"):
            handle, pointer, stream = self.handle(), self.device(4096), self.stream()
            self.read(handle, pointer, Slots(4096), stream)
            self.ok(self.hipStreamSynchronize(stream), "hipStreamSynchronize")
            self.hipFileHandleDeregister(handle)

    def read(self, handle: int, pointer: int, slots: Slots, stream: int) -> Status:
        """``hipFileReadAsync``."""
        self._kept.append(slots)
        return Status(*self.hipFileReadAsync(handle, pointer, *slots.addresses, stream))

    def write(self, handle: int, pointer: int, slots: Slots, stream: int) -> Status:
        """``hipFileWriteAsync``."""
        self._kept.append(slots)
        return Status(*self.hipFileWriteAsync(handle, pointer, *slots.addresses, stream))

    def finish(self, stream: int) -> None:
        """Synchronise a stream; a failure fails the test."""
        self.ok(self.hipStreamSynchronize(stream), "hipStreamSynchronize")

    def batch_events(self, batch: int, wanted: int, capacity: int = 16) -> list[BatchEvent]:
        """Collect events until `wanted` have come or 2 s have passed."""
        events: list[BatchEvent] = []
        end = time.monotonic() + 2
        while len(events) < wanted and time.monotonic() < end:
            status, some = self.hipFileBatchIOGetStatus(batch, min(1, wanted), capacity, 0.2)
            if Status(*status).err:
                raise AssertionError(f"hipFileBatchIOGetStatus gave {status}")
            events += some
        return events

    # -------------------------------------------------------------------------------------------------------- holding
    @contextmanager
    def held(self, stream: int, kind: HoldKind = "value") -> Iterator[Hold]:
        """Nothing queued on `stream` within runs before the block ends or the hold is released."""
        hold = self.target.hold(stream, kind)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            hold.release()

    @property
    def patience(self) -> float:
        """Seconds after which what has not happened is taken to wait for something."""
        return 0.25 if self.has("real") else 0.1

    def runs(self, stream: int, seconds: float | None = None) -> bool:
        """Can `stream` complete a memset now?"""
        pointer = self.spare
        self.ok(self.hipMemsetAsync(pointer, 1, 16, stream), "hipMemsetAsync")
        return self.completes(stream, seconds)

    def completes(self, stream: int, seconds: float | None = None) -> bool:
        """Does what is queued on `stream` complete by itself?"""
        if self.has("steps"):
            return not self.blocks(lambda: self.hipStreamSynchronize(stream))
        event = self.event(2)
        self.ok(self.hipEventRecord(event, stream), "hipEventRecord")
        end = time.monotonic() + (self.patience if seconds is None else seconds)
        while time.monotonic() < end:
            if self.hipEventQuery(event) == 0:
                return True
            time.sleep(0.002)
        return False

    @property
    def spare(self) -> int:
        """A small piece of device memory; first used before anything is held."""
        if not hasattr(self, "_spare"):
            self._spare = int(self.ok(self.hipMalloc(256), "hipMalloc"))
        return self._spare

    def blocks(self, call: Callable[..., Any], seconds: float | None = None) -> bool:
        """Does `call` wait for something that is held? (It is left waiting where there are threads.)"""
        if self.has("steps"):
            from hipfile_sim.engine.errors import DeadlockError

            try:
                self.result = call()
            except DeadlockError:
                return True
            return False
        box: list[Any] = []
        failed: list[BaseException] = []

        def run() -> None:
            self.hipSetDevice(0)  # a fresh host thread has no current context until it makes a runtime call
            try:
                box.append(call())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.patience if seconds is None else seconds)
        waits = thread.is_alive()
        if failed and not waits:
            raise failed[0]
        self._kept.append(thread)
        self.result = box[0] if box else None
        return waits

    def cleanup_threads(self) -> None:
        """Wait for calls that were left waiting in threads and have been released."""
        for thing in self._kept:
            if isinstance(thing, threading.Thread):
                thread: threading.Thread = thing
                thread.join(5)

    def progress(self) -> None:
        """Let the device move where it can without being waited for (real threads: a moment of time)."""
        if self.has("threads"):
            time.sleep(0.02)

    # ------------------------------------------------------------------------------------------------------------ end
    def _undo(self) -> None:
        """Give back what this test made and did not give back itself, the registrations first."""
        if not self._made:
            return
        self.target.call("hipSetDevice", 0)
        self.target.call("hipDeviceSynchronize")
        for first in ("hipFileBatch", "hipFile", "hip"):  # what uses others goes before them
            for made in reversed(self._made.copy()):
                if made[0].startswith(first):
                    self._made.remove(made)
                    self.target.call(*made)
        self._made.clear()
        self.target.call("hipGetLastError")

    def cleanup(self) -> None:
        """Release holds, wait for threads left waiting, close descriptors, remove files."""
        for hold in self._holds:
            try:
                hold.release()
            except Exception:  # the world may already be broken by the test
                pass
        self.cleanup_threads()
        self._undo()
        for fd in self._fds:
            try:
                os.close(fd)
            except OSError:
                pass
        for path in self._paths:
            Path(path).unlink(missing_ok=True)
