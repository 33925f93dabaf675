"""The modules beside the tests can be imported by them."""

import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def scratch(tmp_path_factory):
    """A small file for programs with file operations, in memory where that is possible."""
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else tmp_path_factory.mktemp("explore")
    with tempfile.NamedTemporaryFile(prefix="hipfile-sim-explore-", dir=folder) as file:
        yield file.name
