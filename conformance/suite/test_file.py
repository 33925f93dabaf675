"""Files: registration, the second descriptor, deregistration, and descriptors that the caller closes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from typing import Any

from hipfile_conformance.kit import KIB, Kit, Slots, io_text, pattern
from hipfile_conformance.scripted import fault
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import Status
from hipfile_conformance.targets.sim import SimTarget
from hipfile_sim.driver.fileops import FileInfo

O_DIRECT = os.O_DIRECT


def register(t: Kit, fd: int, kind: int = 1) -> Status:
    return Status(*t.hipFileHandleRegister((kind, fd))[0])


def descriptors(fd: int) -> set[int]:
    """This process's descriptors of the file behind `fd`, itself among them."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them is closed by now
            if os.path.sameopenfile(int(name), fd):
                found.add(int(name))
    return found


@conformance("file.register.null", "file.register.type", "file.register.inspect", schedules=False)
def test_register_refused(t: Kit) -> None:
    t.open()
    t.code("file.register.null", Status(*t.hipFileHandleRegister(None)[0]))
    fd = t.file()
    for kind in (2, 3):
        t.code("file.register.type", register(t, fd, kind), f"type {kind}")
    for bad in (9999, -1):
        t.code("file.register.inspect", register(t, bad), f"fd {bad}")


@conformance("file.register.type", schedules=False)
def test_odd_types(t: Kit) -> None:
    """Types that are none."""
    t.open()
    fd = t.file()
    for kind in (0, 99, -7):
        t.code("file.register.type", register(t, fd, kind), f"type {kind}")


@conformance("file.register.order", needs="model", fresh=True, schedules=False)
def test_register_order(t: Kit) -> None:
    fd = t.file()
    steps = []
    for name, code, count in (
        ("null", Status(*t.hipFileHandleRegister(None)[0]).err, 0),
        ("type", register(t, 9999, 2).err, 0),
        ("inspect", register(t, 9999).err, 0),
    ):
        steps.append((name, code, t.hipFileUseCount() == count))
    t.ok(t.hipFileHandleRegister((1, fd)))
    t.files.script("inspect", [fault(errno.EIO)])
    steps.append(("inspect before duplicate", register(t, fd).err, True))
    steps.append(("duplicate", register(t, fd).err, t.hipFileUseCount() == 1))
    expected = [
        ("null", 5022, True),
        ("type", 5008, True),
        ("inspect", 5030, True),
        ("inspect before duplicate", 5030, True),
        ("duplicate", 5028, True),
    ]
    t.expect("file.register.order", steps, {"null, type, inspect, init, duplicate": expected})


@conformance("file.register.duplicate", "file.register.same-file", schedules=False)
def test_duplicates(t: Kit) -> None:
    t.open()
    path = t.path()
    fd = t.file(path=path)
    t.handle(fd)
    before = descriptors(fd)
    t.code("file.register.duplicate", register(t, fd))
    t.expect("file.register.duplicate", descriptors(fd) - before, set(), "descriptors left behind")
    twin, other = t.keep_fd(os.dup(fd)), t.keep_fd(os.open(path, os.O_RDWR))
    handles = {t.handle(twin), t.handle(other)}
    t.expect("file.register.same-file", len(handles), {"two handles": 2})


@conformance("file.dio.reads", needs="model", schedules=False)
def test_smaller_read_alignment(t: Kit) -> None:
    """The kernel reports that reads could do with less; the library goes by the alignment of writes."""
    t.open()

    def change(info: FileInfo) -> FileInfo:
        return info._replace(dio_mem_align=4, dio_offset_align=4096, dio_read_offset_align=512)

    t.files.script("inspect", [change])
    file = t.machine.hipfile.state.files.lookup(t.handle())
    assert file is not None
    t.expect("file.dio.reads", file.dio_offset_align, {"not used": 4096}, variants=(512,))


@conformance("file.register.fs-ops", schedules=False)
def test_callbacks_ignored(t: Kit) -> None:
    """A plain descriptor registers and reads, whatever stands behind the callbacks (a null here)."""
    t.open()
    handle, pointer = t.handle(), t.buffer(4 * KIB)
    count = t.hipFileRead(handle, pointer, 16, 0, 0)[0]
    t.expect("file.register.fs-ops", count, {"ignored": 16, "copied back": 16})


