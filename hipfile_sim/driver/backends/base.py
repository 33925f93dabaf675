"""What a backend is: a way of moving bytes, with a score that says whether it wants an operation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from hipfile_sim.driver.codes import HipFileStatus
from hipfile_sim.hip.codes import HipError

if TYPE_CHECKING:
    from hipfile_sim.driver.buffers import Buffer
    from hipfile_sim.driver.driver import Driver
    from hipfile_sim.driver.files import RegisteredFile
    from hipfile_sim.driver.operations import AsyncOp

Mover = Callable[[int, int, int], HipError]
"""Copies ``(destination, source, length)`` between pageable host memory and device memory, and waits for it."""

REFUSED = -1
"""Score of a backend that will not take an operation. [sync.backend.score]"""


class HipFailure(Exception):
    """A HIP call of a synchronous operation failed with `code`. Internal: it never leaves the driver."""

    def __init__(self, code: HipError) -> None:
        super().__init__(code)
        self.code = code


class Backend(ABC):
    """One way of moving bytes between a file and device memory.

    Parameters
    ----------
    driver : Driver
    """

    __slots__ = ("driver",)
    name: ClassVar[str]

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    @abstractmethod
    def score(self, file: RegisteredFile, buffer: Buffer, size: int, file_offset: int, buffer_offset: int) -> int:
        """How much this backend wants the operation; `REFUSED` if it cannot do it."""

    @abstractmethod
    def io(
        self,
        write: bool,
        file: RegisteredFile,
        buffer: Buffer,
        size: int,
        file_offset: int,
        buffer_offset: int,
        mover: Mover | None = None,
    ) -> int:
        """Move the bytes now, with `mover` in the place of ``hipMemcpy`` if there is one.

        Returns
        -------
        int
            Bytes moved.

        Raises
        ------
        OSError
            The operating system refused; reported as -1 with this errno.
        HipFailure
            HIP refused; reported as the negated HIP code.
        Refused
            A check of the library; reported as the negated hipFile code.
        """

    @abstractmethod
    def submit(self, op: AsyncOp) -> HipFileStatus:
        """Put the commands of `op`, which has passed every check, on its stream."""


def select(
    backends: Sequence[Backend],
    file: RegisteredFile,
    buffer: Buffer,
    size: int,
    file_offset: int,
    buffer_offset: int,
) -> Backend | None:
    """The backend with the highest score, the first of equals, or None if all refuse. [sync.backend.order]"""
    best = None
    best_score = REFUSED
    for backend in backends:
        score = backend.score(file, buffer, size, file_offset, buffer_offset)
        if score > best_score:
            best, best_score = backend, score
    return best
