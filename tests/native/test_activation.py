"""In-process activation: clients of this very process land on the model, and a real ROCm is never shadowed silently."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import connector
import pytest
from native_support import HERE, execute, run

from hipfile_mock.native import native
from hipfile_sim.machine import Machine
from hipfile_sim.native import activation
from hipfile_sim.native.activation import Activated, RealRocmPresent, activate


def count_devices() -> int:
    count = ctypes.c_int(-1)
    assert ctypes.CDLL("libamdhip64.so").hipGetDeviceCount(ctypes.byref(count)) == 0
    return count.value


def test_the_machine_is_behind_the_libraries(native_prefix: Path) -> None:
    with Machine(3, engine="threads") as machine, activate(machine) as native:
        assert native.machine is machine
        assert count_devices() == 3
        pointer = ctypes.c_void_p()
        assert ctypes.CDLL("libamdhip64.so").hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(64)) == 0
        block = machine.memory.find(pointer.value or 0)
        assert block is not None
        assert block.size == 64


def test_nested_and_undone(native_prefix: Path) -> None:
    before = os.environ.get("ROCM_PATH")
    with Machine(1) as one, Machine(4, profile="0.3") as other, activate(one):
        assert count_devices() == 1
        with suppress(KeyError), activate(other) as inner:
            assert count_devices() == 4
            assert os.environ["ROCM_PATH"] == str(inner.prefix)
            assert inner.prefix.name == "0.3"
            raise KeyError
        assert count_devices() == 1
    assert os.environ.get("ROCM_PATH") == before


def test_fixture(hipfile_native: Activated) -> None:
    assert hipfile_native.library("libhipfile").hipFileUseCount() == 0
    assert all(library.emulated for library in activation.loaded_libraries())


def test_the_model_ends_with_the_test(native_prefix: Path) -> None:
    """State does not leak from one block to the next."""
    for _ in range(2):
        with native():
            library = ctypes.CDLL("libhipfile.so")
            assert library.hipFileUseCount() == 0
            library.hipFileDriverOpen.restype = connector.Status
            assert library.hipFileDriverOpen().err == 0
            assert library.hipFileUseCount() == 1


@pytest.mark.parametrize("engine", ["threads", "steps"])
def test_connector_in_process(native_prefix: Path, tmp_path: Path, engine: str) -> None:
    with Machine(engine=engine) as machine, activate(machine):
        connector.run(str(tmp_path), threads=4 if engine == "threads" else 1)
        assert machine.hipfile.hipFileUseCount() == 0


def test_connector_under_exec(native_prefix: Path, tmp_path: Path) -> None:
    done = execute(sys.executable, HERE / "connector.py", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_faults_of_a_file_reach_a_client(native_prefix: Path, tmp_path: Path) -> None:
    toml = tmp_path / "faults.toml"
    toml.write_text('[[faults]]\non = "pwrite"\naction = "errno"\nvalue = "ENOSPC"\nnth = 3\n')
    done = execute(sys.executable, HERE / "connector.py", tmp_path, options=["--config", str(toml)])
    assert done.returncode == 1
    assert "short write" in done.stderr


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('on = "pwrite"\naction = "explode"\n', "no action 'explode'"),
        ('action = "errno"\n', "lacks 'on'"),
        ('on = "pwrite"\naction = "close_driver"\n', "is not an action of 'pwrite'"),
        ('on = "pwrite"\naction = "errno"\nvalue = "ENOSPC"\nnope = 1\n', "nope"),
    ],
)
def test_wrong_faults_are_explained(native_prefix: Path, tmp_path: Path, entry: str, message: str) -> None:
    toml = tmp_path / "faults.toml"
    toml.write_text(f"[[faults]]\n{entry}")
    code = "import ctypes; print(ctypes.CDLL('libamdhip64.so').hipInit(0))"
    done = execute(sys.executable, "-c", code, options=["--config", str(toml)])
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert "[[faults]] number 1" in done.stderr
    assert message in done.stderr


@pytest.fixture
def real_rocm(tmp_path: Path) -> Path:
    """Something that looks like a ROCm of somebody else's: a library that is not ours under the name."""
    lib = tmp_path / "rocm" / "lib"
    lib.mkdir(parents=True)
    math = next(Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if "/libm" in line)
    shutil.copy(math, lib / "libamdhip64.so.7")
    return lib.parent


def test_a_real_rocm_wins(native_prefix: Path, real_rocm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_PATH", str(real_rocm))
    with pytest.raises(RealRocmPresent, match=r"rocm/lib/libamdhip64.so.7.*force=True"), activate(Machine(1)):
        raise AssertionError
    assert os.environ["ROCM_PATH"] == str(real_rocm)
    with activate(Machine(1), force=True):
        assert count_devices() == 1
    assert os.environ["ROCM_PATH"] == str(real_rocm)


def test_a_loaded_real_library_stays(native_prefix: Path, real_rocm: Path) -> None:
    code = f"""
import ctypes
ctypes.CDLL({str(real_rocm / "lib" / "libamdhip64.so.7")!r})
from hipfile_sim.native.activation import RealRocmPresent, activate
try:
    with activate(force=True): pass
except RealRocmPresent as error:
    print("cannot be replaced" in str(error))
"""
    assert run([sys.executable, "-c", code]).stdout == "True\n"


def test_exec_says_that_it_stands_in(native_prefix: Path, real_rocm: Path) -> None:
    done = execute("true", env={"ROCM_PATH": str(real_rocm)})
    assert done.returncode == 0
    assert done.stderr == f"hipfile-sim: emulated libraries in place of the real ones in {real_rocm}\n"


def test_hip_python_in_process(clients: Path, native_prefix: Path, tmp_path: Path) -> None:
    """Activated after the import, before the first call: no other process, no environment variable."""
    code = f"""
import json, sys
sys.path[:0] = {json.dumps([p for p in sys.path if p])}
from rocm.bindings import hip, hipfile
from hipfile_sim.machine import Machine
from hipfile_sim.native.activation import activate
with activate(Machine(5, engine="threads")):
    print(hip.hipGetDeviceCount()[1], hipfile.hipFileUseCount())
with activate(Machine(1, engine="threads")):
    print(hip.hipGetDeviceCount()[1])
"""
    done = run([clients, "-c", code])
    assert (done.returncode, done.stdout) == (0, "5 (0,)\n1\n"), done.stderr
