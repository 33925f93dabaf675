"""The names of things: blocks of memory and files."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING

from hipfile_sim.engine.command import MEM, Space

if TYPE_CHECKING:
    from hipfile_sim.driver.fileops import FileOps
    from hipfile_sim.driver.files import RegisteredFile
    from hipfile_sim.hip.memory import Block


class Names:
    """Blocks of memory and files, by address and number."""

    __slots__ = ("_bases", "_blocks", "device_span", "files", "internal")

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._blocks: dict[int, Block] = {}
        self.device_span = (0, 0)
        """First and last address of all device memory, live or not."""
        self.files: dict[Space, str] = {}
        """Names of files."""
        self.internal: set[int] = set()
        """Bases of blocks that the library allocated for itself."""

    def add(self, block: Block, internal: bool) -> None:
        """A block came into being."""
        if block.base not in self._blocks:
            insort(self._bases, block.base)
        self._blocks[block.base] = block
        if block.kind == "device":
            start, end = self.device_span
            self.device_span = min(start or block.base, block.base), max(end, block.base + block.size)
        if internal:
            self.internal.add(block.base)
        else:
            self.internal.discard(block.base)

    def remove(self, block: Block) -> None:
        """A block is gone."""
        if self._blocks.pop(block.base, None) is not None:
            self._bases.remove(block.base)
            self.internal.discard(block.base)

    def find(self, address: int) -> Block | None:
        """The live block that contains `address`."""
        index = bisect_right(self._bases, address) - 1
        if index >= 0:
            block = self._blocks[self._bases[index]]
            if address < block.base + block.size:
                return block
        return None

    def find_device(self, address: int) -> Block | None:
        """The live block of device memory that contains `address`; quick where there is none near."""
        start, end = self.device_span
        if not start <= address < end:
            return None
        block = self.find(address)
        return block if block is not None and block.kind == "device" else None

    def live(self) -> list[Block]:
        """Blocks that the program allocated and has not freed."""
        return [self._blocks[base] for base in self._bases if base not in self.internal]

    def name_file(self, space: Space, file: RegisteredFile, files: FileOps) -> str:
        """The name of a registered file, learnt when it is first used."""
        name = self.files.get(space)
        if name is None:
            try:
                name = files.path(file.client_fd)
            except OSError:
                pass
            name = self.files[space] = name or f"descriptor {file.client_fd}"
        return name

    def file(self, space: Space) -> str:
        """The name of a file."""
        return self.files.get(space) or f"file {space[1]}:{space[2]}"

    def describe(self, space: Space, start: int, end: int) -> str:
        """A range of bytes, for people."""
        if space != MEM:
            return f"bytes {start} to {end} of {self.file(space)}"
        block = self.find(start)
        if block is None:
            return f"{end - start} bytes of host memory at {start:#x}"
        where = f", allocated at {block.site}" if block.site else ""
        low, high = start - block.base, end - block.base
        return f"bytes {low} to {high} of {block.kind} block {block.id} ({block.size} bytes{where})"
