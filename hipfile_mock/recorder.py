"""The recorder: every call and every command of a run, questions about them, and assertions that show what happened."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipfile_mock.near import near
from hipfile_sim.engine.command import MEM, Access
from hipfile_sim.hip import hostmem
from hipfile_sim.observe.timeline import steps
from hipfile_sim.observe.trace import CallEvent, CommandEvent, SlotEvent, Trace

if TYPE_CHECKING:
    import os

__all__ = ["Calls", "Operation", "Recorder", "Recording", "RecordingMismatch"]

VERSION = 2
ASYNC = ("hipFileReadAsync", "hipFileWriteAsync")


@dataclass(frozen=True, eq=False)
class Operation:
    """One asynchronous operation: the call that submitted it and the commands that it became.

    Attributes
    ----------
    call : CallEvent
        The submit.
    commands : list of CommandEvent
        In order; empty when the submit was refused or the size was 0.
    """

    call: CallEvent
    commands: Sequence[CommandEvent]

    @property
    def name(self) -> str:
        """``"hipFileReadAsync"`` or ``"hipFileWriteAsync"``."""
        return self.call.name

    @property
    def stream(self) -> int:
        """Handle of the stream."""
        return int(self.call.args["stream"])

    def __str__(self) -> str:
        where = f"{self.commands[0].lane.name}, " if self.commands else ""
        return f"{self.call.name} ({where}call {self.call.seq})"


Step = CallEvent | CommandEvent | Operation
Selector = str | Step | Iterable[Step] | Callable[[Step], bool]
"""What an assertion speaks of: a glob on the name of calls, commands or operations; events; or a test of your own."""


class RecordingMismatch(AssertionError):
    """Two runs differ."""


class Calls(deque[CallEvent]):
    """Every call, in order, those that hipFile makes itself included. Called, it gives the program's own.

    ``recorder.calls("hipMem*", size=64)`` is ``recorder.find_calls("hipMem*", size=64)``.
    """

    def __call__(self, name: str = "*", **arguments: Any) -> list[CallEvent]:
        return [
            call
            for call in self
            if call.parent is None
            and fnmatchcase(call.name, name)
            and all(call.args.get(key) == value for key, value in arguments.items())
        ]


class Recorder(Trace):
    """Records a machine; `limit` as of `Trace`.

    ``hipfile_mock.session().recorder`` is one; or give it to ``Machine(observers=[recorder])``.

    Examples
    --------
    >>> from hipfile_sim import Machine
    >>> recorder = Recorder()
    >>> with Machine(1, observers=[recorder]) as machine:
    ...     _, pointer = machine.hip.hipMalloc(64)
    ...     _ = machine.hip.hipMemsetAsync(pointer, 1, 64)
    ...     _ = machine.hip.hipDeviceSynchronize()
    >>> [call.name for call in recorder.find_calls("hipMem*")]
    ['hipMemsetAsync']
    >>> recorder.assert_ordered("set", "hipDeviceSynchronize")
    """

    machine: Any = None

    calls: Calls

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(limit)
        self.calls = Calls(maxlen=limit)
        self._results: deque[tuple[int, int]] = deque(maxlen=limit)  # order, and what a result slot was given

    def attached(self, machine: Any) -> None:
        self.machine = machine

    def _slot(self, access: Access, time: int, what: str) -> SlotEvent | None:
        event = super()._slot(access, time, what)
        if event is not None and event.write and event.name.startswith("bytes") and self.machine is not None:
            value = hostmem.read_i64(access.start)  # as the library itself goes to slots
            if value is not None:
                self._results.append((event.order, value))
        return event

    # -- questions ---------------------------------------------------------------------------------------------------

    def find_calls(self, name: str = "*", **arguments: Any) -> list[CallEvent]:
        """The program's own calls whose name matches the glob and whose arguments have these values."""
        return self.calls(name, **arguments)

    def find_commands(self, kind: str = "*", *, stream: int | None = None) -> list[CommandEvent]:
        """The commands whose kind or label matches the glob, optionally of one stream."""
        lane = None if stream is None else self.machine.hip.lookup_stream(stream).lane
        return [
            command
            for command in self.commands
            if (fnmatchcase(command.kind, kind) or fnmatchcase(command.label, kind))
            and (lane is None or command.lane is lane)
        ]

    def operations(self, name: str = "*", *, stream: int | None = None) -> list[Operation]:
        """The asynchronous operations, in the order of their submits; `name` is a glob such as ``"*Write*"``."""
        by_call: dict[int, list[CommandEvent]] = {}
        for command in self.commands:
            if command.call is not None:
                by_call.setdefault(command.call.outermost.seq, []).append(command)
        return [
            Operation(call, by_call.get(call.seq, []))
            for call in self.find_calls(name)
            if call.name in ASYNC and (stream is None or call.args.get("stream") == stream)
        ]

    # -- assertions --------------------------------------------------------------------------------------------------

    def assert_ordered(self, *selectors: Selector) -> None:
        """Every step that the first selector means ended before any of the second began, and so on.

        A host call counts when it is made or, if it waits, when what it waits for is complete. This speaks of the run
        as it went; that nothing else was possible is what the sanitizer and the explorer can tell.

        Raises
        ------
        AssertionError
            With expected and actual side by side, and the last steps of the run.
        """
        groups = [self._resolve(selector) for selector in selectors]
        for (first, _), (second, _) in pairwise(groups):
            last_end = max(first, key=self._end)
            first_begin = min(second, key=self._begin)
            if self._end(last_end) > self._begin(first_begin):
                expected = [f"{_name(last_end)} ends", f"{_name(first_begin)} begins"]
                self._fail("these steps were not in order", expected, expected[::-1], (last_end, first_begin))

    def assert_overlapped(self, first: Selector, second: Selector) -> None:
        """Some step of the first selector and some of the second were under way at the same (virtual) time.

        Raises
        ------
        AssertionError
            With the spans of both side by side.
        """
        mine, theirs = self._resolve(first)[0], self._resolve(second)[0]
        for one in mine:
            for other in theirs:
                a, b = self._span(one), self._span(other)
                if one is not other and a[0] < b[1] and b[0] < a[1]:
                    return
        expected = ["at the same time:", f"  {_name(mine[0])}", f"  {_name(theirs[0])}"]
        actual = ["one after the other:"]
        actual += [f"  {_name(step)} {_us(self._span(step))}" for step in sorted([mine[0], theirs[0]], key=self._span)]
        self._fail("nothing overlapped", expected, actual, (mine[0], theirs[0]))

    def assert_no_leaks(self) -> None:
        """Nothing is left: operations in flight, handles, buffers, registrations, streams, events, memory, use count.

        Raises
        ------
        AssertionError
            With everything that is left, and where it was made where that is known.
        """
        left = list(self._left_over())
        if left:
            self._fail("something is left over", ["nothing left"], left)

    def _left_over(self) -> Iterator[str]:
        machine = self.machine
        for command in self.commands:
            if command.finish_order < 0:
                yield f"unfinished: {command.label} on {command.lane.name}{_at(command.site)}"
        state = machine.hipfile.state
        for what, count in (
            ("file handles", len(state.files)),
            ("registered buffers", len(state.buffers.entries)),
            ("registered streams", len(state.streams.entries)),
            ("driver use count", state.use_count),
            ("streams", len(machine.hip.streams)),
            ("events", len(machine.hip.events)),
        ):
            if count:
                yield f"{what}: {count}"
        for block in machine.memory.live():
            yield f"memory: {block.size} bytes of {block.kind} memory{_at(block.site)}"

    # -- a run on disk -----------------------------------------------------------------------------------------------

    def recording(self) -> Recording:
        """The run so far, without addresses and thread numbers: equal for equal runs.

        Calls with their arguments and what they returned, commands with times, bytes and ranges of files, and the
        results that operations published.
        """
        profile = self.machine.profile.name if self.machine is not None else ""
        return Recording(profile, tuple(self._lines()))

    def _lines(self) -> list[str]:
        steps = [(call.order, f"call {_told(call)}") for call in self.calls]
        steps += [(order, f"result {value}") for order, value in self._results]
        for command in self.commands:
            where = f"{command.lane.name}: {command.kind} #{command.ticket}"
            steps.append((command.order, f"submit {where} at {command.submitted}"))
            if command.start_order >= 0:
                steps.append((command.start_order, f"start  {where} at {command.started}"))
            if command.finish_order >= 0:
                touched = "".join(
                    f", {'writes' if access.write else 'reads'} file {access.start} to {access.start + access.length}"
                    for access in command.accesses
                    if access.space != MEM
                )
                text = f"finish {where} at {command.finished}, {command.nbytes} bytes{touched}"
                steps.append((command.finish_order, text))
        return [text for _, text in sorted(steps)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `recording` to a file."""
        self.recording().save(path)

    def assert_matches(self, other: Recording | str | os.PathLike[str]) -> None:
        """The run went as the one in `other` (a recording, or the path of one).

        Raises
        ------
        RecordingMismatch
            With the first difference, side by side.
        """
        wanted = other if isinstance(other, Recording) else Recording.load(other)
        self.recording().assert_equals(wanted)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _resolve(self, selector: Selector) -> tuple[list[Step], str]:
        found: list[Step]
        if isinstance(selector, str):
            found = list(self._named(selector))
            what = repr(selector)
        elif isinstance(selector, CallEvent | CommandEvent | Operation):
            found, what = [selector], _name(selector)
        elif callable(selector):
            everything: list[Step] = [*self.find_calls(), *self.commands]
            found = [step for step in everything if selector(step)]
            what = getattr(selector, "__name__", "the test")
        else:
            found, what = list(selector), "the given steps"
        if not found:
            names = sorted({call.name for call in self.find_calls()} | {command.label for command in self.commands})
            plain = isinstance(selector, str) and not set(selector) & set("*?[")
            hint = near(selector, names) if plain else ""
            has = ", ".join(names) or "no steps at all"
            raise AssertionError(f"nothing in this run matches {what}{hint or ';'} it has: {has}")
        return found, what

    def _named(self, pattern: str) -> Iterator[Step]:
        operations = {operation.call.seq: operation for operation in self.operations()}
        for call in self.find_calls(pattern):
            operation = operations.get(call.seq)
            yield operation if operation is not None and operation.commands else call
        yield from self.find_commands(pattern)

    def _begin(self, step: Step) -> float:
        if isinstance(step, CallEvent):
            return self._end(step)
        if isinstance(step, Operation):
            step = step.commands[0]
        return step.start_order if step.start_order >= 0 else float("inf")

    def _end(self, step: Step) -> float:
        if isinstance(step, Operation):
            step = step.commands[-1]
        if isinstance(step, CommandEvent):
            return step.finish_order if step.finish_order >= 0 else float("inf")
        inside = [wait.order for wait in self.waits if wait.call is not None and wait.call.outermost is step]
        return max([step.order, *inside])

    def _span(self, step: Step) -> tuple[float, float]:
        if isinstance(step, CallEvent):
            return step.start, step.end if step.end >= 0 else float("inf")
        first, last = (step.commands[0], step.commands[-1]) if isinstance(step, Operation) else (step, step)
        start = first.started if first.started >= 0 else float("inf")
        return start, last.finished if last.finished >= 0 else float("inf")

    def _fail(self, what: str, expected: Sequence[str], actual: Sequence[str], named: Sequence[Step] = ()) -> None:
        places = "".join(f"\n{_place(step)}" for step in named)
        raise AssertionError(f"{what}\n\n{side_by_side(expected, actual)}\n{places}\n\n{steps(self)}")


@dataclass(frozen=True)
class Recording:
    """A run, as one line a step.

    Parameters
    ----------
    profile : str
        Release that was modelled.
    lines : tuple of str
        Calls, submits, starts and finishes, in order.
    """

    profile: str
    lines: tuple[str, ...]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON; the file appears whole or not at all."""
        target = Path(path)
        text = json.dumps({"version": VERSION, "profile": self.profile, "lines": self.lines}, indent=0)
        temporary = target.with_name(target.name + ".new")
        temporary.write_text(text)
        temporary.replace(target)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Read what `save` wrote.

        Raises
        ------
        ValueError
            Not a recording, or of another version.
        """
        try:
            data = json.loads(Path(path).read_text())
            if data["version"] != VERSION:
                raise ValueError(f"version {data['version']!r}, this release reads {VERSION}")
            return cls(data["profile"], tuple(data["lines"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a recording: {error}") from error

    def assert_equals(self, wanted: Recording) -> None:
        """Raise `RecordingMismatch` at the first difference."""
        for number, (mine, theirs) in enumerate(_longest(self.lines, wanted.lines)):
            if mine != theirs:
                around = slice(max(0, number - 3), number + 3)
                raise RecordingMismatch(
                    f"the run differs from the recording at step {number + 1}\n\n"
                    + side_by_side(wanted.lines[around], self.lines[around])
                )


def _longest(mine: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[str | None, str | None]]:
    for number in range(max(len(mine), len(theirs))):
        yield (
            mine[number] if number < len(mine) else None,
            theirs[number] if number < len(theirs) else None,
        )


def side_by_side(expected: Sequence[str], actual: Sequence[str]) -> str:
    """Two columns; lines that differ are marked.

    Examples
    --------
    >>> print(side_by_side(["a", "b"], ["a", "c"]))
      expected   actual
      a          a
    ! b          c
    """
    width = max(len(line) for line in ("expected", *expected))
    rows = [f"  {'expected':{width}}   actual"]
    for number in range(max(len(expected), len(actual))):
        left = expected[number] if number < len(expected) else ""
        right = actual[number] if number < len(actual) else ""
        rows.append(f"{' ' if left == right else '!'} {left:{width}}   {right}".rstrip())
    return "\n".join(rows)


_NO_VALUES = frozenset(
    ("pointer", "destination", "source", "stream", "event", "start", "stop", "handle", "batch", "fd")
)
"""Parameters that are addresses, or numbers that the system hands out."""


def _told(call: CallEvent) -> str:
    """A call with what is the same in every equal run: plain numbers among its arguments, and its result."""
    values = [
        f"{name}={int(value)}"
        for name, value in call.args.items()
        if isinstance(value, int) and name not in _NO_VALUES and not name.endswith("_p")
    ]
    result = call.result
    if isinstance(result, BaseException):
        said = type(result).__name__
    else:
        first = result[0] if isinstance(result, tuple) and result else result
        first = first[0] if isinstance(first, tuple) and first else first  # a status, then its code
        said = str(getattr(first, "name", first)) if isinstance(first, int) else ""
    return f"{call.name}({', '.join(values)}){f' -> {said}' if said else ''}"


def _name(step: Step) -> str:
    if isinstance(step, CallEvent):
        return f"{step.name} (call {step.seq})"
    if isinstance(step, Operation):
        return str(step)
    return f"{step.label} ({step.lane.name} #{step.ticket})"


def _place(step: Step) -> str:
    site = step.call.site if isinstance(step, Operation) else step.site
    return f"  {_name(step)}{_at(site)}"


def _us(span: tuple[float, float]) -> str:
    return f"{span[0] / 1000:.1f} to {span[1] / 1000:.1f} us"


def _at(site: object) -> str:
    return f", from {site}" if site else ""
