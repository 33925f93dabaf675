"""Operations that are more than a kernel over their arguments: memory, copies, values for the host."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from hipfile_mock.faces.torch.calls import META, META_DEVICE, Call, alias
from hipfile_mock.faces.torch.dlpack import CPU, contiguous
from hipfile_mock.faces.torch.footprint import tensor_spans
from hipfile_mock.faces.torch.hosttensor import PinnedTensor
from hipfile_mock.faces.torch.kernels import generic, special
from hipfile_mock.faces.torch.opinfo import info_of
from hipfile_mock.faces.torch.session import Session
from hipfile_sim.hip.codes import MemcpyKind

__all__: list[str] = []

aten = torch.ops.aten
_SET = aten.set_.source_Storage_storage_offset

# ------------------------------------------------------------------------------------------------------------- memory


@special(aten.empty.memory_format)
def _empty(
    session: Session,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    stride: Sequence[int] | None = None
    dtype = dtype or torch.get_default_dtype()
    _strided_and_not_pinned(layout, pin_memory)
    if (memory_format is not None and memory_format != torch.contiguous_format) or any(n < 0 for n in size):
        model = aten.empty.memory_format.redispatch(
            META, size, dtype=dtype, device=META_DEVICE, memory_format=memory_format
        )
        stride = model.stride()
    _first_use()
    return session.new_tensor(list(size), stride, dtype, session.index(device))


@special(aten.empty_strided.default)
def _empty_strided(
    session: Session,
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    _strided_and_not_pinned(layout, pin_memory)
    _first_use()
    return session.new_tensor(list(size), list(stride), dtype or torch.get_default_dtype(), session.index(device))


def _strided_and_not_pinned(layout: Any, pin_memory: bool | None) -> None:
    if pin_memory:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    if layout is not None and layout != torch.strided:
        raise NotImplementedError(f"layout {layout} on an emulated GPU: only strided tensors are modelled")


def _first_use() -> None:
    if not torch.cuda._initialized:
        torch.cuda._lazy_init()


@special(aten.set_.source_Storage)
def _set_storage(session: Session, self: torch.Tensor, source: torch.UntypedStorage) -> torch.Tensor:
    return _SET.redispatch(CPU, self, source, 0, [source.nbytes() // self.element_size()], [1])


@special(aten.set_.source_Storage_storage_offset)
def _set_storage_offset(session: Session, *args: Any) -> torch.Tensor:
    return _SET.redispatch(CPU, *args)


@special(aten.set_.source_Tensor)
def _set_tensor(session: Session, self: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    geometry = (source.storage_offset(), list(source.shape), list(source.stride()))
    return _SET.redispatch(CPU, self, source.untyped_storage(), *geometry)


@special(aten.is_set_to.default)
def _is_set_to(session: Session, self: torch.Tensor, tensor: torch.Tensor) -> bool:
    return bool(aten.is_set_to.default.redispatch(CPU, self, tensor))


@special(aten.set_.default)
def _set_nothing(session: Session, self: torch.Tensor) -> torch.Tensor:
    nothing = session.new_tensor([0], None, self.dtype, int(self.device.index))
    return _set_storage(session, self, nothing.untyped_storage())


@special(aten.resize_.default)
def _resize(
    session: Session, self: torch.Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    """The storage grows by being replaced; what was in it is copied, as torch does."""
    size = list(size)
    if memory_format not in (None, torch.contiguous_format):
        raise NotImplementedError("resize_ with a memory format on an emulated GPU: resize, then copy")
    stride = contiguous(size)
    need = (self.storage_offset() + (0 if 0 in size else _product(size))) * self.element_size()
    storage = self.untyped_storage()
    if need > storage.nbytes():
        index = int(self.device.index)
        grown = session.new_tensor([need], None, torch.uint8, index)
        if storage.nbytes():
            addresses = (grown.data_ptr(), storage.data_ptr(), storage.nbytes())
            with session.on(index):
                stream = session.current(index).handle
                session.check(session.hip.hipMemcpyAsync(*addresses, MemcpyKind.hipMemcpyDeviceToDevice, stream))
        storage = grown.untyped_storage()
    _SET.redispatch(CPU, self, storage, self.storage_offset(), size, stride)
    return self


def _product(size: Sequence[int]) -> int:
    result = 1
    for n in size:
        result *= n
    return result


@special(aten.record_stream.default)
def _record_stream(session: Session, self: torch.Tensor, s: Any) -> None:
    piece = session.piece_of(self)
    if piece is not None:
        session.allocators[int(self.device.index)].record(piece, session.stream(s.stream_id, s.device_index))


@special(aten.is_pinned.default)
def _is_pinned(session: Session, self: torch.Tensor, device: Any = None) -> bool:
    return False


@special(aten._pin_memory.default)
def _pin_memory(session: Session, self: torch.Tensor, device: Any = None) -> torch.Tensor:
    raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")


# ------------------------------------------------------------------------------------------------------------- filling


@special(aten.zero_.default)
def _zero(session: Session, self: torch.Tensor) -> torch.Tensor:
    target = alias(session, self)
    zero = aten.zero_.default
    fill = functools.partial(zero.redispatch, CPU, target)
    session.launch(int(self.device.index), fill, (), tensor_spans(self), "aten::zero_")
    return self


# ------------------------------------------------------------------------------------------------------------- copies


@special(aten.copy_.default)
def _copy(session: Session, self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if self.is_cuda and src.is_cuda and self.device == src.device:
        return generic(session, aten.copy_.default, (self, src, non_blocking), {})
    if src.shape != self.shape:
        src = src.expand(self.shape)
    if self.numel() == 0:
        return self
    src = src.resolve_conj().resolve_neg()
    bare = not self.is_conj() and not self.is_neg()
    same = bare and self.dtype == src.dtype
    if same and self.is_contiguous() and src.is_contiguous():
        _move(session, self, src, non_blocking)
        return self
    if self.is_cuda:  # the bytes travel dense and in their last dtype
        if src.is_cuda:  # the change of dtype is part of the copy, so it comes behind the target's stream, too
            session.order(session.current(int(self.device.index)), session.current(int(src.device.index)))
        dense = bare and self.is_contiguous()
        target = self if dense else torch.empty(self.shape, dtype=self.dtype, device=self.device)
        source = src.to(self.dtype).contiguous()
    else:
        target = (
            self
            if same and self.is_contiguous()
            else torch.empty_like(self, dtype=src.dtype, memory_format=torch.contiguous_format)
        )
        source = src.contiguous()
    _move(session, target, source, non_blocking)
    if target is not self:
        self.copy_(target, non_blocking)
    return self


def _move(session: Session, to: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
    """Copy dense memory between host and device or between devices."""
    hip = session.hip
    nbytes = to.numel() * to.element_size()
    addresses = (to.data_ptr(), source.data_ptr(), nbytes)
    if to.is_cuda and source.is_cuda:
        there, here = int(to.device.index), int(source.device.index)
        stream, waiter = session.current(here), session.current(there)
        session.order(waiter, stream)
        with session.on(here):
            session.check(hip.hipMemcpyAsync(*addresses, MemcpyKind.hipMemcpyDeviceToDevice, stream.handle))
        session.order(stream, waiter)
        return
    cuda, host = (to, source) if to.is_cuda else (source, to)
    kind = MemcpyKind.hipMemcpyHostToDevice if to.is_cuda else MemcpyKind.hipMemcpyDeviceToHost
    index = int(cuda.device.index)
    stream = session.current(index)
    with session.on(index):
        if non_blocking:
            session.check(hip.hipMemcpyAsync(*addresses, kind, stream.handle))
            session.host.record(host, stream)
        else:
            session.check(hip.hipMemcpyWithStream(*addresses, kind, stream.handle))


def _strides_of_copy(tensor: torch.Tensor, memory_format: torch.memory_format) -> list[int]:
    stride = list(tensor.stride())
    if memory_format in (torch.preserve_format, torch.contiguous_format) and stride == contiguous(tensor.shape):
        return stride  # torch takes as long to find that out as for the copy itself
    model = aten.empty_strided.default.redispatch(META, tensor.shape, stride, dtype=tensor.dtype, device=META_DEVICE)
    return list(torch.empty_like(model, memory_format=memory_format).stride())


@special(aten._to_copy.default)
def _to_copy(
    session: Session,
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    _strided_and_not_pinned(layout, None)
    dtype = dtype or self.dtype
    device = device if device is not None else self.device
    size = list(self.shape)
    stride = _strides_of_copy(self, memory_format or torch.preserve_format)
    if device.type == "cuda":
        result = session.new_tensor(size, stride, dtype, session.index(device))
    elif device.type == "cpu" and (non_blocking or pin_memory):
        result = session.host.new_tensor(size, stride, dtype)  # torch pins the target of such a copy, too
    else:
        result = torch.empty_strided(size, stride, dtype=dtype, device=device)
    if device.type != "meta":
        result.copy_(self, non_blocking)
    return result.as_subclass(PinnedTensor) if session.host.owns(result) else result


# ------------------------------------------------------------------------------------------------- values for the host


@special(aten._local_scalar_dense.default)
def _item(session: Session, self: torch.Tensor) -> Any:
    """The value, copied to the host in the current stream, which is then waited for."""
    host = torch.empty_like(self, device="cpu")
    _move(session, host, self, non_blocking=False)
    return host.item()


@special(aten.equal.default)
def _equal(session: Session, self: torch.Tensor, other: torch.Tensor) -> bool:
    if self.shape != other.shape:
        return False
    if self.is_set_to(other) and self.dtype == other.dtype:
        return True  # torch does not look, so it does not wait either
    return bool(Call(session, aten.equal.default, info_of(aten.equal.default), (self, other), {}).run_now())


@special(aten._fused_sdp_choice.default)
def _attention_kernel(session: Session, *args: Any, **kwargs: Any) -> int:
    """The one that is made of simpler operations."""
    return int(torch.nn.attention.SDPBackend.MATH.value)
