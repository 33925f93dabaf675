"""Descriptors, registrations and durability."""

from __future__ import annotations

import os

from catalogue.registry import right, wrong
from catalogue.world import World


@wrong(
    "fd.closed-in-flight",
    twin="descriptor_closed_after_deregister",
    cases="C16",
    faces="model python torch c",
)
def descriptor_closed_in_flight(w: World) -> None:
    file, buffer, stream = w.file(flags=os.O_RDWR | os.O_DIRECT), w.buffer(), w.stream()
    io = w.read(file, buffer, w.slots(), stream)
    w.close_fd(file)
    w.sync(stream)
    assert io.bytes_done == 4096, "registered with O_DIRECT: the library reads through its own descriptor"


@right("descriptor_closed_in_flight", cases="C16", faces="model python torch c")
def descriptor_closed_after_deregister(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.read(file, buffer, w.slots(), stream)
    w.sync(stream)
    w.hipfile.hipFileHandleDeregister(file)
    w.close_fd(file)


@wrong(
    "fd.recycled-in-flight",
    twin="descriptor_closed_after_deregister",
    cases="C16",
    faces="model python torch c",
)
def descriptor_recycled_in_flight(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.read(file, buffer, w.slots(), stream)
    w.recycle_fd(file, "other.bin")
    w.sync(stream)


@wrong("deregister.in-flight", twin="handle_deregistered_after_sync", faces="model python torch c")
def handle_deregistered_in_flight(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.read(file, buffer, w.slots(), stream)
    w.hipfile.hipFileHandleDeregister(file)
    w.sync(stream)


@wrong("deregister.in-flight", twin="handle_deregistered_after_sync", faces="model c")
def driver_closed_in_flight(w: World) -> None:
    w.ok(w.hipfile.hipFileDriverOpen())
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.read(file, buffer, w.slots(), stream)
    w.ok(w.hipfile.hipFileDriverClose())
    w.sync(stream)


@right("handle_deregistered_in_flight", faces="model python torch c")
def handle_deregistered_after_sync(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.read(file, buffer, w.slots(), stream)
    w.sync(stream)
    w.hipfile.hipFileHandleDeregister(file)
    w.ok(w.hipfile.hipFileBufDeregister(buffer))


@wrong("deregister.in-flight", twin="handle_deregistered_after_sync", faces="model python torch c")
def buffer_deregistered_in_flight(w: World) -> None:
    file, buffer, stream, event, other = w.file(), w.buffer(), w.stream(), w.event(), w.stream(register=False)
    w.read(file, buffer, w.slots(), stream)
    w.record(event, stream)
    w.wait(other, event)  # holds up the other stream, not the host
    w.hipfile.hipFileBufDeregister(buffer)
    w.sync(stream)


@wrong("data.unsynced-write", twin="write_synced", faces="model python torch c")
def write_never_synced(w: World) -> None:
    w.fsync_at_end = False
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.write(file, buffer, w.slots(), stream)
    w.sync(stream)


@right("write_never_synced", faces="model python torch c")
def write_synced(w: World) -> None:
    w.fsync_at_end = False
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.write(file, buffer, w.slots(), stream)
    w.sync(stream)
    w.fsync(file)


@right("write_never_synced", faces="model python torch c")
def write_to_a_synchronous_descriptor(w: World) -> None:
    w.fsync_at_end = False
    file, buffer, stream = w.file(flags=os.O_RDWR | os.O_DSYNC), w.buffer(), w.stream()
    w.write(file, buffer, w.slots(), stream)
    w.sync(stream)


@right("write_never_synced", faces="model python torch c")
def synchronous_write_syncs(w: World) -> None:
    w.fsync_at_end = False
    file, buffer = w.file(), w.buffer()
    assert w.hipfile.hipFileWrite(file, buffer, 4096, 0, 0).count == 4096


@wrong("data.error-detail-lost", twin="write_synced", cases="C07 C14", faces="model python torch c")
def full_disk_looks_like_any_error(w: World) -> None:
    w.fsync_at_end = False
    file, buffer, stream = w.file_at("/dev/full", os.O_RDWR), w.buffer(), w.stream()
    io = w.write(file, buffer, w.slots(), stream)
    w.sync(stream)
    assert io.bytes_done == -1


@wrong("deregister.in-flight", twin="descriptor_closed_after_deregister", faces="model c")
def file_closed_in_flight(w: World) -> None:
    """What FileHandle.close does without a wait: the library ignores the first line, and then the number is gone."""
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.read(file, buffer, w.slots(), stream)
    w.hipfile.hipFileHandleDeregister(file)
    w.close_fd(file)
    w.sync(stream)


@right("descriptor_closed_in_flight", cases="C16", faces="model c")
def descriptor_closed_after_an_event(w: World) -> None:
    """The host knew, though not from the stream itself."""
    file, buffer, stream, other, event = w.file(), w.buffer(), w.stream(), w.stream(register=False), w.event()
    w.read(file, buffer, w.slots(), stream)
    w.wait_stream(other, stream)
    w.record(event, other)
    w.sync_event(event)
    w.hipfile.hipFileHandleDeregister(file)
    w.close_fd(file)
    w.sync(stream)
