"""Streams that are held back, and calls that wait: what a test of order is made of."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hipfile_conformance.building import Building
from hipfile_conformance.targets.base import Hold, HoldKind, Target

__all__ = ["Holding"]

MOMENT_S = 0.002


class Holding(Building):
    """Holds are released at the end of the test, whatever became of it."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._holds: list[Hold] = []
        self.result: Any = None

    @contextmanager
    def held(self, stream: int, kind: HoldKind = "value") -> Iterator[Hold]:
        """Nothing queued on `stream` within runs before the block ends or the hold is released."""
        hold = self.target.hold(stream, kind)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            hold.release()

    @property
    def patience(self) -> float:
        """Seconds after which what has not happened is taken to wait for something."""
        return 0.25 if self.has("real") else 0.1

    def moments(self, seconds: float | None) -> range:
        """So many moments of `MOMENT_S` are that time, or `patience`.

        They are counted, not timed: where a busy machine makes one long, it is long for the device's threads too.
        """
        return range(math.ceil((self.patience if seconds is None else seconds) / MOMENT_S))

    def runs(self, stream: int, seconds: float | None = None) -> bool:
        """Can `stream` complete a memset now?"""
        pointer = self.spare
        self.ok(self.hipMemsetAsync(pointer, 1, 16, stream), "hipMemsetAsync")
        return self.completes(stream, seconds)

    def completes(self, stream: int, seconds: float | None = None) -> bool:
        """Does what is queued on `stream` complete by itself?"""
        if self.has("steps"):
            return not self.blocks(lambda: self.hipStreamSynchronize(stream))
        event = self.event(2)
        self.ok(self.hipEventRecord(event, stream), "hipEventRecord")
        for _ in self.moments(seconds):
            if self.hipEventQuery(event) == 0:
                return True
            time.sleep(MOMENT_S)
        return False

    @property
    def spare(self) -> int:
        """A small piece of device memory; first used before anything is held."""
        if not hasattr(self, "_spare"):
            self._spare = int(self.ok(self.hipMalloc(256), "hipMalloc"))
        return self._spare

    def blocks(self, call: Callable[..., Any], seconds: float | None = None) -> bool:
        """Does `call` wait for something that is held? (It is left waiting where there are threads.)"""
        if self.has("steps"):
            from hipfile_sim.engine.errors import DeadlockError

            try:
                self.result = call()
            except DeadlockError:
                return True
            return False
        box: list[Any] = []
        failed: list[BaseException] = []

        def run() -> None:
            self.hipSetDevice(0)  # a fresh host thread has no current context until it makes a runtime call
            try:
                box.append(call())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        for _ in self.moments(seconds):
            thread.join(MOMENT_S)
            if not thread.is_alive():
                break
        waits = thread.is_alive()
        if failed and not waits:
            raise failed[0]
        self._kept.append(thread)
        self.result = box[0] if box else None
        return waits

    def cleanup_threads(self) -> None:
        """Wait for calls that were left waiting in threads and have been released."""
        for thing in self._kept:
            if isinstance(thing, threading.Thread):
                thread: threading.Thread = thing
                thread.join(5)

    def progress(self) -> None:
        """Let the device move where it can without being waited for (real threads: a moment of time)."""
        if self.has("threads"):
            time.sleep(0.02)

    def release_holds(self) -> None:
        """Release what is still held, and wait for the threads that were left waiting."""
        for hold in self._holds:
            try:
                hold.release()
            except Exception:  # the world may already be broken by the test
                pass
        self.cleanup_threads()
