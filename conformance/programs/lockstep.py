"""Programs in lockstep: Hypothesis makes them on the model, the target runs them too, and the answers are compared.

A program is a list of steps over a small fixed world (three files, three buffers, three streams). Work on different
streams is never left to race: what a step can touch is synchronised first. So every answer is determined, and a
difference is a difference of behaviour.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hipfile_conformance.kit import KIB, Kit, Slots, code_text, io_text, pattern
from hipfile_conformance.programs.host import LACKING
from hipfile_conformance.programs.outcomes import EXAMPLES
from hipfile_conformance.results import State, TestResult
from hipfile_conformance.targets.base import Inexpressible, Status, Unsupported
from hipfile_sim.driver.profiles import get_profile

__all__ = ["COUNTS", "NORMALISERS", "NOT_MADE", "REFUSED", "compare", "replay_on", "run"]

ATTEMPTS = 10
"""How often generating goes on behind a difference that not every repetition shows."""
REPETITIONS = 5
"""How often a program that differed is run again."""

NOT_MADE = "unsupported"
"""Answer of a step that the target lacks; it agrees with everything and is counted."""
REFUSED = "inexpressible: "
"""Begins the answer of a step that the target's interface refuses; the rest is the name of the step. It agrees with
everything, too, if the target's expectations own that."""

WITHOUT_EFFECT = frozenset({"register_odd", "event", "copy", "bytes"})
"""Steps that leave nothing behind: what follows one that was not made can still be compared."""
END: Step = ("end",)

COUNTS = {"quick": (30, 20), "full": (200, 40)}
"""Programs, and steps of each at most, by depth."""
SIZE = 16 * KIB
"""Bytes of each file and each buffer."""
FILES, BUFFERS, STREAMS = 3, 3, 3

Step = tuple[Any, ...]


class World:
    """The files, buffers and streams of a program on one target, and what the steps do there."""

    def __init__(self, t: Kit) -> None:
        self.t = t
        self.fds = [t.file(pattern(SIZE)), t.file(pattern(SIZE)), t.file(pattern(SIZE), flags=os.O_RDONLY)]
        self.handles = [0] * FILES
        self.buffers = [t.device(SIZE, 0xA0 + n) for n in range(BUFFERS)]
        self.streams = [t.stream(1), t.stream(0), 0]
        self.flying: list[tuple[int, Slots]] = []

    def step(self, step: Step) -> Any:
        """Do one step; returns what can be seen of it, as plain JSON."""
        what, *rest = step
        if what != "async" or any(stream != rest[1] for stream, _ in self.flying):
            counts = self.settle()
        else:
            counts = []
        try:
            seen = getattr(self, "do_" + what)(*rest)
        except Inexpressible:
            seen = REFUSED + what
        except Unsupported:
            seen = NOT_MADE
        return {"counts": counts, "seen": seen} if counts else {"seen": seen}

    def settle(self) -> list[int]:
        """Wait for everything that is under way; the counts of the operations."""
        for stream in {stream for stream, _ in self.flying}:
            self.t.ok(self.t.hipStreamSynchronize(self.streams[stream]), "hipStreamSynchronize")
        counts = [slots.done for _, slots in self.flying]
        self.flying.clear()
        return counts

    def do_register_file(self, number: int) -> str:
        status, handle = self.t.hipFileHandleRegister((1, self.fds[number]))
        if Status(*status).err == 0:
            self.handles[number] = handle
        return code_text(Status(*status))

    def do_deregister_file(self, number: int) -> None:
        self.t.hipFileHandleDeregister(self.handles[number])
        self.handles[number] = 0

    def do_register_odd(self, kind: int, fd: int) -> str:
        return code_text(Status(*self.t.hipFileHandleRegister((kind, self.fds[0] if fd == 0 else fd))[0]))

    def do_register_buffer(self, number: int, offset: int, length: int) -> str:
        return code_text(Status(*self.t.hipFileBufRegister(self.buffers[number] + offset, length, 0)))

    def do_deregister_buffer(self, number: int, offset: int) -> str:
        return code_text(Status(*self.t.hipFileBufDeregister(self.buffers[number] + offset)))

    def do_register_stream(self, number: int, flags: int) -> str:
        return code_text(Status(*self.t.hipFileStreamRegister(self.streams[number], flags)))

    def do_deregister_stream(self, number: int) -> str:
        return code_text(Status(*self.t.hipFileStreamDeregister(self.streams[number])))

    def do_sync(self, write: bool, file: int, buffer: int, size: int, file_offset: int, buffer_offset: int) -> str:
        call = self.t.hipFileWrite if write else self.t.hipFileRead
        return io_text(call(self.handles[file], self.buffers[buffer], size, file_offset, buffer_offset))

    def do_async(
        self, write: bool, stream: int, file: int, buffer: int, values: list[int], late: list[int] | None
    ) -> list[Any]:
        slots = Slots(*values)
        call = self.t.write if write else self.t.read
        handle = self.streams[stream]
        if late is None:
            status = call(self.handles[file], self.buffers[buffer], slots, handle)
            at_once = slots.done if status.err else None  # an accepted one may already be done
        else:
            with self.t.held(handle):
                status = call(self.handles[file], self.buffers[buffer], slots, handle)
                at_once = slots.done
                slots.set(size=late[0], file_offset=late[1], buffer_offset=late[2])
        if not status.err:
            self.flying.append((stream, slots))
        return [code_text(status), at_once]

    def do_fill(self, number: int, offset: int, length: int, value: int) -> int:
        codes = self.t.hipMemset(self.buffers[number] + offset, value, length), self.t.hipDeviceSynchronize()
        return int(codes[0] or codes[1])

    def do_event(self, number: int) -> list[int]:
        event = self.t.event()
        codes = [self.t.hipEventRecord(event, self.streams[number]), self.t.hipEventSynchronize(event)]
        return [int(code) for code in [*codes, self.t.hipEventQuery(event)]]

    def do_bytes(self) -> list[str]:
        memory = [hashlib.sha256(self.t.bytes(pointer, SIZE)).hexdigest()[:12] for pointer in self.buffers]
        return memory + [hashlib.sha256(os.pread(fd, 4 * SIZE, 0)).hexdigest()[:12] for fd in self.fds]

    def do_copy(self, number: int, other: int) -> list[Any]:
        room = self.t.host(64)
        code = self.t.hipMemcpy(room, self.buffers[number] + other, 64, 2)
        return [int(code), ctypes.string_at(room, 64).hex()]


