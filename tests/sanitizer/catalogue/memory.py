"""Memory, buffers and streams that go away too early."""

from __future__ import annotations

from catalogue.registry import right, wrong
from catalogue.world import H2D, World


@wrong("memory.freed-in-flight", twin="block_freed_after_wait", cases="C22", faces="model python torch")
def block_freed_to_its_pool(w: World) -> None:
    """A caching allocator looks at the home stream only."""
    file, pool, home, side = w.file(), w.buffer(), w.stream(register=False), w.stream()
    w.kernel(home, writes=[(pool, 4096)], name="forward")
    w.wait_stream(side, home)
    w.write(file, pool, w.slots(), side)
    w.released(pool, 4096, "freed", "tensor kv", home)
    w.released(pool, 4096, "recycled", "tensor other", home)
    w.kernel(home, writes=[(pool, 4096)], name="next")
    w.sync_device()


@right("block_freed_to_its_pool", cases="C22", faces="model python torch")
def block_freed_after_wait(w: World) -> None:
    file, pool, home, side = w.file(), w.buffer(), w.stream(register=False), w.stream()
    w.kernel(home, writes=[(pool, 4096)], name="forward")
    w.wait_stream(side, home)
    w.write(file, pool, w.slots(), side)
    w.wait_stream(home, side)
    w.released(pool, 4096, "freed", "tensor kv", home)
    w.released(pool, 4096, "recycled", "tensor other", home)
    w.kernel(home, writes=[(pool, 4096)], name="next")
    w.sync_device()


@wrong("memory.freed-in-flight", twin="registered_array_collected_behind_unregister", faces="model c")
def registered_array_collected_in_flight(w: World) -> None:
    block, stage, stream = w.device(), w.pageable(), w.stream(register=False)
    w.ok(w.hip.hipHostRegister(stage, 4096, 0))
    w.copy(block, stage, stream, H2D)
    w.released(stage, 4096, "collected", "array")
    w.sync(stream)


@right("registered_array_collected_in_flight", faces="model c")
def registered_array_collected_behind_unregister(w: World) -> None:
    """hipHostUnregister waits for the device."""
    block, stage, stream = w.device(), w.pageable(), w.stream(register=False)
    w.ok(w.hip.hipHostRegister(stage, 4096, 0))
    w.copy(block, stage, stream, H2D)
    w.ok(w.hip.hipHostUnregister(stage))
    w.released(stage, 4096, "collected", "array")


@right("block_freed_to_its_pool", faces="model python torch c")
def free_waits_for_the_device(w: World) -> None:
    """hipFree synchronises: what it frees is not in flight, and what the host reads behind it is complete."""
    block, other, stage, stream = w.device(), w.device(), w.pinned(), w.stream(register=False)
    w.kernel(stream, reads=[(block, 4096)], name="reader", slow=True)
    w.copy(stage, other, stream, 2)
    w.ok(w.hip.hipFree(block))
    assert w.peek(stage, 2) == b"\1\1"


@wrong("memory.reused-in-flight", twin="slab_reused_behind_event", faces="model python torch c")
def slab_handed_out_again(w: World) -> None:
    """A block manager of the connector's own hands a slab to the next request."""
    file, slab, side, compute = w.file(), w.buffer(), w.stream(), w.stream(register=False)
    w.write(file, slab, w.slots(), side)
    w.released(slab, 4096, "recycled", "slab 0", compute)
    w.kernel(compute, writes=[(slab, 4096)], name="prefill")
    w.sync_device()


@right("slab_handed_out_again", faces="model python torch c")
def slab_reused_behind_event(w: World) -> None:
    file, slab, side, compute = w.file(), w.buffer(), w.stream(), w.stream(register=False)
    w.write(file, slab, w.slots(), side)
    w.wait_stream(compute, side)
    w.released(slab, 4096, "recycled", "slab 0", compute)
    w.kernel(compute, writes=[(slab, 4096)], name="prefill")
    w.sync_device()


@wrong("memory.poison-to-file", twin="buffer_freed_after_store", cases="C25", faces="model c")
def store_from_freed_memory(w: World) -> None:
    """The registration outlives the memory."""
    file, block, stream = w.file(), w.buffer(), w.stream()
    w.ok(w.hip.hipFree(block))
    w.write(file, block, w.slots(), stream)
    w.sync(stream)


@right("store_from_freed_memory", cases="C25", faces="model c")
def buffer_freed_after_store(w: World) -> None:
    file, block, stream = w.file(), w.buffer(), w.stream()
    w.write(file, block, w.slots(), stream)
    w.sync(stream)
    w.ok(w.hipfile.hipFileBufDeregister(block))
    w.ok(w.hip.hipFree(block))


