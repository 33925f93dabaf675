"""The published packages that the doubles stand for, as the set-up has fetched them."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def run(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Runs a test module given as text in a pytest of its own."""

    def run(source: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)

    return run


@pytest.fixture(scope="session")
def hipfile_sdist(fetched: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution of ``hipfile`` 0.4.0.dev0."""
    archive = next(fetched("sdist").glob("hipfile-*.tar.gz"))
    root = tmp_path_factory.mktemp("sdist")
    with tarfile.open(archive) as tar:
        tar.extractall(root, filter="data")
    return next(root.iterdir())


@pytest.fixture(scope="session")
def hip_python_wheels(fetched: Callable[[str], Path]) -> Path:
    """A folder with HIP-Python 10.0.0.0.1.2 and its bindings, for ``PYTHONPATH``."""
    return fetched("wheels")
