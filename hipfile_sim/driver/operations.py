"""One asynchronous operation and the commands that it becomes.

An operation's commands run in the order of its stream, so they share the operation object without a lock. User
pointers are read and written only through the runtime's safe host memory. Source of the rules: code of the releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from hipfile_sim.driver.buffers import U64, Buffer, in_range
from hipfile_sim.driver.codes import MAX_RW_COUNT, OpError
from hipfile_sim.driver.services import SLOT
from hipfile_sim.engine.command import MEM, Access, Command

if TYPE_CHECKING:
    from hipfile_sim.driver.driver import Driver
    from hipfile_sim.driver.files import RegisteredFile
    from hipfile_sim.driver.streams import Bounce, IOStream
    from hipfile_sim.engine.clock import CostModel
    from hipfile_sim.engine.command import Marker

INVALID = -int(OpError.hipFileInvalidValue)
INTERNAL = -int(OpError.hipFileInternalError)


class AsyncOp:
    """An asynchronous read or write between submit and completion.

    Attributes
    ----------
    write : bool
        Direction: from device memory to the file.
    size, file_offset, buffer_offset : int
        Bytes, as captured at submit or bound later.
    size_p, file_offset_p, buffer_offset_p : int
        Addresses of the slots that are read late; 0 where the value was captured. [bind.captured]
    bytes_p : int
        Address of the result slot, always written late. [result.deferred]
    limit : int
        Size at submit, bytes; a bound size above it is refused. [bind.grown]
    done : int
        Bytes of the chunks that have been advanced over.
    chunk : int
        Bytes of the chunk under way.
    value : int
        What will be published. Negative: every later step does nothing. [result.sticky]
    bounce : Bounce or None
        Pinned memory that the bytes pass through.
    pinned : tuple of int
        Pinned allocations that belong to this operation alone.
    marker : Marker or None
        Complete once the operation is.
    """

    __slots__ = (
        "bounce",
        "buffer",
        "buffer_offset",
        "buffer_offset_p",
        "bytes_p",
        "chunk",
        "done",
        "driver",
        "file",
        "file_offset",
        "file_offset_p",
        "flags",
        "limit",
        "marker",
        "pinned",
        "pinned_bytes",
        "size",
        "size_p",
        "stream",
        "value",
        "write",
    )

    driver: Driver
    file: RegisteredFile
    buffer: Buffer
    stream: IOStream
    bounce: Bounce | None
    pinned: tuple[int, ...]
    pinned_bytes: int
    write: bool
    flags: int
    size: int
    file_offset: int
    buffer_offset: int
    size_p: int
    file_offset_p: int
    buffer_offset_p: int
    bytes_p: int
    limit: int
    done: int
    chunk: int
    value: int
    marker: Marker | None

    def __repr__(self) -> str:
        return f"<{'write' if self.write else 'read'} of {self.size} bytes at {self.file_offset}, value {self.value}>"

    @property
    def late_slots(self) -> tuple[int, ...]:
        """Addresses that are still to be read when the operation runs."""
        return tuple(p for p in (self.size_p, self.file_offset_p, self.buffer_offset_p) if p)

    def fetch(self) -> tuple[int, int, int] | None:
        """Size, file offset and buffer offset as they are now; None if a slot is not memory any more."""
        hostmem = self.driver.hostmem
        if self.size_p and self.file_offset_p and self.buffer_offset_p:
            words = hostmem.read3(self.size_p, self.file_offset_p, self.buffer_offset_p)
            return None if words is None else (words[0] & U64, words[1], words[2])
        size = hostmem.read_u64(self.size_p) if self.size_p else self.size
        file_offset = hostmem.read_i64(self.file_offset_p) if self.file_offset_p else self.file_offset
        buffer_offset = hostmem.read_i64(self.buffer_offset_p) if self.buffer_offset_p else self.buffer_offset
        if size is None or file_offset is None or buffer_offset is None:
            return None
        return size, file_offset, buffer_offset

    def chunk_size(self) -> int:
        """Bytes of the chunk that begins at `done`: what is left, up to the bounce buffer. 0 when all is done."""
        left = self.size - self.done
        bounce = self.bounce
        assert bounce is not None
        return left if left < bounce.size else bounce.size

    def lost_slot(self, what: str) -> None:
        """Tell the observers that a slot is gone. Real hardware would fault or read another object's bytes."""
        self.driver.note(
            "submit.dangling-slot",
            f"{what} of {self!r} is not memory of this process any more; real hardware would crash or touch "
            "something else. Keep the slots alive until the stream has been synchronised",
            severity="error",
            operation=self,
        )


