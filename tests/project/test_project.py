"""The project itself: what it ships, what an import costs, that its commands and its pages exist."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def python(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=500, check=True, cwd=ROOT
    ).stdout


def test_the_core_needs_numpy_alone():
    assert [re.match(r"[\w-]+", d)[0] for d in PYPROJECT["project"]["dependencies"]] == ["numpy"]


def test_version_is_said_once():
    assert (
        importlib.metadata.version("hipfile-sim")
        == python("import hipfile_sim; print(hipfile_sim.__version__)").strip()
    )


@pytest.mark.parametrize("package", ["hipfile_sim", "hipfile_mock", "hipfile_conformance"])
def test_packages_are_typed(package):
    assert (ROOT / package / "py.typed").exists()


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("hipfile_sim", ("numpy", "click", "ctypes")),
        ("hipfile_mock", ("numpy", "torch", "pytest", "hipfile_sim.machine", "pyfakefs")),
        ("hipfile_sim.machine", ("torch", "pytest", "click", "hipfile_mock")),
    ],
)
def test_imports_bring_nothing_heavy(module, absent):
    loaded = python(f"import sys, {module}; print(*sys.modules)").split()
    assert not [name for name in absent if name in loaded]


@pytest.mark.parametrize("package", ["hipfile_sim", "hipfile_mock"])
def test_public_names_can_be_had_and_have_docstrings(package):
    program = f"""if True:
        import {package}
        for name in {package}.__all__:
            assert name in dir({package})
            value = getattr({package}, name)
            assert isinstance(value, str) or value.__doc__, name
        print(*(name for name in {package}.__all__ if name != "__version__"))
    """
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    names = python(program).split()
    assert names
    assert not [name for name in names if not re.search(rf"[`.]{name}\b", pages)], "in no page of the reference"


def test_console_script_and_plugin_point_at_what_exists():
    for target in PYPROJECT["project"]["scripts"].values():
        module, _, name = target.partition(":")
        assert python(f"import {module}; print(callable({module}.{name}))") == "True\n"
    for target in PYPROJECT["project"].get("entry-points", {}).get("pytest11", {}).values():
        python(f"import {target}")


def test_make_help_names_every_target_for_people():
    listed = {line.split()[0] for line in subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()}  # fmt: skip
    contributing = set(
        re.findall(r"`make ([a-z]+)", (ROOT / "CONTRIBUTING.md").read_text() + (ROOT / "README.md").read_text())
    )
    assert contributing <= listed


def test_the_gate_calls_make_test_and_the_checks():
    gate = (ROOT / ".ci" / "run").read_text()
    assert "set -euo pipefail" in gate
    for target in ("format-check", "lint", "types", "examples", "test"):
        assert re.search(rf"make {target}\b", gate)
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_changelog_fragments_have_a_known_kind():
    for fragment in (ROOT / "changelog.d").iterdir():
        if fragment.name != "README.md":
            assert re.fullmatch(r"[\w-]+\.(added|changed|fixed|removed)\.md", fragment.name), fragment.name
            assert fragment.read_text().strip().endswith(".")


@pytest.mark.slow
def test_the_wheel_has_three_packages_and_nothing_else(tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(
        ROOT,
        tree,
        symlinks=True,
        ignore=shutil.ignore_patterns(".venv", ".git", "__pycache__", ".*_cache", ".hypothesis"),
    )
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(tmp_path), str(tree)], check=True, timeout=500, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"hipfile_sim", "hipfile_mock", "hipfile_conformance"}
    assert "hipfile_conformance/__init__.py" in names
    assert {"hipfile_sim/py.typed", "hipfile_mock/py.typed", "hipfile_conformance/py.typed"} <= set(names)
    assert not [n for n in names if n.endswith((".pyc", ".trace.json"))]
    libraries = [n for n in names if ".so" in n]
    if libraries:
        assert "py3-none-linux" in wheel.name
    else:
        assert wheel.name.endswith("py3-none-any.whl")
