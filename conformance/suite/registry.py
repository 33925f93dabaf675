"""How a test enters the suite: the decorator, and the search by clause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipfile_conformance.kit import Kit

__all__ = ["Test", "all_tests", "conformance", "find", "tests_of_clause"]

Body = Callable[["Kit"], None]


@dataclass(frozen=True, slots=True)
class Test:
    """One test.

    Attributes
    ----------
    id : str
        ``module.function``, without the ``test_`` of either.
    clauses : tuple of str
        What it checks; the run is told which of them it reached.
    needs : frozenset of str
        Capabilities of the target; see :data:`hipfile_conformance.targets.base.CAPABILITIES`.
    environment : mapping or None
        Variables that the library must find; asks for a process of its own where the target is a C library.
    fresh : bool
        Needs a library that was never used; asks for a process of its own where the target is a C library.
    full_only : bool
        Left out of the quick profile.
    options : dict
        Keywords for the target's world where it has fixtures (the model: `mounts`, `settings`, `devices`).
    schedules : bool
        False: the order of device work cannot matter; one schedule is enough.
    """

    __test__ = False

    id: str
    body: Body
    clauses: tuple[str, ...]
    needs: frozenset[str] = frozenset()
    environment: tuple[tuple[str, str], ...] = ()
    fresh: bool = False
    full_only: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    schedules: bool = True
    seconds: float = 20.0

    @property
    def isolated(self) -> bool:
        """Must a C library run it in a process of its own?"""
        return self.fresh or bool(self.environment)


_tests: dict[str, Test] = {}


def conformance(
    *clauses: str,
    needs: str = "",
    environment: dict[str, str] | None = None,
    fresh: bool = False,
    full_only: bool = False,
    schedules: bool = True,
    seconds: float = 20.0,
    **options: Any,
) -> Callable[[Body], Body]:
    """Enter a test. `clauses` are the ids it checks; the other arguments are those of :class:`Test`.

    Raises
    ------
    ValueError
        No clause, or the id is taken.
    """
    if not clauses:
        raise ValueError("a conformance test names at least one clause")

    def enter(body: Body) -> Body:
        name = body.__module__.rpartition(".")[2].removeprefix("test_") + "." + body.__name__.removeprefix("test_")
        if name in _tests and _tests[name].body.__code__.co_filename != body.__code__.co_filename:
            raise ValueError(f"two tests are called {name!r}")
        _tests[name] = Test(
            name,
            body,
            clauses,
            frozenset(needs.split()),
            tuple(sorted((environment or {}).items())),
            fresh,
            full_only,
            tuple(sorted(options.items())),
            schedules,
            seconds,
        )
        return body

    return enter


@cache
def all_tests() -> tuple[Test, ...]:
    """Every test, by module and then as written."""
    package = import_module("hipfile_conformance.suite")
    for module in sorted(info.name for info in iter_modules(package.__path__)):
        if module.startswith("test_"):
            import_module(f"hipfile_conformance.suite.{module}")
    return tuple(_tests.values())


def find(test_id: str) -> Test:
    """The test with this id.

    Raises
    ------
    KeyError
        There is none.
    """
    all_tests()
    return _tests[test_id]


@cache
def _by_clause() -> dict[str, tuple[Test, ...]]:
    found: dict[str, list[Test]] = {}
    for test in all_tests():
        for clause in test.clauses:
            found.setdefault(clause, []).append(test)
    return {clause: tuple(tests) for clause, tests in found.items()}


def tests_of_clause(clause_id: str) -> tuple[Test, ...]:
    """Tests that name a clause."""
    return _by_clause().get(clause_id, ())
