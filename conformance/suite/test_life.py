"""Life cycle: the use count, implicit initialisation, and what works on a closed driver."""

from __future__ import annotations

import os
import threading
from typing import Any

from hipfile_conformance.kit import KIB, Kit, Slots, io_text
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import BatchOp, Status

OK = Status(0, 0)


def succeeded(status: Status) -> bool:
    return Status(*status).err == 0


@conformance("life.init.import", "life.use-count.closed", fresh=True, schedules=False)
def test_untouched(t: Kit) -> None:
    count = t.hipFileUseCount()
    t.expect("life.init.import", count, 0)
    t.expect("life.use-count.closed", count, 0)


@conformance("life.open.counts", "life.close.counts", "life.close.closed", fresh=True, schedules=False)
def test_open_and_close(t: Kit) -> None:
    opened = [(succeeded(t.hipFileDriverOpen()), t.hipFileUseCount()) for _ in range(3)]
    t.expect("life.open.counts", opened, [(True, 1), (True, 2), (True, 3)])
    closed = [(succeeded(t.hipFileDriverClose()), t.hipFileUseCount()) for _ in range(3)]
    t.expect("life.close.counts", closed, [(True, 2), (True, 1), (True, 0)])
    t.code("life.close.closed", t.hipFileDriverClose())
    t.expect("life.close.closed", t.hipFileUseCount(), 0, "count afterwards")


