"""A programmable double without an engine: the same ``hipfile`` package, and the answers that a test gives it.

Nothing happens by itself: no file is opened, no byte moves, an asynchronous operation is pending until the test
completes it. For the fastest unit tests of code around hipFile; whether that code is right about order is what
`hipfile_mock.fake` tells.

>>> with stub() as lib:
...     lib.read.returns(100)
...     import hipfile
...
...     with hipfile.FileHandle("/no/such/file", 0) as file:
...         file.read(hipfile.Buffer(0x1000, 4096, 0), 4096, 0, 0)
...         io = file.read_async(hipfile.Buffer(0x1000, 4096, 0), 4096, 0, 0, stream=7)
...         before = io.bytes_done
...         _ = lib.complete(io)
...         before, io.bytes_done
100
(0, 4096)
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator, ExitStack
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, Self

from hipfile_mock import current
from hipfile_mock.answers import ASYNC, COUNTS, FUNCTIONS, HIP, SHORT, Answer, StubCall, StubOperation, slots_at
from hipfile_mock.install import faces_in_place
from hipfile_mock.near import near
from hipfile_sim.observe.observer import call_site

if TYPE_CHECKING:
    from hipfile_mock.faces.slots import AsyncSlots

__all__ = ["Answer", "Stub", "StubCall", "StubOperation", "stub"]


class _Functions:
    """Looks like a driver or a HIP runtime: its attributes are functions that ask the stub."""

    def __init__(self, owner: Stub, hip: bool) -> None:
        self._owner = owner
        self._hip = hip

    device_count = 1

    def hipFileGetOpErrorString(self, code: int) -> str:
        """Text of a code."""
        from hipfile_sim.driver.codes import error_string

        return error_string(code)

    def hipPeekAtLastError(self) -> int:
        """The HIP error of the latest failure."""
        return self._owner._hip_error

    def lookup_stream(self, handle: int) -> Any:
        """Any number is a stream."""
        return self._owner._stream(handle)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in FUNCTIONS or (name in HIP) is not self._hip:
            raise AttributeError(
                f"the stub has no {name}; it has {', '.join(sorted(FUNCTIONS))}. Use hipfile_mock.fake() for the rest."
            )
        owner = self._owner
        function = lambda *args: owner._call(name, args)  # noqa: E731
        setattr(self, name, function)
        return function


class _Engine:
    """The little of an engine that slots ask for."""

    def __init__(self) -> None:
        self.closed = False
        self.ended = False
        self.tracker = None
        self.observers: tuple[Any, ...] = ()
        self.lock = threading.RLock()

    def looked(self, targets: Sequence[Any], what: str) -> None:
        """Nothing moves here on its own."""


class _NoFiles:
    """Stands in for ``os`` where the package opens files: opens nothing, and hands out unreal numbers."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1 << 20)
        self.opened: dict[int, tuple[Any, int, int]] = {}

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        """A number."""
        number = next(self._numbers)
        self.opened[number] = (path, flags, mode)
        return number

    def close(self, fd: int) -> None:
        """Forget a number; a real descriptor is closed."""
        if self.opened.pop(fd, None) is None:
            os.close(fd)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class Stub(ContextDecorator):
    """What `stub` returns, and what its ``with`` block gives.

    Attributes
    ----------
    read, write, read_async, write_async, register_file, deregister_file, register_buffer, deregister_buffer, \
    register_stream, deregister_stream, driver_open, driver_close, use_count, get_version, malloc, free : Answer
        How each function answers; the C names work, too.
    calls : list of StubCall
        Every call, in order.
    pending : list of StubOperation
        Asynchronous operations that are not complete, oldest first.
    """

    if TYPE_CHECKING:
        read: Answer
        write: Answer
        read_async: Answer
        write_async: Answer
        register_file: Answer
        deregister_file: Answer
        register_buffer: Answer
        deregister_buffer: Answer
        register_stream: Answer
        deregister_stream: Answer
        driver_open: Answer
        driver_close: Answer
        use_count: Answer
        get_version: Answer
        malloc: Answer
        free: Answer

    def __init__(self, *, files: bool = False, strict: bool = True, version: tuple[int, int, int] = (0, 5, 0)) -> None:
        self._files = files
        self._strict = strict
        self._version = version
        self._stack = ExitStack()
        self._hip_error = 0
        self._ended_at = ""
        self._reset()

    def _reset(self) -> None:
        self.calls: list[StubCall] = []
        self.pending: list[StubOperation] = []
        self._answers = {name: Answer(name) for name in FUNCTIONS}
        self._streams: dict[int, Any] = {}
        self._open_count = 0
        self._handles = itertools.count(0x5000_0000_0000, 0x40)
        self._memory = 0x7000_0000_0000
        self.engine = _Engine()
        self.hipfile = _Functions(self, hip=False)
        self.hip = _Functions(self, hip=True)
        self.profile = SimpleNamespace(version=self._version)
        self.os = None if self._files else _NoFiles()
        self._hip_error = 0

    def __getattr__(self, name: str) -> Answer:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._answers[SHORT.get(name, name)]
        except KeyError:
            hint = near(name, (*SHORT, *FUNCTIONS)) or "."
            raise AttributeError(
                f"the stub has no {name!r}{hint} It has {', '.join(sorted(SHORT))} and the C names"
            ) from None

    def _recreate_cm(self) -> Stub:
        return Stub(files=self._files, strict=self._strict, version=self._version)

    def __enter__(self) -> Self:
        self._ended_at = ""
        self._reset()
        with ExitStack() as stack:
            current.push(self)
            stack.callback(current.pop, self)
            stack.enter_context(faces_in_place(self, ("hipfile",)))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
        self.engine.closed = self.engine.ended = True
        self._ended_at = f" at {site}" if (site := call_site(2)) is not None else ""
        unused = [f"{answer.name}: {answer.unused}" for answer in self._answers.values() if answer.unused]
        if unused and self._strict and exc is None:
            raise AssertionError(f"answers that nobody asked for: {', '.join(unused)}")

    # -- asynchronous operations --------------------------------------------------------------------------------------

    def host_access(self, pointer: int, length: int, *, write: bool, what: str) -> None:
        """Code looks at a slot; nothing moves, nobody is told."""

    def complete(self, io: AsyncSlots | None = None, result: int | None = None) -> StubOperation:
        """Complete a pending operation: its result is written into its slot now.

        Parameters
        ----------
        io : AsyncIOHandle, optional
            Whose; the oldest pending one if not given.
        result : int, optional
            Byte count or negative code. If not given: what ``returns`` said, else what the size slot holds now.

        Raises
        ------
        LookupError
            Nothing is pending, or not that one.
        NoMachineError
            The block of the stub has ended.
        ValueError
            An earlier operation of the same stream is pending: streams are in order.
        """
        self._in_use("complete()")
        chosen = None
        for operation in self.pending:
            if io is None or operation.args["bytes_p"] == io._addresses()[3]:
                chosen = operation
                break
        if chosen is None:
            raise LookupError(f"{'nothing' if io is None else 'no operation of that handle'} is pending")
        if chosen.lane.completed + 1 != chosen.ticket:
            raise ValueError(
                f"{chosen.lane.completed + 1 - chosen.ticket:+d} operations of stream {chosen.args['stream']:#x} come"
                " before this one; a stream completes them in order"
            )
        if result is None:
            result = chosen.size if chosen.late is None else chosen.late
        slots_at(chosen.args["size_p"]).bytes_done = result
        chosen.lane.completed += 1
        self.pending.remove(chosen)
        return chosen

    def complete_all(self) -> list[StubOperation]:
        """Complete everything that is pending, oldest first."""
        return [self.complete() for _ in range(len(self.pending))]

    # -- answers -------------------------------------------------------------------------------------------------------

    def _in_use(self, what: str) -> None:
        if self.engine.ended:
            raise current.NoMachineError(
                f"{what} of a stub whose block ended{self._ended_at}; what it saw, `calls` and `assert_called`, can "
                "still be looked at."
            )

    def __repr__(self) -> str:
        return f"<stub, ended{self._ended_at}>" if self.engine.ended else "<stub>"

    def _stream(self, handle: int) -> Any:
        from hipfile_sim.engine.command import Lane

        if handle not in self._streams:
            self._streams[handle] = SimpleNamespace(lane=Lane(len(self._streams), f"stream {handle:#x}"))
        return self._streams[handle]

    def _call(self, name: str, values: tuple[Any, ...]) -> Any:
        self._in_use(name)
        args = dict(zip(FUNCTIONS[name], values, strict=True))
        answer = self._answers[name]
        kind, value = answer._next(args)
        result = self._result(name, args, kind, value)
        call = StubCall(name, args, result)
        self.calls.append(call)
        answer.calls.append(call)
        return result

    def _result(self, name: str, args: dict[str, Any], kind: str, value: Any) -> Any:
        error, hip_error = value if kind == "error" else (0, 0)
        if name in COUNTS:
            return self._count(args, kind, value)
        if name in ASYNC:
            if error == 0:
                self._submit(name, args, None if value is None else int(value))
            return (error, hip_error)
        if name == "hipFileUseCount":
            return self._open_count if value is None else value
        if name == "hipFileHandleDeregister":
            return None
        if name == "hipMalloc":
            self._memory += args["size"] + 4096
            return (error, 0) if error else (0, value or self._memory - args["size"] & ~4095)
        if kind == "value" and name != "hipFileGetVersion" and name != "hipFileHandleRegister":
            error = int(value)
        if name == "hipFree":
            return error
        status = (error, hip_error)
        if name == "hipFileGetVersion":
            return (status, *(value if kind == "value" else self._version))
        if name == "hipFileHandleRegister":
            return (status, 0 if error else value or next(self._handles))
        if name == "hipFileDriverGetProperties":
            return (status, None)
        if error == 0 and name in ("hipFileDriverOpen", "hipFileDriverClose"):
            self._open_count += 1 if name == "hipFileDriverOpen" else -1
        return status

    def _count(self, args: dict[str, Any], kind: str, value: Any) -> tuple[int, int]:
        if kind == "error":
            error, hip_error = value
            if error <= 5000:
                return (-1, error)
            self._hip_error = hip_error
            return (-error, 0)
        return (args["size"] if value is None else int(value), 0)

    def _submit(self, name: str, args: dict[str, Any], late: int | None) -> None:
        lane = self._stream(args["stream"]).lane
        lane.submitted += 1
        slots_at(args["size_p"]).bytes_done = 0
        self.pending.append(StubOperation(name, args, lane, lane.submitted, late))


def stub(*, files: bool = False, strict: bool = True, version: tuple[int, int, int] = (0, 5, 0)) -> Stub:
    """A programmable double, as context manager and as decorator.

    Parameters
    ----------
    files : bool
        Whether ``FileHandle`` opens real files; if not, any path opens.
    strict : bool
        Whether answers that nobody asked for fail the test.
    version : tuple of int
        What ``get_version`` says.

    Examples
    --------
    >>> with stub() as lib:
    ...     lib.driver_open.fails(5033)
    ...     import hipfile
    ...
    ...     hipfile.Driver().open()
    Traceback (most recent call last):
        ...
    hipfile.error.HipFileException: 5033 - setting the driver up failed
    """
    return Stub(files=files, strict=strict, version=version)
