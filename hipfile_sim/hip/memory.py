"""Emulated memory: what is allocated where, of what kind, and how bytes move."""

from __future__ import annotations

import ctypes
import errno
import warnings
from bisect import bisect_right, insort

from hipfile_sim.engine.errors import MachineClosedError
from hipfile_sim.hip import hostmem
from hipfile_sim.hip.arena import PAGE, Arena, Reserved
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.observe.observer import Site

DEVICE, PINNED, REGISTERED, MANAGED = "device", "pinned", "registered", "managed"
SMALL = 16 << 10
"""Bytes up to which a slice assignment is the fastest copy (it holds the interpreter lock; larger pieces must not)."""
_POISON_AT_FREE = 4 << 20


class HipMemoryError(LookupError):
    """An address that is not, or no longer, emulated memory."""


class Block:
    """One allocation.

    Attributes
    ----------
    id : int
        Number of the allocation on its machine, from 1.
    base, size : int
        First address and bytes asked for.
    kind : str
        ``"device"``, ``"pinned"``, ``"registered"`` or ``"managed"``.
    device : int
        Ordinal of the device that owns it or was current.
    flags : int
        As given to the call that made it.
    freed : bool
        True from `Memory.release` on.
    site : Site or None
        Where it was allocated, when observed.
    """

    __slots__ = ("base", "device", "flags", "freed", "id", "kind", "site", "size")

    def __init__(self, id: int, base: int, size: int, kind: str, device: int, flags: int, site: Site | None) -> None:
        self.id = id
        self.base = base
        self.size = size
        self.kind = kind
        self.device = device
        self.flags = flags
        self.freed = False
        self.site = site

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.base + self.size

    def __repr__(self) -> str:
        state = " freed" if self.freed else ""
        return f"<{self.kind} block {self.id}: {self.size} bytes at {self.base:#x} on device {self.device}{state}>"


