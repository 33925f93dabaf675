"""What the C ABI costs a C program, measured inside the program (``native/bench.c``)."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from harness import HERE, Figure, benchmark

_SIZE = 64 << 20


@cache
def _built() -> tuple[Path, Path]:
    """Folder with the program and a file to read, and the prefix."""
    from hipfile_sim.native.build import compiler
    from hipfile_sim.native.prefix import prefix

    root = prefix()
    folder = Path(tempfile.mkdtemp(prefix="hipfile-sim-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = HERE / "native"
    cc = [*compiler(), "-O2"]
    subprocess.run([*cc, "-shared", "-fPIC", source / "empty.c", "-o", folder / "libempty.so"], check=True)
    subprocess.run(
        [*cc, "-std=gnu11", f"-I{root}/include", source / "bench.c", folder / "libempty.so", "-o", folder / "bench",
         f"-L{root}/lib", "-lhipfile", "-lamdhip64", "-lpthread"], check=True)  # fmt: skip
    (folder / "data").write_bytes(os.urandom(1 << 20) * (_SIZE >> 20))
    return folder, root


def _measure(case: str, rounds: int) -> tuple[float, float, float]:
    """ns a call, ours and the bare one; and the ratio of the two in processor time."""
    folder, root = _built()
    env = {**os.environ, "LD_LIBRARY_PATH": f"{root}/lib:{folder}"}
    command = [folder / "bench", case, folder / "data", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    ours, bare, ours_cpu, bare_cpu = map(float, done.stdout.split())
    return ours, bare, ours_cpu / bare_cpu


@benchmark("native-init", ("<=", 1.0))
def native_init(quick: bool) -> Figure:
    """hipInit from a C thread, µs."""
    ours, bare, _ = _measure("init", 20_000 if quick else 200_000)
    return Figure(ours / 1e3, "us", {"empty C function ns": f"{bare:.2f}", "ratio": f"{ours / bare:.0f}"})


@benchmark("native-init-ratio", ("<=", 100.0))
def native_init_ratio(quick: bool) -> Figure:
    """hipInit from a C thread against a call of an empty function in a C library."""
    ours, bare, _ = _measure("init", 20_000 if quick else 200_000)
    return Figure(ours / bare, detail={"ours ns": f"{ours:.0f}", "empty ns": f"{bare:.2f}"})


def _read(case: str, rounds: int) -> Figure:
    ours, bare, cpu = _measure(case, rounds)
    times = {"ours us": f"{ours / 1e3:.1f}", "pread+memcpy us": f"{bare / 1e3:.2f}"}
    return Figure(ours / bare, detail={**times, "in processor time": f"{cpu:.1f}"})


@benchmark("native-read-4k", ("<=", 200.0))
def native_read_4k(quick: bool) -> Figure:
    """Buffered 4 KiB hipFileRead from C against pread and memcpy."""
    return _read("read-4k", 500 if quick else 3000)


@benchmark("native-read-1m", ("<=", 5.0))
def native_read_1m(quick: bool) -> Figure:
    """Buffered 1 MiB hipFileRead from C against pread and memcpy."""
    return _read("read-1m", 50 if quick else 300)


@benchmark("native-async-16m", (">=", 0.7))
def native_async_16m(quick: bool) -> Figure:
    """Speed of 16 MiB async reads of a page-cached file against pread and memcpy in C."""
    ours, bare, cpu = _measure("async-16m", 8 if quick else 32)
    gib = (16 << 20) / (1 << 30) * 1e9
    speeds = {"ours GiB/s": f"{gib / ours:.2f}", "bare GiB/s": f"{gib / bare:.2f}"}
    return Figure(bare / ours, detail={**speeds, "in processor time": f"{1 / cpu:.2f}"})
