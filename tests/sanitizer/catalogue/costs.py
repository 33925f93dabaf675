"""Costs, and what is left over at the end."""

from __future__ import annotations

from catalogue.registry import right, wrong
from catalogue.world import H2D, World
from hipfile_sim.driver.codes import FileDescr


@wrong("cost.unregistered-stream", twin="stream_registered_and_used", cases="C30", faces="model python torch c")
def stream_not_registered(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream(register=False)
    for _ in range(3):
        w.read(file, buffer, w.slots(), stream)
    w.sync(stream)


@right("stream_not_registered", cases="C30", faces="model python torch c")
def stream_registered_and_used(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    for _ in range(3):
        w.read(file, buffer, w.slots(), stream)
    w.sync(stream)


@right("stream_not_registered", profile="0.2", faces="model python torch c")
def stream_not_registered_where_it_costs_nothing(w: World) -> None:
    """Releases with a bounce buffer for each operation lose nothing."""
    file, buffer, stream = w.file(), w.buffer(), w.stream(register=False)
    w.read(file, buffer, w.slots(), stream)
    w.sync(stream)


@wrong("stream.registered-unused", twin="stream_registered_and_used", cases="C30", faces="model python torch c")
def stream_registered_in_vain(w: World) -> None:
    w.stream()
    file, buffer, used = w.file(), w.buffer(), w.stream()
    w.read(file, buffer, w.slots(), used)
    w.sync(used)


@right("stream_registered_in_vain", faces="model python torch")
def null_stream_probed(w: World) -> None:
    """As hipfile.supports_async does: register and deregister in one call."""
    for call in (w.hipfile.hipFileStreamRegister, w.hipfile.hipFileStreamDeregister):
        w.ok(call(0))


@wrong("cost.pageable-copy", twin="copy_of_pinned_memory", cases="C23", faces="model python torch c")
def copy_of_pageable_memory(w: World) -> None:
    block, host, stream = w.device(), w.pageable(), w.stream(register=False)
    w.copy(block, host, stream, H2D)
    w.sync(stream)


@right("copy_of_pageable_memory", cases="C23", faces="model python torch c")
def copy_of_pinned_memory(w: World) -> None:
    block, host, stream = w.device(), w.pinned(), w.stream(register=False)
    w.poke(host, bytes(4096))
    w.copy(block, host, stream, H2D)
    w.sync(stream)


@wrong("cost.null-stream", twin="work_on_a_stream_of_its_own", cases="C28", faces="model python torch c")
def work_on_the_null_stream(w: World) -> None:
    file, buffer = w.file(), w.buffer()
    w.ok(w.hipfile.hipFileStreamRegister(0))
    w.read(file, buffer, w.slots(), 0)
    w.sync(0)


@wrong("cost.null-stream", twin="work_on_a_stream_of_its_own", cases="C28", faces="model python torch c")
def kernel_on_the_null_stream(w: World) -> None:
    block, other = w.device(), w.stream(register=False, blocking=True)
    w.kernel(other, name="compute")
    w.kernel(0, writes=[(block, 4096)], name="fill")
    w.sync_device()


@right("work_on_the_null_stream", cases="C28", faces="model python torch c")
def work_on_a_stream_of_its_own(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.read(file, buffer, w.slots(), stream)
    w.sync(stream)


@wrong("leak.operation", twin="operation_waited_for", tidy=False, faces="model python torch c")
def operation_never_waited_for(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.sanitizer.policy = _only_operations()
    w.read(file, buffer, w.slots(), stream)
    w.machine.finish()


@right("operation_never_waited_for", faces="model python torch c")
def operation_waited_for(w: World) -> None:
    file, buffer, stream = w.file(), w.buffer(), w.stream()
    w.read(file, buffer, w.slots(), stream)
    w.sync(stream)


def _only_operations() -> object:
    """Whoever ends without a wait cannot tidy up either; here it is about the wait."""
    from hipfile_sim.observe.sanitizer import Policy

    return Policy("leak.*=off, leak.operation=warn")


@wrong("leak.handle", twin="all_given_back", tidy=False, faces="model python torch c")
def handle_left_over(w: World) -> None:
    w.file()


@wrong("leak.buffer", twin="all_given_back", tidy=False, faces="model python torch c")
def buffer_left_over(w: World) -> None:
    block = w.buffer()
    w.ok(w.hip.hipFree(block))


@wrong("leak.stream-registration", twin="all_given_back", tidy=False, faces="model python torch c")
def registration_left_over(w: World) -> None:
    file, buffer = w.file(), w.buffer()
    w.ok(w.hipfile.hipFileStreamRegister(2))
    w.read(file, buffer, w.slots(), 2)
    w.sync(2)
    w.hipfile.hipFileHandleDeregister(file)
    w.ok(w.hipfile.hipFileBufDeregister(buffer))
    w.ok(w.hip.hipFree(buffer))


@wrong("leak.batch", twin="all_given_back", tidy=False, faces="model c")
def batch_left_over(w: World) -> None:
    w.ok(w.hipfile.hipFileBatchIOSetUp(4))


@wrong("leak.use-count", twin="all_given_back", tidy=False, faces="model python torch c")
def driver_left_open(w: World) -> None:
    w.ok(w.hipfile.hipFileDriverOpen())
    w.ok(w.hipfile.hipFileDriverOpen())
    w.ok(w.hipfile.hipFileDriverClose())


@wrong("leak.memory", twin="all_given_back", tidy=False, faces="model python c")
def memory_left_over(w: World) -> None:
    w.device()


@wrong("leak.stream", twin="all_given_back", tidy=False, faces="model python c")
def stream_left_over(w: World) -> None:
    w.stream(register=False)


@wrong("leak.event", twin="all_given_back", tidy=False, faces="model python c")
def event_left_over(w: World) -> None:
    w.event()


@right("handle_left_over", tidy=False, faces="model python c")
def all_given_back(w: World) -> None:
    w.ok(w.hipfile.hipFileDriverOpen())
    file, buffer, stream, event = w.file(), w.buffer(), w.stream(), w.event()
    batch = w.ok(w.hipfile.hipFileBatchIOSetUp(4))
    w.read(file, buffer, w.slots(), stream)
    w.record(event, stream)
    w.sync_event(event)
    w.hipfile.hipFileBatchIODestroy(batch)
    w.ok(w.hipfile.hipFileStreamDeregister(stream))
    w.ok(w.hipfile.hipFileBufDeregister(buffer))
    w.hipfile.hipFileHandleDeregister(file)
    w.close_fd(file)
    w.ok(w.hip.hipEventDestroy(event))
    w.ok(w.hip.hipStreamDestroy(stream))
    w.ok(w.hip.hipFree(buffer))
    w.ok(w.hipfile.hipFileDriverClose())


@right("handle_left_over", faces="model c")
def handle_made_by_a_descriptor_that_is_refused(w: World) -> None:
    """What was never registered is not left over."""
    assert w.hipfile.hipFileHandleRegister(FileDescr(3, 0))[0].err == 5008
