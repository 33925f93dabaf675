"""What is put into `sys.modules`, and that all of it is taken back."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hipfile_mock
from hipfile_mock import current
from hipfile_mock.install import FACES, FaceUnavailable, faces_in_place, register_face

PACKAGES = ("hipfile", "rocm", "hip")


def snapshot() -> tuple[dict[str, Any], list[Any]]:
    modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in PACKAGES}
    return modules, list(sys.meta_path)


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    before = snapshot()
    yield
    assert snapshot() == before
    assert current.depth() == 0


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A stand-in for the real package, imported before anything of ours."""
    package = types.ModuleType("hipfile")
    package.__path__ = []
    package.file = types.ModuleType("hipfile.file")  # type: ignore[attr-defined]
    package.file.marker = object()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hipfile", package)
    monkeypatch.setitem(sys.modules, "hipfile.file", package.file)  # type: ignore[attr-defined]
    return package


def test_not_there_before_and_not_after() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hipfile")
    with hipfile_mock.fake():
        package = importlib.import_module("hipfile")
        assert package.__name__ == "hipfile"
        assert package.FileHandle.__module__ == "hipfile.file"
        assert not hasattr(package, "AsyncIOHandle"), "returned, and not exported"
        assert sys.modules["hipfile._hipfile"].AsyncIOHandle.__module__ == "hipfile._hipfile"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hipfile.hipMalloc")


def test_a_real_package_comes_back_with_its_submodules(real: types.ModuleType) -> None:
    attributes = dict(vars(real))
    with hipfile_mock.fake():
        ours = importlib.import_module("hipfile")
        assert ours is not real
        assert importlib.import_module("hipfile.file") is not real.file
        importlib.import_module("hipfile.hipMalloc")
    assert sys.modules["hipfile"] is real
    assert sys.modules["hipfile.file"] is real.file
    assert "hipfile.hipMalloc" not in sys.modules
    assert vars(real) == attributes, "attributes of the real package are as they were"


def test_a_module_that_is_none_comes_back_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hipfile", None)  # type: ignore[arg-type]
    with hipfile_mock.fake():
        assert importlib.import_module("hipfile").Driver
    assert sys.modules["hipfile"] is None


def test_undone_when_the_body_raises(real: types.ModuleType) -> None:
    @hipfile_mock.fake()
    def body() -> None:
        importlib.import_module("hipfile")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert sys.modules["hipfile"] is real


def test_classes_stay_the_same_from_one_fake_to_the_next() -> None:
    with hipfile_mock.fake():
        first = importlib.import_module("hipfile")
    with hipfile_mock.fake():
        second = importlib.import_module("hipfile")
        assert second is first
        with pytest.raises(first.HipFileException):
            second.Driver().close()


def test_nested_and_left_in_order() -> None:
    with hipfile_mock.fake("0.5") as outer:
        package = importlib.import_module("hipfile")
        with hipfile_mock.fake("0.3") as inner:
            assert current.get() is inner.machine
            assert package.__version__ == "0.3.0"
            assert importlib.import_module("hipfile") is package
            package.Driver().open()
        assert current.get() is outer.machine
        assert package.__version__ == "0.5.0"
        assert package.Driver.use_count() == 0, "the inner machine was opened, not this one"
        assert sys.modules["hipfile"] is package


def test_left_out_of_turn_is_an_error_and_still_undone() -> None:
    one, two = hipfile_mock.fake(), hipfile_mock.fake()
    one.__enter__()
    two.__enter__()
    with pytest.raises(hipfile_mock.CurrentMachineError, match="reverse order"):
        one.__exit__(None, None, None)
    two.__exit__(None, None, None)


def test_install_and_uninstall_nest(real: types.ModuleType) -> None:
    first = hipfile_mock.install("0.4")
    second = hipfile_mock.install("0.5", schedule="lazy")
    assert hipfile_mock.session() is second
    assert importlib.import_module("hipfile").get_version() == (0, 5, 0)
    hipfile_mock.uninstall()
    assert hipfile_mock.session() is first
    assert importlib.import_module("hipfile").get_version() == (0, 4, 0)
    hipfile_mock.uninstall()
    assert sys.modules["hipfile"] is real
    with pytest.raises(RuntimeError, match="nothing is installed"):
        hipfile_mock.uninstall()


def test_only_the_faces_that_are_asked_for() -> None:
    with hipfile_mock.fake(faces=()) as session:
        assert session.faces == {}
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("hipfile")
        assert current.get() is session.machine


def test_unknown_face_is_said_and_undone() -> None:
    with (
        pytest.raises(FaceUnavailable, match=r"no face 'hipfil'; did you mean hipfile. There are .*hipfile"),
        hipfile_mock.fake(faces=["hipfil"]),
    ):
        pass


def test_default_faces_that_cannot_be_had_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FACES, "torch", "hipfile_mock.no_such_module:FACE")
    with hipfile_mock.fake() as session:
        assert session.faces["hipfile"] == ""
        assert "no_such_module" in session.faces["torch"]
    with pytest.raises(FaceUnavailable, match="no_such_module"), hipfile_mock.fake(faces=["torch"]):
        pass


def test_faces_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    class Mine:
        def install(self, machine: Any) -> Callable[[], None]:
            log.append("in")
            return lambda: log.append("out")

    module = types.ModuleType("my_face")
    module.FACE = Mine()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_face", module)
    monkeypatch.setitem(FACES, "mine", "")
    register_face("mine", "my_face:FACE")
    with hipfile_mock.fake(faces=("hipfile", "mine")):
        assert log == ["in"]
    assert log == ["in", "out"]


def test_an_undo_that_fails_does_not_keep_the_others_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def bad() -> None:
        raise ValueError("undo")

    module = types.ModuleType("bad_face")
    module.FACE = types.SimpleNamespace(install=lambda machine: bad)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bad_face", module)
    monkeypatch.setitem(FACES, "bad", "bad_face:FACE")
    with pytest.raises(ValueError, match="undo"), faces_in_place(None, ("bad",)):
        pass
    with pytest.raises(ValueError, match="undo"), hipfile_mock.fake(faces=("hipfile", "bad")):
        importlib.import_module("hipfile")
