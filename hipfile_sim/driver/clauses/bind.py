"""Clauses of binding: when size and offsets are read, with which flags, and what a late change does."""

from __future__ import annotations

from hipfile_sim.driver.clauses.registry import SAME, Row

_ASYNC = "hipFileReadAsync hipFileWriteAsync"
_FLAGS = f"hipFileStreamRegister {_ASYNC}"


def _flags(flags: int, late: str) -> Row:
    bind = "no bind command" if late == "none" else "bind command"
    return (
        f"bind.flags.{flags:03b}",
        "must",
        "test",
        f"With flags {flags} the slots read when the stream reaches the operation are: {late}.",
        f"{bind}; late: {late}",
        "late: size, file offset, buffer offset",
        _FLAGS,
        "The same with the bit for aligned inputs set.",
    )


ROWS: tuple[Row, ...] = (
    (
        "bind.late",
        "must",
        "test",
        "Slots that are not fixed are read when the stream reaches the operation; what they hold then counts.",
        "late values used",
        SAME,
        _ASYNC,
    ),
    (
        "bind.captured",
        "must",
        "code",
        "What is fixed is copied when the operation is built; what is not keeps the caller's pointer.",
        "copied",
        None,
        _FLAGS,
    ),
    (
        "bind.fixed",
        "must",
        "observed",
        "What a change to a slot declared fixed does.",
        "nothing: the value at submit is used",
        "the changed value is used",
        _FLAGS,
        "A portable program never changes such a slot.",
    ),
    _flags(0, "size, file offset, buffer offset"),
    _flags(1, "size, file offset"),
    _flags(2, "size, buffer offset"),
    _flags(3, "size"),
    _flags(4, "file offset, buffer offset"),
    _flags(5, "file offset"),
    _flags(6, "buffer offset"),
    _flags(7, "none"),
    (
        "bind.page-aligned",
        "must",
        "test",
        "The bit for aligned inputs does not change which slots are read late.",
        "no effect",
        None,
        _FLAGS,
    ),
    (
        "bind.rewrites-fixed",
        "must",
        "code",
        "A bind writes all three values, and a fixed one gets its own again.",
        "no effect",
        None,
        _ASYNC,
    ),
    (
        "bind.fixed.clamp",
        "must",
        "code",
        "Whether a fixed size is clamped to the largest count when it is copied.",
        (("0.2", "no: a size above it overruns the bounce buffer"), ("0.5", "yes")),
        None,
        _FLAGS,
        "The model refuses to overrun and reports it instead.",
    ),
    (
        "bind.clamp",
        "must",
        "test",
        "A late size is clamped to the largest count.",
        "min(size, 0x7ffff000)",
        None,
        _ASYNC,
    ),
    (
        "bind.grown",
        "must",
        "test",
        "A size slot larger than at submit.",
        "bytes_done -5022",
        "the grown size is used",
        _ASYNC,
        "On the fastpath of 0.5 a size that grew inside the buffer is used.",
    ),
    (
        "bind.shrunk",
        "must",
        "test",
        "A size slot smaller than at submit.",
        "honoured",
        SAME,
        _ASYNC,
    ),
    (
        "bind.range",
        "must",
        "test",
        "Late values outside the buffer.",
        "bytes_done -5022",
        None,
        _ASYNC,
    ),
    (
        "bind.failed-inert",
        "must",
        "code",
        "After a failed bind every further step of that operation does nothing.",
        "no bytes move",
        None,
        _ASYNC,
    ),
    (
        "bind.result-slot",
        "must",
        "code",
        "The result slot is always written late, whatever the flags.",
        "late",
        SAME,
        _ASYNC,
    ),
    (
        "bind.pointer-lifetime",
        "must",
        "code",
        "Slots that are not fixed, and the result slot always, must live until the operation is complete.",
        "caller's duty",
        SAME,
        _ASYNC,
    ),
)
