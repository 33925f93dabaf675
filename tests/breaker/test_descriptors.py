"""A program that closes descriptors that are not its own: its files stay whole, and the model goes on."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import ctypes, os, sys, threading
from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.machine import Machine

before = {before}
if before:  # words have been through the model's own descriptor
    with Machine(1, env={{}}) as machine:
        machine.hip.hipStreamSynchronize(0)
os.closerange(3, 4096)
files = []
for number in range({files}):
    fd = os.open(sys.argv[1] + str(number), os.O_RDWR | os.O_CREAT)
    os.write(fd, b"user data " * 1000)
    files.append(fd)
with Machine(1, env={{}}, schedule="lazy") as machine:
    hip, hipfile = machine.hip, machine.hipfile
    hipfile.hipFileDriverOpen()
    pointer = hip.hipMalloc(8192)[1]
    handle = hipfile.hipFileHandleRegister(FileDescr(1, files[0]))[1]
    slots = (ctypes.c_int64 * 4)(4096, 10, 0, -7)
    first = ctypes.addressof(slots)

    def submit():
        status = hipfile.hipFileReadAsync(handle, pointer, first, first + 8, first + 16, first + 24, 0)
        assert status.err == 0, status

    thread = threading.Thread(target=submit)
    thread.start(); thread.join()
    assert hip.hipDeviceSynchronize() == 0
    assert slots[3] == 4096, slots[3]
    submit()
    hip.hipDeviceSynchronize()
    assert bytes(machine.memory.view(pointer, 4096)) == (b"user data " * 1000)[10:4106]
for number, fd in enumerate(files):
    assert os.fstat(fd).st_size == 10000, (number, os.fstat(fd))
    assert os.pread(fd, 20000, 0) == b"user data " * 1000, number
print("whole")
"""


@pytest.mark.parametrize(("before", "files"), [(True, 1), (False, 1), (True, 12)])
def test_all_descriptors_closed(tmp_path_factory: pytest.TempPathFactory, before: bool, files: int) -> None:
    folder = tmp_path_factory.mktemp("files")
    code = textwrap.dedent(PROGRAM).format(before=before, files=files)
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "file")], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.stdout.strip() == "whole", done.stdout + done.stderr
