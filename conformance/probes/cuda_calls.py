"""The CUDA runtime: host functions, memory, errors, values in memory."""

from __future__ import annotations

import ctypes as C
import threading
import time
from collections.abc import Callable
from typing import Any

from hipfile_conformance.probes.lab import D2H, H2D, MIB, Lab, probe
from hipfile_conformance.targets.base import Hold


@probe
def cuda_host_functions(lab: Lab) -> None:
    h = lab.h
    order: list[int] = []
    stream = lab.stream()
    for i in range(200):
        h("LaunchHostFunc", stream, lambda _, n=i: order.append(n), 0)
    h("StreamSynchronize", stream)
    lab.see("200 in order", order == list(range(200)))
    threads: list[int] = []
    streams = [lab.stream() for _ in range(4)]
    for s in streams:
        h("LaunchHostFunc", s, lambda _: threads.append(threading.get_native_id()), 0)
    h("DeviceSynchronize")
    lab.see("threads of 4 streams", [len(set(threads)), threading.get_native_id() in threads])
    seen: list[Any] = []
    a, b = streams[:2]
    for kind in ("host", "value"):
        hold = lab.t.hold(a, kind)
        h("LaunchHostFunc", b, lambda _: seen.append(1), 0)
        time.sleep(0.3)
        lab.see(f"a stream held by {kind}: another's host function runs", bool(seen))
        hold.release()
        h("DeviceSynchronize")
        seen.clear()
    h("LaunchHostFunc", a, lambda data: seen.append(data), 0x1234)
    h("StreamSynchronize", a)
    lab.see("user data", seen)
    lab.see("null function", lab.t.symbol("hipLaunchHostFunc")(C.c_void_p(a), None, None))
    h("GetLastError")


@probe
def cuda_calls_in_host_function(lab: Lab) -> None:
    h = lab.h
    seen: dict[str, Any] = {}
    stream, idle, event = lab.stream(), lab.stream(), lab.event()
    h("EventRecord", event, idle)
    h("StreamSynchronize", idle)
    p, pin = lab.dev(4096), lab.pinned(4096)

    def inside(_: int) -> None:
        seen["event query, finished"] = h("EventQuery", event)
        seen["stream query"] = h("StreamQuery", idle)
        seen["malloc"] = h("Malloc", 4096)[0]
        seen["free"] = h("Free", 0)
        seen["memcpy async"] = h("MemcpyAsync", p, pin, 16, H2D, idle)
        seen["memset async"] = h("MemsetAsync", p, 0, 16, idle)
        seen["event record"] = h("EventRecord", event, idle)
        seen["event create"] = h("EventCreate")[0]
        seen["stream create"] = h("StreamCreate")[0]
        seen["get device"] = h("GetDevice")
        seen["set device"] = h("SetDevice", 0)
        seen["pointer attributes"] = h("PointerGetAttributes", p)[0]
        seen["mem get info"] = h("MemGetInfo")[0]
        seen["launch host func"] = h("LaunchHostFunc", idle, lambda _: None, 0)
        seen["peek"] = h("PeekAtLastError")
        seen["get last"] = h("GetLastError")
        seen["peek again"] = h("PeekAtLastError")

    h("LaunchHostFunc", stream, inside, 0)
    lab.see("synchronise", h("StreamSynchronize", stream))
    for key, value in seen.items():
        lab.see(key, value)
    lab.see("last error outside", h("PeekAtLastError"))


@probe
def cuda_sync_in_host_function(lab: Lab) -> None:
    seen: list[Any] = []
    stream, idle = lab.stream(), lab.stream()
    lab.h("LaunchHostFunc", stream, lambda _: seen.append(lab.h("StreamSynchronize", idle)), 0)
    lab.see("synchronise an idle stream inside", [lab.h("StreamSynchronize", stream), seen])
    lab.h("LaunchHostFunc", stream, lambda _: seen.append(lab.h("DeviceSynchronize")), 0)
    lab.see("synchronise the device inside", [lab.h("StreamSynchronize", stream), seen])


@probe
def cuda_callback(lab: Lab) -> None:
    seen: list[Any] = []
    stream = lab.stream()
    lab.see(
        "add",
        lab.h("StreamAddCallback", stream, lambda s, status, data: seen.append((s == stream, status, data)), 5, 0),
    )
    lab.see("synchronise", lab.h("StreamSynchronize", stream))
    lab.see("seen", seen)
    lab.see("flags 1", lab.h("StreamAddCallback", stream, lambda *a: None, 5, 1))


@probe
def cuda_last_error(lab: Lab) -> None:
    h = lab.h
    lab.see("start", [h("PeekAtLastError"), h("GetLastError")])
    lab.see("fail", h("SetDevice", 99))
    lab.see("peek, a success, peek", [h("PeekAtLastError"), h("GetDevice"), h("PeekAtLastError")])
    other: list[int] = []
    thread = threading.Thread(target=lambda: other.append(h("PeekAtLastError")))
    thread.start()
    thread.join()
    lab.see("another thread", other)
    lab.see("get, get", [h("GetLastError"), h("GetLastError")])
    h("SetDevice", 99)
    h("Free", 0xDEAD000)
    lab.see("two failures: the last", h("GetLastError"))


