"""`torch.cuda` on a CPU build of torch, with the emulated GPUs behind it.

Importing this package does not import torch. Where a program has not imported torch yet, the double waits until it
does.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hipfile_mock.install import FaceUnavailable

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["FACE", "TorchFace", "installed"]

Undo = Callable[[], None]


class TorchFace:
    """The face ``"torch"`` of `hipfile_mock.fake`."""

    def install(self, machine: Any, *, force: bool = False) -> Undo:
        """Make torch's cuda devices those of `machine`; returns what takes it back.

        Parameters
        ----------
        machine : Machine
            Whose devices they are.
        force : bool
            Insist, where torch is a build with CUDA or ROCm. The double cannot replace those: it says so, also where
            torch is imported only later.

        Raises
        ------
        FaceUnavailable
            torch is not installed, or it is a build that is left alone, or one that the double does not fit (that is
            warned of, too). If torch is imported only later, a build with CUDA or ROCm is left alone without a word.
        """
        if "torch" in sys.modules:
            return _install_now(machine, force)
        if importlib.util.find_spec("torch") is None:
            raise FaceUnavailable(
                "torch is not installed; install its CPU build (pip install torch, from the index of CPU wheels) to "
                "have torch.cuda on emulated GPUs"
            )
        return _Later(machine, force).undo


FACE = TorchFace()


@contextmanager
def installed(machine: Any, *, force: bool = False) -> Iterator[None]:
    """The double is in place inside.

    Examples
    --------
    >>> from hipfile_sim.machine import Machine
    >>> with Machine(2) as machine, installed(machine):
    ...     import torch
    ...
    ...     (torch.ones(3, device="cuda:1") * 2).tolist(), torch.cuda.device_count()
    ([2.0, 2.0, 2.0], 2)
    """
    undo = FACE.install(machine, force=force)
    try:
        yield
    finally:
        undo()


def _install_now(machine: Any, force: bool) -> Undo:
    """Install the double; a torch that it does not fit is said aloud, since programs would blame themselves."""
    import torch

    from hipfile_mock.faces.torch.fits import DoesNotFit, check_fit, does_not_fit, refuse_real_build

    kernels = sys.modules.get("hipfile_mock.faces.torch.kernels")
    try:
        if kernels is None or not kernels.stack:  # else it is in place already
            refuse_real_build(torch, force)
            check_fit(torch)
        try:
            from hipfile_mock.faces.torch.double import install
        except (ImportError, AttributeError) as error:  # a name that the list does not have
            raise does_not_fit(torch, str(error)) from error
        return install(machine)
    except DoesNotFit as error:
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        raise


class _Later:
    """Installs the double right after the program's own import of torch."""

    def __init__(self, machine: Any, force: bool) -> None:
        self.machine = machine
        self.force = force
        self._undo: Undo | None = None
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """torch's own spec, with a loader that comes back here."""
        if name != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
        return spec

    def imported(self) -> None:
        """torch is there now."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            self._undo = _install_now(self.machine, self.force)
        except FaceUnavailable:
            if self.force:
                raise

    def undo(self) -> None:
        """Take the double back, or stop waiting for torch."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self._undo is not None:
            self._undo()


class _Loader:
    """Loads torch as its own loader does, then tells."""

    def __init__(self, loader: Any, later: _Later) -> None:
        self._loader = loader
        self._later = later

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the own loader."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """As the own loader; then the double."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._later.imported()
