"""Files, and the streams that asynchronous operations run on."""

from __future__ import annotations

import os
import stat
from sys import stderr
from typing import TYPE_CHECKING, Any

from hipfile_mock import current as _current

from ._hipfile import (
    AsyncIOHandle,
    hipFileHandleDeregister,
    hipFileHandleRegister,
    hipFileRead,
    hipFileReadAsync,
    hipFileStreamDeregister,
    hipFileStreamRegister,
    hipFileWrite,
    hipFileWriteAsync,
)
from ._hipfile import supports_async as _supports_async
from .enums import FileHandleType
from .error import HipFileException

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from .buffer import Buffer


class FileHandle:
    """A file that is opened and registered together.

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    flags : int
        For `os.open`.
    mode : int
        Permissions of a file that is created.
    handle_type : FileHandleType
        Kind of handle to register.

    Raises
    ------
    ValueError, NotImplementedError
        See `handle_type`.
    """

    DEFAULT_MODE = stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH

    def __init__(
        self,
        path: str | os.PathLike[str],
        flags: int,
        mode: int = DEFAULT_MODE,
        handle_type: FileHandleType = FileHandleType.OPAQUE_FD,
    ) -> None:
        self._fd: int | None = None
        self._flags = flags
        self._handle: int | None = None
        self._handle_type: FileHandleType | None = None
        self._mode = mode
        self._path = path
        self._os: Any = None
        self._machine: Any = None

        self.handle_type = handle_type

    @property
    def flags(self) -> int:
        """Flags for `os.open`."""
        return self._flags

    @property
    def handle(self) -> int | None:
        """Handle of the library, None while not open."""
        return self._handle

    @property
    def mode(self) -> int:
        """Permissions of a file that is created."""
        return self._mode

    @property
    def path(self) -> str | os.PathLike[str]:
        """The file."""
        return self._path

    @property
    def handle_type(self) -> FileHandleType | None:
        """Kind of handle.

        Raises
        ------
        RuntimeError
            Set while open.
        ValueError
            Not a `FileHandleType`. (Python 3.11 raises TypeError for what is not even an enumeration member.)
        NotImplementedError
            Win32 handles.
        """
        return self._handle_type

    @handle_type.setter
    def handle_type(self, _handle_type: FileHandleType) -> None:
        if self._handle is not None:
            raise RuntimeError("Cannot modify handle_type while FileHandle is open")
        if _handle_type not in FileHandleType:
            raise ValueError(f"'{_handle_type}' is not a member of enum FileHandleType")
        if _handle_type == FileHandleType.OPAQUE_WIN32:
            raise NotImplementedError("FileHandle does not currently support Win32 Handles")
        self._handle_type = _handle_type

    def open(self) -> None:
        """Open the file and register it.

        Raises
        ------
        RuntimeError
            It is open.
        OSError
            The file cannot be opened.
        HipFileException
            It cannot be registered; it has been closed again.
        """
        if self._handle is not None:
            raise RuntimeError("The FileHandle is already open.")
        opener = _current.host_os()
        self._fd = opener.open(self._path, self._flags, self._mode)
        assert self._handle_type is not None  # the constructor set it
        handle, status = hipFileHandleRegister(self._fd, self._handle_type)
        if status[0] != 0:
            opener.close(self._fd)
            self._fd = None
            refused = HipFileException(status[0], status[1])
            if why := _current.why_not_registered():
                refused.add_note(why)
            raise refused
        self._handle = handle
        # A descriptor of a fake file system must be closed there, though it may be gone from this module by then.
        self._os = opener
        self._machine = _current.reference()

    def close(self) -> None:
        """Deregister the file and close it; nothing happens if it is not open.

        The library ignores a file that an operation in flight uses, and says nothing. [file.deregister.in-use]
        """
        if self._handle is not None:
            if not _current.gone(self._machine):
                hipFileHandleDeregister(self._handle)
            self._handle = None
        if self._fd is not None:
            _current.host_close(self._os or _current.host_os(), self._fd)
            self._fd = None

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

    def __del__(self) -> None:
        # The handle of a machine that has ended may be another file's on the next: there only the descriptor is closed.
        if getattr(self, "_machine", None) is not None and not _current.refers(self._machine):
            self._handle = None
        try:
            self.close()
        except Exception:
            print("Failed to deregister hipFile.FileHandle at destruction time.", file=stderr)

    def read(self, buffer: Buffer, size: int, file_offset: int, buffer_offset: int) -> int:
        """Read from the file into device memory, and wait for it.

        Parameters
        ----------
        buffer : Buffer
            Destination; it need not be registered.
        size : int
            Bytes.
        file_offset, buffer_offset : int
            First byte in the file and in the buffer.

        Returns
        -------
        int
            Bytes read: fewer than `size` at the end of the file.

        Raises
        ------
        RuntimeError
            The file is not open.
        OSError
            The system refused; also EINVAL while the driver is closed.
        HipFileException
            The library or HIP refused.
        """
        if self._handle is None:
            raise RuntimeError("The FileHandle is not open.")
        _current.check_owner(self._machine, f"the FileHandle of {self._path!r}")
        return _count(*hipFileRead(self._handle, buffer.ptr, size, file_offset, buffer_offset))

    def write(self, buffer: Buffer, size: int, file_offset: int, buffer_offset: int) -> int:
        """Write device memory to the file, and wait for it. Arguments and errors as of `read`."""
        if self._handle is None:
            raise RuntimeError("The FileHandle is not open.")
        _current.check_owner(self._machine, f"the FileHandle of {self._path!r}")
        return _count(*hipFileWrite(self._handle, buffer.ptr, size, file_offset, buffer_offset))

    def read_async(self, buffer: Buffer, size: int, file_offset: int, buffer_offset: int, stream: int) -> AsyncIOHandle:
        """Queue a read on a stream.

        Parameters
        ----------
        buffer, size, file_offset, buffer_offset
            As of `read`.
        stream : int
            Handle of a HIP stream; registering it (`Stream`) is not required by AMD's library.

        Returns
        -------
        AsyncIOHandle
            Keep it until the stream is synchronised, then look at ``bytes_done``: a failure after the submission is
            told only there, as a negative number.

        Raises
        ------
        RuntimeError
            The file is not open.
        OSError, HipFileException
            The operation was refused.
        """
        if self._handle is None:
            raise RuntimeError("The FileHandle is not open.")
        _current.check_owner(self._machine, f"the FileHandle of {self._path!r}")
        io = AsyncIOHandle(size, file_offset, buffer_offset)
        _check_submit(*hipFileReadAsync(self._handle, buffer.ptr, io, stream))
        return io

    def write_async(
        self, buffer: Buffer, size: int, file_offset: int, buffer_offset: int, stream: int
    ) -> AsyncIOHandle:
        """Queue a write on a stream. Arguments, result and errors as of `read_async`."""
        if self._handle is None:
            raise RuntimeError("The FileHandle is not open.")
        _current.check_owner(self._machine, f"the FileHandle of {self._path!r}")
        io = AsyncIOHandle(size, file_offset, buffer_offset)
        _check_submit(*hipFileWriteAsync(self._handle, buffer.ptr, io, stream))
        return io


