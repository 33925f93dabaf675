"""The doctor looks at files and folders only; here they are made for it."""

from __future__ import annotations

import json

import pytest

from hipfile_sim.cli import probe
from hipfile_sim.cli.app import run


@pytest.fixture
def rocm(tmp_path, monkeypatch):
    """A folder that looks like ROCm, and nothing else of AMD's in sight."""
    (tmp_path / "lib").mkdir()
    (tmp_path / ".info").mkdir()
    (tmp_path / ".info" / "version").write_text("10.0.0-42\n")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.delenv("ROCM_HOME", raising=False)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(probe, "_package_folders", lambda name: [])
    monkeypatch.setattr(probe, "_ldconfig", lambda name: None)
    return tmp_path


def one(name: str, findings) -> probe.Finding:
    (found,) = [f for f in findings if f.name == name]
    return found


def test_rocm_is_found_by_its_variable_with_its_version(rocm):
    found = one("ROCm", probe.amd())
    assert found.present
    assert found.detail == f"{rocm} (10.0.0-42)"


def test_a_real_library_is_named_with_its_place(rocm):
    library = rocm / "lib" / "libhipfile.so"
    library.write_bytes(b"\x7fELF something of AMD's")
    found = one("libhipfile.so", probe.amd())
    assert found.present
    assert found.detail == str(library)
    assert one("real hipFile", probe.simulator()).detail == str(library)


def test_an_emulated_library_never_passes_for_a_real_one(rocm):
    library = rocm / "lib" / "libhipfile.so"
    library.write_bytes(b"\x7fELF ... " + probe.OUR_MARK + b" ...")
    assert "emulated" in one("libhipfile.so", probe.amd()).detail
    assert not one("real hipFile", probe.simulator()).present


def test_library_path_is_searched_after_rocm(rocm, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    (other / "libamdhip64.so.7").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/no/such/folder:{other}")
    assert probe.locate("libamdhip64.so") == other / "libamdhip64.so.7"
    (rocm / "lib" / "libamdhip64.so").write_bytes(b"")
    assert probe.locate("libamdhip64.so") == rocm / "lib" / "libamdhip64.so"


def test_nothing_there_is_said_plainly(rocm, monkeypatch):
    monkeypatch.setenv("ROCM_PATH", "/no/such/folder")
    monkeypatch.setattr(probe, "rocm_root", lambda: None)
    assert one("libhipfile.so", probe.amd()) == probe.Finding("AMD", "libhipfile.so", False, "not found")
    assert not one("ROCm", probe.amd()).present


def test_a_compiler_is_taken_from_cc(tmp_path, monkeypatch):
    compiler = tmp_path / "mycc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert one("C compiler", probe.tools()).detail == str(compiler)
    monkeypatch.setenv("CC", "/no/such/cc")
    assert not one("C compiler", probe.tools()).present


def test_packages_say_their_version_or_that_they_are_absent(monkeypatch):
    import numpy

    monkeypatch.setattr(probe, "PACKAGES", ("numpy", "surely-not-a-package-name"))
    found = {f.name: f for f in probe.packages()}
    assert found["numpy"].detail == numpy.__version__
    assert found["surely-not-a-package-name"].present is False


def test_the_report_is_a_table_and_json(capsys):
    assert run(["doctor", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["section"] for row in rows} == {"AMD", "NVIDIA", "hipfile-sim", "Python", "tools"}
    assert run(["doctor"]) == 0
    assert "/dev/kfd" in capsys.readouterr().out
