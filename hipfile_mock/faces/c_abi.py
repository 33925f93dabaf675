"""AMD's own HIP-Python wheels on the emulated C libraries, in this process."""

from __future__ import annotations

import _io
import builtins
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hipfile_sim
from hipfile_mock.install import FaceUnavailable, add_finder

__all__ = ["FACE", "CAbiFace"]

Undo = Callable[[], None]

LIBRARIES = Path(hipfile_sim.__file__).with_name("native") / "lib"
"""Where the emulated C libraries are, once they are built."""

_loaded: set[str] = set()
"""Releases whose libraries have been loaded into this process."""

_BINDINGS = ("rocm.bindings.hip", "rocm.bindings.hipfile")


class CAbiFace:
    """Has the wheels open the emulated libraries. They open them at the first call, so importing them changes nothing.

    Nothing is loaded (or built) before the program imports a binding.
    """

    def install(self, machine: Any) -> Undo:
        """See `hipfile_mock.install.Face.install`."""
        if any(name in sys.modules for name in _BINDINGS) or _files_are_fake():
            return _activate(machine)
        if not any(LIBRARIES.glob("libhipfile.so*")):
            from hipfile_sim.native.build import NoCompiler, compiler

            try:
                compiler()
            except NoCompiler as error:
                raise FaceUnavailable(
                    "AMD's own bindings are installed, the emulated C libraries for them are not, and they cannot be"
                    f" built: {error}. Install gcc, or ask for the face 'hip_python-double'"
                ) from None
        return _Later(machine).undo


FACE = CAbiFace()


def _activate(machine: Any) -> Undo:
    if _files_are_fake():
        return _activate_under_pyfakefs(machine)
    from hipfile_sim.native.activation import RealRocmPresent, activate
    from hipfile_sim.native.prefix import NativeUnavailable

    block = activate(machine)
    try:
        block.__enter__()
    except (RealRocmPresent, NativeUnavailable) as error:
        raise FaceUnavailable(str(error)) from error
    _loaded.add(machine.profile.name)
    return lambda: _leave(block)


def _files_are_fake() -> bool:
    """Whether pyfakefs is in place; its ``os`` may be out of the way, see `hipfile_mock.install.real_modules`."""
    return "pyfakefs" in sys.modules and builtins.open is not _io.open


def _activate_under_pyfakefs(machine: Any) -> Undo:
    """The libraries are real files, out of reach now; those that are loaded already need no file."""
    if not _loaded:
        raise FaceUnavailable(
            "the emulated C libraries are real files, and pyfakefs is in place. Let AMD's bindings open them once "
            "before (in conftest.py: hipfile_mock.install(), import rocm.bindings.hip, hip.hipInit(0)), or ask for the "
            "face 'hip_python-double'"
        )
    from hipfile_sim.native import bridge

    before = bridge.use(machine)
    return lambda: _back(before)


def _leave(block: Any) -> None:
    """Calls that come later are refused, unless the libraries worked on another machine before."""
    from hipfile_sim.native import bridge

    block.__exit__(None, None, None)
    _back(bridge.use(_ended()))


def _back(before: Any) -> None:
    """The libraries work on `before` again; if that is nothing, they refuse."""
    from hipfile_sim.native import bridge

    bridge.use(before if before is not None else _ended())


@functools.cache
def _ended() -> Any:
    """A machine that is closed, for programs that keep a module of the wheels beyond their fake."""
    from hipfile_sim.machine import Machine

    machine = Machine(1, env={})
    machine.close()
    return machine


class _Later:
    """Waits in the import system for a binding; finds nothing itself."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self._undo: Undo | None = None
        add_finder(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """The import of a binding is the moment to load the libraries."""
        if name in _BINDINGS and self._undo is None:
            try:
                self._undo = _activate(self._machine)
            except FaceUnavailable as error:
                raise ImportError(f"{name} cannot be used on the emulated machine: {error}") from error

    def undo(self) -> None:
        """Leave the import system, and take the libraries back."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self._undo is not None:
            self._undo()
