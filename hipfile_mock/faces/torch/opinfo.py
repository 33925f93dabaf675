"""What the schema of an operation says."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from hipfile_mock.faces.torch.dlpack import CPU
from hipfile_mock.faces.torch.substitutes import SUBSTITUTES

__all__ = ["OpInfo", "info_of"]


class OpInfo:
    """What the schema of an operation says.

    Attributes
    ----------
    names : list of str
        Of the arguments, in order.
    written : set of str
        Arguments that are written to.
    returns : list of str or None
        For each result the written argument that it is, or None for a new one.
    view : bool
        The result shares memory with an argument, or only metadata changes: no work for the device.
    random : bool
        Draws random numbers.
    data_dependent : bool
        Shapes of results depend on values.
    run : callable
        Does it on CPU tensors.
    runs : bool
        There is something to run.
    name : str
        Of the operation.
    keeps : bool
        A written argument's old values do not matter.
    """

    __slots__ = (
        "data_dependent",
        "generator",
        "keeps",
        "name",
        "names",
        "pointwise",
        "random",
        "returns",
        "run",
        "runs",
        "tensors",
        "view",
        "written",
    )

    def __init__(self, op: Any) -> None:
        schema = op._schema
        self.name = op.name()
        self.names = [argument.name for argument in schema.arguments]
        self.tensors = {argument.name for argument in schema.arguments if "Tensor" in str(argument.type)}
        by_alias: dict[str, str] = {}
        self.written: set[str] = set()
        out = False
        for argument in schema.arguments:
            alias = argument.alias_info
            if alias is not None and alias.is_write:
                self.written.add(argument.name)
                out = out or argument.is_out
                by_alias.update(dict.fromkeys(alias.before_set, argument.name))
        self.returns = [
            next((by_alias[name] for name in result.alias_info.before_set if name in by_alias), None)
            if result.alias_info is not None
            else None
            for result in schema.returns
        ]
        shares = any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns)
        self.view = shares or torch.Tag.inplace_view in op.tags
        self.pointwise = torch.Tag.pointwise in op.tags
        self.random = torch.Tag.nondeterministic_seeded in op.tags
        self.generator = "generator" in self.names
        self.keeps = out or self.name.split(".")[0] in _WRITE_ONLY
        self.data_dependent = torch.Tag.dynamic_output_shape in op.tags or torch.Tag.data_dependent_output in op.tags
        substitute = SUBSTITUTES.get(op)
        self.run: Callable[..., Any] = functools.partial(op.redispatch, CPU) if substitute is None else substitute
        self.runs = substitute is not None or torch._C._dispatch_has_computed_kernel_for_dispatch_key(self.name, "CPU")


_WRITE_ONLY = frozenset(
    {
        "aten::fill_",
        "aten::zero_",
        "aten::copy_",
        "aten::normal_",
        "aten::uniform_",
        "aten::random_",
        "aten::bernoulli_",
        "aten::exponential_",
        "aten::geometric_",
        "aten::log_normal_",
        "aten::cauchy_",
    }
)
_infos: dict[Any, OpInfo] = {}


def info_of(op: Any) -> OpInfo:
    """`OpInfo` of an operation, made once."""
    info = _infos.get(op)
    if info is None:
        info = _infos[op] = OpInfo(op)
    return info
