"""The environment: how values are parsed, when they are read, what they switch."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from hipfile_conformance.kit import KIB, MIB, Kit, Slots, io_text
from hipfile_conformance.suite.registry import conformance
from hipfile_conformance.targets.base import Status
from hipfile_sim.driver.environment import resolve

ALLOW = "HIPFILE_ALLOW_COMPAT_MODE"
FORCE = "HIPFILE_FORCE_COMPAT_MODE"
FILES = "HIPFILE_UNSUPPORTED_FILE_SYSTEMS"
STATS = "HIPFILE_STATS_LEVEL"
BUFFER = "HIPFILE_ASYNC_BUFFER_SIZE"
DIGITS = "9" * 24


def value(t: Kit, name: str, text: str | None) -> Any:
    """What this release makes of a text."""
    rows = {row.name: row.value for row in resolve(t.profile, {} if text is None else {name: text})}
    return rows[name]


def switched(t: Kit, text: str | None, name: str = ALLOW) -> bool:
    """Behaviour: does synchronous I/O find a backend in a world with this text?"""
    from hipfile_conformance.targets.sim import SimTarget

    environment = {} if text is None else {name: text}
    target = SimTarget(t.target.directory, release=t.release, environment=environment)
    inner = Kit(target, t.release)
    try:
        inner.open()
        return int(inner.hipFileRead(inner.handle(), inner.device(4 * KIB), 16, 1, 0)[0]) == 16
    finally:
        inner.cleanup()
        target.close()


WORDS = {"true": True, "TRUE": True, "True": True, "tRuE": True, "false": False, "FALSE": False, "fAlSe": False}
NOT_WORDS = ("0", "1", "", "yes", "no", "on", "off", " true", "true ", "\tfalse", "falsee", "f", "junk")


@conformance("env.bool", "env.bool.exact", "env.allow", needs="model", schedules=False)
def test_booleans(t: Kit) -> None:
    seen = {text: switched(t, text) for text in (*WORDS, *NOT_WORDS)}
    words = {text: seen[text] for text in WORDS}
    t.expect(
        "env.bool", words, {"true|false, any case; else the default": WORDS, "not read": dict.fromkeys(WORDS, True)}
    )
    others = {text: seen[text] for text in NOT_WORDS}
    expected = dict.fromkeys(NOT_WORDS, True)
    t.expect("env.bool.exact", others, {"default": expected, "not read": expected})
    t.expect("env.allow", (switched(t, None), seen["false"]), {"true": (True, False), "not read": (True, True)})
    if t.profile.variable(FORCE) is not None:
        force = {text: value(t, FORCE, text) for text in (*WORDS, *NOT_WORDS)}
        wanted = {**WORDS, **dict.fromkeys(NOT_WORDS, False)}
        t.expect("env.bool", force, {"true|false, any case; else the default": wanted}, FORCE)


NUMBERS = (" 5", "\t7", "+5", "-1", "-5")
JUNK = ("", "1abc", "5 ", "abc", "0x10", "1.5", "--1")


@conformance(
    "env.int.strtoul",
    "env.int.from-chars",
    "env.int.junk",
    "env.stats-level.type",
    "env.stats-level.default",
    "env.stats-level.clamp",
    needs="model",
    schedules=False,
)
def test_numbers(t: Kit) -> None:
    name = STATS
    if t.profile.variable(name) is None:
        for clause in (
            "env.int.strtoul",
            "env.int.from-chars",
            "env.int.junk",
            "env.stats-level.type",
            "env.stats-level.default",
            "env.stats-level.clamp",
        ):
            t.expect(clause, value(t, name, "3"), {"not read": None})
        return
    default = value(t, name, None)
    clamp = t.profile.stats_level_max
    top = clamp if clamp is not None else 0xFFFFFFFF
    signs = {text: value(t, name, text) for text in NUMBERS}
    wrapped = {" 5": 5, "\t7": 7, "+5": 5, "-1": 0xFFFFFFFF, "-5": 0xFFFFFFFF}
    ignored = dict.fromkeys(NUMBERS, default)
    t.expect("env.int.strtoul", signs, {"accepted; a negative one wraps": wrapped, "ignored": ignored})
    large = (value(t, name, DIGITS), value(t, name, str(1 << 33)))
    answers = {
        "beyond unsigned long ignored, beyond the type clamped": (default, 0xFFFFFFFF),
        "largest value": (top, top),
    }
    t.expect("env.int.from-chars", large, answers)
    junk = {text: value(t, name, text) for text in JUNK}
    t.expect("env.int.junk", junk, {"default": dict.fromkeys(JUNK, default)})
    t.expect("env.stats-level.type", value(t, name, str(0x100000000)), {"unsigned int": top})
    t.expect("env.stats-level.default", default, {"0": 0, "1": 1})
    t.expect("env.stats-level.clamp", [value(t, name, n) for n in ("2", "3", "4", "99")], {"3": [2, 3, 3, 3]})


@conformance(
    "env.async-buffer.default",
    "env.async-buffer.zero",
    "env.async-buffer.any",
    "env.async-buffer.latched",
    "env.latched",
    needs="model",
    schedules=False,
)
def test_buffer_size(t: Kit) -> None:
    from hipfile_conformance.targets.sim import SimTarget

    def cost(environment: dict[str, str]) -> tuple[int, int]:
        """Pinned bytes of a registered stream, and of a second one after the variable was changed."""
        target = SimTarget(t.target.directory, release=t.release, environment=environment)
        inner = Kit(target, t.release)
        sizes = []
        try:
            for _ in range(2):
                before = {block.base for block in target.machine.memory.live()}
                inner.stream(register=0)
                sizes.append(sum(b.size for b in target.machine.memory.live() if b.base not in before))
                source = target.machine.environment._source
                if isinstance(source, dict):
                    source[BUFFER] = "4096"
        finally:
            target.close()
        return sizes[0], sizes[1]

    default, nothing = 16 * MIB, "not read"
    t.expect("env.async-buffer.default", cost({})[0], {"16 MiB": default, nothing: 0})
    t.expect("env.async-buffer.zero", cost({BUFFER: "0"})[0], {"16 MiB": default, nothing: 0})
    sizes = [cost({BUFFER: text})[0] for text in ("1048576", "65537", "1")]
    t.expect("env.async-buffer.any", sizes, {"as given": [MIB, 65537, 1], nothing: [0, 0, 0]})
    latched = cost({BUFFER: "65536"})
    t.expect("env.async-buffer.latched", latched, {"first stream object": (65536, 65536), nothing: (0, 0)})
    t.expect("env.latched", latched[0] == latched[1], {"once": True})


@conformance("env.async-buffer.overflow", needs="environment", environment={BUFFER: DIGITS}, schedules=False)
def test_buffer_overflow(t: Kit) -> None:
    t.open()
    status = Status(*t.hipFileStreamRegister(t.stream(), 0))
    failed = Status(5011, 2)
    t.expect(
        "env.async-buffer.overflow", status, {"{HipDriverError, hipErrorOutOfMemory}": failed, "not read": Status(0, 0)}
    )
    if status.err:
        slots = Slots(16)
        submit = t.read(t.handle(), t.device(4 * KIB), slots, t.stream())
        t.expect("env.async-buffer.overflow", submit, {"{HipDriverError, hipErrorOutOfMemory}": failed}, "an operation")


@conformance("env.force", "sync.backend.order", needs="environment", environment={FORCE: "true"}, schedules=False)
def test_force(t: Kit) -> None:
    t.open()
    handle, pointer = t.handle(content=64 * KIB), t.device(64 * KIB)
    aligned = t.hipFileRead(handle, pointer, 4 * KIB, 0, 0)[0]
    t.expect("env.force", aligned, {"false": 4 * KIB, "not read": 4 * KIB})
    t.expect("sync.backend.order", aligned, {"fallback 0, fastpath 100, refusal -1": 4 * KIB}, "forced fallback")
    if t.has("model"):
        t.expect("env.force", value(t, FORCE, None), {"false": False, "not read": None}, "default")


BOTH = {FORCE: "true", ALLOW: "false"}


@conformance("env.force-without-allow", needs="environment", environment=BOTH, schedules=False)
def test_force_without_allow(t: Kit) -> None:
    t.open()
    result = io_text(t.hipFileRead(t.handle(), t.device(4 * KIB), 16, 0, 0))
    answers = {"no backend: sync I/O -5030": "-5030", "the fallback is forced on": "16", "not read": "16"}
    t.expect("env.force-without-allow", result, answers)


@conformance("env.force-without-allow.message", needs="model", schedules=False)
def test_conflict_message(t: Kit) -> None:
    """What the conflict prints, once."""
    from hipfile_conformance.targets.sim import SimTarget

    out, err = io.StringIO(), io.StringIO()
    target = SimTarget(t.target.directory, release=t.release, environment=BOTH)
    inner = Kit(target, t.release)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        inner.open()
        handle, pointer = inner.handle(), inner.device(64)
        for _ in range(2):
            inner.hipFileRead(handle, pointer, 16, 0, 0)
    inner.cleanup()
    target.close()
    seen = (len(out.getvalue().splitlines()), len(err.getvalue().splitlines()))
    answers = {"nothing": (0, 0), "a line on stderr": (0, 1), "not read": (0, 0)}
    t.expect("env.force-without-allow.message", seen, answers)


@conformance("env.unsupported-fs", needs="model", schedules=False)
def test_unsupported_file_systems(t: Kit) -> None:
    seen = (value(t, FILES, None), value(t, FILES, "true"))
    t.expect("env.unsupported-fs", seen, {"false": (False, True), "not read": (None, None)})
