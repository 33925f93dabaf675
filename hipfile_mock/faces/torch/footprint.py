"""Which bytes an operation touches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hipfile_sim.engine.command import MEM, Access

__all__ = ["MOST", "accesses", "row_spans", "rows_of", "spans", "tensor_spans"]

MOST = 1024
"""Ranges beyond which a footprint is given as one range around them all."""

Span = tuple[int, int]


def spans(address: int, size: Sequence[int], stride: Sequence[int], itemsize: int) -> list[Span]:
    """Byte ranges of the elements of a strided tensor.

    Parameters
    ----------
    address : int
        Of the first element.
    size, stride : sequence of int
        In elements.
    itemsize : int
        Bytes an element.

    Returns
    -------
    list of (address, bytes)
        By address, neighbours merged; one range around everything when there would be more than `MOST`.

    Examples
    --------
    >>> spans(0, (2, 3), (10, 1), 4)
    [(0, 12), (40, 12)]
    >>> spans(0, (3, 2), (2, 1), 4)
    [(0, 24)]
    """
    if 0 in size:
        return []
    dims = sorted((step, n) for step, n in zip(stride, size, strict=True) if n > 1 and step)
    run = 1
    while dims and dims[0][0] <= run:  # what lies inside a run or continues it
        step, n = dims.pop(0)
        run = max(run, step * (n - 1) + run)
    count = 1
    for _, n in dims:
        count *= n
    if count > MOST:
        whole = run + sum(step * (n - 1) for step, n in dims)
        return [(address, whole * itemsize)]
    starts = [0]
    for step, n in dims:
        starts = [start + step * k for k in range(n) for start in starts]
    return _merge([(address + start * itemsize, run * itemsize) for start in starts])


def tensor_spans(tensor: torch.Tensor) -> list[Span]:
    """Byte ranges of a tensor's elements."""
    if tensor.is_contiguous():
        nbytes = tensor.numel() * tensor.element_size()
        return [(tensor.data_ptr(), nbytes)] if nbytes else []
    return spans(tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.element_size())


def rows_of(
    size: Sequence[int], stride: Sequence[int], dims: Sequence[int], indices: Sequence[Any]
) -> list[int] | None:
    """Offsets, in elements, of the slices that index tensors choose.

    Parameters
    ----------
    size, stride : sequence of int
        Of the tensor that is indexed.
    dims : sequence of int
        The indexed dimensions.
    indices : sequence of torch.Tensor
        One integer CPU tensor a dimension; they are broadcast together.

    Returns
    -------
    list of int or None
        Sorted, each once. None when there are too many to list.
    """
    offset: Any = 0
    for dim, index in zip(dims, indices, strict=True):
        wrapped = index.to(torch.int64)
        offset = offset + torch.where(wrapped < 0, wrapped + size[dim], wrapped) * stride[dim]
    chosen: list[int] = torch.unique(offset).tolist()
    return chosen if len(chosen) <= MOST else None


def row_spans(
    address: int, size: Sequence[int], stride: Sequence[int], itemsize: int, dims: Sequence[int], rows: Sequence[int]
) -> list[Span]:
    """Byte ranges of the slices at `rows` (offsets from `rows_of`), over the dimensions that are not in `dims`."""
    rest = [dim for dim in range(len(size)) if dim not in dims]
    inner_size, inner_stride = [size[dim] for dim in rest], [stride[dim] for dim in rest]
    one = spans(0, inner_size, inner_stride, itemsize)
    if len(one) * len(rows) > 4 * MOST:
        return spans(address, size, stride, itemsize)
    return _merge(sorted((address + row * itemsize + start, length) for row in rows for start, length in one))


def accesses(reads: Sequence[Span], writes: Sequence[Span]) -> tuple[Access, ...]:
    """As the engine wants them."""
    return (
        *(Access(MEM, start, length, False) for start, length in reads),
        *(Access(MEM, start, length, True) for start, length in writes),
    )


def _merge(ranges: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, length in ranges:
        if merged and merged[-1][0] + merged[-1][1] >= start:
            last = merged[-1]
            merged[-1] = (last[0], max(last[1], start + length - last[0]))
        else:
            merged.append((start, length))
    return merged
