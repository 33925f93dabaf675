"""Look at this computer for real hardware, libraries and tools. Nothing is loaded and nothing is started."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: A library that holds these bytes is one of ours, whatever its name.
OUR_MARK = b"hipfile_sim"

PACKAGES = (
    "numpy",
    "torch",
    "hipfile",
    "hip-python",
    "rocm-bindings-hip",
    "rocm-bindings-systems",
    "cuda-bindings",
    "pytest",
    "hypothesis",
    "pyfakefs",
    "click",
    "rich",
)


class Finding(NamedTuple):
    """One line of the report: present is None where the question does not apply."""

    section: str
    name: str
    present: bool | None
    detail: str


def findings() -> list[Finding]:
    """Everything, in the order of the report."""
    return [*amd(), *nvidia(), *simulator(), *packages(), *tools()]


# ----------------------------------------------------------------------------------------------------------------- AMD


def amd() -> Iterator[Finding]:
    """The kernel driver, the GPUs that it names, ROCm's folder, and where the two libraries would come from."""
    yield _device("AMD", "/dev/kfd")
    gpus = list(_amd_gpus())
    yield Finding("AMD", "GPUs", bool(gpus), ", ".join(gpus) or "none in /sys/class/kfd")
    for variable in ("ROCM_PATH", "ROCM_HOME"):
        value = os.environ.get(variable)
        if value:
            yield Finding("AMD", variable, Path(value).is_dir(), value)
    root = rocm_root()
    yield Finding(
        "AMD", "ROCm", root is not None, _rocm_version(root) if root else "not in ROCM_PATH, ROCM_HOME, /opt/rocm"
    )
    for library in ("libamdhip64.so", "libhipfile.so"):
        found = locate(library)
        detail = f"{found}{describe_library(found)}" if found else "not found"
        yield Finding("AMD", library, found is not None, detail)


def _amd_gpus() -> Iterator[str]:
    for node in sorted(Path("/sys/class/kfd/kfd/topology/nodes").glob("*")):
        try:
            properties = dict(line.split(maxsplit=1) for line in (node / "properties").read_text().splitlines())
            name = (node / "name").read_text().strip()
        except (OSError, ValueError):
            continue
        if properties.get("simd_count", "0") != "0":  # CPUs are nodes, too, without SIMDs
            yield name or f"node {node.name}"


def rocm_root() -> Path | None:
    """The folder that ROCm's own tools would use."""
    for candidate in (os.environ.get("ROCM_PATH"), os.environ.get("ROCM_HOME"), "/opt/rocm"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    return None


def _rocm_version(root: Path) -> str:
    try:
        return f"{root} ({(root / '.info' / 'version').read_text().strip()})"
    except OSError:
        return str(root)


def locate(library: str) -> Path | None:
    """Where a program would load `library` from: packages first, then ROCm's folder, then the loader's search."""
    for package in ("rocm", "rocm_sdk"):
        for folder in _package_folders(package):
            for found in sorted(folder.rglob(library + "*")):
                return found
    places = [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    root = rocm_root()
    for folder in ([root / "lib"] if root else []) + places:
        for found in sorted(folder.glob(library + "*")):
            return found
    return _ldconfig(library)


def _package_folders(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []


def _ldconfig(library: str) -> Path | None:
    program = shutil.which("ldconfig") or ("/sbin/ldconfig" if Path("/sbin/ldconfig").exists() else None)
    if program is None:
        return None
    try:
        listing = subprocess.run([program, "-p"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    for line in listing.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if arrow and name.split(" ")[0].startswith(library):
            return Path(path)
    return None


def is_ours(path: Path) -> bool:
    """Whether a shared library is one of the emulated ones."""
    try:
        return OUR_MARK in path.read_bytes() if path.stat().st_size < 4 << 20 else False
    except OSError:
        return False


def describe_library(path: Path) -> str:
    """A remark on whose library it is."""
    return "  (emulated: hipfile-sim's own)" if is_ours(path) else ""


# -------------------------------------------------------------------------------------------------------------- NVIDIA


def nvidia() -> Iterator[Finding]:
    """The kernel driver and cuFile."""
    yield _device("NVIDIA", "/dev/nvidiactl")
    try:
        version = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
        yield Finding("NVIDIA", "driver", True, version)
    except (OSError, IndexError):
        yield Finding("NVIDIA", "driver", False, "no /proc/driver/nvidia/version")
    for library in ("libcuda.so.1", "libcudart.so", "libcufile.so.0"):
        found = _ldconfig(library) or _in_nvidia_packages(library)
        yield Finding("NVIDIA", library, found is not None, str(found or "not found"))
    nvfs = sorted(str(p) for p in Path("/dev").glob("nvidia-fs*"))
    yield Finding("NVIDIA", "nvidia-fs", bool(nvfs), ", ".join(nvfs) or "absent: cuFile uses its compatibility mode")


def _in_nvidia_packages(library: str) -> Path | None:
    for folder in _package_folders("nvidia"):
        for found in sorted(folder.rglob(library + "*")):
            return found
    return None


# ------------------------------------------------------------------------------------------------------- what is used


def simulator() -> Iterator[Finding]:
    """What `hipfile-sim` itself has, and what a program gets from it."""
    from hipfile_sim._version import __version__

    here = Path(__file__).resolve().parent.parent
    yield Finding("hipfile-sim", "version", True, f"{__version__} in {here}")
    libraries = sorted((here / "native" / "lib").rglob("lib*.so*"))
    yield Finding("hipfile-sim", "C libraries", bool(libraries), ", ".join(p.name for p in libraries) or (
        "not built; the Python faces work without them"))  # fmt: skip
    real = locate("libhipfile.so")
    real = real if real is not None and not is_ours(real) else None
    yield Finding("hipfile-sim", "real hipFile", real is not None, str(real or "none: nothing real is shadowed"))
    yield Finding("hipfile-sim", "run gives", None, "the emulated `hipfile` package in this process only")


# ---------------------------------------------------------------------------------------------------- Python and tools


def packages() -> Iterator[Finding]:
    """Versions of the packages that matter, by their metadata alone."""
    yield Finding("Python", "interpreter", True, f"{sys.version.split()[0]} {sys.executable}")
    for name in PACKAGES:
        try:
            detail = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding("Python", name, False, "not installed")
        else:
            yield Finding("Python", name, True, detail)


def tools() -> Iterator[Finding]:
    """The compilers that could build the C libraries or a C program."""
    wanted = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    compilers = [path for name in wanted if (path := shutil.which(name.split()[0]))]
    yield Finding("tools", "C compiler", bool(compilers), ", ".join(compilers) or f"none of {', '.join(wanted)}")
    hipcc = shutil.which("hipcc")
    yield Finding("tools", "hipcc", hipcc is not None, hipcc or "not on PATH")


def _device(section: str, path: str) -> Finding:
    if not Path(path).exists():
        return Finding(section, path, False, "absent")
    usable = os.access(path, os.R_OK | os.W_OK)
    return Finding(section, path, usable, "usable" if usable else "there, but this user may not open it")
