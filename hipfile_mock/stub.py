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
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, ExitStack
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from hipfile_mock import current
from hipfile_mock.install import faces_in_place

if TYPE_CHECKING:
    from hipfile_mock.faces.slots import AsyncSlots

__all__ = ["Answer", "Stub", "StubCall", "StubOperation", "stub"]

_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "hipFileDriverOpen": (),
    "hipFileDriverClose": (),
    "hipFileUseCount": (),
    "hipFileGetVersion": (),
    "hipFileDriverGetProperties": (),
    "hipFileHandleRegister": ("descr",),
    "hipFileHandleDeregister": ("handle",),
    "hipFileBufRegister": ("ptr", "length", "flags"),
    "hipFileBufDeregister": ("ptr",),
    "hipFileRead": ("handle", "ptr", "size", "file_offset", "buffer_offset"),
    "hipFileWrite": ("handle", "ptr", "size", "file_offset", "buffer_offset"),
    "hipFileReadAsync": ("handle", "ptr", "size_p", "file_offset_p", "buffer_offset_p", "bytes_p", "stream"),
    "hipFileWriteAsync": ("handle", "ptr", "size_p", "file_offset_p", "buffer_offset_p", "bytes_p", "stream"),
    "hipFileStreamRegister": ("stream", "flags"),
    "hipFileStreamDeregister": ("stream",),
    "hipMalloc": ("size",),
    "hipFree": ("ptr",),
}

_SHORT = {
    "driver_open": "hipFileDriverOpen",
    "driver_close": "hipFileDriverClose",
    "use_count": "hipFileUseCount",
    "get_version": "hipFileGetVersion",
    "register_file": "hipFileHandleRegister",
    "deregister_file": "hipFileHandleDeregister",
    "register_buffer": "hipFileBufRegister",
    "deregister_buffer": "hipFileBufDeregister",
    "read": "hipFileRead",
    "write": "hipFileWrite",
    "read_async": "hipFileReadAsync",
    "write_async": "hipFileWriteAsync",
    "register_stream": "hipFileStreamRegister",
    "deregister_stream": "hipFileStreamDeregister",
    "malloc": "hipMalloc",
    "free": "hipFree",
}

_COUNTS = frozenset({"hipFileRead", "hipFileWrite"})
_ASYNC = frozenset({"hipFileReadAsync", "hipFileWriteAsync"})
_HIP = frozenset({"hipMalloc", "hipFree"})


class StubCall(NamedTuple):
    """One call: the C function, its arguments by name, what the stub answered."""

    name: str
    args: dict[str, Any]
    result: Any


class StubOperation(NamedTuple):
    """An asynchronous operation that was submitted."""

    name: str
    args: dict[str, Any]
    lane: Any
    ticket: int
    late: int | None

    @property
    def size(self) -> int:
        """What the size slot holds now."""
        return int(_slots(self.args["size_p"]).size)


def _slots(address: int) -> Any:
    from hipfile_mock.faces.slots import SlotBlock

    return SlotBlock.from_address(address)


