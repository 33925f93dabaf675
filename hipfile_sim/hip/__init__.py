"""The emulated HIP runtime: devices, memory, streams, events, commands. It knows nothing of hipFile."""

from hipfile_sim.hip.codes import EventFlag, HipError, MemcpyKind, MemoryType, StreamFlag, error_name, error_string
from hipfile_sim.hip.memory import Block, HipMemoryError, Memory
from hipfile_sim.hip.runtime import Runtime
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.hip.stream import Event, Stream

__all__ = [
    "Block",
    "Event",
    "EventFlag",
    "HipError",
    "HipMemoryError",
    "HipSettings",
    "MemcpyKind",
    "Memory",
    "MemoryType",
    "Runtime",
    "Stream",
    "StreamFlag",
    "error_name",
    "error_string",
]
