"""The place of the fastpath: direct transfers between storage and device memory.

It needs two functions of the HIP runtime (``hipAmdFileRead`` and ``hipAmdFileWrite``). The emulated runtime does not
have them, and a release whose runtime lacks either keeps the fastpath off, so every operation is refused here and goes
to the fallback. [sync.fastpath.symbols]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hipfile_sim.driver.backends.base import REFUSED, Backend, Mover
from hipfile_sim.driver.buffers import Refused
from hipfile_sim.driver.codes import HipFileStatus, OpError, status

if TYPE_CHECKING:
    from hipfile_sim.driver.buffers import Buffer
    from hipfile_sim.driver.files import RegisteredFile
    from hipfile_sim.driver.operations import AsyncOp


class Fastpath(Backend):
    """Refuses everything, and counts the refusals as the releases with statistics do."""

    __slots__ = ()
    name: ClassVar[str] = "fastpath"

    def score(self, file: RegisteredFile, buffer: Buffer, size: int, file_offset: int, buffer_offset: int) -> int:
        self.driver.stats.fastpath_rejected()  # [stats.rejections]
        return REFUSED

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
        raise Refused(OpError.hipFileInternalError)  # [sync.backend.disabled]

    def submit(self, op: AsyncOp) -> HipFileStatus:
        return status(OpError.hipFileInternalError)
