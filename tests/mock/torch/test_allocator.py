"""Memory of tensors: what is handed out when, to whom, and what the figures say."""

from __future__ import annotations

import gc

import pytest
import torch

from hipfile_mock.faces.torch import installed
from hipfile_sim import HipSettings
from hipfile_sim.machine import Machine
from hipfile_sim.observe.observer import Observer

MIB = 1 << 20


def empty(nbytes, device="cuda"):
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


def test_segments_are_as_torch_makes_them(rig):
    def segments():
        return sorted(block.size for block in rig.machine.memory.live() if block.kind == "device")

    kept = [empty(100)]
    assert segments() == [2 * MIB]
    kept.append(empty(2 * MIB))
    assert segments() == [2 * MIB, 20 * MIB]
    kept.append(empty(19 * MIB - 1))
    assert segments() == [2 * MIB, 20 * MIB, 20 * MIB]
    kept.append(empty(11 * MIB))  # from what is left of the first 20 MiB
    assert segments() == [2 * MIB, 20 * MIB, 20 * MIB]
    kept.append(empty(21 * MIB + 1))
    assert segments() == [2 * MIB, 20 * MIB, 20 * MIB, 22 * MIB]
    assert all(tensor.data_ptr() % 512 == 0 for tensor in kept)


def test_figures_are_honest(rig):
    assert torch.cuda.memory_allocated() == 0
    tensor = empty(1000)
    assert torch.cuda.memory_allocated() == 1024
    assert torch.cuda.memory_reserved() == 2 * MIB
    free, total = torch.cuda.mem_get_info()
    assert total - free == 2 * MIB
    other = empty(3000)
    del tensor
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == 3072
    assert stats["allocated_bytes.all.peak"] == torch.cuda.max_memory_allocated() == 4096
    assert stats["requested_bytes.all.current"] == 3000
    assert stats["allocation.all.allocated"] == 2
    assert stats["allocation.all.freed"] == 1
    assert stats["segment.small_pool.current"] == stats["num_device_alloc"] == 1
    assert stats["inactive_split_bytes.all.current"] == 2 * MIB - 3072
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 3072
    del other
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0
    assert torch.cuda.mem_get_info()[0] == total
    assert torch.cuda.memory_allocated(1) == 0
    assert "Allocated memory" in torch.cuda.memory_summary()


def test_nothing_of_an_operation_stays_behind(rig):
    tensor = torch.randn(64, 64, device="cuda")
    gc.collect()
    gc.disable()
    try:
        before = torch.cuda.memory_allocated()
        repr(tensor)
        (tensor @ tensor).softmax(0)[[1, 2]].sort()
        torch.nonzero(tensor > 0)
        with pytest.raises(RuntimeError):
            tensor + torch.ones(3, device="cuda")
        tensor.to(torch.float64).cpu()
        assert torch.cuda.memory_allocated() == before
    finally:
        gc.enable()


def test_a_freed_block_is_handed_out_again_on_its_stream_at_once(rig):
    tensor = torch.zeros(1000, device="cuda")
    address = tensor.data_ptr()
    del tensor
    assert rig.pending(torch.cuda.default_stream()) == 1, "the work on it has not even run"
    assert torch.empty(1000, device="cuda").data_ptr() == address


def test_another_stream_does_not_get_it(rig):
    tensor = empty(1000)
    address = tensor.data_ptr()
    side = torch.cuda.Stream()
    del tensor
    with torch.cuda.stream(side):
        assert empty(1000).data_ptr() != address
    assert empty(1000).data_ptr() == address


def test_record_stream_keeps_it_until_the_stream_has_passed(rig):
    side = torch.cuda.Stream()
    tensor = empty(1000)
    address = tensor.data_ptr()
    with torch.cuda.stream(side):
        tensor.fill_(1)
    tensor.record_stream(side)
    del tensor
    assert torch.cuda.memory_allocated() == 0
    assert torch.cuda.memory_stats()["active_bytes.all.current"] == 1024
    other = empty(1000)
    assert other.data_ptr() != address
    side.synchronize()
    assert empty(1000).data_ptr() == address
    assert torch.cuda.memory_stats()["active_bytes.all.current"] <= 2048


