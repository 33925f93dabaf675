"""The commands of the HIP runtime. hipFile adds its own beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hipfile_sim.engine.clock import CostModel
from hipfile_sim.engine.command import MEM, Access, Command
from hipfile_sim.hip.codes import WaitValueFlag
from hipfile_sim.hip.memory import Memory


class Copy(Command):
    """Bytes from one address to another, when the stream gets there.

    Parameters
    ----------
    staged : bytes or None
        What was taken from pageable memory at submit; then the source is not looked at again.
    """

    __slots__ = ("destination", "failed", "length", "memory", "source", "staged")
    kind: ClassVar[str] = "copy"

    def __init__(self, memory: Memory, destination: int, source: int, length: int, staged: bytes | None = None) -> None:
        super().__init__()
        self.memory = memory
        self.destination = destination
        self.source = source
        self.length = length
        self.staged = staged
        self.failed = False

    def accesses(self) -> Sequence[Access]:
        write = Access(MEM, self.destination, self.length, True)
        if self.staged is not None:
            return (write,)
        return (Access(MEM, self.source, self.length, False), write)

    def cost(self, model: CostModel) -> int:
        return model.copy(self.length)

    def run(self) -> None:
        if self.staged is not None:
            self.failed = not self.memory.write(self.destination, self.staged)
        else:
            self.failed = not self.memory.copy(self.destination, self.source, self.length)


class Set(Command):
    """A byte value over a range."""

    __slots__ = ("failed", "length", "memory", "pointer", "value")
    kind: ClassVar[str] = "set"

    def __init__(self, memory: Memory, pointer: int, value: int, length: int) -> None:
        super().__init__()
        self.memory = memory
        self.pointer = pointer
        self.value = value & 0xFF
        self.length = length
        self.failed = False

    def accesses(self) -> Sequence[Access]:
        return (Access(MEM, self.pointer, self.length, True),)

    def cost(self, model: CostModel) -> int:
        return model.kernel(self.length)

    def run(self) -> None:
        self.failed = not self.memory.fill(self.pointer, self.value, self.length)


class HostFunction(Command):
    """A function of the user, called when the stream gets there. The stream stands still until it returns."""

    __slots__ = ("arguments", "function")
    kind: ClassVar[str] = "host"
    external: ClassVar[bool] = True
    user_code: ClassVar[bool] = True
    on_host_thread: ClassVar[bool] = True

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self.function = function
        self.arguments = arguments
        self.label = getattr(function, "__name__", None)

    def run(self) -> None:
        self.function(*self.arguments)


class Kernel(Command):
    """A kernel: a Python callable and the byte ranges that it declares to read and write."""

    __slots__ = ("_accesses", "function", "nbytes")
    kind: ClassVar[str] = "kernel"
    user_code: ClassVar[bool] = True

    def __init__(
        self, function: Callable[[], Any], reads: Sequence[tuple[int, int]], writes: Sequence[tuple[int, int]]
    ) -> None:
        super().__init__()
        self.function = function
        accesses = [Access(MEM, pointer, length, False) for pointer, length in reads]
        accesses += [Access(MEM, pointer, length, True) for pointer, length in writes]
        self._accesses = tuple(accesses)
        self.nbytes = sum(access.length for access in accesses)

    def accesses(self) -> Sequence[Access]:
        return self._accesses

    def cost(self, model: CostModel) -> int:
        return model.kernel(self.nbytes)

    def run(self) -> None:
        self.function()


class Record(Command):
    """The point in a stream that an event names."""

    __slots__ = ("event",)
    kind: ClassVar[str] = "record"

    def __init__(self, event: int) -> None:
        super().__init__()
        self.event = event

    def cost(self, model: CostModel) -> int:
        return 0


class WaitEvent(Command):
    """Everything behind it in its stream waits for one record. Which one is in ``deps``."""

    __slots__ = ("event",)
    kind: ClassVar[str] = "wait"

    def __init__(self, event: int) -> None:
        super().__init__()
        self.event = event

    def cost(self, model: CostModel) -> int:
        return 0


class Marker(Command):
    """Does nothing; a place to wait for."""

    __slots__ = ()
    kind: ClassVar[str] = "marker"

    def cost(self, model: CostModel) -> int:
        return 0


class WriteValue(Command):
    """A 4- or 8-byte value stored to memory."""

    __slots__ = ("failed", "memory", "pointer", "value", "width")
    kind: ClassVar[str] = "write_value"
    signals: ClassVar[bool] = True

    def __init__(self, memory: Memory, pointer: int, value: int, width: int) -> None:
        super().__init__()
        self.memory = memory
        self.pointer = pointer
        self.value = value & ((1 << 8 * width) - 1)
        self.width = width
        self.failed = False

    def accesses(self) -> Sequence[Access]:
        return (Access(MEM, self.pointer, self.width, True),)

    def run(self) -> None:
        self.failed = not self.memory.write(self.pointer, self.value.to_bytes(self.width, "little"))


_COMPARE: dict[int, Callable[[int, int, int], bool]] = {
    # GEQ is cyclic: the difference, read as a signed number of the value's width, is not negative
    WaitValueFlag.hipStreamWaitValueGte: lambda found, value, width: (found - value) & (1 << 8 * width - 1) == 0,
    WaitValueFlag.hipStreamWaitValueEq: lambda found, value, width: found == value,
    WaitValueFlag.hipStreamWaitValueAnd: lambda found, value, width: found & value != 0,
    WaitValueFlag.hipStreamWaitValueNor: lambda found, value, width: ~(found | value) & ((1 << 8 * width) - 1) != 0,
}


class WaitValue(Command):
    """Everything behind it in its stream waits until memory holds a value."""

    __slots__ = ("flag", "mask", "memory", "pointer", "value", "width")
    kind: ClassVar[str] = "wait_value"
    conditional: ClassVar[bool] = True

    def __init__(self, memory: Memory, pointer: int, value: int, flag: int, mask: int, width: int) -> None:
        super().__init__()
        limit = (1 << 8 * width) - 1
        self.memory = memory
        self.pointer = pointer
        self.value = value & limit
        self.flag = flag
        self.mask = mask & limit
        self.width = width

    def accesses(self) -> Sequence[Access]:
        return (Access(MEM, self.pointer, self.width, False),)

    def ready(self) -> bool:
        data = self.memory.read(self.pointer, self.width)
        if data is None:
            return False
        found = int.from_bytes(data, "little") & self.mask
        return _COMPARE[self.flag](found, self.value & self.mask, self.width)
