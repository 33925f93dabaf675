"""`make_rig`: machines for the tests of the driver, closed afterwards."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


def _load() -> Any:
    """`rig.py` beside this file, under a name that every test module can import."""
    name = "hipfile_driver_rig"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("rig.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


rig_module = _load()


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes rigs; keywords are those of `Rig`."""
    made = []

    def make(profile: str = "0.5", **settings: Any) -> Any:
        rig = rig_module.Rig(tmp_path, profile, **settings)
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig: Callable[..., Any]) -> Any:
    """One machine with profile 0.5 and the lazy schedule."""
    return make_rig()
