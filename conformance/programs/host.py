"""Where generated programs run: the model in this process, C libraries in a worker that can be ended."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hipfile_conformance.kit import Kit
from hipfile_conformance.process import LineProcess
from hipfile_conformance.programs.concurrent import Program, perform
from hipfile_conformance.targets.base import Target, Unavailable, Unsupported

__all__ = ["LACKING", "Host"]

VARIANTS = ("parallel", "lazy", "eager", "seeded:1", "seeded:2", "threads")
"""What the model itself is run under: each must stay within what the enumeration allows."""
LIMIT_S = 20.0
LACKING = "unsupported: "
"""Begins the answer of a target that lacks what a program needs; the reason follows."""
REPEATS = 3
"""Runs of a program on hardware and on real threads, where luck chooses the order."""


class Host:
    """Runs programs on a target.

    Parameters
    ----------
    target, release
        What runs them.
    folder
        Where files go.
    """

    def __init__(self, target: str, release: str, folder: Path) -> None:
        self.target, self.release, self.folder = target, release, folder
        self.process: LineProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.process.stop(0)

    def outcomes(self, program: Program) -> Iterator[tuple[str, str]]:
        """Outcomes, with what they were run under."""
        if self.target == "sim":
            from hipfile_conformance.targets.sim import SimTarget

            for name in VARIANTS:
                engine, schedule = ("threads", "parallel") if name == "threads" else ("steps", name)
                made = SimTarget(self.folder, release=self.release, schedule=schedule, engine=engine)
                kit = Kit(made, self.release)
                try:
                    yield name, perform(kit, program)
                except Exception as error:
                    yield name, f"{type(error).__name__}: {error}"
                finally:
                    kit.cleanup()
                    made.close()
        else:
            for number in range(REPEATS):
                yield f"run {number + 1}", self.ask({"program": program.as_json()})

    def ask(self, question: dict[str, Any]) -> str:
        """Ask the worker; a worker that dies or hangs answers with what happened to it."""
        process = self.process
        if process is None or process.dead:
            arguments = [self.target, self.release, str(self.folder)]
            module = "hipfile_conformance.programs.host"
            process = self.process = LineProcess(module, arguments, self.target, self.release)
        process.send(json.dumps(question))
        line = process.line(LIMIT_S)
        if line is None:
            return process.end()
        found: str = json.loads(line)
        return found


def serve(target_name: str, release: str, folder: Path) -> None:
    """The worker: programs come in, outcomes go out, one a line."""
    from hipfile_conformance.programs.lockstep import replay_on
    from hipfile_conformance.targets import make_target
    from hipfile_conformance.worker import make_from

    def make() -> Target:
        return make_from(target_name, folder) if ":" in target_name else make_target(target_name, folder)

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        target = make()
    except Unavailable as error:
        target, reason = None, str(error)
    opened = False
    for line in sys.stdin:
        if target is None:
            print(json.dumps(f"unavailable: {reason}"), file=answers, flush=True)
            continue
        question = json.loads(line)
        if opened and "model" in target.capabilities:  # nothing is given back there: it is thrown away
            target.close()
            target, opened = make(), False
        kit = Kit(target, release)
        try:
            if not opened:
                kit.open()
                opened = True
            if "program" in question:
                answer = perform(kit, Program.from_json(question["program"]))
            else:
                answer = json.dumps(replay_on(kit, [tuple(step) for step in question["steps"]]))
        except Unsupported as lacking:
            answer = LACKING + str(lacking)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        finally:
            try:
                kit.cleanup()
            except Exception as error:
                answer = f"clean-up: {type(error).__name__}: {error}"
        print(json.dumps(answer), file=answers, flush=True)
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
