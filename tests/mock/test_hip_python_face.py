"""The HIP-Python double, alone and beside AMD's own wheels."""

from __future__ import annotations

import array
import ctypes
import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hipfile_mock
from hipfile_mock.faces import packages
from hipfile_mock.faces.slots import quarantined
from hipfile_sim.observe.observer import Note, Observer
from hipfile_sim.observe.sanitizer import SanitizerError

SIZE = 1 << 16
FACES = ("hipfile", "hip_python-double")


@pytest.fixture
def fake() -> Iterator[hipfile_mock.Session]:
    with hipfile_mock.fake(schedule="lazy", strict=None, faces=FACES) as session:
        yield session


@pytest.fixture
def hip(fake: hipfile_mock.Session) -> Any:
    return importlib.import_module("rocm.bindings.hip")


@pytest.fixture
def hipfile(fake: hipfile_mock.Session) -> Any:
    return importlib.import_module("rocm.bindings.hipfile")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "slab.bin"
    made.write_bytes(bytes(range(256)) * (SIZE // 256))
    return made


def check(result: tuple[Any, ...]) -> Any:
    """What a program writes around every call."""
    error, *values = result
    assert int(getattr(error, "err", error)) == 0, result
    return values[0] if len(values) == 1 else values


# -- the double by itself --------------------------------------------------------------------------------


def test_older_names_are_the_same_modules(hip: Any, hipfile: Any) -> None:
    from hip import VERSION
    from hip import hip as old
    from hip import hipfile as old_file

    assert old is hip
    assert old_file is hipfile
    assert VERSION == "10.0.0.0.1.2"


def test_memory_round_trip(hip: Any) -> None:
    pointer = check(hip.hipMalloc(SIZE))
    source, target = bytearray(os.urandom(SIZE)), bytearray(SIZE)
    check(hip.hipMemcpy(pointer, source, SIZE, hip.hipMemcpyKind.hipMemcpyHostToDevice))
    check(hip.hipMemcpy(target, pointer, SIZE, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
    assert target == source
    check(hip.hipMemset(pointer[16], 7, 8))
    check(hip.hipMemcpy(target, pointer, 32, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
    assert target[:32] == source[:16] + b"\7" * 8 + source[24:32]
    attributes = check(hip.hipPointerGetAttributes(pointer))
    assert attributes.type == hip.hipMemoryType.hipMemoryTypeDevice
    assert int(attributes.devicePointer) == int(pointer)
    base, size = check(hip.hipMemGetAddressRange(pointer[100]))
    assert (int(base), size) == (int(pointer), SIZE)
    check(hip.hipFree(pointer))


def test_arrays_of_numpy_and_ctypes_are_addresses(hip: Any) -> None:
    numpy = pytest.importorskip("numpy")
    pointer = check(hip.hipMalloc(64)).configure(typestr="int64", shape=(8,))
    numbers = numpy.arange(8, dtype="int64")
    check(hip.hipMemcpy(pointer, numbers, 64, hip.hipMemcpyKind.hipMemcpyHostToDevice))
    room = (ctypes.c_int64 * 8)()
    check(hip.hipMemcpy(room, pointer, 64, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
    assert list(room) == list(range(8))
    assert pointer[3:5].shape == (2,)
    assert int(pointer[3]) - int(pointer) == 24


def test_streams_events_and_host_functions(hip: Any) -> None:
    stream = check(hip.hipStreamCreateWithFlags(hip.hipStreamNonBlocking))
    start, stop = check(hip.hipEventCreate()), check(hip.hipEventCreate())
    seen: list[int] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(seen.append)
    status = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(lambda s, e, d: seen.append(d))
    check(hip.hipEventRecord(start, stream))
    check(hip.hipLaunchHostFunc(stream, ctypes.cast(callback, ctypes.c_void_p), 42))
    check(hip.hipStreamAddCallback(stream, ctypes.cast(status, ctypes.c_void_p), 43, 0))
    check(hip.hipEventRecord(stop, stream))
    assert hip.hipStreamQuery(stream) == (hip.hipError_t.hipErrorNotReady,)
    check(hip.hipEventSynchronize(stop))
    assert seen == [42, 43]
    assert check(hip.hipEventElapsedTime(start, stop)) > 0
    assert check(hip.hipStreamGetFlags(stream)) == 1
    check(hip.hipStreamDestroy(stream))


def test_a_callback_that_is_no_function_is_refused_instead_of_crashing(hip: Any) -> None:
    stream = check(hip.hipStreamCreate())
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
    with pytest.raises(TypeError, match=r"ctypes\.cast"):
        hip.hipLaunchHostFunc(stream, callback, None)
    with pytest.raises(TypeError, match="not the address of a C function"):
        hip.hipLaunchHostFunc(stream, 0x1234, None)


def test_devices(hip: Any) -> None:
    assert check(hip.hipGetDeviceCount()) == 2
    properties = check(hip.hipGetDeviceProperties(1))
    assert properties.gcnArchName.startswith("gfx")
    assert properties.totalGlobalMem > 0
    assert properties.maxThreadsDim == [1024, 1024, 1024]
    assert str(check(hip.hipDeviceGetName(64, 0))) == properties.name
    warp = hip.hipDeviceAttribute_t.hipDeviceAttributeWarpSize
    assert check(hip.hipDeviceGetAttribute(warp, 0)) == properties.warpSize
    error, empty = hip.hipGetDeviceProperties(9)
    assert error is hip.hipError_t.hipErrorInvalidDevice
    assert empty.name == ""


def test_file_round_trip(hip: Any, hipfile: Any, path: Path) -> None:
    pointer = check(hip.hipMalloc(SIZE))
    fd = os.open(path, os.O_RDWR)
    descr = hipfile.hipFileDescr(type=hipfile.hipFileFileHandleType.hipFileHandleTypeOpaqueFD)
    descr.handle.fd = fd
    handle = check(hipfile.hipFileHandleRegister(descr))
    check(hipfile.hipFileBufRegister(pointer, SIZE, 0))
    assert hipfile.hipFileRead(handle, pointer, SIZE, 0, 0) == (SIZE, 0, 0)
    assert hipfile.hipFileWrite(handle, pointer, 256, SIZE, 0) == (256, 0, 0)
    assert hipfile.hipFileRead(handle, pointer, 1, -1, 0)[:2] == (-1, 22)
    assert path.read_bytes()[SIZE:] == bytes(range(256))
    check(hipfile.hipFileBufDeregister(pointer))
    assert hipfile.hipFileHandleDeregister(handle) is None
    os.close(fd)


def make_slots(kind: str) -> tuple[list[Any], Any]:
    """Four slots, and what reads the result."""
    from rocm.bindings.util.types import PointerToInt64, PointerToUInt64

    if kind == "pointer objects":
        slots = [PointerToUInt64([4096]), PointerToInt64([256]), PointerToInt64([0]), PointerToInt64.allocate()]
        return slots, lambda: slots[3].value
    if kind == "buffers":
        slots = [array.array("Q", [4096]), array.array("q", [256]), array.array("q", [0]), array.array("q", [0])]
        return slots, lambda: slots[3][0]
    slots = [ctypes.c_size_t(4096), ctypes.c_int64(256), ctypes.c_int64(0), ctypes.c_int64(0)]
    if kind == "addresses":
        return [ctypes.addressof(slot) for slot in slots], lambda keep=slots: keep[3].value
    return slots, lambda: slots[3].value


@pytest.mark.parametrize("kind", ["ctypes", "addresses", "buffers", "pointer objects"])
def test_async_takes_slots_of_every_kind(
    hip: Any, hipfile: Any, fake: hipfile_mock.Session, path: Path, kind: str
) -> None:
    pointer, stream = check(hip.hipMalloc(SIZE)), check(hip.hipStreamCreate())
    check(hipfile.hipFileStreamRegister(stream, 0))
    with opened(hipfile, path) as handle:
        slots, result = make_slots(kind)
        check(hipfile.hipFileReadAsync(handle, pointer, *slots, stream))
        assert result() == 0
        check(hip.hipStreamSynchronize(stream))
        assert result() == 4096
        assert bytes(fake.memory.view(int(pointer), 3)) == bytes([0, 1, 2])
    check(hipfile.hipFileStreamDeregister(stream))


class opened:
    """A registered file."""

    def __init__(self, hipfile: Any, path: Path) -> None:
        self.hipfile, self.path = hipfile, path

    def __enter__(self) -> Any:
        self.fd = os.open(self.path, os.O_RDWR)
        descr = self.hipfile.hipFileDescr(type=self.hipfile.hipFileFileHandleType.hipFileHandleTypeOpaqueFD)
        descr.handle.fd = self.fd
        self.handle = check(self.hipfile.hipFileHandleRegister(descr))
        return self.handle

    def __exit__(self, *_: object) -> None:
        self.hipfile.hipFileHandleDeregister(self.handle)
        os.close(self.fd)


@pytest.mark.parametrize("kind", ["ctypes", "pointer objects"])
def test_dropped_slots_are_kept_and_reported(
    hip: Any, hipfile: Any, fake: hipfile_mock.Session, path: Path, kind: str
) -> None:
    notes: list[Note] = []

    class Notes(Observer):
        def note(self, note: Note) -> None:
            notes.append(note)

    fake.machine.add_observer(Notes())
    pointer, stream = check(hip.hipMalloc(SIZE)), check(hip.hipStreamCreate())
    with opened(hipfile, path) as handle:
        slots, result = make_slots(kind)
        check(hipfile.hipFileReadAsync(handle, pointer, *slots, stream))
        assert quarantined(fake.machine) == 0, "the program still has them"
        address = int(slots[3]) if kind == "pointer objects" else ctypes.addressof(slots[3])
        del slots, result
        gc.collect()
        assert quarantined(fake.machine) == 4
        check(hip.hipStreamSynchronize(stream))
        assert ctypes.c_int64.from_address(address).value == 4096
        assert quarantined(fake.machine) == 0
        assert {note.id for note in notes} >= {"slot.owner-collected"}


def test_dropped_slots_fail_a_strict_run(path: Path) -> None:
    def program() -> None:
        hip, hipfile = importlib.import_module("rocm.bindings.hip"), importlib.import_module("rocm.bindings.hipfile")
        pointer, stream = check(hip.hipMalloc(SIZE)), check(hip.hipStreamCreate())
        with opened(hipfile, path) as handle:

            def submit() -> None:
                slots, _ = make_slots("ctypes")
                check(hipfile.hipFileReadAsync(handle, pointer, *slots, stream))

            submit()
            check(hip.hipStreamSynchronize(stream))

    with pytest.raises(SanitizerError, match=r"slot\.owner-collected"), hipfile_mock.fake(faces=FACES):
        program()


def test_batch(hip: Any, hipfile: Any, path: Path) -> None:
    from rocm.bindings.util.types import PointerToUnsigned

    pointer = check(hip.hipMalloc(SIZE))
    with opened(hipfile, path) as handle:
        batch = check(hipfile.hipFileBatchIOSetUp(4))
        operation = hipfile.hipFileIOParams()
        operation.mode = hipfile.hipFileBatchMode.hipFileBatch
        operation.opcode = hipfile.hipFileOpcode.hipFileBatchRead
        operation.fh, operation.cookie = handle, 77
        operation.u.batch.devPtr_base, operation.u.batch.size = pointer, 4096
        check(hipfile.hipFileBatchIOSubmit(batch, 1, operation, 0))
        events, count = hipfile.hipFileIOEvents(), PointerToUnsigned([1])
        check(hipfile.hipFileBatchIOGetStatus(batch, 1, count, events, None))
        assert count.value == 1
        assert events.status == hipfile.hipFileStatus.hipFileComplete
        assert (int(events.cookie), events.ret) == (77, 4096)
        hipfile.hipFileBatchIODestroy(batch)


def test_objects_of_rocm_hipfile(fake: hipfile_mock.Session, hip: Any, path: Path) -> None:
    rocm_hipfile = importlib.import_module("rocm.hipfile")
    assert rocm_hipfile.__version__ == "0.4.0"
    assert not hasattr(rocm_hipfile, "Stream")
    pointer = check(hip.hipMalloc(SIZE))
    with (
        rocm_hipfile.Driver() as driver,
        rocm_hipfile.Buffer(pointer, SIZE, 0) as memory,
        rocm_hipfile.FileHandle(path, os.O_RDWR) as file,
    ):
        assert driver.use_count() == 1
        assert file.read(memory, SIZE, 0, 0) == SIZE
        assert file.write(memory, 16, 0, 100) == 16
        with pytest.raises(OSError, match="Invalid argument"):
            file.read(memory, 1, -1, 0)
        with pytest.raises(rocm_hipfile.HipFileException) as failed:
            file.read(memory, SIZE + 1, 0, 0)
        assert failed.value.hipfile_err == rocm_hipfile.OpError.INVALID_VALUE
    assert path.read_bytes()[:16] == bytes(range(100, 116))


def test_known_defects_of_the_release_are_kept(fake: hipfile_mock.Session) -> None:
    rocm_hipfile = importlib.import_module("rocm.hipfile")
    with pytest.raises(TypeError):
        rocm_hipfile.driver_get_properties()
    with pytest.raises(TypeError, match="_hipFileOpError__Base"):
        str(rocm_hipfile.HipFileException(5022, 0))


def test_what_is_missing_is_said(hip: Any) -> None:
    with pytest.raises(AttributeError, match=r"no 'hipGraphCreate'.*hipfile-sim exec"):
        _ = hip.hipGraphCreate
    assert not hip.has_symbol("hipGraphCreate")


# -- which one is used -----------------------------------------------------------------------------------


def test_double_where_there_are_no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "real_hip_python", lambda: "")
    with hipfile_mock.fake() as session:
        assert session.faces["hip_python"] == ""
        module = importlib.import_module("rocm.bindings.hip")
        assert "hip_python" in (module.__file__ or "")


def wheels_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """AMD's wheels seem to be installed, and this process has not imported them, whatever an earlier test did."""
    monkeypatch.setattr(packages, "real_hip_python", lambda: "/somewhere/rocm/bindings/hip.so")
    for name in ("rocm.bindings.hip", "rocm.bindings.hipfile"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_wheels_without_libraries_or_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from hipfile_mock.faces import c_abi

    wheels_not_imported(monkeypatch)
    monkeypatch.setattr(c_abi, "LIBRARIES", tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with hipfile_mock.fake() as session:
        assert "gcc" in session.faces["hip_python"]
    with (
        pytest.raises(hipfile_mock.FaceUnavailable, match="hip_python-double"),
        hipfile_mock.fake(faces=["hip_python"]),
    ):
        pass


def test_an_import_hook_waits_for_the_wheels_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(sys.meta_path)
    wheels_not_imported(monkeypatch)
    with hipfile_mock.fake():
        assert [type(finder).__name__ for finder in sys.meta_path if finder not in before].count("_Later") >= 1
    assert sys.meta_path == before


def run(code: str, wheels: Path) -> Any:
    """What a program prints as JSON, in a process that has the wheels."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(wheels), *sys.path])}
    for name in ("ROCM_PATH", "ROCM_HOME", "LD_LIBRARY_PATH"):
        environment.pop(name, None)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


DESCRIBE = """
import enum, inspect, json
def describe(module, names):
    found = {}
    for name in names:
        value = getattr(module, name, None)
        if isinstance(value, type) and issubclass(value, enum.Enum):
            found[name] = [value.__name__, value.__mro__[1].__name__, {n: int(m) for n, m in value.__members__.items()}]
        elif hasattr(value, "PROPERTIES"):
            size = value().c_sizeof() if value.PROPERTIES() else 0
            pointer = "Pointer" in [base.__name__ for base in value.__mro__]
            found[name] = [value.__name__, list(value.PROPERTIES()), size, pointer]
        elif callable(value) and not isinstance(value, type):
            found[name] = list(inspect.signature(value).parameters)
        else:
            found[name] = value if isinstance(value, int) else type(value).__name__
    return found
"""


def test_signatures_enumerations_and_structures_are_the_wheels_own(
    fake: hipfile_mock.Session, hip: Any, hipfile: Any, hip_python_wheels: Path
) -> None:
    names = {module.__name__: sorted(module.__all__) for module in (hip, hipfile)}
    code = f"{DESCRIBE}\nimport importlib\nnames = {names!r}\n"
    code += "print(json.dumps({m: describe(importlib.import_module(m), n) for m, n in names.items()}))"
    theirs = run(code, hip_python_wheels)
    scope: dict[str, Any] = {}
    exec(DESCRIBE, scope)
    ours = {m.__name__: scope["describe"](m, names[m.__name__]) for m in (hip, hipfile)}
    errors = ours["rocm.bindings.hip"]["hipError_t"][2]
    assert errors.pop("hipErrorNotPermitted") == 800, "the model's answer to a HIP call in a host function"
    ours = json.loads(json.dumps(ours))
    differing = {n: (v, theirs[m][n]) for m in ours for n, v in ours[m].items() if v != theirs[m][n]}
    assert differing == {}


NAMES = """
import inspect, json
def parameters(function):
    given = inspect.signature(function).parameters.values()
    return [(p.name, "" if p.default is p.empty else repr(p.default)) for p in given]
def describe():
    import rocm.hipfile as module
    found = {"__all__": sorted(module.__all__), "__version__": module.__version__}
    for name in module.__all__:
        value = getattr(module, name)
        if hasattr(value, "__members__"):
            found[name] = {member.name: int(member) for member in value}
        elif inspect.isclass(value):
            members = {k: v for k, v in vars(value).items() if not k.startswith("_") or k == "__init__"}
            found[name] = {k: parameters(v) if inspect.isfunction(v) else type(v).__name__ for k, v in members.items()}
    return json.loads(json.dumps(found))
"""


def test_rocm_hipfile_has_the_wheels_own_names(fake: hipfile_mock.Session, hip_python_wheels: Path) -> None:
    scope: dict[str, Any] = {}
    exec(NAMES, scope)
    assert scope["describe"]() == run(NAMES + "\nprint(json.dumps(describe()))", hip_python_wheels)


PROGRAM = """
import array, ctypes, json, os, re
from rocm.bindings import hip, hipfile
from rocm.bindings.util import types

def plain(value):
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(plain, value)]
    if hasattr(value, "hip_drv_err"):
        return ["error", plain(value.err), plain(value.hip_drv_err)]
    if isinstance(value, types.CStr):
        return ["CStr", str(value), len(value)]
    if isinstance(value, types.NDBuffer):
        return [type(value).__name__, list(value.shape), value.typestr, value.itemsize, value.size]
    if isinstance(value, types.Pointer):
        return [type(value).__name__, bool(value)]
    return [type(value).__name__, re.sub("0x[0-9a-f]+", "0x", repr(value))]

def perform(lines):
    for line in lines:
        names, _, call = line.rpartition(" = ") if ASSIGNS.fullmatch(line) else ("", "", line)
        try:
            value = eval(call, globals())
        except SyntaxError:
            exec(line, globals())
            continue
        except Exception as error:
            yield [line, type(error).__name__, str(error).partition("(")[0]]
            continue
        globals()["value"] = value
        if names:
            exec(f"{names} = value", globals())
        yield [line, plain(value)]

ASSIGNS = re.compile(r"\\w+(, \\w+)* = [^=].*")
"""


def test_the_double_answers_as_the_wheels_do_on_the_emulated_libraries(hip_python_wheels: Path) -> None:
    """One program, twice: the wheels on the C libraries, and the double. Types, codes, values and messages agree."""
    from hipfile_sim.native.prefix import NativeUnavailable, libraries

    try:
        libraries()
    except NativeUnavailable as error:
        pytest.skip(f"the emulated C libraries are not built: {error}")
    text = (Path(__file__).parent / "hip_python_calls.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    answers = {}
    for face, origin in (("hip_python", str(hip_python_wheels)), ("hip_python-double", "faces/hip_python")):
        code = f"import hipfile_mock\nwith hipfile_mock.fake(strict=None, faces=[{face!r}]):\n"
        code += f"    exec({PROGRAM!r})\n    out = list(perform({lines!r}))\n"
        code += f"    assert {origin!r} in hip.__file__, hip.__file__\nprint(json.dumps(out))"
        answers[face] = run(code, hip_python_wheels)
    theirs, ours = answers.values()
    assert len(theirs) > 120
    assert [pair for pair in zip(theirs, ours, strict=True) if pair[0] != pair[1]] == []


AFTER_THE_END = """
import json
from hipfile_mock import fake

with fake(strict=False):
    from rocm.bindings import hip, hipfile

    inside = int(hip.hipMalloc(64)[0])
late = int(hip.hipMalloc(64)[0])
file = hipfile.hipFileDriverOpen()
with fake(strict=False):
    again = int(hip.hipMalloc(64)[0])
print(json.dumps([inside, late, int(file[0].err), again]))
"""


def test_the_wheels_are_refused_once_a_fake_has_ended(hip_python_wheels: Path) -> None:
    assert run(AFTER_THE_END, hip_python_wheels) == [0, 4, 5001, 0]


UNDER_PYFAKEFS = """
import json, os
from hipfile_mock import fake
from pyfakefs.fake_filesystem_unittest import Patcher

with fake(strict=False):
    from rocm.bindings import hip

    hip.hipMalloc(64)
with Patcher() as patcher:
    patcher.fs.create_file("/kv", contents="kv")
    with fake(strict=False) as session:
        code = int(hip.hipMalloc(64)[0])
        alone = [session.faces["hip_python"], os.path.exists("/proc/self/maps"), os.path.exists("/kv")]
print(json.dumps([code, *alone]))
"""


FIRST_UNDER_PYFAKEFS = """
import json
from hipfile_mock import fake
from pyfakefs.fake_filesystem_unittest import Patcher

with Patcher(), fake(strict=False) as session:
    print(json.dumps(session.faces["hip_python"]))
"""


def test_the_wheels_first_under_pyfakefs(hip_python_wheels: Path) -> None:
    assert "pyfakefs is in place. Let AMD's bindings open them once before" in run(
        FIRST_UNDER_PYFAKEFS, hip_python_wheels
    )


def test_the_wheels_under_pyfakefs(hip_python_wheels: Path) -> None:
    """The libraries beneath them are real files; those of the test stay fake."""
    assert run(UNDER_PYFAKEFS, hip_python_wheels) == [0, "", False, True]
