"""What is taken for granted of code on the host, and what a library does there by itself."""

from __future__ import annotations

import errno
import os
from ctypes import addressof, c_int64

import pytest

import hipfile_mock
from hipfile_mock import faults
from hipfile_mock.faults.injector import _injectors
from hipfile_sim.driver.codes import FileDescr
from hipfile_sim.explore import explore, explore_test, outcomes
from hipfile_sim.explore.strategies import Dpor

BYTES = 4096


class Setup:
    """Device memory, a registered file with some bytes, and two registered streams."""

    def __init__(self, machine, path, bytes_in_file, *, blocks=2):
        self.machine, self.hip, self.hipfile = machine, machine.hip, machine.hipfile
        self.device = self.hip.hipMalloc(BYTES * blocks)[1]
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, bytes([7]) * bytes_in_file, 0)
        self.hipfile.hipFileDriverOpen()
        self.handle = self.hipfile.hipFileHandleRegister(FileDescr(1, self.fd))[1]
        self.hipfile.hipFileBufRegister(self.device, BYTES * blocks, 0)
        self.streams = [self.hip.hipStreamCreateWithFlags(1)[1] for _ in range(2)]
        for stream in self.streams:
            self.hipfile.hipFileStreamRegister(stream, 7)
        self.slots = []

    def submit(self, call, stream, file_offset=0, buffer_offset=0, size=BYTES):
        """One operation; its slots."""
        slots = (c_int64 * 4)(size, file_offset, buffer_offset, -77)
        self.slots.append(slots)
        at = addressof(slots)
        status = call(self.handle, self.device, at, at + 8, at + 16, at + 24, self.streams[stream])
        assert not status.err
        return slots

    def results(self):
        """Of everything, once it is complete."""
        self.hip.hipDeviceSynchronize()
        os.close(self.fd)
        return tuple(slots[3] for slots in self.slots)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


HOSTS = pytest.mark.parametrize("host", ["opaque", "announced"])


@HOSTS
def test_a_read_at_the_end_of_a_file_races_with_a_write_that_makes_it_longer(host, path):
    def body(machine):
        setup = Setup(machine, path, 0)
        setup.submit(setup.hipfile.hipFileReadAsync, 0)
        setup.submit(setup.hipfile.hipFileWriteAsync, 1, buffer_offset=BYTES)
        return setup.results()

    assert outcomes(body, host=host) == {(0, BYTES), (BYTES, BYTES)}


@HOSTS
@pytest.mark.parametrize("profile", ["0.5", "cufile"])
def test_a_synchronous_read_races_with_a_stream_that_writes_the_file(host, profile, path):
    def body(machine):
        setup = Setup(machine, path, BYTES)
        setup.submit(setup.hipfile.hipFileWriteAsync, 0, file_offset=BYTES)
        count = setup.hipfile.hipFileRead(setup.handle, setup.device, 2 * BYTES, 0, 0).count
        setup.results()
        return count

    assert outcomes(body, host=host, profile=profile) == {BYTES, 2 * BYTES}


@HOSTS
def test_a_synchronous_read_that_asks_no_stream_races_with_a_kernel(host, path):
    def body(machine):
        setup = Setup(machine, path, BYTES)
        view = machine.memory.view(setup.device, 1)

        def kernel():
            view[0] = view[0] * 2 % 256

        setup.hip.launch(setup.streams[0], kernel, reads=[(setup.device, 1)], writes=[(setup.device, 1)])
        setup.hipfile.hipFileRead(setup.handle, setup.device, BYTES, 0, 0)
        setup.results()
        return view[0]

    assert outcomes(body, host=host, profile="cufile") == {7, 14}


@HOSTS
def test_a_fault_that_counts_makes_the_order_of_independent_operations_matter(host, path):
    seen = set()

    def test(hipfile_fake):
        setup = Setup(hipfile_fake.machine, path, 2 * BYTES)
        for number in range(2):
            setup.submit(setup.hipfile.hipFileWriteAsync, number, number * BYTES, number * BYTES)
        seen.add(setup.results())

    def fake(schedule):
        rule = faults.on("pwrite", nth=2, kind="async").errno(errno.EIO)
        return hipfile_mock.fake(schedule=schedule, strict=None, faces=[], faults=[rule])

    assert explore_test(test, {}, None, fake=fake, host=host).check().complete
    assert seen == {(-1, BYTES), (BYTES, -1)}


def test_a_machine_is_not_kept_by_the_faults_it_had():
    before = len(_injectors)
    for _ in range(3):
        with hipfile_mock.fake(faces=[], strict=None, faults=[faults.on("pread", optional=True).errno(5)]):
            assert len(_injectors) == before + 1
        assert len(_injectors) == before


@HOSTS
def test_whether_a_buffer_is_in_use_depends_on_the_operation(host, path):
    def body(machine):
        setup = Setup(machine, path, BYTES)
        setup.submit(setup.hipfile.hipFileReadAsync, 0)
        code = setup.hipfile.hipFileBufDeregister(setup.device).err
        setup.results()
        return int(code)

    assert outcomes(body, host=host) == {0, 5030}


@HOSTS
def test_a_kernel_that_raises_can_fail_any_later_call(host):
    def body(machine):
        hip = machine.hip
        device, stream = hip.hipMalloc(4)[1], hip.hipStreamCreateWithFlags(1)[1]
        reached = []

        def kernel():
            raise ValueError

        hip.launch(stream, kernel, writes=[(device, 4)])
        try:
            for number in range(3):
                hip.hipGetLastError()
                reached.append(number)
            hip.hipDeviceSynchronize()
        except Exception:
            raise KeyError(len(reached)) from None

    found = explore(body, host=host, keep_going=True, explain=False)
    assert {outcome[2] for outcome in found.outcomes} == {
        outcome[2] for outcome in explore(body, strategy="all", keep_going=True, explain=False).outcomes
    }


