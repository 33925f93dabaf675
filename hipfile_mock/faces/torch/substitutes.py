"""Operations of which torch has a GPU kernel alone, written in operations that the CPU has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["SUBSTITUTES"]

aten = torch.ops.aten


def _lstm_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cx: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    gates = input_gates + hidden_gates
    for bias in (input_bias, hidden_bias):
        if bias is not None:
            gates = gates + bias
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def _gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hx: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    if input_bias is not None:
        input_gates = input_gates + input_bias
    if hidden_bias is not None:
        hidden_gates = hidden_gates + hidden_bias
    ir, ii, inner = input_gates.chunk(3, 1)
    hr, hi, hn = hidden_gates.chunk(3, 1)
    reset, update = (ir + hr).sigmoid(), (ii + hi).sigmoid()
    new = (inner + reset * hn).tanh()
    return (hx - new) * update + new, torch.cat([reset, update, new, hx, hn], 1)


def _depthwise(convolution: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def run(
        x: torch.Tensor, weight: torch.Tensor, kernel_size: Any, bias: Any, stride: Any, padding: Any, dilation: Any
    ) -> torch.Tensor:
        return convolution(x, weight, bias, stride, padding, dilation, x.shape[1])

    return run


SUBSTITUTES: dict[Any, Callable[..., Any]] = {
    aten._thnn_fused_lstm_cell.default: _lstm_cell,
    aten._thnn_fused_gru_cell.default: _gru_cell,
    aten._conv_depthwise2d.default: _depthwise(torch.nn.functional.conv2d),
    aten.conv_depthwise3d.default: _depthwise(torch.nn.functional.conv3d),
}
"""What runs, on CPU tensors, in place of an operation."""
