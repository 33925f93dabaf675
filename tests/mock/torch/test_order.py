"""When things happen: every operation is a command of the current stream."""

from __future__ import annotations

import threading

import pytest
import torch

from hipfile_mock.faces.torch import installed
from hipfile_sim import HipSettings
from hipfile_sim.engine.errors import EngineError
from hipfile_sim.machine import Machine
from hipfile_sim.observe.observer import Observer


def peek(rig, tensor):
    """The first byte of a tensor as it is now, without waiting for anything."""
    return rig.machine.memory.view(tensor.data_ptr(), 1)[0]


def test_nothing_happens_before_the_stream_gets_there(rig):
    tensor = torch.full((8,), 7, dtype=torch.uint8, device="cuda")
    assert peek(rig, tensor) != 7
    torch.cuda.synchronize()
    assert peek(rig, tensor) == 7


def test_operations_go_to_the_current_stream(rig):
    side = torch.cuda.Stream()
    tensor = torch.zeros(4, device="cuda")
    main = torch.cuda.current_stream()
    before = rig.lane(main).submitted
    with torch.cuda.stream(side):
        tensor + 1
        assert torch.cuda.current_stream() == side
    assert rig.lane(main).submitted == before
    assert rig.pending(side) == 1
    with side:
        tensor + 1
    assert rig.pending(side) == 2
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_item_waits_for_its_own_stream_only(rig):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        late = torch.ones(4, device="cuda")
    now = torch.ones(4, device="cuda")
    assert now.sum().item() == 4
    assert rig.pending(side) == 1
    with torch.cuda.stream(side):
        assert late.tolist() == [1, 1, 1, 1]
    assert rig.pending(side) == 0


@pytest.mark.parametrize(
    "look",
    [
        lambda t: t.item(),
        lambda t: t.cpu(),
        lambda t: t.tolist(),
        bool,
        repr,
        lambda t: torch.nonzero(t),
        lambda t: t.to("cpu"),
        lambda t: torch.equal(t, t.clone()),
        lambda t: torch.empty_like(t, device="cpu").copy_(t, non_blocking=True),  # pageable: waits all the same
    ],
)
def test_what_needs_a_value_waits(rig, look):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        tensor = torch.ones((), device="cuda")
        look(tensor)
    assert rig.lane(side).completed >= 1


def test_non_blocking_copy_from_pinned_memory_takes_the_later_bytes(rig):
    host = torch.full((4,), 1.0, pin_memory=True)
    device = torch.empty(4, device="cuda")
    device.copy_(host, non_blocking=True)
    host.fill_(2)
    assert device.tolist() == [2, 2, 2, 2]
    device.copy_(host)
    host.fill_(3)
    assert device.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("mode", ["block", "stage"])
def test_non_blocking_copy_from_pageable_memory_takes_the_old_bytes(mode):
    with Machine(1, schedule="lazy", settings=HipSettings(pageable_h2d=mode)) as machine, installed(machine):
        host = torch.full((4,), 1.0)
        device = host.to("cuda", non_blocking=True)
        lane = machine.hip.null_stream(0).lane
        assert (lane.submitted == lane.completed) == (mode == "block")
        host.fill_(2)
        assert device.tolist() == [1, 1, 1, 1]


def test_non_blocking_copy_to_the_host_is_pinned_and_late(rig):
    device = torch.full((4,), 5.0, device="cuda")
    host = device.to("cpu", non_blocking=True)
    assert host.is_pinned()
    assert host.sum().item() != 20
    torch.cuda.synchronize()
    assert host.sum().item() == 20


def test_copies_convert_and_gather(any_rig):
    source = torch.arange(12).reshape(3, 4)
    device = torch.empty(4, 3, dtype=torch.float64, device="cuda")
    device.copy_(source.t(), non_blocking=True)
    host = torch.empty(3, 4, dtype=torch.int16)
    host.copy_(device.t())
    assert host.equal(source.to(torch.int16))
    device[::2].copy_(torch.full((3,), -1))
    assert device[:, 0].tolist() == [-1, 1, -1, 3]


def test_memory_that_a_copy_still_reads_may_go(any_rig):
    device = [torch.full((1000,), n, device="cuda") for n in range(4)]
    for n in range(4):
        host = torch.full((1000,), 10 + n, pin_memory=True)
        device[n].copy_(host, non_blocking=True)
        del host  # the allocator keeps the block until the stream has passed
    assert [int(tensor[-1]) for tensor in device] == [10, 11, 12, 13]


