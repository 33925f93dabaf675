"""The hipFile library of one machine: every public function of ``hipfile.h``.

The functions are C-like: codes are returned, never raised, and pointers are plain integers. Arguments wrap as their C
types do. What each decides is in the module that does the work; the comments name the clauses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hipfile_sim.driver import submit, sync
from hipfile_sim.driver.backends.fallback import Fallback
from hipfile_sim.driver.backends.fastpath import Fastpath
from hipfile_sim.driver.batch import GENERATIONS as BATCHES
from hipfile_sim.driver.batch import BatchEvent, BatchOp
from hipfile_sim.driver.buffers import U64, Refused
from hipfile_sim.driver.call import CALLS, Interpose, as_count, as_io, as_nothing, public, with_values
from hipfile_sim.driver.codes import (
    SUCCESS,
    FileDescr,
    HipFileStatus,
    IOResult,
    OpError,
    error_string,
    status,
)
from hipfile_sim.driver.monitor import Monitor
from hipfile_sim.driver.params import DriverProperties, Parameters
from hipfile_sim.driver.services import Services
from hipfile_sim.driver.state import DriverState
from hipfile_sim.driver.stats import Statistics, StatsL1, StatsL2, StatsL3

if TYPE_CHECKING:
    from hipfile_sim.driver.backends.base import Backend
    from hipfile_sim.driver.environment import Environment
    from hipfile_sim.driver.fileops import FileOps
    from hipfile_sim.driver.mounts import MountTable
    from hipfile_sim.driver.operations import AsyncOp
    from hipfile_sim.driver.profiles import Profile
    from hipfile_sim.hip.runtime import Runtime

BACKENDS: dict[str, type[Fallback | Fastpath]] = {"fallback": Fallback, "fastpath": Fastpath}
INT64 = 1 << 63


def signed(value: int) -> int:
    """`value` as a 64-bit ``hoff_t``.

    >>> signed(2**64 - 1), signed(5)
    (-1, 5)
    """
    return value if -INT64 <= value < INT64 else (value + INT64 & U64) - INT64


class Driver(Services):
    """The hipFile library on one emulated machine. Safe to call from any thread; no state outside this object.

    Parameters
    ----------
    runtime : Runtime
        The HIP runtime below.
    profile : Profile
        The release that this is.
    environment : Environment
        Its environment variables.
    files : FileOps
        How it reaches the operating system.
    mounts : MountTable
        What it learns about file systems.

    Attributes
    ----------
    interpose : callable or None
        ``interpose(name, args)`` is asked at each call; see `hipfile_sim.driver.call.Interpose`.
    on_publish : callable or None
        ``on_publish(op, value)`` may change the value that an asynchronous operation is about to publish; None drops
        it.

    Examples
    --------
    >>> from hipfile_sim.machine import Machine
    >>> with Machine() as machine:
    ...     machine.hipfile.hipFileDriverOpen().err.name, machine.hipfile.hipFileUseCount()
    ('hipFileSuccess', 1)
    """

    CALLS = CALLS

    def __init__(
        self, runtime: Runtime, profile: Profile, environment: Environment, files: FileOps, mounts: MountTable
    ) -> None:
        super().__init__(runtime, profile, environment, files)
        self.interpose: Interpose | None = None
        self.on_publish: Callable[[AsyncOp, int], int | None] | None = None
        self.stats = Statistics(self)
        self.monitor = Monitor(self)
        self.backends: tuple[Backend, ...] = tuple(BACKENDS[name](self) for name in profile.backends)
        self.fallback = next(backend for backend in self.backends if isinstance(backend, Fallback))
        self.state = DriverState(self, mounts)
        self.parameters = Parameters(profile.parameters == "implemented")
        self.batches = BATCHES[profile.batch](self)

    # -- life cycle --------------------------------------------------------------------------------------------------

    @public()
    def hipFileDriverOpen(self) -> HipFileStatus:
        """Open the driver once more. [life.open.counts]"""
        return self.state.open()

    @public()
    def hipFileDriverClose(self) -> HipFileStatus:
        """Close it once; 5001 if it is not open. [life.close.counts]"""
        self.looked_at()
        drain = self.profile.last_close == "drain"
        if drain and self.state.use_count == 1:  # [life.close.in-flight]
            self.wait_for(list(self.monitor.active), "hipFileDriverClose")
            self.looked_at()
        result = self.state.close()
        if result is SUCCESS and self.state.use_count == 0:
            if drain:  # [life.close.streams-survive]
                self.state.streams.entries.clear()
            self.batches.driver_closed()
        return result

    @public(as_count, pure=True)
    def hipFileUseCount(self) -> int:
        """Opens less closes. [life.use-count.closed]"""
        return self.state.use_count

    @public(with_values(0, 0, 0), pure=True)
    def hipFileGetVersion(self) -> tuple[HipFileStatus, int, int, int]:
        """Status, major, minor, patch. [life.version]"""
        return (SUCCESS, *self.profile.version)

    @public(lambda status: error_string(status.err), pure=True)
    def hipFileGetOpErrorString(self, code: int) -> str:
        """Text of a code, or the answer for unknown ones. [error.string.unknown]"""
        return error_string(code)

    # -- files -------------------------------------------------------------------------------------------------------

    @public(with_values(0))
    def hipFileHandleRegister(self, descr: FileDescr | None) -> tuple[HipFileStatus, int]:
        """Register an open file; status and handle (0 on failure). [file.register.order]"""
        result = self.state.files.register(descr, self.state.implicit_init)
        if result[0].err == OpError.hipFileSuccess:
            self.stats.file_registered()
        return result

    @public(as_nothing)
    def hipFileHandleDeregister(self, handle: int) -> None:
        """Deregister; silently nothing for an unknown handle, and for one in use. [file.deregister.silent]"""
        self.looked_at()
        with self.state.lock:
            self.state.files.deregister(handle & U64)

    # -- buffers -----------------------------------------------------------------------------------------------------

    @public()
    def hipFileBufRegister(self, pointer: int, length: int, flags: int = 0) -> HipFileStatus:
        """Register `length` bytes of device memory. The driver is open afterwards even on failure. [life.init.buffer]

        Returns
        -------
        HipFileStatus
            5023 for a base that is registered; 5022 for NULL and for addresses unknown to HIP; 5013 for other memory
            than device memory; 5014 past the end of the allocation; 5011 with the code of HIP.
        """
        self.state.implicit_init()
        try:
            self.state.buffers.register(pointer & U64, length & U64, flags)
        except Refused as refused:
            return refused.status
        self.stats.buffer_registered()
        return SUCCESS

    @public()
    def hipFileBufDeregister(self, pointer: int) -> HipFileStatus:
        """Forget a registered base: 5024 if unknown, 5006 with a closed driver, 5030 in use. [buffer.deregister.ok]"""
        self.looked_at()
        state = self.state
        with state.lock:
            if state.use_count == 0:  # [buffer.deregister.closed]
                return status(self.profile.closed_buf_deregister)
            buffer = state.buffers.entries.get(pointer & U64)
            if buffer is None:  # [buffer.deregister.unknown]
                return status(OpError.hipFileMemoryNotRegistered)
            if self.profile.buffer_in_use == "refuse" and buffer.users:  # [buffer.deregister.in-use]
                return status(OpError.hipFileInternalError)
            del state.buffers.entries[pointer & U64]
        if buffer.users:
            self.wait_for(list(buffer.users), "hipFileBufDeregister")
        return SUCCESS

    # -- input and output --------------------------------------------------------------------------------------------

    @public(as_io)
    def hipFileRead(self, handle: int, pointer: int, size: int, file_offset: int, buffer_offset: int) -> IOResult:
        """Read `size` bytes at `file_offset` of the file to `buffer_offset` of the buffer. [sync.read]

        Returns
        -------
        IOResult
            Bytes, short at the end of the file; or -1 with errno, a negated hipFile code, or a negated HIP code.
        """
        return sync.transfer(
            self, False, handle & U64, pointer & U64, size & U64, signed(file_offset), signed(buffer_offset)
        )

    @public(as_io)
    def hipFileWrite(self, handle: int, pointer: int, size: int, file_offset: int, buffer_offset: int) -> IOResult:
        """Write `size` bytes from the buffer to the file, and to the disk. As `hipFileRead`. [sync.write.count]"""
        return sync.transfer(
            self, True, handle & U64, pointer & U64, size & U64, signed(file_offset), signed(buffer_offset)
        )

    @public()
    def hipFileReadAsync(
        self,
        handle: int,
        pointer: int,
        size_p: int,
        file_offset_p: int,
        buffer_offset_p: int,
        bytes_read_p: int,
        stream: int,
    ) -> HipFileStatus:
        """Queue a read on `stream`. The four slots are addresses of 8 bytes that outlive the operation. [submit.read]

        Returns
        -------
        HipFileStatus
            5022 for a closed driver, a null pointer, a bad range or another device's buffer; 5027 for an unknown file;
            5030 for a pointer that is not device memory; 5011 with the code of HIP.
        """
        return submit.submit(self, False, handle, pointer, size_p, file_offset_p, buffer_offset_p, bytes_read_p, stream)

    @public()
    def hipFileWriteAsync(
        self,
        handle: int,
        pointer: int,
        size_p: int,
        file_offset_p: int,
        buffer_offset_p: int,
        bytes_written_p: int,
        stream: int,
    ) -> HipFileStatus:
        """Queue a write on `stream`; nothing is synchronised to disk. As `hipFileReadAsync`. [submit.write]"""
        return submit.submit(
            self, True, handle, pointer, size_p, file_offset_p, buffer_offset_p, bytes_written_p, stream
        )

    # -- streams -----------------------------------------------------------------------------------------------------

    @public()
    def hipFileStreamRegister(self, stream: int, flags: int = 0) -> HipFileStatus:
        """Register a stream and what the caller promises of its slots. Opens no driver. [stream.register.order]

        Returns
        -------
        HipFileStatus
            5022 for a stream that is registered and for unknown flags; 5011 with the code of HIP.
        """
        try:
            self.state.streams.register(stream & U64, flags)
        except Refused as refused:
            return refused.status
        return SUCCESS

    @public()
    def hipFileStreamDeregister(self, stream: int) -> HipFileStatus:
        """Forget a stream, in use or not; 5022 if it is not registered. [stream.deregister.ok]"""
        self.looked_at()
        found = self.state.streams.entries.get(stream & U64)
        try:
            self.state.streams.deregister(stream & U64)
        except Refused as refused:
            return refused.status
        if found is not None and self.profile.stream_in_use == "wait":  # [stream.deregister.in-flight]
            self.wait_for(list(found.users), "hipFileStreamDeregister")
        return SUCCESS

    # -- batches -----------------------------------------------------------------------------------------------------

    @public(with_values(0))
    def hipFileBatchIOSetUp(self, capacity: int) -> tuple[HipFileStatus, int]:
        """A batch of at most `capacity` operations, 1 to 128; status and handle. [batch.setup.capacity]"""
        return self.batches.set_up(capacity)

    @public()
    def hipFileBatchIOSubmit(self, batch: int, ops: Sequence[BatchOp] | None, flags: int = 0) -> HipFileStatus:
        """Submit all of `ops` or none. `flags` are ignored. [batch.submit.all-or-nothing]"""
        return self.batches.submit(batch, ops)

    @public(with_values(()))
    def hipFileBatchIOGetStatus(
        self, batch: int, min_nr: int, max_nr: int, timeout: tuple[int, int] | None = None
    ) -> tuple[HipFileStatus, Sequence[BatchEvent]]:
        """Collect up to `max_nr` events; wait for `min_nr`; `timeout`: (s, ns), None for ever. [batch.status.waits]"""
        return self.batches.get_status(batch, min_nr, max_nr, timeout)

    @public()
    def hipFileBatchIOCancel(self, batch: int) -> HipFileStatus:
        """Cancel what has not begun. [batch.cancel]"""
        return self.batches.cancel(batch)

    @public(as_nothing)
    def hipFileBatchIODestroy(self, batch: int) -> None:
        """Destroy a batch; unknown handles are ignored. [batch.destroy]"""
        self.batches.destroy(batch)

    # -- properties and parameters -----------------------------------------------------------------------------------

    @public(with_values(None))
    def hipFileDriverGetProperties(self) -> tuple[HipFileStatus, DriverProperties | None]:
        """Status and properties. [param.properties.get]"""
        return self.parameters.get_properties()

    @public()
    def hipFileDriverSetPollMode(self, poll: bool, poll_threshold_size: int) -> HipFileStatus:
        """Threshold in KiB. [param.properties.set]"""
        return self.parameters.set_property("poll_thresh_size", poll_threshold_size)

    @public()
    def hipFileDriverSetMaxDirectIOSize(self, max_direct_io_size: int) -> HipFileStatus:
        """KiB. [param.properties.set]"""
        return self.parameters.set_property("max_direct_io_size", max_direct_io_size)

    @public()
    def hipFileDriverSetMaxCacheSize(self, max_cache_size: int) -> HipFileStatus:
        """KiB. [param.properties.set]"""
        return self.parameters.set_property("max_device_cache_size", max_cache_size)

    @public()
    def hipFileDriverSetMaxPinnedMemSize(self, max_pinned_mem_size: int) -> HipFileStatus:
        """KiB. [param.properties.set]"""
        return self.parameters.set_property("max_device_pinned_mem_size", max_pinned_mem_size)

    @public(with_values(None))
    def hipFileGetParameterSizeT(self, parameter: int) -> tuple[HipFileStatus, int | None]:
        """[param.get]"""
        return self.parameters.get("size_t", parameter)

    @public(with_values(None))
    def hipFileGetParameterBool(self, parameter: int) -> tuple[HipFileStatus, bool | None]:
        """[param.get]"""
        return self.parameters.get("bool", parameter)

    @public(with_values(None))
    def hipFileGetParameterString(self, parameter: int, length: int) -> tuple[HipFileStatus, str | None]:
        """`length` is the room for the text in bytes, with the one that ends it. [param.get]"""
        return self.parameters.get_text(parameter, length)

    @public()
    def hipFileSetParameterSizeT(self, parameter: int, value: int) -> HipFileStatus:
        """[param.set]"""
        return self.parameters.set("size_t", parameter, value, self.state.use_count > 0)

    @public()
    def hipFileSetParameterBool(self, parameter: int, value: bool) -> HipFileStatus:
        """[param.set]"""
        return self.parameters.set("bool", parameter, value, self.state.use_count > 0)

    @public()
    def hipFileSetParameterString(self, parameter: int, value: str) -> HipFileStatus:
        """[param.set]"""
        return self.parameters.set("string", parameter, value, self.state.use_count > 0)

    # -- statistics --------------------------------------------------------------------------------------------------

    @public(with_values(None))
    def hipFileGetStatsL1(self) -> tuple[HipFileStatus, StatsL1 | None]:
        """Totals; 5030 where the release has no statistics functions. [stats.l1.bytes]"""
        return self._stats(self.stats.l1)

    @public(with_values(None))
    def hipFileGetStatsL2(self) -> tuple[HipFileStatus, StatsL2 | None]:
        """Totals and histograms. [stats.l2.histograms-zero]"""
        return self._stats(self.stats.l2)

    @public(with_values(None))
    def hipFileGetStatsL3(self) -> tuple[HipFileStatus, StatsL3 | None]:
        """Each device. [stats.l3.by-device]"""
        return self._stats(self.stats.l3)

    def _stats(self, make: Callable[[], Any]) -> tuple[HipFileStatus, Any]:
        if not self.profile.stats_api:  # [stats.api] the symbol is absent there; this is the nearest answer
            return status(OpError.hipFileInternalError), None
        self.looked_at()
        return SUCCESS, make()
