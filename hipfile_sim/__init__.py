"""A software model of AMD hipFile and of the HIP runtime beneath it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipfile_sim._version import __version__ as __version__

if TYPE_CHECKING:
    from hipfile_sim.explore import explore as explore
    from hipfile_sim.explore import outcomes as outcomes
    from hipfile_sim.hip.settings import HipSettings as HipSettings
    from hipfile_sim.machine import Machine as Machine

__all__ = ["HipSettings", "Machine", "__version__", "explore", "outcomes"]

_LAZY = {
    "HipSettings": "hipfile_sim.hip.settings",
    "Machine": "hipfile_sim.machine",
    "explore": "hipfile_sim.explore",
    "outcomes": "hipfile_sim.explore",
}
"""Name to module. Loaded at first use, so that importing the package costs next to nothing."""


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    loaded = import_module(module)
    value = globals().get(name)  # `explore` is a package that can be called; importing it has put it here
    if value is None:
        value = globals()[name] = getattr(loaded, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