class Answer:
    """How one function answers. Until it is told otherwise, with success and the whole size.

    Attributes
    ----------
    name : str
        The C function.
    calls : list of StubCall
        Calls of it so far.
    """

    def __init__(self, owner: Stub, name: str) -> None:
        self._owner = owner
        self._script: Iterator[Any] | None = None
        self._left = 0
        self.name = name
        self.calls: list[StubCall] = []

    def returns(self, *values: Any) -> None:
        """Answer with `values`.

        Parameters
        ----------
        *values : int
            One value is given to every call, several are given in order and must all be asked for. For a read or write
            it is the byte count, for an asynchronous one the late result (the submission succeeds), for a function with
            a status it is the error code, for the rest the value itself.
        """
        self._program([lambda _args, value=value: ("value", value) for value in values])

    def fails(self, error: int, hip_error: int = 0) -> None:
        """Fail every call from now on.

        Parameters
        ----------
        error : int
            A code of hipFile (above 5000), or an ``errno`` for a synchronous read or write. An asynchronous call is
            refused; for a failure after the submission give a negative number to `returns`.
        hip_error : int
            Error of HIP beside 5011.
        """
        self._program([lambda _args: ("error", (int(error), int(hip_error)))])

    def does(self, function: Callable[..., Any]) -> None:
        """Call `function` with the C arguments by name; what it returns is used as by `returns`."""
        self._program([lambda args: ("value", function(**args))])

    def _program(self, steps: list[Callable[..., Any]]) -> None:
        if not steps:
            raise TypeError(f"{self.name}: give at least one answer")
        if len(steps) == 1:
            self._script, self._left = itertools.repeat(steps[0]), 0
        else:
            self._script, self._left = iter(steps), len(steps)

    def _next(self, args: dict[str, Any]) -> tuple[str, Any]:
        if self._script is None:
            return ("default", None)
        try:
            step = next(self._script)
        except StopIteration:
            raise AssertionError(
                f"{self.name} was called {len(self.calls) + 1} times, but only {len(self.calls)} answers were given."
            ) from None
        self._left = max(self._left - 1, 0)
        return step(args)  # type: ignore[no-any-return]

    @property
    def unused(self) -> int:
        """Answers of a sequence that nobody has asked for yet."""
        return self._left

    def assert_called(self, times: int | None = None, **args: Any) -> None:
        """Check that the function was called, `times` times if given, each time or at least once with `args`.

        Raises
        ------
        AssertionError
            It was not; the message lists the calls.
        """
        matching = [call for call in self.calls if all(call.args.get(name) == value for name, value in args.items())]
        if (len(matching) == times) if times is not None else bool(matching):
            return
        wanted = f"{self.name}({', '.join(f'{k}={v!r}' for k, v in args.items())})" if args else self.name
        made = "\n".join(f"  {call.name}({call.args})" for call in self.calls) or "  none"
        raise AssertionError(
            f"expected {'a call' if times is None else f'{times} call(s)'} of {wanted}, saw {len(matching)}."
            f" Calls of this function:\n{made}"
        )

    def assert_not_called(self) -> None:
        """Check that the function was not called."""
        if self.calls:
            raise AssertionError(f"{self.name} was called {len(self.calls)} time(s), first with {self.calls[0].args}")


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
        if name not in _FUNCTIONS or (name in _HIP) is not self._hip:
            raise AttributeError(
                f"the stub has no {name}; it has {', '.join(sorted(_FUNCTIONS))}. Use hipfile_mock.fake() for the rest."
            )
        owner = self._owner
        function = lambda *args: owner._call(name, args)  # noqa: E731
        setattr(self, name, function)
        return function


class _Engine:
    """The little of an engine that slots ask for."""

    def __init__(self) -> None:
        self.closed = False
        self.observers: tuple[Any, ...] = ()
        self.lock = threading.RLock()


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
        self._reset()

    def _reset(self) -> None:
        self.calls: list[StubCall] = []
        self.pending: list[StubOperation] = []
        self._answers = {name: Answer(self, name) for name in _FUNCTIONS}
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
            return self._answers[_SHORT.get(name, name)]
        except KeyError:
            raise AttributeError(
                f"the stub has no {name!r}; it has {', '.join(sorted(_SHORT))} and the C names"
            ) from None

    def _recreate_cm(self) -> Stub:
        return Stub(files=self._files, strict=self._strict, version=self._version)

    def __enter__(self) -> Self:
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
        self.engine.closed = True
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
        ValueError
            An earlier operation of the same stream is pending: streams are in order.
        """
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
        _slots(chosen.args["size_p"]).bytes_done = result
        chosen.lane.completed += 1
        self.pending.remove(chosen)
        return chosen

    def complete_all(self) -> list[StubOperation]:
        """Complete everything that is pending, oldest first."""
        return [self.complete() for _ in range(len(self.pending))]

    # -- answers -------------------------------------------------------------------------------------------------------

    def _stream(self, handle: int) -> Any:
        from hipfile_sim.engine.command import Lane

        if handle not in self._streams:
            self._streams[handle] = SimpleNamespace(lane=Lane(len(self._streams), f"stream {handle:#x}"))
        return self._streams[handle]

    def _call(self, name: str, values: tuple[Any, ...]) -> Any:
        args = dict(zip(_FUNCTIONS[name], values, strict=True))
        answer = self._answers[name]
        kind, value = answer._next(args)
        result = self._result(name, args, kind, value)
        call = StubCall(name, args, result)
        self.calls.append(call)
        answer.calls.append(call)
        return result

    def _result(self, name: str, args: dict[str, Any], kind: str, value: Any) -> Any:
        error, hip_error = value if kind == "error" else (0, 0)
        if name in _COUNTS:
            return self._count(args, kind, value)
        if name in _ASYNC:
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
        _slots(args["size_p"]).bytes_done = 0
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
