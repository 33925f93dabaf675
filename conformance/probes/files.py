"""Files and buffers."""

from __future__ import annotations

import ctypes as C
import fcntl
import os
from pathlib import Path

from hipfile_conformance.probes.lab import MIB, Lab, Slots, probe


@probe
def file_register(lab: Lab) -> None:
    lab.f("DriverOpen")
    fd = lab.file()
    before = set(os.listdir("/proc/self/fd"))
    lab.see("register", lab.f("HandleRegister", (1, fd))[0])
    after = set(os.listdir("/proc/self/fd"))
    lab.see(
        "new descriptors",
        [os.readlink(f"/proc/self/fd/{n}") for n in sorted(after - before) if os.path.exists(f"/proc/self/fd/{n}")],
    )
    lab.see("the same fd again", lab.f("HandleRegister", (1, fd))[0])
    lab.see("a dup of it", lab.f("HandleRegister", (1, os.dup(fd)))[0])
    lab.see("opened with O_DIRECT", lab.f("HandleRegister", (1, lab.file(flags=os.O_RDWR | os.O_DIRECT)))[0])
    lab.see("read only", lab.f("HandleRegister", (1, lab.file(flags=os.O_RDONLY)))[0])
    lab.see("write only", lab.f("HandleRegister", (1, lab.file(flags=os.O_WRONLY)))[0])
    lab.see("append", lab.f("HandleRegister", (1, lab.file(flags=os.O_RDWR | os.O_APPEND)))[0])
    lab.see("empty file", lab.f("HandleRegister", (1, lab.file(0)))[0])


@probe
def file_register_odd(lab: Lab) -> None:
    lab.f("DriverOpen")
    lab.see("directory", lab.f("HandleRegister", (1, os.open(lab.folder, os.O_RDONLY)))[0])
    lab.see("dev null", lab.f("HandleRegister", (1, os.open("/dev/null", os.O_RDWR)))[0])
    lab.see("pipe", lab.f("HandleRegister", (1, os.pipe()[0]))[0])
    if os.path.isdir("/dev/shm"):
        lab.see("tmpfs", lab.f("HandleRegister", (1, os.open("/dev/shm/x", os.O_RDWR | os.O_CREAT)))[0])
    lab.see("memfd", lab.f("HandleRegister", (1, os.memfd_create("x")))[0])
    lab.see("proc", lab.f("HandleRegister", (1, os.open("/proc/version", os.O_RDONLY)))[0])
    path = lab.path()
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.unlink(path)
    lab.see("unlinked", lab.f("HandleRegister", (1, fd))[0])
    lab.see("closed fd", lab.f("HandleRegister", (1, 9999))[0])
    lab.see("negative fd", lab.f("HandleRegister", (1, -1))[0])
    for kind in (0, 2, 3, 99):
        lab.see(f"type {kind}", lab.f("HandleRegister", (kind, fd))[0])
    lab.see("null descr", lab.f("HandleRegister", None))


@probe
def file_deregister(lab: Lab) -> None:
    handle, pointer, fd = lab.warm()
    flags = __import__("fcntl").fcntl(fd, 3)
    position = os.lseek(fd, 0, 1)
    lab.f("Read", handle, pointer, 4096, 8192, 0)
    lab.see("flags and position unchanged", [flags == __import__("fcntl").fcntl(fd, 3), position == os.lseek(fd, 0, 1)])
    lab.f("HandleDeregister", handle)
    lab.see("the client's fd is open", os.fstat(fd).st_size)
    lab.see("register again", lab.f("HandleRegister", (1, fd))[0])
    lab.see("read through the old handle", lab.f("Read", handle, pointer, 4096, 0, 0))
    lab.f("HandleDeregister", handle)
    lab.see("twice", "returned")
    lab.f("HandleDeregister", 0)
    lab.see("null", "returned")


@probe
def file_closed_descriptor(lab: Lab) -> None:
    handle, pointer, fd = lab.warm()
    stream, slots = lab.stream(), Slots(4096, 4096)
    os.close(fd)
    lab.see("sync read", lab.f("Read", handle, pointer, 4096, 8192, 0))
    lab.see("words", lab.words(pointer))
    lab.see("async read", lab.read_async(handle, pointer, slots, stream))
    lab.see("synchronise", lab.h("StreamSynchronize", stream))
    lab.see("done", slots.done)
    path = lab.path()
    Path(path).write_bytes(b"\x11" * 65536)
    again = os.open(path, os.O_RDWR)
    if again != fd:  # a lower number was free too
        again = fcntl.fcntl(again, fcntl.F_DUPFD, fd)
    lab.see("reused number", again == fd)
    lab.see("sync read after reuse", lab.f("Read", handle, pointer, 4096, 8192, 0))
    lab.see("words after reuse", lab.words(pointer))
    lab.see("register the reused number", lab.f("HandleRegister", (1, again))[0])


@probe
def file_close_in_flight(lab: Lab) -> None:
    handle, pointer, fd = lab.warm()
    stream, slots = lab.stream(), Slots(4096, 4096)
    hold = lab.t.hold(stream)
    lab.see("submit", lab.read_async(handle, pointer, slots, stream))
    os.close(fd)
    hold.release()
    lab.see("synchronise", lab.h("StreamSynchronize", stream))
    lab.see("done", slots.done)
    lab.see("words", lab.words(pointer))


