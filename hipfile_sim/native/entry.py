"""Where the C libraries enter: load the bridge, whole or not at all, and tell the host program's exceptions apart."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

__all__ = ["SignalsHeld", "from_handler", "load"]


class SignalsHeld:
    """While the block runs, the host program's Python signal handlers are not called; they are called at its end.

    Without it Ctrl-C could leave a module imported by half, or a machine made by half. Off the main thread there is
    nothing to do.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._came: list[int] = []

    def __enter__(self) -> None:
        handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
        try:
            for number in self._handlers:
                signal.signal(number, self._note)
        except ValueError:  # not the main thread
            self._handlers = {}
        except BaseException:  # from the handler of a signal whose turn was still to come
            self._restore()
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)

    def _restore(self) -> None:
        try:
            for number in list(self._handlers):
                signal.signal(number, self._handlers[number])
                del self._handlers[number]
        finally:
            if self._handlers:  # a handler that is in its place again has raised
                self._restore()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()
        self._pass_on()

    def _pass_on(self) -> None:
        while self._came:
            try:
                signal.raise_signal(self._came.pop(0))
            finally:
                self._pass_on()


def load(names: str, library: str) -> list[Callable[..., Any]]:
    """Called by the library at `library` before its first call goes through: see `bridge.bind`."""
    with SignalsHeld():
        from hipfile_sim.native import bridge

        return bridge.bind(names, library)


def from_handler(error: BaseException) -> bool:
    """Whether one of the host program's signal handlers raised `error`."""
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {_code(handler) for handler in handlers if callable(handler)} - {None}
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code not in codes:
        traceback = traceback.tb_next
    return traceback is not None


def _code(handler: Any) -> object:
    function = getattr(handler, "func", handler)  # functools.partial
    return getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
