"""Targets: what is there, what refuses, and how workers that crash or hang are survived."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from hipfile_conformance.results import State
from hipfile_conformance.runner import Plan, run_conformance
from hipfile_conformance.suite import registry
from hipfile_conformance.targets import available, make_target
from hipfile_conformance.targets.abi import AbiTarget, RocmTarget
from hipfile_conformance.targets.base import Target, Unavailable, Unsupported
from hipfile_conformance.targets.sim import SimTarget

pytestmark = pytest.mark.timeout(900)


def native() -> Path:
    from hipfile_sim.native.prefix import NativeUnavailable, libraries

    try:
        return libraries()
    except NativeUnavailable as error:
        pytest.skip(str(error))


def test_rocm_refuses_a_stub(tmp_path: Path) -> None:
    root = tmp_path / "rocm"
    (root / "lib").mkdir(parents=True)
    folder = native()
    for name in ("libamdhip64.so.7", "libhipfile.so.0"):
        (root / "lib" / name).symlink_to(folder / name)
    # in a process of its own: the libraries stay loaded
    import subprocess
    import sys

    program = (
        "from hipfile_conformance.targets.abi import RocmTarget\n"
        "from hipfile_conformance.targets.base import Unavailable\n"
        f"try: RocmTarget({str(tmp_path)!r}, {str(root)!r})\n"
        "except Unavailable as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=500)
    assert "emulated library" in done.stdout


def test_rocm_and_cufile_say_what_is_missing(tmp_path: Path) -> None:
    for name in ("rocm", "cufile"):
        if name in available(tmp_path):
            pytest.skip(f"{name} is really here")
        with pytest.raises(Unavailable, match=r"no library could be loaded|not there|no .* GPU|emulated library"):
            make_target(name, tmp_path)


def test_abi_refuses_a_folder_without_libraries(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no library could be loaded"):
        AbiTarget(tmp_path, tmp_path)


def test_rocm_is_the_code_of_abi() -> None:
    own = {name for name in vars(RocmTarget) if callable(vars(RocmTarget)[name]) and not name.startswith("__")}
    assert own == set(), "only the libraries may differ"


def test_unknown_target(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no target 'nonsense'"):
        make_target("nonsense", tmp_path)


def test_abi_runs_in_workers() -> None:
    native()
    column = run_conformance("abi", plan=Plan(only=["stream.register", "stream.deregister"], jobs=1))
    assert {result.state for result in column.tests} <= {State.PASS, State.UNSUPPORTED}
    assert any(result.state is State.PASS for result in column.tests)


class Third(SimTarget):
    """A third party's target: the model with a fault."""

    name = "third"

    def call(self, name: str, *args: Any) -> Any:
        if name == "hipFileStreamDeregister":
            return (0, 0)
        return super().call(name, *args)


def third(directory: Path) -> Target:
    return Third(directory)


def dies(directory: Path) -> Target:
    class Dies(SimTarget):
        def call(self, name: str, *args: Any) -> Any:
            if name == "hipFileStreamRegister":
                os.kill(os.getpid(), signal.SIGKILL)
            return super().call(name, *args)

    return Dies(directory)


def hangs(directory: Path) -> Target:
    class Hangs(SimTarget):
        def call(self, name: str, *args: Any) -> Any:
            if name == "hipFileStreamRegister":
                time.sleep(1000)
            return super().call(name, *args)

    return Hangs(directory)


def test_a_third_party_is_judged(tmp_path: Path) -> None:
    column = run_conformance(lambda: Third(tmp_path), only=["stream.deregister.unknown"])
    assert any(result.state is State.FAIL for result in column.tests)
    good = run_conformance(lambda: SimTarget(tmp_path), only=["stream.deregister.unknown"])
    assert all(result.state is State.PASS for result in good.tests)


def test_an_object_is_not_used_for_isolated_tests(tmp_path: Path) -> None:
    column = run_conformance(SimTarget(tmp_path), only=["life.untouched"])
    assert [result.state for result in column.tests] == [State.NOT_RUN]


def test_a_worker_that_dies_is_a_failed_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    column = run_conformance("test_targets:dies", plan=Plan(only=["stream.register", "hip.free.null"]))
    by_test = {result.test: result for result in column.tests}
    assert "signal 9" in by_test["stream.register"].message
    assert by_test["hip.free"].state is State.PASS, "the next test runs in a new worker"


def test_a_worker_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    from dataclasses import replace

    test = registry.find("stream.register")
    monkeypatch.setattr("hipfile_conformance.runner.MARGIN_S", 1.0)
    monkeypatch.setattr(Plan, "tests", lambda self: [replace(test, seconds=1.0)])
    column = run_conformance("test_targets:hangs")
    assert "in time" in column.tests[0].message


def test_a_clean_up_that_fails_is_a_failure(tmp_path: Path) -> None:
    class Sticky(SimTarget):
        def __init__(self, directory: Path) -> None:
            super().__init__(directory)
            self.capabilities -= {"model"}  # so that what a test made is given back

        def call(self, name: str, *args: Any) -> Any:
            if name == "hipEventDestroy":
                raise RuntimeError("the event stays")
            return super().call(name, *args)

    column = run_conformance(lambda: Sticky(tmp_path), plan=Plan(exactly=["hip.events"]))
    [result] = column.tests
    assert result.state is State.FAIL
    assert "clean-up: RuntimeError('the event stays')" in result.message


def test_unsupported_is_not_a_failure(tmp_path: Path) -> None:
    class Poor(SimTarget):
        def call(self, name: str, *args: Any) -> Any:
            raise Unsupported(f"there is no {name}")

    column = run_conformance(lambda: Poor(tmp_path), only=["hip.free.null"])
    assert [result.state for result in column.tests] == [State.UNSUPPORTED]
