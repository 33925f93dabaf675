"""Where the rules of one machine act: its file operations, its calls, its commands and its results."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from hipfile_mock.faults.build import Step, _Errno
from hipfile_mock.faults.rule import Candidate, Rule
from hipfile_sim.engine.command import Command
from hipfile_sim.observe.observer import Observer

_injectors: weakref.WeakKeyDictionary[Any, Injector] = weakref.WeakKeyDictionary()


class Injector(Observer):
    """The rules of one machine. The first that takes a candidate acts on it.

    It is an observer to learn which command runs and what enters a stream; unlike other observers it changes things.
    """

    def __init__(self, machine: Any) -> None:
        self.machine: Any = weakref.proxy(machine)
        self._key = weakref.ref(machine)
        self.rules: list[Rule] = []
        self._running = threading.local()
        self._lock = threading.RLock()
        self._files: Any = None

    @classmethod
    def of(cls, machine: Any) -> Injector:
        """The injector of `machine`, made when first asked for."""
        found = _injectors.get(machine)
        if found is None:
            found = _injectors[machine] = cls(machine)
        return found

    # -- rules -------------------------------------------------------------------------------------------------------

    def add(self, rule: Rule) -> None:
        """Begin with `rule`."""
        with self._lock:
            if not self.rules:
                self._install()
            self.rules.append(rule)

    def remove(self, rule: Rule) -> None:
        """End with `rule`; with the last one the machine is as it was before."""
        with self._lock:
            if rule in self.rules:
                self.rules.remove(rule)
                if not self.rules:
                    self._uninstall()

    def pick(self, candidate: Candidate) -> Rule | None:
        """The rule that acts on `candidate`, counted."""
        picked: Rule | None = None
        with self._lock:
            for rule in self.rules:  # every rule counts its matches, also those that another one acts on
                if rule.considers(candidate.operation) and rule.takes(candidate, free=picked is None):
                    picked = rule
        return picked

    def _install(self) -> None:
        machine = self.machine
        driver = machine.hipfile
        self._files = machine.files
        machine.files = driver.files = FaultyFiles(machine.files, self)
        self._before = (machine.hip.interpose, driver.interpose, driver.on_publish)
        machine.hip.interpose = self._hip_call
        driver.interpose = self._hipfile_call
        driver.on_publish = self._publish
        machine.add_observer(self)

    def _uninstall(self) -> None:
        machine = self.machine
        machine.remove_observer(self)
        machine.files = machine.hipfile.files = self._files
        machine.hip.interpose, machine.hipfile.interpose, machine.hipfile.on_publish = self._before
        key = self._key()
        if key is not None:  # this object leads back to the machine, and would keep it for ever
            _injectors.pop(key, None)

    # -- where they act ----------------------------------------------------------------------------------------------

    def _hip_call(self, name: str, args: Sequence[Any]) -> int | None:
        before = self._before[0]
        answer = before(name, args) if before is not None else None
        if answer is not None:
            return int(answer)
        rule = self.pick(Candidate(name, device=self.machine.hip.thread.device, arguments=args))
        return None if rule is None else rule.act(self.machine.hip)

    def _hipfile_call(self, name: str, args: Sequence[Any]) -> Any:
        before = self._before[1]
        answer = before(name, args) if before is not None else None
        if answer is not None:
            return answer
        stream = args[6] if name.endswith("Async") and len(args) > 6 else None
        rule = self.pick(Candidate(name, stream=stream, arguments=args))
        return None if rule is None else rule.act(self.machine.hipfile)

    def _publish(self, op: Any, value: int) -> int | None:
        before = self._before[2]
        found = before(op, value) if before is not None else value
        candidate = Candidate(
            "write" if op.write else "read",
            path=self._path(op.file.buffered_fd),
            start=op.file_offset,
            length=op.size,
            stream=op.stream.handle,
            device=op.buffer.device,
            arguments=(op,),
        )
        rule = self.pick(candidate)
        return found if rule is None or found is None else rule.act(op, found)

    def submitted(self, command: Command) -> None:
        if any(rule.operation == "command" for rule in self.rules):
            rule = self.pick(
                Candidate("command", stream=self._handle(command), device=command.lane.group, kind=command.kind)
            )
            if rule is not None:
                rule.act(self.machine.engine, command)

    def started(self, command: Command) -> None:
        self._running.command = command

    def finished(self, command: Command) -> None:
        self._running.command = None

    def _handle(self, command: Command) -> int | None:
        for handle, stream in self.machine.hip.streams.items():
            if stream.lane is command.lane:
                return int(handle)
        return 0 if command.lane.name.startswith("null") else None

    def _path(self, fd: int) -> str | None:
        try:
            path: str | None = self._files.path(fd)
        except OSError:
            return None
        return path

    def file_candidate(self, operation: str, fd: int, start: int | None, length: int | None) -> Candidate:
        """A system call of the driver."""
        command = getattr(self._running, "command", None)
        op = getattr(command, "op", None)
        if op is None:
            return Candidate(operation, self._path(fd), start, length, kind="sync")
        return Candidate(operation, self._path(fd), start, length, op.stream.handle, op.buffer.device, "async")


class FaultyFiles:
    """File operations with the rules of an injector over those of `inner` (real ones, pyfakefs' …)."""

    def __init__(self, inner: Any, injector: Injector) -> None:
        self.inner = inner
        self._injector = injector
        self._pending: dict[tuple[str, int, int], list[Step]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def _steps(self, operation: str, fd: int, start: int | None, length: int | None) -> list[Step]:
        rule = self._injector.pick(self._injector.file_candidate(operation, fd, start, length))
        return list(rule.act()) if rule is not None else []

    def _transfer(self, operation: str, call: Any, fd: int, view: memoryview, offset: int) -> int:
        steps = self._pending.pop((operation, fd, offset), None)
        if steps is None:
            steps = self._steps(operation, fd, offset, len(view))
        if not steps:
            return int(call(fd, view, offset))
        step = steps.pop(0)
        if isinstance(step, _Errno):
            if steps:
                self._pending[operation, fd, offset] = steps
            raise OSError(step.code, os.strerror(step.code))
        count = step.of(len(view))
        moved = int(call(fd, view[:count], offset)) if count else 0
        if steps:
            self._pending[operation, fd, offset + moved] = steps
        return moved

    def pread_into(self, fd: int, view: memoryview, offset: int) -> int:
        """As of the files beneath, unless a rule acts."""
        return self._transfer("pread", self.inner.pread_into, fd, view, offset)

    def pwrite_from(self, fd: int, view: memoryview, offset: int) -> int:
        """As of the files beneath, unless a rule acts."""
        return self._transfer("pwrite", self.inner.pwrite_from, fd, view, offset)

    def _fail_or(self, operation: str, fd: int) -> None:
        for step in self._steps(operation, fd, None, None):
            if isinstance(step, _Errno):
                raise OSError(step.code, os.strerror(step.code))

    def fdatasync(self, fd: int) -> None:
        """As of the files beneath, unless a rule acts."""
        self._fail_or("fdatasync", fd)
        self.inner.fdatasync(fd)

    def reopen(self, fd: int, flags: int) -> int:
        """As of the files beneath, unless a rule acts."""
        self._fail_or("reopen", fd)
        return int(self.inner.reopen(fd, flags))

    def inspect(self, fd: int) -> Any:
        """As of the files beneath, unless a rule acts."""
        self._fail_or("inspect", fd)
        return self.inner.inspect(fd)
