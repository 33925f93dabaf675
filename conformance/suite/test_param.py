"""Properties and parameters: not implemented on AMD, real on NVIDIA."""

from __future__ import annotations

from hipfile_conformance.kit import Kit
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import Status
from hipfile_sim.driver.codes import BoolParameter, SizeTParameter, StringParameter

MISSING = "InternalError (not implemented)"


def codes_of(*results: object) -> list[int]:
    """Codes of results that are a status or start with one."""
    found = []
    for result in results:
        status = result[0] if isinstance(result, tuple) and isinstance(result[0], tuple) else result
        found.append(Status(*status).err)  # type: ignore[misc]
    return found


@conformance("param.properties.get", "param.properties.set", "param.not-implemented", schedules=False)
def test_properties(t: Kit) -> None:
    t.open()
    got = codes_of(t.hipFileDriverGetProperties())
    t.expect("param.properties.get", got, {MISSING: [5030], "works": [0]})
    done = codes_of(
        t.hipFileDriverSetPollMode(True, 4),
        t.hipFileDriverSetMaxDirectIOSize(1024),
        t.hipFileDriverSetMaxCacheSize(1024),
        t.hipFileDriverSetMaxPinnedMemSize(1024),
    )
    t.expect("param.properties.set", done, {MISSING: [5030] * 4, "works": [0] * 4})
    t.expect("param.not-implemented", got + done, {MISSING: [5030] * 5, "implemented": [0] * 5}, "open")


@conformance("param.properties.null", needs="c", schedules=False)
def test_properties_null(t: Kit) -> None:
    t.open()
    symbol = t.target.symbol("hipFileDriverGetProperties")  # type: ignore[attr-defined]
    t.hipFileDriverGetProperties()  # binds the result type
    t.expect("param.properties.null", symbol(None).err, {MISSING: 5030, "InvalidValue": 5022})


@conformance("param.get", "param.enums", schedules=False)
def test_get(t: Kit) -> None:
    t.open()
    sizes = codes_of(*(t.hipFileGetParameterSizeT(n) for n in range(12)))
    flags = codes_of(*(t.hipFileGetParameterBool(n) for n in range(12)))
    texts = codes_of(*(t.hipFileGetParameterString(n, 256) for n in (0, 2)))
    t.expect("param.get", sizes + flags + texts, {MISSING: [5030] * 26, "works": [0] * 26})
    numbers = (len(SizeTParameter), len(BoolParameter), len(StringParameter))
    first = (min(SizeTParameter), min(BoolParameter), min(StringParameter))
    t.expect("param.enums", (numbers, first), {"12, 12, 3": ((12, 12, 3), (0, 0, 0))})


@conformance("param.set", "param.no-init", fresh=True, schedules=False)
def test_set_closed(t: Kit) -> None:
    done = codes_of(
        t.hipFileSetParameterSizeT(1, 64), t.hipFileSetParameterBool(0, True), t.hipFileSetParameterString(0, "ERROR")
    )
    t.expect("param.set", done, {MISSING: [5030] * 3, "works": [0] * 3})
    t.expect("param.no-init", t.hipFileUseCount(), {"count stays 0": 0}, "after setting")


@conformance("param.set.open", schedules=False)
def test_set_open(t: Kit) -> None:
    t.open()
    done = codes_of(
        t.hipFileSetParameterSizeT(1, 64), t.hipFileSetParameterBool(0, True), t.hipFileSetParameterString(0, "ERROR")
    )
    t.expect("param.set.open", done, {MISSING: [5030] * 3, "DriverAlreadyOpen": [5026] * 3})


@conformance("param.arguments-ignored", schedules=False)
def test_arguments_ignored(t: Kit) -> None:
    t.open()
    done = codes_of(
        t.hipFileGetParameterSizeT(99),
        t.hipFileSetParameterBool(-1, False),
        t.hipFileGetParameterString(0, 0),
        t.hipFileDriverSetMaxCacheSize(0),
    )
    answers = {"ignored": [5030] * 4, "InvalidValue outside the lists": [5022, 5022, 5022, 0]}
    t.expect("param.arguments-ignored", done, answers)


@conformance("param.properties.layout", needs="c", schedules=False)
def test_properties_layout(t: Kit) -> None:
    """The call writes no byte behind the structure's 72."""
    t.open()
    import ctypes

    room = ctypes.create_string_buffer(b"\xa5" * 128, 128)
    t.hipFileDriverGetProperties()
    t.target.symbol("hipFileDriverGetProperties")(room)  # type: ignore[attr-defined]
    t.expect("param.properties.layout", room.raw[72:] == b"\xa5" * 56, {"72": True}, "bytes behind it are untouched")
