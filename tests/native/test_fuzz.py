"""Random and wild values through every function of both libraries, from several threads: codes, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_source import source
from native_support import execute, run

from hipfile_sim.native.build import compiler


@pytest.fixture(scope="session")
def fuzz(native_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "fuzz.c").write_text(source())
    flags = ["-std=gnu11", "-O1", "-g", f"-I{native_prefix}/include", f"-L{native_prefix}/lib"]
    built = run([*compiler(), *flags, folder / "fuzz.c", "-o", folder / "fuzz", "-lhipfile", "-lamdhip64", "-lpthread"])
    assert built.returncode == 0, built.stderr
    return folder / "fuzz"


def check(fuzz: Path, folder: Path, seed: int, calls: int, threads: int, *options: str, timeout: float = 500) -> None:
    data = folder / "data"
    data.write_bytes(bytes(range(256)) * 1024)
    toml = folder / "fuzz.toml"
    toml.write_text("[hip]\ndevice_memory = 268435456\npinned_memory = 268435456\n")  # out of memory is reached, too
    arguments = (fuzz, str(seed), str(calls), str(threads), data)
    done = execute(*arguments, options=["--config", str(toml), *options], timeout=timeout)
    words = done.stdout.rpartition("fuzz ok ")[2].split()
    assert done.returncode == 0, f"seed {seed}: {done.returncode} {done.stderr[-3000:]}"
    good, bad = map(int, words)
    assert good > calls // 50, (good, bad)
    assert bad > calls // 4, (good, bad)
    assert "Traceback" not in done.stderr, done.stderr[-3000:]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_short(fuzz: Path, tmp_path: Path, seed: int) -> None:
    check(fuzz, tmp_path, seed, 6000, 1 + 3 * (seed % 2))


def test_short_deterministic_engine(fuzz: Path, tmp_path: Path) -> None:
    check(fuzz, tmp_path, 4, 4000, 1, "--schedule", "seeded:4")


@pytest.mark.parametrize("profile", ["0.2", "0.4"])
def test_short_older_releases(fuzz: Path, tmp_path: Path, profile: str) -> None:
    check(fuzz, tmp_path, 5, 3000, 2, "--profile", profile)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(100, 104))
def test_long(fuzz: Path, tmp_path: Path, seed: int) -> None:
    check(fuzz, tmp_path, seed, 100_000, 4, timeout=1800)
