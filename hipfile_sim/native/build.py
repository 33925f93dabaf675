"""Compile the libraries: a C compiler is all that is needed.

``build(dest)`` makes ``libamdhip64.so.N``, ``libhipfile.so.0`` and two libraries whose SONAMEs are the names without a
version. The last are for programs that open ``libamdhip64.so`` by name in a process that has ours already: the loader
compares SONAMEs, and only a library that carries that one satisfies it.

Run by the package's build (loaded by path, so the package need not be installed) and by ``python build.py DEST``.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = [
    "HIPFILE_SONAME",
    "HIP_MAJOR",
    "MARK",
    "STAMP",
    "NoCompiler",
    "alias_path",
    "build",
    "compiler",
    "source_hash",
]

HERE = Path(__file__).resolve().parent

HIP_MAJOR = 7
"""Major version of the HIP runtime: of ROCm 7 and, as HIP 7.15 and later, of ROCm 10 (hip-python 10.0.0)."""

HIPFILE_SONAME = "libhipfile.so.0"

_FLAGS = [
    *("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-Wall", "-Wextra"),
    # A parameter that is not looked at is the normal case in `extra.c`. nodelete: Python and thread ends point here.
    *("-Wno-unused-parameter", "-shared", "-Wl,-z,nodelete", "-Wl,-z,defs", "-Wl,--no-as-needed", "-Wl,-z,now"),
]


MARK = "hipfile_sim_call"
"""Every library that is made here holds these bytes; no other does."""

STAMP = "sources.sha256"
"""File beside the libraries that says what they were made from."""


class NoCompiler(Exception):
    """No C compiler was found; the text says where was looked."""


def compiler() -> list[str]:
    """The compiler's command line: ``$CC``, else gcc, clang or cc.

    Raises
    ------
    NoCompiler
        None of them is on PATH.
    """
    named = os.environ.get("CC", "").strip()
    candidates = [shlex.split(named)] if named else [["gcc"], ["clang"], ["cc"]]
    for command in candidates:
        if command and shutil.which(command[0]):
            return command
    tried = f"CC={named!r}" if named else "gcc, clang and cc"
    raise NoCompiler(f"{tried} not found on PATH")


def alias_path(dest: Path, name: str) -> Path:
    """Where the library lies whose SONAME is ``<name>.so``."""
    return dest / "alias" / f"{name}.so"


def source_hash() -> str:
    """Of everything that the libraries are made from."""
    names = ("build.py", "shims.py", "symbols.py", "table_hip.py", "table_hipfile.py", "unmodelled.txt")
    files = [*sorted((HERE / "src").iterdir()), *(HERE / name for name in names)]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the C compiler failed:\n  {shlex.join(command)}\n{done.stderr}")


def build(dest: Path, *, hip_major: int = HIP_MAJOR, flags: Sequence[str] = ()) -> list[Path]:
    """Compile everything into `dest` and return what was made.

    Parameters
    ----------
    dest : Path
        Folder, created if needed. Files in it are replaced in one step each, so a running program keeps its copy.
    hip_major : int
        Version in the SONAME of libamdhip64.
    flags : sequence of str
        Further flags for the compiler, such as ``-Werror``.

    Raises
    ------
    NoCompiler
        There is no C compiler.
    RuntimeError
        It failed; the text has its command line and messages.
    """
    cc = compiler()
    root = str(HERE.parent.parent)
    added = root not in sys.path
    if added:
        sys.path.insert(0, root)
    try:
        from hipfile_sim.native.shims import hip_source, hipfile_source
    finally:
        if added:
            sys.path.remove(root)
    source = HERE / "src"
    hip_name = f"libamdhip64.so.{hip_major}"
    (dest / "alias").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=dest, prefix=".build-") as folder:
        work = Path(folder)
        (work / "alias").mkdir()
        (work / "hip.c").write_text(hip_source())
        (work / "hipfile.c").write_text(hipfile_source())
        (work / "alias.c").write_text(f'__attribute__((visibility("default"))) const char {MARK}_alias[] = "{MARK}";\n')
        common = [*cc, *_FLAGS, *flags, f"-I{source}"]
        sources = [str(source / name) for name in ("core.c", "interrupt.c", "find_python.c", "extra.c")]
        hip = [*common, *sources, str(work / "hip.c"), f"-Wl,-soname,{hip_name}", "-ldl", "-lpthread"]
        _run([*hip, "-o", str(work / hip_name)])
        origin = "-Wl,--enable-new-dtags,-rpath,$ORIGIN"
        hipfile = [*common, str(work / "hipfile.c"), str(work / hip_name), f"-Wl,-soname,{HIPFILE_SONAME}", origin]
        _run([*hipfile, "-o", str(work / HIPFILE_SONAME)])
        for alias, needed in (("libamdhip64", hip_name), ("libhipfile", HIPFILE_SONAME)):
            link = [str(work / "alias.c"), str(work / needed), f"-Wl,-rpath-link,{work}", f"-Wl,-soname,{alias}.so"]
            _run([*common, *link, f"{origin}/..", "-o", str(alias_path(work, alias))])
        (work / STAMP).write_text(source_hash())
        made = []
        for path in sorted([*work.glob("*.so*"), *work.glob("alias/*.so"), work / STAMP]):
            target = dest / path.relative_to(work)
            os.replace(path, target)
            made.append(target)
    return made


if __name__ == "__main__":
    for built in build(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "lib"):
        print(built)
