"""AMD's own HIP-Python wheels on the emulated C libraries, in this process."""

from __future__ import annotations

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

_BINDINGS = ("rocm.bindings.hip", "rocm.bindings.hipfile")


class CAbiFace:
    """Has the wheels open the emulated libraries. They open them at the first call, so importing them changes nothing.

    Nothing is loaded (or built) before the program imports a binding.
    """

    def install(self, machine: Any) -> Undo:
        """See `hipfile_mock.install.Face.install`."""
        if any(name in sys.modules for name in _BINDINGS):
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
    from hipfile_sim.native.activation import RealRocmPresent, activate
    from hipfile_sim.native.prefix import NativeUnavailable

    block = activate(machine)
    try:
        block.__enter__()
    except (RealRocmPresent, NativeUnavailable) as error:
        raise FaceUnavailable(str(error)) from error
    return lambda: _leave(block)


def _leave(block: Any) -> None:
    block.__exit__(None, None, None)


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
