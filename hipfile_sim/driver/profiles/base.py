"""What a release decides, as named values and small strategy objects.

Everything that differs between releases is a field here; code asks the profile, never its name.
A new release is one new file in this folder that says ``PROFILE = replace(<base>.PROFILE, name=..., ...)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from hipfile_sim.driver.codes import OpError
from hipfile_sim.hip.codes import MemoryType

__all__ = ["DEFAULT_ASYNC_BUFFER", "ParsedInt", "Profile", "Variable", "parse_from_chars", "parse_strtoul"]

DEFAULT_ASYNC_BUFFER = 16 << 20
"""Bytes of the per-stream bounce buffer of 0.5.0. [env.async-buffer.default]"""

_EMPTY: Mapping[str, Any] = MappingProxyType({})


def _nothing() -> Mapping[str, Any]:
    return _EMPTY


class ParsedInt(NamedTuple):
    """Outcome of parsing a number: `value` is None if the text is ignored; `why` says what happened."""

    value: int | None
    why: str


_ULONG_MAX = (1 << 64) - 1
_C_SPACE = b" \t\n\v\f\r"


def _decimal(digits: bytes) -> int:
    """Value of decimal digits, exact up to 64 bits and merely larger beyond (Python refuses very long ones)."""
    return int(digits.lstrip(b"0")[:32] or b"0")


def parse_strtoul(text: bytes, maximum: int) -> ParsedInt:
    """Parse as ``strtoul(text, &end, 10)`` with the checks around it. [env.int.strtoul]

    Leading C white space and one sign are accepted, ``-1`` wraps to a huge value, an empty text, trailing
    characters and ERANGE are ignored, and what is above `maximum` becomes `maximum`.

    >>> parse_strtoul(b" +5", 2**32 - 1).value, parse_strtoul(b"-1", 2**32 - 1).value, parse_strtoul(b"5 ", 9).value
    (5, 4294967295, None)
    """
    body = text.lstrip(_C_SPACE)
    negative = body[:1] == b"-"
    if body[:1] in (b"-", b"+"):
        body = body[1:]
    digits = len(body) - len(body.lstrip(b"0123456789"))
    if not digits:
        return ParsedInt(None, "ignored: no number")
    if digits != len(body):
        return ParsedInt(None, "ignored: characters after the number")
    value = _decimal(body)
    if value > _ULONG_MAX:
        return ParsedInt(None, "ignored: out of range")
    if negative:
        value = -value & _ULONG_MAX
    if value > maximum:
        return ParsedInt(maximum, "clamped to the largest value of its type")
    return ParsedInt(value, "set")


def parse_from_chars(text: bytes, maximum: int) -> ParsedInt:
    """Parse as ``std::from_chars`` for an unsigned type. [env.int.from-chars]

    No white space and no sign; an empty text and trailing characters are ignored; out of range becomes `maximum`.

    >>> parse_from_chars(b"5", 9).value, parse_from_chars(b"+5", 9).value, parse_from_chars(b"9" * 24, 9).value
    (5, None, 9)
    """
    digits = len(text) - len(text.lstrip(b"0123456789"))
    if not digits:
        return ParsedInt(None, "ignored: no number")
    if digits != len(text):
        return ParsedInt(None, "ignored: characters after the number")
    value = _decimal(text)
    if value > maximum:
        return ParsedInt(maximum, "out of range: the largest value of its type")
    return ParsedInt(value, "set")


class Variable(NamedTuple):
    """An environment variable that the library reads.

    `maximum` is the largest value of its C type (numbers only). `zero_is_default`: 0 stands for the default.
    """

    name: str
    kind: Literal["bool", "uint", "size_t"]
    default: bool | int
    maximum: int = 0
    zero_is_default: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """One release of the library (or cuFile), as values.

    >>> from hipfile_sim.driver.profiles import get_profile
    >>> p = get_profile("0.5")
    >>> p.version, p.async_generation, p.async_bounce, p.negative_offset
    ((0, 5, 0), 'g2', 'per-stream', 'early-einval')
    """

    # -- what it is
    name: str
    version: tuple[int, int, int]
    """What ``hipFileGetVersion`` answers. [life.version]"""
    title: str
    """One line for lists: release, ROCm release."""
    evidence: Literal["high", "medium", "low"]
    """How sure the facts are that this is what the release does."""
    aliases: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    """Profiles whose clause answers hold here unless `answers` says otherwise, nearest first."""
    answers: Mapping[str, str] = field(default_factory=_nothing)
    """Clause id -> answer, where this profile differs from its bases (a new release needs no other file)."""
    vendor: Literal["amd", "nvidia"] = "amd"

    # -- the HIP runtime under it
    hip: Mapping[str, Any] = field(default_factory=_nothing)
    """Overrides of ``HipSettings`` by name."""

    # -- environment (driver/environment.py)
    variables: tuple[Variable, ...]
    parse_int: Callable[[bytes, int], ParsedInt] = parse_strtoul
    force_without_allow: Literal["no-backend", "rescue"] = "no-backend"
    """FORCE=true with ALLOW=false: no backend is left, or the fallback is forced on. [env.force-without-allow]"""
    conflict_message: Literal["stdout", "stderr"] | None = None
    stats_level_max: int | None = None
    """Levels above are clamped to this; None: no clamp is known. [env.stats-level.clamp]"""

    # -- life cycle
    open_from_library_load: bool = False
    """True: singletons are built when the library is loaded; False: by the first call. [life.singletons]"""
    register_init: Literal["after-inspect", "first"] = "after-inspect"
    """When ``hipFileHandleRegister`` opens the driver implicitly. [life.init.handle-register]"""
    closed_buf_deregister: OpError = OpError.hipFileDriverClosing
    """``hipFileBufDeregister`` with the driver closed. [buffer.deregister.closed]"""

    # -- files
    emfile: OpError = OpError.hipFileInternalError
    """Code for EMFILE and ENFILE, anywhere. [error.funnel.emfile]"""
    last_close: Literal["drop", "drain"] = "drop"
    """The last close leaves operations in flight and streams alone, or waits for the operations and forgets streams.
    [life.close.in-flight] [life.close.streams-survive]"""
    inspect_error: OpError = OpError.hipFileInternalError
    """Code for a descriptor that cannot be inspected or opened again. [file.register.inspect]"""
    unknown_mount: OpError | None = None
    """Code for a file whose mount is not found; None: it registers. [file.mount.unknown]"""
    irregular: OpError | None = None
    """Code for what is neither a regular file nor a block device; None: it registers."""
    refused_flags: int = 0
    """Status flags of a descriptor that registration refuses with InvalidFileOpenFlag, before anything is opened.
    [file.access.append] [file.access.tmpfile]"""
    refused_mounts: Mapping[str, OpError] = field(default_factory=_nothing)
    """Mount types that registration refuses, and with what. [file.register.mount-refused]"""
    file_in_use: Literal["keep", "detach"] = "keep"
    """Handle deregistered in flight: silently stays registered, or goes at once and the operation ends well."""

    # -- buffers
    registered_memory: frozenset[MemoryType] = frozenset({MemoryType.hipMemoryTypeDevice})
    """Kinds of memory that ``hipFileBufRegister`` takes. [buffer.register.type]"""
    io_memory: frozenset[MemoryType] = frozenset({MemoryType.hipMemoryTypeDevice})
    """Kinds of memory that I/O takes without a registration. [buffer.io.type-sync] [buffer.io.type-async]"""
    length_zero: OpError | None = None
    """Code for a registration of 0 bytes; None: it registers. [buffer.register.length-zero]"""
    buffer_in_use: Literal["refuse", "wait"] = "refuse"
    """Buffer deregistered in flight: InternalError at once, or wait for the operations."""
    stream_in_use: Literal["leave", "wait"] = "leave"
    """Stream deregistered in flight: gone at once, or wait for the operations. [stream.deregister.in-flight]"""

    # -- synchronous I/O
    backends: tuple[str, ...] = ("fallback", "fastpath")
    """Names in order; the first wins ties. [sync.backend.order]"""
    sync_codes: Literal["negated", "errno"] = "negated"
    """How sync I/O reports a code of the library: negated, or as errno beside -1; with ``errno`` its copies also order
    with no stream. [error.sync.negative] [sync.fallback.memcpy-order]"""
    negative_offset: Literal["range-check", "early-einval"] = "range-check"
    """Where a negative offset of sync I/O is found: the backend's range check, or before selection (-1/EINVAL)."""
    eof_rest: Literal["untouched", "overwritten"] = "untouched"
    """What a short read does to the rest of the range that was asked for. [sync.eof.rest]"""
    sync_failover: bool = False
    """ENODEV and EREMOTEIO of the fastpath are retried on the fallback. [sync.failover]"""
    sync_switches_device: bool = False
    """The sync fallback makes the buffer's GPU current while it copies. [sync.fallback.device]"""
    fallback_sync_chunk: int = 16 << 20
    """Bytes of the sync fallback's bounce buffer. [sync.fallback.bounce]"""

    # -- asynchronous I/O
    async_generation: Literal["g1", "g2", "g3", "cufile"]
    """Which strategy of ``driver/backends`` turns an operation into commands. [submit.generation]"""
    async_bounce: Literal["per-op", "per-stream", "none"]
    """Who owns the pinned bounce buffer of an async fallback operation. [chunk.bounce.owner]"""
    async_selection: bool = False
    """Backends are scored for async operations; False: always the fallback, whatever ALLOW says. [submit.selection]"""
    async_range_check: Literal["submit", "publish"] = "submit"
    """A bad range is refused at submit with InvalidValue, or published: a part at submit, a part by the run."""
    async_range_codes: Mapping[str, int] = field(default_factory=_nothing)
    """With ``publish``: published value by place and cause: ``submit_size``, ``submit_file_offset``,
    ``submit_buffer_offset``, ``run_size``, ``run_file_offset``, ``run_unaligned`` (``driver/ranges.py``)."""
    refused_result: int | None = None
    """What a call refused for null pointers publishes; None: the slot is left alone. [submit.untouched]"""
    unknown_file: Literal["refuse", "publish"] = "refuse"
    """An unknown handle is refused at submit, or published as the result of an accepted call. [submit.file-unknown]"""
    async_device_check: bool = True
    """Buffer's GPU must be the stream's. [submit.device]"""
    fixed_flags: Literal["captured", "promise"] = "captured"
    """Fixed slots are copied at submit, or the flag is only a promise and the slot is still read late. [bind.fixed]"""
    fixed_size_clamped: bool = False
    """A fixed size is clamped to MAX_RW_COUNT when it is captured. [bind.fixed.clamp]"""
    grown_size: Literal["refuse", "use"] = "refuse"
    """Size slot grown after submit: -5022, or the grown size is used. [bind.grown]"""
    page_aligned: Literal["ignored", "checked"] = "ignored"
    """PAGE_ALIGNED_INPUTS: stored and never used, or unaligned values are refused: at submit if all values are fixed
    (-22 published), else by the run."""
    size_zero: Literal["immediate", "enqueued"] = "immediate"
    """Async size 0 on the fallback: nothing is queued, or the operation is. [submit.size-zero]"""
    async_error: int = -1
    """Value published for an I/O error of an async fallback operation. [result.io-error]"""
    async_failover: bool = False
    """The fallback stands behind an async fastpath operation. Unreleased up to 0.5."""

    # -- streams
    stream_flags_mask: int | None = 0xF
    """Accepted flags; None: any. [stream.register.flags]"""

    # -- batch, parameters, statistics
    batch: Literal["stored", "pool", "cufile"] = "stored"
    """Accepted operations are stored and never run, or run on a pool. [batch.generation]"""
    batch_failure: int | None = None
    """Value of the event of a failed operation; None: it says why. [batch.event.result]"""
    parameters: Literal["not-implemented", "implemented"] = "not-implemented"
    stats_api: bool = False
    """``hipFileGetStatsL1/L2/L3`` exist. [stats.api]"""

    @property
    def functions(self) -> tuple[str, ...]:
        """Public functions of this release."""
        from hipfile_sim.driver.clauses.registry import FUNCTIONS, STATS_FUNCTIONS

        return FUNCTIONS + STATS_FUNCTIONS if self.stats_api else FUNCTIONS

    def variable(self, name: str) -> Variable | None:
        """The variable `name` as this release reads it, or None if it does not."""
        for variable in self.variables:
            if variable.name == name:
                return variable
        return None

    def answer(self, clause_id: str) -> str:
        """Answer of this profile to a clause; ``"unspecified"`` where the facts do not say.

        Raises
        ------
        KeyError
            No such clause.
        """
        from hipfile_sim.driver.clauses import get

        clause = get(clause_id)
        if clause_id in self.answers:
            return self.answers[clause_id]
        for name in (self.name, *self.bases):
            if name in clause.answers:
                return clause.answers[name]
        return "unspecified"
