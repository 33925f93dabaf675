"""Whose line a call is."""

from __future__ import annotations

import functools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from hipfile_sim.observe.observer import Site, call_site


def line() -> int:
    """Of the caller."""
    return sys._getframe(1).f_lineno


def _append_site(found: list[Site | None], row: object) -> int:
    found.append(call_site(2))
    return 0


def installed(name: str, path: Path, source: str) -> ModuleType:
    """A module whose source lies at `path`."""
    module = ModuleType(name)
    exec(compile(source, str(path), "exec"), vars(module))
    return module


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_an_installed_package_gives_way_to_its_caller(tmp_path: Path, folder: str) -> None:
    package = installed("package", tmp_path / folder / "package.py", "def call(function):\n    return function(0)\n")
    here = line() + 1
    assert package.call(call_site) == Site(__file__, here, "test_an_installed_package_gives_way_to_its_caller")


def test_the_innermost_user_wins(tmp_path: Path) -> None:
    package = installed("package", tmp_path / "site-packages" / "p.py", "def call(function):\n    return function()\n")

    def callback() -> Site | None:
        return call_site(1)

    site = package.call(callback)
    assert site is not None
    assert site.function == "callback"


def test_numpy_and_the_standard_library_give_way() -> None:
    np = pytest.importorskip("numpy")
    found: list[Site | None] = []
    here = line() + 1
    np.apply_along_axis(functools.partial(_append_site, found), 0, np.zeros(2))
    assert found[0] == Site(__file__, here, "test_numpy_and_the_standard_library_give_way")
    here = line() + 1
    seen = functools.singledispatch(call_site)(0)
    assert seen == Site(__file__, here, "test_numpy_and_the_standard_library_give_way")


def test_without_a_user_an_installed_package_is_better_than_nobody() -> None:
    with ThreadPoolExecutor(1) as pool:
        site = pool.submit(call_site, 0).result()
    assert site is not None
    assert site.filename.endswith("thread.py")
