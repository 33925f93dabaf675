"""Make clients in this process land on the model: HIP-Python, ctypes users, extensions that link to the libraries."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hipfile_sim.driver.profiles import Profile
from hipfile_sim.machine import Machine
from hipfile_sim.native import bridge, build
from hipfile_sim.native.prefix import prefix

__all__ = ["Activated", "Loaded", "RealRocmPresent", "activate", "loaded_libraries", "real_libraries"]

_NAMES = ("libamdhip64.so", "libhipfile.so")


class RealRocmPresent(RuntimeError):
    """Real libraries are loaded or would be found first; the text names them."""


class Loaded(NamedTuple):
    """A library that is mapped into this process: its path, and whether it is one of ours."""

    path: Path
    emulated: bool


class Activated(NamedTuple):
    """What `activate` gives: where things are, and the machine behind the libraries."""

    prefix: Path
    machine: Machine

    def library(self, name: str) -> ctypes.CDLL:
        """``libamdhip64`` or ``libhipfile``, opened as a client would open it."""
        return ctypes.CDLL(str(self.prefix / "lib" / f"{name}.so"), use_errno=True)


def is_emulated(path: Path) -> bool:
    """Whether a library file is one of ours, or an alias of one."""
    try:
        return path.stat().st_size < 4 << 20 and build.MARK.encode() in path.read_bytes()
    except OSError:
        return False


def loaded_libraries() -> tuple[Loaded, ...]:
    """The HIP and hipFile libraries that are mapped into this process now."""
    paths = set()
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if path.startswith("/") and Path(path).name.startswith(_NAMES):
                paths.add(Path(path))
    return tuple(Loaded(path, is_emulated(path)) for path in sorted(paths))


def real_libraries() -> tuple[Path, ...]:
    """Real libraries, loaded or to be found by a client: in packages, ``ROCM_PATH``, ``ROCM_HOME``, /opt/rocm."""
    found = [library.path for library in loaded_libraries() if not library.emulated]
    folders = [Path(value) / "lib" for name in ("ROCM_PATH", "ROCM_HOME") if (value := os.environ.get(name))]
    folders.append(Path("/opt/rocm/lib"))
    for package in ("rocm", "rocm_sdk"):
        spec = importlib.util.find_spec(package)
        folders += [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    for folder in folders:
        deep = folder.name != "lib"
        for name in _NAMES:
            found += [path for path in (folder.rglob if deep else folder.glob)(f"{name}*") if not is_emulated(path)]
    return tuple(dict.fromkeys(found))


@contextmanager
def activate(
    machine: Machine | None = None, *, profile: str | Profile | None = None, force: bool = False
) -> Iterator[Activated]:
    """While the block runs, the emulated libraries answer whoever asks for ``libamdhip64.so`` or ``libhipfile.so``.

    They are loaded under both of their names, and ``ROCM_PATH`` leads to them, so that HIP-Python, ``ctypes.CDLL`` by
    bare name and extensions that link to them need nothing else. Blocks may be nested. The libraries stay loaded.

    Parameters
    ----------
    machine : Machine, optional
        What they work on; by default one that is made as the environment says (`hipfile_sim.native.config`).
    profile : str or Profile, optional
        Release of the prefix; by default the machine's.
    force : bool
        Also where a real ROCm is installed. Without it the real one wins: nothing is changed and an error says so.

    Raises
    ------
    RealRocmPresent
        See `force`. A real library that is loaded already cannot be replaced, force or not.
    NativeUnavailable
        The C libraries are not there.

    Examples
    --------
    >>> with activate(Machine(3)) as native:
    ...     count = ctypes.c_int()
    ...     ctypes.CDLL("libamdhip64.so").hipGetDeviceCount(ctypes.byref(count)), count.value
    (0, 3)
    """
    loaded = [library.path for library in loaded_libraries() if not library.emulated]
    if loaded:
        raise RealRocmPresent(
            f"this process has loaded {', '.join(map(str, loaded))}; a loaded library cannot be replaced. "
            "Activate before anything uses it, or use `hipfile-sim exec`."
        )
    real = () if force else real_libraries()
    if real:
        raise RealRocmPresent(
            f"a real ROCm is installed ({', '.join(map(str, real))}) and wins; pass force=True to use the model instead"
        )
    root = prefix(profile if profile is not None else machine.profile if machine is not None else "newest")
    lib = root / "lib"
    for name in (f"libamdhip64.so.{build.HIP_MAJOR}", build.HIPFILE_SONAME):
        ctypes.CDLL(str(lib / name), mode=ctypes.RTLD_GLOBAL)
    for name in ("libamdhip64", "libhipfile"):
        ctypes.CDLL(str(build.alias_path(lib, name)))
    before = os.environ.get("ROCM_PATH")
    os.environ["ROCM_PATH"] = str(root)
    held = bridge.use(machine)
    try:
        yield Activated(root, machine if machine is not None else bridge.machine())
    finally:
        bridge.use(held)
        if before is None:
            os.environ.pop("ROCM_PATH", None)
        else:
            os.environ["ROCM_PATH"] = before
