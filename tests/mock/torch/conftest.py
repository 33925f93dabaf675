"""A machine with the double over it."""

from __future__ import annotations

import pytest

from hipfile_mock.faces.torch import installed
from hipfile_sim.machine import Machine

try:
    import torch
except ModuleNotFoundError:
    torch = None

if torch is None or torch.version.cuda or torch.version.hip:
    collect_ignore_glob = ["test_*.py"]  # the double needs the CPU build to stand on


class Rig:
    """A machine, the double over it, and what tests ask of both."""

    def __init__(self, machine):
        self.machine = machine
        self.hip = machine.hip
        self.engine = machine.engine

    def lane(self, stream):
        """The lane of a `torch.cuda.Stream`."""
        return self.hip.lookup_stream(stream.cuda_stream).lane

    def pending(self, stream):
        """Commands of a stream that have not run."""
        lane = self.lane(stream)
        return lane.submitted - lane.completed


@pytest.fixture
def rig():
    """Two devices that stand still until something waits."""
    with Machine(2, schedule="lazy") as machine, installed(machine):
        yield Rig(machine)


@pytest.fixture(params=["lazy", "eager", "parallel", "roundrobin", "seeded:3", "threads"])
def any_rig(request):
    """The same under each schedule and engine."""
    options = {"engine": "threads"} if request.param == "threads" else {"schedule": request.param}
    with Machine(2, **options) as machine, installed(machine):
        yield Rig(machine)
