"""What hosts do to the libraries: threads, fork, exit, signals, other interpreters, errors inside the model."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

import pytest
from native_support import execute, host

from hipfile_sim.native.shims import UNMODELLED

C_CASES = (
    "race",
    "race_of_both",
    "short_threads",
    "plugin",
    "at_exit",
    "keep_signals",
    "reenter",
    "keeps_errno",
    "look_up",
)


@pytest.mark.parametrize("case", C_CASES)
def test_c_host(programs: Path, case: str) -> None:
    done = execute(programs / "robust", case, timeout=500)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("schedule", ["threads", "lazy", "eager"])
def test_end_of_a_c_program_with_work_pending(programs: Path, tmp_path: Path, schedule: str) -> None:
    """Operations in flight, a host function that never returns, a thread that waits for it."""
    done = execute(programs / "robust", "pending_work", options=["--schedule", schedule], env={"FOLDER": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_c_host_forks(programs: Path) -> None:
    done = execute(programs / "robust", "forks", timeout=500)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert set(done.stderr.splitlines()) == {
        "hipfile-sim: HIP and hipFile do not survive fork(): every call in this child fails."
    }


def test_model_exception_is_a_code_and_a_report(native_prefix: Path) -> None:
    code = """
from hipfile_sim.native import bridge
machine = bridge.machine()
def fail(name, args):
    raise RuntimeError("broken on purpose")
machine.hip.interpose = fail
print(hip.hipDeviceSynchronize(), hip.hipPeekAtLastError())
machine.hip.interpose = None
print(hip.hipDeviceSynchronize(), hip.hipGetLastError(), hip.hipGetLastError())
machine.hipfile.interpose = fail
hipfile.hipFileRead.restype = ctypes.c_ssize_t
print(hipfile.hipFileRead(None, None, 0, 0, 0))
"""
    status, out, err = host(native_prefix, code)
    assert (status, out.split()) == (0, ["999", "999", "0", "999", "0", "-5030"]), err
    assert err.count("broken on purpose") == 2
    assert err.count("Exception ignored in") == 2


def test_calls_while_the_interpreter_ends(native_prefix: Path) -> None:
    """Exit handlers still work; a thread that never stops calling is turned away; nothing crashes, nothing hangs."""
    code = """
hip.hipInit(0)
class Late:
    def __del__(self):
        hip.hipSetDevice(1)
late = Late()
atexit.register(lambda: print("exit", hip.hipInit(0), flush=True))
def forever():
    while True:
        hip.hipSetDevice(0)
for _ in range(3):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
"""
    for _ in range(3):
        status, out, err = host(native_prefix, code)
        assert (status, out, err) == (0, "exit 0\n", "")


def test_caller_that_holds_the_gil(native_prefix: Path) -> None:
    status, out, err = host(native_prefix, "print(ctypes.PyDLL(hip._name).hipInit(0))")
    assert (status, out, err) == (0, "0\n", "")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="ctypes cannot be imported in a subinterpreter there")
def test_subinterpreter_uses_the_main_model(native_prefix: Path) -> None:
    code = f"""
import _xxsubinterpreters as sub
hip.hipInit(0)
one = sub.create()
sub.run_string(one, '''
import ctypes
hip = ctypes.CDLL({str(native_prefix / "lib" / "libamdhip64.so")!r})
count = ctypes.c_int()
print(hip.hipGetDeviceCount(ctypes.byref(count)), count.value, flush=True)
''')
sub.destroy(one)
print(hip.hipInit(0))
"""
    status, out, err = host(native_prefix, code, HIPFILE_SIM_DEVICES="3")
    assert (status, out, err) == (0, "0 3\n0\n", "")


def test_python_fork(native_prefix: Path) -> None:
    code = """
hip.hipInit(0)
child = os.fork()
if child == 0:
    count = ctypes.c_int(-1)
    os._exit(40 + hip.hipGetDeviceCount(ctypes.byref(count)))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), hip.hipInit(0))
"""
    status, out, err = host(native_prefix, code)
    assert (status, out) == (0, "43 0\n"), err


def test_not_modelled_says_so_once(native_prefix: Path) -> None:
    """Every such function: an error that is the last error, too, or NULL; one line each."""
    names = [name for name, pointer in UNMODELLED if not pointer]
    pointers = [name for name, pointer in UNMODELLED if pointer]
    code = f"""
for name in {names!r}:
    function = getattr(hip, name)
    if (function(None, 0), function(None, 0), hip.hipPeekAtLastError(), hip.hipGetLastError()) != (801, 801, 801, 801):
        print(name)
for name in {pointers!r}:
    function = getattr(hip, name)
    function.restype = ctypes.c_void_p
    if (function(None), function(None), hip.hipGetLastError()) != (None, None, 801):
        print(name)
"""
    status, out, err = host(native_prefix, code)
    assert (status, out) == (0, "")
    said = "hipfile-sim: {} is not modelled: it does nothing and returns {}."
    assert err.splitlines() == [
        *(said.format(name, "hipErrorNotSupported") for name in names),
        *(said.format(name, "NULL") for name in pointers),
    ]


def test_end_of_a_python_program_with_work_pending(native_prefix: Path) -> None:
    """A stream that is held, and a thread that waits for it: the program ends as if nothing were."""
    code = """
stream = ctypes.c_void_p()
hip.hipStreamCreate(ctypes.byref(stream))
held = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(1000))
hip.hipLaunchHostFunc(stream, held, None)
hip.hipMemsetAsync(None, 0, ctypes.c_size_t(0), stream)
threading.Thread(target=hip.hipStreamSynchronize, args=(stream,), daemon=True).start()
print("end")
"""
    assert host(native_prefix, code) == (0, "end\n", "")


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PROFILE", "9.9", "no profile '9.9'"),
        ("SCHEDULE", "sideways", "sideways"),
        ("DEVICES", "many", "HIPFILE_SIM_DEVICES"),
        ("CONFIG", "/no/such/file.toml", "No such file"),
    ],
)
def test_wrong_configuration(native_prefix: Path, variable: str, value: str, message: str) -> None:
    """Said once; every call fails with a code."""
    code = "print(hip.hipInit(0), hip.hipInit(0), hipfile.hipFileUseCount())"
    status, out, err = host(native_prefix, code, **{f"HIPFILE_SIM_{variable}": value})
    assert (status, out) == (0, "3 3 -1\n"), err
    assert len(re.findall("^hipfile-sim:", err, re.M)) == 2
    assert message in err
    assert "Traceback" not in err


@pytest.mark.skipif(not sysconfig.get_config_var("Py_ENABLE_SHARED"), reason="this Python has no shared libpython")
@pytest.mark.parametrize("case", ["before", "before-local", "after", "after-local", "finalize"])
def test_host_with_its_own_python(programs: Path, case: str) -> None:
    """The one interpreter of the process is used, whoever started it; once finalised, every call is an error."""
    libpython = Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")
    done = execute(programs / "embed", libpython, case)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
