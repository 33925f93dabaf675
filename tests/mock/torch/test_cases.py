"""Cases from practice: streams, files and tensors together, with the sanitizer watching."""

from __future__ import annotations

import os

import pytest
import torch

from hipfile_mock import fake

SIZE = 64 << 10


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "block.bin"
    path.write_bytes(b"\x01" * SIZE)
    return path


class Io:
    """A device block, a file and a side stream."""

    def __init__(self, path, tensor=None):
        import hipfile

        self.kept = []
        self.side = torch.cuda.Stream()
        self.block = torch.zeros(SIZE, dtype=torch.uint8, device="cuda") if tensor is None else tensor
        torch.cuda.synchronize()
        self.buffer = hipfile.Buffer(self.block.data_ptr(), SIZE, 0)
        self.buffer.register()
        self.handle = hipfile.FileHandle(path, os.O_RDWR)
        self.handle.open()

    def read(self):
        return self._keep(self.handle.read_async(self.buffer, SIZE, 0, 0, self.side.cuda_stream))

    def write(self):
        return self._keep(self.handle.write_async(self.buffer, SIZE, 0, 0, self.side.cuda_stream))

    def _keep(self, io):
        self.kept.append(io)  # its slots must live until the stream has passed
        return io

    def close(self):
        torch.cuda.synchronize()
        self.handle.close()
        self.buffer.deregister()


def ids(session):
    return sorted({finding.id for finding in session.sanitizer.findings if finding.severity == "error"})


SCHEDULES = ["lazy", "eager", "parallel", "roundrobin", "seeded:1", "seeded:2"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ordered", [False, True])
def test_store_of_what_a_kernel_writes(path, schedule, ordered):
    with fake(schedule=schedule, strict=False) as session:
        io = Io(path)
        io.block.fill_(9)
        if ordered:
            io.side.wait_event(torch.cuda.current_stream().record_event())
        done = io.write()
        io.close()
        assert done.bytes_done == SIZE
        found = ids(session)
    assert [name.split(".")[0] for name in found] == ([] if ordered else ["race"])
    if ordered:
        assert path.read_bytes() == b"\x09" * SIZE


def test_store_without_the_edge_saves_the_old_bytes_when_the_kernel_is_slow(path):
    with fake(schedule="parallel", strict=None) as session:
        io = Io(path)
        session.stall(torch.cuda.current_stream().cuda_stream)
        io.block.fill_(9)
        io.write()
        io.side.synchronize()
        assert path.read_bytes() == bytes(SIZE)
        io.close()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ordered", [False, True])
def test_load_over_what_a_kernel_reads(path, schedule, ordered):
    with fake(schedule=schedule, strict=False) as session:
        io = Io(path)
        total = io.block.sum(dtype=torch.int64)
        if ordered:
            io.side.wait_stream(torch.cuda.current_stream())
        io.read()
        io.close()
        found = ids(session)
        if ordered:
            assert total.item() == 0
    assert [name.split(".")[0] for name in found] == ([] if ordered else ["race"])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_order_through_a_third_stream_is_no_race(path, schedule):
    with fake(schedule=schedule) as session:
        io = Io(path)
        third = torch.cuda.Stream()
        io.block.fill_(9)
        third.wait_event(torch.cuda.current_stream().record_event())
        io.side.wait_stream(third)
        io.write()
        io.close()
        assert ids(session) == []
    assert path.read_bytes() == b"\x09" * SIZE


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rows", [[0, 1], [2, 3]])
def test_rows_of_a_paged_cache_are_told_apart(path, schedule, rows):
    with fake(schedule=schedule, strict=False) as session:
        cache = torch.zeros(4, SIZE, dtype=torch.uint8, device="cuda")
        io = Io(path, cache[1])
        where = torch.tensor(rows, device="cuda")
        cache[where] = 5
        io.read()
        io.close()
        found = ids(session)
        assert cache[3, 0].item() == (5 if 3 in rows else 0)
    assert bool(found) == (1 in rows)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_download_read_too_early(schedule):
    with fake(schedule=schedule, strict=False) as session:
        source = torch.full((16,), 3.0, device="cuda")
        target = torch.full((16,), -1.0).pin_memory()
        target.copy_(source, non_blocking=True)
        target.sum()
        torch.cuda.synchronize()
        assert target.sum().item() == 48
        found = ids(session)
    assert [name.split(".")[0] for name in found] == ["race"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_download_read_after_the_wait(schedule):
    with fake(schedule=schedule) as session:
        source = torch.full((16,), 3.0, device="cuda")
        target = torch.full((16,), -1.0).pin_memory()
        target.copy_(source, non_blocking=True)
        torch.cuda.current_stream().record_event().synchronize()
        assert target.sum().item() == 48
        assert ids(session) == []


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("guard", ["none", "record_stream", "wait_stream", "synchronize"])
def test_block_freed_on_its_home_stream_and_handed_out_again(path, schedule, guard):
    """The events are right, but the allocator looks at the home stream alone."""
    with fake(schedule=schedule, strict=False) as session:
        home = torch.cuda.current_stream()
        side = torch.cuda.Stream()
        block = torch.full((SIZE,), 7, dtype=torch.uint8, device="cuda")
        address = block.data_ptr()
        side.wait_stream(home)
        with torch.cuda.stream(side):
            result = block.sum(dtype=torch.int64)
        if guard == "record_stream":
            block.record_stream(side)
        del block
        if guard == "wait_stream":
            home.wait_stream(side)
        elif guard == "synchronize":
            side.synchronize()
        again = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
        if guard in ("none", "wait_stream", "synchronize"):
            assert again.data_ptr() == address
        torch.cuda.synchronize()
        total = result.item()
        found = ids(session)
    if guard == "none":
        assert found == ["memory.reused-in-flight"]
    else:
        assert found == []
        assert total == 7 * SIZE


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_torch_double_leaves_nothing_over(schedule):
    with fake(schedule=schedule) as session:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            kept = torch.ones(100, device="cuda").to("cpu", non_blocking=True)
            event = stream.record_event()
        event.synchronize()
        assert kept.sum().item() == 100
        torch.ones(3).pin_memory()
        session.sanitizer.finish()
        assert [finding.id for finding in session.sanitizer.findings] == []


def test_two_devices_load_side_by_side(tmp_path):
    import hipfile_mock

    with hipfile_mock.fake(devices=2) as session:
        import hipfile

        files, waits = [], []
        for device in range(2):
            path = tmp_path / f"{device}.bin"
            path.write_bytes(bytes([10 + device]) * SIZE)
            with torch.cuda.device(device):
                stream = torch.cuda.Stream()
                block = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
                handle = hipfile.FileHandle(path, os.O_RDONLY)
                handle.open()
                buffer = hipfile.Buffer(block.data_ptr(), SIZE, 0)
                buffer.register()
                io = handle.read_async(buffer, SIZE, 0, 0, stream.cuda_stream)
                files.append((handle, buffer, block))
                waits.append((stream, io))
        for (stream, io), (handle, buffer, block) in zip(waits, files, strict=True):
            stream.synchronize()
            assert io.bytes_done == SIZE
            assert block.float().mean().item() == 10 + block.device.index
            handle.close()
            buffer.deregister()
        assert ids(session) == []
