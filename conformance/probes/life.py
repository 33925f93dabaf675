"""Life cycle, implicit initialisation, properties and parameters."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from typing import Any

from hipfile_conformance.probes.lab import KIB, MIB, PROBES, Lab, Slots, probe
from hipfile_conformance.targets.base import BatchOp


@probe
def life_counts(lab: Lab) -> None:
    f = lab.f
    lab.see("count before", f("UseCount"))
    lab.see("version while closed", f("GetVersion"))
    lab.see("close while closed", f("DriverClose"))
    lab.see("count after that", f("UseCount"))
    lab.see("open", f("DriverOpen"))
    lab.see("open again", f("DriverOpen"))
    lab.see("count", f("UseCount"))
    lab.see("close", [f("DriverClose"), f("UseCount")])
    lab.see("close to zero", [f("DriverClose"), f("UseCount")])
    lab.see("close once more", [f("DriverClose"), f("UseCount")])
    lab.see("reopen", [f("DriverOpen"), f("UseCount")])


def _implicit(name: str, act: Callable[[Lab], Any]) -> None:
    def run(lab: Lab) -> None:
        lab.see("gave", act(lab))
        lab.see("count after", lab.f("UseCount"))

    run.__name__ = "implicit_" + name
    PROBES[run.__name__] = run


def _async_closed(lab: Lab, good: bool) -> Any:
    slots = Slots(4096)
    pointer = lab.dev(MIB) if good else 0
    return [lab.read_async(0, pointer, slots, lab.stream()), slots.done]


_implicit("handle_register", lambda lab: lab.f("HandleRegister", (1, lab.file()))[0])
_implicit("handle_register_null", lambda lab: lab.f("HandleRegister", None))
_implicit("handle_register_bad_type", lambda lab: lab.f("HandleRegister", (2, lab.file()))[0])
_implicit("handle_register_userspace", lambda lab: lab.f("HandleRegister", (3, lab.file()))[0])
_implicit("handle_register_garbage_type", lambda lab: lab.f("HandleRegister", (99, lab.file()))[0])
_implicit("handle_register_bad_fd", lambda lab: lab.f("HandleRegister", (1, 9999)))
_implicit("handle_register_negative_fd", lambda lab: lab.f("HandleRegister", (1, -1)))
_implicit("handle_deregister_null", lambda lab: lab.f("HandleDeregister", 0))
_implicit("handle_deregister_garbage", lambda lab: lab.f("HandleDeregister", 0xF11E))
_implicit("buf_register", lambda lab: lab.f("BufRegister", lab.dev(MIB), MIB, 0))
_implicit("buf_register_null", lambda lab: lab.f("BufRegister", 0, MIB, 0))
_implicit("buf_deregister", lambda lab: lab.f("BufDeregister", lab.dev(MIB)))
_implicit("read_null", lambda lab: lab.f("Read", 0, 0, 4096, 0, 0))
_implicit("read_garbage", lambda lab: lab.f("Read", 0xF11E, lab.dev(MIB), 4096, 0, 0))
_implicit("read_async_null", lambda lab: _async_closed(lab, False))
_implicit("read_async_null_handle", lambda lab: _async_closed(lab, True))
_implicit("stream_register", lambda lab: lab.f("StreamRegister", lab.stream(), 0))
_implicit("stream_register_default", lambda lab: lab.f("StreamRegister", 0, 0))
_implicit("stream_deregister", lambda lab: lab.f("StreamDeregister", lab.stream()))
_implicit("batch_setup", lambda lab: lab.f("BatchIOSetUp", 4))
_implicit("batch_submit_bad", lambda lab: lab.f("BatchIOSubmit", 0xF11E, [BatchOp(0, 0, 0, 0, 0, 0)], 0))
_implicit("batch_status_bad", lambda lab: lab.f("BatchIOGetStatus", 0xF11E, 0, 1, 0.0))
_implicit("batch_cancel_bad", lambda lab: lab.f("BatchIOCancel", 0xF11E))
_implicit("batch_cancel_null", lambda lab: lab.f("BatchIOCancel", 0))
_implicit("batch_destroy_null", lambda lab: lab.f("BatchIODestroy", 0))
_implicit("properties", lambda lab: _properties(lab))
_implicit("set_poll_mode", lambda lab: lab.f("DriverSetPollMode", True, 4))
_implicit("set_max_direct", lambda lab: lab.f("DriverSetMaxDirectIOSize", 1024))
_implicit("set_max_cache", lambda lab: lab.f("DriverSetMaxCacheSize", 1024))
_implicit("set_max_pinned", lambda lab: lab.f("DriverSetMaxPinnedMemSize", 1024))
_implicit("get_size_parameters", lambda lab: [lab.f("GetParameterSizeT", n) for n in range(13)])
_implicit("get_bool_parameters", lambda lab: [lab.f("GetParameterBool", n) for n in range(13)])
_implicit("get_string_parameters", lambda lab: [lab.f("GetParameterString", n, 128) for n in range(4)])
_implicit("set_size_parameters", lambda lab: [lab.f("SetParameterSizeT", n, 16) for n in range(13)])
_implicit("set_bool_parameters", lambda lab: [lab.f("SetParameterBool", n, True) for n in range(13)])
_implicit("set_string_parameters", lambda lab: [lab.f("SetParameterString", n, "ERROR") for n in range(4)])
_implicit("stats", lambda lab: [lab.f(n)[0] for n in ("GetStatsL1", "GetStatsL2", "GetStatsL3")])


def _properties(lab: Lab) -> Any:
    status, raw = lab.f("DriverGetProperties")
    words = array("I", raw[:64]).tolist()
    return {"status": status, "words": words}


@probe
def parameters_open(lab: Lab) -> None:
    lab.f("DriverOpen")
    lab.see("properties", _properties(lab))
    lab.see("properties null", lab.t.symbol("hipFileDriverGetProperties")(None).err)
    lab.see("get size", [lab.f("GetParameterSizeT", n) for n in range(13)])
    lab.see("get bool", [lab.f("GetParameterBool", n) for n in range(13)])
    lab.see("get string", [lab.f("GetParameterString", n, 128) for n in range(4)])
    lab.see("get string too short", lab.f("GetParameterString", 0, 1))
    lab.see("set size", [lab.f("SetParameterSizeT", n, 16) for n in range(13)])
    lab.see("set bool", [lab.f("SetParameterBool", n, True) for n in range(13)])
    lab.see("set string", [lab.f("SetParameterString", n, "ERROR") for n in range(4)])
    lab.see("set poll mode", lab.f("DriverSetPollMode", True, 4))
    lab.see(
        "set direct / cache / pinned",
        [lab.f("DriverSetMax" + n, 1024) for n in ("DirectIOSize", "CacheSize", "PinnedMemSize")],
    )
    lab.see("set zero", [lab.f("DriverSetMax" + n, 0) for n in ("DirectIOSize", "CacheSize", "PinnedMemSize")])
    for name in ("GetStatsL1", "GetStatsL2", "GetStatsL3"):
        lab.see(name, lab.f(name)[0])


@probe
def life_reopen(lab: Lab) -> None:
    f = lab.f
    handle, pointer, _ = lab.warm()
    stream = lab.stream()
    lab.see("register buffer, stream", [f("BufRegister", pointer, 4 * MIB, 0), f("StreamRegister", stream, 0)])
    while f("UseCount") > 0:
        lab.see("close", [f("DriverClose"), f("UseCount")])
    lab.see("read through the old handle while closed", f("Read", handle, pointer, 4096, 0, 0))
    lab.see("count", f("UseCount"))
    lab.see("reopen", [f("DriverOpen"), f("UseCount")])
    lab.see("register stream again", f("StreamRegister", stream, 0))
    lab.see("register buffer again", f("BufRegister", pointer, 4 * MIB, 0))
    lab.see("read through the old handle", f("Read", handle, pointer, 4096, 0, 0))


@probe
def life_close_in_flight(lab: Lab) -> None:
    handle, pointer, _ = lab.warm()
    stream, slots = lab.stream(), Slots(MIB)
    hold = lab.t.hold(stream)
    lab.see("submit", lab.read_async(handle, pointer, slots, stream))
    lab.see("close", lab.blocked(lambda: lab.f("DriverClose"), hold))
    lab.see("count", lab.f("UseCount"))
    lab.see("synchronise", lab.h("StreamSynchronize", stream))
    lab.see("done", slots.done)


@probe
def life_threads(lab: Lab) -> None:
    """64 threads register from the closed state."""
    fds = [lab.file(4096) for _ in range(32)]
    pointers = [lab.dev(64 * KIB) for _ in range(32)]
    results: list[Any] = []
    jobs: list[Any] = [lambda fd=fd: lab.f("HandleRegister", (1, fd))[0] for fd in fds]
    jobs += [lambda p=p: lab.f("BufRegister", p, 64 * KIB, 0) for p in pointers]

    def work(job: Callable[..., Any]) -> None:
        lab.h("SetDevice", 0)
        results.append(job())

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lab.see("codes", sorted({str(r) for r in results}))
    lab.see("count", lab.f("UseCount"))
