"""Faces in place of the real packages: what is put into `sys.modules`, and how all of it is taken back.

A face is named in `FACES` and imported when it is first installed. Installing it returns a function that undoes it.
Python packages are served by a finder, so a submodule is loaded when a program imports it; the modules of a face are
made once a process and put back each time, so that classes that a program holds stay the ones it gets.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from hipfile_mock.near import near

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = [
    "DEFAULT_FACES",
    "FACES",
    "Face",
    "FaceUnavailable",
    "PackageFace",
    "add_finder",
    "faces_in_place",
    "real_modules",
    "register_face",
]

Undo = Callable[[], None]


class FaceUnavailable(RuntimeError):
    """A face cannot be installed here; the message says why and what to do."""


class Face(Protocol):
    """One way for a program to see the model."""

    def install(self, machine: Any, /) -> Undo:
        """Put the face in place for `machine` and return what takes it away.

        Raises
        ------
        FaceUnavailable
            Not here. By name this is an error; among the default faces it is left out.
        """


FACES: dict[str, str] = {
    "hipfile": "hipfile_mock.faces.packages:HIPFILE",
    "hip_python": "hipfile_mock.faces.packages:HIP_PYTHON",
    "hip_python-double": "hipfile_mock.faces.packages:HIP_PYTHON_DOUBLE",
    "torch": "hipfile_mock.faces.torch:FACE",
}
"""Name of a face and where it is: ``"module:object"``. ``hip_python-double`` is the double even beside real wheels."""

DEFAULT_FACES = ("hipfile", "hip_python", "torch")
"""What a fake installs unless told otherwise. A face that is not to be had here is left out without a word."""

_lock = threading.RLock()


def register_face(name: str, where: str) -> None:
    """Add a face of your own.

    Parameters
    ----------
    name : str
        What ``faces=`` calls it.
    where : str
        ``"module:object"``; the object has ``install(machine)``, see `Face`.
    """
    FACES[name] = where


def _face(name: str) -> Face:
    try:
        module, attribute = FACES[name].split(":")
    except KeyError:
        hint = near(name, FACES) or "."
        raise FaceUnavailable(f"there is no face {name!r}{hint} There are {', '.join(sorted(FACES))}") from None
    try:
        face: Face = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise FaceUnavailable(f"the face {name!r} needs the module {error.name!r}, which is not installed") from error
    except AttributeError:
        raise FaceUnavailable(f"the face {name!r} should be {FACES[name]}, and {module} has no {attribute}") from None
    return face


@contextmanager
def faces_in_place(machine: Any, faces: Iterable[str] | None = None) -> Iterator[dict[str, str]]:
    """Install faces for the length of a ``with`` block.

    Parameters
    ----------
    machine : Machine
        Whose devices the faces show.
    faces : iterable of str, optional
        Names out of `FACES`; `DEFAULT_FACES` if not given.

    Yields
    ------
    dict
        What became of each face: ``""`` if it is in place, else why it is not.

    Raises
    ------
    FaceUnavailable
        A face that was asked for by name cannot be installed.
    """
    wanted = DEFAULT_FACES if faces is None else tuple(faces)
    undo: list[Undo] = []
    became: dict[str, str] = {}
    try:
        for name in wanted:
            try:
                with _lock:
                    undo.append(_face(name).install(machine))
                became[name] = ""
            except FaceUnavailable as error:
                if faces is not None:
                    raise
                became[name] = str(error)
        yield became
    finally:
        _undo_all(undo)


def _undo_all(undo: list[Undo]) -> None:
    """Run every step, the last first, whatever the others do; then raise the first error."""
    errors: list[BaseException] = []
    while undo:
        try:
            with _lock:
                undo.pop()()
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _pyfakefs_hooks() -> list[Any]:
    """What pyfakefs has in the import system while it is in place."""
    return [finder for finder in sys.meta_path if type(finder).__module__.startswith("pyfakefs")]


def add_finder(finder: Any) -> None:
    """Put `finder` before all others but pyfakefs', which takes the first one to be its own when it leaves."""
    hooks = _pyfakefs_hooks()
    sys.meta_path.insert(1 + max(map(sys.meta_path.index, hooks)) if hooks else 0, finder)


