"""How one emulated machine behaves where real ones differ."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class HipSettings:
    """Settings of the emulated HIP runtime.

    Parameters
    ----------
    host_function_threads : str
        ``"one"``: one thread runs the host functions of all streams, so a blocked one holds up the others (observed on
        CUDA). ``"per-stream"``: each stream has its own.
    host_function_calls : str
        A HIP call inside a host function: ``"refuse"`` returns hipErrorNotPermitted (observed on CUDA), ``"report"``
        lets it run and tells the observers.
    pageable_h2d : str
        An asynchronous copy from pageable memory: ``"block"``: the call waits until the copy is done (HIP);
        ``"stage"``: the bytes are taken at submit and the call returns (observed on CUDA).
    device_only_calls : str
        hipMemset of device memory, and hipMemcpy from device memory to device memory: ``"wait"``: the call returns when
        it is done; ``"return"``: at once, as the asynchronous ones do (observed on CUDA).
    queue_limit : int or None
        Commands outstanding on one stream beyond which a submit blocks (about 1,020 observed on CUDA). None: no limit.
    host_visible : bool
        Whether host code may touch device memory. Off, a touch is a segmentation fault, as on a discrete GPU.
    device_memory, pinned_memory : int
        Budgets in bytes: per device, and per machine.
    poison : int or None
        Byte that freed memory is filled with, so also what a block holds that is handed out again; None leaves it as
        it was. Memory that was never handed out before is zero. The sanitizer reports either kind in a file.
    allocation_alignment : int
        Bytes; every allocation starts at a multiple.
    """

    host_function_threads: str = "per-stream"
    host_function_calls: str = "refuse"
    pageable_h2d: str = "block"
    device_only_calls: str = "wait"
    queue_limit: int | None = None
    host_visible: bool = False
    device_memory: int = 16 * GIB
    pinned_memory: int = 4 * GIB
    poison: int | None = 0xDB
    allocation_alignment: int = 4096

    def __post_init__(self) -> None:
        for name, allowed in (
            ("host_function_threads", ("one", "per-stream")),
            ("host_function_calls", ("refuse", "report")),
            ("pageable_h2d", ("block", "stage")),
            ("device_only_calls", ("wait", "return")),
        ):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"HipSettings.{name} is {value!r}; choose one of {', '.join(map(repr, allowed))}")
        if self.poison is not None and not 0 <= self.poison <= 255:
            raise ValueError(f"HipSettings.poison is {self.poison!r}; it is one byte, 0 to 255, or None")
        for name in ("device_memory", "pinned_memory", "allocation_alignment"):
            if getattr(self, name) <= 0:
                raise ValueError(f"HipSettings.{name} is {getattr(self, name)!r}; it is a positive number of bytes")
        if self.queue_limit is not None and self.queue_limit < 1:
            raise ValueError(f"HipSettings.queue_limit is {self.queue_limit!r}; at least 1, or None for no limit")
