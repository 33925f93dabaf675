"""Virtual time and what work costs in it."""

from __future__ import annotations

from dataclasses import dataclass


class VirtualClock:
    """The time of one machine, in ns. It never goes back and never looks at a real clock.

    Examples
    --------
    >>> clock = VirtualClock()
    >>> clock.advance(1_000)
    1000
    >>> clock.reach(500)
    1000
    """

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0

    def advance(self, ns: int) -> int:
        """Move on by `ns` and return the new time."""
        self.now += ns
        return self.now

    def reach(self, time_ns: int) -> int:
        """Move on to `time_ns` unless it is already past, and return the time."""
        if time_ns > self.now:
            self.now = time_ns
        return self.now


@dataclass(frozen=True, slots=True)
class CostModel:
    """What one machine's work costs, in virtual ns.

    The defaults have the proportions of a server with one NVMe drive; only the proportions matter.

    Parameters
    ----------
    host_call : int
        A HIP or hipFile call on the host, before any waiting.
    command : int
        Launch latency, part of every command.
    copy_bytes_per_ns, file_bytes_per_ns, kernel_bytes_per_ns : int
        Speeds of host-device copies, of file transfers and of memory traffic inside the device.
    """

    host_call: int = 1_000
    command: int = 2_000
    copy_bytes_per_ns: int = 25
    file_bytes_per_ns: int = 5
    kernel_bytes_per_ns: int = 1_000

    def copy(self, nbytes: int) -> int:
        """A copy between host and device of `nbytes`."""
        return self.command + nbytes // self.copy_bytes_per_ns

    def file(self, nbytes: int) -> int:
        """A file transfer of `nbytes`."""
        return self.command + nbytes // self.file_bytes_per_ns

    def kernel(self, nbytes: int) -> int:
        """A kernel that touches `nbytes` of device memory."""
        return self.command + nbytes // self.kernel_bytes_per_ns
