"""Generated programs: the same outcome under every schedule when they order their own accesses, and never a crash.

A program is a list of small calls. In its ordered form a call on a stream first makes that stream wait, by events, for
all others, and the host waits itself before it touches anything; in its wild form nothing waits for anything.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hipfile_driver_rig import Recorder, Rig, Slots, pattern
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SCHEDULES = ("lazy", "eager", "parallel", "roundrobin", "seeded:1", "seeded:2")
FILE_SIZE = 600
BUFFER = 512
STREAMS = 3

small = st.integers(-1, 40).map(lambda n: n * 16)
call = st.one_of(
    st.tuples(st.just("io"), st.booleans(), st.integers(0, STREAMS - 1), st.integers(0, 2), small, small, small),
    st.tuples(st.just("host"), st.integers(0, STREAMS - 1)),
    st.tuples(st.just("event"), st.integers(0, STREAMS - 1), st.integers(0, STREAMS - 1)),
    st.tuples(st.just("sync"), st.integers(0, STREAMS - 1)),
    st.tuples(st.just("slot"), st.integers(0, 11), st.integers(0, 2), small),
    st.tuples(st.just("register"), st.integers(0, 1)),
    st.tuples(st.just("deregister"), st.integers(0, 1)),
    st.tuples(st.just("stream"), st.integers(0, STREAMS - 1), st.integers(0, 15)),
    st.tuples(st.just("unstream"), st.integers(0, STREAMS - 1)),
    st.tuples(st.just("set"), st.integers(0, STREAMS - 1), st.integers(0, 31), st.integers(0, 255)),
    st.tuples(st.just("sync io"), st.booleans(), small, small),
)
programs = st.lists(call, min_size=1, max_size=12)


class Run:
    """One program on one machine.

    Parameters
    ----------
    ordered : bool
        The program orders each call that could race with work in flight.
    """

    def __init__(self, folder: Path, profile: str, schedule: str, program: list[Any], *, ordered: bool) -> None:
        self.rig = Rig(folder, profile, schedule=schedule, buffer_size=96)
        self.ordered = ordered
        self.codes: list[Any] = []
        rig = self.rig
        self.recorder: Recorder = rig.watch()
        self.fd, self.handle = rig.file(pattern(FILE_SIZE, 1))
        self.buffers = [rig.memory(BUFFER, pattern(BUFFER, 2 + n)) for n in range(2)]
        self.streams = [rig.stream(None), rig.stream(None, blocking=True), 0]
        self.slots: list[Slots] = []
        try:
            for step in program:
                getattr(self, "_" + step[0].replace(" ", "_"))(*step[1:])
            assert rig.hip.hipDeviceSynchronize() == 0
            self.outcome = (
                self.codes,
                [tuple(slots.words) for slots in self.slots],
                [rig.peek(pointer, BUFFER) for pointer in self.buffers],
                os.pread(self.fd, 1 << 16, 0),
                rig.count,
            )
            self.leftovers = (
                len(rig.f.monitor.active),
                [b.users for b in rig.f.state.buffers.entries.values() if b.users],
            )
            self.token = rig.machine.token()
            self.trace = [(c.kind, c.lane.index, c.start_time, c.finish_time) for c in self.recorder.commands]
            self.order = list(self.recorder.finished_kinds)
        finally:
            rig.close()

    def _order(self, stream: int | None = None) -> None:
        """Order what follows, on `stream` or on the host, behind everything before."""
        hip = self.rig.hip
        if not self.ordered:
            return
        if stream is None:
            assert hip.hipDeviceSynchronize() == 0
            return
        for other in range(STREAMS):
            if other != stream:
                event = hip.hipEventCreate()[1]
                assert hip.hipEventRecord(event, self.streams[other]) == 0
                assert hip.hipStreamWaitEvent(self.streams[stream], event, 0) == 0

    def _note(self, result: Any) -> None:
        self.codes.append(tuple(map(int, result)) if isinstance(result, tuple) else result)

    def _io(self, write: bool, stream: int, buffer: int, size: int, file_offset: int, buffer_offset: int) -> None:
        self._order(stream)
        slots = Slots(size, file_offset, buffer_offset)
        self.slots.append(slots)
        pointer = self.buffers[buffer] if buffer < 2 else self.buffers[0] + 64
        self._note(self.rig.go(write, self.handle, pointer, slots, self.streams[stream]))

    def _host(self, stream: int) -> None:
        self._note(self.rig.hip.hipLaunchHostFunc(self.streams[stream], lambda _: None, None))

    def _event(self, recorded: int, waiting: int) -> None:
        hip = self.rig.hip
        event = hip.hipEventCreate()[1]
        hip.hipEventRecord(event, self.streams[recorded])
        self._note(hip.hipStreamWaitEvent(self.streams[waiting], event, 0))

    def _sync(self, stream: int) -> None:
        self._note(self.rig.hip.hipStreamSynchronize(self.streams[stream]))

    def _slot(self, which: int, word: int, value: int) -> None:
        self._order()
        if which < len(self.slots):
            self.slots[which].words[word] = value

    def _register(self, buffer: int) -> None:
        self._note(self.rig.f.hipFileBufRegister(self.buffers[buffer], BUFFER, 0))

    def _deregister(self, buffer: int) -> None:
        self._order()
        self._note(self.rig.f.hipFileBufDeregister(self.buffers[buffer]))

    def _stream(self, stream: int, flags: int) -> None:
        self._note(self.rig.f.hipFileStreamRegister(self.streams[stream], flags))

    def _unstream(self, stream: int) -> None:
        self._note(self.rig.f.hipFileStreamDeregister(self.streams[stream]))

    def _set(self, stream: int, where: int, value: int) -> None:
        self._order(stream)
        self._note(self.rig.hip.hipMemsetAsync(self.buffers[0] + 16 * where, value, 16, self.streams[stream]))

    def _sync_io(self, write: bool, file_offset: int, buffer_offset: int) -> None:
        self._order()
        io = self.rig.f.hipFileWrite if write else self.rig.f.hipFileRead
        self._note(io(self.handle, self.buffers[1], 64, file_offset, buffer_offset))


common = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
profiles = st.sampled_from(["0.2", "0.5", "cufile"])


@given(programs, profiles)
@common
def test_ordered_programs_have_one_outcome(tmp_path: Path, program: list[Any], profile: str) -> None:
    first = Run(tmp_path, profile, SCHEDULES[0], program, ordered=True)
    assert first.leftovers == (0, [])
    for schedule in SCHEDULES[1:]:
        other = Run(tmp_path, profile, schedule, program, ordered=True)
        assert other.outcome == first.outcome, schedule
        assert other.leftovers == (0, [])


@given(programs, profiles, st.sampled_from(SCHEDULES))
@common
def test_wild_programs_end_and_repeat(tmp_path: Path, program: list[Any], profile: str, schedule: str) -> None:
    """Nothing is ordered: any outcome, but an end; and the token of a run repeats it command by command."""
    first = Run(tmp_path, profile, schedule, program, ordered=False)
    assert first.leftovers == (0, [])
    assert all(
        slots[3] != 0x5EED or code for slots, code in zip(first.outcome[1], _io_codes(program, first), strict=True)
    )
    again = Run(tmp_path, profile, first.token, program, ordered=False)
    assert again.outcome == first.outcome
    assert again.trace == first.trace
    assert again.order == first.order
    assert again.token == first.token


def _io_codes(program: list[Any], run: Run) -> list[int]:
    """Codes of the asynchronous calls, which leave their slot alone only when they are refused."""
    codes = iter(run.codes)
    found = []
    for step in program:
        if step[0] == "slot":
            continue
        code = next(codes)
        if step[0] == "io":
            found.append(code[0])
    return found


def test_a_race_is_a_race(tmp_path: Path) -> None:
    """The generator is able to see differences: without order a write meets old or new bytes."""
    program = [("register", 0), ("stream", 1, 0), ("set", 0, 0, 7), ("io", True, 1, 0, 16, 0, 0)]
    schedules = [*SCHEDULES, *(f"seeded:{seed}" for seed in range(3, 20))]
    seen = {Run(tmp_path, "0.5", schedule, program, ordered=False).outcome[3][:16] for schedule in schedules}
    assert seen == {bytes([7]) * 16, pattern(BUFFER, 2)[:16]}
    assert {Run(tmp_path, "0.5", s, program, ordered=True).outcome[3][:16] for s in schedules} == {bytes([7]) * 16}
