"""The catalogue through what people use: the ``hipfile`` package, ``torch.cuda`` and the C functions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from c_face import CWorld
from catalogue import PROGRAMS, Program, load
from faces import PythonWorld, TorchWorld

import hipfile_mock
from hipfile_sim.native.prefix import NativeUnavailable, prefix

load()


def programs(face: str) -> list[Any]:
    return [pytest.param(program, id=program.name) for program in PROGRAMS.values() if face in program.faces]


def check(world: type[PythonWorld], program: Program) -> None:
    with world(schedule=(program.schedules or ("parallel",))[0], **program.options) as w:
        program.body(w)
    expected = {program.expected} if program.expected else set()
    assert {finding.id for finding in w.sanitizer.findings} == expected, w.sanitizer.format(colour=False)


@pytest.mark.parametrize("program", programs("python"))
def test_through_the_package(program: Program) -> None:
    check(PythonWorld, program)


@pytest.mark.torch
@pytest.mark.parametrize("program", programs("torch"))
def test_through_torch(program: Program) -> None:
    check(TorchWorld, program)


UNSEEN = ("result.early-read", "race.host-read", "race.host-write")
"""Loads and stores of a C program are seen by nobody."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # how the C ABI reports a deadlock
@pytest.mark.parametrize("program", programs("c"))
def test_through_the_c_functions(program: Program) -> None:
    try:
        prefix()
    except NativeUnavailable as error:
        pytest.skip(str(error))
    with CWorld(schedule=(program.schedules or ("lazy",))[0], **program.options) as w:
        program.body(w)
    expected = {program.expected} if program.expected and program.expected not in UNSEEN else set()
    found = {finding.id for finding in w.sanitizer.findings} | set(getattr(w, "from_child", ()))
    assert found == expected, w.sanitizer.format(colour=False)


def test_most_of_the_catalogue_applies() -> None:
    for face, least in (("python", 85), ("torch", 75), ("c", 120)):
        applying = programs(face)
        assert len(applying) >= least
        assert sum(bool(p.values[0].expected) for p in applying) >= least // 3


@pytest.mark.torch
@pytest.mark.parametrize("schedule", ["lazy", "parallel", "eager"])
@pytest.mark.parametrize("waits", [False, True])
def test_the_layerwise_load_of_the_bindings(tmp_path: Path, schedule: str, waits: bool) -> None:
    """Each layer's attention waits on the GPU for its chunk; whether the host waits as well decides."""
    path = tmp_path / "kv.bin"
    path.write_bytes(bytes(range(256)) * 1024)
    with hipfile_mock.fake(strict=False, schedule=schedule) as session:
        import hipfile
        import torch

        assert hipfile.supports_async()
        copy_stream = torch.cuda.Stream()
        gbuf = torch.empty(256 * 1024, dtype=torch.uint8, device="cuda")
        buf = hipfile.Buffer(gbuf.data_ptr(), gbuf.numel(), 0)
        buf.register()
        with hipfile.FileHandle(path, os.O_RDONLY) as fh, hipfile.Stream(copy_stream.cuda_stream) as st:
            inflight = []
            with torch.cuda.stream(copy_stream):
                for layer in range(4):
                    io = fh.read_async(buf, 65536, layer * 65536, layer * 65536, st.handle)
                    event = torch.cuda.Event()
                    event.record(copy_stream)
                    inflight.append((layer, io, event))
            for layer, io, event in inflight:
                torch.cuda.current_stream().wait_event(event)
                gbuf[layer * 65536 : (layer + 1) * 65536].sum()
                if waits:
                    event.synchronize()
                    assert io.bytes_done == 65536
                else:
                    assert io.bytes_done in (0, 65536)
            torch.cuda.synchronize()
            buf.deregister()
    found = session.sanitizer.findings
    assert [finding.id for finding in found] == ([] if waits else ["result.early-read"]), session.sanitizer.format()
    if not waits:
        assert found[0].count == 4
        assert {Path(site.filename).name for site in found[0].sites} == {"test_faces.py"}
        assert "does not stop the host" in found[0].missing
