"""Pinned tensors, whose uses by the host are seen.

A copy with ``non_blocking=True`` returns before it is done, and the mistake that follows is to look at the pinned
tensor too early. So each operation that reads or writes a pinned tensor on the host is told to the machine: the
schedule gets a turn, and the observers learn which bytes the host touched. Apart from its type a `PinnedTensor` is the
tensor that it would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hipfile_mock.faces.torch.footprint import tensor_spans
from hipfile_mock.faces.torch.kernels import stack

__all__ = ["PinnedTensor", "plain"]

_FEW = 16

_NO_ACCESS = frozenset(
    {
        "__contains__",
        "__cuda_array_interface__",
        "__deepcopy__",
        "__dir__",
        "__dlpack__",
        "__dlpack_device__",
        "__get__",
        "__hash__",
        "__len__",
        "__reduce_ex__",
        "__set__",
        "_is_view",
        "alias",
        "as_strided",
        "as_subclass",
        "chunk",
        "data_ptr",
        "detach",
        "diagonal",
        "dim",
        "element_size",
        "expand",
        "expand_as",
        "flatten",
        "get_device",
        "is_complex",
        "is_contiguous",
        "is_floating_point",
        "is_pinned",
        "is_same_size",
        "is_set_to",
        "is_shared",
        "is_signed",
        "is_storage",
        "movedim",
        "narrow",
        "ndimension",
        "nelement",
        "numel",
        "numpy",
        "permute",
        "pin_memory",
        "record_stream",
        "register_hook",
        "requires_grad_",
        "reshape",
        "retain_grad",
        "select",
        "size",
        "split",
        "split_with_sizes",
        "squeeze",
        "storage",
        "storage_offset",
        "stride",
        "swapaxes",
        "t",
        "tensor_split",
        "transpose",
        "type",
        "unbind",
        "unflatten",
        "unfold",
        "unsqueeze",
        "untyped_storage",
        "view",
        "view_as",
    }
)
"""Functions that look at metadata or make views. (``numpy`` makes a view, too; what numpy does with it is not seen.)"""

_MAKES = ("empty", "full_like", "new_", "ones_like", "rand", "zeros_like")


class PinnedTensor(torch.Tensor):
    """A CPU tensor in emulated pinned memory."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Tell the machine of the access, do what was asked, and keep track of views."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        with torch._C.DisableTorchFunctionSubclass():
            if stack and name not in _NO_ACCESS and not name.startswith(_MAKES):
                _tell(name, args, kwargs)
            result = func(*args, **kwargs)
            if name == "__get__" and not isinstance(result, torch.Tensor):
                return result
            return _track(result, args)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        with torch._C.DisableTorchFunctionSubclass():
            if stack:
                _tell("__repr__", (self,), {})
        text: str = torch.Tensor.__repr__(plain(self), tensor_contents=tensor_contents)
        return text

    def __reduce_ex__(self, protocol: Any) -> Any:
        return plain(self).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        return plain(self).clone()


def plain(tensor: Any) -> Any:
    """The same tensor without the watch."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def _track(result: Any, args: tuple[Any, ...]) -> Any:
    """Views of pinned memory are watched; everything else is an ordinary tensor."""
    if isinstance(result, torch.Tensor):
        if any(result is arg for arg in args):
            return result
        pinned = bool(stack) and not result.is_cuda and result.layout == torch.strided and stack[-1].host.owns(result)
        if pinned:
            return result if type(result) is PinnedTensor else result.as_subclass(PinnedTensor)
        return result.as_subclass(torch.Tensor) if type(result) is PinnedTensor else result
    if type(result) in (tuple, list):
        return type(result)(_track(item, args) for item in result)
    return result


def _tell(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    tensors = [item for value in (*args, *kwargs.values()) for item in _flat(value)]
    if name in ("copy_", "__setitem__") and any(tensor.is_cuda for tensor in tensors):
        return  # the device does it
    if name in ("to", "cuda") and _goes_to_gpu(name, args, kwargs):
        return
    first = args[0] if args else None
    pinned = {id(tensor): tensor for tensor in tensors if type(tensor) is PinnedTensor}
    written = {id(tensor) for tensor in _flat(kwargs.get("out"))}
    if isinstance(first, torch.Tensor) and _writes(name):
        written.add(id(first))
    if name in ("__getitem__", "__setitem__") and first is not None and id(first) in pinned and _basic(args[1]):
        if name == "__getitem__":
            return
        pinned[id(first)] = first[args[1]]
    machine = stack[-1].machine
    for key, tensor in pinned.items():
        found = tensor_spans(tensor)
        if len(found) > _FEW:
            start, end = found[0][0], found[-1][0] + found[-1][1]
            found = [(start, end - start)]
        for start, length in found:
            machine.host_access(start, length, write=key in written, what=f"torch {name} on a pinned tensor")


def _writes(name: str) -> bool:
    """Whether a function of this name changes its first argument."""
    if name.endswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__index__", "__int__", "__invert__"))
    return name.endswith("_")


def _flat(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in _flat(part)]
    return []


def _basic(index: Any) -> bool:
    """Whether indexing with it makes a view."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or part is Ellipsis or type(part) in (int, slice) for part in parts)


def _goes_to_gpu(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if name == "cuda":
        return True
    for value in (*args[1:], kwargs.get("device"), kwargs.get("other")):
        if isinstance(value, torch.Tensor) and value.is_cuda:
            return True
        if isinstance(value, int) and not isinstance(value, bool):
            return True
        if isinstance(value, (str, torch.device)) and torch.device(value).type == "cuda":
            return True
    return False