def test_streams_race_unless_an_event_orders_them(rig):
    side = torch.cuda.Stream()
    tensor = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    rig.machine.stall(side.cuda_stream)
    with torch.cuda.stream(side):
        tensor.fill_(1)
    early = tensor.sum()
    assert early.item() == 0
    torch.cuda.current_stream().wait_stream(side)
    assert tensor.sum().item() == 4


def test_null_stream_and_pool_streams_do_not_wait_for_each_other(rig):
    side = torch.cuda.Stream()
    tensor = torch.zeros(4, device="cuda")
    with torch.cuda.stream(side):
        tensor.fill_(1)
        assert tensor.tolist() == [1, 1, 1, 1]
    assert rig.pending(torch.cuda.default_stream()) == 1, "streams of the pool are non-blocking"


def test_a_kernel_that_fails_is_fatal_and_named(rig):
    tensor = torch.zeros(4, device="cuda")
    tensor[torch.tensor([9], device="cuda")]
    with pytest.raises(EngineError, match=r"aten::index.Tensor.*out of bounds"):
        torch.cuda.synchronize()


class Seen(Observer):
    """Commands, with what they declare at submit and at the end."""

    def __init__(self):
        self.before, self.after = {}, {}

    def submitted(self, command):
        self.before[command.label] = list(command.accesses())

    def finished(self, command):
        self.after[command.label] = list(command.accesses())


@pytest.fixture
def seen(rig):
    observer = Seen()
    rig.machine.add_observer(observer)
    return observer


def ranges(accesses, base, *, write):
    found = [(access.start - base, access.length) for access in accesses if access.write == write]
    return sorted(span for span in found if 0 <= span[0] < 128)


def test_footprints_are_exact(rig, seen):
    table = torch.zeros(8, 4, device="cuda")
    base = table.data_ptr()
    table[2:4].fill_(1)
    assert ranges(seen.before["aten::fill_.Scalar"], base, write=True) == [(32, 32)]
    assert ranges(seen.before["aten::fill_.Scalar"], base, write=False) == []
    table[:, 1].add_(1)
    assert ranges(seen.before["aten::add.out"], base, write=True) == [(16 * row + 4, 4) for row in range(8)]
    assert ranges(seen.before["aten::add.out"], base, write=False) == [(16 * row + 4, 4) for row in range(8)]
    out = torch.cat([table[:1], table[7:]])
    assert ranges(seen.before["aten::cat.out"], base, write=False) == [(0, 16), (112, 16)]
    assert ranges(seen.before["aten::cat.out"], out.data_ptr(), write=True) == [(0, 32)]


def test_rows_of_an_index_are_known_when_it_has_run(rig, seen):
    table = torch.zeros(8, 4, device="cuda")
    base = table.data_ptr()
    rows = torch.tensor([5, 2, 2, -1], device="cuda")
    name = "aten::_index_put_impl_"
    table[rows] = 3.0
    assert ranges(seen.before[name], base, write=True) == [(0, 128)]
    torch.cuda.synchronize()
    assert ranges(seen.after[name], base, write=True) == [(32, 16), (80, 16), (112, 16)]
    table[rows[:2]]
    torch.cuda.synchronize()
    assert ranges(seen.after["aten::index.Tensor"], base, write=False) == [(32, 16), (80, 16)]
    table.index_select(1, torch.tensor([3], device="cuda"))
    torch.cuda.synchronize()
    assert ranges(seen.after["aten::index_select"], base, write=False) == [(16 * row + 12, 4) for row in range(8)]


def test_current_stream_belongs_to_the_thread(rig):
    side = torch.cuda.Stream()
    found = {}

    def other():
        found["stream"] = torch.cuda.current_stream()
        found["device"] = torch.cuda.current_device()
        torch.cuda.set_device(1)

    with torch.cuda.stream(side):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(60)
    assert found == {"stream": torch.cuda.default_stream(0), "device": 0}
    assert torch.cuda.current_device() == 0


def test_many_threads(any_rig):
    results = []

    def work(seed):
        stream = torch.cuda.Stream(device=seed % 2)
        with torch.cuda.stream(stream):
            tensor = torch.full((100,), seed, device=f"cuda:{seed % 2}")
            for _ in range(10):
                tensor = tensor + 1
            results.append((seed, int(tensor.sum())))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(results) == [(seed, 100 * (seed + 10)) for seed in range(6)]
