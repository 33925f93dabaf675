"""What the tests of the C ABI share: the prefix, the compiled programs, and an environment with the real clients."""

from __future__ import annotations

import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

if str(Path(__file__).parent) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parent))

from native_support import HERE, ROOT, locked, run

from hipfile_sim.native.build import NoCompiler, compiler
from hipfile_sim.native.prefix import NativeUnavailable, prefix


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
def clients(native_prefix: Path, fetched: Callable[[str], Path]) -> Path:
    """The Python of an environment with HIP-Python from PyPI and `hipfile` built from its sdist against the prefix."""
    return fetched("clients") / "bin" / "python"


@pytest.fixture(scope="session")
def sdist_tests(clients: Path, fetched: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tests that the `hipfile` sdist brings along, with its package folder out of the way."""
    target = tmp_path_factory.mktemp("sdist")
    with tarfile.open(next(fetched("sdist").glob("hipfile-*.tar.gz"))) as packed:
        packed.extractall(target, filter="data")
    return next(target.glob("hipfile-*")) / "tests"
