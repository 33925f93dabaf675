"""Test doubles over the model of `hipfile_sim`: drop-in packages, faults, recorder, pytest plugin.

>>> import hipfile_mock
>>> with hipfile_mock.fake(schedule="lazy"):
...     import hipfile
...
...     hipfile.Driver.use_count()
0
"""

# Nothing here may import numpy, torch, pytest or the model, nor our own modules before they are used: this package is
# imported by every test session that has it.
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipfile_mock import faults as faults
    from hipfile_mock.current import CurrentMachineError as CurrentMachineError
    from hipfile_mock.current import NoMachineError as NoMachineError
    from hipfile_mock.fake import Fake as Fake
    from hipfile_mock.fake import Session as Session
    from hipfile_mock.fake import fake as fake
    from hipfile_mock.fake import install as install
    from hipfile_mock.fake import session as session
    from hipfile_mock.fake import uninstall as uninstall
    from hipfile_mock.install import FaceUnavailable as FaceUnavailable
    from hipfile_mock.stub import Stub as Stub
    from hipfile_mock.stub import stub as stub

__all__ = [
    "CurrentMachineError",
    "FaceUnavailable",
    "Fake",
    "NoMachineError",
    "Session",
    "Stub",
    "fake",
    "faults",
    "install",
    "session",
    "stub",
    "uninstall",
]

_PLACES = {
    "CurrentMachineError": "current",
    "NoMachineError": "current",
    "Fake": "fake",
    "Session": "fake",
    "fake": "fake",
    "install": "fake",
    "session": "fake",
    "uninstall": "fake",
    "FaceUnavailable": "install",
    "Stub": "stub",
    "stub": "stub",
}
"""Public name to the module that has it."""


class _Package(ModuleType):
    """Keeps the functions `fake`, `install` and `stub` in the place of the modules of the same names."""

    def __getattr__(self, name: str) -> Any:
        from importlib import import_module

        if name == "faults":  # a package of its own, here without an import of it
            return import_module(f"{__name__}.faults")
        place = _PLACES.get(name)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{place}"), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PLACES and isinstance(value, ModuleType)):  # what importing a submodule does
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *__all__})


sys.modules[__name__].__class__ = _Package