def test_neighbours_are_joined(rig):
    tensors = [empty(600_000) for _ in range(3)]
    base = tensors[0].data_ptr()
    del tensors
    assert empty(MIB).data_ptr() == base
    assert torch.cuda.memory_stats()["segment.all.current"] == 1


def test_a_view_keeps_the_storage(rig):
    tensor = torch.arange(1000, device="cuda")
    part = tensor[500:]
    address = tensor.data_ptr()
    del tensor
    assert empty(8000).data_ptr() != address
    assert part[0].item() == 500


def test_out_of_memory():
    settings = HipSettings(device_memory=32 * MIB)
    with Machine(1, schedule="lazy", settings=settings) as machine, installed(machine):
        kept = empty(20 * MIB)
        with pytest.raises(torch.cuda.OutOfMemoryError, match=r"HIP out of memory. Tried to allocate 16.00 MiB"):
            empty(16 * MIB)
        assert torch.cuda.memory_stats()["num_ooms"] == 1
        del kept
        assert empty(22 * MIB).numel() == 22 * MIB, "the cache is given back first"
        assert torch.cuda.memory_stats()["num_alloc_retries"] == 2


def test_faults_reach_the_allocator(rig):
    rig.hip.interpose = lambda name, args: 2 if name == "hipMalloc" else None
    with pytest.raises(torch.OutOfMemoryError):
        empty(10)
    rig.hip.interpose = lambda name, args: 719 if name == "launch" else None
    with pytest.raises(torch.AcceleratorError, match="HIP error"):
        empty(10).fill_(1)


def test_memory_fraction(rig):
    torch.cuda.set_per_process_memory_fraction(1 / 1024)
    with pytest.raises(torch.OutOfMemoryError):
        empty(30 * MIB)
    empty(10 * MIB)


def test_raw_allocation(rig):
    pointer = torch.cuda.caching_allocator_alloc(1000)
    assert torch.cuda.memory_allocated() == 1024
    torch.cuda.caching_allocator_delete(pointer)
    assert torch.cuda.memory_allocated() == 0
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        torch.cuda.caching_allocator_delete(pointer)


class Releases(Observer):
    def __init__(self):
        self.seen = []

    def released(self, release):
        self.seen.append(release)


def test_observers_learn_when_memory_is_handed_out_and_taken_back(rig):
    observer = Releases()
    rig.machine.add_observer(observer)
    tensor = empty(1000)
    address = tensor.data_ptr()
    del tensor
    torch.empty(700, dtype=torch.uint8, device="cuda")
    expected = (("recycled", 1000), ("cached", 1000), ("recycled", 700))
    for release, (kind, length) in zip(observer.seen[:3], expected, strict=True):
        assert (release.kind, release.start, release.length) == (kind, address, length)
        assert release.lane is rig.lane(torch.cuda.default_stream())
    assert observer.seen[1].site.function == "test_observers_learn_when_memory_is_handed_out_and_taken_back"


def test_storages_die_while_an_exception_is_on_its_way(rig):
    def fail():
        keep = torch.ones(100, device="cuda") * 2  # noqa: F841
        raise KeyError("x")

    for _ in range(50):
        with pytest.raises(KeyError):
            fail()
    gc.collect()
    assert torch.cuda.memory_allocated() == 0


def test_cycles_give_their_memory_back(rig):
    holder = {"tensor": empty(5000)}
    holder["self"] = holder
    del holder
    gc.collect()
    assert torch.cuda.memory_allocated() == 0


def test_storages_may_die_anywhere(any_rig):
    """The collector runs at every few allocations, so inside the allocator and the engine, too."""
    threshold = gc.get_threshold()
    gc.set_threshold(7)
    side = torch.cuda.Stream()
    try:
        for n in range(200):
            tensor = empty(1000 + 700 * (n % 7))
            tensor.fill_(n)
            if n % 3 == 0:
                with torch.cuda.stream(side):
                    tensor.add_(1)
                tensor.record_stream(side)
            holder = [tensor]
            holder.append(holder)
            del holder, tensor
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_stats()["active_bytes.all.current"] == 0
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0
