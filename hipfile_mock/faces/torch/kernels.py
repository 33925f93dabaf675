"""Any operation on cuda tensors as a kernel: shapes at once, bytes when the stream gets there.

torch calls `fallback` for every operation of which a CPU build has no CUDA kernel, which is all of them. The shapes
and dtypes of the results come from torch's own meta kernels (so errors of arguments appear at the call, as on a GPU),
the results get memory, and the CPU kernel goes into the current stream as a command over host aliases of that memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hipfile_mock.faces.torch.dlpack import CPU, host_alias
from hipfile_mock.faces.torch.footprint import tensor_spans
from hipfile_mock.faces.torch.session import Session

__all__ = ["Call", "OpInfo", "alias", "fallback", "generic", "info_of", "special", "specials", "stack"]

META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
_CPU_DEVICE = torch.device("cpu")
_META_DEVICE = torch.device("meta")
_COPY = torch.ops.aten.copy_.default
_EMPTY_STRIDED = torch.ops.aten.empty_strided.default

stack: list[Session] = []
"""Installations of the double, the one in use last."""

_special: dict[Any, Callable[..., Any]] = {}


def specials() -> dict[Any, Callable[..., Any]]:
    """What is registered with `special`."""
    return dict(_special)


def special(*overloads: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what is done instead of `generic`: a function of the session and the operation's arguments."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for overload in overloads:
            _special[overload] = function
        return function

    return register


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
    name : str
        Of the operation.
    keeps : bool
        A written argument's old values do not matter.
    """

    __slots__ = ("generator", "keeps", "name", "names", "random", "returns", "runs", "tensors", "view", "written")

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
        self.random = torch.Tag.nondeterministic_seeded in op.tags
        self.generator = "generator" in self.names
        self.keeps = out or self.name.split(".")[0] in _WRITE_ONLY
        self.runs = torch._C._dispatch_has_computed_kernel_for_dispatch_key(self.name, "CPU")


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


def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """What torch calls for an operation with the CUDA dispatch key."""
    if not stack:
        if any(isinstance(value, torch.Tensor) for value in args):
            raise RuntimeError(
                f"{op.name()}: this tensor lived on an emulated GPU that is gone; cuda tensors cannot be used after "
                "the fake that they were made under has ended"
            )
        raise AssertionError("Torch not compiled with CUDA enabled")
    session = stack[-1]
    function = _special.get(op)
    if function is not None:
        return function(session, *args, **kwargs)
    return generic(session, op, args, kwargs)


