"""The caching allocator of pinned host memory, and what torch calls a pinned tensor.

Blocks have sizes that are powers of two and are kept for the next tensor. A block that a stream still reads or writes
(a copy with ``non_blocking=True``) is not handed out again before the stream has passed that copy.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from hipfile_mock.faces.torch.dlpack import storage_bytes, tensor_at
from hipfile_mock.faces.torch.stats import Figure

if TYPE_CHECKING:
    from hipfile_mock.faces.torch.session import Session, StreamState

__all__ = ["HostAllocator"]


class _HostBlock:
    __slots__ = ("base", "pending", "requested", "size", "uses", "view")

    def __init__(self, base: int, size: int, view: memoryview) -> None:
        self.base = base
        self.size = size
        self.view = view  # keeps the mapping alive as long as a tensor has the block
        self.requested = 0
        self.uses: list[StreamState] = []
        self.pending = 0


class HostAllocator:
    """Pinned memory of one session.

    Attributes
    ----------
    allocated, reserved : Figure
        Bytes in tensors; bytes had from the runtime.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.allocated = Figure()
        self.reserved = Figure()
        self._lock = threading.Lock()  # not reentrant: a block can be released amid the methods here
        self._dead: deque[_HostBlock] = deque()
        self._free: dict[int, list[_HostBlock]] = {}
        self._live: dict[int, _HostBlock] = {}
        self._events: deque[tuple[int, _HostBlock]] = deque()

    def new_tensor(self, size: Sequence[int], stride: Sequence[int] | None, dtype: torch.dtype) -> torch.Tensor:
        """A CPU tensor in pinned memory, not initialised."""
        nbytes = storage_bytes(size, stride, dtype.itemsize)
        if nbytes == 0:
            return torch.empty_strided(size, stride, dtype=dtype) if stride else torch.empty(size, dtype=dtype)
        block = self._take(nbytes)
        return tensor_at(block.base, size, stride, dtype, None, lambda: self._release(block))

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage is one of these blocks."""
        return tensor.untyped_storage().data_ptr() in self._live

    def record(self, tensor: torch.Tensor, stream: StreamState) -> None:
        """`stream` uses the tensor's block; other pinned memory takes care of itself."""
        block = self._live.get(tensor.untyped_storage().data_ptr())
        if block is not None and stream not in block.uses:
            block.uses.append(stream)

    def _take(self, nbytes: int) -> _HostBlock:
        size = 1 << max(9, (nbytes - 1).bit_length())
        session = self.session
        with self._lock:
            self._bury()
            while self._events and session.event_passed(self._events[0][0]):
                event, block = self._events.popleft()
                session.give_event(event)
                block.pending -= 1
                if not block.pending:
                    self._free.setdefault(block.size, []).append(block)
            spare = self._free.get(size)
            if spare:
                block = spare.pop()
                if session.engine.observers:
                    what = f"a pinned tensor's memory ({size} bytes of torch's cache)"
                    session.machine.released(block.base, size, kind="recycled", what=what)
            else:
                code, base = session.own("hipHostMalloc", size, 0)
                session.check(code)
                block = _HostBlock(base, size, session.memory.view(base, size))
                self.reserved.add(size)
            block.requested = nbytes
            self.allocated.add(size)
            self._live[block.base] = block
            return block

    def _release(self, block: _HostBlock) -> None:
        self._live.pop(block.base, None)
        self._dead.append(block)
        if self.session.may_record and self._lock.acquire(blocking=False):
            try:
                self._bury()
            finally:
                self._lock.release()

    def _bury(self) -> None:
        while self._dead:
            block = self._dead.popleft()
            self.allocated.add(-block.size)
            for stream in block.uses:
                event = self.session.record_event(stream)
                if event:
                    block.pending += 1
                    self._events.append((event, block))
            block.uses = []
            if not block.pending:
                self._free.setdefault(block.size, []).append(block)

    def empty(self) -> None:
        """Give blocks that nobody uses back to the runtime."""
        with self._lock:
            self._bury()
            for blocks in self._free.values():
                while blocks:
                    block = blocks.pop()
                    self.session.check(self.session.own("hipHostFree", block.base))
                    self.reserved.add(-block.size)
