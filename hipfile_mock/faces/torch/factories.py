"""What torch's own functions cannot do in a CPU build even with a device behind them.

Two things: ``pin_memory=True``, which asks for an allocator that is compiled in or not, and a device given as a bare
number, which asks for an accelerator that is compiled in or not. The functions that take either are wrapped, and hand
everything else through.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from hipfile_mock.faces.torch.hosttensor import PinnedTensor
from hipfile_mock.faces.torch.kernels import stack
from hipfile_mock.faces.torch.patches import Patches

__all__ = ["install_factories", "pin"]

_FACTORIES = (
    "arange",
    "as_tensor",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "eye",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "scalar_tensor",
    "tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
    "zeros_like",
)
_METHODS = (
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_tensor",
    "new_zeros",
)


def pin(tensor: torch.Tensor, *, copy: bool) -> torch.Tensor:
    """A pinned tensor of the same shape, with the same values if `copy`.

    Raises
    ------
    RuntimeError
        The tensor is not dense, or not on the host.
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")
    pinned = stack[-1].host.new_tensor(list(tensor.shape), list(tensor.stride()), tensor.dtype)
    if copy:
        pinned.copy_(tensor)
    return pinned.as_subclass(PinnedTensor)


def _device(value: Any) -> Any:
    """A bare number names a GPU, and ``"cuda"`` the current one."""
    if type(value) is int:
        return torch.device("cuda", value)
    if value == "cuda" or (type(value) is torch.device and value.type == "cuda" and value.index is None):
        torch.cuda._lazy_init()
        return torch.device("cuda", stack[-1].device)
    return value


def _factory(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    copies = not name.startswith(("empty", "new_empty"))

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return original(*args)
        if "device" in kwargs:
            kwargs["device"] = _device(kwargs["device"])
        if not kwargs.get("pin_memory"):
            return original(*args, **kwargs)
        del kwargs["pin_memory"]
        grad = kwargs.pop("requires_grad", False)
        result = original(*args, **kwargs)
        if result.device.type != "cpu":
            raise RuntimeError("Only dense CPU tensors can be pinned")
        return pin(result, copy=copies).requires_grad_(grad)

    return make


def _to(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            args = (_device(args[0]), *args[1:])
        if kwargs.get("device") is not None:
            kwargs["device"] = _device(kwargs["device"])
        return original(self, *args, **kwargs)

    return to


def _cuda(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def cuda(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        return original(self, _device("cuda" if device is None else device), non_blocking, **kwargs)

    return cuda


def _parse_to(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def parse(*args: Any, **kwargs: Any) -> Any:
        if args:
            args = (_device(args[0]), *args[1:])
        if "device" in kwargs:
            kwargs["device"] = _device(kwargs["device"])
        return original(*args, **kwargs)

    return parse


def _storage_to(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def to(self: Any, device: Any, non_blocking: bool = False) -> Any:
        if device.type != "cuda" or self.device == device:
            return original(self, device, non_blocking)
        return _bytes(self).to(device, non_blocking=non_blocking).untyped_storage()

    return to


def _storage_clone(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def clone(self: Any) -> Any:
        return _bytes(self).clone().untyped_storage() if self.device.type == "cuda" else original(self)

    return clone


def _bytes(storage: Any) -> torch.Tensor:
    return torch.tensor([], dtype=torch.uint8, device=storage.device).set_(storage)


def _record_stream(self: Any, stream: Any) -> None:
    """See `torch.Tensor.record_stream`."""
    session = stack[-1]
    piece = session.piece_of(self) if self.is_cuda else None
    if piece is not None:
        session.allocators[self.device.index].record(piece, session.stream(stream.stream_id, stream.device_index))


def install_factories(patches: Patches) -> None:
    """Wrap the functions."""
    torch.utils._device._device_constructors()  # holds the functions themselves: it must see them unwrapped
    for name in _FACTORIES:
        patches.set(torch, name, _factory(name, getattr(torch, name)))
    tensor = torch.Tensor
    for name in _METHODS:
        patches.set(tensor, name, _factory(name, getattr(tensor, name)))
    patches.set(tensor, "to", _to(tensor.to))
    patches.set(tensor, "cuda", _cuda(tensor.cuda))
    patches.set(tensor, "record_stream", _record_stream)
    patches.set(torch.storage, "_to", _storage_to(torch.storage._to))
    base = torch.storage._StorageBase
    patches.set(base, "clone", _storage_clone(base.clone))
    patches.set(torch._C._nn, "_parse_to", _parse_to(torch._C._nn._parse_to))
