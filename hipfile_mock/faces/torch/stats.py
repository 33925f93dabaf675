"""Figures of the caching allocator, in the shape of `torch.cuda.memory_stats`."""

from __future__ import annotations

from typing import Any

__all__ = ["Figure", "Statistics"]

_NAMES = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)


class Figure:
    """One number and its history.

    Attributes
    ----------
    current, peak, allocated, freed : int
        Now; the most there was; the sum of all increases and of all decreases.
    """

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def add(self, amount: int) -> None:
        """Change it; a negative amount is a decrease."""
        self.current += amount
        if amount >= 0:
            self.allocated += amount
            if self.current > self.peak:
                self.peak = self.current
        else:
            self.freed -= amount

    def as_dict(self) -> dict[str, int]:
        """The four values by name."""
        return {name: getattr(self, name) for name in ("current", "peak", "allocated", "freed")}


class Statistics:
    """All figures of one device.

    Examples
    --------
    >>> statistics = Statistics()
    >>> statistics.taken(512, 100, small=True)
    >>> statistics.current("allocated_bytes"), statistics.current("requested_bytes")
    (512, 100)
    """

    def __init__(self) -> None:
        self.retries = self.ooms = self.device_allocs = self.device_frees = self.sync_all = 0
        self._figures = {name: (Figure(), Figure(), Figure()) for name in _NAMES}

    def _add(self, name: str, amount: int, small: bool) -> None:
        everything, small_pool, large_pool = self._figures[name]
        everything.add(amount)
        (small_pool if small else large_pool).add(amount)

    def current(self, name: str) -> int:
        """The present value over both pools."""
        return self._figures[name][0].current

    def taken(self, size: int, requested: int, small: bool) -> None:
        """A block was handed out."""
        for name, amount in (
            ("allocation", 1),
            ("active", 1),
            ("allocated_bytes", size),
            ("active_bytes", size),
            ("requested_bytes", requested),
        ):
            self._add(name, amount, small)

    def freed(self, size: int, requested: int, small: bool) -> None:
        """A storage died; its block may still be active, until events have passed."""
        self._add("allocation", -1, small)
        self._add("allocated_bytes", -size, small)
        self._add("requested_bytes", -requested, small)

    def idle(self, size: int, small: bool) -> None:
        """A block may be handed out again."""
        self._add("active", -1, small)
        self._add("active_bytes", -size, small)

    def inactive(self, size: int, small: bool) -> None:
        """A free part of a split segment came into being (negative: went away)."""
        self._add("inactive_split", 1 if size >= 0 else -1, small)
        self._add("inactive_split_bytes", size, small)

    def segment(self, size: int, small: bool) -> None:
        """A segment was had from the device (negative: given back)."""
        if size >= 0:
            self.device_allocs += 1
        else:
            self.device_frees += 1
        self._add("segment", 1 if size >= 0 else -1, small)
        self._add("reserved_bytes", size, small)

    def reset_peak(self) -> None:
        """Peaks start again from the present values."""
        for figures in self._figures.values():
            for figure in figures:
                figure.peak = figure.current

    def reset_accumulated(self) -> None:
        """Sums start again from 0."""
        for figures in self._figures.values():
            for figure in figures:
                figure.allocated = figure.freed = 0
        self.retries = self.ooms = self.device_allocs = self.device_frees = self.sync_all = 0

    def as_dict(self) -> dict[str, Any]:
        """What ``torch._C._cuda_memoryStats`` returns."""
        pools = ("all", "small_pool", "large_pool")
        result: dict[str, Any] = {
            name: {pool: figure.as_dict() for pool, figure in zip(pools, figures, strict=True)}
            for name, figures in self._figures.items()
        }
        nothing = Figure().as_dict()
        result.update(
            num_alloc_retries=self.retries,
            num_ooms=self.ooms,
            num_sync_all_streams=self.sync_all,
            num_device_alloc=self.device_allocs,
            num_device_free=self.device_frees,
            num_oom_rejections=0,
            max_split_size=-1,
            oversize_allocations=dict(nothing),
            oversize_segments=dict(nothing),
        )
        return result
