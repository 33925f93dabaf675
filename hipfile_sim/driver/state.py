"""What one driver knows: the use count and the maps of files, buffers and streams."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hipfile_sim.driver.buffers import BufferTable
from hipfile_sim.driver.codes import SUCCESS, HipFileStatus, OpError, status
from hipfile_sim.driver.files import FileMap
from hipfile_sim.driver.streams import StreamTable

if TYPE_CHECKING:
    from hipfile_sim.driver.driver import Driver
    from hipfile_sim.driver.mounts import MountTable


class DriverState:
    """Use count and maps of one driver.

    Attributes
    ----------
    lock : threading.Lock
        Guards everything here. It is never held while HIP or the engine is called, so it is never held for long.
    use_count : int
        Opens less closes; an implicit initialisation makes it 1.
    files, buffers, streams
        The maps.
    """

    __slots__ = ("buffers", "files", "lock", "streams", "use_count")

    def __init__(self, driver: Driver, mounts: MountTable) -> None:
        self.lock = threading.Lock()
        self.use_count = 0

        def remark(text: str, fd: int) -> None:
            driver.note("file.register-failed", f"hipFileHandleRegister: {text}", severity="warning", fd=fd)

        self.files = FileMap(driver.profile, driver.files, mounts, driver.runtime.new_handle, remark)
        self.buffers = BufferTable(driver.runtime, driver.profile, self.lock)
        self.streams = StreamTable(driver, self.lock)

    def open(self) -> HipFileStatus:
        """One more user. Always succeeds. [life.open.counts]"""
        with self.lock:
            self.use_count += 1
        return SUCCESS

    def close(self) -> HipFileStatus:
        """One user less; the last one clears buffers, then files, whether in use or not. [life.close.counts]

        Streams stay registered. [life.close.streams-survive]
        """
        with self.lock:
            if self.use_count == 0:  # [life.close.closed]
                return status(OpError.hipFileDriverNotInitialized)
            self.use_count -= 1
            if self.use_count == 0:  # [life.close.clears]
                self.buffers.clear()
                self.files.clear()
        return SUCCESS

    def implicit_init(self) -> None:
        """Open the driver if it is closed; an open one is left alone. [life.init.once]"""
        with self.lock:
            if self.use_count == 0:
                self.use_count = 1
