"""The modules beside the tests can be imported by them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def scratch(tmp_path_factory):
    """A small file for programs with file operations, in memory where that is possible."""
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else tmp_path_factory.mktemp("explore")
    path = folder / f"hipfile-sim-explore-{tmp_path_factory.getbasetemp().parent.name}-{id(tmp_path_factory)}"
    path.write_bytes(b"")
    yield str(path)
    path.unlink()
