"""A child process that is asked by a line and answers by lines. Whatever a library does to it, it can be ended."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hipfile_conformance.targets import EMULATED

__all__ = ["LineProcess"]


class LineProcess:
    """Start a module of this suite as a process for one target.

    Parameters
    ----------
    module : str
        Run with ``python -m``.
    arguments : sequence of str
        Its arguments.
    target, release : str
        For the emulated libraries the release goes into the environment.
    environment : mapping, optional
        Variables on top. Those of the real hipFile are not inherited.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], target: str, release: str, environment: Mapping[str, str] = {}
    ) -> None:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HIPFILE_") or name.startswith("HIPFILE_SIM_")
        }
        root = str(Path(__file__).resolve().parent.parent)
        inherited["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [inherited.get("PYTHONPATH")])])
        if target in EMULATED:
            inherited["HIPFILE_SIM_PROFILE"] = release
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**inherited, **environment},
            start_new_session=True,
        )
        self.dead = False
        self._rest = b""

    def send(self, line: str) -> None:
        """Ask; a child that is gone is found out by the answer that does not come."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass

    def line(self, seconds: float) -> str | None:
        """The next line, or None if the child ended or said nothing for so long."""
        assert self.process.stdout is not None
        end = time.monotonic() + seconds
        poll = select.poll()  # works for any descriptor number
        poll.register(self.process.stdout, select.POLLIN | select.POLLHUP)
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not poll.poll(int(left * 1000)):
                return None
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def end(self) -> str:
        """End a child that does not answer as it should; says what became of it, with the last it printed."""
        code = self.process.poll()
        if code is None:
            try:
                code = self.process.wait(0.5)
            except subprocess.TimeoutExpired:
                pass
        self.errors.seek(0)
        tail = self.errors.read().decode(errors="replace").strip().splitlines()[-3:]
        self.stop(0)
        how = "did not answer in time and was ended"
        if code is not None:
            how = f"ended with {'signal' if code < 0 else 'exit'} {abs(code)}"
        return f"the process {how}" + (": " + " | ".join(tail) if tail else "")

    def stop(self, seconds: float = 5) -> None:
        """Let the child end by itself, at the latest after so long. Safe to call twice."""
        if self.dead:
            return
        self.dead = True
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.close()
        except OSError:  # what it was never told cannot be told any more
            pass
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()
