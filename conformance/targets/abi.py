"""The C interface, on the emulated libraries (`abi`) or on a real ROCm (`rocm`): the same code, other libraries."""

from __future__ import annotations

import ctypes as C
import os
from pathlib import Path

from hipfile_conformance.targets.base import Unavailable
from hipfile_conformance.targets.clib import CTarget, find_library

__all__ = ["MARKER", "AbiTarget", "RocmTarget", "is_emulated"]

MARKER = "hipfile_sim_call"
"""Symbol that our libraries export and no real one does; `libhipfile` has it through the library it needs."""


def is_emulated(*libraries: C.CDLL) -> str | None:
    """Name of the first library that is an emulation, or None."""
    for library in libraries:
        if getattr(library, MARKER, None) is not None:
            return str(library._name)
    return None


class AbiTarget(CTarget):
    """The target `abi`: ctypes on the emulated ``libamdhip64.so`` and ``libhipfile.so``.

    Parameters
    ----------
    directory
        Folder for the files of the tests.
    prefix
        Folder of the libraries; None: the one that this project built.

    Raises
    ------
    Unavailable
        The libraries are not built.
    """

    name = "abi"
    capabilities = frozenset({"c", "threads", "hold", "hold-host", "devices", "environment"})

    def __init__(self, directory: str | os.PathLike[str], prefix: str | os.PathLike[str] | None = None) -> None:
        folder = Path(prefix) if prefix is not None else _built()
        hip = find_library([str(folder / name) for name in ("libamdhip64.so", "libamdhip64.so.7")])
        hipfile = find_library([str(folder / name) for name in ("libhipfile.so", "libhipfile.so.0")])
        if is_emulated(hip, hipfile) is None:
            raise Unavailable(f"{folder} holds no emulated library (no symbol {MARKER}): the target for it is `rocm`")
        super().__init__([hip, hipfile], Path(directory))


class RocmTarget(CTarget):
    """The target `rocm`: ctypes on a real ROCm.

    Raises
    ------
    Unavailable
        A library is missing, is an emulation, or HIP sees no device. A stub never passes for hardware.
    """

    name = "rocm"
    capabilities = frozenset({"c", "real", "threads", "hold", "hold-host", "environment"})

    def __init__(self, directory: str | os.PathLike[str], prefix: str | os.PathLike[str] | None = None) -> None:
        root = Path(prefix or os.environ.get("ROCM_PATH") or "/opt/rocm")
        folders = [root / "lib", root / "lib64"]
        hip = find_library(["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"], folders)
        hipfile = find_library(["libhipfile.so.0", "libhipfile.so"], folders)
        fake = is_emulated(hip, hipfile)
        if fake is not None:
            raise Unavailable(
                f"{fake} is the emulated library: `rocm` runs on real ROCm only; the target for it is `abi`"
            )
        if not os.path.exists("/dev/kfd"):
            raise Unavailable("/dev/kfd is not there: no AMD GPU driver is loaded")
        count = C.c_int()
        code = hip.hipGetDeviceCount(C.byref(count))
        if code or not count.value:
            raise Unavailable(
                f"hipGetDeviceCount gave code {code} and {count.value} devices: no AMD GPU is usable here"
            )
        super().__init__([hip, hipfile], Path(directory))
        if count.value > 1:
            self.capabilities = self.capabilities | {"devices"}


def _built() -> Path:
    """Folder of the libraries that this project built.

    Raises
    ------
    Unavailable
        They are not built and cannot be.
    """
    from hipfile_sim.native.prefix import NativeUnavailable, libraries

    try:
        return Path(libraries())
    except NativeUnavailable as error:
        raise Unavailable(str(error)) from error
