"""A KV-cache offload connector: blocks of a paged cache go to slabs on disk and come back layer by layer.

The cache is one tensor on a GPU, ``[blocks, layers, bytes of a layer]``. `KVOffload.store` spills a block without
holding up the forward pass, `KVOffload.load` brings one back while the layers before it are computed. Two side streams
carry the I/O; events say who may touch a block when. The module is written against PyTorch and the ``hipfile`` package
alone and runs unchanged on a GPU; its tests run on a laptop.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import hipfile
import torch


class OffloadError(RuntimeError):
    """A block could not be stored or loaded."""


class ChecksumError(OffloadError):
    """A block came back with other bytes than were stored."""


@dataclass(eq=False)
class Slab:
    """A file with room for a fixed number of blocks."""

    path: Path
    file: hipfile.FileHandle
    slots: int
    free: list[int] = field(default_factory=list)
    grown: int = 0
    """Slots below this one have disk space already."""


@dataclass(eq=False)
class Transfer:
    """A block on its way: one operation a layer, each with an event behind it.

    The handles must live until the operations are complete: the library writes their byte counts late.
    """

    key: str
    block: int
    slab: Slab
    slot: int
    operations: list[hipfile.file.AsyncIOHandle] = field(default_factory=list)
    events: list[torch.cuda.Event] = field(default_factory=list)
    staged: torch.Tensor | None = None

    def wait_layer(self, layer: int) -> None:
        """Hold the current stream until `layer` is complete. The host goes on, and knows nothing yet."""
        torch.cuda.current_stream().wait_event(self.events[layer])

    def synchronize(self) -> list[int]:
        """Hold the host until every layer is complete; the byte counts, negative for failures."""
        for event in self.events:
            event.synchronize()
        return [operation.bytes_done for operation in self.operations]


class KVOffload:
    """Stores and loads blocks of one cache tensor.

    Parameters
    ----------
    folder : path
        Where the slabs are.
    cache : torch.Tensor
        ``uint8`` on a GPU, contiguous, ``[blocks, layers, bytes]``.
    slabs, slots : int
        Number of files, and blocks in each. When all are taken, the block that was used least recently goes.
    verify : bool
        Keep checksums of what was stored, and check what comes back.
    direct : bool
        Open the slabs with O_DIRECT.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        cache: torch.Tensor,
        *,
        slabs: int = 2,
        slots: int = 4,
        verify: bool = True,
        direct: bool = False,
    ) -> None:
        if cache.dim() != 3 or cache.dtype != torch.uint8 or not cache.is_cuda or not cache.is_contiguous():
            raise ValueError(
                f"cache: a contiguous uint8 tensor [blocks, layers, bytes] on a GPU, not {cache.dtype} {cache.device}"
            )
        if slabs < 1 or slots < 1:
            raise ValueError(f"slabs={slabs}, slots={slots}: at least 1 of each")
        self.cache = cache
        self.blocks, self.layers, self.layer_bytes = cache.shape
        self.verify = verify
        self.evicted: list[str] = []
        self._stored: OrderedDict[str, tuple[Slab, int]] = OrderedDict()
        self._checksums: dict[str, list[int]] = {}
        self._storing: dict[str, Transfer] = {}
        self._closed = False
        with torch.cuda.device(cache.device):
            self._store_stream = torch.cuda.Stream()
            self._load_stream = torch.cuda.Stream()
        self._driver = hipfile.Driver()
        self._driver.open()
        self._buffer = hipfile.Buffer(cache.data_ptr(), cache.numel(), 0)
        self._buffer.register()
        self._registered = [hipfile.Stream(s.cuda_stream) for s in (self._store_stream, self._load_stream)]
        for stream in self._registered:
            stream.register()
        flags = os.O_RDWR | os.O_CREAT | (os.O_DIRECT if direct else 0)
        self._slabs = []
        for number in range(slabs):
            path = Path(folder) / f"slab-{cache.device.index or 0}-{number}.kv"
            slab = Slab(path, hipfile.FileHandle(str(path), flags), slots, list(range(slots))[::-1])
            slab.file.open()
            self._slabs.append(slab)

    # -- what a scheduler asks ---------------------------------------------------------------------------------------

    def __contains__(self, key: str) -> bool:
        return key in self._stored or key in self._storing

    def keys(self) -> list[str]:
        """Keys on disk, the one that goes first at the front."""
        return list(self._stored)

    # -- storing -----------------------------------------------------------------------------------------------------

    def store(self, key: str, block: int) -> Transfer:
        """Begin to spill `block`. It must not be overwritten before `before_overwrite` or `flush`.

        Raises
        ------
        IndexError
            No such block.
        OffloadError
            The key is stored already, or every slot is on its way to disk.
        """
        self._check_block(block)
        if key in self:
            raise OffloadError(f"{key!r} is stored already; discard it first")
        slab, slot = self._take_slot()
        transfer = Transfer(key, block, slab, slot)
        self._storing[key] = transfer
        self._store_stream.wait_stream(
            torch.cuda.current_stream(self.cache.device)
        )  # the forward pass writes the block
        with torch.cuda.stream(self._store_stream):
            if self.verify:
                transfer.staged = torch.empty((self.layers, self.layer_bytes), dtype=torch.uint8, pin_memory=True)
                transfer.staged.copy_(self.cache[block], non_blocking=True)
            for layer in range(self.layers):
                transfer.operations.append(
                    slab.file.write_async(
                        self._buffer,
                        self.layer_bytes,
                        self._file_offset(slot, layer),
                        self._cache_offset(block, layer),
                        self._store_stream.cuda_stream,
                    )
                )
                transfer.events.append(self._record(self._store_stream))
        return transfer

    def before_overwrite(self, block: int) -> None:
        """Hold the current stream until no store reads `block` any more."""
        for transfer in self._storing.values():
            if transfer.block == block:
                torch.cuda.current_stream().wait_event(transfer.events[-1])

    def flush(self) -> None:
        """Wait until everything is on its way no longer; what failed is written again, after making room.

        Raises
        ------
        OffloadError
            A block could not be written even so. It is not stored then; the others are.
        """
        failed: list[str] = []
        for key, transfer in list(self._storing.items()):
            counts = transfer.synchronize()
            try:
                if any(count != self.layer_bytes for count in counts):
                    self._write_again(transfer)
            except OSError as error:
                transfer.slab.free.append(transfer.slot)
                failed.append(f"{key}: {error.strerror}")
            else:
                transfer.slab.grown = max(transfer.slab.grown, transfer.slot + 1)
                self._stored[key] = (transfer.slab, transfer.slot)
                if transfer.staged is not None:
                    self._checksums[key] = [zlib.crc32(layer.numpy()) for layer in transfer.staged]
            del self._storing[key]
        if failed:
            raise OffloadError("not stored: " + "; ".join(failed))

    def _write_again(self, transfer: Transfer) -> None:
        """An asynchronous failure says only -1; the synchronous call says why, and a full disk can be helped."""
        while True:
            try:
                for layer in range(self.layers):
                    self._write_layer(transfer, layer)
                return
            except OSError as error:
                if error.errno != errno.ENOSPC or not self._swap_slot(transfer):
                    raise

    def _write_layer(self, transfer: Transfer, layer: int) -> None:
        done = 0
        while done < self.layer_bytes:
            moved = transfer.slab.file.write(
                self._buffer,
                self.layer_bytes - done,
                self._file_offset(transfer.slot, layer) + done,
                self._cache_offset(transfer.block, layer) + done,
            )
            if moved == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            done += moved

    def _swap_slot(self, transfer: Transfer) -> bool:
        """Give `transfer` the slot of the block that goes first: that one has disk space already."""
        for key, (slab, slot) in self._stored.items():
            if slot < slab.grown:
                self._evict(key, release=False)
                transfer.slab.free.append(transfer.slot)
                transfer.slab, transfer.slot = slab, slot
                return True
        return False

    # -- loading -----------------------------------------------------------------------------------------------------

    def load(self, key: str, block: int) -> Transfer:
        """Begin to bring `key` back into `block`. Gate each layer with ``wait_layer``; end with `finish`.

        Raises
        ------
        KeyError
            Not stored, or not any more.
        IndexError
            No such block.
        """
        self._check_block(block)
        if key in self._storing:
            self.flush()
        slab, slot = self._stored[key]
        self._stored.move_to_end(key)
        self.before_overwrite(block)
        transfer = Transfer(key, block, slab, slot)
        self._load_stream.wait_stream(torch.cuda.current_stream(self.cache.device))  # whoever used the block before
        with torch.cuda.stream(self._load_stream):
            for layer in range(self.layers):
                transfer.operations.append(
                    slab.file.read_async(
                        self._buffer,
                        self.layer_bytes,
                        self._file_offset(slot, layer),
                        self._cache_offset(block, layer),
                        self._load_stream.cuda_stream,
                    )
                )
                transfer.events.append(self._record(self._load_stream))
        return transfer

    def finish(self, transfer: Transfer) -> None:
        """Wait for a load and check it.

        Raises
        ------
        OffloadError
            An operation failed or came short; which layer, and with what count.
        ChecksumError
            The bytes are not those that were stored.
        """
        for layer, count in enumerate(transfer.synchronize()):
            if count != self.layer_bytes:
                raise OffloadError(f"{transfer.key!r}, layer {layer}: {count} of {self.layer_bytes} bytes")
        wanted = self._checksums.get(transfer.key)
        if wanted is None:
            return
        with torch.cuda.stream(self._load_stream):
            found = self.cache[transfer.block].cpu()
        for layer, checksum in enumerate(wanted):
            if zlib.crc32(found[layer].numpy()) != checksum:
                raise ChecksumError(f"{transfer.key!r}, layer {layer}: other bytes than were stored")

    # -- the end -----------------------------------------------------------------------------------------------------

    def discard(self, key: str) -> None:
        """Forget `key`, stored or on its way."""
        if key in self._storing:
            self.flush()
        self._evict(key, release=True)
        self.evicted.pop()

    def close(self) -> None:
        """Wait for everything and give everything back. The slabs stay on disk."""
        if self._closed:
            return
        self._closed = True
        try:
            self.flush()
        finally:
            self._load_stream.synchronize()
            for slab in self._slabs:
                slab.file.close()
            for stream in self._registered:
                stream.deregister()
            self._buffer.deregister()
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _take_slot(self) -> tuple[Slab, int]:
        for slab in self._slabs:
            if slab.free:
                return slab, slab.free.pop()
        if not self._stored:
            self.flush()  # every slot is on its way
        if not self._stored:
            raise OffloadError("no slot is free and none can be made free")
        slab, slot = self._evict(next(iter(self._stored)), release=False)
        return slab, slot

    def _evict(self, key: str, *, release: bool) -> tuple[Slab, int]:
        slab, slot = self._stored.pop(key)
        self._checksums.pop(key, None)
        self._load_stream.synchronize()  # a load of it may still read the slot
        if release:
            slab.free.append(slot)
        self.evicted.append(key)
        return slab, slot

    def _record(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        event = torch.cuda.Event()
        event.record(stream)
        return event

    def _file_offset(self, slot: int, layer: int) -> int:
        return (slot * self.layers + layer) * self.layer_bytes

    def _cache_offset(self, block: int, layer: int) -> int:
        return (block * self.layers + layer) * self.layer_bytes

    def _check_block(self, block: int) -> None:
        if not 0 <= block < self.blocks:
            raise IndexError(f"block {block}: the cache has {self.blocks}")
