"""Every example runs: python blocks, doctests and calls of our own command line in pages; examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, get_overloads

import pytest

import hipfile_mock
from hipfile_sim import HipSettings, Machine
from hipfile_sim.cli.run import NO_LIBRARY

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)```\s*$", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#]+)?(?:#([^)]+))?\)")


fake_keywords = get_overloads(hipfile_mock.fake)[-1]


class Block(NamedTuple):
    language: str
    line: int
    body: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        indent = match["indent"]
        body = "".join(line.removeprefix(indent) for line in match["body"].splitlines(keepends=True))
        found.append(Block(match["language"], text.count("\n", 0, match.start()) + 2, body))
    return found


def runnable(page: Path) -> bool:
    return any(block.language in ("python", "console") for block in blocks(page))


def run_console(body: str, cwd: Path) -> None:
    """Run the `$` lines; what stands below one must be its output, up to ``...``."""
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        arguments = shlex.split(command)
        assert arguments[0] == "hipfile-sim", f"console blocks run hipfile-sim only, not {arguments[0]!r}"
        done = subprocess.run(
            [sys.executable, "-m", "hipfile_sim.cli", *arguments[1:]],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        if expected.strip():
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            printed = done.stdout.replace(f"{NO_LIBRARY}\n", "")  # true of some environments
            assert doctest.OutputChecker().check_output(expected, printed, flags), (
                f"$ {command}\nthe page says:\n{expected}\nit prints:\n{done.stdout}"
            )


def run_page(page: Path) -> None:
    """Run the blocks of a page, in the current folder and with the same names."""
    names: dict[str, object] = {"__name__": "__page__"}
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.language == "console":
            run_console(block.body, Path.cwd())
        elif block.language == "python" and block.body.lstrip().startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(block.body, names, where, str(page), block.line)
            report: list[str] = []
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            runner.run(test, out=report.append, clear_globs=False)
            assert not runner.failures, "".join(report)
            names.update(test.globs)
        elif block.language == "python":
            source = "\n" * (block.line - 1) + block.body  # so that a traceback has the page's line
            exec(compile(source, str(page), "exec"), names)


def needs(page: Path) -> list[pytest.MarkDecorator]:
    """What a page cannot do without."""
    return [pytest.mark.torch] if any("import torch" in b.body for b in blocks(page) if b.language == "python") else []


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=needs(p), id=str(p.relative_to(ROOT))) for p in PAGES if runnable(p)]
)
def test_code_blocks_run(page, tmp_path):
    command = [sys.executable, __file__, str(page)]  # a process of its own, as a reader would have
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


TORCH_FACE = "hipfile_mock.faces.torch"


def with_examples(package: str) -> list[str]:
    """The modules of a package whose docstrings have examples."""
    found = []
    for path in sorted((ROOT / package.replace(".", "/")).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if re.search(r"^ *>>> ", path.read_text(), re.M) and (package == TORCH_FACE or not name.startswith(TORCH_FACE)):
            found.append(name)
    return found


def run_docstrings(package: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    results = [doctest.testmod(importlib.import_module(name), optionflags=flags) for name in with_examples(package)]
    assert sum(result.attempted for result in results)
    assert not any(result.failed for result in results)


@pytest.mark.parametrize(
    "package",
    ["hipfile_sim", "hipfile_mock", "hipfile_conformance", pytest.param(TORCH_FACE, marks=pytest.mark.torch)],
)
def test_examples_in_docstrings_run(package, tmp_path):
    command = [sys.executable, __file__, package]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, anchor in LINK.findall(page.read_text()):
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{page.relative_to(ROOT)} links to {target}, which does not exist"
        if anchor and there.suffix == ".md":
            titles = re.findall(r"^#+ (.*)$", there.read_text(), re.M)
            slugs = {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}
            assert anchor in slugs, f"{page.relative_to(ROOT)} links to {target}#{anchor}, which has {sorted(slugs)}"


def test_every_page_is_reached_from_the_index():
    reached = set()
    to_read = [ROOT / "README.md", ROOT / "docs" / "index.md"]
    while to_read:
        page = to_read.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        to_read += [(page.parent / target).resolve() for target, _ in LINK.findall(page.read_text()) if target]
    missing = [str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md") if p not in reached]
    assert not missing, f"pages that no other page leads to: {missing}"


@pytest.mark.parametrize(
    ("page", "function"), [("machine.md", Machine), ("machine.md", HipSettings), ("doubles.md", fake_keywords)]
)
def test_the_reference_names_every_keyword(page, function):
    text = (ROOT / "docs" / "reference" / page).read_text()
    missing = [name for name in inspect.signature(function).parameters if f"`{name}`" not in text]
    assert not missing


def test_the_readme_example_is_short():
    (example,) = [b for b in blocks(ROOT / "README.md") if b.language == "python"]
    inside = example.body.split("fake():")[1]
    assert len([line for line in inside.splitlines() if line.strip()]) <= 12


if __name__ == "__main__":
    if sys.argv[1].endswith(".md"):
        run_page(Path(sys.argv[1]))
    else:
        run_docstrings(sys.argv[1])