@conformance("file.register.caller-untouched", "file.deregister.caller-open", schedules=False)
def test_caller_descriptor(t: Kit) -> None:
    t.open()
    fd = t.file(64 * KIB)
    os.lseek(fd, 123, os.SEEK_SET)
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    handle, pointer = t.handle(fd), t.buffer(4 * KIB)
    t.hipFileRead(handle, pointer, 100, 8 * KIB, 0)
    same = (fcntl.fcntl(fd, fcntl.F_GETFL) == flags, os.lseek(fd, 0, os.SEEK_CUR))
    t.expect("file.register.caller-untouched", same, {"unchanged": (True, 123)})
    t.hipFileHandleDeregister(handle)
    t.expect("file.deregister.caller-open", os.fstat(fd).st_size, {"open": 64 * KIB})


@conformance(
    "file.register.one-descriptor", "file.deregister.owned-closed", needs="model", mount="ext4", schedules=False
)
def test_one_descriptor(t: Kit) -> None:
    t.open()
    fd = t.file()
    handle = t.handle(fd)
    extra = descriptors(fd) - {fd}
    t.expect("file.register.one-descriptor", len(extra), {"1": 1})
    t.hipFileHandleDeregister(handle)
    t.expect("file.deregister.owned-closed", descriptors(fd) & extra, {"closed": set()})