@probe
def cuda_memory(lab: Lab) -> None:
    h = lab.h
    lab.see("malloc 0", h("Malloc", 0))
    code, p = h("Malloc", 1 << 50)
    lab.see("malloc too much", [code, p])
    lab.see("pinned 0", h("HostMalloc", 0, 0))
    lab.see("pinned bad flags", h("HostMalloc", 64, 0xF000)[0])
    p = lab.dev(4096)
    lab.see("free null; interior; twice", [h("Free", 0), h("Free", p + 16), h("Free", p), h("Free", p)])
    pin = lab.pinned(4096)
    host = C.create_string_buffer(1 << 16)
    lab.see("free of pinned by hipFree", h("Free", pin))
    p = lab.dev(4096)
    lab.see("free of device by hipHostFree", h("HostFree", p))
    lab.see("free of plain host: device, pinned", [h("Free", C.addressof(host)), h("HostFree", C.addressof(host))])
    lab.see(
        "free pinned null, twice", [h("HostFree", 0), h("HostFree", lab_pin := lab.pinned(64)), h("HostFree", lab_pin)]
    )
    q = lab.dev(4096)
    a = C.addressof(host)
    lab.see("memcpy size 0", [h("Memcpy", q, a, 0, H2D), h("Memcpy", 0, 0, 0, H2D)])
    lab.see("memcpy null dst / src", [h("Memcpy", 0, a, 16, H2D), h("Memcpy", q, 0, 16, H2D)])
    lab.see("memcpy kinds as H2H,H2D,D2H,D2D,default for host to device", [h("Memcpy", q, a, 16, k) for k in (1, 4)])
    lab.see("memcpy bad kind", h("Memcpy", q, a, 16, 9))
    lab.see("memcpy wrong kind: d2h for h2d", h("Memcpy", q, a, 16, D2H))
    lab.see("memcpy past the end", h("Memcpy", q, a, 8192, H2D))
    lab.see("memcpy past the end, far", h("Memcpy", q, a, 1 << 15, H2D))
    lab.see("memset past the end", h("Memset", q, 0, 64 * MIB))
    lab.see("memset null", h("Memset", 0, 0, 16))
    lab.see("memset size 0", h("Memset", q, 0, 0))
    lab.see("memset value 0x1234", [h("Memset", q, 0x1234, 16), lab.bytes(q, 2).hex()])
    lab.see(
        "address range: base, interior, end, host, null",
        [h("MemGetAddressRange", x)[0] for x in (q, q + 100, q + 4096, a, 0)],
    )
    code, base, size = h("MemGetAddressRange", q + 100)
    lab.see("address range interior", [code, base == q, size])
    for name, pointer in {
        "device": q,
        "interior": q + 100,
        "pinned": pin,
        "plain host": a,
        "null": 0,
        "freed": p,
        "garbage": 0x1234,
    }.items():
        lab.see(f"attributes {name}", [h("PointerGetAttributes", pointer), pointer])
    code, managed = h("MallocManaged", 4096, 1)
    lab.see("attributes managed", [h("PointerGetAttributes", managed), managed])
    lab.see("host register, twice", [h("HostRegister", a, 4096, 0), h("HostRegister", a, 4096, 0)])
    lab.see("attributes registered", h("PointerGetAttributes", a))
    lab.see("host unregister, twice", [h("HostUnregister", a), h("HostUnregister", a)])
    lab.see("host register null, size 0", [h("HostRegister", 0, 4096, 0), h("HostRegister", a, 0, 0)])
    lab.see(
        "device pointer of pinned / plain / device", [h("HostGetDevicePointer", x, 0) for x in (lab.pinned(64), a, q)]
    )
    lab.see("mem get info", h("MemGetInfo"))
    lab.see("alignment of allocations", [lab.dev(1) % 512, lab.dev(513) % 512, lab.pinned(1) % 4096])


