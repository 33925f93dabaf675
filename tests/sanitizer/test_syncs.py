"""Who makes a file durable is seen, so that nobody is told to do what he has done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import hipfile_mock
from hipfile_sim.observe import observer
from hipfile_sim.observe.observer import Site


def written(path: Path, then: Callable[[int], object]) -> list[str]:
    """Ids of what is found when a file is written, and `then` is called with its descriptor."""
    with hipfile_mock.fake(strict="leak.*=off, cost.*=off", faces=["hipfile"]) as session:
        import hipfile

        hip = session.hip
        memory, stream = hip.hipMalloc(4096)[1], hip.hipStreamCreateWithFlags(1)[1]
        hip.hipMemset(memory, 1, 4096)
        with hipfile.Buffer(memory, 4096, 0) as buffer, hipfile.FileHandle(path, os.O_RDWR | os.O_CREAT) as file:
            io = file.write_async(buffer, 4096, 0, 0, stream)
            hip.hipStreamSynchronize(stream)
            assert io.bytes_done == 4096
            then(file._fd)
    return [finding.id for finding in session.sanitizer.findings]


def sync_by_another_descriptor(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file)


@pytest.mark.parametrize("name", ["fsync", "fdatasync", "sync"])
def test_a_sync_is_seen(tmp_path: Path, name: str) -> None:
    before = getattr(os, name)
    assert written(tmp_path / "f", lambda fd: getattr(os, name)(*(() if name == "sync" else (fd,)))) == []
    assert getattr(os, name) is before


def test_the_file_counts_and_not_the_descriptor(tmp_path: Path) -> None:
    assert written(tmp_path / "f", lambda fd: sync_by_another_descriptor(tmp_path / "f")) == []


def test_a_sync_of_another_file_is_none(tmp_path: Path) -> None:
    other = tmp_path / "g"
    other.write_bytes(b"g")
    found = written(tmp_path / "f", lambda fd: sync_by_another_descriptor(other))
    assert found == ["data.unsynced-write"]


def test_a_sync_that_fails_is_none(tmp_path: Path) -> None:
    def fails(fd: int) -> None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fsync(2**30)

    assert written(tmp_path / "f", fails) == ["data.unsynced-write"]


def test_a_c_program_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees whether it has called fsync."""
    monkeypatch.setattr(observer, "call_site", lambda depth: Site("prog+0x1139", 0, "main"))
    assert written(tmp_path / "f", lambda fd: None) == []
