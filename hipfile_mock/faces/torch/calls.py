"""One call of an operation, on its way to a stream."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hipfile_mock.faces.torch.dlpack import CPU, host_alias
from hipfile_mock.faces.torch.footprint import tensor_spans
from hipfile_mock.faces.torch.opinfo import OpInfo
from hipfile_mock.faces.torch.session import Session

__all__ = ["META", "META_DEVICE", "Call", "alias"]

META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
META_DEVICE = torch.device("meta")
_CPU_DEVICE = torch.device("cpu")
_COPY = torch.ops.aten.copy_.default
_EMPTY_STRIDED = torch.ops.aten.empty_strided.default

_MOST_KNOWN = 4096
_known: dict[Any, Any] = {}
"""Results as meta tensors, by operation and geometry of its arguments: torch takes up to a millisecond to find out."""


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
        self.hosts: list[torch.Tensor] = []
        names = info.names
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            written = name in info.written
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if not isinstance(tensor, torch.Tensor):
                    continue
                if not tensor.is_cuda:
                    if name != "indices":
                        self.hosts.append(tensor)
                    continue
                if written:
                    self.writes.append(tensor)
                if not written or not info.keeps:
                    self.reads.append(tensor)
        self.device = self._one_device()

    def _one_device(self) -> int:
        tensors = self.reads + self.writes
        if not tensors:
            return self.session.index(self.kwargs.get("device"))
        first = tensors[0].device
        for tensor in tensors + [host for host in self.hosts if host.dim()]:
            if tensor.device != first:
                name = self.info.name.removeprefix("aten::")
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but got {self._argument(tensor)} is on "
                    f"{tensor.device}, different from other tensors on {first} (when checking argument in method "
                    f"wrapper_CUDA_{name.removesuffix('.out').replace('.', '_')})"
                )
        return int(first.index)

    def _argument(self, tensor: torch.Tensor) -> str:
        """Name of the argument that a tensor came in."""
        for name, value in (*zip(self.info.names, self.args, strict=False), *self.kwargs.items()):
            if value is tensor or (isinstance(value, (list, tuple)) and any(item is tensor for item in value)):
                return str(name)
        return "a tensor"

    # -- what comes out ----------------------------------------------------------------------------------------------

    def shapes(self) -> Any:
        """The results as meta tensors: their shapes, strides and dtypes.

        Raises
        ------
        NotImplementedError
            They depend on values.
        """
        if self.info.pointwise and self._plain():
            return self.writes[0]
        kwargs = self.map_kwargs(_to_meta, META_DEVICE)
        key = (self.op, _key(self.args), _key(tuple(self.kwargs.items())))
        try:
            return _known[key]
        except (KeyError, TypeError):  # TypeError: an argument that cannot be hashed
            pass
        shapes = self.op.redispatch(META, *self.map(_to_meta), **kwargs)
        try:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[key] = shapes
        except TypeError:
            pass
        return shapes

    def _plain(self) -> bool:
        """Whether this is arithmetic of floats of one dtype into a tensor of the right shape: nothing to find out."""
        if len(self.writes) != 1 or self.kwargs.get("generator") is not None:
            return False
        target = self.writes[0]
        dtype, shape = target.dtype, target.shape
        if not dtype.is_floating_point or any(host.dtype.is_complex for host in self.hosts):
            return False
        if any(tensor.dtype != dtype for tensor in self.reads):
            return False
        if all(tensor.shape == shape for tensor in self.reads):
            return True
        try:
            return bool(torch.broadcast_shapes(*(tensor.shape for tensor in self.reads)) == shape)
        except RuntimeError:
            return False

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
        operation = self.info.run
        args = self.map(self.stand_in)
        kwargs = self.map_kwargs(self.stand_in, _CPU_DEVICE)
        if not self.info.random:
            return lambda: operation(*args, **kwargs)
        seed = int(torch.randint(1 << 62, (), generator=self.session.generators[self.device]))
        if self.info.generator:
            kwargs["generator"] = torch.Generator().manual_seed(seed)
            return lambda: operation(*args, **kwargs)

        def seeded() -> Any:
            before = torch.default_generator.get_state()
            torch.default_generator.manual_seed(seed)
            try:
                return operation(*args, **kwargs)
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


def _key(value: Any) -> Any:
    """What of an argument decides the shapes of results."""
    if isinstance(value, torch.Tensor):
        return (value.shape, value.stride(), value.dtype, value.is_cuda)
    if isinstance(value, (list, tuple)):
        return tuple(_key(item) for item in value)
    return (type(value), value)  # 1, 1.0 and True are equal, and not the same


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


def _to_meta(tensor: torch.Tensor) -> torch.Tensor:
    return _EMPTY_STRIDED.redispatch(META, tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META_DEVICE)
