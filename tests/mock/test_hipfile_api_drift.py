"""The public API of the drop-in package is that of the published one: names, parameters, defaults, messages."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hipfile_mock
from hipfile_mock.faces.packages import HIPFILE

MODULES = ("hipfile", "hipfile.buffer", "hipfile.driver", "hipfile.enums", "hipfile.error", "hipfile.file")
MODULES += ("hipfile.properties",)


def parameters(function: Any) -> list[tuple[str, str, str]]:
    """Name, kind and default of each parameter; annotations are ours to choose."""
    signature = inspect.signature(function)
    return [
        (p.name, p.kind.name, "" if p.default is p.empty else repr(p.default)) for p in signature.parameters.values()
    ]


def member(value: Any) -> Any:
    if isinstance(value, property):
        return ("property", value.fset is not None, value.fdel is not None)
    if isinstance(value, (staticmethod, classmethod)):
        return (type(value).__name__, parameters(value.__func__))
    if inspect.isfunction(value):
        return ("method", parameters(value))
    return ("value", repr(value))


def public(name: str) -> bool:
    return not name.startswith("_") or name in ("__init__", "__enter__", "__exit__", "__del__", "__str__")


def describe(module: ModuleType) -> dict[str, Any]:
    """What the module defines or hands on of its own package."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name.startswith("_") or not getattr(value, "__module__", "").startswith("hipfile"):
            continue
        if inspect.isclass(value) and issubclass(value, Enum):
            found[name] = [value.__mro__[1].__name__, *((m.name, m.value) for m in value)]
        elif inspect.isclass(value):
            members = {key: member(item) for key, item in vars(value).items() if public(key)}
            found[name] = {"bases": [base.__name__ for base in value.__mro__[1:]], "members": members}
        elif inspect.isfunction(value):
            found[name] = parameters(value)
    if hasattr(module, "__all__"):
        found["__all__"] = sorted(module.__all__)
    return found


def load(root: Path) -> dict[str, ModuleType]:
    """The modules of the package in `root`, with our low-level module beneath, without a trace in `sys.modules`."""
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "hipfile"}
    for name in kept:
        del sys.modules[name]
    try:
        low = importlib.util.spec_from_file_location("hipfile._hipfile", HIPFILE.root / "hipfile" / "_hipfile.py")
        assert low is not None
        assert low.loader is not None
        sys.modules["hipfile._hipfile"] = importlib.util.module_from_spec(low)
        low.loader.exec_module(sys.modules["hipfile._hipfile"])
        sys.path.insert(0, str(root))
        importlib.invalidate_caches()
        loaded = {name: importlib.import_module(name) for name in MODULES}
        assert Path(loaded["hipfile"].__file__ or "").is_relative_to(root)
        return loaded
    finally:
        sys.path.remove(str(root))
        for name in [name for name in sys.modules if name.partition(".")[0] == "hipfile"]:
            del sys.modules[name]
        sys.modules.update(kept)


@pytest.fixture(scope="module")
def published(hipfile_sdist: Path) -> dict[str, Any]:
    with hipfile_mock.fake("0.4", faces=(), strict=None):
        return {name: describe(module) for name, module in load(hipfile_sdist).items()}


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    with hipfile_mock.fake("0.4", faces=(), strict=None):
        return {name: describe(module) for name, module in load(HIPFILE.root).items()}


@pytest.mark.parametrize("name", MODULES)
def test_wrapper_layer(published: dict[str, Any], ours: dict[str, Any], name: str) -> None:
    assert ours[name] == published[name]


def functions(source: str) -> dict[str, list[tuple[str, str]]]:
    """Name to (parameter, default) of every ``def`` at the top of Cython source."""
    found = {}
    for name, text in re.findall(r"^def (\w+)\((.*?)\):", source, re.MULTILINE | re.DOTALL):
        pairs = []
        for part in filter(None, (" ".join(piece.split()) for piece in text.split(","))):
            declared, _, default = part.partition("=")
            pairs.append((declared.removesuffix(" not None").split()[-1], default.strip()))
        found[name] = pairs
    return found


def test_low_level_functions(hipfile_sdist: Path) -> None:
    source = (hipfile_sdist / "hipfile" / "_hipfile.pyx").read_text()
    theirs = functions(source)
    assert len(theirs) > 15
    with hipfile_mock.fake("0.4"):
        low = importlib.import_module("hipfile._hipfile")
        ours = {
            name: [(p, d) for p, _, d in parameters(value)]
            for name, value in vars(low).items()
            if inspect.isfunction(value) and value.__module__ == "hipfile._hipfile" and not name.startswith("_")
        }
        assert ours == theirs
        constants = re.findall(r"^(\w+) +(?:= )", source, re.MULTILINE)
        assert {name for name in constants if not isinstance(getattr(low, name, None), int)} == set()
        public = {name for name, value in vars(low).items() if isinstance(value, int) and not name.startswith("_")}
        assert public == set(constants)


def test_low_level_class(hipfile_sdist: Path) -> None:
    source = (hipfile_sdist / "hipfile" / "_hipfile.pyx").read_text()
    body = source.partition("cdef class AsyncIOHandle:")[2].partition("\ndef ")[0]
    getters = set(re.findall(r"@property\n    def (\w+)", body))
    setters = set(re.findall(r"@(\w+)\.setter", body))
    arguments = re.search(r"__cinit__\(self, (.*?)\)", body, re.DOTALL)
    assert arguments is not None
    with hipfile_mock.fake("0.4"):
        cls = importlib.import_module("hipfile._hipfile").AsyncIOHandle
        members = {n: v for base in cls.__mro__ for n, v in vars(base).items() if isinstance(v, property)}
        assert members.keys() == getters
        assert {name for name, value in members.items() if value.fset is not None} == setters
        names = [part.split()[-1] for part in arguments[1].split(",")]
        assert [name for name, _, _ in parameters(cls)] == names
        assert not hasattr(cls(1, 2, 3), "__dict__")
        assert not hasattr(cls, "__weakref__")


def messages(source: str) -> set[tuple[str, str, str]]:
    """Function, kind of error and literal parts of the text of every raise."""
    found = set()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                for part in ast.walk(node.exc):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        found.add((function.name, ast.unparse(node.exc.func), part.value))
    return found


@pytest.mark.parametrize("name", ["buffer", "driver", "error", "file", "hipMalloc", "properties"])
def test_messages(hipfile_sdist: Path, name: str) -> None:
    theirs = messages((hipfile_sdist / "hipfile" / f"{name}.py").read_text())
    ours = messages((HIPFILE.root / "hipfile" / f"{name}.py").read_text())
    assert theirs - ours == set()


def test_hip_malloc_helpers(hipfile_sdist: Path) -> None:
    tree = ast.parse((hipfile_sdist / "hipfile" / "hipMalloc.py").read_text())
    theirs = {n.name: [a.arg for a in n.args.args] for n in tree.body if isinstance(n, ast.FunctionDef)}
    with hipfile_mock.fake():
        module = importlib.import_module("hipfile.hipMalloc")
        ours = {
            name: [p for p, _, _ in parameters(value)]
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == "hipfile.hipMalloc"
        }
    assert ours == theirs


def test_no_docstring_is_taken_over(hipfile_sdist: Path) -> None:
    def docstrings(folder: Path) -> set[str]:
        found = set()
        for path in folder.glob("*.py*"):
            if path.suffix == ".py":
                for node in ast.walk(ast.parse(path.read_text())):
                    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
                        found.add(str(ast.get_docstring(node)))
        return found

    assert not docstrings(hipfile_sdist / "hipfile") & docstrings(HIPFILE.root / "hipfile")
