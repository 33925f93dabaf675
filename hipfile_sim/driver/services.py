"""What the driver's parts share: the machine below, notes to observers, pinned memory, waiting."""

from __future__ import annotations

from collections.abc import Iterable
from errno import errorcode
from typing import TYPE_CHECKING, Any

from hipfile_sim.engine.command import LIBRARY, MEM, Access, Command, Space
from hipfile_sim.hip.codes import HipError
from hipfile_sim.observe.observer import HostAccess, Note, Site, call_site, current_thread

if TYPE_CHECKING:
    from hipfile_sim.driver.environment import Environment
    from hipfile_sim.driver.fileops import FileOps
    from hipfile_sim.driver.files import RegisteredFile
    from hipfile_sim.driver.operations import AsyncOp
    from hipfile_sim.driver.profiles import Profile
    from hipfile_sim.driver.state import DriverState
    from hipfile_sim.hip.runtime import Runtime
    from hipfile_sim.hip.stream import Stream

OP_BYTES = 256
"""Pinned bytes that one fallback operation takes for itself (the real size is not known). [submit.alloc-op]"""

SLOT = 8
"""Bytes of each slot: ``size_t``, ``hoff_t`` and ``ssize_t`` alike."""


class Services:
    """Base of `Driver`: everything that is no public function.

    Attributes
    ----------
    runtime, engine, memory, hostmem
        The machine below.
    profile, environment : Profile, Environment
    on_lane : bool
        A command of a lane is on the synchronous path: what it touches is not of the host's doing.
    """

    state: DriverState
    on_lane = False

    def __init__(self, runtime: Runtime, profile: Profile, environment: Environment, files: FileOps) -> None:
        self.runtime = runtime
        self.engine = runtime.engine
        self.memory = runtime.memory
        self.hostmem = runtime.hostmem
        self.profile = profile
        self.environment = environment
        self._files = files

    @property
    def files(self) -> FileOps:
        """How the driver reaches the operating system. May be replaced at any time."""
        return self._files

    @files.setter
    def files(self, files: FileOps) -> None:
        self._files = files
        self.state.files.files = files

    # -- observers ---------------------------------------------------------------------------------------------------

    def note(self, id: str, message: str, *, severity: str = "note", **objects: Any) -> None:
        """Send a `Note` to the observers, if there are any."""
        observers = self.engine.observers
        if observers:
            note = Note(id, message, call_site(2), objects, severity)
            with self.engine.lock:
                for observer in observers:
                    observer.note(note)

    def slots_read(self, op: AsyncOp) -> None:
        """Tell the observers that the library looked at the three input slots during submit. [submit.reads-all]"""
        site = call_site(2)
        for pointer in (op.size_p, op.file_offset_p, op.buffer_offset_p):
            self._host_access(Access(MEM, pointer, SLOT, False), "slot read at submit", site)

    def slot_written(self, pointer: int) -> None:
        """Tell the observers that the library stored to the result slot during submit. [submit.zeroes-result]"""
        self._host_access(Access(MEM, pointer, SLOT, True), "bytes_done set at submit", call_site(2))

    def _host_access(self, access: Access, what: str, site: Site | None) -> None:
        record = HostAccess(access, current_thread(), site, what)
        with self.engine.lock:
            for observer in self.engine.observers:
                observer.host_access(record)

    # -- explorers ---------------------------------------------------------------------------------------------------

    def touched(self, *accesses: Access) -> None:
        """Tell an explorer what the library itself touches in a call of the host."""
        tracker = self.engine.tracker
        if tracker is not None and not self.on_lane:
            for access in accesses:
                tracker.touched(access)

    def slots_touched(self, inputs: Iterable[int], result: int, *, counted: bool) -> None:
        """Tell an explorer of the slots that a submission reads, and of the one that it may write.

        `counted`: a fault may act by how many operations are in flight.
        """
        self.touched(
            Access(LIBRARY, 0, 1, counted),
            *(Access(MEM, pointer, SLOT, False) for pointer in inputs if pointer),
            *((Access(MEM, result, SLOT, True),) if result else ()),
        )

    def looked_at(self) -> None:
        """Tell an explorer that a call of the host depends on what is in use."""
        self.touched(Access(LIBRARY, 0, 1, True))

    def check_descriptor(self, file: RegisteredFile) -> None:
        """Tell the observers when the caller's descriptor number means another file by now. [file.client-close]"""
        if self.engine.observers and file.recycled:
            self.note(
                "file.descriptor-recycled",
                f"descriptor {file.client_fd} was closed while {file!r} is registered and now means another file or "
                "none. Deregister the handle and wait for its operations before closing the descriptor",
                severity="error",
                file=file,
            )

    def hidden_errno(self, op: AsyncOp, error: OSError) -> None:
        """The caller of an asynchronous operation only sees a fixed code; the observers learn the errno."""
        self.note(
            "result.hidden-errno",
            f"{'write' if op.write else 'read'} of {op.size} bytes at {op.file_offset} failed with "
            f"{errorcode.get(error.errno or 0, error.errno)} ({error.strerror}); "
            f"the result slot will only say {self.profile.async_error}",
            severity="warning",
            operation=op,
            errno=error.errno,
        )

    def memory_fault(self, op: AsyncOp, pointer: int, length: int) -> None:
        """The device touched memory that is not there. Real hardware would abort the process."""
        self.note(
            "chunk.memory-fault",
            f"{op!r} touched {length} bytes of device memory at {pointer:#x} that are not allocated; real hardware "
            "would fault and end the process. Keep the memory until the operation is complete",
            severity="error",
            operation=op,
        )

    # -- commands ----------------------------------------------------------------------------------------------------

    def launch(self, stream: Stream, command: Command) -> HipError:
        """Queue one command as HIP does it: with the faults that were asked for, and not inside a host function."""
        runtime = self.runtime
        if runtime.interpose is not None:
            name = "hipLaunchHostFunc" if command.on_host_thread else "hipLaunchKernel"
            code = runtime.interpose(name, (stream.handle,))
            if code:
                return HipError(code)
        engine = self.engine
        if engine.in_host_function and (  # [order.host-function]
            runtime.settings.host_function_calls == "refuse" or engine.in_kernel
        ):
            return HipError.hipErrorNotPermitted
        return runtime.enqueue(stream, command)

    # -- files -------------------------------------------------------------------------------------------------------

    def file_space(self, file: RegisteredFile) -> Space:
        """The space of the bytes that the buffered descriptor leads to right now."""
        try:
            dev, ino = self._files.identity(file.buffered_fd)
        except OSError:
            dev, ino = file.info.dev, file.info.ino
        return ("file", dev, ino)

    # -- memory ------------------------------------------------------------------------------------------------------

    def pin_op(self, op: AsyncOp) -> HipError:
        """Charge the pinned memory of the operation object itself. [submit.alloc-op]

        The object is charged but not placed: nothing but the library ever looks at it.
        """
        runtime = self.runtime
        if runtime.interpose is not None:
            code = runtime.interpose("hipHostMalloc", (OP_BYTES, 0))
            if code:
                return HipError(code)
        memory = self.memory
        with self.engine.lock:
            used = memory.pinned_used + OP_BYTES
            if used > memory.settings.pinned_memory:
                return HipError.hipErrorOutOfMemory
            memory.pinned_used = used
            if used > memory.pinned_peak:
                memory.pinned_peak = used
        op.pinned_bytes = OP_BYTES
        return HipError.hipSuccess

    def unpin_op(self, op: AsyncOp) -> None:
        """Undo `pin_op`."""
        with self.engine.lock:
            self.memory.pinned_used -= op.pinned_bytes
        op.pinned_bytes = 0

    def release_pinned(self, pointer: int) -> None:
        """Free pinned memory of an operation that is done, without the device wait of ``hipHostFree``.

        The real library frees on a thread of its own, so no caller ever waits for it. [result.monitor]
        """
        with self.engine.lock:
            block = self.memory.find(pointer)
            if block is not None:
                self.memory.release(block)
                for observer in self.engine.observers:
                    observer.freed(block)

    def device_uuid(self, device: int) -> bytes:
        """16 bytes, or zeros where HIP does not say. [stats.l3.uuid]"""
        code, properties = self.runtime.hipGetDeviceProperties(device)
        return bytes(16) if code or properties is None else properties.uuid

    # -- operations --------------------------------------------------------------------------------------------------

    def wait_for(self, users: Iterable[object], what: str) -> None:
        """Wait until the asynchronous operations among `users` are complete."""
        markers = [marker for marker in (getattr(user, "marker", None) for user in users) if marker is not None]
        if markers:
            self.runtime.wait(markers, what)
