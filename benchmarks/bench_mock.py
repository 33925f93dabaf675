"""What the doubles add to a test session."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack

from harness import Figure, benchmark, best, child_cpu


def _seconds(program: str, repeat: int) -> float:
    return min(child_cpu([sys.executable, "-c", program]) for _ in range(repeat))


@benchmark("import-mock", ("<=", 1.5))
def import_mock(quick: bool) -> Figure:
    """CPU time of ``import hipfile_mock`` against ``import numpy``, each in a fresh interpreter, start-up taken off."""
    repeat = 5 if quick else 15
    empty = _seconds("pass", repeat)
    mock, numpy = _seconds("import hipfile_mock", repeat) - empty, _seconds("import numpy", repeat) - empty
    return Figure(mock / numpy, detail={"mock ms": f"{mock * 1e3:.1f}", "numpy ms": f"{numpy * 1e3:.1f}"})


@benchmark("fake-setup", ("<=", 2.0))
def fake_setup(quick: bool) -> Figure:
    """Entering and leaving ``fake()`` without torch."""
    import hipfile_mock

    rounds = 20 if quick else 100

    def use() -> None:
        for _ in range(rounds):
            with hipfile_mock.fake(faces=["hipfile"]):
                pass

    use()
    return Figure(best(use, 5) / rounds * 1e3, "ms")


def _hundred(path: str, registered: bool) -> float:
    """Seconds of a test that submits and completes 100 reads through the ``hipfile`` package."""
    import hipfile_mock

    start = time.perf_counter()
    with hipfile_mock.fake(faces=["hipfile"]) as session, ExitStack() as stack:
        import hipfile

        hip = session.machine.hip
        memory, stream = hip.hipMalloc(4096)[1], hip.hipStreamCreate()[1]
        stack.callback(hip.hipFree, memory)
        stack.callback(hip.hipStreamDestroy, stream)
        buffer = stack.enter_context(hipfile.Buffer(memory, 4096, 0))
        handle = stack.enter_context(hipfile.FileHandle(path, os.O_RDONLY))
        if registered:
            stack.enter_context(hipfile.Stream(stream))
        reads = [handle.read_async(buffer, 4096, 0, 0, stream) for _ in range(100)]
        hip.hipStreamSynchronize(stream)
        assert all(read.bytes_done == 4096 for read in reads)
    return time.perf_counter() - start


def _best_hundred(quick: bool, registered: bool) -> Figure:
    with tempfile.NamedTemporaryFile(dir=".") as file:
        file.write(bytes(4096))
        file.flush()
        _hundred(file.name, registered)
        return Figure(min(_hundred(file.name, registered) for _ in range(5 if quick else 20)) * 1e3, "ms")


@benchmark("test-100-operations", ("<=", 50.0))
def hundred_operations(quick: bool) -> Figure:
    """A test with the sanitizer on that submits and completes 100 reads on a registered stream."""
    return _best_hundred(quick, True)


@benchmark("test-100-unregistered", ("<=", 50.0))
def hundred_unregistered(quick: bool) -> Figure:
    """The same on a stream that is not registered: each read has a bounce buffer of its own."""
    return _best_hundred(quick, False)


@benchmark("plugin-collect", ("<=", 20.0))
def plugin_collect(quick: bool) -> Figure:
    """CPU time that the pytest plugin adds to ``pytest --collect-only`` of an empty suite."""
    from importlib.metadata import entry_points

    names = [point.name for point in entry_points(group="pytest11") if point.value.startswith("hipfile_mock.")]
    if not names:
        raise RuntimeError("the pytest plugin is not installed, so there is nothing to measure")
    with tempfile.TemporaryDirectory() as folder:
        base = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--collect-only",
            "--rootdir",
            folder,
            "-p",
            "no:cacheprovider",
            folder,
        ]

        without = with_plugin = float("inf")
        for _ in range(5 if quick else 20):  # in turn, so that both see the same machine
            without = min(without, child_cpu([*base, "-p", f"no:{names[0]}"], cwd=folder))
            with_plugin = min(with_plugin, child_cpu(base, cwd=folder))
    return Figure((with_plugin - without) * 1e3, "ms", {"without ms": f"{without * 1e3:.0f}"})
