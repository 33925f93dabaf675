"""Random programs with hipFile operations that order all that they touch: never a report, under no schedule."""

from __future__ import annotations

import random

import pytest
from catalogue.world import KIB, World
from hypothesis import given, settings
from hypothesis import strategies as st

from hipfile_sim.observe.sanitizer import Sanitizer

CELLS = 4
POLICY = "leak.*=off, cost.*=off, data.unsynced-write=off, stream.registered-unused=off"


class Ordered:
    """Submits random work; before each step it adds the waits that the step needs, and no more."""

    def __init__(self, world: World, rng: random.Random, flags: int) -> None:
        self.world = world
        self.rng = rng
        self.buffer = world.buffer(CELLS * 4 * KIB)
        self.stage = world.pinned(CELLS * 4 * KIB)
        world.poke(self.stage, bytes(CELLS * 4 * KIB))
        self.file = world.file()
        self.streams = [world.stream(flags=flags) for _ in range(3)]
        self.host_knows = dict.fromkeys(self.streams, 0)
        self.knows: dict[int, dict[int, int]] = {stream: dict(self.host_knows) for stream in self.streams}
        self.count = dict.fromkeys(self.streams, 0)
        self.touched: dict[object, list[tuple[int | None, int, bool]]] = {}
        self.pending: list[tuple[object, int, int]] = []

    def before(self, actor: int | None, things: list[tuple[object, bool]]) -> None:
        """Add what `actor` (a stream, or None for the host) has to wait for."""
        for thing, write in things:
            for stream, number, wrote in self.touched.get(thing, ()):
                if stream is None or stream == actor or not (write or wrote):
                    continue
                known = self.host_knows if actor is None else self.knows[actor]
                if max(known[stream], self.host_knows[stream]) >= number:
                    continue
                if actor is None or self.rng.random() < 0.3:
                    self.sync(stream)
                else:
                    self.world.wait_stream(actor, stream)
                    self.learn(self.knows[actor], stream)

    def sync(self, stream: int) -> None:
        """The host waits for a stream, in one of the ways that there are."""
        way = self.rng.randrange(3)
        if way == 0:
            self.world.sync(stream)
            self.learn(self.host_knows, stream)
        elif way == 1:
            event = self.world.event()
            self.world.record(event, stream)
            self.world.sync_event(event)
            self.learn(self.host_knows, stream)
        else:
            self.world.sync_device()
            for other in self.streams:
                self.learn(self.host_knows, other)

    def learn(self, known: dict[int, int], stream: int) -> None:
        for other, number in self.knows[stream].items():
            known[other] = max(known[other], number)
        known[stream] = self.count[stream]

    def after(self, actor: int | None, things: list[tuple[object, bool]]) -> None:
        if actor is not None:
            self.count[actor] += 1
            for other, number in self.host_knows.items():
                self.knows[actor][other] = max(self.knows[actor][other], number)
        for thing, write in things:
            self.touched.setdefault(thing, []).append((actor, self.count.get(actor, 0), write))

    def step(self) -> None:
        world, rng = self.world, self.rng
        what = rng.choice(("read", "write", "kernel", "copy", "host", "function", "result", "slots"))
        stream, cell, other = rng.choice(self.streams), rng.randrange(CELLS), rng.randrange(CELLS)
        device, staged = ("device", cell), ("stage", other)
        write = rng.random() < 0.5
        if what in ("read", "write"):
            things: list[tuple[object, bool]] = [(device, what == "read"), (("file", other), what == "write")]
            self.before(stream, things)
            slots = world.slots(4 * KIB, other * 4 * KIB, cell * 4 * KIB)
            (world.read if what == "read" else world.write)(self.file, self.buffer, slots, stream)
            self.after(stream, things)
            self.pending.append((slots, stream, self.count[stream]))
        elif what == "kernel":
            ranges = [(self.buffer + cell * 4 * KIB, 4 * KIB)]
            self.before(stream, [(device, write)])
            world.kernel(stream, reads=() if write else ranges, writes=ranges if write else ())
            self.after(stream, [(device, write)])
        elif what == "copy":
            self.before(stream, [(device, not write), (staged, write)])
            here, there = self.buffer + cell * 4 * KIB, self.stage + other * 4 * KIB
            world.copy(*((there, here) if write else (here, there)), stream, 4)
            self.after(stream, [(device, not write), (staged, write)])
        elif what == "host":
            self.before(None, [(staged, write)])
            if write:
                world.poke(self.stage + other * 4 * KIB, bytes(64))
            else:
                world.peek(self.stage + other * 4 * KIB, 64)
            self.after(None, [(staged, write)])
        elif what == "function":
            self.before(stream, [(staged, True)])
            world.host_function(stream, lambda: world.poke(self.stage + other * 4 * KIB, bytes(64)))
            self.after(stream, [(staged, True)])
        elif self.pending:
            slots, stream, number = self.pending.pop(rng.randrange(len(self.pending)))  # type: ignore[assignment]
            if self.host_knows[stream] < number:
                self.sync(stream)
            assert slots.bytes_done == 4 * KIB  # type: ignore[attr-defined]
            if what == "slots":
                slots.set(size=0, file_offset=1)  # type: ignore[attr-defined]
                world.drop(slots, "collected")  # type: ignore[arg-type]


def run(seed: int, steps: int, schedule: str, profile: str, flags: int, engine: str = "steps") -> Sanitizer:
    sanitizer = Sanitizer(POLICY)
    with World(sanitizer, schedule=schedule, profile=profile, engine=engine) as world:
        ordered = Ordered(world, random.Random(seed), flags)
        for _ in range(steps):
            ordered.step()
    return sanitizer


@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    st.integers(1, 25),
    st.sampled_from(["parallel", "lazy", "eager", "roundrobin", "seeded:3"]),
    st.sampled_from(["0.2", "0.4", "0.5", "cufile"]),
    st.sampled_from([0, 3, 7]),
)
def test_order_is_never_reported(seed: int, steps: int, schedule: str, profile: str, flags: int) -> None:
    sanitizer = run(seed, steps, schedule, profile, flags)
    assert not sanitizer.findings, sanitizer.format(colour=False)


@pytest.mark.parametrize("seed", range(5))
def test_order_is_never_reported_with_real_threads(seed: int) -> None:
    sanitizer = run(seed, 25, "parallel", "0.5", 0, engine="threads")
    assert not sanitizer.findings, sanitizer.format(colour=False)


def test_without_the_waits_there_are_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ordered, "before", lambda self, actor, things: None)
    assert sum(bool(run(seed, 20, "parallel", "0.5", 0).findings) for seed in range(10)) >= 8
