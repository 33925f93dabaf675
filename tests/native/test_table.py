"""The symbol tables: what they say, that they are complete, and that the libraries are what they say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from native_support import run

from hipfile_sim.driver.driver import Driver
from hipfile_sim.hip.runtime import Runtime
from hipfile_sim.machine import Machine
from hipfile_sim.native import bridge, build, shims
from hipfile_sim.native.activation import is_emulated
from hipfile_sim.native.symbols import parse
from hipfile_sim.native.table_hip import HIP
from hipfile_sim.native.table_hipfile import HIPFILE


def exported(path: Path) -> set[str]:
    listing = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in listing.splitlines() if " T " in line}


def test_libraries_export_the_tables_and_nothing_else(native_prefix: Path) -> None:
    hip = exported(native_prefix / "lib" / "libamdhip64.so")
    by_hand = {name for name in hip if name.startswith("__hip")}
    own = {"hipfile_sim_call", "hipfile_sim_caller", "hipfile_sim_control", "hipfile_sim_stack"}
    assert hip - by_hand - own == {s.name for s in HIP if not s.name.startswith("__")} | {
        n for n, _ in shims.UNMODELLED
    }
    assert exported(native_prefix / "lib" / "libhipfile.so") == {symbol.name for symbol in HIPFILE}


def test_every_call_of_the_model_has_a_symbol() -> None:
    """Runtime.CALLS and Driver.CALLS are the model's own registries; what is no C function is named differently."""
    names = {symbol.name for symbol in (*HIP, *HIPFILE)}
    plain = {"hipGetDeviceProperties": "hipGetDevicePropertiesR0600"}
    for name in (*Runtime.CALLS, *Driver.CALLS):
        if name.startswith("hip"):
            assert plain.get(name, name) in names


def test_every_symbol_reaches_the_model() -> None:
    """No table line ends in "not modelled" by accident."""
    with Machine(1) as machine:
        left = {
            symbol.name
            for symbol in shims.called()
            if bridge._function(symbol, machine).__qualname__.startswith("_not_modelled")
        }
    assert left == set()


def test_arguments_fit_the_model() -> None:
    """A direct call hands over as many arguments as the model's method takes."""
    for symbol in (*HIP, *HIPFILE):
        calls = Runtime.CALLS if symbol.name in Runtime.CALLS else None
        if calls is not None and not symbol.handwritten:
            inputs = [arg for arg in symbol.args if arg.role == "in"]
            assert len(inputs) <= len(calls[symbol.name].parameters) or symbol.name in (
                "hipDeviceGetName", "hipPointerGetAttributes"), symbol.name  # fmt: skip


@pytest.mark.parametrize("line", ["hipError_t hipFree", "hipError_t f(nosuch_t x)", "hipError_t f(int)"])
def test_wrong_lines_are_named(line: str) -> None:
    with pytest.raises(ValueError, match=r"unknown C type|not a prototype|not an argument"):
        parse(line)


def test_compiles_without_warnings(tmp_path: Path) -> None:
    made = build.build(tmp_path, flags=["-Werror", "-Wpedantic"])
    assert sorted(path.name for path in made) == [
        "libamdhip64.so",
        f"libamdhip64.so.{build.HIP_MAJOR}",
        "libhipfile.so",
        build.HIPFILE_SONAME,
        build.STAMP,
    ]


def test_dynamic_section(native_prefix: Path) -> None:
    """SONAMEs, dependencies and search path are what clients rely on; libpython is none of them."""
    lib = native_prefix / "lib"
    for name, needed, soname in (
        ("libamdhip64.so", "libc.so.6", f"libamdhip64.so.{build.HIP_MAJOR}"),
        ("libhipfile.so", f"libamdhip64.so.{build.HIP_MAJOR}", build.HIPFILE_SONAME),
        ("alias/libamdhip64.so", f"libamdhip64.so.{build.HIP_MAJOR}", "libamdhip64.so"),
        ("alias/libhipfile.so", build.HIPFILE_SONAME, "libhipfile.so"),
    ):
        text = run(["readelf", "-d", lib / name]).stdout
        assert f"SONAME)             Library soname: [{soname}]" in text
        assert f"[{needed}]" in text
        assert "python" not in text
        assert is_emulated(lib / name)
        if name != "libamdhip64.so":
            assert "$ORIGIN" in text


def test_no_compiler_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(build.NoCompiler, match="CC='no-such-compiler' not found"):
        build.build(tmp_path)
