"""How a stub answers: the functions that it has, what each is told to return, and the calls that it saw."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

__all__ = ["ASYNC", "COUNTS", "FUNCTIONS", "HIP", "SHORT", "Answer", "StubCall", "StubOperation", "slots_at"]

FUNCTIONS: dict[str, tuple[str, ...]] = {
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

SHORT = {
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

COUNTS = frozenset({"hipFileRead", "hipFileWrite"})
ASYNC = frozenset({"hipFileReadAsync", "hipFileWriteAsync"})
HIP = frozenset({"hipMalloc", "hipFree"})


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
        return int(slots_at(self.args["size_p"]).size)


def slots_at(address: int) -> Any:
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

    def __init__(self, name: str) -> None:
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
        for value in (error, hip_error):
            if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 0:
                raise ValueError(f"{self.name}.fails({error!r}, {hip_error!r}): the numbers of errors, not below 0")
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
