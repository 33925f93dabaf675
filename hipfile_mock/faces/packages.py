"""The faces that are Python packages: which names they serve and from where."""

from __future__ import annotations

import importlib.machinery
from pathlib import Path
from typing import Any

from hipfile_mock.install import PackageFace, Undo

__all__ = ["HIPFILE", "HIP_PYTHON", "HIP_PYTHON_DOUBLE", "real_hip_python"]

_FACES = Path(__file__).resolve().parent

HIPFILE = PackageFace(_FACES, "hipfile", modules=("hipfile", "hipfile.hipMalloc"))
"""The package ``hipfile`` of 0.4.0.dev0."""

HIP_PYTHON_DOUBLE = PackageFace(_FACES / "hip_python", "rocm", "hip", modules=("hip", "rocm.hipfile", "rocm.version"))
"""``rocm.hipfile``, ``rocm.bindings`` and ``hip`` of release 10.0.0.0.1.2, for the calls that the model has."""


def real_hip_python() -> str:
    """File of AMD's own ``rocm.bindings``, or an empty string if it is not installed.

    Looks without importing anything, past a double that is in place.
    """
    spec = importlib.machinery.PathFinder.find_spec("rocm")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for name in ("hip", "hipfile"):
            found = importlib.machinery.PathFinder.find_spec(name, [str(Path(folder) / "bindings")])
            if found is not None and found.origin:
                return found.origin
    return ""


class _HipPython:
    """The double where AMD's wheels are not installed; where they are, the C libraries beneath them."""

    def install(self, machine: Any) -> Undo:
        """See `hipfile_mock.install.Face.install`."""
        if not real_hip_python():
            return HIP_PYTHON_DOUBLE.install(machine)
        from hipfile_mock.faces.c_abi import FACE

        return FACE.install(machine)


HIP_PYTHON = _HipPython()
"""HIP-Python: `HIP_PYTHON_DOUBLE`, or AMD's wheels on the emulated C libraries where they are installed."""