def replay_on(t: Kit, steps: list[Step]) -> list[Any]:
    """Run a program; an answer for each step and one for the end."""
    world = World(t)
    seen = [world.step(step) for step in steps]
    return [*seen, world.settle(), world.do_bytes()]


def _count(value: Any) -> Any:
    return "I/O error" if isinstance(value, int) and value in (-1, -5, -9) else value


def _errno(value: Any) -> Any:
    return "-1/errno" if value in ("-1/EBADF", "-1/EIO") else value


NORMALISERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "result.io-error": ("-1 or a negated code", _count),
    "sync.error.errno": ("-1/errno or -1/code", _errno),
}
"""What a clause leaves open, with the answer that does: where it is the release's, both sides are normalised so.

``result.io-error``: which negative number an asynchronous I/O error becomes. ``sync.error.errno``: which errno a
descriptor that does not allow the transfer gives.
"""


def normalisers(release: str) -> list[Callable[[Any], Any]]:
    """What applies to the answers of a release."""
    profile = get_profile(release)
    return [function for clause, (answer, function) in NORMALISERS.items() if profile.answer(clause) == answer]


EXCLUDED = {
    "cufile": {
        "negative buffer offset": "memory before the buffer is used, without a check",
        "unregistered buffer": "sizes are not checked and offsets other than 0 end in -5 (asynchronous)",
        "writing to a read-only file": "an unaligned one ends with count 0",
        "changed slots": "the bytes of a read whose size changed after submit are lost now and then",
        "end of file": "a synchronous read that meets it overwrites the rest of the range (a clause)",
        "part of a registered buffer": "which of two faults is found first differs",
        "bad descriptors": "another code than the model's (an expected deviation of the model)",
        "unregistered file": "a null handle ends in errno, the model's in a code",
    }
}
"""What programs for a profile do not do, with the reason; it stands in the report's data."""


def compare(model: Any, target: Any, release: str) -> str | None:
    """None where two answers agree, or what differs. A step that the target did not make is passed over."""
    return _compare(model, target, normalisers(release))


def _compare(model: Any, target: Any, normalised: list[Callable[[Any], Any]]) -> str | None:
    if target == NOT_MADE or (isinstance(target, str) and target.startswith(REFUSED)):
        return None
    if isinstance(model, dict) and isinstance(target, dict):
        for key in sorted(model.keys() | target.keys()):
            found = _compare(model.get(key), target.get(key), normalised)
            if found:
                return f"{key}: {found}"
        return None
    if isinstance(model, (list, tuple)) and isinstance(target, (list, tuple)) and len(model) == len(target):
        for number, (one, other) in enumerate(zip(model, target, strict=True)):
            found = _compare(one, other, normalised)
            if found:
                return f"[{number}] {found}"
        return None
    for normalise in normalised:
        model, target = normalise(model), normalise(target)
    return None if model == target else f"model {model!r}, target {target!r}"


