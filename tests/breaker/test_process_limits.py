"""A process that has run out of descriptors, address space or threads: codes or clear errors, and it goes on."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

HEAD = """
import ctypes, os, resource, sys, tempfile, threading, warnings
warnings.simplefilter("ignore", RuntimeWarning)
from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.engine import EngineError
from hipfile_sim.machine import Machine

def limit(which, value):
    resource.setrlimit(which, (value, resource.getrlimit(which)[1]))

def space(extra):
    pages = int(open("/proc/self/statm").read().split()[0])
    limit(resource.RLIMIT_AS, pages * 4096 + extra)
"""


def _run(body: str) -> str:
    code = HEAD + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_no_descriptor_left() -> None:
    """The first allocation needs one; so does the pinned buffer of an operation. Synchronous I/O goes on."""
    out = _run("""
        machine = Machine(1, env={})
        hip, hipfile = machine.hip, machine.hipfile
        hipfile.hipFileDriverOpen()
        file = open(os.path.join(tempfile.mkdtemp(), "data"), "w+b")
        file.write(b"x" * 4096); file.flush()
        handle = hipfile.hipFileHandleRegister(FileDescr(1, file.fileno()))[1]
        pointer = hip.hipMalloc(4096)[1]
        slots = (ctypes.c_int64 * 4)(4096, 0, 0, -7)
        first = ctypes.addressof(slots)
        limit(resource.RLIMIT_NOFILE, 3)
        print(hip.hipHostMalloc(4096)[0].name)
        status = hipfile.hipFileReadAsync(handle, pointer, first, first + 8, first + 16, first + 24, 0)
        print(status.err.name, status.hip_drv_err.name, slots[3])
        print(hipfile.hipFileRead(handle, pointer, 4096, 0, 0).count, hip.hipHostMalloc(4096)[0].name)
        limit(resource.RLIMIT_NOFILE, 64)
        print(hip.hipHostMalloc(4096)[0].name)
    """)
    assert out.splitlines() == [
        "hipErrorOutOfMemory",
        "hipFileHipDriverError hipErrorOutOfMemory -7",
        "4096 hipErrorOutOfMemory",
        "hipSuccess",
    ]


def test_little_address_space() -> None:
    """A shell with ``ulimit -v``: emulated memory takes what there is instead of tens of GiB."""
    out = _run("""
        machine = Machine(2, env={})
        space(512 << 20)
        hip = machine.hip
        print([hip.hipMalloc(1 << 20)[0].name, hip.hipHostMalloc(1 << 20)[0].name, hip.hipStreamCreate()[0].name])
        print(hip.hipMalloc(8 << 30)[0].name)
    """)
    assert out.splitlines() == ["['hipSuccess', 'hipSuccess', 'hipSuccess']", "hipErrorOutOfMemory"]


@pytest.mark.parametrize("engine", ["steps", "threads"])
def test_no_thread_left(engine: str) -> None:
    """A host function or a stream without a thread is an error at once, not a wait for a thread that never was."""
    out = _run(f"""
        machine = Machine(1, engine={engine!r}, env={{}}, watchdog_s=1)
        hip = machine.hip
        stream = hip.hipStreamCreate()[1]
        threading.stack_size(256 << 20)
        space(128 << 20)
        try:
            hip.hipLaunchHostFunc(stream, print)
            hip.hipStreamSynchronize(stream)
        except EngineError as error:
            print("start new thread" in str(error), type(error).__name__ != "DeadlockError")
    """)
    assert out == "True True"
