"""The exception of the package."""

from typing import Any

from rocm.bindings.hipfile import hipFileGetOpErrorString as _error_string

from .enums import OpError


class HipFileException(Exception):
    """A hipFile call failed.

    Its text cannot be had: ``str()`` of it raises TypeError, because the binding does not take a member of `OpError`.
    That is how release 10.0.0.0.1.2 behaves, and so does the double.
    """

    def __init__(self, hipfile_err: Any, hip_err: Any) -> None:
        self._hipfile_err = hipfile_err
        self._hip_err = hip_err

    @property
    def hipfile_err(self) -> Any:
        """Code of hipFile."""
        return self._hipfile_err

    @property
    def hip_err(self) -> Any:
        """Code of HIP, beside `OpError.HIP_DRIVER_ERROR`."""
        return self._hip_err

    def __str__(self) -> str:
        (text,) = _error_string(OpError(int(self._hipfile_err)))
        message = f"{self._hipfile_err} - {text}"
        if int(self._hipfile_err) == OpError.HIP_DRIVER_ERROR:
            message += f" {self._hip_err}"
        return message


def check(status: Any) -> None:
    """Raise for a status that is not success."""
    if status.err != OpError.SUCCESS:
        raise HipFileException(status.err, status.hip_drv_err)
