"""Races of streams with one another and with the host."""

from __future__ import annotations

import threading

from catalogue.registry import right, wrong
from catalogue.world import D2D, D2H, H2D, World


@wrong("race.read-write", twin="store_after_kernel", cases="C17 C24", faces="model python torch c")
def store_beside_kernel(w: World) -> None:
    file, block, compute, side = w.file(), w.buffer(), w.stream(register=False), w.stream()
    w.kernel(compute, writes=[(block, 4096)], name="forward", slow=True)
    w.write(file, block, w.slots(), side)
    w.sync_device()


@right("store_beside_kernel", cases="C17", faces="model python torch c")
def store_after_kernel(w: World) -> None:
    file, block, compute, side = w.file(), w.buffer(), w.stream(register=False), w.stream()
    w.kernel(compute, writes=[(block, 4096)], name="forward", slow=True)
    w.wait_stream(side, compute)
    w.write(file, block, w.slots(), side)
    w.sync_device()


@wrong("race.read-write", twin="load_after_kernel", cases="C18 C24", faces="model python torch c")
def load_beside_kernel(w: World) -> None:
    file, block, compute, side = w.file(), w.buffer(), w.stream(register=False), w.stream()
    w.kernel(compute, reads=[(block, 4096)], name="attention", slow=True)
    w.read(file, block, w.slots(), side)
    w.sync_device()


@right("load_beside_kernel", cases="C18", faces="model python torch c")
def load_after_kernel(w: World) -> None:
    file, block, compute, side = w.file(), w.buffer(), w.stream(register=False), w.stream()
    w.kernel(compute, reads=[(block, 4096)], name="attention", slow=True)
    w.wait_stream(side, compute)
    w.read(file, block, w.slots(), side)
    w.sync_device()


def _ping_pong(w: World, *, copy_waits: bool, forward_waits: bool) -> None:
    """A copy after the forward pass, and the next forward pass after the copy: two edges."""
    block, stage, compute, side = w.device(), w.pinned(), w.stream(register=False), w.stream(register=False)
    w.kernel(compute, writes=[(block, 4096)], name="forward")
    if copy_waits:
        w.wait_stream(side, compute)
    w.copy(stage, block, side, D2H)
    if forward_waits:
        w.wait_stream(compute, side)
        w.kernel(compute, writes=[(block, 4096)], name="forward2")
    w.sync_device()


@wrong("race.read-write", twin="both_edges", cases="C19", faces="model python torch c")
def first_edge_missing(w: World) -> None:
    _ping_pong(w, copy_waits=False, forward_waits=True)


@wrong("race.read-write", twin="both_edges", cases="C19", faces="model python torch c")
def second_edge_missing(w: World) -> None:
    block, stage, compute, side = w.device(), w.pinned(), w.stream(register=False), w.stream(register=False)
    w.kernel(compute, writes=[(block, 4096)], name="forward")
    w.wait_stream(side, compute)
    w.copy(stage, block, side, D2H)
    w.kernel(compute, writes=[(block, 4096)], name="forward2")
    w.sync_device()


@right("first_edge_missing", cases="C19", faces="model python torch c")
def both_edges(w: World) -> None:
    _ping_pong(w, copy_waits=True, forward_waits=True)


@wrong("race.write-write", twin="two_writers_ordered", faces="model python torch c")
def two_writers(w: World) -> None:
    block, one, two = w.device(), w.stream(register=False), w.stream(register=False)
    w.kernel(one, writes=[(block, 4096)], name="one")
    w.kernel(two, writes=[(block + 4000, 96)], name="two")
    w.sync_device()


@right("two_writers", faces="model python torch c")
def two_writers_ordered(w: World) -> None:
    block, one, two = w.device(), w.stream(register=False), w.stream(register=False)
    w.kernel(one, writes=[(block, 4096)], name="one")
    w.wait_stream(two, one)
    w.kernel(two, writes=[(block + 4000, 96)], name="two")
    w.sync_device()


@right("two_writers", faces="model python torch c")
def two_writers_apart(w: World) -> None:
    """Neighbouring bytes are no race."""
    block, one, two = w.device(), w.stream(register=False), w.stream(register=False)
    w.kernel(one, writes=[(block, 2048)], name="one")
    w.kernel(two, writes=[(block + 2048, 2048)], name="two")
    w.sync_device()