class Memory:
    """All memory of one machine.

    Parameters
    ----------
    devices : int
        Number of devices.
    settings : HipSettings
        Budgets, poison, visibility.
    """

    def __init__(self, devices: int, settings: HipSettings) -> None:
        self.settings = settings
        self.used = [0] * devices
        self.pinned_used = 0
        self.pinned_peak = 0
        self._device_arenas: list[Arena | None] = [None] * devices
        self._host_arena: Arena | None = None
        self._bases: list[int] = []
        self._blocks: dict[int, Block] = {}
        self._dead: dict[int, Block] = {}
        self._dead_bases: list[int] = []
        self._stale: list[tuple[int, int]] = []  # freed ranges that are not poisoned yet
        self._count = 0
        self._reserved: Reserved | None = None
        self.internal: set[int] = set()
        """Bases of blocks that belong to a library and that no program can reach (bounce buffers)."""

    # -- allocating --------------------------------------------------------------------------------------------------

    def allocate(self, size: int, kind: str, device: int, flags: int = 0, site: Site | None = None) -> Block | None:
        """A new block, or None when the budget or the address space is used up."""
        settings = self.settings
        if kind in (DEVICE, MANAGED):
            if self.used[device] + size > settings.device_memory:
                return None
        elif self.pinned_used + size > settings.pinned_memory:
            return None
        span = self._span(size)
        try:
            arena = self._arena(kind, device, span)
        except OSError as error:  # the process itself has no descriptor or no address space left
            warnings.warn(
                f"{size} bytes of emulated {kind} memory cannot be had: {error}. Raise the limit (ulimit -v, ulimit "
                "-n), or emulate less memory (HipSettings.device_memory, pinned_memory)",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        taken = arena.take(span)
        if taken is None:
            return None
        base, used_before = taken
        if used_before:
            self._bury(base, span)
        block = self._add(base, size, kind, device, flags, site)
        self._charge(block, size)
        return block

    def register(self, base: int, size: int, device: int, flags: int, site: Site | None = None) -> Block:
        """Make host memory of the caller known. The caller has checked the range."""
        return self._add(base, size, REGISTERED, device, flags, site)

    def release(self, block: Block) -> None:
        """Free or unregister `block`; poison what was ours."""
        del self._blocks[block.base]
        index = bisect_right(self._bases, block.base) - 1
        del self._bases[index]
        block.freed = True
        private = block.base in self.internal
        self.internal.discard(block.base)
        if block.kind == REGISTERED:
            return
        self._charge(block, -block.size)
        if self.settings.poison is not None and not private:  # nobody can hold a pointer to a private block
            if block.size <= _POISON_AT_FREE:
                self._fill(block.base, block.size)
            else:
                # filled where somebody looks: touching gigabytes for nobody would cost seconds
                self._stale.append((block.base, block.end))
        self._dead[block.base] = block
        insort(self._dead_bases, block.base)
        self._arena(block.kind, block.device).give(block.base, self._span(block.size))

    def device_arenas(self) -> list[Arena]:
        """The address space of each device that has had an allocation."""
        return [arena for arena in self._device_arenas if arena is not None]

    def new_handle(self) -> int:
        """An address that is unique on this machine and can never be read."""
        if self._reserved is None:
            self._reserved = Reserved()
        return self._reserved.take()

    def close(self, site: Site | None) -> None:
        """The machine was closed at `site`: a look at bytes raises. What is allocated can still be listed."""

        def refuse(pointer: int, length: int, *, dead_ok: bool = False) -> memoryview:
            raise MachineClosedError(f"{length} bytes of memory at {pointer:#x}", site)

        self.view = refuse  # type: ignore[method-assign]  # in its place, because looking for a flag costs each access

    # -- finding -----------------------------------------------------------------------------------------------------

    def find(self, pointer: int) -> Block | None:
        """The live block that contains `pointer`, or None."""
        block = self._blocks.get(pointer)
        if block is not None:
            return block
        index = bisect_right(self._bases, pointer) - 1
        if index >= 0:
            block = self._blocks[self._bases[index]]
            if pointer < block.base + block.size:
                return block
        return None

    def find_freed(self, pointer: int) -> Block | None:
        """The freed block that last contained `pointer` and has not been handed out again, or None."""
        index = bisect_right(self._dead_bases, pointer) - 1
        if index >= 0:
            block = self._dead[self._dead_bases[index]]
            if pointer < block.base + block.size:
                return block
        return None

    def live(self) -> list[Block]:
        """Every live block, by address."""
        return [self._blocks[base] for base in self._bases]

    def arena_of(self, pointer: int) -> Arena | None:
        """The arena whose public range contains `pointer`, allocated or not."""
        for arena in (*self._device_arenas, self._host_arena):
            if arena is not None and arena.contains(pointer):
                return arena
        return None

    def is_device_address(self, pointer: int) -> bool:
        """Whether `pointer` lies in some device's address range, where host code must not go."""
        return any(arena is not None and arena.contains(pointer) for arena in self._device_arenas)

    def is_internal(self, pointer: int) -> bool:
        """Whether `pointer` lies in a block that a library keeps to itself."""
        if not self.internal:
            return False
        block = self.find(pointer)
        return block is not None and block.base in self.internal

    # -- bytes -------------------------------------------------------------------------------------------------------

    def view(self, pointer: int, length: int, *, dead_ok: bool = False) -> memoryview:
        """The bytes at `pointer`, to read and write.

        Parameters
        ----------
        pointer, length : int
            A range inside one block of device, pinned or managed memory.
        dead_ok : bool
            Also serve memory that has been freed: a device that uses a dangling pointer sees poison.

        Raises
        ------
        HipMemoryError
            The range is not inside one block, or the block is registered host memory, whose life is the caller's.
        MachineClosedError
            The machine is closed. So do `alias`, `copy`, `fill`, `read` and `write`, whatever address they are given.
        """
        block = self._blocks.get(pointer) or self.find(pointer)
        if block is None and dead_ok:
            block = self.find_freed(pointer)
            if block is not None and self._stale:
                self._fill_stale(pointer, pointer + length)
        if block is None:
            raise HipMemoryError(f"{pointer:#x} is not emulated memory of this machine")
        if pointer + length > block.base + block.size:
            raise HipMemoryError(f"{length} bytes at {pointer:#x} reach past the end of {block!r}")
        if block.kind == REGISTERED:
            raise HipMemoryError(f"{block!r} is memory of the caller; move its bytes with copy()")
        arena = self._arena(block.kind, block.device)
        start = pointer - arena.base
        return arena.view[start : start + length]

    def alias(self, pointer: int, length: int) -> int:
        """An address at which the host may touch the bytes at `pointer`. Same errors as `view`."""
        self.view(pointer, length)
        arena = self.arena_of(pointer)
        assert arena is not None
        return pointer + arena.offset

    def copy(self, destination: int, source: int, length: int) -> bool:
        """Move bytes between any two addresses, emulated or of the host. False when one of them cannot be touched."""
        if length == 0:
            return True
        to = self._reach(destination, length)
        origin = self._reach(source, length)
        if to is not None and origin is not None:
            if length <= SMALL:
                to[:] = origin  # memoryview assignment copes with overlap
            else:
                ctypes.memmove(_address(to), _address(origin), length)
            return True
        if to is not None:
            return hostmem.fetch(_address(to), source, length)
        if origin is not None:
            return hostmem.store(destination, _address(origin), length)
        if self.is_device_address(destination) or self.is_device_address(source):
            return False
        return hostmem.fetch(destination, source, length)

    def fill(self, pointer: int, value: int, length: int) -> bool:
        """Set `length` bytes to `value`. False when they cannot be touched."""
        view = self._reach(pointer, length)
        if view is not None:
            if length <= SMALL:
                view[:] = bytes([value]) * length
            else:
                ctypes.memset(_address(view), value, length)
            return True
        return not self.is_device_address(pointer) and hostmem.write(pointer, bytes([value]) * length)

    def read(self, pointer: int, length: int) -> bytes | None:
        """The bytes at any address, or None where they cannot be read."""
        view = self._reach(pointer, length)
        if view is not None:
            return bytes(view)
        return None if self.is_device_address(pointer) else hostmem.read(pointer, length)

    def write(self, pointer: int, data: bytes | bytearray | memoryview) -> bool:
        """Store bytes at any address. False where they cannot be written."""
        view = self._reach(pointer, len(data))
        if view is not None:
            view[:] = data
            return True
        return not self.is_device_address(pointer) and hostmem.write(pointer, data)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _reach(self, pointer: int, length: int) -> memoryview | None:
        try:
            return self.view(pointer, length, dead_ok=True)
        except HipMemoryError:
            return None

    def _arena(self, kind: str, device: int, least: int = PAGE) -> Arena:
        """The arena of a sort of memory, made at first use with room for `least` bytes at least."""
        settings = self.settings
        if kind == DEVICE:
            arena = self._device_arenas[device]
            if arena is None:
                arena = self._device_arenas[device] = _new_arena(settings.device_memory, settings.host_visible, least)
        else:
            arena = self._host_arena
            if arena is None:
                budget = settings.pinned_memory + settings.device_memory * len(self.used)
                arena = self._host_arena = _new_arena(budget, True, least)
        return arena

    def _span(self, size: int) -> int:
        """Bytes of address space for a block: whole alignment units and one page that is never anybody's."""
        unit = self.settings.allocation_alignment
        return (max(size, 1) + unit - 1) // unit * unit + max(PAGE, unit)

    def _add(self, base: int, size: int, kind: str, device: int, flags: int, site: Site | None) -> Block:
        self._count += 1
        block = Block(self._count, base, size, kind, device, flags, site)
        self._blocks[base] = block
        if not self._bases or base > self._bases[-1]:
            self._bases.append(base)
        else:
            insort(self._bases, base)
        return block

    def _charge(self, block: Block, size: int) -> None:
        if block.kind == PINNED:
            self.pinned_used += size
            self.pinned_peak = max(self.pinned_peak, self.pinned_used)
        else:
            self.used[block.device] += size

    def _bury(self, base: int, span: int) -> None:
        """Freed blocks in a range that is handed out again leave the records; the range is poisoned."""
        if self._stale:
            self._fill_stale(base, base + span)
        while True:
            index = bisect_right(self._dead_bases, base + span - 1) - 1
            if index < 0:
                return
            block = self._dead[self._dead_bases[index]]
            if block.base + self._span(block.size) <= base:
                return
            del self._dead[block.base]
            del self._dead_bases[index]

    def _fill_stale(self, start: int, end: int) -> None:
        """Poison what is still to be poisoned between two addresses."""
        left: list[tuple[int, int]] = []
        for first, last in self._stale:
            low, high = max(first, start), min(last, end)
            if low >= high:
                left.append((first, last))
                continue
            self._fill(low, high - low)
            left += [part for part in ((first, low), (high, last)) if part[0] < part[1]]
        self._stale = left

    def _fill(self, base: int, size: int) -> None:
        arena = self.arena_of(base)
        if arena is not None and self.settings.poison is not None:
            ctypes.memset(base + arena.offset, self.settings.poison, size)


def _new_arena(budget: int, host_visible: bool, least: int) -> Arena:
    """Twice the budget, so that gaps and guard pages never run out before the budget does.

    Where the process may not have that much address space (``ulimit -v``), less will do, down to `least` bytes.
    """
    size = max(2 * budget, 1 << 30) // PAGE * PAGE
    while True:
        try:
            return Arena(size, host_visible)
        except (OSError, OverflowError) as error:
            full = isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
            if full or size // 4 < least:
                raise OSError(*error.args) from None
        size = size // 4 // PAGE * PAGE


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))