@wrong("memory.poison-to-file", twin="store_of_written_memory", faces="model python c")
def store_of_memory_never_written(w: World) -> None:
    file, block, stream = w.file(), w.buffer(fill=None), w.stream()
    w.kernel(stream, writes=[(block, 1024)], name="fills a quarter")
    w.write(file, block, w.slots(), stream)
    w.sync(stream)


@right("store_of_memory_never_written", faces="model python torch c")
def store_of_written_memory(w: World) -> None:
    file, block, stream = w.file(), w.buffer(fill=None), w.stream()
    w.kernel(stream, writes=[(block, 4096)], name="fills it all")
    w.write(file, block, w.slots(), stream)
    w.sync(stream)


@wrong("memory.poison-to-file", twin="store_of_written_memory", faces="model python c")
def store_of_a_copy_of_nothing(w: World) -> None:
    file, block, copied, stream = w.file(), w.device(fill=None), w.buffer(), w.stream()
    w.copy(copied, block, stream, 3)
    w.write(file, copied, w.slots(), stream)
    w.sync(stream)


@wrong("memory.poison-to-file", twin="buffer_freed_after_store", cases="C25", faces="model c")
def buffer_freed_before_a_synchronous_store(w: World) -> None:
    file, block = w.file(), w.buffer()
    w.ok(w.hip.hipFree(block))
    assert w.hipfile.hipFileWrite(file, block, 4096, 0, 0).count < 0


@wrong("memory.fault", twin="buffer_freed_after_store", faces="model c")
def buffer_freed_before_a_synchronous_load(w: World) -> None:
    file, block = w.file(), w.buffer()
    w.ok(w.hip.hipFree(block))
    assert w.hipfile.hipFileRead(file, block, 4096, 0, 0).count < 0


@wrong("memory.poison-to-file", twin="pool_block_written_by_its_new_owner", cases="C25")
def pool_block_stored_after_it_was_given_back(w: World) -> None:
    """The last owner's kernel may write it later than the free; that does not make it anybody's."""
    file, block, home = w.file(), w.buffer(), w.stream()
    w.kernel(home, writes=[(block, 4096)], name="last owner", slow=True)
    w.released(block, 4096, "cached", "tensor", home)
    w.write(file, block, w.slots(), home)
    w.sync(home)


@right("pool_block_stored_after_it_was_given_back", cases="C25")
def pool_block_written_by_its_new_owner(w: World) -> None:
    file, block, home = w.file(), w.buffer(), w.stream()
    w.kernel(home, writes=[(block, 4096)], name="last owner", slow=True)
    w.released(block, 4096, "cached", "tensor", home)
    w.released(block, 4096, "recycled", "tensor", home)
    w.kernel(home, writes=[(block, 4096)], name="new owner")
    w.write(file, block, w.slots(), home)
    w.sync(home)


@right("pool_block_stored_after_it_was_given_back", cases="C25")
def pool_block_given_back_behind_its_store(w: World) -> None:
    """A caching allocator takes a block back at once; the stream keeps the order."""
    file, block, home = w.file(), w.buffer(), w.stream()
    w.kernel(home, writes=[(block, 4096)], name="owner", slow=True)
    w.write(file, block, w.slots(), home)
    w.released(block, 4096, "cached", "tensor", home)
    w.sync(home)


@wrong("memory.fault", twin="buffer_freed_after_store", faces="model c")
def device_faults_past_the_new_owner(w: World) -> None:
    """The registration outlives the memory, and the address has a smaller owner by now."""
    file, block, stream = w.file(), w.buffer(64 * 1024), w.stream()
    w.ok(w.hip.hipFree(block))
    assert w.device(4096) == block
    w.write(file, block, w.slots(16 * 1024), stream)
    w.sync(stream)


@wrong("stream.destroyed-in-flight", twin="stream_destroyed_after_sync", schedules="lazy", faces="model c")
def stream_destroyed_in_flight(w: World) -> None:
    file, buffer, stream, event = w.file(), w.buffer(), w.stream(), w.event()
    w.read(file, buffer, w.slots(), stream)
    w.record(event, stream)
    w.ok(w.hipfile.hipFileStreamDeregister(stream))
    w.ok(w.hip.hipStreamDestroy(stream))
    w.sync_event(event)


@right("stream_destroyed_in_flight", faces="model c")
def stream_destroyed_after_sync(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.read(file, buffer, w.slots(), stream)
    w.sync(stream)
    w.ok(w.hipfile.hipFileStreamDeregister(stream))
    w.ok(w.hip.hipStreamDestroy(stream))


@wrong("stream.destroyed-in-flight", twin="stream_destroyed_after_sync", faces="model c")
def stream_destroyed_while_registered(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.read(file, buffer, w.slots(), stream)
    w.sync(stream)
    w.ok(w.hip.hipStreamDestroy(stream))
