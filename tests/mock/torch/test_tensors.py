"""Tensors on emulated devices: what they are, and that operations give what the CPU gives."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F


def test_is_a_plain_tensor_on_the_device(rig):
    tensor = torch.empty(4, 3, device="cuda:1")
    assert type(tensor) is torch.Tensor
    assert tensor.is_cuda
    assert tensor.device == torch.device("cuda", 1)
    assert tensor.get_device() == 1
    block = rig.machine.memory.find(tensor.data_ptr())
    assert (block.kind, block.device) == ("device", 1)
    assert tensor.untyped_storage().device == tensor.device
    assert tensor.untyped_storage().nbytes() == 48


def test_views_share_memory(rig):
    tensor = torch.zeros(4, 4, device="cuda")
    row = tensor[1]
    assert row.data_ptr() == tensor.data_ptr() + 16
    assert row._is_view()
    row.fill_(5)
    tensor.t()[0, 2] = 7.0
    assert tensor.tolist() == [[0, 0, 0, 0], [5, 5, 5, 5], [7, 0, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda"), torch.device("cuda:1"), 0, 1])
def test_devices_by_every_name(rig, device):
    index = device if isinstance(device, int) else torch.device(device).index or 0
    expected = torch.device("cuda", index)
    assert torch.zeros(2, device=device).device == expected
    assert torch.tensor([1, 2], device=device).tolist() == [1, 2]
    assert torch.ones(2).to(device).device == expected
    assert torch.ones(2).to(device=device).device == expected
    assert torch.ones(2).cuda(device).device == expected
    assert torch.nn.Linear(2, 2).to(device).weight.device == expected
    assert torch.zeros(2).new_ones(3, device=device).device == expected


def test_default_device_contexts(rig):
    with torch.device("cuda:1"):
        assert torch.zeros(2).device.index == 1
        assert torch.arange(3).tolist() == [0, 1, 2]
    with torch.cuda.device(1):
        assert torch.zeros(2, device="cuda").device.index == 1
        assert torch.ones(2).cuda().device.index == 1
    torch.set_default_device("cuda")
    try:
        assert torch.rand(2).device == torch.device("cuda:0")
    finally:
        torch.set_default_device(None)
    assert torch.zeros(2).device.type == "cpu"


def test_no_such_device(rig):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.zeros(1, device="cuda:7")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.set_device(2)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.float8_e4m3fn,
    ],
    ids=str,
)
def test_dtypes_round_trip(rig, dtype):
    source = torch.randint(0, 2, (3, 5)).to(dtype)
    there = source.to("cuda")
    assert there.dtype == dtype
    back = there.cpu()
    assert bytes(back.untyped_storage()) == bytes(source.untyped_storage())


OPERATIONS = {
    "add scalar": lambda x, y: x + 1.5,
    "add": lambda x, y: x + y,
    "radd": lambda x, y: 2 - x,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / (y + 10),
    "in place": lambda x, y: x.clone().add_(y, alpha=2).mul_(3).clamp_(max=1),
    "compare": lambda x, y: (x > y) & (x != 0),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "matmul": lambda x, y: x @ y.t(),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "sum": lambda x, y: x.sum(),
    "mean": lambda x, y: x.mean(1, keepdim=True),
    "max": lambda x, y: x.max(0),
    "argmax": lambda x, y: x.argmax(),
    "sort": lambda x, y: torch.sort(x, descending=True),
    "topk": lambda x, y: torch.topk(x, 2),
    "cumsum": lambda x, y: x.cumsum(0),
    "softmax": lambda x, y: F.softmax(x, -1),
    "layer norm": lambda x, y: F.layer_norm(x, (6,)),
    "gelu": lambda x, y: F.gelu(x),
    "attention": lambda x, y: F.scaled_dot_product_attention(x[None, None], y[None, None], x[None, None]),
    "cat": lambda x, y: torch.cat([x, y, x], 1),
    "stack": lambda x, y: torch.stack([x, y]),
    "chunk": lambda x, y: torch.chunk(x, 2)[1] * 2,
    "index int": lambda x, y: x[1, 2],
    "index slice": lambda x, y: x[1:3, ::2],
    "index list": lambda x, y: x[[0, 3]],
    "index tensor": lambda x, y: x[torch.tensor([1, 1, -1], device=x.device)],
    "index two": lambda x, y: x[torch.tensor([1, 2], device=x.device), torch.tensor([0, 5], device=x.device)],
    "index mask": lambda x, y: x[x > 0],
    "masked fill": lambda x, y: x.masked_fill(x > 0, 9.0),
    "nonzero": lambda x, y: torch.nonzero(x > 0),
    "gather": lambda x, y: x.gather(1, torch.zeros(4, 1, dtype=torch.int64, device=x.device)),
    "index select": lambda x, y: x.index_select(1, torch.tensor([5, 0], device=x.device)),
    "embedding": lambda x, y: F.embedding(torch.tensor([[0, 1]], device=x.device), x),
    "permute": lambda x, y: x.reshape(2, 2, 6).permute(2, 0, 1).contiguous(),
    "expand": lambda x, y: x[:1].expand(3, 6) + 1,
    "cast": lambda x, y: x.to(torch.int32),
    "view dtype": lambda x, y: x.view(torch.int32),
    "unique": lambda x, y: torch.unique(torch.tensor([3, 1, 3], device=x.device)),
    "norm": lambda x, y: torch.linalg.norm(x),
    "fft": lambda x, y: torch.fft.fft(x[0]).conj() * 2,
    "conv": lambda x, y: F.conv2d(x[None, None], y[None, None, :2, :2]),
    "linspace": lambda x, y: torch.linspace(0, 1, 5, device=x.device),
    "full": lambda x, y: torch.full((2, 2), 7, device=x.device),
    "eye": lambda x, y: torch.eye(3, device=x.device),
    "triu": lambda x, y: torch.triu(x),
    "out": lambda x, y: torch.add(x, y, out=torch.empty(0, device=x.device)),
    "empty": lambda x, y: torch.empty(0, 3, device=x.device).sum(0),
    "half": lambda x, y: (x.half() * 2 + y.half()).float(),
    "integers": lambda x, y: (x * 10).int() // 3 + True,
    "integers and float": lambda x, y: (x * 10).int() * 0.5,
    "float64": lambda x, y: x.double() * 0.1,
    "zero-dim": lambda x, y: x[0, 0] * 0.1 + 1,
    "foreach": lambda x, y: torch._foreach_add([x, y], 1.0),
    "vmap": lambda x, y: torch.vmap(torch.dot)(x, y),
    "repeat interleave": lambda x, y: torch.repeat_interleave(x, torch.tensor([1, 0, 2, 1], device=x.device), 0),
    "scatter": lambda x, y: x.scatter(0, torch.zeros(1, 6, dtype=torch.int64, device=x.device), y),
    "cross entropy": lambda x, y: F.cross_entropy(x, torch.tensor([0, 5, 2, 1], device=x.device)),
    "svd": lambda x, y: torch.linalg.svdvals(x),
    "solve": lambda x, y: torch.linalg.solve(torch.eye(4, device=x.device) * 2, x),
    "many outs": lambda x, y: torch.max(
        x, 0, out=(torch.empty(0, device=x.device), torch.empty(0, dtype=torch.int64, device=x.device))
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_give_what_the_cpu_gives(rig, name):
    torch.manual_seed(5)
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    operation = OPERATIONS[name]
    expected = operation(x, y)
    found = operation(x.cuda(), y.cuda())
    _same(found, expected)


def _same(found, expected):
    if isinstance(expected, torch.Tensor):
        assert found.is_cuda
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        torch.testing.assert_close(found.cpu(), expected)
    else:
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _same(one, other)


@pytest.mark.parametrize("memory_format", [torch.preserve_format, torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "change",
    {
        "contiguous": lambda tensor: tensor,
        "permuted": lambda tensor: tensor.permute(0, 2, 3, 1),
        "expanded": lambda tensor: tensor[:1].expand(2, 3, 4, 5),
        "sliced": lambda tensor: tensor[:, :, ::2],
        "empty": lambda tensor: tensor[:0],
        "channels_last": lambda tensor: tensor.to(memory_format=torch.channels_last),
    }.items(),
    ids=lambda item: item[0],
)
def test_copies_have_the_strides_of_a_copy_on_the_cpu(rig, change, memory_format):
    host = change[1](torch.arange(120.0).reshape(2, 3, 4, 5))
    wanted = host.to(torch.float64, memory_format=memory_format)
    there = host.to("cuda", torch.float64, memory_format=memory_format)
    assert there.stride() == wanted.stride()
    assert torch.equal(there.cpu(), wanted)
    assert host.to("cuda").cpu().stride() == host.to(torch.float64).stride()


def test_setting_items(rig):
    for device in ("cpu", "cuda"):
        x = torch.zeros(4, 3, device=device)
        x[0] = 1
        x[torch.tensor([1, 3], device=device)] = torch.tensor([5.0, 6.0, 7.0], device=device)
        x[:, 1][x[:, 1] > 5] = -1
        x[2] += 4
        x.index_copy_(0, torch.tensor([0], device=device), torch.ones(1, 3, device=device) * 8)
        x.index_add_(1, torch.tensor([0], device=device), torch.ones(4, 1, device=device))
        x.index_fill_(1, torch.tensor([2], device=device), 3)
        x.index_put_((torch.tensor([0], device=device),), torch.tensor(1.0, device=device), accumulate=True)
        if device == "cpu":
            expected = x
    assert x.cpu().equal(expected)


def test_values_for_the_host(rig):
    tensor = torch.tensor([[1, 2], [3, 4]], device="cuda")
    assert tensor[1, 0].item() == 3
    assert tensor.tolist() == [[1, 2], [3, 4]]
    assert bool((tensor > 0).all())
    assert int(tensor.sum()) == 10
    assert torch.equal(tensor, tensor.clone())
    assert not torch.equal(tensor, tensor + 1)
    assert repr(tensor) == "tensor([[1, 2],\n        [3, 4]], device='cuda:0')"
    assert f"{tensor[0, 0]}" == "1"


def test_numpy_is_refused_as_torch_refuses_it(rig):
    with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy. Use Tensor\.cpu\(\)"):
        torch.ones(2, device="cuda").numpy()


def test_errors_appear_at_the_call(rig):
    x = torch.ones(2, 3, device="cuda")
    with pytest.raises(RuntimeError, match="must match the size"):
        x + torch.ones(4, device="cuda")
    with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cuda:1"):
        x + torch.ones(2, 3, device="cuda:1")
    with pytest.raises(RuntimeError, match="got tensors is on cpu, different from other tensors on cuda:0"):
        torch.cat([x, torch.ones(2, 3)])
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        x.normal_(generator=torch.Generator())
    assert (x + torch.tensor(2.0)).sum().item() == 18  # a number on the host goes with the launch


def test_random_numbers_follow_the_seed_not_the_schedule(any_rig):
    def draw():
        return [torch.rand(3, device="cuda"), torch.randn(2, device="cuda"), torch.randperm(5, device="cuda")]

    torch.cuda.manual_seed(11)
    first = draw()
    torch.manual_seed(11)
    before = torch.get_rng_state()
    second = draw()
    assert torch.get_rng_state().equal(before), "device random numbers are not the host's"
    assert all(a.cpu().equal(b.cpu()) for a, b in zip(first, second, strict=True))
    assert not draw()[0].cpu().equal(first[0].cpu())


def test_gradients_can_be_off_and_forward_keeps_them(rig):
    layer = torch.nn.Linear(3, 2).cuda()
    with torch.no_grad():
        assert not layer(torch.ones(1, 3, device="cuda")).requires_grad
    with torch.inference_mode():
        layer(torch.ones(1, 3, device="cuda")).add_(1)
    assert layer(torch.ones(1, 3, device="cuda")).grad_fn is not None


def test_resizing_keeps_the_old_values(rig):
    tensor = torch.arange(4, device="cuda")
    tensor.resize_(6)
    assert tensor[:4].tolist() == [0, 1, 2, 3]
    tensor.resize_(2)
    assert tensor.tolist() == [0, 1]


def test_copies_of_objects(rig, tmp_path):
    tensor = torch.arange(3, device="cuda:1")
    other = copy.deepcopy(tensor)
    assert other.data_ptr() != tensor.data_ptr()
    assert other.tolist() == [0, 1, 2]
    torch.save({"t": tensor}, tmp_path / "t.pt")
    assert torch.load(tmp_path / "t.pt")["t"].device.index == 1
    assert torch.load(tmp_path / "t.pt", map_location="cuda:0")["t"].tolist() == [0, 1, 2]
    assert torch.load(tmp_path / "t.pt", map_location="cpu")["t"].device.type == "cpu"
    assert pickle.loads(pickle.dumps(tensor)).tolist() == [0, 1, 2]


def test_dlpack_tells_the_device(rig):
    tensor = torch.arange(3, device="cuda:1")
    with pytest.raises(BufferError, match="different CUDA device index"):
        torch.from_dlpack(tensor)
    with torch.cuda.device(1):
        again = torch.from_dlpack(tensor)
    assert again.data_ptr() == tensor.data_ptr()
    assert again.device.index == 1


def test_an_operation_that_no_cpu_has_is_refused_by_name(rig):
    query = torch.ones(1, 1, 8, 64, device="cuda")
    with pytest.raises(NotImplementedError, match="aten::_scaled_dot_product_cudnn_attention has no CPU kernel"):
        torch.ops.aten._scaled_dot_product_cudnn_attention.default(query, query, query, None, False)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: torch.nn.LSTM(4, 5), (3, 2, 4)),
        (lambda: torch.nn.GRU(4, 5), (3, 2, 4)),
        (lambda: torch.nn.Conv2d(4, 4, 3, groups=4), (1, 4, 8, 8)),
        (lambda: torch.nn.Conv1d(4, 4, 3, groups=4, padding=2), (2, 4, 8)),
        (lambda: torch.nn.BatchNorm1d(4), (8, 4)),
        (lambda: torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), (2, 5, 16)),
        (lambda: torch.nn.MultiheadAttention(8, 2, batch_first=True).eval(), (1, 3, 8)),
    ],
)
@torch.no_grad()
@pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")
def test_modules_give_what_the_cpu_gives(rig, make, shape):
    torch.manual_seed(2)
    module = make()
    x = torch.randn(shape)
    inputs = (x, x, x) if isinstance(module, torch.nn.MultiheadAttention) else (x,)
    expected = module(*inputs)
    found = copy.deepcopy(module).cuda()(*(part.cuda() for part in inputs))
    for one, other in zip(_leaves(found), _leaves(expected), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)


def _leaves(value):
    return [value] if isinstance(value, torch.Tensor) else [leaf for part in value for leaf in _leaves(part)]


def test_batches_of_a_loader_are_pinned(rig):
    data = torch.utils.data.TensorDataset(torch.arange(20.0).reshape(10, 2))
    batches = [batch for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)]
    assert [batch.is_pinned() for batch in batches] == [True, True, True]
    assert [batch.to("cuda", non_blocking=True).sum().item() for batch in batches] == [28, 92, 70]


def test_ranges_for_profilers_do_nothing(rig):
    with torch.cuda.nvtx.range("step"):
        torch.cuda.nvtx.mark("here")