@right("two_writers", faces="model python torch c")
def many_readers(w: World) -> None:
    block, streams = w.device(), [w.stream(register=False) for _ in range(3)]
    for stream in streams:
        w.kernel(stream, reads=[(block, 4096)], name="reader")
    w.sync_device()


@right("store_beside_kernel", cases="C20", faces="model python torch c")
def order_through_a_third_stream(w: World) -> None:
    file, block = w.file(), w.buffer()
    one, two, three = w.stream(register=False), w.stream(register=False), w.stream()
    w.kernel(one, writes=[(block, 4096)], name="forward", slow=True)
    w.wait_stream(two, one)
    w.wait_stream(three, two)
    w.write(file, block, w.slots(), three)
    w.sync_device()


@right("store_beside_kernel", cases="C20", faces="model python torch c")
def order_through_the_host(w: World) -> None:
    file, block, one, two = w.file(), w.buffer(), w.stream(register=False), w.stream()
    w.kernel(one, writes=[(block, 4096)], name="forward", slow=True)
    w.sync(one)
    w.write(file, block, w.slots(), two)
    w.sync(two)


@right("store_beside_kernel", cases="C20", faces="model python torch c")
def order_through_a_query(w: World) -> None:
    """A query that says "complete" is as good as a wait."""
    file, block, one, two = w.file(), w.buffer(), w.stream(register=False), w.stream()
    w.kernel(one, writes=[(block, 4096)], name="forward")
    while w.hip.hipStreamQuery(one):
        w.machine.engine.host_point("polling")
        w.machine.finish()
    w.write(file, block, w.slots(), two)
    w.sync(two)


@right("store_beside_kernel", cases="C27", faces="model python torch c")
def wait_holds_the_first_record(w: World) -> None:
    block, one, two, event = w.device(), w.stream(register=False), w.stream(register=False), w.event()
    w.kernel(one, writes=[(block, 4096)], name="first")
    w.record(event, one)
    w.wait(two, event)
    w.kernel(one, writes=[(w.device(), 4096)], name="later", slow=True)
    w.record(event, one)
    w.kernel(two, reads=[(block, 4096)], name="reader")
    w.sync_device()


@wrong("race.read-write", twin="wait_holds_the_first_record", cases="C27", faces="model python torch c")
def wait_before_the_record_that_matters(w: World) -> None:
    block, one, two, event = w.device(), w.stream(register=False), w.stream(register=False), w.event()
    w.record(event, one)
    w.wait(two, event)
    w.kernel(one, writes=[(block, 4096)], name="writer")
    w.record(event, one)  # the wait is for the record before
    w.kernel(two, reads=[(block, 4096)], name="reader")
    w.sync_device()


@right("null_stream_does_not_order_non_blocking", cases="C28", faces="model python c")
def null_stream_orders_blocking(w: World) -> None:
    block, one, two = w.device(), w.stream(register=False, blocking=True), w.stream(register=False, blocking=True)
    w.kernel(one, writes=[(block, 4096)], name="one")
    w.ok(w.hip.hipEventRecord(w.event(), 0))
    w.kernel(two, writes=[(block, 4096)], name="two")
    w.sync_device()


@wrong("race.write-write", twin="null_stream_orders_blocking", cases="C28", faces="model python c")
def null_stream_does_not_order_non_blocking(w: World) -> None:
    block, one, two = w.device(), w.stream(register=False), w.stream(register=False)
    w.kernel(one, writes=[(block, 4096)], name="one")
    w.ok(w.hip.hipEventRecord(w.event(), 0))
    w.kernel(two, writes=[(block, 4096)], name="two")
    w.sync_device()


@wrong("race.host-read", twin="download_then_sync", cases="C21", faces="model python torch c")
def download_read_too_early(w: World) -> None:
    block, stage, stream = w.device(), w.pinned(), w.stream(register=False)
    w.copy(stage, block, stream, D2H)
    w.peek(stage)
    w.sync(stream)


@right("download_read_too_early", cases="C21", faces="model python torch c")
def download_then_sync(w: World) -> None:
    block, stage, stream = w.device(), w.pinned(), w.stream(register=False)
    w.copy(stage, block, stream, D2H)
    w.sync(stream)
    assert w.peek(stage, 2) == b"\1\1"


