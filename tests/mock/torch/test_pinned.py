"""Pinned host tensors."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from hipfile_sim.observe.observer import Observer


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(4, pin_memory=True),
        lambda: torch.zeros((2, 2), pin_memory=True),
        lambda: torch.randn(4, pin_memory=True),
        lambda: torch.tensor([1.0, 2.0], pin_memory=True),
        lambda: torch.empty_like(torch.zeros(3), pin_memory=True),
        lambda: torch.ones(4).new_zeros(4, pin_memory=True),
        lambda: torch.ones(4).pin_memory(),
        lambda: torch.ones(4, device="cuda").to("cpu", non_blocking=True),
    ],
)
def test_pinned_tensors_are_in_emulated_pinned_memory(rig, make):
    tensor = make()
    assert tensor.is_pinned()
    assert isinstance(tensor, torch.Tensor)
    assert tensor.device.type == "cpu"
    assert rig.machine.memory.find(tensor.data_ptr()).kind == "pinned"
    assert tensor.pin_memory().data_ptr() == tensor.data_ptr()
    assert not torch.ones(4).is_pinned()


def test_registered_memory_is_pinned_too(rig):
    tensor = torch.zeros(4096)
    assert torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), 16384, 0) == 0
    assert tensor.is_pinned()
    assert torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr()) == 0
    assert not tensor.is_pinned()


def test_only_host_tensors_can_be_pinned(rig):
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.ones(2, device="cuda").pin_memory()
    with pytest.raises(RuntimeError, match="CPU tensors can be pinned"):
        torch.empty(2, device="cuda", pin_memory=True)


def test_a_pinned_tensor_behaves_as_the_tensor_that_it_is(rig):
    tensor = torch.arange(6.0).reshape(2, 3).pin_memory()
    assert repr(tensor) == "tensor([[0., 1., 2.],\n        [3., 4., 5.]])"
    assert type(tensor + 1) is torch.Tensor
    assert not (tensor + 1).is_pinned()
    assert tensor[1].is_pinned()
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.asarray(tensor)[1, 1] == 4
    assert tensor.T.shape == (3, 2)
    assert type(pickle.loads(pickle.dumps(tensor))) is torch.Tensor
    assert copy.deepcopy(tensor).equal(tensor)
    tensor[0] = torch.tensor([7.0, 8.0, 9.0])
    tensor.mul_(2)
    assert tensor.tolist() == [[14, 16, 18], [6, 8, 10]]
    assert torch.cat([tensor, tensor]).shape == (4, 3)
    first, second = tensor.split(1)
    assert first.is_pinned()
    assert second.data_ptr() == tensor.data_ptr() + 12


class Accesses(Observer):
    def __init__(self):
        self.seen = []

    def host_access(self, access):
        self.seen.append((access.access.start, access.access.length, access.access.write))


def test_what_the_host_does_to_a_pinned_tensor_is_told(rig):
    tensor = torch.zeros(4, 4).pin_memory()
    base = tensor.data_ptr()
    observer = Accesses()
    rig.machine.add_observer(observer)

    def told(action):
        observer.seen.clear()
        action()
        return [(start - base, length, write) for start, length, write in observer.seen]

    assert told(lambda: tensor[1, 2].item()) == [(24, 4, False)]
    assert told(lambda: tensor.tolist()) == [(0, 64, False)]
    assert told(lambda: tensor[:, 0].sum()) == [(16 * row, 4, False) for row in range(4)]
    assert told(lambda: tensor[2].fill_(1)) == [(32, 16, True)]
    assert told(lambda: tensor.__setitem__(3, 5.0)) == [(48, 16, True)]
    assert told(lambda: torch.add(torch.ones(4, 4), 1, out=tensor)) == [(0, 64, True)]
    assert told(lambda: repr(tensor)) == [(0, 64, False)]
    for quiet in (
        lambda: tensor.view(-1)[3:].shape,
        lambda: tensor.data_ptr(),
        lambda: tensor.numpy(),
        lambda: tensor.to("cuda", non_blocking=True),
        lambda: torch.empty(4, 4, device="cuda").copy_(tensor),
        lambda: tensor.copy_(torch.zeros(4, 4, device="cuda"), non_blocking=True),
        lambda: len(tensor),
        lambda: torch.empty_like(tensor),
    ):
        assert told(quiet) == []


def test_early_read_of_a_download_sees_the_old_bytes(rig):
    source = torch.full((4,), 3.0, device="cuda")
    target = torch.full((4,), -1.0).pin_memory()
    target.copy_(source, non_blocking=True)
    assert target.tolist() == [-1, -1, -1, -1]
    torch.cuda.current_stream().synchronize()
    assert target.tolist() == [3, 3, 3, 3]


def test_blocks_in_use_by_a_stream_are_not_handed_out(rig):
    device = torch.empty(1000, device="cuda")
    host = torch.ones(1000).pin_memory()
    address = host.data_ptr()
    device.copy_(host, non_blocking=True)
    del host
    other = torch.zeros(1000).pin_memory()
    assert other.data_ptr() != address
    torch.cuda.synchronize()
    assert torch.zeros(1000).pin_memory().data_ptr() == address
    stats = torch.cuda.host_memory_stats()
    assert stats["allocated_bytes.current"] == 4096
    del other
    torch.cuda.empty_cache()
    assert torch.cuda.host_memory_stats()["reserved_bytes.current"] <= 4096
