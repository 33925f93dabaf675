"""Life cycle of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._hipfile import hipFileDriverClose, hipFileDriverOpen, hipFileUseCount
from .error import HipFileException

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Driver:
    """Opens the driver for the length of a ``with`` block. Opening counts: each `close` undoes one `open`.

    Examples
    --------
    >>> with Driver() as driver:  # doctest: +SKIP
    ...     driver.use_count()
    1
    """

    @staticmethod
    def use_count() -> int:
        """How often the driver is open at the moment."""
        return hipFileUseCount()

    def open(self) -> None:
        """Raise the use count by one.

        Raises
        ------
        HipFileException
            The library refused.
        """
        status = hipFileDriverOpen()
        if status[0] != 0:
            raise HipFileException(status[0], status[1])

    def close(self) -> None:
        """Lower the use count by one; at 0 all files and buffers are deregistered. [life.close]

        Raises
        ------
        HipFileException
            5001: the driver is not open.
        """
        status = hipFileDriverClose()
        if status[0] != 0:
            raise HipFileException(status[0], status[1])

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