@wrong("race.host-write", twin="upload_then_sync", cases="C23", faces="model python torch c")
def upload_changed_too_early(w: World) -> None:
    block, stage, stream = w.device(), w.pinned(), w.stream(register=False)
    w.poke(stage, b"a" * 4096)
    w.copy(block, stage, stream, H2D)
    w.poke(stage, b"b" * 4096)
    w.sync(stream)


@right("upload_changed_too_early", cases="C23", faces="model python torch c")
def upload_then_sync(w: World) -> None:
    block, stage, stream = w.device(), w.pinned(), w.stream(register=False)
    w.poke(stage, b"a" * 4096)
    w.copy(block, stage, stream, H2D)
    w.sync(stream)
    w.poke(stage, b"b" * 4096)


@right("download_read_too_early", faces="model python torch c")
def plain_copy_blocks(w: World) -> None:
    block, stage = w.device(), w.pinned()
    w.ok(w.hip.hipMemcpy(stage, block, 4096, D2H))
    assert w.peek(stage, 2) == b"\1\1"


@wrong("race.file", twin="file_written_then_read", faces="model python torch c")
def file_written_and_read(w: World) -> None:
    file, source, target, one, two = w.file(), w.buffer(), w.buffer(), w.stream(), w.stream()
    w.write(file, source, w.slots(4096, 0), one)
    w.read(file, target, w.slots(4096, 1024), two)
    w.sync_device()


@right("file_written_and_read", faces="model python torch c")
def file_written_then_read(w: World) -> None:
    file, source, target, one, two = w.file(), w.buffer(), w.buffer(), w.stream(), w.stream()
    w.write(file, source, w.slots(4096, 0), one)
    w.wait_stream(two, one)
    w.read(file, target, w.slots(4096, 1024), two)
    w.sync_device()


@right("file_written_and_read", faces="model python torch c")
def file_slabs_apart(w: World) -> None:
    file, one, two = w.file(), w.stream(), w.stream()
    w.write(file, w.buffer(), w.slots(4096, 0), one)
    w.read(file, w.buffer(), w.slots(4096, 4096), two)
    w.sync_device()


@wrong("race.file", twin="file_written_by_two_streams_ordered", faces="model python torch c")
def file_written_by_two_streams(w: World) -> None:
    """Two handles, one file."""
    one, two, block, first, second = w.file(), w.file(), w.buffer(), w.stream(), w.stream()
    w.write(one, block, w.slots(), first)
    w.write(two, block, w.slots(), second)
    w.sync_device()


@right("file_written_by_two_streams", faces="model python torch c")
def file_written_by_two_streams_ordered(w: World) -> None:
    one, two, block, first, second = w.file(), w.file(), w.buffer(), w.stream(), w.stream()
    w.write(one, block, w.slots(), first)
    w.wait_stream(second, first)
    w.write(two, block, w.slots(), second)
    w.sync_device()


@wrong("race.read-write", twin="sync_read_after_kernel", faces="model python torch c")
def sync_write_beside_kernel(w: World) -> None:
    """A synchronous store uses the null stream, which does not wait for a non-blocking one."""
    file, block, compute = w.file(), w.buffer(), w.stream(register=False)
    w.kernel(compute, writes=[(block, 4096)], name="forward", slow=True)
    assert w.hipfile.hipFileWrite(file, block, 4096, 0, 0).count == 4096
    w.sync_device()


@right("sync_write_beside_kernel", faces="model python torch c")
def sync_read_after_kernel(w: World) -> None:
    file, block, compute = w.file(), w.buffer(), w.stream(register=False)
    w.kernel(compute, reads=[(block, 4096)], name="attention", slow=True)
    w.sync(compute)
    assert w.hipfile.hipFileRead(file, block, 4096, 0, 0).count == 4096


@wrong("race.file", twin="sync_read_after_async_write", faces="model python torch c")
def sync_read_beside_async_write(w: World) -> None:
    file, source, target, stream = w.file(), w.buffer(), w.buffer(), w.stream()
    w.write(file, source, w.slots(), stream)
    assert w.hipfile.hipFileRead(file, target, 4096, 0, 0).count == 4096
    w.sync(stream)


@right("sync_read_beside_async_write", faces="model python torch c")
def sync_read_after_async_write(w: World) -> None:
    file, source, target, stream = w.file(), w.buffer(), w.buffer(), w.stream()
    w.write(file, source, w.slots(), stream)
    w.sync(stream)
    assert w.hipfile.hipFileRead(file, target, 4096, 0, 0).count == 4096