class OpCommand(Command):
    """A command of one operation."""

    __slots__ = ("op",)
    library: ClassVar[bool] = True

    def __init__(self, op: AsyncOp) -> None:
        self.op = op
        self.cost_ns = None
        self.label = None
        self.site = None


class Bind(OpCommand):
    """Reads the slots that were not fixed, when the stream reaches the operation. [bind.late]"""

    __slots__ = ()
    kind: ClassVar[str] = "bind"
    on_host_thread: ClassVar[bool] = True

    def accesses(self) -> Sequence[Access]:
        return [Access(MEM, pointer, SLOT, False) for pointer in self.op.late_slots]

    def run(self) -> None:
        op = self.op
        if op.value < 0:
            return
        fetched = op.fetch()
        if fetched is None:
            op.lost_slot("a size or offset slot")
            op.value = INVALID
            return
        size, file_offset, buffer_offset = fetched
        if size > MAX_RW_COUNT:  # [bind.clamp]
            size = MAX_RW_COUNT
        # [bind.grown] [bind.range]
        if size > op.limit or not in_range(op.buffer.length, size, file_offset, buffer_offset):
            op.value = INVALID
            return
        op.size = size
        op.file_offset = file_offset
        op.buffer_offset = buffer_offset


class CpuCopy(OpCommand):
    """Moves one chunk between the file and the bounce buffer, on the host. [chunk.cpu-copy]"""

    __slots__ = ("count", "start", "wanted")
    kind: ClassVar[str] = "cpu_copy"
    on_host_thread: ClassVar[bool] = True

    def __init__(self, op: AsyncOp) -> None:
        self.op = op
        self.count = -1
        self.wanted = 0
        self.cost_ns = None
        self.label = None
        self.site = None

    def _span(self) -> tuple[int, int]:
        """File offset and length of this chunk: as touched once it ran, else as it would be now."""
        if self.count >= 0:
            return self.start, self.count
        op = self.op
        if op.value < 0:
            return op.file_offset, 0
        return op.file_offset + op.done, op.chunk if op.write else op.chunk_size()

    def accesses(self) -> Sequence[Access]:
        op = self.op
        start, count = self._span()
        looked = max(count, self.wanted)  # a short read has seen where the file ends
        if looked <= 0:
            return ()
        file = Access(op.driver.file_space(op.file), start, looked, op.write)
        if count <= 0:
            return (file,)
        bounce = op.bounce
        assert bounce is not None
        return file, Access(MEM, bounce.pointer, count, not op.write)

    def cost(self, model: CostModel) -> int:
        return model.file(self._span()[1])

    def run(self) -> None:
        op = self.op
        start, want = self._span()
        self.start = start
        self.count = 0
        if op.value < 0:  # [result.sticky]
            return
        driver = op.driver
        file = op.file
        if driver.engine.observers:
            driver.check_descriptor(file)
        if not op.write:
            self.wanted = want
        count = 0
        if want > 0:
            fd = file.buffered_fd
            files = driver.files
            transfer = files.pwrite_from if op.write else files.pread_into
            bounce = op.bounce
            assert bounce is not None
            view = bounce.view
            while count < want:
                try:
                    moved = transfer(fd, view[count:want], start + count)
                except InterruptedError:  # [chunk.eintr]
                    continue
                except OSError as error:  # [result.io-error] the errno is lost
                    driver.hidden_errno(op, error)
                    self.count = count
                    op.value = driver.profile.async_error
                    return
                if moved == 0:  # [chunk.eof]
                    break
                count += moved
        self.count = count
        self._finish(count)

    def _finish(self, count: int) -> None:
        self.op.chunk = count


