"""The exception of the package."""

from __future__ import annotations

from ._hipfile import hipFileGetOpErrorString
from .enums import OpError


class HipFileException(Exception):
    """A hipFile call failed.

    Parameters
    ----------
    hipfile_err : int
        Code of hipFile. A synchronous read or write that fails in HIP gives the bare HIP code here, because AMD's
        library returns it so. [sync.hip-error]
    hip_err : int
        Code of HIP; it means something only beside ``OpError.HIP_DRIVER_ERROR``.

    Examples
    --------
    >>> str(HipFileException(5022, 0))
    '5022 - a parameter has an invalid value'
    """

    def __init__(self, hipfile_err: int, hip_err: int) -> None:
        self._hipfile_err = hipfile_err
        self._hip_err = hip_err

    @property
    def hipfile_err(self) -> int:
        """Code of hipFile."""
        return self._hipfile_err

    @property
    def hip_err(self) -> int:
        """Code of HIP."""
        return self._hip_err

    def __str__(self) -> str:
        text = f"{self._hipfile_err} - {hipFileGetOpErrorString(self._hipfile_err)}"
        if self._hipfile_err == OpError.HIP_DRIVER_ERROR:
            text += f" {self._hip_err}"
        return text
