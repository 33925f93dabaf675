"""The doubles' side of the C ABI: the fixture's context manager, and faults from a configuration file."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipfile_sim.machine import Machine
    from hipfile_sim.native.activation import Activated

__all__ = ["faults", "native"]


@contextmanager
def native(machine: Machine | None = None, *, profile: str = "newest", force: bool = False) -> Iterator[Activated]:
    """The emulated C libraries in this process, over `machine` or a fresh one with the threaded engine.

    HIP-Python, ``ctypes`` users and extension modules land on it without another process. A real ROCm is not shadowed
    unless `force` is given; see `hipfile_sim.native.activation.activate` for the errors.

    Examples
    --------
    >>> import ctypes
    >>> with native() as libraries:
    ...     ctypes.CDLL("libhipfile.so").hipFileUseCount()
    0
    """
    from hipfile_sim.machine import Machine
    from hipfile_sim.native.activation import activate

    if machine is not None:
        with activate(machine, force=force) as activated:
            yield activated
        return
    with Machine(profile=profile, engine="threads") as fresh, activate(fresh, force=force) as activated:
        yield activated


def faults(machine: Machine, section: Sequence[Mapping[str, Any]]) -> None:
    """Carry out ``[[faults]]`` of a configuration: each entry is one rule of `hipfile_mock.faults`.

    ``on`` is the operation, ``action`` what happens, ``value`` its argument (errnos by name), everything else what the
    rule matches::

        [[faults]]
        on = "pwrite"
        action = "errno"
        value = "ENOSPC"
        nth = 3
        path = "*.kv"

    Raises
    ------
    hipfile_sim.native.config.ConfigError
        An entry is not a rule; the text names it and says why.
    """
    from hipfile_mock.faults import on
    from hipfile_sim.native.config import ConfigError

    if not isinstance(section, list) or not all(isinstance(entry, Mapping) for entry in section):
        raise ConfigError("faults of the configuration are a list of tables: write [[faults]]")
    for number, entry in enumerate(section, 1):
        words = dict(entry)
        try:
            operation, action = words.pop("on"), words.pop("action")
            value = words.pop("value", None)
            half = on(operation, **words)
            act = getattr(half, action, None)
            if act is None or action.startswith("_"):
                raise ValueError(f"there is no action {action!r}")
            values = value if isinstance(value, list) else [] if value is None else [value]
            rule = act(*map(_value, values))
        except KeyError as error:
            raise ConfigError(f"[[faults]] number {number} lacks {error}: {dict(entry)}") from None
        except (TypeError, ValueError) as error:
            raise ConfigError(f"[[faults]] number {number} is no rule: {error}") from None
        rule.attach(machine)


def _value(value: Any) -> Any:
    """Numbers as they are, ``"ENOSPC"`` as its number, ``"hipErrorUnknown"`` as its."""
    from hipfile_sim.driver.codes import OpError
    from hipfile_sim.hip.codes import HipError

    if isinstance(value, str):
        for names in (HipError.__members__, OpError.__members__):
            if value in names:
                return names[value]
        return getattr(errno, value, value)
    return value
