"""The list of programs, with what is to be known of each."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from catalogue.world import World

    Body = Callable[[World], None]


@dataclass(frozen=True)
class Program:
    """One small program.

    Parameters
    ----------
    name : str
        Of its function.
    body : callable
        Runs it in a `World`.
    expected : str or None
        The id that it must be reported with, and no other; None: nothing may be reported.
    twin : str
        The program on the other side of right and wrong.
    cases : tuple of str
        Cases of people's real trouble that it is.
    faces : tuple of str
        Faces that can run it: ``"model"``; where it applies ``"python"`` (package ``hipfile``), ``"torch"``, ``"c"``.
    schedules : tuple of str
        Schedules under which the answer is the same; empty for all.
    options : mapping
        Keywords of `World`.
    """

    name: str
    body: Body
    expected: str | None
    twin: str
    cases: tuple[str, ...] = ()
    faces: tuple[str, ...] = ("model",)
    schedules: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The module that it is in."""
        return self.body.__module__.rpartition(".")[2]


PROGRAMS: dict[str, Program] = {}


def wrong(
    id: str, *, twin: str = "", cases: str = "", faces: str = "model", schedules: str = "", **options: Any
) -> Any:
    """The function below must be reported with exactly `id`."""
    return _add(id, twin, cases, faces, schedules, options)


def right(twin: str, *, cases: str = "", faces: str = "model", schedules: str = "", **options: Any) -> Any:
    """The function below must not be reported at all."""
    return _add(None, twin, cases, faces, schedules, options)


def _add(id: str | None, twin: str, cases: str, faces: str, schedules: str, options: Mapping[str, Any]) -> Any:
    def add(body: Body) -> Body:
        name = body.__name__
        if name in PROGRAMS:
            raise ValueError(f"two programs are called {name}")
        PROGRAMS[name] = Program(
            name, body, id, twin, tuple(cases.split()), tuple(faces.split()), tuple(schedules.split()), dict(options)
        )
        return body

    return add


def load() -> dict[str, Program]:
    """Every program of the catalogue, by name."""
    import catalogue

    for module in pkgutil.iter_modules(catalogue.__path__):
        importlib.import_module(f"catalogue.{module.name}")
    return PROGRAMS
