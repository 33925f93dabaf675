"""Whether this torch has the places that the double is put into. Features are asked for, never versions."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from hipfile_mock.install import FaceUnavailable

__all__ = ["NEEDED", "TRIED", "DoesNotFit", "check_fit", "does_not_fit", "refuse_real_build"]

TRIED = "2.13.0"
"""Releases that the tests have been run with."""

NEEDED = (
    "AcceleratorError",
    "OutOfMemoryError",
    "_C.DisableTorchFunctionSubclass",
    "_C.DispatchKeySet",
    "_C._CudaEventBase",
    "_C._CudaStreamBase",
    "_C._construct_storage_from_data_pointer",
    "_C._dispatch_has_computed_kernel_for_dispatch_key",
    "_C._ensureCUDADeviceGuardSet",
    "_C._from_dlpack",
    "_C._nn._parse_to",
    "_C._set_conj",
    "_C._set_neg",
    "cuda._cached_device_count",
    "cuda._cudart",
    "cuda._exchange_device",
    "cuda._initialized",
    "cuda._lazy_init",
    "cuda._maybe_exchange_device",
    "cuda._queued_calls",
    "cuda.default_generators",
    "cuda.graphs._cuda_isCurrentStreamCapturing",
    "cuda.nvtx._nvtx",
    "library.Library._destroy",
    "library.Library.fallback",
    "utils._device._device_constructors",
    "version.hip",
)
"""Names within torch that the double uses or replaces. Replacing one that torch does not look at would do nothing."""


class DoesNotFit(FaceUnavailable):
    """torch is a CPU build whose insides are not those that the double knows."""


def refuse_real_build(torch: Any, force: bool = False) -> None:
    """Leave builds of torch alone that have GPUs of their own.

    Raises
    ------
    FaceUnavailable
        This is one. `force` changes the message only: the double lives in the places that a CPU build leaves empty.
    """
    if not hasattr(torch._C, "_cuda_getDeviceCount"):
        return
    kind = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    advice = (
        "force=True cannot change that: the double lives in the places that a CPU build leaves empty. Run these tests "
        "in an environment with the CPU build of torch (what pytorch.org gives for 'CPU')"
        if force
        else "it is left alone: use the CPU build of torch (what pytorch.org gives for 'CPU') to have the emulated one"
    )
    raise FaceUnavailable(f"torch {torch.__version__} is a build with {kind}, which has its own torch.cuda; {advice}")


def does_not_fit(torch: Any, why: str) -> DoesNotFit:
    """The error for a torch that the double does not fit."""
    return DoesNotFit(
        f"the double of torch.cuda does not fit torch {torch.__version__}: {why}. It was tried with the CPU build of "
        f"torch {TRIED}; install that, or leave the face out: faces=['hipfile', 'hip_python']"
    )


def check_fit(torch: Any, needed: Iterable[str] | None = None) -> None:
    """Raise `DoesNotFit` if `torch` lacks one of the names in `NEEDED`; the message lists all that are missing."""
    import_module("torch.utils._device")
    missing = [name for name in (NEEDED if needed is None else needed) if not _has(torch, name)]
    if missing:
        raise does_not_fit(torch, f"it has no {', '.join(f'torch.{name}' for name in missing)}")


def _has(owner: Any, name: str) -> bool:
    for part in name.split("."):
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True