class CpuCopyAll(CpuCopy):
    """The only chunk of an operation that owns its bounce buffer: its count is the result. [chunk.per-op]"""

    __slots__ = ()

    def _finish(self, count: int) -> None:
        op = self.op
        op.chunk = count
        op.value = count
        assert op.bounce is not None
        if count == op.bounce.size < op.size:
            op.driver.note(
                "bind.fixed.clamp",
                f"a fixed size of {op.size} bytes is above {MAX_RW_COUNT}: this release would overrun the bounce "
                f"buffer; the model stops after {count} bytes. Split the operation",
                severity="error",
                operation=op,
            )


class MemcpyKernel(OpCommand):
    """Moves one chunk between the bounce buffer and device memory, on the device. [chunk.kernel]"""

    __slots__ = ("count", "start")
    kind: ClassVar[str] = "memcpy_kernel"

    def __init__(self, op: AsyncOp) -> None:
        self.op = op
        self.count = -1
        self.cost_ns = None
        self.label = None
        self.site = None

    def _span(self) -> tuple[int, int]:
        """Device address and length of this chunk: as touched once it ran, else as it would be now."""
        if self.count >= 0:
            return self.start, self.count
        op = self.op
        start = op.buffer.base + op.buffer_offset + op.done
        if op.value < 0 or op.bounce is None:
            return start, 0
        # [chunk.kernel-length] a write decides the chunk's length here, a read takes what was read
        return start, op.chunk_size() if op.write else op.chunk

    def accesses(self) -> Sequence[Access]:
        op = self.op
        start, count = self._span()
        if count <= 0:
            return ()
        bounce = op.bounce
        if bounce is None:
            return ()
        return Access(MEM, start, count, not op.write), Access(MEM, bounce.pointer, count, op.write)

    def cost(self, model: CostModel) -> int:
        return model.copy(self._span()[1])

    def run(self) -> None:
        op = self.op
        start, count = self._span()
        self.start = start
        self.count = 0
        if op.value < 0:  # [result.sticky]
            return
        bounce = op.bounce
        if bounce is None:  # [chunk.kernel-unbound]
            op.value = INVALID
            return
        if op.write:
            op.chunk = count
        if count <= 0:
            return
        to, origin = (bounce.pointer, start) if op.write else (start, bounce.pointer)
        if not op.driver.memory.copy(to, origin, count):
            op.value = INTERNAL
            op.driver.memory_fault(op, start, count)
            return
        self.count = count


class Advance(OpCommand):
    """Adds a finished chunk to the operation's total. [chunk.advance]"""

    __slots__ = ()
    kind: ClassVar[str] = "advance"
    on_host_thread: ClassVar[bool] = True

    def run(self) -> None:
        op = self.op
        if op.value >= 0:
            op.done += op.chunk
            op.value = op.done
            op.chunk = 0


class Cleanup(OpCommand):
    """Drops the operation's references and resources, and publishes its result. [result.publish]"""

    __slots__ = ()
    kind: ClassVar[str] = "cleanup"
    on_host_thread: ClassVar[bool] = True

    def accesses(self) -> Sequence[Access]:
        return (Access(MEM, self.op.bytes_p, SLOT, True),)

    def run(self) -> None:
        op = self.op
        driver = op.driver
        value = op.value if driver.monitor.complete(op) else INTERNAL  # [result.unknown-op]
        if driver.on_publish is not None:
            changed = driver.on_publish(op, value)
            if changed is None:
                return
            value = changed
        if not driver.hostmem.write_i64(op.bytes_p, value):
            op.lost_slot("the result slot")
