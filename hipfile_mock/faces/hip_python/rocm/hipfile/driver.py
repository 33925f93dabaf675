"""Life cycle of the driver."""

from typing import Self

from rocm.bindings.hipfile import hipFileDriverClose as _close
from rocm.bindings.hipfile import hipFileDriverOpen as _open
from rocm.bindings.hipfile import hipFileUseCount as _use_count

from .error import check as _check


class Driver:
    """Opens the driver for the length of a ``with`` block."""

    @staticmethod
    def use_count() -> int:
        """How often the driver is open."""
        (count,) = _use_count()
        return int(count)

    def open(self) -> None:
        """Raise the use count; HipFileException if the library refuses."""
        (status,) = _open()
        _check(status)

    def close(self) -> None:
        """Lower the use count; HipFileException 5001 if the driver is not open."""
        (status,) = _close()
        _check(status)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, exc_type: object, exc_value: object, traceback: object) -> None:
        self.close()
