"""The double over a CPU build of torch: what is put where, and how it is taken away."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._device

from hipfile_mock.faces.torch import indexing, ops  # noqa: F401  the operations register themselves
from hipfile_mock.faces.torch.bindings import bindings, cudart, nvtx
from hipfile_mock.faces.torch.factories import install_factories, pin
from hipfile_mock.faces.torch.fits import does_not_fit
from hipfile_mock.faces.torch.guard import GuardUnavailable, install_guard
from hipfile_mock.faces.torch.kernels import fallback, specials, stack
from hipfile_mock.faces.torch.patches import Patches
from hipfile_mock.faces.torch.session import Session
from hipfile_mock.faces.torch.streams import EVENT, STREAM
from hipfile_sim.hip.codes import HipError

if TYPE_CHECKING:
    from hipfile_sim.machine import Machine

__all__ = ["install"]

_lock = threading.RLock()
_patches = Patches()
_libraries: list[Any] = []
_resident: list[Any] = []


def install(machine: Machine) -> Callable[[], None]:
    """Make ``cuda:0``, ``cuda:1`` … of torch the devices of `machine`.

    Returns
    -------
    callable
        Takes it back. Installations nest; each is taken back in the reverse order.

    Raises
    ------
    FaceUnavailable
        torch is one that this double does not fit.
    """
    with _lock:
        first = not stack
        session = Session(machine)
        stack.append(session)
        undo_state = Patches()
        try:
            if first:
                _put_in_place()
            _fresh_state(undo_state, session)
        except BaseException:
            stack.remove(session)
            undo_state.undo()
            if first:
                _take_away()
            raise

    def undo() -> None:
        with _lock:
            session.close()
            stack.remove(session)
            undo_state.undo()
            if not stack:
                _take_away()

    return undo


def _fresh_state(patches: Patches, session: Session) -> None:
    """What `torch.cuda` remembers belongs to one machine."""
    cuda = torch.cuda
    patches.set(cuda, "_initialized", False)
    patches.set(cuda, "_cached_device_count", None)
    patches.set(cuda, "_queued_calls", list(cuda._queued_calls))
    patches.set(cuda, "default_generators", ())
    patches.set(cuda, "_get_device_properties", None)
    cuda.is_bf16_supported.cache_clear() if hasattr(cuda.is_bf16_supported, "cache_clear") else None


def _put_in_place() -> None:
    patches = _patches
    for name, value in bindings().items():
        patches.set(torch._C, name, value)
    for name, value in STREAM.items():
        patches.set(torch._C._CudaStreamBase, name, staticmethod(value) if name == "__new__" else value)
    for name, value in EVENT.items():
        patches.set(torch._C._CudaEventBase, name, staticmethod(value) if name == "__new__" else value)
    cuda = torch.cuda
    found = bindings()
    patches.set(cuda, "_cudart", cudart())
    patches.set(cuda, "_HAS_PYNVML", False)
    patches.set(cuda, "_HAS_AMDSMI", False)
    patches.set(cuda, "_exchange_device", found["_cuda_exchangeDevice"])
    patches.set(cuda, "_maybe_exchange_device", found["_cuda_maybeExchangeDevice"])
    patches.set(cuda.graphs, "_cuda_isCurrentStreamCapturing", found["_cuda_isCurrentStreamCapturing"])
    patches.set(cuda.nvtx, "_nvtx", nvtx())
    patches.set(torch.version, "hip", _hip_version())
    install_factories(patches)
    _register()


def _hip_version() -> str:
    code, version = stack[-1].hip.hipRuntimeGetVersion()
    if code != HipError.hipSuccess:
        return "0.0.0"
    return f"{version // 10**7}.{version // 10**5 % 100}.{version % 10**5}"


def _register() -> None:
    """Hand torch's dispatcher the kernels, and the device guard.

    The guard and the fallback stay when the double goes, because torch's C++ remembers that it has seen a GPU: from
    then on
    they give the answers that a CPU build gives otherwise.
    """
    if not _resident:
        resident = torch.library.Library("_", "IMPL")
        resident.fallback(fallback, "CUDA")
        _resident.append(resident)
    library = torch.library.Library("aten", "IMPL")
    _libraries.append(library)
    for op, function in specials().items():
        library.impl(op, functools.partial(_on_stack, function), "CUDA")
    library.impl("is_pinned", _is_pinned, "CPU")
    library.impl("_pin_memory", _pin_memory, "CPU")
    try:
        install_guard()
    except GuardUnavailable as error:
        raise does_not_fit(torch, str(error)) from error


def _take_away() -> None:
    while _libraries:
        _libraries.pop()._destroy()
    _patches.undo()


def _on_stack(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(stack[-1], *args, **kwargs)


def _is_pinned(self: torch.Tensor, device: Any = None) -> bool:
    if not self.numel():
        return False
    block = stack[-1].memory.find(self.untyped_storage().data_ptr())
    return block is not None and block.kind in ("pinned", "registered", "managed")


def _pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    return pin(self, copy=True)
