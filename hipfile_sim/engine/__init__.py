"""The engine: which ready command runs next, and at what virtual time.

It knows lanes and commands, nothing of HIP and nothing of hipFile.
"""

from hipfile_sim.engine.base import Engine
from hipfile_sim.engine.clock import CostModel, VirtualClock
from hipfile_sim.engine.command import Access, Command, Lane, Marker, Space
from hipfile_sim.engine.errors import (
    DeadlockError,
    EngineError,
    HostFunctionError,
    MachineClosedError,
    StillRunningError,
    TokenMismatch,
)
from hipfile_sim.engine.schedules import Schedule, parse_schedule
from hipfile_sim.engine.steps import StepEngine
from hipfile_sim.engine.threads import ThreadEngine

__all__ = [
    "Access",
    "Command",
    "CostModel",
    "DeadlockError",
    "Engine",
    "EngineError",
    "HostFunctionError",
    "Lane",
    "MachineClosedError",
    "Marker",
    "Schedule",
    "Space",
    "StepEngine",
    "StillRunningError",
    "ThreadEngine",
    "TokenMismatch",
    "VirtualClock",
    "parse_schedule",
]