def compare_programs(steps: Sequence[Step], model: list[Any], target: Any, release: str) -> str | None:
    """Step by step, up to one that the target did not make and that would have changed something."""
    if isinstance(target, str):
        return None if target.startswith(LACKING) else f"target: {target}"
    for number, (step, one, other) in enumerate(zip([*steps, END, END], model, target, strict=True)):
        found = compare(one, other, release)
        if found:
            return f"[{number}] {found}"
        if _unmade(other) and step[0] not in WITHOUT_EFFECT:
            return None
    return None


def _unmade(answer: Any) -> str:
    """The answer of a step that was not made; empty for others."""
    seen = answer.get("seen") if isinstance(answer, dict) else None
    return seen if isinstance(seen, str) and seen.startswith((NOT_MADE, REFUSED)) else ""


def count_unmade(answers: Any, counted: dict[str, Any]) -> None:
    """Add what a target did not make to a run's counts."""
    if isinstance(answers, str):
        if answers.startswith(LACKING):
            counted["unsupported programs"] = counted.get("unsupported programs", 0) + 1
            counted["lacking"] = sorted({*counted.get("lacking", ()), answers.removeprefix(LACKING)})
        return
    for seen in filter(None, map(_unmade, answers)):
        counted["unsupported steps"] = counted.get("unsupported steps", 0) + 1
        if seen.startswith(REFUSED):
            counted["refused"] = sorted({*counted.get("refused", ()), seen.removeprefix(REFUSED)})


def examples() -> list[list[Step]]:
    """The committed programs."""
    return [[tuple(s) for s in json.loads(p.read_text())["steps"]] for p in sorted(EXAMPLES.glob("lockstep-*.json"))]


def run(
    target: str, release: str, depth: str, seed: int, folder: Path, shard: tuple[int, int]
) -> tuple[dict[str, Any], list[TestResult]]:
    """Run the state machine; see :func:`hipfile_conformance.programs.run_programs`."""
    import hypothesis
    import hypothesis.errors
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis.stateful import run_state_machine_as_test

    from hipfile_conformance.programs.machine import make_machine

    programs, steps = COUNTS[depth]
    counted: dict[str, Any] = {"programs": 0, "steps": 0, "wrong": 0}
    results: list[TestResult] = []
    with make_machine(target, release, folder, counted) as (machine, check):
        for number, program in enumerate(examples()):
            found = check(program)
            if found:
                results.append(_failure(target, release, f"example {number}", seed, program, found))
        left = max(1, programs // shard[1])
        for attempt in range(ATTEMPTS):
            already = counted["programs"]
            hypothesis.seed(seed * 1000 + shard[0] + attempt * 1_000_000)(machine)
            config = settings(
                max_examples=left,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate, Phase.shrink],
                print_blob=False,
            )
            try:
                run_state_machine_as_test(machine, settings=config)
                break
            except AssertionError as error:
                # hardware may differ now and then: what not every repetition shows is told apart
                shown = sum(bool(check(machine.last)) for _ in range(REPETITIONS))
                if shown == REPETITIONS:
                    results.append(_failure(target, release, "generated", seed, machine.last, str(error)))
                    break
                found = f"in {shown} of {REPETITIONS} repetitions: {error}"
                results.append(_failure(target, release, "unsteady", seed, machine.last, found))
            except hypothesis.errors.Flaky as error:  # it differed once and not when it was run again
                results.append(_failure(target, release, "unsteady", seed, machine.last, f"{error}: {machine.found}"))
            left -= counted["programs"] - already
            if left <= 0:
                break
    counted["wrong"] = len(results)
    for reason in counted.get("lacking", ()):
        results.append(TestResult("programs.lockstep", State.UNSUPPORTED, message=reason))
    if release in EXCLUDED:
        counted["left out of every program"] = EXCLUDED[release]
    return dict(counted), results


def _failure(target: str, release: str, name: str, seed: int, steps: list[Step], text: str) -> TestResult:
    program = json.dumps({"steps": [list(step) for step in steps]})
    again = f"hipfile-conformance replay --target {target} --release {release} '{program}'"
    return TestResult(
        f"programs.lockstep-{name}", State.FAIL, 0.0, [], f"{text}; program {program}", f"seed {seed}", again
    )