@conformance("file.register.mount-refused", "file.mount.unknown", schedules=False)
def test_tmpfs(t: Kit) -> None:
    t.need(os.path.isdir("/dev/shm"), "there is no tmpfs at /dev/shm")
    t.open()
    path = f"/dev/shm/conformance-{os.getpid()}-{id(t):x}"
    fd = t.keep_fd(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    os.unlink(path)
    os.write(fd, pattern(64))
    status = register(t, fd)
    t.expect("file.register.mount-refused", status.err, {"registers": 0, "HandleNotRegistered": 5027})
    memory = t.keep_fd(os.memfd_create("conformance"))  # on a mount that no table lists
    t.expect("file.mount.unknown", register(t, memory).err, {"Success": 0, "HandleNotRegistered": 5027})


@conformance("file.handle", "submit.file-unknown", "sync.file-unknown")
def test_unknown_handles(t: Kit) -> None:
    t.open()
    pointer, gone, stream = t.buffer(4 * KIB), t.unknown_handle(), t.stream()
    slots = Slots(16)
    status = t.read(gone, pointer, slots, stream)
    t.finish(stream)
    t.expect("file.handle", status.err, {"HandleNotRegistered": 5027, "Success": 0})
    answers = {"HandleNotRegistered": (5027, 77), "Success; bytes_done -5027": (0, -5027)}
    t.expect("submit.file-unknown", (status.err, slots.done), answers)
    read = t.hipFileRead(gone, pointer, 16, 0, 0)
    t.expect("sync.file-unknown", io_text(read), {"-5027": "-5027", "-1/5027": "-1/5027"})
    if t.has("model"):
        for wild in (1, 0xF11E, (1 << 64) - 1):
            t.expect(
                "file.handle",
                t.read(wild, pointer, Slots(16), stream).err,
                {"HandleNotRegistered": 5027, "Success": 0},
                hex(wild),
            )


@conformance(
    "file.inspect",
    "file.second.direct",
    "file.second.buffered",
    "file.second.flags",
    needs="model",
    mount="ext4",
    schedules=False,
)
def test_second_descriptor(t: Kit) -> None:
    t.open()
    plain = t.file(flags=os.O_RDWR | os.O_SYNC)
    t.files.clear()
    t.handle(plain)
    t.expect("file.inspect", t.files.count("inspect"), {"once": 1})
    [(_, fd, flags)] = [entry for entry in t.files.log if entry[0] == "reopen"]
    t.expect(
        "file.second.buffered", (fd, bool(flags & O_DIRECT)), {"buffered = caller's, unbuffered = own": (plain, True)}
    )
    carried = (bool(flags & os.O_SYNC), flags & os.O_ACCMODE, bool(flags & os.O_CLOEXEC))
    t.expect("file.second.flags", carried, {"flags carried over, O_CLOEXEC": (True, os.O_RDWR, True)})
    t.files.clear()
    direct = t.file(flags=os.O_RDWR | O_DIRECT)
    t.handle(direct)
    [(_, fd, flags)] = [entry for entry in t.files.log if entry[0] == "reopen"]
    t.expect(
        "file.second.direct", (fd, bool(flags & O_DIRECT)), {"unbuffered = caller's, buffered = own": (direct, False)}
    )
    t.expect(
        "file.second.flags", bool(flags & os.O_CLOEXEC), {"flags carried over, O_CLOEXEC": True}, "of a direct one"
    )
    t.files.script("reopen", [fault(errno.EINVAL)])
    refused = register(t, t.file(flags=os.O_RDWR | O_DIRECT)).err
    t.expect("file.second.direct", refused, {"unbuffered = caller's, buffered = own": 5030}, "its open fails")


@conformance("file.second.einval", "file.second.other-errno", "file.dio.refused", needs="model", schedules=False)
def test_direct_refused(t: Kit) -> None:
    t.open()
    t.files.script("reopen", [fault(errno.EINVAL)])
    fd = t.file()
    status, handle = t.hipFileHandleRegister((1, fd))
    seen = (Status(*status).err, len(descriptors(fd) - {fd}))
    t.expect("file.second.einval", seen, {"Success, no unbuffered descriptor": (0, 0)})
    file = t.machine.hipfile.state.files.lookup(handle)
    assert file is not None
    t.expect("file.dio.refused", (file.dio_mem_align, file.dio_offset_align), {"0, 0": (0, 0)})
    for code in (errno.EACCES, errno.EMFILE, errno.EIO):
        t.files.script("reopen", [fault(code)])
        t.code("file.second.other-errno", register(t, t.file()), errno.errorcode[code])


def alignments(t: Kit, mem: int | None, offset: int | None) -> tuple[int, int]:
    def change(info: FileInfo) -> FileInfo:
        return info._replace(dio_mem_align=mem, dio_offset_align=offset)

    t.files.script("inspect", [change])
    handle = t.handle()
    file = t.machine.hipfile.state.files.lookup(handle)
    assert file is not None
    return file.dio_mem_align, file.dio_offset_align


@conformance("file.dio.reported", "file.dio.default", needs="model", schedules=False)
def test_alignments(t: Kit) -> None:
    t.open()
    t.expect("file.dio.reported", alignments(t, 512, 1024), {"statx": (512, 1024)})
    t.expect("file.dio.default", alignments(t, None, None), {"4096, 4096": (4096, 4096)})


@conformance("file.mount.error", "file.mount.device", needs="model", schedules=False)
def test_mount_table(t: Kit) -> None:
    t.open()
    mounts = t.machine.hipfile.state.files.mounts
    asked: list[FileInfo] = []

    class Watched:
        needs_path = False

        def lookup(self, info: FileInfo, path: str | None = None) -> object:
            asked.append(info)
            return mounts.lookup(info, path)

    t.machine.hipfile.state.files.mounts = Watched()  # type: ignore[assignment]
    fd = t.file()
    t.handle(fd)
    t.expect("file.mount.device", [info.dev for info in asked], {"by device number": [os.fstat(fd).st_dev]})

    class Broken:
        needs_path = False

        def lookup(self, info: FileInfo, path: str | None = None) -> object:
            raise OSError(errno.ENOMEM, "no memory")

    t.machine.hipfile.state.files.mounts = Broken()  # type: ignore[assignment]
    t.code("file.mount.error", register(t, t.file()))


def takes_fastpath(t: Kit, mount: str) -> bool:
    """Does an aligned read through a file on `mount` go to the library's direct descriptor?"""
    world = SimTarget(t.target.directory, release=t.release, options={"mount": mount})
    inner = Kit(world, t.release)
    try:
        inner.open()
        fd = inner.file(64 * KIB)
        handle, pointer = inner.handle(fd), inner.device(4096)
        world.files.clear()
        inner.hipFileRead(handle, pointer, 4096, 0, 0)
        used = [entry[1] for entry in world.files.log if entry[0] == "pread_into"]
        return bool(used) and used[0] != fd
    finally:
        inner.cleanup()
        world.close()


@conformance("file.mount.ext4-data", "file.mount.fastpath", needs="model", schedules=False)
def test_file_systems(t: Kit) -> None:
    """What the library makes of the mount below a registered file."""
    ext4 = {"ext4": "ordered", "ext4-ordered": "ordered", "ext4-journal": "journal", "ext4-writeback": "writeback"}
    modes, direct = {}, {}
    for name in (*ext4, "ext4-other", "xfs", "btrfs", "tmpfs", "overlay"):
        world = SimTarget(t.target.directory, release=t.release, options={"mount": name})
        inner = Kit(world, t.release)
        try:
            status, handle = inner.hipFileHandleRegister((1, inner.file()))
            if Status(*status).err:
                continue
            file = world.machine.hipfile.state.files.lookup(handle)
            assert file is not None
            assert file.mount is not None
            modes[name], direct[name] = file.mount.ext4_data, file.mount.fastpath_supported
        finally:
            inner.cleanup()
            world.close()
    seen = {name: modes.get(name) for name in (*ext4, "ext4-other")}
    t.expect("file.mount.ext4-data", seen, {"ordered if absent": {**ext4, "ext4-other": "other"}})
    good = {name: name in ("ext4", "ext4-ordered", "xfs") for name in direct}
    t.expect("file.mount.fastpath", direct, {"ext4 ordered, xfs, block device": good})


@conformance("file.mount.fastpath", "sync.fastpath.accepts", needs="model fastpath", schedules=False)
def test_fastpath_file_systems(t: Kit) -> None:
    seen = {
        m: takes_fastpath(t, m) for m in ("ext4", "ext4-journal", "ext4-writeback", "xfs", "btrfs", "tmpfs", "overlay")
    }
    good = {name: name in ("ext4", "xfs") for name in seen}
    t.expect("file.mount.fastpath", seen, {"ext4 ordered, xfs, block device": good}, "transfers")
    t.expect("sync.fastpath.accepts", (seen["ext4"], seen["btrfs"]), {"all aligned": (True, False)}, "file system")


@conformance("file.access.read-only", "file.access.append", schedules=False)
def test_access_modes(t: Kit) -> None:
    t.open()
    pointer = t.buffer(4 * KIB)
    result = t.hipFileWrite(t.handle(t.file(flags=os.O_RDONLY)), pointer, 16, 0, 0)
    t.io("file.access.read-only", result)
    path = t.path()
    fd = t.file(b"\x01" * 100, flags=os.O_RDWR | os.O_APPEND, path=path)
    status, handle = t.hipFileHandleRegister((1, fd))
    code = Status(*status).err
    size = os.path.getsize(path)
    if code == 0:
        t.hipFileWrite(handle, pointer, 16, 0, 0)
        size = os.path.getsize(path)
    t.expect("file.access.append", (code, size), {"append": (0, 116), "InvalidFileOpenFlag": (5019, 100)})


@conformance("file.access.tmpfile", schedules=False)
def test_tmpfile(t: Kit) -> None:
    t.open()
    try:
        fd = t.keep_fd(os.open(t.target.directory, os.O_TMPFILE | os.O_RDWR))
    except OSError as error:
        t.need(False, f"the file system has no O_TMPFILE: {error}")
    t.code("file.access.tmpfile", register(t, fd))


@conformance("file.deregister.silent", "file.deregister.after-sync")
def test_deregister(t: Kit) -> None:
    t.open()
    fd = t.file()
    handle, pointer, stream, slots = t.handle(fd), t.buffer(4 * KIB), t.stream(), Slots(4 * KIB)
    t.hipFileHandleDeregister(0)
    t.ok(t.read(handle, pointer, slots, stream))
    t.finish(stream)
    t.hipFileHandleDeregister(handle)
    t.expect("file.deregister.after-sync", register(t, fd).err, {"deregisters": 0})
    t.hipFileHandleDeregister(handle)
    t.expect("file.deregister.silent", t.hipFileUseCount() > 0, {"nothing": True}, "null and twice")


@conformance("file.deregister.in-use", needs="hold")
def test_deregister_in_use(t: Kit) -> None:
    t.open()
    fd = t.file(64 * KIB)
    handle, pointer, stream, slots = t.handle(fd), t.buffer(4 * KIB), t.stream(), Slots(4 * KIB)
    with t.held(stream):
        t.ok(t.read(handle, pointer, slots, stream))
        waits = t.blocks(lambda: t.hipFileHandleDeregister(handle))
        again = register(t, fd).err if not waits else None
    t.finish(stream)
    answers = {
        "ignored, stays registered": (False, 5028, 4 * KIB),
        "returns at once, the operation ends in full": (False, 0, 4 * KIB),
    }
    t.expect("file.deregister.in-use", (waits, again, slots.done), answers)


@conformance("file.deregister.in-use", needs="hold")
def test_deregister_partly_done(t: Kit) -> None:
    """A file is in use until the last of its operations is complete, however others of them have ended."""
    t.open()
    pointer, quick, slow = t.buffer(8 * KIB), t.stream(), t.stream()
    others: dict[str, Callable[[int], Any]] = {
        "complete": lambda handle: t.read(handle, pointer, Slots(KIB), quick),
        "refused for its range": lambda handle: t.read(handle, pointer, Slots(64 * KIB), quick),
        "synchronous": lambda handle: t.hipFileRead(handle, pointer, KIB, 0, 0),
    }
    answers = {
        "ignored, stays registered": (5028, 4 * KIB),
        "returns at once, the operation ends in full": (0, 4 * KIB),
    }
    for how, other in others.items():
        fd, slots = t.file(64 * KIB), Slots(4 * KIB, 0, 4 * KIB)
        handle = t.handle(fd)
        with t.held(slow):
            t.ok(t.read(handle, pointer, slots, slow))
            other(handle)
            t.finish(quick)
            t.hipFileHandleDeregister(handle)
            again = register(t, fd).err
        t.finish(slow)
        t.expect("file.deregister.in-use", (again, slots.done), answers, f"another one is {how}")


@conformance("file.client-close", "file.client-close.buffered", "file.client-close.reregister", schedules=False)
def test_client_closes_buffered(t: Kit) -> None:
    t.open()
    pointer = t.buffer(4 * KIB)
    fd = t.file(pattern(64 * KIB))
    handle = t.handle(fd)
    os.close(fd)
    t.forget_fd(fd)
    dead = t.hipFileRead(handle, pointer, 7, 1, 0)  # unaligned: the fallback
    other = t.file(b"\x55" * 64 * KIB)
    if other != fd:  # a lower number was free too
        other = t.keep_fd(fcntl.fcntl(other, fcntl.F_DUPFD, fd))
    t.need(other == fd, f"the new file got descriptor {other}, not the freed {fd}")
    reused = t.hipFileRead(handle, pointer, 7, 1, 0)
    seen = (io_text(dead), io_text(reused), t.bytes(pointer, 7) == b"\x55" * 7)
    answers = {"EBADF or the new file": ("-1/EBADF", "7", True), "EPERM or the new file": ("-1/EPERM", "7", True)}
    t.expect("file.client-close.buffered", seen, answers)
    t.expect("file.client-close", seen[1:], {"not detected": ("7", True)})
    t.code("file.client-close.reregister", register(t, other))


@conformance("file.client-close.direct", needs="model", mount="ext4", schedules=False)
def test_client_closes_direct(t: Kit) -> None:
    t.open()
    pointer = t.device(4 * KIB)
    fd = t.file(pattern(64 * KIB), flags=os.O_RDWR | O_DIRECT)
    handle = t.handle(fd)
    os.close(fd)
    t.forget_fd(fd)
    result = t.hipFileRead(handle, pointer, 7, 8, 0)
    seen = (io_text(result), t.bytes(pointer, 7) == pattern(7, 8))
    t.expect("file.client-close.direct", seen, {"old file": ("7", True)})
