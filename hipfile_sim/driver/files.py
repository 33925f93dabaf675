"""The file map: which descriptors are registered, with the two descriptors that the real library uses."""

from __future__ import annotations

import errno
import posix
import threading
from collections.abc import Callable, Iterator

from hipfile_sim.driver.codes import FileDescr, HandleType, HipFileStatus, OpError, status
from hipfile_sim.driver.fileops import FileInfo, FileOps
from hipfile_sim.driver.mounts import Mount, MountTable
from hipfile_sim.driver.profiles.base import Profile

__all__ = ["DEFAULT_DIO_ALIGN", "FileMap", "RegisteredFile"]

DEFAULT_DIO_ALIGN = 4096
"""Bytes, memory and offset, where the kernel does not report alignments. [file.dio.default]"""


class RegisteredFile:
    """A registered file. An operation holds a reference: `acquire` when it is built, `release` when it is done.

    Attributes
    ----------
    handle : int
        What the caller got: an address that is never readable and never used again.
    client_fd : int
        The caller's descriptor number; never closed here.
    buffered_fd, unbuffered_fd : int
        Descriptors for I/O through the page cache and for direct I/O; `unbuffered_fd` is -1 if O_DIRECT was refused.
        One of them is `client_fd`, the other (`owned_fd`, or -1) is closed with the last reference.
    flags : int
        Status flags of the caller's descriptor.
    info : FileInfo
    mount : Mount or None
        None: the file system was not found; it counts as neither ext4 nor xfs.
    dio_mem_align, dio_offset_align : int
        Bytes; both 0 without an unbuffered descriptor. [file.dio.refused]
    dio_read_offset_align : int
        Bytes for direct reads, where the file system asks less of them. No release looks at it. [file.dio.reads]
    """

    __slots__ = (
        "_files",
        "_lock",
        "_mapped",
        "_refs",
        "buffered_fd",
        "client_fd",
        "dio_mem_align",
        "dio_offset_align",
        "dio_read_offset_align",
        "flags",
        "handle",
        "info",
        "mount",
        "owned_fd",
        "unbuffered_fd",
    )

    def __init__(self, files: FileOps, mounts: MountTable, client_fd: int) -> None:
        """Inspect `client_fd` and open the second descriptor. [file.register.order]

        Raises
        ------
        OSError
            Anything failed, except O_DIRECT refused with EINVAL.
        """
        self._files = files
        self._lock = threading.Lock()
        self._refs = 0
        self._mapped = False
        self.handle = 0
        self.client_fd = client_fd
        self.info: FileInfo = files.inspect(client_fd)
        self.flags = files.getfl(client_fd)
        path = files.path(client_fd) if mounts.needs_path else None
        self.mount: Mount | None = mounts.lookup(self.info, path)
        self.buffered_fd = self.unbuffered_fd = client_fd
        try:
            self.owned_fd = self._open_second()
        except OSError as error:
            raise SecondOpenFailed(self.flags, error) from error
        self._set_alignment()

    def _open_second(self) -> int:
        direct = posix.O_DIRECT
        if self.flags & direct:  # [file.second.direct]
            self.buffered_fd = self._files.reopen(self.client_fd, (self.flags | posix.O_CLOEXEC) & ~direct)
            return self.buffered_fd
        try:  # [file.second.buffered]
            self.unbuffered_fd = self._open_direct(self.flags | posix.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self.unbuffered_fd = -1
        return self.unbuffered_fd

    def _open_direct(self, flags: int) -> int:
        policy = "host" if self.mount is None else self.mount.o_direct
        if self.mount is not None and self.mount.o_direct_errno:
            raise OSError(self.mount.o_direct_errno, f"O_DIRECT on the {self.mount.type} fixture: {policy}")
        try:
            return self._files.reopen(self.client_fd, flags | posix.O_DIRECT)
        except OSError as error:
            if policy != "ok" or error.errno != errno.EINVAL:
                raise
        # The fixture has direct I/O, the file system of this machine has not: the bytes are the same without it.
        return self._files.reopen(self.client_fd, flags)

    def _set_alignment(self) -> None:
        if self.unbuffered_fd < 0:
            self.dio_mem_align = self.dio_offset_align = self.dio_read_offset_align = 0
            return
        memory, offset, read = self.info.dio_mem_align, self.info.dio_offset_align, self.info.dio_read_offset_align
        if self.mount is not None:
            if self.mount.o_direct == "ok":  # a fixture: what this machine's file system reports says nothing about it
                memory = offset = read = None
            memory = memory if self.mount.dio_mem_align is None else self.mount.dio_mem_align
            offset = offset if self.mount.dio_offset_align is None else self.mount.dio_offset_align
            read = read if self.mount.dio_read_offset_align is None else self.mount.dio_read_offset_align
        self.dio_mem_align = DEFAULT_DIO_ALIGN if memory is None else memory
        self.dio_offset_align = DEFAULT_DIO_ALIGN if offset is None else offset
        self.dio_read_offset_align = self.dio_offset_align if read is None else read

    @property
    def is_regular(self) -> bool:
        """A regular file."""
        return self.info.is_regular

    @property
    def is_block_device(self) -> bool:
        """A block device."""
        return self.info.is_block_device

    @property
    def in_use(self) -> bool:
        """An operation holds a reference."""
        return self._refs > 0

    @property
    def registered(self) -> bool:
        """Still in the map."""
        return self._mapped

    @property
    def recycled(self) -> bool:
        """The caller's number now means another file, or none. The library does not notice. [file.client-close]"""
        try:
            return self._files.identity(self.client_fd) != (self.info.dev, self.info.ino)
        except OSError:
            return True

    def acquire(self) -> None:
        """Hold the file for an operation."""
        with self._lock:
            self._refs += 1

    def release(self) -> None:
        """Give one reference back; the last one closes the owned descriptor if the file has left the map."""
        with self._lock:
            self._refs -= 1
            assert self._refs >= 0, f"file handle {self.handle:#x} released more often than acquired"
            self._close_if_last()

    def _enter(self, handle: int) -> None:
        self.handle = handle
        self._mapped = True

    def _leave(self, *, even_in_use: bool) -> bool:
        """Leave the map unless an operation holds a reference and `even_in_use` is false."""
        with self._lock:
            if self._refs and not even_in_use:
                return False
            self._mapped = False
            self._close_if_last()
            return True

    def _close_if_last(self) -> None:
        if self._refs or self._mapped or self.owned_fd < 0:
            return
        fd, self.owned_fd = self.owned_fd, -1
        try:
            self._files.close(fd)
        except OSError:
            pass  # the number was closed behind our back; close() has nobody to report it to

    def __del__(self) -> None:
        """A machine that goes with files registered, as a process would, leaves no descriptors behind."""
        if getattr(self, "owned_fd", -1) >= 0:
            self._refs = 0
            self._mapped = False
            self._close_if_last()

    def __repr__(self) -> str:
        return f"<RegisteredFile {self.handle:#x} fd={self.client_fd} refs={self._refs}>"


class SecondOpenFailed(OSError):
    """The second open of a file that is to be registered failed; `flags` are those of the caller's descriptor."""

    def __init__(self, flags: int, error: OSError) -> None:
        super().__init__(error.errno, error.strerror)
        self.flags = flags


_CULPRITS = (
    (
        posix.O_TMPFILE,
        "O_TMPFILE",
        "a file that was made without a name (tempfile.TemporaryFile) cannot be opened again with that flag; give the "
        "file a name: tempfile.mkstemp(), then os.open(path, os.O_RDWR) without further flags",
    ),
    (
        posix.O_NOFOLLOW,
        "O_NOFOLLOW",
        "the library reopens /proc/self/fd/N, which is a link (tempfile.NamedTemporaryFile and mkstemp set this flag); "
        "open the file once more by its name: os.open(file.name, os.O_RDWR)",
    ),
    (
        posix.O_DIRECTORY,
        "O_DIRECTORY",
        "a file cannot be opened again with that flag; open it without",
    ),
)
"""Status flags that survive in F_GETFL and make the second open fail, and what to do about each."""


def _why(fd: int, error: OSError) -> str:
    """What made a registration fail, for people: the code that the caller gets says nothing of it."""
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    if not isinstance(error, SecondOpenFailed):
        return f"descriptor {fd} cannot be inspected: {name}, {error.strerror}"
    flags = error.flags
    said = f"the second open of descriptor {fd} failed with {name} ({error.strerror}); its flags are {flags:#o}"
    for bits, flag, remedy in _CULPRITS:
        if flags & bits == bits and error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENOENT):
            return f"{said}, with {flag}: {remedy}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{said}: the process may not open this file again; check its permissions and its mount"
    return said