@conformance("life.close.race", fresh=True, schedules=False)
def test_close_from_many_threads(t: Kit) -> None:
    for _ in range(20):
        t.hipFileDriverOpen()
        threads = [threading.Thread(target=t.hipFileDriverClose) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        count = t.hipFileUseCount()
        if not t.expect("life.close.race", count >= 0, True, f"count {count}"):
            return


@conformance(
    "life.close.clears",
    "life.close.old-handle",
    "life.close.streams-survive",
    "life.init.untracked",
    fresh=True,
)
def test_close_and_reopen(t: Kit) -> None:
    t.hipFileDriverOpen()
    fd = t.file()
    handle, pointer, stream = t.handle(fd), t.buffer(4 * KIB), t.stream(register=0)
    t.ok(t.hipFileDriverClose())
    t.ok(t.hipFileDriverOpen())
    result = t.hipFileRead(handle, pointer, 16, 0, 0)
    fresh = (succeeded(t.hipFileBufRegister(pointer, 4 * KIB, 0)), succeeded(t.hipFileHandleRegister((1, fd))[0]))
    t.expect("life.close.clears", fresh, {"buffers and files forgotten": (True, True)})
    old = {"-HandleNotRegistered": "-5027", "-1 with errno 5027": "-1/5027"}
    t.expect("life.close.old-handle", io_text(result), old)
    again = t.hipFileStreamRegister(stream, 0)
    t.expect(
        "life.close.streams-survive",
        Status(*again).err,
        {"InvalidValue on registering again": 5022, "Success on registering again": 0, "streams forgotten": 0},
    )
    count = t.hipFileUseCount()  # cuFile: the failed read has taken one away
    t.ok(t.hipFileBufDeregister(pointer))
    t.hipFileStreamDeregister(stream)
    t.expect("life.init.untracked", t.hipFileUseCount() == count, {"count stays": True})


@conformance("life.close.streams-survive", needs="hold", fresh=True)
def test_flags_survive(t: Kit) -> None:
    """A stream that outlives the close is what it was: what was declared fixed is."""
    t.need(t.answer("life.close.streams-survive") != "streams forgotten", "the close forgets streams")
    t.open()
    stream = t.stream(register=7)
    t.ok(t.hipFileDriverClose())
    t.ok(t.hipFileDriverOpen())
    handle, pointer, slots = t.handle(), t.buffer(8 * KIB), Slots(8 * KIB)
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        slots.set(size=16)
    t.finish(stream)
    answers = {"InvalidValue on registering again": 8 * KIB}
    t.expect("life.close.streams-survive", slots.done, answers, "a fixed size that changed")


@conformance("life.close.in-flight", needs="hold", fresh=True)
def test_close_in_flight(t: Kit) -> None:
    t.open()
    handle, pointer, stream, slots = t.handle(), t.buffer(8 * KIB), t.stream(), Slots(8 * KIB)
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        waits = t.blocks(t.hipFileDriverClose)
    t.finish(stream)
    t.expect("life.close.in-flight", slots.done, {"operations complete": 8 * KIB, "waits for the operations": 8 * KIB})
    expected = {"operations complete": False, "waits for the operations": True}
    t.expect("life.close.in-flight", waits, expected, "the call waits")


@conformance(
    "life.close.clears",
    "life.close.in-flight",
    "file.register.duplicate",
    "buffer.register.duplicate",
    needs="hold",
    fresh=True,
)
def test_close_and_reopen_in_flight(t: Kit) -> None:
    """An operation that outlives the close gives back what it held then, nothing that was registered since."""
    t.need(t.answer("life.close.in-flight") == "operations complete", "the close waits for what is in flight")
    t.open()
    fd = t.file()
    handle, pointer, stream, slots = t.handle(fd), t.buffer(8 * KIB), t.stream(), Slots(8 * KIB)
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        t.ok(t.hipFileDriverClose())
        t.ok(t.hipFileDriverOpen())
        status, new = t.hipFileHandleRegister((1, fd))
        fresh = succeeded(status), succeeded(t.hipFileBufRegister(pointer, 8 * KIB, 0))
    t.finish(stream)
    t.expect("life.close.in-flight", slots.done, {"operations complete": 8 * KIB})
    t.expect("life.close.clears", fresh, {"buffers and files forgotten": (True, True)}, "in use")
    result = io_text(t.hipFileRead(new, pointer, 16, 0, 0))
    t.expect("life.close.clears", result, {"buffers and files forgotten": "16"}, "through the new handle")
    t.code("file.register.duplicate", Status(*t.hipFileHandleRegister((1, fd))[0]), "registered since")
    t.code("buffer.register.duplicate", Status(*t.hipFileBufRegister(pointer, 8 * KIB, 0)), "registered since")


@conformance("life.close.batches", needs="model", fresh=True, schedules=False)
def test_close_with_batches(t: Kit) -> None:
    t.hipFileDriverOpen()
    handle, pointer = t.handle(), t.device(4 * KIB)
    batch = t.ok(t.hipFileBatchIOSetUp(4))
    t.ok(t.hipFileBatchIOSubmit(batch, [BatchOp(pointer, 0, 0, 16, handle, 0)], 0))
    t.ok(t.hipFileDriverClose())
    t.ok(t.hipFileDriverOpen())
    status = Status(*t.hipFileBatchIOSubmit(batch, [BatchOp(pointer, 0, 0, 16, t.handle(), 0)], 0))
    expected = {"contexts stay valid": 0, "contexts are cancelled and cleared": 5022}
    t.expect("life.close.batches", status.err, expected)


@conformance("life.init.handle-register", "life.init.then-open", "life.init.once", fresh=True, schedules=False)
def test_file_registration_opens(t: Kit) -> None:
    fd = t.file()
    t.ok(t.hipFileHandleRegister((1, fd)))
    counts = [t.hipFileUseCount()]
    t.expect(
        "life.init.handle-register",
        counts[0],
        {"count 0 -> 1 after inspection": 1, "count 0 -> 1 whatever the arguments": 1},
    )
    t.hipFileHandleRegister((1, fd))  # a duplicate
    t.hipFileHandleRegister((1, t.file()))
    t.hipFileBufRegister(t.device(4096), 4096, 0)
    t.expect("life.init.once", t.hipFileUseCount(), 1)
    t.ok(t.hipFileDriverOpen())
    t.expect("life.init.then-open", t.hipFileUseCount(), 2)


@conformance("life.init.handle-register", fresh=True, schedules=False)
def test_failed_duplicate_opens(t: Kit) -> None:
    fd = t.file()
    t.ok(t.hipFileHandleRegister((1, fd)))
    t.ok(t.hipFileDriverClose())
    # forgotten by the close: registering again works and opens again
    status, _ = t.hipFileHandleRegister((1, fd))
    opened = (succeeded(status), t.hipFileUseCount())
    answers = ("count 0 -> 1 after inspection", "count 0 -> 1 whatever the arguments")
    t.expect("life.init.handle-register", opened, dict.fromkeys(answers, (True, 1)), "after a close")


def bad_registrations(t: Kit) -> list[Any]:
    return [None, (2, t.file()), (1, 9999)]


@conformance("life.init.handle-register-bad", fresh=True, schedules=False)
def test_bad_registration_null(t: Kit) -> None:
    t.hipFileHandleRegister(None)
    t.expect("life.init.handle-register-bad", t.hipFileUseCount(), {"count stays 0": 0, "count 0 -> 1": 1}, "null")


@conformance("life.init.handle-register-bad", fresh=True, schedules=False)
def test_bad_registration_type(t: Kit) -> None:
    t.hipFileHandleRegister((2, t.file()))
    t.expect("life.init.handle-register-bad", t.hipFileUseCount(), {"count stays 0": 0, "count 0 -> 1": 1}, "type")


@conformance("life.init.handle-register-bad", fresh=True, schedules=False)
def test_bad_registration_descriptor(t: Kit) -> None:
    t.hipFileHandleRegister((1, 9999))
    t.expect("life.init.handle-register-bad", t.hipFileUseCount(), {"count stays 0": 0, "count 0 -> 1": 1}, "fd 9999")


@conformance("life.init.buffer", fresh=True, schedules=False)
def test_buffer_registration_opens(t: Kit) -> None:
    t.hipFileBufRegister(0, 4096, 0)
    t.expect("life.init.buffer", t.hipFileUseCount(), 1, "a null pointer")
    t.hipFileDriverClose()
    t.ok(t.hipFileBufRegister(t.device(4096), 4096, 0))
    t.expect("life.init.buffer", t.hipFileUseCount(), 1, "a good one")


@conformance("life.init.async", "submit.closed", fresh=True)
def test_async_call_opens(t: Kit) -> None:
    slots = Slots(4096)
    status = t.read(0, 0, slots, 0)
    expected = {"InvalidValue, count 0 -> 1": (5022, 1)}
    t.expect("life.init.async", (status.err, t.hipFileUseCount()), expected, "null arguments")
    t.expect("submit.closed", (status.err, t.hipFileUseCount()), {"InvalidValue, count 1": (5022, 1)})
    t.hipFileDriverClose()
    status = t.write(0, t.device(4096), Slots(4096), t.stream())
    t.expect("life.init.async", (status.err, t.hipFileUseCount()), expected, "a write")


@conformance("life.init.threads", fresh=True, schedules=False)
def test_many_threads_open_once(t: Kit) -> None:
    fds, pointers = [t.file(512) for _ in range(16)], [t.device(512) for _ in range(16)]
    failed: list[object] = []

    def work(index: int) -> None:
        t.hipSetDevice(0)
        statuses = [t.hipFileHandleRegister((1, fds[index]))[0], t.hipFileBufRegister(pointers[index], 512, 0)]
        failed.extend(status for status in statuses if Status(*status).err)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    t.expect("life.init.threads", (t.hipFileUseCount(), failed), {"1": (1, [])})


@conformance("life.version", fresh=True, schedules=False)
def test_version(t: Kit) -> None:
    def version() -> str:
        status, *numbers = t.hipFileGetVersion()
        return ".".join(map(str, numbers)) if succeeded(status) else f"failed {status}"

    t.expect("life.version", version(), t.answer("life.version"), "closed")
    t.hipFileDriverOpen()
    t.expect("life.version", version(), t.answer("life.version"), "open")


@conformance("life.version.null", needs="c", fresh=True, schedules=False)
def test_version_null(t: Kit) -> None:
    symbol = t.target.symbol("hipFileGetVersion")  # type: ignore[attr-defined]
    t.expect("life.version.null", symbol(None, None, None).err, {"Success": 0})


@conformance(
    "life.closed.sync",
    "sync.closed",
    "life.closed.deregister",
    "file.deregister.silent",
    "life.closed.stream",
    "stream.register.closed",
    "stream.register.no-init",
    fresh=True,
    schedules=False,
)
def test_closed_driver(t: Kit) -> None:
    pointer, stream = t.device(4096), t.stream()
    for result in (t.hipFileRead(0, pointer, 16, 0, 0), t.hipFileWrite(0, pointer, 16, 0, 0)):
        seen = (io_text(result), t.hipFileUseCount())
        t.expect("life.closed.sync", seen, {"-1/EINVAL, count stays 0": ("-1/EINVAL", 0)})
        t.io("sync.closed", result)
    t.hipFileHandleDeregister(0)
    t.hipFileHandleDeregister(0xF11E)
    t.expect("life.closed.deregister", t.hipFileUseCount(), {"nothing": 0})
    t.expect("file.deregister.silent", t.hipFileUseCount(), {"nothing": 0}, "closed")
    for handle in (stream, 0):
        status = t.hipFileStreamRegister(handle, 0)
        seen2 = (succeeded(status), t.hipFileUseCount())
        t.expect("life.closed.stream", seen2, {"Success, count stays 0": (True, 0)})
        t.code("stream.register.closed", status)
        t.expect("stream.register.no-init", seen2[1], {"count stays 0": 0})
        t.ok(t.hipFileStreamDeregister(handle))


@conformance(
    "life.closed.properties",
    "param.not-implemented",
    "param.no-init",
    "error.not-implemented",
    fresh=True,
    schedules=False,
)
def test_properties_closed(t: Kit) -> None:
    codes = {
        "set": Status(*t.hipFileSetParameterSizeT(0, 1)).err,
        "parameter": Status(*t.hipFileGetParameterSizeT(0)[0]).err,
        "get": Status(*t.hipFileDriverGetProperties()[0]).err,
    }
    implemented = dict.fromkeys(codes, 0)
    missing = dict.fromkeys(codes, 5030)
    t.expect("life.closed.properties", codes, {"InternalError": missing, "works": implemented})
    t.expect(
        "param.not-implemented",
        codes,
        {"InternalError (not implemented)": missing, "implemented": implemented},
        "closed",
    )
    t.expect("error.not-implemented", codes, {"InternalError": missing, "implemented": implemented})
    t.expect("param.no-init", t.hipFileUseCount(), {"count stays 0": 0})


@conformance("life.singletons", "life.singletons.use-count", needs="model", fresh=True, schedules=False)
def test_singletons(t: Kit) -> None:
    """The model cannot run out of descriptors at load, so only the healthy side is looked at."""
    t.expect("life.singletons", t.hipFileUseCount(), {"at load": 0, "first call": 0}, "count after the first call")
    t.expect("life.singletons.use-count", t.profile.open_from_library_load, {"0": True, "-1": False})


@conformance("life.fork", needs="model", fresh=True, schedules=False)
def test_fork(t: Kit) -> None:
    """Not decided by the facts: the model answers with a defined error, and that is written down."""
    t.hipFileDriverOpen()
    t.device(4096)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child
        answer = b"?"
        try:
            answer = str(Status(*t.hipFileDriverOpen()).err).encode()
        finally:
            os.write(write_end, answer)
            os._exit(0)
    os.close(write_end)
    seen = os.read(read_end, 16).decode()
    os.close(read_end)
    os.waitpid(pid, 0)
    t.expect("life.fork", seen, None, "code of a call in the child")
