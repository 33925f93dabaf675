"""Ctrl-C and other exceptions that are the host program's own: they end the call under way, and always reach it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from native_support import HERE, ROOT, host, run


def interrupts(native_prefix: Path, *words: str) -> int:
    done = run(
        [sys.executable, HERE / "interrupts.py", native_prefix, *words], env={"PYTHONPATH": str(ROOT)}, timeout=500
    )
    assert (done.returncode, done.stderr) == (0, "")
    return int(done.stdout)


@pytest.mark.parametrize(("scene", "least"), [("memory", 80), ("streams", 50), ("errors", 20), ("waiting", 40)])
def test_at_every_place_of_a_call(native_prefix: Path, scene: str, least: int) -> None:
    assert interrupts(native_prefix, scene) >= least


def test_exception_of_a_signal_handler(native_prefix: Path) -> None:
    """A timeout that SIGALRM raises is an ordinary `Exception`, and still not the model's."""
    assert interrupts(native_prefix, "alarm") >= 80


def test_during_the_first_call(native_prefix: Path) -> None:
    """While the model is imported and made: the next call makes it."""
    assert interrupts(native_prefix, "first", "25") == 25


def test_signals_of_another_thread(native_prefix: Path) -> None:
    assert interrupts(native_prefix, "bombarded", "200") == 200


def test_interrupt_ends_a_wait(native_prefix: Path) -> None:
    """The host function sends the signal, so the wait can end by nothing else. The call's result never arrives."""
    code = """
gate = threading.Event()
def hold(_):
    os.kill(os.getpid(), signal.SIGINT)
    gate.wait(60)
held = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(hold)
try:
    hip.hipLaunchHostFunc(None, held, None)
    print("returned", hip.hipStreamSynchronize(None))
except KeyboardInterrupt:
    print("interrupted")
gate.set()
print(hip.hipDeviceSynchronize())
"""
    assert host(native_prefix, code) == (0, "interrupted\n0\n", "")


SWALLOWED = """
from hipfile_sim.native import bridge
machine = bridge.machine()
class Swallows:
    def __del__(self):
        {action}
def interpose(name, args):
    Swallows()
machine.hip.interpose = interpose
try:
    print("returned", hip.hipDeviceSynchronize())
    print("lost")
except KeyboardInterrupt as error:
    print("interrupted", error)
machine.hip.interpose = None
print(hip.hipInit(0), sys.unraisablehook is before)
"""


@pytest.mark.parametrize("hook", ["sys.__unraisablehook__", "lambda what: print('hook', what.exc_type.__name__)"])
def test_interrupt_that_a_destructor_swallows(native_prefix: Path, hook: str) -> None:
    """Python reports what a destructor raises, and goes on. An interrupt goes to the program instead."""
    code = f"before = sys.unraisablehook = {hook}\n" + SWALLOWED.format(action="signal.raise_signal(signal.SIGINT)")
    assert host(native_prefix, code) == (0, "interrupted \n0 True\n", "")


def test_other_exceptions_of_a_destructor_go_to_the_programs_hook(native_prefix: Path) -> None:
    code = "before = sys.unraisablehook = lambda what: print(what.exc_value)\n" + SWALLOWED.format(
        action="raise ValueError('a value')"
    )
    assert host(native_prefix, code) == (0, "a value\nreturned 0\nlost\n0 True\n", "")


def test_interrupt_in_the_hook_itself(native_prefix: Path) -> None:
    code = """
def before(what):
    signal.raise_signal(signal.SIGINT)
sys.unraisablehook = before
""" + SWALLOWED.format(action="raise ValueError")
    assert host(native_prefix, code) == (0, "interrupted \n0 True\n", "")


def test_interrupt_in_a_kernel_that_is_a_python_function(native_prefix: Path) -> None:
    """The step engine runs it on the thread that waits; ctypes swallows what it raises."""
    code = """
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
kernel = KERNEL(lambda *_: signal.raise_signal(signal.SIGINT))
class dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32)]
print(hip.hipfileSimKernelRegister(kernel, kernel, None, None, 0))
try:
    print(hip.hipLaunchKernel(kernel, dim3(1, 1, 1), dim3(1, 1, 1), None, ctypes.c_size_t(0), None))
    print("returned", hip.hipDeviceSynchronize())
except KeyboardInterrupt:
    print("interrupted")
"""
    assert host(native_prefix, code, HIPFILE_SIM_SCHEDULE="lazy") == (0, "0\n0\ninterrupted\n", "")


def test_exit_of_the_program_inside_a_call(native_prefix: Path) -> None:
    """SystemExit, as a handler of SIGTERM raises it: the status is kept."""
    code = """
def leave(number, frame):
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
from hipfile_sim.native import bridge
bridge.machine().hip.interpose = lambda name, args: signal.raise_signal(signal.SIGTERM)
print("returned", hip.hipDeviceSynchronize())
"""
    assert host(native_prefix, code) == (7, "", "")


def test_exception_that_one_thread_raises_in_another(native_prefix: Path) -> None:
    code = """
from hipfile_sim.native import bridge
class Stop(BaseException):
    pass
def interpose(name, args):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(Stop))
bridge.machine().hip.interpose = interpose
def work():
    try:
        print("returned", hip.hipDeviceSynchronize())
    except Stop:
        print("stopped")
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    assert host(native_prefix, code) == (0, "stopped\n", "")


def test_calls_of_c_code_go_on_after_an_interrupt(native_prefix: Path, tmp_path: Path) -> None:
    """Its clean-up works; the interrupt comes when Python code runs again."""
    from hipfile_sim.native.build import compiler

    (tmp_path / "c.c").write_text(
        "int hipDeviceSynchronize(void), hipInit(unsigned), hipGetLastError(void);\n"
        "int three(int *codes) { codes[0] = hipDeviceSynchronize(); codes[1] = hipInit(0);"
        " codes[2] = hipGetLastError(); return 0; }\n"
    )
    library = tmp_path / "libc.so"
    made = run([*compiler(), "-shared", "-fPIC", tmp_path / "c.c", "-o", library])
    assert made.returncode == 0, made.stderr
    code = f"""
from hipfile_sim.native import bridge
def interpose(name, args):
    if name == "hipDeviceSynchronize":
        signal.raise_signal(signal.SIGINT)
bridge.machine().hip.interpose = interpose
ctypes.CDLL(hip._name, mode=ctypes.RTLD_GLOBAL)
codes = (ctypes.c_int * 3)()
try:
    ctypes.CDLL({str(library)!r}).three(codes)
    print("returned")
except KeyboardInterrupt:
    print(list(codes))
"""
    assert host(native_prefix, code) == (0, "[999, 0, 999]\n", "")
