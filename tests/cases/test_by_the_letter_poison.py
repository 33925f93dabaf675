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
