"""Slots on the stack of a C program: reported when their frame or their thread has ended, and never otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_support import execute

from hipfile_sim.native.stacks import Stack

WRONG = ("left", "left_and_covered", "in_a_loop", "thread_has_ended", "thread_has_left_the_frame")
RIGHT = (
    *("in_a_frame_that_lives", "on_the_heap", "with_alloca", "of_another_thread", "another_thread_waits"),
    "again_and_again",
)
SCHEDULES = ("lazy", "eager", "threads")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", WRONG)
def test_frame_that_ended(programs: Path, tmp_path: Path, case: str, schedule: str) -> None:
    """`left_and_covered` looks, too, whether the late result has damaged the frame that came after."""
    done = execute(programs / "scopes", tmp_path, case, options=["--sanitize", "--schedule", schedule])
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert "slot.dead" in done.stderr.splitlines()[0]
    assert "the stack" in done.stderr
    assert f"{programs / 'scopes'}+0x" in done.stderr.replace("\n           ", "")  # where it was submitted


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", RIGHT)
def test_frame_that_lives(programs: Path, tmp_path: Path, case: str, schedule: str) -> None:
    done = execute(programs / "scopes", tmp_path, case, options=["--sanitize", "--schedule", schedule])
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert "clean" in done.stderr.splitlines()[0], done.stderr


MAIN, OUTER = (0x7000, 11), (0x6000, 22)


@pytest.mark.parametrize(
    ("frames", "dead"),
    [
        ([(0x5000, 33), OUTER, MAIN], False),  # the frame itself
        ([(0x4000, 44), (0x5000, 33), OUTER, MAIN], False),  # deeper
        ([(0x5000, 34), OUTER, MAIN], True),  # another one in its place: it returns elsewhere
        ([OUTER, MAIN], True),  # its caller has made the call
        ([(0x6000, 23), MAIN], True),  # the caller is gone as well
        ([], False),  # nothing is known
        ([(0x4fff, 1), (0x7777, 2)], False),  # nothing in common: the frames cannot be relied on
    ],
)  # fmt: skip
def test_what_frames_say(frames: list[tuple[int, int]], dead: bool) -> None:
    chain = Stack(0x1000, 0x8000, 0x4000, ((0x4100, 9), (0x5000, 33), OUTER, MAIN)).chain(0x4800)
    assert chain == ((0x5000, 33), OUTER, MAIN)
    assert Stack(0x1000, 0x8000, 0x3000, tuple(frames)).ended(0x4800, chain) is dead


def test_what_the_stack_pointer_says() -> None:
    stack = Stack(0x1000, 0x8000, 0x4000, ())
    assert stack.ended(0x3FF8, ())
    assert not stack.ended(0x4000, ())
    assert not stack.ended(0x0FF8, ())  # other memory
    assert not stack.ended(0x8000, ())
    assert stack.chain(0x3FF8) == ()