@probe
def file_modes(lab: Lab) -> None:
    _, pointer, _ = lab.warm()
    read_only, write_only = lab.handle(lab.file(flags=os.O_RDONLY)), lab.handle(lab.file(flags=os.O_WRONLY))
    lab.see("write to read only", lab.f("Write", read_only, pointer, 4096, 0, 0))
    lab.see("read from write only", lab.f("Read", write_only, pointer, 4096, 0, 0))
    stream, slots = lab.stream(), Slots(4096)
    lab.see("async write to read only", lab.write_async(read_only, pointer, slots, stream))
    lab.see("synchronise, done", [lab.h("StreamSynchronize", stream), slots.done])
    slots = Slots(4096)
    lab.see("async read from write only", lab.read_async(write_only, pointer, slots, stream))
    lab.see("synchronise, done", [lab.h("StreamSynchronize", stream), slots.done])
    path = lab.path()
    Path(path).write_bytes(b"\x01" * 100)
    lab.see("append: register", lab.f("HandleRegister", (1, os.open(path, os.O_RDWR | os.O_APPEND)))[0])


@probe
def buffer_register(lab: Lab) -> None:
    f = lab.f
    f("DriverOpen")
    p = lab.dev(4 * MIB)
    lab.see("whole", f("BufRegister", p, 4 * MIB, 0))
    lab.see("again", f("BufRegister", p, 4 * MIB, 0))
    lab.see("again, shorter", f("BufRegister", p, MIB, 0))
    lab.see("interior, overlapping", f("BufRegister", p + MIB, MIB, 0))
    lab.see("deregister", f("BufDeregister", p))
    lab.see("twice", f("BufDeregister", p))
    lab.see("interior still there", f("BufDeregister", p + MIB))
    lab.see("unaligned interior", f("BufRegister", p + 3, 4096, 0))
    lab.see("flags 1", [f("BufRegister", p + 2 * MIB, 4096, 1), f("BufDeregister", p + 2 * MIB)])
    lab.see("flags 0xff", [f("BufRegister", p + 2 * MIB, 4096, 0xFF), f("BufDeregister", p + 2 * MIB)])
    lab.see("flags -1", [f("BufRegister", p + 2 * MIB, 4096, -1), f("BufDeregister", p + 2 * MIB)])
    lab.see("length 0", f("BufRegister", p + 3 * MIB, 0, 0))
    lab.see("length 0 deregister", f("BufDeregister", p + 3 * MIB))
    lab.see("too long", f("BufRegister", p, 8 * MIB, 0))
    lab.see("too long from the interior", f("BufRegister", p + MIB, 4 * MIB, 0))
    lab.see("huge", f("BufRegister", p, (1 << 64) - 1, 0))
    lab.see("null", f("BufRegister", 0, 4096, 0))
    lab.see("null deregister", f("BufDeregister", 0))
    lab.see("garbage pointer", f("BufRegister", 0x1234000, 4096, 0))


@probe
def buffer_kinds(lab: Lab) -> None:
    f = lab.f
    f("DriverOpen")
    fd = lab.file()
    handle = lab.handle(fd)
    host = C.create_string_buffer(MIB)
    kinds = {"plain host": C.addressof(host), "pinned": lab.pinned(MIB), "managed": lab.h("MallocManaged", MIB, 1)[1]}
    stream = lab.stream()
    for name, pointer in kinds.items():
        lab.see(f"{name}: register", f("BufRegister", pointer, MIB, 0))
        lab.see(f"{name}: read", f("Read", handle, pointer, 4096, 8192, 0))
        lab.see(f"{name}: word", C.c_uint32.from_address(pointer).value)
        slots = Slots(4096, 4096)
        lab.see(
            f"{name}: async",
            [lab.read_async(handle, pointer, slots, stream), lab.h("StreamSynchronize", stream), slots.done],
        )
        lab.see(f"{name}: word", C.c_uint32.from_address(pointer).value)
        lab.see(f"{name}: deregister", f("BufDeregister", pointer))
        lab.see(f"{name}: unregistered read", f("Read", handle, pointer, 4096, 16384, 0))
        slots = Slots(4096, 4096)
        lab.see(
            f"{name}: unregistered async",
            [lab.read_async(handle, pointer, slots, stream), lab.h("StreamSynchronize", stream), slots.done],
        )


@probe
def buffer_use(lab: Lab) -> None:
    f = lab.f
    handle, p, _ = lab.warm()
    lab.see("register 1 MiB of 4", f("BufRegister", p, MIB, 0))
    lab.see("within", f("Read", handle, p, 4096, 0, MIB - 4096))
    lab.see("offset = length", f("Read", handle, p, 4096, 0, MIB))
    lab.see("offset = length, size 0", f("Read", handle, p, 0, 0, MIB))
    lab.see("past the registered length", f("Read", handle, p, 8192, 0, MIB - 4096))
    lab.see("size past the registered length", f("Read", handle, p, 2 * MIB, 0, 0))
    lab.see("size past the allocation", f("Read", handle, p, 8 * MIB, 0, 0))
    lab.see("interior pointer of it", f("Read", handle, p + 4096, 4096, 4096, 0))
    lab.see("word there", lab.words(p + 4096, 4))
    lab.see("interior pointer, size past the registration", f("Read", handle, p + 4096, 2 * MIB, 0, 0))
    q = lab.dev(MIB)
    lab.see("unregistered", f("Read", handle, q, 4096, 8192, 512))
    lab.see("words", lab.words(q + 512, 4))
    lab.see("unregistered, interior", f("Read", handle, q + 4096, 4096, 0, 0))
    lab.see("unregistered, too long", f("Read", handle, q, 2 * MIB, 0, 0))
    lab.see("unregistered, offset too large", f("Read", handle, q, 4096, 0, 2 * MIB))
    lab.see("null", f("Read", handle, 0, 4096, 0, 0))
    lab.see("garbage pointer", f("Read", handle, 0x1234000, 4096, 0, 0))
    r = lab.dev(MIB)
    lab.h("Free", r)
    lab.see("freed pointer", f("Read", handle, r, 4096, 0, 0))
