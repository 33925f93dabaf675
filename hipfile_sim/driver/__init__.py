"""The hipFile library, modelled. `Driver` has every public function of ``hipfile.h``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipfile_sim.driver.driver import Driver

__all__ = ["Driver"]


def __getattr__(name: str) -> Any:
    """`Driver`, loaded when it is first asked for: profiles and clauses are wanted without it."""
    if name == "Driver":
        from hipfile_sim.driver.driver import Driver

        return Driver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
