"""Every order of a program with tensors."""

from __future__ import annotations

from contextlib import contextmanager

import torch

from hipfile_mock import fake
from hipfile_mock.faces.torch import installed
from hipfile_sim.explore import explore, outcomes


def two_streams(machine, *, ordered):
    with installed(machine):
        tensor = torch.zeros(4, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            tensor.fill_(1)
        if ordered:
            torch.cuda.current_stream().wait_stream(side)
        tensor.add_(1)
        torch.cuda.synchronize()
        return tensor[0].item()


def test_outcomes_of_a_race_between_streams():
    assert outcomes(lambda machine: two_streams(machine, ordered=False), devices=1) == {1, 2}
    assert outcomes(lambda machine: two_streams(machine, ordered=True), devices=1) == {2}


def test_rows_that_do_not_meet_need_one_order():
    def body(machine):
        with installed(machine):
            table = torch.zeros(4, 4, device="cuda")
            torch.cuda.synchronize()
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                table[2:].fill_(1)
            table[:2].fill_(2)
            torch.cuda.synchronize()
            assert table.sum().item() == 24

    result = explore(body, devices=1)
    assert result.ok
    assert result.complete
    assert result.runs == 1


def test_the_usage_of_the_bindings_fails_in_some_order(tmp_path):
    path = tmp_path / "kv.bin"
    path.write_bytes(bytes(8192))

    @contextmanager
    def world(schedule):
        with fake(schedule=schedule, strict=None) as session:
            yield session.machine

    def body(machine, wait):
        import hipfile

        stream = torch.cuda.Stream()
        staging = torch.empty(8192, dtype=torch.uint8, device="cuda")
        buffer = hipfile.Buffer(staging.data_ptr(), 8192, 0)
        buffer.register()
        with hipfile.FileHandle(path, 0) as handle:
            io = handle.read_async(buffer, 8192, 0, 0, stream.cuda_stream)
            event = stream.record_event()
            torch.cuda.current_stream().wait_event(event)
            if wait:
                event.synchronize()
            done = io.bytes_done
            stream.synchronize()
        buffer.deregister()
        assert done == 8192

    broken = explore(lambda machine: body(machine, wait=False), world=world)
    assert isinstance(broken.failures[0].run.error, AssertionError)
    correct = explore(lambda machine: body(machine, wait=True), world=world)
    assert correct.ok
    assert correct.complete