def _count(result: int, extra: int) -> int:
    if result == -1:
        raise OSError(extra, os.strerror(extra))
    if result < -1:
        raise HipFileException(-result, extra)
    return result


def _check_submit(err: int, extra: int) -> None:
    if err == -1:
        raise OSError(extra, os.strerror(extra))
    if err != 0:
        raise HipFileException(err, extra)


class Stream:
    """A HIP stream and its registration with hipFile.

    Parameters
    ----------
    stream : int
        Handle of the stream, such as ``torch.cuda.Stream().cuda_stream``.
    flags : int
        Which slots the caller promises not to change after the submission. [stream.flags.bits]
    """

    def __init__(self, stream: int, flags: int = 0) -> None:
        self._stream = int(stream)
        self._flags = int(flags)
        self._registered = False

    @property
    def handle(self) -> int:
        """Handle of the stream."""
        return self._stream

    @property
    def registered(self) -> bool:
        """Whether this object registered it."""
        return self._registered

    def register(self) -> None:
        """Register the stream, unless this object has done so.

        Raises
        ------
        HipFileException
            5022 (registered already, unknown flags), 5011 (HIP refused).
        """
        if self._registered:
            return
        err, extra = hipFileStreamRegister(self._stream, self._flags)
        if err != 0:
            raise HipFileException(err, extra)
        self._registered = True

    def deregister(self) -> None:
        """Deregister the stream, if this object registered it.

        Raises
        ------
        HipFileException
            5022: the library does not know it.
        """
        if not self._registered:
            return
        err, extra = hipFileStreamDeregister(self._stream)
        if err != 0:
            raise HipFileException(err, extra)
        self._registered = False

    def __enter__(self) -> Self:
        self.register()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.deregister()


def supports_async() -> bool:
    """Whether the library has the asynchronous calls. AMD's always has. [python.supports-async]"""
    return bool(_supports_async())
