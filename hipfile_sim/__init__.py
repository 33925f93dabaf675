"""A software model of AMD hipFile and of the HIP runtime beneath it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipfile_sim._version import __version__ as __version__

if TYPE_CHECKING:
    from hipfile_sim.hip.settings import HipSettings as HipSettings
    from hipfile_sim.machine import Machine as Machine

_LAZY = {
    "HipSettings": "hipfile_sim.hip.settings",
    "Machine": "hipfile_sim.machine",
}
"""Name to module. Loaded at first use, so that importing the package costs next to nothing."""


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
