"""Synchronous I/O: results, the fallback's chunks, short transfers, errors, negative offsets."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hipfile_conformance.kit import KIB, MIB, Kit, io_text, pattern
from hipfile_conformance.scripted import fault
from hipfile_conformance.suite.registry import conformance
from hipfile_sim.driver.backends.fallback import Fallback

OFF = {"HIPFILE_ALLOW_COMPAT_MODE": "false", "HIPFILE_FORCE_COMPAT_MODE": "false"}


def world(t: Kit, size: int = 64 * KIB) -> tuple[int, int]:
    t.open()
    return t.handle(content=size), t.buffer(size)


@conformance("sync.read", "sync.eof", "sync.eof.rest", "sync.size-zero", "chunk.kernel")
def test_reads(t: Kit) -> None:
    handle, pointer = world(t)
    size = 64 * KIB
    for length, offset, at in (
        (16, 0, 0),
        (1001, 333, 13),
        (size, 0, 0),
        (4 * KIB, size - 100, 5),
        (8, size, 0),
        (8, size + 99, 1),
        (0, 0, 0),
    ):
        t.ok(t.hipMemset(pointer, 0xAA, size))
        t.ok(t.hipDeviceSynchronize())
        result = t.hipFileRead(handle, pointer, length, offset, at)
        count = max(0, min(length, size - offset))
        memory = t.bytes(pointer, size)
        exact = memory[at : at + count] == pattern(count, offset)
        beside = set(memory[at + count :]) | set(memory[:at]) <= {0xAA}
        what = f"{length} bytes at {offset} to {at}"
        t.expect("sync.read", (result[0], exact), {"count": (count, True)}, what)
        if 0 < count < length:
            t.expect("sync.eof.rest", beside, {"untouched": True, "overwritten": False}, what)
        else:
            t.expect("chunk.kernel", beside, {"exact range": True}, f"synchronous, {what}")
        if offset + length > size:
            t.expect("sync.eof", result[0], {"total so far": count}, what)
        if not length:
            t.expect("sync.size-zero", result[0], {"0": 0}, what)


@conformance("sync.write.count", "sync.size-zero")
def test_writes(t: Kit) -> None:
    t.open()
    path = t.path()
    handle, pointer = t.handle(t.file(b"\xcc" * 100, path=path)), t.buffer(64 * KIB)
    source = t.host(64 * KIB)
    ctypes.memmove(source, pattern(64 * KIB), 64 * KIB)
    t.ok(t.hipMemcpy(pointer, source, 64 * KIB, 1))
    t.ok(t.hipDeviceSynchronize())  # a copy from pageable memory may still be on its way
    expected = bytearray(b"\xcc" * 100)
    for length, offset, at in ((16, 3, 5), (1001, 50, 13), (64 * KIB, 0, 0), (7, 100 * KIB, 1), (0, 1 << 30, 0)):
        result = t.hipFileWrite(handle, pointer, length, offset, at)
        if length:
            expected[len(expected) :] = b"\0" * max(0, offset - len(expected))
            expected[offset : offset + length] = pattern(64 * KIB)[at : at + length]
        what = f"{length} bytes from {at} to {offset}"
        t.expect(
            "sync.write.count", (result[0], Path(path).read_bytes() == bytes(expected)), {"count": (length, True)}, what
        )
        if not length:
            t.expect("sync.size-zero", result[0], {"0": 0}, what)


@conformance("sync.write.count", needs="faults", schedules=False)
def test_sixty_percent(t: Kit) -> None:
    """A disk that takes 60 percent and then nothing: the count is short, and the caller can see it."""
    handle, pointer = world(t)
    t.files.script("pwrite_from", [6000, 0])
    t.expect("sync.write.count", t.hipFileWrite(handle, pointer, 10000, 0, 0)[0], {"count": 6000}, "short")


@conformance(
    "sync.fallback.chunks", "sync.fallback.bounce", "sync.fallback.short", "sync.eintr", needs="faults", schedules=False
)
def test_chunks(t: Kit) -> None:
    t.open()
    size = 40 * MIB
    handle, pointer = t.handle(content=size), t.device(size)
    t.files.clear()
    result = t.hipFileRead(handle, pointer, size, 0, 0)
    sizes = [entry[2] for entry in t.files.log if entry[0] == "pread_into"]
    t.expect("sync.fallback.bounce", sizes, {"16 MiB": [16 * MIB, 16 * MIB, 8 * MIB]})
    good = all(t.bytes(pointer + at, 8) == pattern(8, at) for at in range(0, size, 4 * MIB - 8))
    t.expect("sync.fallback.chunks", (result[0], good), {"loop": (size, True)})
    t.files.clear()
    t.files.script("pread_into", [1000, 500, fault(errno.EINTR), 7, None])
    short = t.hipFileRead(handle, pointer, 64 * KIB, 4, 0)
    seen = (short[0], t.bytes(pointer, 64 * KIB) == pattern(64 * KIB, 4), t.files.count("pread_into"))
    t.expect("sync.fallback.short", seen, {"continued": (64 * KIB, True, 5)})
    t.expect("sync.eintr", seen[0], {"repeated": 64 * KIB}, "read")
    t.files.clear()
    t.files.script("pwrite_from", [fault(errno.EINTR), 100, None])
    written = t.hipFileWrite(handle, pointer, 64 * KIB, 0, 0)
    t.expect("sync.eintr", written[0], {"repeated": 64 * KIB}, "write")
    t.expect("sync.fallback.short", written[0], {"continued": 64 * KIB}, "write")
    t.files.clear()
    t.files.script("pread_into", [fault(errno.EINTR)])
    t.expect("sync.eintr", t.hipFileRead(handle, pointer, 0, 0, 0)[0], {"repeated": 0}, "size 0 just ends")


@conformance(
    "sync.error.errno",
    "sync.fallback.partial-error",
    "sync.write.fdatasync",
    "sync.write.fdatasync-failed",
    needs="faults",
    schedules=False,
)
def test_errors(t: Kit) -> None:
    handle, pointer = world(t)
    for code in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
        t.files.script("pread_into", [fault(code)])
        name = errno.errorcode[code]
        t.expect(
            "sync.error.errno",
            io_text(t.hipFileRead(handle, pointer, 16, 0, 0)),
            dict.fromkeys(("-1/errno", "-1/errno or -1/code"), f"-1/{name}"),
            name,
        )
    t.files.clear()
    t.files.script("pread_into", [1000, fault(errno.EIO)])
    partial = io_text(t.hipFileRead(handle, pointer, 64 * KIB, 0, 0))
    t.expect("sync.fallback.partial-error", partial, {"-1/errno": "-1/EIO"}, "read")
    t.files.clear()
    t.files.script("pwrite_from", [1000, fault(errno.ENOSPC)])
    partial = io_text(t.hipFileWrite(handle, pointer, 64 * KIB, 0, 0))
    t.expect("sync.fallback.partial-error", partial, {"-1/errno": "-1/ENOSPC"}, "write")
    t.files.clear()
    t.files.script("pwrite_from", [1000, None])
    t.hipFileWrite(handle, pointer, 64 * KIB, 0, 0)
    t.expect("sync.write.fdatasync", t.files.count("fdatasync"), {"fdatasync a chunk": 2})
    t.files.clear()
    t.files.script("fdatasync", [fault(errno.EIO)])
    failed = io_text(t.hipFileWrite(handle, pointer, 16, 0, 0))
    t.expect("sync.write.fdatasync-failed", failed, {"-1/errno": "-1/EIO"})


@conformance("sync.error.errno", schedules=False)
def test_real_error(t: Kit) -> None:
    """Reading through a descriptor that may only write."""
    t.open()
    pointer = t.buffer(4 * KIB)
    result = t.hipFileRead(t.handle(t.file(flags=os.O_WRONLY)), pointer, 16, 0, 0)
    answers = {"-1/errno": "-1/EBADF", "-1/errno or -1/code": "-1/5019"}
    t.expect("sync.error.errno", io_text(result), answers)


@conformance("sync.negative-offset", "sync.negative-offset.after-lookup", schedules=False)
def test_negative_offsets(t: Kit) -> None:
    handle, pointer = world(t)
    for what, args in (("file", (16, -1, 0)), ("buffer", (16, 0, -1))):
        result = t.hipFileRead(handle, pointer, *args)
        code = "-1/5022" if what == "file" else "-1/5030"
        text = {"-5022": "-5022", "-1/EINVAL": "-1/EINVAL", "-1/5022, or -1/5030 for the buffer": code}
        t.expect("sync.negative-offset", io_text(result), text, what)
    unknown = io_text(t.hipFileRead(t.unknown_handle(), pointer, 16, -1, 0))
    pinned = io_text(t.hipFileRead(handle, t.pinned(16), 16, -1, 0))
    answers = {"lookup first": ("-5027", "-5013"), "range first": ("-1/5022", "-1/5022")}
    t.expect("sync.negative-offset.after-lookup", (unknown, pinned), answers)


@conformance(
    "sync.no-backend",
    "sync.negative-offset.no-fallback",
    "sync.backend.score",
    "sync.fastpath.symbols",
    needs="environment",
    environment=OFF,
    schedules=False,
)
def test_no_backend(t: Kit) -> None:
    handle, pointer = world(t)
    results = [io_text(call(handle, pointer, 16, 1, 0)) for call in (t.hipFileRead, t.hipFileWrite)]
    t.expect("sync.no-backend", results, {"-5030": ["-5030"] * 2})
    t.io("sync.negative-offset.no-fallback", t.hipFileRead(handle, pointer, 16, -1, 0))
    t.expect("sync.backend.score", results[0], {"0, 100, -1": "-5030"}, "both refuse")
    if not t.has("fastpath"):
        aligned = io_text(t.hipFileRead(handle, pointer, 4 * KIB, 0, 0))
        t.expect("sync.fastpath.symbols", aligned, {"off": "-5030"})


@conformance("sync.fallback.accepts", "sync.backend.order", "sync.backend.cached", schedules=False)
def test_fallback_accepts(t: Kit) -> None:
    handle, pointer = world(t)
    odd = [t.hipFileRead(handle, pointer, n, off, at)[0] for n, off, at in ((1, 1, 1), (4095, 4097, 3), (0, 5, 7))]
    moved = [1, 4095, 0]
    t.expect("sync.fallback.accepts", odd, {"device memory": moved, "any offset and size": moved})
    t.expect(
        "sync.backend.order",
        odd[0],
        {"fallback 0, fastpath 100, refusal -1": 1},
        "the fallback where the fastpath refuses",
    )
    if t.has("model"):
        before = t.machine.hipfile.backends
        t.hipFileRead(handle, pointer, 16, 0, 0)
        t.expect("sync.backend.cached", t.machine.hipfile.backends is before, {"once": True})


@conformance("sync.backend.disabled", needs="model", schedules=False)
def test_disabled_in_between(t: Kit) -> None:
    handle, pointer = world(t)
    fallback = t.machine.hipfile.fallback

    class SwitchedOff(Fallback):
        __slots__ = ()

        def score(self, *args: Any) -> int:
            score = super().score(*args)
            self._enabled = False
            return score

    fallback.__class__ = SwitchedOff
    result = io_text(t.hipFileRead(handle, pointer, 16, 0, 0))
    t.expect("sync.backend.disabled", result, {"-5030": "-5030"})


@conformance("sync.fallback.bounce-failed", needs="model", schedules=False)
def test_no_host_memory(t: Kit) -> None:
    handle, pointer = world(t)
    fallback = t.machine.hipfile.fallback

    def refuse(size: int) -> Any:
        raise fault(errno.ENOMEM)

    fallback._spare.clear()
    fallback.allocate = refuse
    result = io_text(t.hipFileRead(handle, pointer, 16, 0, 0))
    t.expect("sync.fallback.bounce-failed", result, {"-1/errno": "-1/ENOMEM"})


@conformance("sync.write.null-sync", needs="model", schedules=False)
def test_write_order(t: Kit) -> None:
    handle, pointer = world(t)
    calls: list[str] = []

    def watch(name: str, args: Sequence[Any]) -> None:
        if name in ("hipMemcpy", "hipStreamSynchronize"):
            calls.append(name)

    def write(fd: int, view: memoryview, offset: int) -> int:
        calls.append("pwrite")
        return os.pwrite(fd, view, offset)

    t.machine.hip.interpose = watch
    t.files.script("pwrite_from", [write])
    t.hipFileWrite(handle, pointer, 16, 0, 0)
    t.machine.hip.interpose = None
    t.expect(
        "sync.write.null-sync",
        calls,
        {"copy, synchronise null, pwrite": ["hipMemcpy", "hipStreamSynchronize", "pwrite"]},
    )


@conformance("sync.fallback.device", needs="devices model", schedules=False)
def test_current_device(t: Kit) -> None:
    t.open()
    handle = t.handle()
    t.ok(t.hipSetDevice(1))
    pointer = t.device(4 * KIB)
    t.ok(t.hipSetDevice(0))
    seen: list[int] = []

    def watch(name: str, args: Sequence[Any]) -> None:
        if name == "hipMemcpy":
            seen.append(int(t.machine.hip.thread.device))

    t.machine.hip.interpose = watch
    t.hipFileRead(handle, pointer, 16, 0, 0)
    t.machine.hip.interpose = None
    after = t.hipGetDevice()[1]
    t.expect("sync.fallback.device", (seen, after), {"no": ([0], 0), "yes, and restored": ([1], 0)})


# ------------------------------------------------------------------------------------------ the fastpath, where it is
@conformance(
    "sync.fastpath.accepts",
    "sync.fastpath.block-device",
    "sync.fastpath.short",
    "sync.fastpath.hip-init",
    "sync.fastpath.clamp",
    "sync.failover",
    "sync.failover.other",
    "sync.failover.fallback-error",
    needs="model fastpath",
    mount="ext4",
    schedules=False,
)
def test_fastpath(t: Kit) -> None:
    handle, pointer = world(t)
    t.files.clear()
    aligned = t.hipFileRead(handle, pointer, 4 * KIB, 4 * KIB, 0)
    direct = [entry[1] for entry in t.files.log if entry[0] == "pread_into"]
    t.expect("sync.fastpath.accepts", (aligned[0], len(direct)), {"all aligned": (4 * KIB, 1)})
    t.files.script("pread_into", [1000])
    t.expect("sync.fastpath.short", t.hipFileRead(handle, pointer, 4 * KIB, 0, 0)[0], {"passed through": 1000})
    for code in (errno.ENODEV, errno.EREMOTEIO):
        t.files.script("pread_into", [fault(code)])
        result = io_text(t.hipFileRead(handle, pointer, 4 * KIB, 0, 0))
        t.expect("sync.failover", result, {"none": f"-1/{errno.errorcode[code]}", "ENODEV, EREMOTEIO": "4096"})
    t.files.script("pread_into", [fault(errno.EIO)])
    t.expect(
        "sync.failover.other", io_text(t.hipFileRead(handle, pointer, 4 * KIB, 0, 0)), {"original error": "-1/EIO"}
    )
