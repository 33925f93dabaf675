"""Limits: disk space, memory, outstanding operations, sizes."""

from __future__ import annotations

import errno
from typing import Any

from hipfile_mock.faults.build import RESULTS, Step, _Errno, _Part
from hipfile_mock.faults.rule import Candidate, Rule
from hipfile_mock.near import whole

PAGE = 4096


class _Disk(Rule):
    """A disk with so many bytes left."""

    def __init__(self, nbytes: int, path: str | None, optional: bool, once: bool) -> None:
        super().__init__("pwrite", times=None, path=path, optional=optional, what=f"disk of {nbytes} bytes")
        self.left = nbytes
        self.once = once
        self.ends: dict[str | None, int] = {}
        self._step: Step = _Part(0, None)
        self.act = lambda: (self._step,)

    def takes(self, candidate: Candidate, free: bool = True) -> bool:
        if not free or self._mismatch(candidate) is not None:
            return False
        assert candidate.start is not None
        assert candidate.length is not None
        end = candidate.start + candidate.length
        known = self.ends.get(candidate.path)
        if known is None:
            known = _size(candidate.path)
        growth = max(0, end - max(known, candidate.start))
        if self.once and self.fired:
            growth = 0
        if growth <= self.left:
            self.left -= growth
            self.ends[candidate.path] = max(known, end)
            return False
        self.matched += 1
        fits = candidate.length - growth + self.left
        if fits > 0 and self.left:  # as a real disk: what fits is written, the next call fails
            self._step = _Part(fits, None)
            self.ends[candidate.path] = candidate.start + fits
            self.left = 0
        else:
            self._step = _Errno(errno.ENOSPC)
            self.fired += 1
        return True


def _size(path: str | None) -> int:
    import os

    try:
        return os.stat(path).st_size if path else 0
    except OSError:
        return 0


def disk(nbytes: int, *, path: str | None = None, once: bool = False, optional: bool = False) -> Rule:
    """A disk on which files can grow by `nbytes` in all; then writes meet ENOSPC.

    Parameters
    ----------
    nbytes : int
        Bytes left.
    path : str, optional
        Glob; only files that match count.
    once : bool
        After the first ENOSPC there is room again (somebody deleted something); else the disk stays full.
    optional : bool
        It need not fill up.

    Examples
    --------
    >>> disk(1 << 20, path="*.kv")
    <fault: disk of 1048576 bytes on pwrite, path='*.kv'>
    """
    whole("disk", nbytes, "bytes, not below 0")
    return _Disk(nbytes, path, optional, once)


class _Memory(Rule):
    """A smaller budget of memory."""

    def __init__(self, call: str, nbytes: int, device: int | None, optional: bool) -> None:
        super().__init__(call, times=None, device=device, optional=optional, what=f"only {nbytes} bytes")
        self.nbytes = nbytes
        self._machine: Any = None
        self.act = lambda runtime: 2  # hipErrorOutOfMemory

    def attach(self, machine: Any) -> None:
        self._machine = machine
        super().attach(machine)

    def takes(self, candidate: Candidate, free: bool = True) -> bool:
        memory = self._machine.memory
        used = memory.pinned_used if self.operation == "hipHostMalloc" else memory.used[candidate.device or 0]
        if not free or self._mismatch(candidate) is not None:
            return False
        size = candidate.arguments[0] if candidate.arguments else 0
        if used + size <= self.nbytes:
            if len(self.near) < 8:
                self.near.append((str(candidate), f"{used} bytes used and {size} asked for fit into {self.nbytes}"))
            return False
        self.matched += 1
        self.fired += 1
        return True


