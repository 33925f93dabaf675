"""Streams that are slow."""

from __future__ import annotations

from typing import Any, Self


class _Stall:
    """A stream that moves only when nothing else can."""

    def __init__(self, stream: int, hold: bool) -> None:
        self.stream = stream
        self.hold = hold
        self._machine: Any = None

    def attach(self, machine: Any) -> None:
        """Begin."""
        self._machine = machine
        machine.stall(self.stream, hold=self.hold)

    def detach(self) -> None:
        """End."""
        self._machine.unstall(self.stream)

    def __enter__(self) -> Self:
        from hipfile_mock import current

        self.attach(current.get("hipfile_mock.faults.stall"))
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"<fault: stream {self.stream:#x} {'held' if self.hold else 'stalled'}>"


def stall(stream: Any, *, hold: bool = False) -> _Stall:
    """Make a stream as slow as can be, so that any race with it happens every time. Also a context manager.

    Parameters
    ----------
    stream : int or object
        A handle, or what carries one as ``handle`` or ``cuda_stream``.
    hold : bool
        Not merely slow: nothing moves until the end of the ``with`` block.

    Raises
    ------
    TypeError
        It is no stream.

    Examples
    --------
    >>> from hipfile_mock import fake
    >>> with fake() as session:
    ...     (_, slow), (_, memory) = session.hip.hipStreamCreate(), session.hip.hipMalloc(8)
    ...     with stall(slow):
    ...         _ = session.hip.hipMemsetAsync(memory, 1, 8, slow)
    ...         session.hip.hipStreamQuery(slow).name
    ...     session.hip.hipStreamSynchronize(slow).name
    'hipErrorNotReady'
    'hipSuccess'
    """
    for name in ("cuda_stream", "handle"):
        if not isinstance(stream, int):
            stream = getattr(stream, name, stream)
    if not isinstance(stream, int):
        raise TypeError(f"{stream!r} is no stream: give a handle, or an object with .handle or .cuda_stream")
    return _Stall(stream, hold)
