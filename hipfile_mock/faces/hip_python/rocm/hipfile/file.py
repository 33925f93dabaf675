"""Files."""

import os
import stat
from sys import stderr
from typing import Any, Self

from rocm.bindings.hipfile import hipFileDescr as _Descr
from rocm.bindings.hipfile import hipFileFileHandleType as _HandleType
from rocm.bindings.hipfile import hipFileHandleDeregister as _deregister
from rocm.bindings.hipfile import hipFileHandleRegister as _register
from rocm.bindings.hipfile import hipFileRead as _read
from rocm.bindings.hipfile import hipFileWrite as _write

from hipfile_mock import current as _current

from .enums import FileHandleType, OpError
from .error import HipFileException


class FileHandle:
    """A file that is opened and registered together. Arguments as of `hipfile.FileHandle`."""

    DEFAULT_MODE = stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH

    def __init__(
        self,
        path: Any,
        flags: Any,
        mode: Any = DEFAULT_MODE,
        handle_type: Any = FileHandleType.OPAQUE_FD,
    ) -> None:
        self._fd: int | None = None
        self._flags = flags
        self._handle: Any = None
        self._handle_type: Any = None
        self._mode = mode
        self._path = path
        self._os: Any = None
        self._machine: Any = None
        self.handle_type = handle_type

    @property
    def flags(self) -> Any:
        """Flags for `os.open`."""
        return self._flags

    @property
    def handle(self) -> Any:
        """Handle of the library, None while not open."""
        return self._handle

    @property
    def mode(self) -> Any:
        """Permissions of a file that is created."""
        return self._mode

    @property
    def path(self) -> Any:
        """The file."""
        return self._path

    @property
    def handle_type(self) -> Any:
        """Kind of handle. Setting it: RuntimeError (open), ValueError (not a member), NotImplementedError (Win32)."""
        return self._handle_type

    @handle_type.setter
    def handle_type(self, _handle_type: Any) -> None:
        if self._handle is not None:
            raise RuntimeError("Cannot modify handle_type while FileHandle is open")
        if _handle_type not in FileHandleType:
            raise ValueError(f"'{_handle_type}' is not a member of enum FileHandleType")
        if _handle_type == FileHandleType.OPAQUE_WIN32:
            raise NotImplementedError("FileHandle does not currently support Win32 Handles")
        self._handle_type = _handle_type

    def open(self) -> None:
        """Open the file and register it; RuntimeError, OSError or HipFileException."""
        if self._handle is not None:
            raise RuntimeError("The FileHandle is already open.")
        opener = _current.host_os()
        self._fd = opener.open(self._path, self._flags, self._mode)
        descr = _Descr()
        descr.type = _HandleType(int(self._handle_type))
        descr.handle.fd = self._fd
        status, handle = _register(descr)
        if status.err != OpError.SUCCESS:
            opener.close(self._fd)
            self._fd = None
            refused = HipFileException(status.err, status.hip_drv_err)
            if why := _current.why_not_registered():
                refused.add_note(why)
            raise refused
        self._handle = handle
        self._os = opener
        self._machine = _current.reference()

    def close(self) -> None:
        """Deregister the file and close it."""
        if self._handle is not None:
            if not _current.gone(self._machine):
                _deregister(self._handle)
            self._handle = None
        if self._fd is not None:
            _current.host_close(self._os or _current.host_os(), self._fd)
            self._fd = None

    def read(self, buffer: Any, size: Any, file_offset: Any, buffer_offset: Any) -> int:
        """Read into device memory; RuntimeError, OSError or HipFileException."""
        if self._handle is None:
            raise RuntimeError("The FileHandle is not open.")
        _current.check_owner(self._machine, f"the FileHandle of {self._path!r}")
        return self._check_io_result(*_read(self._handle, buffer.ptr, size, file_offset, buffer_offset))

    def write(self, buffer: Any, size: Any, file_offset: Any, buffer_offset: Any) -> int:
        """Write from device memory; errors as of `read`."""
        if self._handle is None:
            raise RuntimeError("The FileHandle is not open.")
        _current.check_owner(self._machine, f"the FileHandle of {self._path!r}")
        return self._check_io_result(*_write(self._handle, buffer.ptr, size, file_offset, buffer_offset))

    @staticmethod
    def _check_io_result(n: int, err: int, drv: int) -> int:
        if n == -1:
            raise OSError(err, os.strerror(err))
        if n < -1:
            raise HipFileException(OpError(-n), drv)
        return n

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, exc_type: object, exc_value: object, traceback: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_machine", None) is not None and not _current.refers(self._machine):
            self._handle = None
        try:
            self.close()
        except Exception:
            print("Failed to deregister hipFile.FileHandle at destruction time.", file=stderr)