class FileMap:
    """Registered files by handle and by the caller's descriptor.

    Parameters
    ----------
    profile, files, mounts
        The release, the operating system, the file systems.
    new_handle : callable
        ``runtime.new_handle``; called with ``"file"``, gives an address that is never readable.
    remark : callable
        Told why the operating system made a registration fail, and of which descriptor.

    Attributes
    ----------
    why : str
        Why the last registration failed, if the operating system refused; else empty.
    """

    __slots__ = ("_by_fd", "_by_handle", "_lock", "files", "mounts", "new_handle", "profile", "remark", "why")

    def __init__(
        self,
        profile: Profile,
        files: FileOps,
        mounts: MountTable,
        new_handle: Callable[[str], int],
        remark: Callable[[str, int], None] = lambda text, fd: None,
    ) -> None:
        self.profile = profile
        self.files = files
        self.mounts = mounts
        self.new_handle = new_handle
        self.remark = remark
        self.why = ""
        self._by_handle: dict[int, RegisteredFile] = {}
        self._by_fd: dict[int, RegisteredFile] = {}
        self._lock = threading.Lock()

    def register(self, descr: FileDescr | None, implicit_init: Callable[[], None]) -> tuple[HipFileStatus, int]:
        """``hipFileHandleRegister`` without its out-pointer. [file.register.order]

        Parameters
        ----------
        descr : FileDescr or None
            None stands for a null descriptor (or a null out-pointer).
        implicit_init : callable
            Opens the driver if it is closed; called where the profile says.

        Returns
        -------
        status : HipFileStatus
            InvalidValue (null), IONotSupported (not a descriptor), InternalError (inspection or the second open
            failed), HandleAlreadyRegistered (this number is registered), or success.
        handle : int
            0 unless success.
        """
        if self.profile.register_init == "first":
            implicit_init()
        if descr is None:
            return status(OpError.hipFileInvalidValue), 0  # [file.register.null]
        if descr.type != HandleType.hipFileHandleTypeOpaqueFD:
            return status(OpError.hipFileIONotSupported), 0  # [file.register.type]
        self.why = ""
        try:
            refusal = self._turned_away(descr.fd)
            if refusal is not None:
                return status(refusal), 0
            file = RegisteredFile(self.files, self.mounts, descr.fd)
        except OSError as error:  # [file.register.inspect] [error.funnel.emfile]
            self.why = _why(descr.fd, error)
            self.remark(self.why, descr.fd)
            full = error.errno in (errno.EMFILE, errno.ENFILE)
            return status(self.profile.emfile if full else self.profile.inspect_error), 0
        refusal = self.profile.unknown_mount
        if file.mount is not None:  # [file.register.mount-refused]
            refusal = self.profile.refused_mounts.get(file.mount.type)
        if self.profile.register_init == "after-inspect":
            implicit_init()  # [life.init.handle-register]
        if refusal is None:
            with self._lock:
                if descr.fd not in self._by_fd:
                    file._enter(self.new_handle("file"))
                    self._by_handle[file.handle] = self._by_fd[descr.fd] = file
                    return status(OpError.hipFileSuccess), file.handle
            refusal = OpError.hipFileHandleAlreadyRegistered  # [file.register.duplicate]
        file._leave(even_in_use=True)  # closes the second descriptor again
        return status(refusal), 0

    def _turned_away(self, fd: int) -> OpError | None:
        """What the profile refuses for the kind of the descriptor alone, before anything is opened."""
        profile = self.profile
        if profile.irregular is not None:  # observed: directory, character device, pipe
            info = self.files.inspect(fd)
            if not (info.is_regular or info.is_block_device):
                return profile.irregular
        if profile.refused_flags and self.files.getfl(fd) & profile.refused_flags:
            return OpError.hipFileInvalidFileOpenFlag  # [file.access.append] [file.access.tmpfile]
        return None

    def lookup(self, handle: int) -> RegisteredFile | None:
        """The file of a handle, or None; any int is fine, nothing is dereferenced."""
        return self._by_handle.get(handle)

    def hold(self, handle: int) -> RegisteredFile | None:
        """`lookup` and `acquire` in one step, so that no deregistration comes between."""
        with self._lock:
            file = self._by_handle.get(handle)
            if file is not None:
                file.acquire()
            return file

    def deregister(self, handle: int) -> bool:
        """``hipFileHandleDeregister``. False: nothing happened, silently. [file.deregister.silent]

        A file in use stays registered [file.deregister.in-use], or leaves at once where the profile detaches it.
        """
        with self._lock:
            file = self._by_handle.get(handle)
            if file is None or not file._leave(even_in_use=self.profile.file_in_use == "detach"):
                return False
            del self._by_handle[handle], self._by_fd[file.client_fd]
            return True

    def clear(self) -> None:
        """Forget every file, in use or not; those in flight stay alive until released. [life.close.clears]"""
        with self._lock:
            gone = list(self._by_handle.values())
            self._by_handle.clear()
            self._by_fd.clear()
        for file in gone:
            file._leave(even_in_use=True)

    def __len__(self) -> int:
        return len(self._by_handle)

    def __iter__(self) -> Iterator[RegisteredFile]:
        return iter(tuple(self._by_handle.values()))
