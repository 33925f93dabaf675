"""What the tests of the C ABI share: the prefix, the compiled programs, and an environment with the real clients."""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path

import pytest

if str(Path(__file__).parent) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parent))

from native_support import HERE, ROOT, locked, run

from hipfile_sim.native.build import NoCompiler, compiler
from hipfile_sim.native.prefix import NativeUnavailable, prefix

CLIENTS = ROOT / ".venvs" / f"clients-{sys.version_info[0]}.{sys.version_info[1]}"
WHEELS = ("hip-python==10.0.0.0.1.2", "rocm-bindings-systems==10.0.0.0.1.2", "pytest")
SDIST = "hipfile==0.4.0.dev0"


@pytest.fixture(scope="session")
def native_prefix() -> Path:
    """The prefix of the newest release; skips where there is no C compiler."""
    try:
        with locked(ROOT / ".venvs" / "prefix.lock"):
            return prefix()
    except NativeUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def programs(native_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled programs, built as a user builds: with make, against the prefix."""
    try:
        compiler()
    except NoCompiler as error:
        pytest.skip(f"no C compiler: {error}")
    for tool in ("make", "g++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on PATH")
    out = tmp_path_factory.mktemp("programs")
    done = run(["make", "-s", "-j2", "-C", HERE / "programs", f"PREFIX={native_prefix}", f"OUT={out}"], timeout=300)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def clients(native_prefix: Path) -> Path:
    """The Python of an environment with HIP-Python from PyPI and `hipfile` built from its sdist against the prefix."""
    python = CLIENTS / "bin" / "python"
    with locked(CLIENTS.parent / f"{CLIENTS.name}.lock"):
        stamp = CLIENTS / "complete"
        if not stamp.exists():
            shutil.rmtree(CLIENTS, ignore_errors=True)
            made = run([sys.executable, "-m", "venv", CLIENTS], timeout=120)
            assert made.returncode == 0, made.stderr
            for command, env in (
                (["install", *WHEELS], {}),
                (["download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", SDIST, "-d", CLIENTS], {}),
                (["install", "--no-binary", "hipfile", SDIST], {"ROCM_PATH": str(native_prefix)}),
            ):
                if command[0] == "download":
                    # metadata of the sdist needs its build backend
                    run([python, "-m", "pip", "install", "-q", "scikit-build-core", "cython"], timeout=300)
                done = run([python, "-m", "pip", "-q", "--disable-pip-version-check", *command], env=env, timeout=600)
                if done.returncode:
                    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
                    reason = errors[-1] if errors else done.stderr[-500:]
                    if "No matching distribution" in reason or "connection" in done.stderr.lower():
                        pytest.skip(f"the real clients could not be installed: {reason}")
                    pytest.fail(f"pip {' '.join(map(str, command))}: {done.stderr[-4000:]}")
            stamp.touch()
    return python


@pytest.fixture(scope="session")
def sdist_tests(clients: Path) -> Path:
    """The folder of the tests that the `hipfile` sdist brings along, with its package folder out of the way."""
    archive = next(CLIENTS.glob("hipfile-*.tar.gz"))
    with locked(CLIENTS.parent / f"{CLIENTS.name}.lock"):
        target = CLIENTS / "sdist"
        if not target.exists():
            with tarfile.open(archive) as packed:
                packed.extractall(target, filter="data")
    return next(target.glob("hipfile-*")) / "tests"