@probe
def cuda_streams(lab: Lab) -> None:
    h = lab.h
    lab.see("create with flags 2, 7", [h("StreamCreateWithFlags", n)[0] for n in (2, 7)])
    code, s = h("StreamCreate")
    lab.see(
        "plain: flags, priority, device", [h("StreamGetFlags", s), h("StreamGetPriority", s), h("StreamGetDevice", s)]
    )
    lab.see("non-blocking: flags", h("StreamGetFlags", lab.stream(1)))
    lab.see(
        "null: flags, priority, device", [h("StreamGetFlags", 0), h("StreamGetPriority", 0), h("StreamGetDevice", 0)]
    )
    lab.see("legacy and per-thread: flags", [h("StreamGetFlags", 1), h("StreamGetFlags", 2)])
    for priority in (-9, -5, -1, 0, 1):
        code, s = h("StreamCreateWithPriority", 1, priority)
        lab.see(f"priority {priority}", [code, h("StreamGetPriority", s)])
    lab.see("destroy null, legacy, per-thread", [h("StreamDestroy", n) for n in (0, 1, 2)])
    lab.see("query null, legacy, per-thread", [h("StreamQuery", n) for n in (0, 1, 2)])
    lab.see("devices", [h("GetDeviceCount"), h("GetDevice"), h("SetDevice", 99), h("SetDevice", -1)])
    out: list[Any] = []
    thread = threading.Thread(target=lambda: out.append(h("GetDevice")))
    thread.start()
    thread.join()
    lab.see("device of a fresh thread", out)
    lab.see("names", [[h("GetErrorName", n), h("GetErrorString", n)] for n in (0, 1, 2, 101, 400, 600, 800, 99999)])
    lab.see("init flags 0, 1", [h("Init", 0), h("Init", 1)])


@probe
def cuda_stream_use_after_destroy(lab: Lab) -> None:
    stream = lab.stream()
    lab.see("destroy", lab.h("StreamDestroy", stream))
    lab.see("query", lab.h("StreamQuery", stream))
    lab.see("get device", lab.h("StreamGetDevice", stream))
    lab.see("hipFile register", lab.f("StreamRegister", stream, 0))
    lab.see("destroy twice", lab.h("StreamDestroy", stream))


@probe
def cuda_stream_garbage(lab: Lab) -> None:
    lab.see("query of a garbage stream", lab.h("StreamQuery", 0x12345670))


@probe
def cuda_stream_destroy_pending(lab: Lab) -> None:
    stream, p = lab.stream(), lab.pinned(64)
    d = lab.dev(64, 0x11)
    hold = lab.t.hold(stream)
    lab.h("MemcpyAsync", p, d, 64, D2H, stream)
    lab.see("destroy with work pending", lab.blocked(lambda: lab.h("StreamDestroy", stream)))
    lab.see("not yet", C.c_uint8.from_address(p).value)
    hold.release()
    lab.h("DeviceSynchronize")
    time.sleep(0.1)
    lab.see("the work completed", C.c_uint8.from_address(p).value)


@probe
def cuda_values(lab: Lab) -> None:
    h = lab.h
    stream, cell = lab.stream(), lab.pinned(64)
    word = C.c_uint64.from_address(cell)
    lab.see("write 64", [h("StreamWriteValue64", stream, cell, 77, 0), h("StreamSynchronize", stream), word.value])
    lab.see("write 32", [h("StreamWriteValue32", stream, cell, 5, 0), h("StreamSynchronize", stream), word.value])
    for name, flag, start, target in (
        ("gte", 0, 4, 5),
        ("eq", 1, 4, 5),
        ("and", 2, 2, 1),
        ("nor", 3, (1 << 64) - 1, 0),
    ):
        word.value = start
        other = lab.stream()
        code = h("StreamWaitValue64", other, cell, max(target, 1), flag, (1 << 64) - 1)
        lab.h("StreamQuery", other)
        time.sleep(0.05)
        waiting = h("StreamQuery", other)
        word.value = {"gte": 9, "eq": 5, "and": 3, "nor": 0}[name]
        time.sleep(0.05)
        lab.see(name, [code, waiting, h("StreamQuery", other)])
        h("GetLastError")
        if h("StreamQuery", other):
            word.value = 0
    lab.see(
        "bad pointer: null, plain host, misaligned",
        [
            h("StreamWaitValue64", stream, 0, 1, 0, 1),
            h("StreamWaitValue64", stream, cell + 1, 1, 0, 1),
            h("StreamWriteValue64", stream, 0, 1, 0),
        ],
    )


@probe
def cuda_queue_depth(lab: Lab) -> None:
    stream = lab.stream()
    p, event = lab.dev(64), lab.event(2)
    for what, act in {
        "memset": lambda: lab.h("MemsetAsync", p, 0, 64, stream),
        "event record": lambda: lab.h("EventRecord", event, stream),
        "host function": lambda: lab.h("LaunchHostFunc", stream, lambda _: None, 0),
    }.items():
        hold = lab.t.hold(stream)
        counted = [0]

        def submit(act: Callable[[], Any] = act, hold: Hold = hold, counted: list[int] = counted) -> None:
            for _ in range(5000):
                if hold.released:
                    break
                act()
                counted[0] += 1

        thread = threading.Thread(target=submit, daemon=True)
        thread.start()
        last = -1
        for _ in range(40):
            time.sleep(0.1)
            if counted[0] == last:
                break
            last = counted[0]
        lab.see(f"{what}: queued before the call blocks", counted[0])
        hold.release()
        thread.join(5)
        lab.h("DeviceSynchronize")
