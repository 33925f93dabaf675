"""The Hypothesis state machine behind the lockstep programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from hipfile_conformance.kit import KIB, Kit
from hipfile_conformance.programs.host import Host
from hipfile_conformance.programs.lockstep import (
    BUFFERS,
    FILES,
    SIZE,
    STREAMS,
    Step,
    World,
    compare_programs,
    count_unmade,
    replay_on,
)
from hipfile_conformance.targets.sim import SimTarget

__all__ = ["make_machine"]

files = st.integers(0, FILES - 1)
buffers = st.integers(0, BUFFERS - 1)
streams = st.integers(0, STREAMS - 1)
sizes = st.sampled_from([0, 1, 7, 512, 4 * KIB, 4 * KIB + 1, 10_000, SIZE - 1, SIZE])
offsets = st.sampled_from([0, 1, 8, 512, 4 * KIB, SIZE - 512, SIZE - 1])


@contextmanager
def make_machine(
    target: str, release: str, folder: Path, counted: dict[str, Any]
) -> Iterator[tuple[Any, Callable[[list[Step]], str | None]]]:
    """The machine class for a target, and a function that checks a finished program on it."""
    cufile = release == "cufile"

    with Host(target, release, folder) as host:

        def on_target(steps: list[Step]) -> Any:
            if target != "sim":
                answer = host.ask({"steps": steps})
                try:
                    return json.loads(answer)
                except ValueError:
                    return answer
            made = SimTarget(folder, release=release, schedule="seeded:5")
            kit = Kit(made, release)
            try:
                kit.open()
                return json.loads(json.dumps(replay_on(kit, steps)))
            finally:
                kit.cleanup()
                made.close()

        def check(steps: list[Step]) -> str | None:
            made = SimTarget(folder, release=release)
            kit = Kit(made, release)
            try:
                kit.open()
                model = json.loads(json.dumps(replay_on(kit, steps)))
            finally:
                kit.cleanup()
                made.close()
            return compare_programs(steps, model, on_target(steps), release)

        class Programs(RuleBasedStateMachine):
            last: ClassVar[list[Step]] = []
            found: ClassVar[str] = ""

            def __init__(self) -> None:
                super().__init__()
                self.made = SimTarget(folder, release=release)
                self.kit = Kit(self.made, release)
                self.kit.open()
                self.world = World(self.kit)
                self.steps: list[Step] = []
                self.seen: list[Any] = []
                for number in range(FILES if cufile else 1):
                    self.do("register_file", number)
                for number in range(BUFFERS if cufile else 0):
                    self.do("register_buffer", number, 0, SIZE)

            def do(self, *step: Any) -> Any:
                self.steps.append(step)
                answer = self.world.step(step)
                self.seen.append(answer)
                return answer["seen"]

            @rule(number=files)
            def register_file(self, number: int) -> None:
                self.do("register_file", number)

            @precondition(lambda self: not cufile)
            @rule(number=files)
            def deregister_file(self, number: int) -> None:
                self.do("deregister_file", number)

            @rule(kind=st.sampled_from([2, 3, 99]))
            def register_odd_type(self, kind: int) -> None:
                self.do("register_odd", kind, 0)

            @precondition(lambda self: not cufile)
            @rule(fd=st.sampled_from([-1, 9999]))
            def register_odd_descriptor(self, fd: int) -> None:
                self.do("register_odd", 1, fd)

            @rule(
                number=buffers,
                offset=st.sampled_from([0, 0, 0, 4 * KIB]),
                length=st.sampled_from([SIZE, 4 * KIB, 4 * SIZE]),
            )
            def register_buffer(self, number: int, offset: int, length: int) -> None:
                offset = 0 if cufile else offset
                self.do("register_buffer", number, offset, length)

            @precondition(lambda self: not cufile)
            @rule(number=buffers, offset=st.sampled_from([0, 0, 4 * KIB]))
            def deregister_buffer(self, number: int, offset: int) -> None:
                self.do("deregister_buffer", number, offset)

            @rule(number=streams, flags=st.integers(0, 7 if cufile else 17))
            def register_stream(self, number: int, flags: int) -> None:
                self.do("register_stream", number, flags)

            @rule(number=streams)
            def deregister_stream(self, number: int) -> None:
                self.do("deregister_stream", number)

            @rule(
                write=st.booleans(), file=files, buffer=buffers, size=sizes, file_offset=offsets, buffer_offset=offsets
            )
            def sync(
                self, write: bool, file: int, buffer: int, size: int, file_offset: int, buffer_offset: int
            ) -> None:
                if cufile:
                    file = file % 2 if write else file
                    size = min(size, SIZE - buffer_offset)
                    size = size if write or file_offset + size <= SIZE else 0
                self.do("sync", write, file, buffer, size, file_offset, buffer_offset)

            @precondition(lambda self: not cufile)
            @rule(
                write=st.booleans(),
                file=files,
                buffer=buffers,
                offset=st.sampled_from([-1, -4096]),
                of_file=st.booleans(),
            )
            def sync_negative(self, write: bool, file: int, buffer: int, offset: int, of_file: bool) -> None:
                self.do("sync", write, file, buffer, 16, offset if of_file else 0, 0 if of_file else offset)

            @rule(
                write=st.booleans(),
                stream=streams,
                file=files,
                buffer=buffers,
                size=sizes,
                file_offset=offsets,
                buffer_offset=offsets,
                late=st.one_of(st.none(), st.tuples(sizes, offsets, offsets)),
            )
            def asynchronous(
                self,
                write: bool,
                stream: int,
                file: int,
                buffer: int,
                size: int,
                file_offset: int,
                buffer_offset: int,
                late: tuple[int, int, int] | None,
            ) -> None:
                values = [size, file_offset, buffer_offset]
                changed = None if late is None else list(late)
                if cufile:
                    values[0] = min(values[0], SIZE - values[2])
                    changed, file = None, file % 2 if write else file
                self.do("async", write, stream, file, buffer, values, changed)

            @rule(number=buffers, offset=offsets, value=st.integers(0, 255))
            def fill(self, number: int, offset: int, value: int) -> None:
                self.do("fill", number, offset, min(512, SIZE - offset), value)

            @rule(number=streams)
            def event(self, number: int) -> None:
                self.do("event", number)

            @rule(number=buffers, offset=st.sampled_from([0, 512, 4 * KIB]))
            def copy(self, number: int, offset: int) -> None:
                self.do("copy", number, offset)

            @rule()
            def content(self) -> None:
                self.do("bytes")

            def teardown(self) -> None:
                try:
                    self.seen += [self.world.settle(), self.world.do_bytes()]
                finally:
                    self.kit.cleanup()
                    self.made.close()
                Programs.last = self.steps
                counted["programs"] += 1
                counted["steps"] += len(self.steps)
                answers = on_target(self.steps)
                count_unmade(answers, counted)
                found = compare_programs(self.steps, json.loads(json.dumps(self.seen)), answers, release)
                if found is not None:
                    Programs.found = found
                assert found is None, found

        yield Programs, check
