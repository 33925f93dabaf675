"""What a benchmark is: a function that returns one figure, with the limit that it must hold."""

from __future__ import annotations

import importlib
import resource
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Figure:
    """A measured value; ratios have the unit "x"."""

    value: float
    unit: str = "x"
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: `limit` is ``("<=", 60.0)`` or ``(">=", 0.8)``."""

    name: str
    about: str
    limit: tuple[str, float]
    function: Callable[[bool], Figure]

    def holds(self, value: float) -> bool:
        """Whether a value keeps the limit."""
        operator, bound = self.limit
        return value <= bound if operator == "<=" else value >= bound


REGISTRY: dict[str, Benchmark] = {}


def benchmark(name: str, limit: tuple[str, float]) -> Callable[[Callable[[bool], Figure]], Callable[[bool], Figure]]:
    """Register a function that says in its docstring what it measures; it gets True when a quick figure is wanted."""

    def register(function: Callable[[bool], Figure]) -> Callable[[bool], Figure]:
        about = (function.__doc__ or "").strip().splitlines()[0]
        REGISTRY[name] = Benchmark(name, about, limit, function)
        return function

    return register


def load_all() -> dict[str, Benchmark]:
    """Import every ``bench_*.py`` beside this file."""
    for path in sorted(HERE.glob("bench_*.py")):
        importlib.import_module(path.stem)
    return REGISTRY


def best(function: Callable[[], Any], repeat: int = 5) -> float:
    """Seconds of the fastest of `repeat` calls."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def child_cpu(command: list[str], **options: Any) -> float:
    """CPU seconds of a child process: unlike wall time, hardly disturbed by what else runs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rss() -> int:
    """Bytes of memory of this process that are resident."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
