"""Random programs: a finding exactly when a pair of conflicting accesses has no path, whatever the schedule did."""

from __future__ import annotations

import random
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from hipfile_sim.machine import Machine
from hipfile_sim.observe.sanitizer import Sanitizer

CELL = 64
CELLS = 4
POLICY = "leak.*=off, cost.*=off, event.*=off"


class Oracle:
    """Every access as a node, with everything that is before it."""

    def __init__(self) -> None:
        self.before: list[frozenset[int]] = []
        self.accesses: list[tuple[int, int, bool]] = []

    def node(self, *parents: int | None) -> int:
        known = {node for parent in parents if parent is not None for node in (*self.before[parent], parent)}
        self.before.append(frozenset(known))
        return len(self.before) - 1

    def access(self, node: int, cell: int, write: bool) -> None:
        self.accesses.append((node, cell, write))

    @property
    def races(self) -> bool:
        return any(
            one[1] == two[1]
            and (one[2] or two[2])
            and one[0] not in self.before[two[0]]
            and two[0] not in self.before[one[0]]
            for one, two in combinations(self.accesses, 2)
            if one[0] != two[0]
        )


def run(seed: int, steps: int, schedule: str) -> tuple[bool, bool]:
    """(what the sanitizer says, what the graph says)."""
    rng = random.Random(seed)
    careful = rng.random()
    sanitizer = Sanitizer(POLICY)
    oracle = Oracle()
    with Machine(1, schedule=schedule, observers=[sanitizer]) as machine:
        hip = machine.hip
        _, base = hip.hipHostMalloc(CELL * CELLS)
        streams = [hip.hipStreamCreateWithFlags(1 if n else 0)[1] for n in range(3)] + [0]
        null, blocking = streams[3], streams[0]
        events = [hip.hipEventCreate()[1] for _ in range(3)]
        tail: dict[int, int | None] = dict.fromkeys(streams)
        recorded: dict[int, int | None] = dict.fromkeys(events)
        host: int | None = None

        def submit(stream: int, *more: int | None) -> int:
            implicit = tail[blocking] if stream == null else tail[null] if stream == blocking else None
            tail[stream] = node = oracle.node(host, tail[stream], implicit, *more)
            return node

        for _ in range(steps):
            what = rng.choice("kkkkhhrw" + ("rwsedq" if rng.random() < careful else ""))
            stream, event, cell = rng.choice(streams), rng.choice(events), rng.randrange(CELLS)
            write = rng.random() < 0.4
            if what == "k":
                ranges = [(base + cell * CELL, CELL)]
                hip.launch(stream, lambda: None, () if write else ranges, ranges if write else ())
                oracle.access(submit(stream), cell, write)
            elif what == "h":
                machine.host_access(base + cell * CELL, CELL, write=write, what="host")
                host = oracle.node(host)
                oracle.access(host, cell, write)
            elif what == "r":
                hip.hipEventRecord(event, stream)
                recorded[event] = submit(stream)
            elif what == "w" and recorded[event] is not None:
                hip.hipStreamWaitEvent(stream, event)
                submit(stream, recorded[event])
            elif what == "s":
                hip.hipStreamSynchronize(stream)
                host = oracle.node(host, tail[stream], tail[blocking] if stream == null else None)
            elif what == "e" and recorded[event] is not None:
                hip.hipEventSynchronize(event)
                host = oracle.node(host, recorded[event])
            elif what == "d":
                hip.hipDeviceSynchronize()
                host = oracle.node(host, *tail.values())
            elif what == "q" and recorded[event] is not None and not hip.hipEventQuery(event):
                host = oracle.node(host, recorded[event])
        machine.finish()
    return bool(sanitizer.findings), oracle.races


@settings(max_examples=250)
@given(
    st.integers(0, 2**32), st.integers(2, 40), st.sampled_from(["parallel", "lazy", "eager", "roundrobin", "seeded:7"])
)
def test_a_finding_exactly_where_there_is_no_path(seed: int, steps: int, schedule: str) -> None:
    said, true = run(seed, steps, schedule)
    assert said == true


def test_both_kinds_of_programs_occur() -> None:
    outcomes = [run(seed, 14, "parallel")[1] for seed in range(80)]
    assert 10 < sum(outcomes) < 70
