"""A machine under each engine, and a way to hold a stream."""

from __future__ import annotations

import threading

import pytest

from hipfile_sim import HipSettings, Machine

NON_BLOCKING = 1


class Held:
    """A stream held back by a host function until `release`."""

    def __init__(self, hip, stream):
        self.gate = threading.Event()
        self.started = threading.Event()
        assert hip.hipLaunchHostFunc(stream, lambda _: (self.started.set(), self.gate.wait(60)), None) == 0

    def release(self):
        self.gate.set()


def machines(**options):
    """Names and makers of the engines that a test of HIP semantics runs on."""
    return {
        name: lambda name=name, **more: Machine(
            **{
                **({"engine": "threads"} if name == "threads" else {"schedule": name}),
                **options,
                **more,
            }
        )
        for name in ("lazy", "eager", "parallel", "roundrobin", "seeded:1", "threads")
    }


@pytest.fixture(params=list(machines()))
def make(request):
    made = []

    def make(settings=None, **options):
        machine = machines()[request.param](settings=settings, **options)
        made.append(machine)
        return machine

    yield make
    for machine in made:
        machine.close()


@pytest.fixture
def machine(make):
    return make()


@pytest.fixture
def hip(machine):
    return machine.hip


@pytest.fixture
def lazy():
    with Machine(schedule="lazy") as made:
        yield made


def create(hip, flags=0):
    code, stream = hip.hipStreamCreateWithFlags(flags)
    assert code == 0
    return stream


def malloc(hip, size=4096):
    code, pointer = hip.hipMalloc(size)
    assert code == 0
    return pointer


def settings(**values):
    return HipSettings(**values)