def device_memory(nbytes: int, *, device: int | None = None, optional: bool = False) -> Rule:
    """hipMalloc answers hipErrorOutOfMemory once more than `nbytes` of a device would be in use.

    Parameters
    ----------
    nbytes : int
        Bytes of a device.
    device : int, optional
        Number of the device; each of them if not given.
    optional : bool
        It need not happen.

    Examples
    --------
    >>> from hipfile_mock import fake
    >>> with fake(faults=[device_memory(4096)]) as session:
    ...     session.hip.hipMalloc(8192)[0].name
    'hipErrorOutOfMemory'
    """
    whole("device_memory", nbytes, "bytes, not below 0")
    return _Memory("hipMalloc", nbytes, device, optional)


def pinned_memory(nbytes: int, *, optional: bool = False) -> Rule:
    """hipHostMalloc, the library's own calls included, answers hipErrorOutOfMemory beyond `nbytes` of pinned memory.

    Parameters
    ----------
    nbytes : int
        Bytes of the whole machine.
    optional : bool
        It need not happen.
    """
    whole("pinned_memory", nbytes, "bytes, not below 0")
    return _Memory("hipHostMalloc", nbytes, None, optional)


class _Queue(Rule):
    """Too many operations outstanding."""

    def __init__(self, limit: int, value: int, optional: bool) -> None:
        super().__init__("*", times=None, optional=optional, what=f"at most {limit} operations outstanding")
        self.limit = limit
        self.value = value
        self._over: dict[int, int] = {}
        self._machine: Any = None
        self.act = self._act

    def attach(self, machine: Any) -> None:
        self._machine = machine
        super().attach(machine)

    def considers(self, operation: str) -> bool:
        return operation in ("hipFileReadAsync", "hipFileWriteAsync", "read", "write")

    def takes(self, candidate: Candidate, free: bool = True) -> bool:
        if candidate.operation.startswith("hipFile"):
            outstanding = len(self._machine.hipfile.monitor.active)
            if outstanding >= self.limit:
                slot = candidate.arguments[5]
                self._over[slot] = self._over.get(slot, 0) + 1
            elif len(self.near) < 8:
                self.near.append((str(candidate), f"{outstanding} operations were outstanding"))
            return False
        slot = candidate.arguments[0].bytes_p
        left = self._over.get(slot, 0)
        if not left or not free:
            return False
        self._over[slot] = left - 1
        self.fired += 1
        return True

    def _act(self, op: Any, found: int) -> int:
        return self.value


def queue_limit(limit: int, *, value: int = -5, optional: bool = False) -> Rule:
    """With `limit` operations outstanding one more is accepted, but completes with the negative count `value`.

    -5 is what was seen in the field; it is outside the documented set, so whoever decodes results must cope with it.

    Parameters
    ----------
    limit : int
        Operations outstanding on the machine, at least 1.
    value : int
        What the result slot gets, below 0.
    optional : bool
        It need not happen.
    """
    whole("queue_limit", limit, "operations outstanding, at least 1", least=1)
    if whole("queue_limit value=", value, "a negative code", least=None) >= 0:
        raise ValueError(f"queue_limit(value={value!r}): a failure is negative")
    return _Queue(limit, value, optional)


class _Size(Rule):
    """Operations that are too large."""

    def __init__(self, nbytes: int, optional: bool) -> None:
        super().__init__("*", times=None, optional=optional, what=f"size limit of {nbytes} bytes")
        self.nbytes = nbytes
        self.act = lambda op, found: max(0, found - PAGE) if found > 0 else found

    def considers(self, operation: str) -> bool:
        return operation in RESULTS

    def _mismatch(self, candidate: Candidate) -> str | None:
        if (candidate.length or 0) <= self.nbytes:
            return f"its {candidate.length} bytes are within the limit"
        return super()._mismatch(candidate)


def size_limit(nbytes: int, *, optional: bool = False) -> Rule:
    """Asynchronous operations of more than `nbytes` complete one page short (bytes past the count are unspecified).

    Parameters
    ----------
    nbytes : int
        The largest operation that is complete, bytes.
    optional : bool
        It need not happen.
    """
    whole("size_limit", nbytes, "bytes, not below 0")
    return _Size(nbytes, optional)
