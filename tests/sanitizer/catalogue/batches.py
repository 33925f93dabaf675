"""Operations of batches: commands of a pool of the library, without slots and without a stream of the program."""

from __future__ import annotations

from catalogue.registry import right, wrong
from catalogue.world import World
from hipfile_sim.driver.tasks import BatchOp

READ, WRITE = 0, 1


def submit(w: World, opcode: int, file: int, buffer: int, *, offset: int = 0) -> int:
    """A batch of one operation, submitted: its handle."""
    batch: int = w.ok(w.hipfile.hipFileBatchIOSetUp(4))
    op = BatchOp(opcode=opcode, handle=file, buffer=buffer, file_offset=offset, size=4096)
    w.ok(w.hipfile.hipFileBatchIOSubmit(batch, [op]))
    return batch


def collect(w: World, batch: int) -> None:
    """Wait for the operation of a batch, and end the batch."""
    status, events = w.hipfile.hipFileBatchIOGetStatus(batch, 1, 4)
    assert not status.err
    assert [event.ret for event in events] == [4096]
    w.hipfile.hipFileBatchIODestroy(batch)


@wrong("race.read-write", twin="batch_stored_after_kernel")
def batch_stored_beside_kernel(w: World) -> None:
    file, block, stream = w.file(), w.buffer(), w.stream(register=False)
    w.kernel(stream, writes=[(block, 4096)], name="forward", slow=True)
    collect(w, submit(w, WRITE, file, block))
    w.sync(stream)


@right("batch_stored_beside_kernel", profile="0.5")
def batch_stored_after_kernel(w: World) -> None:
    file, block, stream = w.file(), w.buffer(), w.stream(register=False)
    w.kernel(stream, writes=[(block, 4096)], name="forward", slow=True)
    w.sync(stream)
    collect(w, submit(w, WRITE, file, block))
    w.kernel(stream, writes=[(block, 4096)], name="forward", slow=True)
    w.sync(stream)


@wrong("race.file", twin="batch_collected_before_the_file_is_read")
def file_read_beside_a_batch(w: World) -> None:
    file, source, target, stream = w.file(), w.buffer(), w.buffer(), w.stream()
    batch = submit(w, WRITE, file, source)
    w.read(file, target, w.slots(), stream)
    w.sync(stream)
    collect(w, batch)


@right("file_read_beside_a_batch", profile="0.5")
def batch_collected_before_the_file_is_read(w: World) -> None:
    file, source, target, stream = w.file(), w.buffer(), w.buffer(), w.stream()
    collect(w, submit(w, WRITE, file, source))
    w.read(file, target, w.slots(), stream)
    w.sync(stream)


@right("file_read_beside_a_batch", profile="0.5")
def batch_beside_other_bytes_of_the_file(w: World) -> None:
    file, source, target, stream = w.file(), w.buffer(), w.buffer(), w.stream()
    batch = submit(w, WRITE, file, source, offset=4096)
    w.read(file, target, w.slots(), stream)
    w.sync(stream)
    collect(w, batch)


@wrong("race.file", twin="batch_collected_before_the_file_is_read")
def file_read_at_once_beside_a_batch(w: World) -> None:
    file, source, target = w.file(), w.buffer(), w.buffer()
    batch = submit(w, WRITE, file, source)
    assert w.hipfile.hipFileRead(file, target, 4096, 0, 0).count == 4096
    collect(w, batch)


@wrong("deregister.in-flight", twin="batch_handle_deregistered_after_collecting")
def batch_handle_deregistered_in_flight(w: World) -> None:
    file, buffer = w.file(), w.buffer()
    batch = submit(w, READ, file, buffer)
    w.hipfile.hipFileHandleDeregister(file)
    collect(w, batch)


@wrong("deregister.in-flight", twin="batch_handle_deregistered_after_collecting")
def batch_buffer_deregistered_in_flight(w: World) -> None:
    file, buffer = w.file(), w.buffer()
    batch = submit(w, READ, file, buffer)
    w.hipfile.hipFileBufDeregister(buffer)
    collect(w, batch)


@right("batch_handle_deregistered_in_flight", profile="0.5")
def batch_handle_deregistered_after_collecting(w: World) -> None:
    file, buffer = w.file(), w.buffer()
    collect(w, submit(w, READ, file, buffer))
    w.hipfile.hipFileHandleDeregister(file)
    w.ok(w.hipfile.hipFileBufDeregister(buffer))


@wrong("memory.poison-to-file", twin="batch_stored_after_kernel", cases="C25")
def batch_stores_what_nobody_has_written(w: World) -> None:
    file, block = w.file(), w.buffer(fill=None)
    collect(w, submit(w, WRITE, file, block))