# -- handles of the doubles -------------------------------------------------------------------------------------------


def fake(schedule):
    return hipfile_mock.fake(schedule=schedule, strict=None, faces=["hipfile"])


def reads(path, operations, seen, *, wait=True):
    """A test with some reads on one stream, that looks at their results."""
    path.write_bytes(bytes(operations * BYTES))

    def test(hipfile_fake):
        import hipfile

        hip = hipfile_fake.hip
        memory, stream = hip.hipMalloc(operations * BYTES)[1], hip.hipStreamCreateWithFlags(1)[1]
        with (
            hipfile.Buffer(memory, operations * BYTES, 0) as buffer,
            hipfile.FileHandle(path, os.O_RDONLY) as file,
        ):
            handles = [
                file.read_async(buffer, BYTES, number * BYTES, number * BYTES, stream) for number in range(operations)
            ]
            if wait:
                hip.hipStreamSynchronize(stream)
            seen.add(tuple(handle.bytes_done for handle in handles))
            hip.hipStreamSynchronize(stream)

    return test


@HOSTS
def test_an_early_look_at_a_handle_is_found(host, path):
    seen = set()
    found = explore_test(reads(path, 2, seen, wait=False), {}, None, fake=fake, host=host)
    assert found.complete
    assert seen == {(0, 0), (0, BYTES), (BYTES, 0), (BYTES, BYTES)}


def test_reads_that_are_waited_for_have_few_orders_by_default(path):
    seen = set()
    found = explore_test(reads(path, 3, seen), {}, 100, fake=fake)
    assert found.complete
    assert found.runs < 20  # 140 with slots that anybody could look at
    assert seen == {(BYTES,) * 3}


def test_and_one_where_the_host_announces_what_it_looks_at(path):
    seen = set()
    found = explore_test(reads(path, 6, seen), {}, 100, fake=fake, host="announced")
    assert found.complete
    assert found.runs == 1
    assert found.coverage.startswith("all ")
    assert found.coverage.endswith(" orders, 1 after reduction, if host code looks only where it announces")
    assert seen == {(BYTES,) * 6}


# -- what is said -----------------------------------------------------------------------------------------------------


def unannounced(machine):
    """Looks at pinned memory without a word while a stream writes it."""
    hip = machine.hip
    pinned, stream = hip.hipHostMalloc(1)[1], hip.hipStreamCreateWithFlags(1)[1]
    view = machine.memory.view(pinned, 1)
    hip.hipMemsetAsync(pinned, 7, 1, stream)
    found = view[0]
    hip.hipStreamSynchronize(stream)
    return found


def announced(machine):
    """The same, with a word."""
    hip = machine.hip
    pinned, stream = hip.hipHostMalloc(1)[1], hip.hipStreamCreateWithFlags(1)[1]
    view = machine.memory.view(pinned, 1)
    hip.hipMemsetAsync(pinned, 7, 1, stream)
    machine.host_access(pinned, 1, write=False, what="look")
    found = view[0]
    hip.hipStreamSynchronize(stream)
    return found


def test_only_what_is_announced_counts_and_the_coverage_says_that():
    assert outcomes(unannounced) == outcomes(announced) == outcomes(announced, host="announced") == {0, 7}
    trusting = explore(unannounced, host="announced")
    assert len(trusting.outcomes) == 1
    assert trusting.coverage.endswith("if host code looks only where it announces")
    assert "announces" not in explore(unannounced).coverage
    assert "announces" not in explore(unannounced, strategy="all", host="announced").coverage


def test_a_host_that_is_neither(tmp_path):
    with pytest.raises(ValueError, match="host is 'blind': choose one of opaque, announced"):
        explore(announced, host="blind")
    explore(announced, schedules=1, resume=tmp_path / "search")
    with pytest.raises(ValueError, match="takes host code for opaque, this search for announced"):
        explore(announced, host="announced", resume=tmp_path / "search")


def test_host_functions_may_look_at_anything_all_the_same():
    def body(machine):
        hip = machine.hip
        pinned = hip.hipHostMalloc(1)[1]
        view = machine.memory.view(pinned, 1)
        one, two = (hip.hipStreamCreateWithFlags(1)[1] for _ in range(2))
        seen = []
        hip.hipMemsetAsync(pinned, 7, 1, one)
        hip.hipLaunchHostFunc(two, lambda _: seen.append(view[0]))
        hip.hipGetLastError()
        early = len(seen)
        hip.hipDeviceSynchronize()
        return early, *seen

    assert outcomes(body, host="announced") == {(0, 0), (0, 7), (1, 0), (1, 7)}


def test_a_shard_without_any_order_does_not_speak_of_failures():
    parts = [explore(announced, shard=(number, 64)) for number in range(64)]
    assert all(part.complete and part.ok for part in parts)
    empty = [part for part in parts if not part.runs]
    assert empty
    assert not any("failure" in part.coverage for part in empty)
    plan = Dpor(shard=(3, 64))
    plan.exhausted = True  # and every run was another shard's
    assert plan.coverage(0) == "shard 3/64 of all orders: none is left for it"


def test_large_numbers_of_orders_are_rounded():
    def body(machine):
        hip = machine.hip
        device = hip.hipMalloc(8)[1]
        for _ in range(4):
            stream = hip.hipStreamCreateWithFlags(1)[1]
            for _ in range(6):
                hip.hipMemsetAsync(device, 1, 8, stream)

    found = explore(body, schedules=1)
    assert found.orders >= 10**15
    assert found.coverage == f"1 schedules of over 10^{len(str(found.orders)) - 1} orders, the rest not covered"
