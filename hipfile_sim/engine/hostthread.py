"""The threads that run users' host functions for the step engine.

A host function may block until the host program lets it go on, so it cannot run inside the engine. It runs on a thread
of its own, and the engine waits until it has returned or is plainly blocked.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from hipfile_sim.engine.command import Command


class HostFunctionThread:
    """One worker. The engine hands it one command at a time.

    Parameters
    ----------
    call : callable
        Runs a command as a host function.
    changed : threading.Condition
        The engine's; notified when a command has returned.
    """

    POLL_S = 0.002
    """Real seconds between two looks at a worker that has not returned."""
    STILL = 4
    """Looks in a row without any activity after which the worker counts as blocked."""

    def __init__(self, call: Callable[[Command], None], changed: threading.Condition) -> None:
        self._call = call
        self._changed = changed
        self._inbox: deque[Command | None] = deque()
        self._wake = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._switches = -1
        self.current: Command | None = None
        self.returned = True
        self.in_wait = 0
        self.error: BaseException | None = None

    @property
    def thread(self) -> threading.Thread | None:
        """The worker, once it has had something to do."""
        return self._thread

    def start(self, command: Command) -> None:
        """Begin `command`. The engine's lock is held."""
        self.current = command
        self.returned = False
        self.error = None
        self._switches = -1
        self._inbox.append(command)
        if self._thread is None:
            thread = threading.Thread(target=self._loop, name="hipfile-sim host functions", daemon=True)
            thread.hipfile_sim = True  # type: ignore[attr-defined]
            try:
                thread.start()
            except RuntimeError as error:  # the process may have no more threads
                self._inbox.clear()
                self.error = error
                self.returned = True
                return
            self._thread = thread
        self._wake.release()

    def stop(self) -> None:
        """End the thread once its function has returned."""
        self._inbox.append(None)
        self._wake.release()

    def _loop(self) -> None:
        while True:
            self._wake.acquire()
            command = self._inbox.popleft()
            if command is None:
                return
            error: BaseException | None = None
            try:
                self._call(command)
            except BaseException as caught:  # whatever user code raises is reported to the host program
                error = caught
            with self._changed:
                self.error = error
                self.returned = True
                self._changed.notify_all()

    def settle(self) -> None:
        """Wait until the function has returned or is blocked. The engine's lock is held, and released meanwhile.

        Blocked means: the kernel says that the thread sleeps, and it has not been switched in for `STILL` looks. Only
        that makes a run with a blocking host function repeatable. A function that waits in the engine itself
        (`in_wait`) counts as blocked: it looks for others that settle, and they would look for it without an end.
        """
        if self.returned or self.in_wait:
            return
        if self._switches >= 0 and self._activity() == self._switches:
            return  # blocked before, and nothing has woken it
        still = 0
        seen = -1
        while still < self.STILL and not self._has_returned() and not self._waits():
            self._changed.wait(self.POLL_S)
            activity = self._activity()
            still = still + 1 if activity >= 0 and activity == seen else 0
            seen = activity
        self._switches = -1 if self._has_returned() else seen

    def _has_returned(self) -> bool:
        return self.returned  # a call, because the worker sets it while this thread sleeps

    def _waits(self) -> bool:
        return self.in_wait > 0

    def _activity(self) -> int:
        """How often the thread has given up its core, or -1 while it is not asleep."""
        thread = self._thread
        tid = thread.native_id if thread else None
        if tid is None:
            return -1
        try:
            with open(f"/proc/self/task/{tid}/status", "rb", buffering=0) as status:
                text = status.read()
        except OSError:
            return int(time.monotonic() * 20)  # no /proc: fall back to a fixed wait of some 50 ms
        if b"\nState:\tS" not in text:
            return -1
        return sum(int(line.split()[1]) for line in text.split(b"\n") if b"ctxt_switches" in line)
