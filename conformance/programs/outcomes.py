"""Allowed outcomes: every result that any order of the device allows, and whether a target's is one of them."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipfile_conformance.kit import Kit
from hipfile_conformance.programs.concurrent import Program, generate, perform
from hipfile_conformance.results import State, TestResult
from hipfile_sim.engine.command import MEM, Access
from hipfile_sim.engine.schedules import Point, Schedule

if TYPE_CHECKING:
    from hipfile_sim.engine.command import Command
    from hipfile_sim.machine import Machine

__all__ = ["COUNTS", "EXAMPLES", "TooMany", "allowed_outcomes", "run"]

COUNTS = {"quick": 40, "full": 400}
"""Programs by depth."""
LIMIT = 4000
"""Schedules of one program beyond which it is left out (and counted as such)."""
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
"""Programs that once found something, run before the generated ones."""


class TooMany(Exception):
    """The program has too many orders to look at."""


class _Enumerate(Schedule):
    """One path through the orders of the commands, all of which are queued before the first runs.

    A command that touches nothing that another lane will touch commutes with everything there, so it runs at once; only
    where the heads are all in conflict with something are there several orders to look at.
    """

    name = "enumerate"
    passive = True  # the device moves when the host waits, and then everything is known

    def __init__(self, prefix: Sequence[int]) -> None:
        self.prefix = list(prefix)
        self.widths: list[int] = []
        self.machine: Machine | None = None

    def fresh(self) -> _Enumerate:
        """Itself: it is used by one machine only."""
        return self

    def choose(self, point: Point) -> int:
        assert self.machine is not None
        commands = [option.command for option in point.options]
        for index, command in enumerate(commands):
            if command is not None and not self._conflicts(command):
                return index
        step = len(self.widths)
        self.widths.append(len(commands))
        return self.prefix[step] if step < len(self.prefix) else 0

    def _conflicts(self, command: Command) -> bool:
        assert self.machine is not None
        mine = _touched(command)
        for lane in self.machine.engine.lanes.values():
            if lane is command.lane:
                continue
            for other in ([lane.running] if lane.running is not None else []) + list(lane.queue):
                # the host functions of these programs read result slots and write logs of their own stream
                if (command.external and other.kind == "cleanup") or (other.external and command.kind == "cleanup"):
                    return True
                if any(_clash(a, b) for a in mine for b in _touched(other)):
                    return True
        return False


def _touched(command: Command) -> list[Access]:
    """What a command touches or will touch (the slots of these programs are never changed, so it is known)."""
    if command.external:
        return []
    found = list(command.accesses())
    op = getattr(command, "op", None)
    if op is not None:
        size = max(op.size, 1)
        taken = "run_io" if op.write else "run_copy"  # the half of cuFile's operation that touches device memory
        if command.kind in ("memcpy_kernel", taken):
            found.append(Access(MEM, op.buffer.base + op.buffer_offset, size, not op.write))
        elif command.kind in ("cpu_copy", "run_io", "run_copy"):
            found.append(Access(("file", op.file.info.dev, op.file.info.ino), op.file_offset, size, op.write))
    return found


def _clash(a: Access, b: Access) -> bool:
    if not (a.write or b.write) or a.space != b.space:
        return False
    return a.start < b.start + b.length and b.start < a.start + a.length


def allowed_outcomes(
    body: Callable[[Kit], str], release: str, folder: Path, *, limit: int = LIMIT
) -> dict[str, tuple[int, ...]]:
    """Run a body under every order that can make a difference.

    Parameters
    ----------
    body
        Submits work, waits for all of it, and says what can be seen.
    release
        Profile of the machine.
    folder
        Where its files go.
    limit
        Orders beyond which it gives up.

    Returns
    -------
    dict
        Outcome -> the choices that lead to it.

    Raises
    ------
    TooMany
        There are more orders than `limit`.
    """
    from hipfile_conformance.targets.sim import SimTarget

    found: dict[str, tuple[int, ...]] = {}
    stack: list[tuple[int, ...]] = [()]
    for count in itertools.count(1):
        if not stack:
            return found
        if count > limit:
            raise TooMany(f"more than {limit} orders")
        prefix = stack.pop()
        schedule = _Enumerate(prefix)
        target = SimTarget(folder, release=release, schedule=schedule)
        schedule.machine = target.machine
        kit = Kit(target, release)
        try:
            found.setdefault(body(kit), prefix)
        finally:
            kit.cleanup()
            target.close()
        for step in range(len(prefix), len(schedule.widths)):
            taken = (*prefix, *[0] * (step - len(prefix)))
            stack += [(*taken, other) for other in range(1, schedule.widths[step])]
    raise AssertionError


def _perform(program: Program, kit: Kit) -> str:
    return perform(kit, program)


def examples() -> list[Program]:
    """The committed programs."""
    return [Program.from_json(json.loads(path.read_text())) for path in sorted(EXAMPLES.glob("concurrent-*.json"))]


def run(
    target: str,
    release: str,
    depth: str,
    seed: int,
    folder: Path,
    shard: tuple[int, int],
    known: dict[tuple[str, str], dict[str, tuple[int, ...]]] | None = None,
) -> tuple[dict[str, Any], list[TestResult]]:
    """Check a target's outcomes; see :func:`hipfile_conformance.programs.run_programs`."""
    from hipfile_conformance.programs.host import LACKING, Host

    programs = [*examples(), *(generate(seed * 1_000_000 + n) for n in range(COUNTS[depth]))][shard[0] - 1 :: shard[1]]
    found = {"programs checked": 0, "with several outcomes": 0, "outcomes in all": 0, "left out": 0, "wrong": 0}
    results: list[TestResult] = []
    known = {} if known is None else known
    lacking: dict[str, int] = {}
    with Host(target, release, folder) as host:
        for program in programs:
            start = time.perf_counter()
            key = release, str(program)
            try:
                if key not in known:
                    known[key] = allowed_outcomes(partial(_perform, program), release, folder)
            except TooMany:
                found["left out"] += 1
                continue
            allowed = known[key]
            variant, outcome = next((seen for seen in host.outcomes(program) if seen[1] not in allowed), ("", ""))
            if outcome.startswith(LACKING):
                reason = outcome.removeprefix(LACKING)
                lacking[reason] = lacking.get(reason, 0) + 1
                continue
            found["programs checked"] += 1
            found["outcomes in all"] += len(allowed)
            found["with several outcomes"] += len(allowed) > 1
            if outcome:
                found["wrong"] += 1
                seconds = time.perf_counter() - start
                results.append(_failure(target, release, program, variant, outcome, allowed, seconds))
    for reason, count in lacking.items():
        found["unsupported"] = found.get("unsupported", 0) + count
        results.append(TestResult("programs.outcomes", State.UNSUPPORTED, message=f"{count} programs: {reason}"))
    return found, results


def _failure(
    target: str, release: str, program: Program, variant: str, outcome: str, allowed: dict[str, Any], seconds: float
) -> TestResult:
    nearest = min(allowed, key=lambda other: sum(a != b for a, b in zip(other, outcome, strict=False)))
    message = f"{program}: outcome {outcome} is none of the {len(allowed)} allowed ones; nearest {nearest}"
    which = (
        str(program.seed) if generate(program.seed) == program else f"'{program}'"
    )  # committed ones outlive the seed
    again = f"hipfile-conformance program {which} --target {target} --release {release}"
    return TestResult(f"programs.outcome-{program.seed}", State.FAIL, seconds, [], message, variant, again)
