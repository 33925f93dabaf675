"""What becomes of operations that have completed: references dropped, pinned memory given back.

The real library has a thread for this, because freeing pinned memory waits for the device. Here the memory goes back
as soon as the operation's last command has run: the earliest moment at which that thread could. [result.monitor]
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hipfile_sim.hip.codes import HipError

if TYPE_CHECKING:
    from hipfile_sim.driver.driver import Driver
    from hipfile_sim.driver.operations import AsyncOp
    from hipfile_sim.driver.streams import IOStream


class Monitor:
    """The operations between submit and completion.

    Attributes
    ----------
    active : set of AsyncOp
        Operations in flight.
    """

    __slots__ = ("_driver", "_lock", "active")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self.active: set[AsyncOp] = set()

    def complete(self, op: AsyncOp) -> bool:
        """Drop what `op` holds. This precedes the store of its result. [result.references-first]

        Returns
        -------
        bool
            False if the operation is not known.
        """
        try:
            self.active.remove(op)
        except KeyError:
            return False
        self.drop(op)
        return True

    def drop(self, op: AsyncOp) -> None:
        """Give back the references and the pinned memory of an operation that is done or was never queued."""
        driver = self._driver
        op.file.release()
        buffer = getattr(op, "buffer", None)  # neither is set yet where the lookup failed
        if buffer is not None:
            buffer.users.discard(op)
        if op.pinned:
            for pointer in op.pinned:
                driver.release_pinned(pointer)
            op.pinned = ()
        if op.pinned_bytes:
            driver.unpin_op(op)
        stream = getattr(op, "stream", None)
        if stream is not None:
            stream.users.discard(op)
            if not stream.registered and not stream.users:
                self.release_stream(stream)

    def release_stream(self, stream: IOStream, *, synchronous: bool = False) -> None:
        """Free the memory of a stream object that nothing refers to any more.

        Parameters
        ----------
        stream : IOStream
        synchronous : bool
            On the caller's thread, where the free waits for the device as any ``hipHostFree`` does.
        """
        with self._lock:
            bounce, stream.bounce = stream.bounce, None
        if bounce is None:
            return
        if not synchronous:
            self._driver.release_pinned(bounce.pointer)
        elif self._driver.runtime.hipHostFree(bounce.pointer) != HipError.hipSuccess:  # only logged by the real one
            self._driver.note("stream.memory.free-failed", f"the pinned buffer of {stream!r} could not be freed")
