"""Random faults under the driver: short transfers, EINTR, EIO, ENOSPC. For ``[setup] call``."""

from __future__ import annotations

import errno
import os
import random
import threading

from hipfile_sim.driver.fileops import RealFiles
from hipfile_sim.machine import Machine


class FaultyFiles(RealFiles):
    """Real files whose transfers fail now and then."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(7)
        self._lock = threading.Lock()

    def _fault(self, errors: tuple[int, ...]) -> bool:
        """True: make the transfer short. Raises for one transfer in 25."""
        with self._lock:
            draw = self._random.random()
        if draw < 0.04:
            code = errors[int(draw * 1000) % len(errors)]
            raise OSError(code, os.strerror(code))
        return draw < 0.08

    def pread_into(self, fd: int, view: memoryview, offset: int) -> int:
        short = self._fault((errno.EINTR, errno.EIO))
        return super().pread_into(fd, view[: max(1, len(view) // 3)] if short else view, offset)

    def pwrite_from(self, fd: int, view: memoryview, offset: int) -> int:
        short = self._fault((errno.EINTR, errno.ENOSPC, errno.EIO))
        return super().pwrite_from(fd, view[: max(1, len(view) // 3)] if short else view, offset)


def install(machine: Machine) -> None:
    """Put them under the machine's driver."""
    machine.hipfile.files = FaultyFiles()
