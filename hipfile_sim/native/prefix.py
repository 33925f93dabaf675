"""A folder that looks like ROCm: ``include/``, ``lib/``, pkg-config and CMake package files.

One folder a release, made when it is first asked for: in the virtual environment's ``share/hipfile-sim``, else in the
user's cache. It is complete and correct or absent: it is built aside and renamed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from hipfile_sim._version import __version__
from hipfile_sim.driver.profiles import NEWEST, Profile, get_profile
from hipfile_sim.native import build
from hipfile_sim.native.headers import render

__all__ = ["NativeUnavailable", "libraries", "prefix"]

LIB = Path(__file__).resolve().parent / "lib"
_HERE = Path(__file__).resolve().parent

_PKG_CONFIG = """\
prefix=${{pcfiledir}}/../..
includedir=${{prefix}}/include
libdir=${{prefix}}/lib

Name: {name}
Description: {description}
Version: {version}
{requires}Cflags: -I${{includedir}} -D__HIP_PLATFORM_AMD__
Libs: -L${{libdir}} -l{library}
"""

_CMAKE = """\
# Package file of hipfile-sim for {name}.
get_filename_component(_hipfile_sim_prefix "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
set({name}_FOUND TRUE)
set({name}_VERSION "{version}")
{depends}{targets}set({name}_INCLUDE_DIRS "${{_hipfile_sim_prefix}}/include")
set({name}_LIBRARIES {libraries})
unset(_hipfile_sim_prefix)
"""

_CMAKE_TARGET = """\
if(NOT TARGET {target})
    add_library({target} SHARED IMPORTED)
    set_target_properties({target} PROPERTIES
        IMPORTED_LOCATION "${{_hipfile_sim_prefix}}/lib/{file}"
        IMPORTED_SONAME "{file}"
        INTERFACE_INCLUDE_DIRECTORIES "${{_hipfile_sim_prefix}}/include"
        INTERFACE_COMPILE_DEFINITIONS "__HIP_PLATFORM_AMD__"{links})
endif()
"""

_CMAKE_VERSION = """\
set(PACKAGE_VERSION "{version}")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
    if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
        set(PACKAGE_VERSION_EXACT TRUE)
    endif()
endif()
"""


class NativeUnavailable(RuntimeError):
    """The C libraries are not there and cannot be built; the text says why and what to do."""


def libraries() -> Path:
    """The folder of the C libraries; they are built now if the package came without them.

    Raises
    ------
    NativeUnavailable
        There is no C compiler, or it failed, or the folder cannot be written.
    """
    stamp = LIB / build.STAMP
    try:
        if stamp.read_text() == build.source_hash():
            return LIB
    except OSError:
        pass
    try:
        build.build(LIB)
    except (build.NoCompiler, RuntimeError, OSError) as error:
        raise NativeUnavailable(
            f"libamdhip64.so and libhipfile.so are not built: {error}. Install gcc or clang (or set CC) and run "
            "`python -m hipfile_sim.native.build`; the Python faces work without them."
        ) from None
    return LIB


def prefix(profile: str | Profile = NEWEST) -> Path:
    """The folder for one release, made or brought up to date if needed.

    Parameters
    ----------
    profile : str or Profile
        Whose headers it has, and what the libraries are when they are loaded from it and nothing else is said.

    Raises
    ------
    NativeUnavailable
        See `libraries`.
    ValueError
        No such profile.
    """
    release = get_profile(profile)
    source = libraries()
    stamp = _stamp(source, release)
    for home in _homes():
        target = home / release.name
        stamp_file = target / ".stamp"
        try:
            if stamp_file.read_text() == stamp:
                return target
        except OSError:
            pass
        try:
            home.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix=f".{release.name}-", dir=home))
        except OSError:
            continue
        try:
            _fill(work, source, release)
            (work / ".stamp").write_text(stamp)
            _replace(work, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return target
    raise NativeUnavailable(f"no folder can be written for the prefix; tried {', '.join(map(str, _homes()))}")


def _homes() -> list[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = hashlib.sha256(f"{_HERE}\0{sys.prefix}".encode()).hexdigest()[:12]
    places = [cache / "hipfile-sim" / key]
    if sys.prefix != sys.base_prefix:
        places.insert(0, Path(sys.prefix) / "share" / "hipfile-sim")
    return places


def _stamp(source: Path, release: Profile) -> str:
    parts = [__version__, release.name, str(source), _conf(release)]
    parts += [f"{file.name} {file.stat().st_mtime_ns}" for file in sorted(source.rglob("*.so*"))]
    parts += [f"{name} {text}" for name, text in sorted(render(release).items())]
    parts.append(Path(__file__).read_text())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _replace(work: Path, target: Path) -> None:
    """Put `work` in the place of `target`; a process that uses the old one keeps its open files."""
    old = None
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=".old-", dir=target.parent))
        os.rename(target, old / "prefix")
    try:
        os.rename(work, target)
    except OSError:
        if not target.exists():  # somebody else made the same one meanwhile: theirs is as good
            raise
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _conf(release: Profile) -> str:
    """``hipfile-sim.conf``, which the libraries read when no Python is in their process (``src/find_python.c``)."""
    program = Path(sys.prefix) / "bin" / "python3"  # one name, however this process was started
    lines = [f"program={program if program.exists() else sys.executable}"]
    name = sysconfig.get_config_var("INSTSONAME") or ""
    if ".so" in name:
        folder = Path(sysconfig.get_config_var("LIBDIR") or "")
        lines.append(f"libpython={folder / name if (folder / name).exists() else name}")
    lines.append(f"path={_HERE.parent.parent}")
    lines.append(f"path={sysconfig.get_path('purelib')}")
    lines.append(f"profile={release.name}")
    return "\n".join(lines) + "\n"


def _fill(root: Path, source: Path, release: Profile) -> None:
    for name, text in render(release).items():
        path = root / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    lib = root / "lib"
    (lib / "alias").mkdir(parents=True)
    hip, hipfile = f"libamdhip64.so.{build.HIP_MAJOR}", build.HIPFILE_SONAME
    for soname in (hip, hipfile):
        # Copies: the loader then finds this folder's hipfile-sim.conf, and with it this environment.
        shutil.copy2(source / soname, lib / soname)
        (lib / f"{soname.split('.so')[0]}.so").symlink_to(soname)
    for name in ("libamdhip64", "libhipfile"):
        shutil.copy2(build.alias_path(source, name), build.alias_path(lib, name))
    (root / "hipfile-sim.conf").write_text(_conf(release))
    hip_version = _define(root / "include/hip/hip_version.h", "HIP_VERSION_{}", "MAJOR MINOR PATCH")
    version = ".".join(map(str, release.version))
    _write(lib / "pkgconfig/hip.pc", _PKG_CONFIG.format(
        name="hip", description="HIP runtime, emulated by hipfile-sim", version=hip_version, requires="",
        library="amdhip64"))  # fmt: skip
    _write(lib / "pkgconfig/hipfile.pc", _PKG_CONFIG.format(
        name="hipfile", description="hipFile, emulated by hipfile-sim", version=version, requires="Requires: hip\n",
        library="hipfile"))  # fmt: skip
    hip_targets = _CMAKE_TARGET.format(target="hip::amdhip64", file=hip, links="")
    for name in ("hip::host", "hip::device"):
        hip_targets += (
            f"if(NOT TARGET {name})\n    add_library({name} INTERFACE IMPORTED)\n"
            f"    target_link_libraries({name} INTERFACE hip::amdhip64)\nendif()\n"
        )
    links = "\n        INTERFACE_LINK_LIBRARIES hip::amdhip64"
    for name, number, depends, targets, libs in (
        ("hip", hip_version, "", hip_targets, "hip::amdhip64"),
        ("hipfile", version, "include(CMakeFindDependencyMacro)\nfind_dependency(hip)\n"
         'get_filename_component(_hipfile_sim_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)\n',
         _CMAKE_TARGET.format(target="hipfile::hipfile", file=hipfile, links=links), "hipfile::hipfile"),
    ):  # fmt: skip
        text = _CMAKE.format(name=name, version=number, depends=depends, targets=targets, libraries=libs)
        _write(lib / f"cmake/{name}/{name}-config.cmake", text)
        _write(lib / f"cmake/{name}/{name}-config-version.cmake", _CMAKE_VERSION.format(version=number))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _define(header: Path, pattern: str, names: str) -> str:
    """The numbers of some ``#define`` lines, joined by dots."""
    words = [line.split() for line in header.read_text().splitlines() if line.startswith("#define ")]
    values = {word[1]: word[2] for word in words if len(word) > 2}
    return ".".join(values[pattern.format(name)] for name in names.split())
