"""Operations that touch the rows which index tensors choose, and no others.

Which rows those are is known when the kernel runs. Until then it declares the whole table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hipfile_mock.faces.torch.calls import Call, alias
from hipfile_mock.faces.torch.dlpack import CPU
from hipfile_mock.faces.torch.footprint import accesses, row_spans, rows_of, tensor_spans
from hipfile_mock.faces.torch.kernels import generic, special
from hipfile_mock.faces.torch.opinfo import info_of
from hipfile_mock.faces.torch.session import Session

__all__: list[str] = []

aten = torch.ops.aten


def _traced(
    session: Session,
    op: Any,
    args: tuple[Any, ...],
    table: torch.Tensor,
    dims: Sequence[int],
    indices: Sequence[Any],
    *,
    writes: bool,
    reads: bool,
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Run an operation that touches the rows of `table` that `indices` choose, and say which rows those were."""
    kwargs = kwargs or {}
    info = info_of(op)
    call = Call(session, op, info, args, kwargs)
    shapes = call.shapes()
    results = call.results(shapes)
    fresh = [tensor for tensor, is_new in results if is_new]
    work = call.ready()
    targets = [alias(session, tensor) for tensor in fresh]
    chosen = [index if not index.is_cuda else alias(session, index) for index in indices]
    size, stride, item, address = list(table.shape), table.stride(), table.element_size(), table.data_ptr()
    other_reads = [span for tensor in call.reads if tensor is not table for span in tensor_spans(tensor)]
    other_writes = [span for tensor in (*call.writes, *fresh) if tensor is not table for span in tensor_spans(tensor)]

    def run() -> Any:
        rows = rows_of(size, stride, dims, chosen)
        made = work()
        for target in targets:
            aten.copy_.default.redispatch(CPU, target, made)
        if rows is None:
            return None
        touched = row_spans(address, size, stride, item, dims, rows)
        return accesses((*other_reads, *(touched if reads else ())), (*other_writes, *(touched if writes else ())))

    everything = tensor_spans(table)
    session.launch(
        call.device,
        run,
        (*other_reads, *(everything if reads else ())),
        (*other_writes, *(everything if writes else ())),
        info.name,
        traced=True,
    )
    return results[0][0]


def _chosen(table: torch.Tensor, indices: Sequence[Any]) -> tuple[list[int], list[torch.Tensor]] | None:
    """(dimensions, indices) when all of them are integers, else None."""
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    found = [indices[dim] for dim in dims]
    if not dims or any(index.dtype in (torch.bool, torch.uint8) for index in found) or table.numel() == 0:
        return None
    return dims, found


@special(aten.index.Tensor)
def _index(session: Session, self: torch.Tensor, indices: Sequence[Any]) -> Any:
    chosen = _chosen(self, indices)
    if chosen is None:
        return generic(session, aten.index.Tensor, (self, indices), {})
    return _traced(session, aten.index.Tensor, (self, indices), self, *chosen, reads=True, writes=False)


@special(aten.index_put_.default, aten._index_put_impl_.default)
def _index_put(
    session: Session,
    self: torch.Tensor,
    indices: Sequence[Any],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Any:
    op = aten._index_put_impl_.default
    args = (self, indices, values, accumulate, unsafe)
    chosen = _chosen(self, indices)
    if chosen is None:
        return generic(session, op, args, {})
    return _traced(session, op, args, self, *chosen, reads=accumulate, writes=True)


@special(aten.index_select.default)
def _index_select(session: Session, self: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    op, args = aten.index_select.default, (self, dim, index)
    if self.numel() == 0 or self.dim() == 0:
        return generic(session, op, args, {})
    return _traced(session, op, args, self, [dim % self.dim()], [index.reshape(-1)], reads=True, writes=False)


@special(aten.index_copy_.default)
def _index_copy(session: Session, self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    op, args = aten.index_copy_.default, (self, dim, index, source)
    if self.numel() == 0 or self.dim() == 0:
        return generic(session, op, args, {})
    return _traced(session, op, args, self, [dim % self.dim()], [index.reshape(-1)], reads=False, writes=True)


@special(aten.index_add_.default)
def _index_add(
    session: Session, self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: Any = 1
) -> Any:
    op, args = aten.index_add_.default, (self, dim, index, source)
    if self.numel() == 0 or self.dim() == 0:
        return generic(session, op, args, {"alpha": alpha})
    return _traced(
        session,
        op,
        args,
        self,
        [dim % self.dim()],
        [index.reshape(-1)],
        reads=True,
        writes=True,
        kwargs={"alpha": alpha},
    )


@special(aten.index_fill_.int_Scalar)
def _index_fill(session: Session, self: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> Any:
    op, args = aten.index_fill_.int_Scalar, (self, dim, index, value)
    if self.numel() == 0 or self.dim() == 0:
        return generic(session, op, args, {})
    return _traced(session, op, args, self, [dim % self.dim()], [index.reshape(-1)], reads=False, writes=True)