def generic(session: Session, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run any operation as one kernel."""
    info = info_of(op)
    if info.view:
        return op.redispatch(CPU, *args, **kwargs)
    call = Call(session, op, info, args, kwargs)
    try:
        shapes = op.redispatch(META, *call.map(_to_meta), **call.map_kwargs(_to_meta, _META_DEVICE))
    except NotImplementedError:
        return call.run_now()
    return call.enqueue(shapes)


def _to_meta(tensor: torch.Tensor) -> torch.Tensor:
    return _EMPTY_STRIDED.redispatch(META, tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META_DEVICE)


class Call:
    """One call of an operation, on its way to a stream.

    Parameters
    ----------
    session : Session
        Where it runs.
    op : OpOverload
        What.
    info : OpInfo
        Of the operation.
    args, kwargs
        Of the call.

    Raises
    ------
    RuntimeError
        Tensors on different devices.
    NotImplementedError
        torch has no CPU kernel for the operation.
    """

    def __init__(self, session: Session, op: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.session = session
        self.op = op
        self.info = info
        numbers = [
            name
            for name, value in (*zip(info.names, args, strict=False), *kwargs.items())
            if isinstance(value, (int, float, complex)) and name in info.tensors
        ]
        if numbers:
            like = next((value for value in args if isinstance(value, torch.Tensor)), None)
            args = tuple(
                _number(value, like) if name in numbers else value
                for name, value in zip(info.names, args, strict=False)
            )
            kwargs = {name: _number(value, like) if name in numbers else value for name, value in kwargs.items()}
        self.args = args
        self.kwargs = kwargs
        if not info.runs:
            raise NotImplementedError(
                f"{info.name} has no CPU kernel in torch {torch.__version__}, so the emulated device cannot run it; "
                "write the step in simpler operations"
            )
        self.reads: list[torch.Tensor] = []
        self.writes: list[torch.Tensor] = []
        hosts: list[torch.Tensor] = []
        names = info.names
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            written = name in info.written
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if not isinstance(tensor, torch.Tensor):
                    continue
                if not tensor.is_cuda:
                    if name != "indices":
                        hosts.append(tensor)
                    continue
                if written:
                    self.writes.append(tensor)
                if not written or not info.keeps:
                    self.reads.append(tensor)
        self.device = self._one_device(hosts)

    def _one_device(self, hosts: list[torch.Tensor]) -> int:
        tensors = self.reads + self.writes
        if not tensors:
            return self.session.index(self.kwargs.get("device"))
        first = tensors[0].device
        for tensor in tensors + [host for host in hosts if host.dim()]:
            if tensor.device != first:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found at least two devices, {first} and "
                    f"{tensor.device}! (when calling {self.info.name})"
                )
        return int(first.index)

    # -- the same arguments in other forms -----------------------------------------------------------------------------

    def map(self, change: Callable[[torch.Tensor], Any]) -> list[Any]:
        """Positional arguments with each tensor changed."""
        return [_map(value, change) for value in self.args]

    def map_kwargs(self, change: Callable[[torch.Tensor], Any], device: torch.device) -> dict[str, Any]:
        """Keyword arguments with each tensor changed, made for `device`."""
        result = {name: _map(value, change) for name, value in self.kwargs.items()}
        if "device" in result:
            result["device"] = device
        result.pop("pin_memory", None)
        generator = result.get("generator")
        if "generator" in result:
            result["generator"] = None  # the device's, see `ready`
        if generator is not None and generator.device.type != "cuda" and generator not in self.session.generators:
            raise RuntimeError(f"Expected a 'cuda' device type for generator but found '{generator.device.type}'")
        return result

    def stand_in(self, tensor: torch.Tensor) -> Any:
        """A CPU tensor over the same memory. A tensor of the host is taken as it is now: it goes with the launch."""
        return alias(self.session, tensor) if tensor.is_cuda else tensor.clone()

    # -- running -----------------------------------------------------------------------------------------------------

    def ready(self) -> Callable[[], Any]:
        """A function that runs the CPU kernel on host aliases."""
        op = self.op
        args = self.map(self.stand_in)
        kwargs = self.map_kwargs(self.stand_in, _CPU_DEVICE)
        if not self.info.random:
            return lambda: op.redispatch(CPU, *args, **kwargs)
        seed = int(torch.randint(1 << 62, (), generator=self.session.generators[self.device]))
        if self.info.generator:
            kwargs["generator"] = torch.Generator().manual_seed(seed)
            return lambda: op.redispatch(CPU, *args, **kwargs)

        def seeded() -> Any:
            before = torch.default_generator.get_state()
            torch.default_generator.manual_seed(seed)
            try:
                return op.redispatch(CPU, *args, **kwargs)
            finally:
                torch.default_generator.set_state(before)

        return seeded

    def enqueue(self, shapes: Any) -> Any:
        """Give results of these shapes memory and put the kernel into the current stream."""
        results = self.results(shapes)
        fresh = [tensor for tensor, is_new in results if is_new]
        work = self.ready()
        targets = [alias(self.session, tensor) if is_new else None for tensor, is_new in results]

        def run() -> None:
            made = work()
            if fresh_count:
                for target, value in zip(targets, _flat(made), strict=True):
                    if target is not None:
                        _COPY.redispatch(CPU, target, value)

        fresh_count = len(fresh)  # the command must not hold the tensors: their memory is free once the program lets go
        self._launch(run, fresh)
        return _shaped(shapes, [tensor for tensor, _ in results])

    def run_now(self) -> Any:
        """For results whose shapes depend on values: run, wait, then give the results memory. torch waits here, too."""
        session = self.session
        made: list[Any] = []
        work = self.ready()
        stream = self._launch(lambda: made.append(work()), [])
        session.synchronize(stream)
        value = made[0]
        results = self.results(value)
        fresh = [(tensor, found) for (tensor, is_new), found in zip(results, _flat(value), strict=True) if is_new]
        for tensor, found in fresh:
            fill = functools.partial(_COPY.redispatch, CPU, alias(session, tensor), found)
            session.launch(self.device, fill, (), tensor_spans(tensor), self.info.name)
        return _shaped(value, [tensor for tensor, _ in results])

    def _launch(self, run: Callable[[], Any], fresh: list[torch.Tensor]) -> Any:
        reads = [span for tensor in self.reads for span in tensor_spans(tensor)]
        writes = [span for tensor in (*self.writes, *fresh) for span in tensor_spans(tensor)]
        return self.session.launch(self.device, run, reads, writes, self.info.name)

    def results(self, shapes: Any) -> list[tuple[Any, bool]]:
        """(result, whether it is new) for each tensor that the operation returns."""
        bound = dict(zip(self.info.names, self.args, strict=False)) | self.kwargs
        names = self.info.returns
        values = [shapes] if len(names) == 1 else list(shapes)
        results: list[tuple[Any, bool]] = []
        for name, value in zip(names, values, strict=True):
            if name is not None:
                self._fit(bound[name], value)
                results.append((bound[name], False))
                continue
            for shape in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(shape, torch.Tensor):
                    results.append(
                        (self.session.new_tensor(shape.shape, shape.stride(), shape.dtype, self.device), True)
                    )
                else:
                    results.append((shape, False))
        return results

    def _fit(self, target: torch.Tensor, shape: torch.Tensor) -> None:
        """An ``out=`` tensor of another shape is resized."""
        if target.shape != shape.shape:
            torch.ops.aten.resize_.default(target, list(shape.shape))


def _number(value: Any, like: torch.Tensor | None) -> torch.Tensor:
    """A tensor for a number that stands where a tensor is wanted, of a dtype that decides nothing beside `like`."""
    dtype: torch.dtype | None = None
    if isinstance(value, bool):
        dtype = torch.bool
    elif isinstance(value, int):
        dtype = like.dtype if like is not None and not like.dim() and _integral(like.dtype) else torch.int64
    elif isinstance(value, float) and like is not None and like.dtype.is_floating_point:
        dtype = torch.float64 if like.dim() else like.dtype
    return torch.tensor(value, dtype=dtype, device=_CPU_DEVICE)


def _integral(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def alias(session: Session, tensor: torch.Tensor) -> Any:
    """A CPU tensor over the memory of a cuda tensor, with its geometry of now."""
    address = session.alias_of(tensor) if tensor.numel() else 0
    result = host_alias(address, tensor.shape, tensor.stride(), tensor.dtype)
    if tensor.is_conj():
        torch._C._set_conj(result, True)
    if tensor.is_neg():
        torch._C._set_neg(result, True)
    return result


def _map(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [_map(item, change) for item in value]
    return value


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in _flat(part)]
    return [value]


def _shaped(like: Any, results: list[Any]) -> Any:
    """`results` in the nesting of `like`."""
    return _build(like, iter(results))


def _build(value: Any, results: Iterator[Any]) -> Any:
    # a function of its own, because a closure that calls itself would keep the results alive until the collector runs
    if isinstance(value, (list, tuple)):
        parts = [_build(item, results) for item in value]
        return parts if isinstance(value, list) else tuple(parts)
    return next(results)
