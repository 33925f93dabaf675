"""The emulated HIP runtime, whole."""

from __future__ import annotations

from hipfile_sim.hip.calls_device import DeviceCalls
from hipfile_sim.hip.calls_event import EventCalls
from hipfile_sim.hip.calls_memory import MemoryCalls
from hipfile_sim.hip.calls_stream import StreamCalls


class Runtime(DeviceCalls, MemoryCalls, StreamCalls, EventCalls):
    """Every modelled hip* function, with C's conventions: a code, or a tuple that begins with one.

    Pointers, streams and events are integers. ``Runtime.CALLS`` is the table of all calls with their parameters.

    Examples
    --------
    >>> from hipfile_sim.engine import StepEngine
    >>> from hipfile_sim.hip.settings import HipSettings
    >>> hip = Runtime(StepEngine("lazy"), 1, HipSettings())
    >>> code, pointer = hip.hipMalloc(4096)
    >>> code.name, hip.hipPointerGetAttributes(pointer)[1].type.name
    ('hipSuccess', 'hipMemoryTypeDevice')
    """
