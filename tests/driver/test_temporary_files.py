"""Descriptors of Python's temporary files: refused as by the real library, with a word about why and what to do."""

from __future__ import annotations

import os
import tempfile

import pytest

from hipfile_mock import fake
from hipfile_sim import Machine
from hipfile_sim.driver.codes import FileDescr, HandleType, OpError
from hipfile_sim.observe.observer import Observer
from hipfile_sim.observe.sanitizer import Sanitizer

OPAQUE = HandleType.hipFileHandleTypeOpaqueFD


class Notes(Observer):
    def __init__(self):
        self.seen = []

    def note(self, note):
        self.seen.append((note.id, note.message, dict(note.objects)))


@pytest.fixture
def nameless(tmp_path):
    try:
        fd = os.open(tmp_path, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:
        pytest.skip("this file system has no O_TMPFILE")
    yield fd
    os.close(fd)


@pytest.fixture
def named(tmp_path):
    with tempfile.NamedTemporaryFile(dir=tmp_path) as file:
        yield file


def register(machine, fd):
    status, handle = machine.hipfile.hipFileHandleRegister(FileDescr(OPAQUE, fd))
    return status.err, handle


@pytest.mark.parametrize("profile", ["0.2", "0.4", "0.5"])
def test_named(profile, named):
    notes, sanitizer = Notes(), Sanitizer()
    with Machine(1, profile=profile, observers=[notes, sanitizer]) as machine:
        assert register(machine, named.fileno()) == (OpError.hipFileInternalError, 0)
        [(id, message, objects)] = notes.seen
        assert id == "file.register-failed"
        assert objects == {"fd": named.fileno()}
        for part in (f"descriptor {named.fileno()}", "ELOOP", "O_NOFOLLOW", "os.open(file.name, os.O_RDWR)"):
            assert part in message
        assert any("O_NOFOLLOW" in str(finding) for finding in sanitizer.findings)
        assert not sanitizer.errors
        again = os.open(named.name, os.O_RDWR)  # the remedy
        try:
            assert register(machine, again)[0] is OpError.hipFileSuccess
            assert machine.hipfile.state.files.why == ""
        finally:
            os.close(again)


def test_nameless(nameless):
    notes = Notes()
    with Machine(1, observers=[notes]) as machine:
        assert register(machine, nameless) == (OpError.hipFileInternalError, 0)
        [(_, message, _)] = notes.seen
        for part in ("ENOTDIR", "O_TMPFILE", "tempfile.TemporaryFile", "mkstemp"):
            assert part in message


def test_a_descriptor_that_is_not_open():
    notes = Notes()
    with Machine(1, observers=[notes]) as machine:
        assert register(machine, 1 << 20)[0] is OpError.hipFileInternalError
    assert (
        notes.seen[0][1]
        == f"hipFileHandleRegister: descriptor {1 << 20} cannot be inspected: EBADF, Bad file descriptor"
    )


@pytest.mark.parametrize("module", ["hipfile", "rocm.hipfile"])
def test_the_exception_of_the_packages_has_it_as_a_note(tmp_path, module):
    (tmp_path / "kv").write_bytes(bytes(64))
    with fake(strict=False, faces=["hipfile", "hip_python-double"]):
        import importlib

        package = importlib.import_module(module)
        file = package.FileHandle(tmp_path / "kv", os.O_RDONLY | os.O_NOFOLLOW)
        with pytest.raises(package.HipFileException) as caught:
            file.open()
        assert int(caught.value.hipfile_err) == 5030
        assert "O_NOFOLLOW" in caught.value.__notes__[0]
        other = package.FileHandle(tmp_path / "kv", os.O_RDONLY)
        other.open()
        other.close()
