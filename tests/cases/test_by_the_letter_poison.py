"""Case C25, poison in a file, as a user of the doubles writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .letter import KIB, device, quiet, reported, slab, watched

SIZE = 4096
NEW = b"\x77" * SIZE


def test_c25_the_poison_of_freed_memory_in_a_file(tmp_path: Path) -> None:
    with watched() as session:
        import hipfile

        memory = device(session, SIZE)
        session.hip.hipFree(memory)  # freed
        again = session.hip.hipMalloc(SIZE)[1]
        stream = session.hip.hipStreamCreate()[1]
        path = slab(tmp_path)
        with hipfile.FileHandle(path, os.O_RDWR) as file, hipfile.Buffer(again, SIZE, 0) as buffer:
            io = file.write_async(buffer, SIZE, 0, 0, stream)  # stored
            session.hip.hipStreamSynchronize(stream)
            assert io.bytes_done == SIZE
        assert path.read_bytes()[:SIZE] == b"\xdb" * SIZE
    reported(session, "memory.poison-to-file", "again =", "# stored")


@pytest.mark.torch
@pytest.mark.parametrize("way", ["write", "write_async"])
@pytest.mark.parametrize("kind", ["whole", "half", "slice", "reused"])
def test_c25_tensors_that_nobody_wrote(tmp_path: Path, way: str, kind: str) -> None:
    with watched() as session:
        import hipfile
        import torch

        block = torch.empty(64 * KIB, dtype=torch.uint8, device="cuda")  # empty
        pointer = block.data_ptr()
        if kind in ("half", "slice"):
            block[: 32 * KIB] = 1
        elif kind == "reused":
            block.fill_(1)
            torch.cuda.synchronize()
            del block
            block = torch.empty(64 * KIB, dtype=torch.uint8, device="cuda")  # empty
            assert block.data_ptr() == pointer
        torch.cuda.synchronize()
        stream = torch.cuda.Stream().cuda_stream
        with (
            hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file,
            hipfile.Buffer(pointer, 64 * KIB, 0) as buffer,
        ):

            def store(start: int, size: int) -> None:
                more = (stream,) if way == "write_async" else ()
                done = getattr(file, way)(buffer, size, start, start, *more)  # stored
                session.hip.hipStreamSynchronize(stream)
                assert (done.bytes_done if more else done) == size

            if kind in ("half", "slice"):
                store(0, 32 * KIB)
                quiet(session)
            store(40 * KIB if kind == "slice" else 0, 8 * KIB if kind == "slice" else 64 * KIB)
    reported(session, "memory.poison-to-file", "# empty", "# stored")


@pytest.mark.torch
def test_c25_what_a_kernel_wrote_is_no_alarm(tmp_path: Path) -> None:
    """Also by code that declares nothing: the bytes are other ones."""
    with watched() as session:
        import hipfile
        import torch

        block = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
        pointer = block.data_ptr()

        def run() -> None:
            session.memory.view(pointer, SIZE)[:] = NEW

        session.hip.launch(0, run)
        torch.cuda.synchronize()
        with hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file, hipfile.Buffer(pointer, SIZE, 0) as buffer:
            assert file.write(buffer, SIZE, 0, 0) == SIZE
    quiet(session)


@pytest.mark.torch
@pytest.mark.parametrize("schedule", ["parallel", "lazy", "eager"])
@pytest.mark.parametrize("kind", ["deleted", "reused", "emptied"])
def test_c25_a_tensor_that_is_gone_without_a_synchronisation(tmp_path: Path, kind: str, schedule: str) -> None:
    """The kernel of the last owner may run after the block has gone back to the cache."""
    with watched(schedule=schedule) as session:
        import hipfile
        import torch

        block = torch.ones(SIZE, dtype=torch.uint8, device="cuda")
        pointer = block.data_ptr()
        with hipfile.Buffer(pointer, SIZE, 0) as buffer, hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file:
            del block  # gone
            if kind == "reused":
                block = torch.empty(SIZE, dtype=torch.uint8, device="cuda")  # gone
                assert block.data_ptr() == pointer
            elif kind == "emptied":
                torch.cuda.empty_cache()  # gone
            file.write_async(buffer, SIZE, 0, 0, 0)  # stored
            torch.cuda.synchronize()
    assert [finding.id for finding in session.sanitizer.errors if finding.id.startswith("memory.")] == [
        "memory.poison-to-file"
    ]


@pytest.mark.torch
@pytest.mark.parametrize("schedule", ["parallel", "lazy", "eager"])
def test_c25_a_tensor_that_is_deleted_behind_its_store_is_no_alarm(tmp_path: Path, schedule: str) -> None:
    """The stream keeps the order of the store and the next owner."""
    with watched(schedule=schedule) as session:
        import hipfile
        import torch

        with hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file:
            kept = []
            for value in range(3):
                block = torch.full((SIZE,), value, dtype=torch.uint8, device="cuda")
                kept.append(file.write_async(hipfile.Buffer(block.data_ptr(), SIZE, 0), SIZE, value * SIZE, 0, 0))
                del block
            torch.cuda.synchronize()
            assert [io.bytes_done for io in kept] == [SIZE] * 3
    quiet(session)