@right("cross_device_copy_without_wait", cases="C30", faces="model python torch c")
def cross_device_event(w: World) -> None:
    here, there = w.device(), w.device(device=1)
    one, two = w.stream(register=False), w.stream(register=False, device=1)
    w.kernel(one, writes=[(here, 4096)], name="producer")
    w.wait_stream(two, one)
    w.copy(there, here, two, D2D)
    w.sync(two)


@wrong("race.read-write", twin="cross_device_event", cases="C30", faces="model python torch c")
def cross_device_copy_without_wait(w: World) -> None:
    here, there = w.device(), w.device(device=1)
    one, two = w.stream(register=False), w.stream(register=False, device=1)
    w.kernel(one, writes=[(here, 4096)], name="producer")
    w.copy(there, here, two, D2D)
    w.sync(one)
    w.sync(two)


@right("flag_that_nobody_waits_for", faces="model c")
def flag_between_streams(w: World) -> None:
    block, flag, one, two = w.device(), w.signal(), w.stream(register=False), w.stream(register=False)
    w.ok(w.hip.hipStreamWaitValue64(two, flag, 1))
    w.kernel(two, reads=[(block, 4096)], name="reader")
    w.kernel(one, writes=[(block, 4096)], name="writer")
    w.ok(w.hip.hipStreamWriteValue64(one, flag, 1))
    w.sync_device()


@wrong("race.read-write", twin="flag_between_streams", faces="model c")
def flag_that_nobody_waits_for(w: World) -> None:
    block, flag, one, two = w.device(), w.signal(), w.stream(register=False), w.stream(register=False)
    w.kernel(two, reads=[(block, 4096)], name="reader")
    w.kernel(one, writes=[(block, 4096)], name="writer")
    w.ok(w.hip.hipStreamWriteValue64(one, flag, 1))
    w.sync_device()


@right("host_function_writes_unordered", faces="model c")
def host_function_writes_in_order(w: World) -> None:
    block, stage, stream = w.device(), w.pinned(), w.stream(register=False)
    w.host_function(stream, lambda: w.poke(stage, b"c" * 4096))
    w.copy(block, stage, stream, H2D)
    w.sync(stream)


@wrong("race.read-write", twin="host_function_writes_in_order", host_threads="told", faces="model")
def host_function_writes_unordered(w: World) -> None:
    """Only with "told": a host function that has run may have told the host, and the copy is submitted behind that."""
    block, stage, one, two = w.device(), w.pinned(), w.stream(register=False), w.stream(register=False)
    w.poke(stage, b"a" * 4096)
    w.host_function(one, lambda: w.poke(stage, b"c" * 4096))
    w.copy(block, stage, two, H2D)
    w.sync_device()


@right("upload_changed_too_early", faces="model python torch c")
def device_synchronised(w: World) -> None:
    block, stage, stream = w.device(), w.pinned(), w.stream(register=False)
    w.copy(block, stage, stream, H2D)
    w.sync_device()
    w.poke(stage, b"b" * 4096)


@wrong("race.host-write", twin="thread_joined_before_the_write", host_threads="told", faces="model c")
def two_threads_write_without_order(w: World) -> None:
    stage = w.pinned()
    thread = threading.Thread(target=lambda: w.poke(stage, b"x" * 64))
    w.start(thread)
    w.poke(stage, b"y" * 64)
    w.join(thread)


@right("two_threads_write_without_order", host_threads="told", faces="model c")
def thread_joined_before_the_write(w: World) -> None:
    stage = w.pinned()
    w.poke(stage, b"w" * 64)
    thread = threading.Thread(target=lambda: w.poke(stage, b"x" * 64))
    w.start(thread)
    w.join(thread)
    w.poke(stage, b"y" * 64)


@right("two_threads_write_without_order", faces="model python torch c")
def threads_with_a_lock_of_their_own(w: World) -> None:
    """Locks and queues between host threads are invisible, so nothing is said by default."""
    file, buffer, stream, done = w.file(), w.buffer(), w.stream(), []

    def load() -> None:
        io = w.read(file, buffer, w.slots(), stream)
        w.sync(stream)
        done.append(io)

    thread = threading.Thread(target=load)
    thread.start()
    thread.join()
    assert done[0].bytes_done == 4096
