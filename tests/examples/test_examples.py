"""Every example does its job under every release and order, and would run as it is on real hardware."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hipfile_sim.cli.run import NO_LIBRARY

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAMS = sorted(p for p in EXAMPLES.glob("*.py") if not p.name.startswith("_") and p.name != "demo.py")
PROFILES = ["0.2", "0.3", "0.4", "0.5"]
ORDERS = [["--schedule", "lazy"], ["--schedule", "eager"], ["--seed", "1"], ["--engine", "threads"]]


@pytest.fixture
def example(tmp_path):
    def run(name: str, *args: str, options: list[str] | None = None, code: int = 0) -> str:
        command = [sys.executable, "-m", "hipfile_sim.cli", "run", *(options or []), str(EXAMPLES / name), *args]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        if code == 0:
            assert done.stderr.replace(f"{NO_LIBRARY}\n", "") == "", "the sanitizer has something to say"
        return done.stdout

    return run


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_examples_know_nothing_of_the_simulator(program):
    tree = ast.parse(program.read_text())
    imported = {alias.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    imported |= {(n.module or "").split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imported - set(sys.stdlib_module_names) <= {"hipfile", "_hip"}
    assert "hipfile" in imported


@pytest.mark.parametrize("options", [["--profile", p] for p in PROFILES] + ORDERS, ids=" ".join)
def test_kv_load_layerwise(example, options):
    out = example("kv_load_layerwise.py", "--layers", "4", "--layer-bytes", "70001", options=options)
    assert out.count("70001 bytes read, compute saw the right bytes") == 4
    assert "all layers loaded after" in out


def test_kv_load_layerwise_overlaps(example):
    """With work on the compute stream the whole takes less than loading and computing one after the other."""
    words = example("kv_load_layerwise.py").splitlines()[-1].split()
    loaded, total = float(words[words.index("loaded") + 2]), float(words[words.index("computed") + 2])
    one_layer = loaded / 8
    assert loaded < total < loaded + one_layer


def test_kv_load_reads_a_file_that_is_there(example, tmp_path):
    example("kv_load_layerwise.py", "--file", "kv.bin", "--layers", "2", "--layer-bytes", "4096")
    (tmp_path / "kv.bin").write_bytes(bytes(8192))
    out = example("kv_load_layerwise.py", "--file", "kv.bin", "--layers", "2", "--layer-bytes", "4096", code=1)
    assert "WRONG BYTES" in out


def test_kv_load_says_when_the_file_is_short(example, tmp_path):
    (tmp_path / "kv.bin").write_bytes(bytes(5000))
    out = example("kv_load_layerwise.py", "--file", "kv.bin", "--layers", "2", "--layer-bytes", "4096", code=1)
    assert "layer 1: 904 bytes read" in out


@pytest.mark.parametrize("options", [["--profile", p] for p in PROFILES] + ORDERS, ids=" ".join)
def test_kv_store(example, tmp_path, options):
    out = example("kv_store.py", "kv.bin", "--blocks", "5", "--block-bytes", "30011", options=options)
    assert "150055 bytes in 5 writes, file right" in out
    assert (tmp_path / "kv.bin").stat().st_size == 150055


@pytest.mark.parametrize("size", [0, 1, 4096, 100_003])
@pytest.mark.parametrize("how", [[], ["--async"]], ids=["sync", "async"])
def test_copy_file(example, tmp_path, size, how):
    data = os.urandom(size)
    (tmp_path / "from.bin").write_bytes(data)
    (tmp_path / "to.bin").write_bytes(b"older and longer" * 10_000)
    out = example("copy_file.py", "from.bin", "to.bin", "--chunk-bytes", "4096", *how)
    assert out.startswith(f"{size} of {size} bytes copied")
    assert (tmp_path / "to.bin").read_bytes() == data


@pytest.mark.parametrize("options", [["--profile", p] for p in PROFILES] + ORDERS, ids=" ".join)
def test_copy_file_async(example, tmp_path, options):
    data = os.urandom(64_000)
    (tmp_path / "from.bin").write_bytes(data)
    example("copy_file.py", "from.bin", "to.bin", "--async", "--chunk-bytes", "1000", options=options)
    assert (tmp_path / "to.bin").read_bytes() == data


def test_copy_file_names_a_missing_source(example, tmp_path):
    example("copy_file.py", "absent", "to.bin", code=1)
    assert not (tmp_path / "to.bin").exists()


@pytest.mark.parametrize("options", [["--profile", p] for p in PROFILES] + ORDERS, ids=" ".join)
def test_paused_stream(example, options):
    unfixed, fixed = example("paused_stream.py", options=options).splitlines()
    assert "bytes_done  2048   buffer in half pages: ..C....." in unfixed
    assert "bytes_done  4096   buffer in half pages: AA......" in fixed


def test_the_demo_shows_what_happened(tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("compute saw the right bytes") == 8
    assert (tmp_path / "demo.trace.json").exists()
