"""The targets behind AMD's Python bindings: what they call, what they refuse, and who they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hipfile_conformance.cli import _releases
from hipfile_conformance.expectations import apply_expectations, load_expectations
from hipfile_conformance.results import State
from hipfile_conformance.runner import Plan, run_conformance
from hipfile_conformance.targets import hip_python, make_target
from hipfile_conformance.targets.base import SIGNATURES, Unavailable, Unsupported
from hipfile_sim.driver.profiles import NEWEST

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def bindings() -> tuple[object, object]:
    """The bindings; a test that needs them is skipped without, and without the libraries."""
    from hipfile_sim.native.prefix import NativeUnavailable, libraries

    try:
        found = hip_python._bindings()
        libraries()
    except (Unavailable, NativeUnavailable) as error:
        pytest.skip(str(error))
    return found


def in_a_process(program: str, *args: object) -> str:
    """What the program prints; in a process of its own, because the libraries stay loaded."""
    command = [sys.executable, "-c", program, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_the_bindings_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocm.bindings.hip", None)
    for name in ("abi-python", "rocm-python"):
        with pytest.raises(Unavailable, match=r"bindings cannot be imported.*pip install hip-python"):
            make_target(name, tmp_path)


def test_the_bindings_have_every_call_but_the_listed(bindings: tuple[object, object]) -> None:
    missing = {n for n in SIGNATURES if not hasattr(bindings[n.startswith("hipFile")], n)}
    assert missing == hip_python.BY_CTYPES


def test_a_missing_symbol_is_no_success() -> None:
    target = object.__new__(hip_python.AbiPythonTarget)
    target._functions = {}
    target.hipfile = SimpleNamespace(
        __name__="bindings", has_symbol=lambda name: False, hipFileDriverOpen=lambda: pytest.fail("called")
    )
    with pytest.raises(Unsupported, match="no hipFileDriverOpen"):
        target.call("hipFileDriverOpen")


BOTH_WAYS = """
import json, os, sys
from pathlib import Path
from hipfile_conformance.targets import make_target
from hipfile_conformance.targets.base import Unsupported
from hipfile_conformance.targets.clib import CTarget
target = make_target("abi-python", Path(sys.argv[1]))
plain = CTarget(target.libraries, Path(sys.argv[1]))
plain.name = "plain"
code, device = target.call("hipMalloc", 4096)
calls = [("hipGetDeviceCount",), ("hipSetDevice", 9), ("hipPeekAtLastError",), ("hipGetLastError",),
         ("hipDeviceGetName", 0), ("hipGetErrorName", 1), ("hipMemGetAddressRange", device + 64),
         ("hipPointerGetAttributes", device), ("hipMemset", device, 3, 4096), ("hipFree", 4096),
         ("hipFileGetVersion",), ("hipFileUseCount",), ("hipFileDriverOpen",), ("hipFileUseCount",),
         ("hipFileGetOpErrorString", 5022), ("hipFileHandleRegister", None), ("hipFileRead", 0, device, 16, 0, 0),
         ("hipFileBufRegister", device, 0, 0), ("hipFileStreamDeregister", 77), ("hipFileDriverSetPollMode", True, 4)]
one = [target.call(*call) for call in calls]
target.call("hipFileDriverClose")
two = [plain.call(*call) for call in calls]
try:
    refused = target.call("hipMemcpy", device, device, 16, 77)
except Unsupported as error:
    refused = str(error)
print(json.dumps([[repr(x) for x in one], [repr(x) for x in two], code, refused, target.facts()]))
sys.stdout.flush()
os._exit(0)
"""


def test_the_bindings_answer_as_ctypes_does(tmp_path: Path, bindings: tuple[object, object]) -> None:
    one, two, code, refused, facts = json.loads(in_a_process(BOTH_WAYS, tmp_path))
    assert code == 0
    assert one == two
    assert "77 is not a valid hipMemcpyKind" in refused, "an argument outside an enumeration is reported, not passed"
    assert facts["bindings"]
    assert f"/{NEWEST}/" in facts["libraries"]


def test_rocm_python_refuses_a_stub(tmp_path: Path, bindings: tuple[object, object]) -> None:
    from hipfile_sim.native.prefix import prefix

    program = (
        "import sys\n"
        "from hipfile_conformance.targets import Unavailable, make_target\n"
        "try: make_target('rocm-python', sys.argv[1], prefix=sys.argv[2])\n"
        "except Unavailable as error: print(error)\n"
    )
    assert "emulated library" in in_a_process(program, tmp_path, prefix())


def test_it_runs_in_workers(bindings: tuple[object, object]) -> None:
    words = ["stream.register", "hip.free.null", "hip.host-function.calls"]
    column = run_conformance("abi-python", release="0.4", plan=Plan(only=words, jobs=1))
    assert apply_expectations(column, load_expectations("abi-python")) == []
    states = {result.test: result.state for result in column.tests}
    assert states["hip.calls_in_host_function"] is State.DEVIATION
    assert states["stream.register"] is State.PASS
    assert states["hip.free"] is State.PASS
    assert "/0.4/" in column.facts["libraries"]


def test_auto_takes_the_newest_release() -> None:
    assert _releases("abi-python", "all", auto=True) == [NEWEST]
    assert _releases("abi-python", "all") == _releases("abi", "all") == _releases("abi", "all", auto=True)
    assert _releases("abi-python", "0.3", auto=True) == ["0.3"]
