"""What a test runner needs: one test function, many schedules, a fresh fake for each."""

from __future__ import annotations

import itertools
from contextlib import contextmanager

import pytest

import hipfile_mock
from hipfile_sim.explore import ExplorationError, explore_test, shard_from_xdist


def fake(schedule):
    return hipfile_mock.fake(schedule=schedule, faces=["hipfile"], strict=True)


def write_two(hipfile_fake, size):
    hip = hipfile_fake.hip
    _, pointer = hip.hipMalloc(size)
    handles = [hip.hipStreamCreateWithFlags(1)[1] for _ in range(2)]
    for value, stream in enumerate(handles, 1):
        hip.hipMemsetAsync(pointer, value, size, stream)
    return hip, pointer, handles


def test_a_test_is_run_under_each_schedule_with_a_fresh_fake():
    machines = []

    def checks(hipfile_fake, size):
        machines.append(hipfile_fake.machine)
        hip, pointer, handles = write_two(hipfile_fake, size)
        hip.hipStreamSynchronize(handles[0])
        hip.hipStreamSynchronize(handles[1])
        assert hipfile_fake.memory.view(pointer, 1)[0] == 2

    with pytest.raises(ExplorationError) as caught:
        explore_test(
            checks, {"size": 16}, 100, fake=lambda schedule: hipfile_mock.fake(schedule=schedule, strict=None)
        ).check()
    assert len({id(machine) for machine in machines}) == len(machines) > 2
    assert "hipfile_fake.memory.view(pointer, 1)[0] == 2" in str(caught.value)
    assert "race.write-write" in str(caught.value)


def test_errors_of_the_strict_fake_are_failures():
    def checks(hipfile_fake, size):
        write_two(hipfile_fake, size)[0].hipDeviceSynchronize()

    found = explore_test(checks, {"size": 16}, fake=fake)
    assert not found.ok
    assert "race.write-write" in str(found)


def test_a_right_test_passes_and_says_what_was_covered():
    def checks(hipfile_fake):
        hip = hipfile_fake.hip
        _, pointer = hip.hipHostMalloc(8)
        _, stream = hip.hipStreamCreate()
        hip.hipMemsetAsync(pointer, 7, 8, stream)
        hip.hipStreamSynchronize(stream)
        hip.hipStreamDestroy(stream)
        assert hipfile_fake.memory.view(pointer, 1)[0] == 7

    found = explore_test(checks, {}, fake=fake).check()
    assert found.complete
    assert found.coverage.startswith("all ")


def test_arguments_can_be_made_for_each_run(tmp_path):
    numbers = itertools.count()

    def checks(folder, hipfile_fake):
        write_two(hipfile_fake, 8)[0].hipDeviceSynchronize()
        assert not (folder / "left").exists()
        (folder / "left").touch()

    def arguments():
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return {"folder": folder}

    made = explore_test(checks, arguments, fake=lambda schedule: hipfile_mock.fake(schedule=schedule, strict=None))
    assert made.ok
    assert len(list(tmp_path.iterdir())) >= made.runs > 1


def test_functions_without_the_fixture_and_coroutines():
    async def checks():
        import hipfile

        assert hipfile_mock.session().hip.hipGetDeviceCount()[1] == 2
        with hipfile.Driver():
            pass

    assert explore_test(checks, {}, fake=fake).ok


def test_another_name_for_the_fixture():
    def checks(gpu):
        assert gpu.machine.hip.hipGetDeviceCount()[1] == 3

    assert explore_test(
        checks, {}, fake=lambda schedule: hipfile_mock.fake(schedule=schedule, devices=3), fixture="gpu"
    ).ok


def test_a_skip_is_passed_on():
    def checks(hipfile_fake):
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception, match="not here"):
        explore_test(checks, {}, fake=fake)


def test_a_fault_that_never_fired_fails_the_schedule():
    class Fault:
        def attach(self, machine):
            pass

        def detach(self):
            raise AssertionError("the fault never fired")

    @contextmanager
    def faulty(schedule):
        with hipfile_mock.fake(schedule=schedule, faults=[Fault()]) as session:
            yield session

    found = explore_test(lambda: None, {}, fake=faulty)
    assert "the fault never fired" in str(found.failures[0])


@pytest.mark.parametrize(
    ("environ", "shard"),
    [
        ({}, None),
        ({"PYTEST_XDIST_WORKER": "gw0", "PYTEST_XDIST_WORKER_COUNT": "2"}, (0, 2)),
        ({"PYTEST_XDIST_WORKER": "gw5", "PYTEST_XDIST_WORKER_COUNT": "4"}, (1, 4)),  # a worker that was replaced
        ({"PYTEST_XDIST_WORKER": "master", "PYTEST_XDIST_WORKER_COUNT": "4"}, None),
        ({"PYTEST_XDIST_WORKER": "gw1"}, None),
    ],
)
def test_shard_from_xdist(environ, shard):
    assert shard_from_xdist(environ) == shard