@contextmanager
def real_modules() -> Iterator[None]:
    """Imports inside are as if pyfakefs were not in place.

    What is imported while it is gets its fake ``os``, and is thrown out of `sys.modules` when it is taken down, so that
    the next import makes everything a second time, classes and registries included. That must not happen to the model.
    """
    hooks = _pyfakefs_hooks()
    real: dict[str, Any] = {}
    for hook in hooks:
        real |= getattr(hook, "sysmodules", {})
    fakes = {name: sys.modules[name] for name in real if name in sys.modules}
    before = list(sys.meta_path)
    sys.meta_path[:] = [finder for finder in before if finder not in hooks]
    sys.modules.update(real)
    pathlib = real.get("pathlib")
    fake_path: Any = getattr(pathlib, "Path", None)  # pyfakefs puts its own class into the real module, too
    if pathlib is not None and type(fake_path).__module__.startswith("pyfakefs"):
        pathlib.Path = next(base for base in fake_path.__mro__ if base.__module__.startswith("pathlib"))
    try:
        yield
    finally:
        if pathlib is not None:
            pathlib.Path = fake_path
        sys.modules.update(fakes)
        added = [finder for finder in sys.meta_path if finder not in before]
        sys.meta_path[:] = [finder for finder in before if finder in hooks or finder in sys.meta_path]
        for finder in reversed(added):
            add_finder(finder)


class _Finder:
    """Serves the top-level packages of a face from its folder, before all other finders."""

    def __init__(self, root: str, packages: tuple[str, ...]) -> None:
        self.root = root
        self.packages = packages

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """A spec for a package of this face, None for anything else."""
        if name not in self.packages:
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self.root])


class _Layer:
    """One installation of a face: for whom, and what `sys.modules` had before."""

    def __init__(self, machine: Any, before: dict[str, Any], finder: _Finder) -> None:
        self.machine = machine
        self.before = before
        self.finder = finder


class PackageFace:
    """A face made of Python packages.

    Parameters
    ----------
    root : pathlib.Path
        Folder that holds them.
    packages : str
        Their top-level names.
    modules : sequence of str
        Modules whose import loads all of them. They are loaded at the first installation in a process that has
        pyfakefs, see `real_modules`; in others, when a program imports them.

    Notes
    -----
    A module of the face may have a function ``_bind(machine)``; it is called when a machine takes the face over, for
    what C fixes at build time (version constants).
    """

    def __init__(self, root: Path, *packages: str, modules: Sequence[str] = ()) -> None:
        self.root = root
        self.packages = packages
        self._modules = tuple(modules)
        self._prefixes = tuple(f"{name}." for name in packages)
        self._folders = tuple(str(root / name) for name in packages)
        self._own: dict[str, ModuleType] = {}
        self._layers: list[_Layer] = []

    def _take_out(self) -> dict[str, Any]:
        """Remove the entries of these packages, and return them; remember those that are the face's own."""
        near, packages, prefixes = self.packages, self.packages, self._prefixes
        names = [n for n in sys.modules if n.startswith(near) and (n in packages or n.startswith(prefixes))]
        entries = {name: sys.modules.pop(name) for name in names}
        for name, module in entries.items():
            if (getattr(module, "__file__", None) or "").startswith(self._folders):
                self._own[name] = module
        return entries

    def _bind(self) -> None:
        if self._layers:
            for module in self._own.values():
                if (bind := getattr(module, "_bind", None)) is not None:
                    bind(self._layers[-1].machine)

    def install(self, machine: Any) -> Undo:
        """Put the packages in place; see `Face.install`."""
        layer = _Layer(machine, self._take_out(), _Finder(str(self.root), self.packages))
        sys.modules.update(self._own)
        add_finder(layer.finder)
        self._layers.append(layer)
        self._bind()
        if "pyfakefs" in sys.modules:
            with real_modules():
                for name in self._modules:
                    importlib.import_module(name)
        return lambda: self._remove(layer)

    def _remove(self, layer: _Layer) -> None:
        index = self._layers.index(layer)
        del self._layers[index]
        if layer.finder in sys.meta_path:
            sys.meta_path.remove(layer.finder)
        if index < len(self._layers):  # left out of turn: the one above inherits what to restore
            self._layers[index].before = layer.before
        else:
            self._take_out()
            sys.modules.update(layer.before)
        self._bind()
