"""`fake` as context manager and decorator, its keywords, and what strict means."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import sys
import threading
import unittest
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import hipfile_mock
from hipfile_mock import current, fake, faults
from hipfile_mock.fake import DEFAULTS
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.observe.observer import Observer
from hipfile_sim.observe.sanitizer import Policy, SanitizerError


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    yield
    assert current.depth() == 0
    assert "hipfile" not in sys.modules
    with pytest.raises(hipfile_mock.NoMachineError):
        hipfile_mock.session()


# -- four forms ------------------------------------------------------------------------------------------


def test_context_manager_gives_a_fresh_machine_each_time() -> None:
    again = fake(devices=3)
    with again as one:
        assert one.hip.hipGetDeviceCount() == (0, 3)
        one.hipfile.hipFileDriverOpen()
    with again as two:
        assert two.machine is not one.machine
        assert two.hipfile.hipFileUseCount() == 0
    with again as outer, again as inner:
        assert inner.machine is not outer.machine
        assert hipfile_mock.session() is inner


def test_decorated_function_keeps_its_name_and_parameters() -> None:
    @fake(schedule="lazy")
    def body(a: int, *, b: int = 2) -> tuple[int, str]:
        """Words."""
        return a + b, str(current.get().engine.schedule)

    assert body(1) == (3, "lazy")
    assert body.__name__ == "body"
    assert body.__doc__ == "Words."
    assert list(inspect.signature(body).parameters) == ["a", "b"]


def test_decorator_without_parentheses() -> None:
    @fake
    def body() -> int:
        return current.depth()

    assert body() == 1


def test_decorated_function_that_raises() -> None:
    @fake()
    def body() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        body()


def test_coroutine_function() -> None:
    machines = []

    @fake()
    async def body() -> int:
        await asyncio.sleep(0)
        machines.append(current.get())
        return 7

    assert inspect.iscoroutinefunction(body)
    assert asyncio.run(body()) == 7
    assert asyncio.run(body()) == 7
    assert machines[0] is not machines[1]


def test_two_coroutines_at_once_are_refused_and_leave_nothing() -> None:
    @fake(strict=None)
    async def body(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    async def both() -> list[Any]:
        return await asyncio.gather(body(1), body(3), return_exceptions=True)

    results = asyncio.run(both())
    assert any(isinstance(result, hipfile_mock.CurrentMachineError) for result in results)


def test_generator_functions() -> None:
    @fake()
    def numbers() -> Iterator[int]:
        yield current.depth()
        yield current.depth()

    @fake()
    async def later() -> AsyncIterator[int]:
        yield current.depth()

    assert list(numbers()) == [1, 1]

    async def collect() -> list[int]:
        return [item async for item in later()]

    assert asyncio.run(collect()) == [1]


def test_class_of_tests() -> None:
    @fake(devices=1)
    class TestThings:
        def test_one(self) -> int:
            return int(current.get().hip.hipGetDeviceCount()[1])

        def helper(self) -> int:
            return current.depth()

    assert TestThings().test_one() == 1
    assert TestThings().helper() == 0


def test_unittest_case_has_setup_and_cleanup_inside() -> None:
    @fake()
    class Case(unittest.TestCase):
        def setUp(self) -> None:
            import hipfile

            self.driver = hipfile.Driver()
            self.driver.open()

        def tearDown(self) -> None:
            self.driver.close()

        def test_open(self) -> None:
            assert self.driver.use_count() == 1

        def test_again(self) -> None:
            assert self.driver.use_count() == 1

        def test_fails_strictly(self) -> None:
            import hipfile

            self.leak = hipfile.Stream(0)
            self.leak.register()

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert result.testsRun == 3
    assert not result.errors
    assert [case.id().rpartition(".")[2] for case, _ in result.failures] == ["test_fails_strictly"]


def test_from_another_thread_while_in_use() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            with fake():
                pass
        except hipfile_mock.CurrentMachineError as error:
            caught.append(error)

    with fake() as session:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert current.get() is session.machine
    assert len(caught) == 1


def test_a_worker_thread_sees_the_machine() -> None:
    with fake() as session:
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(current.get()))
        thread.start()
        thread.join()
        assert seen == [session.machine]


# -- keywords --------------------------------------------------------------------------------------------


def test_keywords_of_the_wrong_kind() -> None:
    with pytest.raises(TypeError, match=r"is one fault; give a list of them"):
        fake(faults=faults.on("pwrite").errno(5))
    with pytest.raises(TypeError, match=r"HIPFILE_STATS_LEVEL.*is 2; variables are text, so write '2'"):
        fake(env={"HIPFILE_STATS_LEVEL": 2}).__enter__()


def test_unknown_keyword_lists_the_known_ones() -> None:
    with pytest.raises(TypeError, match=r"no keyword 'scedule'; did you mean schedule. It has .*schedule"):
        fake(scedule="lazy")


@pytest.mark.parametrize(
    "wrong", [{"profile": "9.9"}, {"schedule": "fast"}, {"devices": -1}, {"engine": "gpu"}, {"filesystem": "fat32"}]
)
def test_wrong_value_is_said_at_entry_and_nothing_stays(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError)), fake(**wrong):
        pass


def test_env_is_the_library_s_environment(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(4096))
    off = {"HIPFILE_ALLOW_COMPAT_MODE": "false"}
    with fake(env=off) as session:
        import hipfile
        from hipfile.hipMalloc import hipMalloc

        pointer = hipMalloc(4096)
        memory = hipfile.Buffer(pointer.value, 4096, 0)
        with (
            hipfile.Driver(),
            hipfile.FileHandle(path, os.O_RDONLY) as file,
            pytest.raises(hipfile.HipFileException, match="5030"),
        ):
            file.read(memory, 4096, 0, 0)
        assert session.profile.name == "0.5"


def test_settings_and_engine() -> None:
    with fake(settings=HipSettings(device_memory=1 << 20), engine="threads") as session:
        assert session.hip.hipMemGetInfo()[2] == 1 << 20
        assert session.engine.threaded


def test_defaults_of_a_runner() -> None:
    DEFAULTS["profile"] = "0.3"
    try:
        with fake() as session:
            assert session.profile.name == "0.3"
        with fake("0.4") as session:
            assert session.profile.name == "0.4"
    finally:
        DEFAULTS.clear()


def test_token_reproduces_a_run() -> None:
    def body(session: hipfile_mock.Session) -> list[int]:
        hip = session.hip
        streams = [hip.hipStreamCreate()[1] for _ in range(3)]
        order: list[int] = []
        for number, stream in enumerate(streams):
            hip.launch(stream, lambda number=number: order.append(number))
            hip.hipStreamQuery(stream)
        hip.hipDeviceSynchronize()
        return order

    with fake(schedule="seeded:7", strict=False) as session:
        first, token = body(session), session.token()
    with fake(schedule=token, strict=False) as session:
        assert body(session) == first


def test_stall_is_public() -> None:
    with fake(strict=False) as session:
        hip = session.hip
        _, slow = hip.hipStreamCreate()
        _, quick = hip.hipStreamCreate()
        order: list[str] = []
        session.stall(slow)
        hip.launch(slow, lambda: order.append("slow"))
        hip.launch(quick, lambda: order.append("quick"))
        hip.hipDeviceSynchronize()
        assert order == ["quick", "slow"]
        session.unstall(slow)


def test_trace_is_written_even_when_the_body_raises(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"

    @fake(trace=path)
    def body() -> None:
        current.get().hip.hipMalloc(16)
        raise KeyError

    with pytest.raises(KeyError):
        body()
    assert any(event.get("name") == "hipMalloc" for event in json.loads(path.read_text())["traceEvents"])


def test_observers_are_told() -> None:
    class Calls(Observer):
        def __init__(self) -> None:
            self.names: list[str] = []

        def call(self, call: Any) -> None:
            self.names.append(call.name)

    calls = Calls()
    with fake(observers=[calls], strict=None, faces=("hipfile",)):
        import hipfile

        hipfile.get_version()
    assert calls.names == ["hipFileGetVersion"], "the face itself makes no calls"


class Rule:
    def __init__(self, fires: bool) -> None:
        self.fires = fires
        self.machine: Any = None
        self.log: list[str] = []

    def attach(self, machine: Any) -> None:
        self.machine = machine
        self.log.append("attach")

    def detach(self) -> None:
        self.log.append("detach")
        if not self.fires:
            raise AssertionError("the rule never fired")


def test_faults_are_attached_and_must_fire() -> None:
    good, bad = Rule(True), Rule(False)
    with fake(faults=[good]) as session:
        assert good.machine is session.machine
    assert good.log == ["attach", "detach"]
    with pytest.raises(AssertionError, match="never fired"), fake(faults=[bad]):
        pass
    with pytest.raises(KeyError) as caught, fake(faults=[bad]):
        raise KeyError("first")
    assert caught.value.__notes__ == ["the rule never fired"]


# -- strict ----------------------------------------------------------------------------------------------


def early_read(session: hipfile_mock.Session, path: Path) -> int:
    import hipfile
    from hipfile.hipMalloc import hipFree, hipMalloc

    pointer = hipMalloc(4096)
    _, stream = session.hip.hipStreamCreate()
    with hipfile.FileHandle(path, os.O_RDONLY) as file, hipfile.Buffer(pointer.value, 4096, 0) as memory:
        io = file.read_async(memory, 4096, 0, 0, stream)
        seen = io.bytes_done
        session.hip.hipStreamSynchronize(stream)
        assert io.bytes_done == 4096
    hipFree(pointer)
    session.hip.hipStreamDestroy(stream)
    return int(seen)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "f"
    made.write_bytes(bytes(4096))
    return made


def test_strict_by_default(path: Path) -> None:
    with pytest.raises(SanitizerError, match=r"result\.early-read") as caught, fake() as session:
        early_read(session, path)
    assert isinstance(caught.value, AssertionError)
    assert [finding.id for finding in caught.value.findings] == ["result.early-read"]
    assert any(site.filename == __file__ for site in caught.value.findings[0].sites)


def test_not_strict_only_collects(path: Path) -> None:
    with fake(strict=False) as session:
        early_read(session, path)
    assert [finding.id for finding in session.sanitizer.errors] == ["result.early-read"]
    assert "result.early-read" in session.report()


def test_a_policy_decides(path: Path) -> None:
    with fake(strict="result.*=warn") as session:
        early_read(session, path)
    with fake(strict=Policy({"result.*": "off"})) as session:
        early_read(session, path)
        assert session.report()
    with fake(strict=None) as session:
        early_read(session, path)
        assert session.sanitizer is None


def test_what_is_left_over_of_hipfile_is_an_error(path: Path) -> None:
    files = []

    @fake()
    def body() -> None:
        import hipfile

        files.append(hipfile.FileHandle(path, os.O_RDONLY))
        files[0].open()

    with pytest.raises(SanitizerError, match=r"leak\.handle"):
        body()
    files[0].close()


def test_dropped_handle_is_reported(path: Path) -> None:
    @fake(schedule="lazy")
    def body() -> None:
        import hipfile
        from hipfile.hipMalloc import hipMalloc

        pointer, hip = hipMalloc(4096), current.get().hip
        _, stream = hip.hipStreamCreate()
        with hipfile.FileHandle(path, os.O_RDONLY) as file:
            file.read_async(hipfile.Buffer(pointer.value, 4096, 0), 4096, 0, 0, stream)
            gc.collect()
            hip.hipStreamSynchronize(stream)

    with pytest.raises(SanitizerError, match=r"slot\.owner-collected"):
        body()


def test_handle_kept_to_the_end_is_fine(path: Path) -> None:
    with fake(schedule="lazy") as session:
        import hipfile
        from hipfile.hipMalloc import hipMalloc

        pointer = hipMalloc(4096)
        _, stream = session.hip.hipStreamCreate()
        with hipfile.FileHandle(path, os.O_RDONLY) as file:
            io = file.read_async(hipfile.Buffer(pointer.value, 4096, 0), 4096, 0, 0, stream)
            session.hip.hipStreamSynchronize(stream)
            assert io.bytes_done == 4096
            del io
            gc.collect()


def test_the_body_s_own_error_comes_first(path: Path) -> None:
    @fake()
    def body() -> None:
        import hipfile

        early_read(hipfile_mock.session(), path)
        hipfile.FileHandle(path, os.O_RDONLY).open()
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        body()
    assert len(caught.value.__notes__) == 1
    assert "result.early-read" in caught.value.__notes__[0]
    assert "leak." not in caught.value.__notes__[0]


# -- cost ------------------------------------------------------------------------------------------------


def test_import_loads_nothing_heavy() -> None:
    import subprocess

    code = "import sys, hipfile_mock; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("numpy", "torch", "pytest", "pyfakefs", "ctypes", "hipfile_sim"):
        assert f"'{heavy}'" not in loaded


def test_entry_and_exit_cost_little(count_calls: Any) -> None:
    """Ten thousand calls are some 2 ms; the time itself is measured in benchmarks/."""

    def body() -> None:
        with fake(faces=("hipfile", "hip_python")):  # torch, once imported, takes its own time
            import hipfile

            hipfile.get_version()

    body()
    assert count_calls(body) < 10_000


def test_a_hundred_operations_cost_little(path: Path, count_calls: Any) -> None:
    """200,000 calls are some 50 ms; the time itself is measured in benchmarks/."""

    def body() -> None:
        with fake(faces=("hipfile",)) as session:
            import hipfile
            from hipfile.hipMalloc import hipMalloc

            pointer = hipMalloc(4096)
            _, stream = session.hip.hipStreamCreate()
            with (
                hipfile.FileHandle(path, os.O_RDONLY) as file,
                hipfile.Buffer(pointer.value, 4096, 0) as memory,
                hipfile.Stream(stream),
            ):
                pending = [file.read_async(memory, 4096, 0, 0, stream) for _ in range(100)]
                session.hip.hipStreamSynchronize(stream)
                assert all(io.bytes_done == 4096 for io in pending)

    body()
    assert count_calls(body) < 200_000
