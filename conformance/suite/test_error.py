"""Codes, their texts, and how failures become codes."""

from __future__ import annotations

import errno

from hipfile_conformance.kit import KIB, Kit, Slots
from hipfile_conformance.scripted import fault
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import Status
from hipfile_sim.driver.codes import BASE_ERR, OpError, is_hipfile_err


@conformance("error.values", "error.base", "error.macro", schedules=False)
def test_values(t: Kit) -> None:
    expected = {0} | set(range(5001, 5040)) - {5021, 5032}
    t.expect("error.values", {int(code) for code in OpError}, {"38 values": expected})
    t.expect("error.base", BASE_ERR, {"5000": 5000})
    seen = [n for n in (0, -1, 5000, -5000, 5001, -5022, 5039, 22) if is_hipfile_err(n)]
    t.expect("error.macro", seen, {"abs(x) > 5000": [5001, -5022, 5039]})


@conformance("error.string.known", "error.string.closed", fresh=True, schedules=False)
def test_strings(t: Kit) -> None:
    texts = {int(code): t.hipFileGetOpErrorString(int(code)) for code in OpError}
    t.expect("error.string.known", (all(texts.values()), len(set(texts.values()))), {"text": (True, len(texts))})
    closed = t.hipFileUseCount() == 0
    t.hipFileDriverOpen()
    same = t.hipFileGetOpErrorString(5022) == texts[5022]
    t.expect("error.string.closed", (closed, same), {"text": (True, True)})


@conformance("error.string.unknown", schedules=False)
def test_unknown_strings(t: Kit) -> None:
    for number in (5021, 5032, 5999, 1):
        text = t.hipFileGetOpErrorString(number)
        t.expect("error.string.unknown", text, t.answer("error.string.unknown"), str(number))


@conformance("error.status.pair", "error.funnel.thrown", schedules=False)
def test_status_pairs(t: Kit) -> None:
    t.open()
    pointer = t.buffer(4 * KIB)
    statuses = [
        t.hipFileDriverOpen(),
        t.hipFileBufRegister(pointer, 4 * KIB, 0),
        t.hipFileStreamDeregister(t.stream()),
        t.read(t.handle(), 0, Slots(16), t.stream()),
    ]
    t.expect(
        "error.status.pair",
        [drv for err, drv in statuses if err != 5011],
        {"{code, hipSuccess} or {HipDriverError, e}": [0] * len(statuses)},
    )
    t.expect("error.funnel.thrown", Status(*statuses[1]), {"its code": Status(5023, 0)})


@conformance("error.funnel.hip", needs="model", schedules=False)
def test_hip_failure(t: Kit) -> None:
    t.open()
    t.machine.hip.interpose = lambda name, args: 3 if name == "hipPointerGetAttributes" else None
    status = t.hipFileBufRegister(t.machine.hip.hipMalloc(64)[1], 64, 0)
    t.machine.hip.interpose = None
    t.expect("error.funnel.hip", Status(*status), {"{HipDriverError, e}": Status(5011, 3)})


@conformance("error.funnel.other", "error.funnel.emfile", needs="faults", schedules=False)
def test_registration_fails_inside(t: Kit) -> None:
    t.open()
    t.files.script("inspect", [fault(errno.EIO)])
    t.expect(
        "error.funnel.other",
        Status(*t.hipFileHandleRegister((1, t.file()))[0]),
        {"{InternalError, hipSuccess}": (5030, 0)},
    )
    for code in (errno.EMFILE, errno.ENFILE):
        t.files.script("reopen", [fault(code)])
        t.code("error.funnel.emfile", Status(*t.hipFileHandleRegister((1, t.file()))[0]), errno.errorcode[code])


@conformance("error.sync.negative", "error.sync.errno-success", schedules=False)
def test_synchronous_results(t: Kit) -> None:
    t.open()
    handle, pointer = t.handle(), t.buffer(4 * KIB)
    results = [t.hipFileRead(t.unknown_handle(), pointer, 16, 0, 0), t.hipFileRead(handle, pointer, 1 << 30, 0, 0)]
    negative = all(result[0] < -5000 or (result[0] == -1 and result[1]) for result in results)
    t.expect(
        "error.sync.negative",
        negative,
        dict.fromkeys(("-1/errno or -code", "-1 with errno, which also carries codes"), True),
    )
    good = t.hipFileRead(handle, pointer, 16, 0, 0)
    t.expect("error.sync.errno-success", (good[0], good[1]), {"unchanged": (16, 0)})
