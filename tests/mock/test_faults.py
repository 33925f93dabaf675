"""Faults: each action, each way of matching, and what is said when a rule never fires."""

from __future__ import annotations

import ctypes
import errno
import os

import pytest

from hipfile_mock import faults
from hipfile_mock.fake import fake
from hipfile_mock.faults import FaultNotFired
from hipfile_sim import Machine
from hipfile_sim.driver.codes import FileDescr

MIB = 1 << 20


class Rig:
    """A file, a buffer and a stream on a machine, and the calls that tests make."""

    def __init__(self, machine, path, size=MIB, flags=os.O_RDWR):
        self.machine = machine
        self.hip, self.hipfile = machine.hip, machine.hipfile
        if not path.exists():
            path.write_bytes(os.urandom(size))
        self.path = path
        self.fd = os.open(path, flags)
        assert self.hipfile.hipFileDriverOpen().err == 0
        status, self.handle = self.hipfile.hipFileHandleRegister(FileDescr(1, self.fd))
        assert status.err == 0
        _, self.pointer = self.hip.hipMalloc(size)
        _, self.stream = self.hip.hipStreamCreate()
        self.slots = []

    def submit(self, size, offset=0, *, write=False):
        slots = (ctypes.c_int64 * 4)(size, offset, offset, -77)
        self.slots.append(slots)
        base = ctypes.addressof(slots)
        call = self.hipfile.hipFileWriteAsync if write else self.hipfile.hipFileReadAsync
        status = call(self.handle, self.pointer, base, base + 8, base + 16, base + 24, self.stream)
        return status, slots

    def run(self, size, offset=0, *, write=False):
        status, slots = self.submit(size, offset, write=write)
        assert status.err == 0
        assert self.hip.hipStreamSynchronize(self.stream) == 0
        return slots[3]

    def device(self, size):
        return bytes(self.machine.memory.view(self.pointer, size))


@pytest.fixture
def rig(tmp_path):
    with Machine(profile="0.5", schedule="lazy", env={}) as machine:
        made = Rig(machine, tmp_path / "data.kv")
        yield made
        os.close(made.fd)


@pytest.fixture
def inject(rig):
    attached = []

    def inject(*rules):
        for rule in rules:
            rule.attach(rig.machine)
            attached.append(rule)
        return rules[0]

    yield inject
    for rule in attached:
        rule.detach()


def test_a_sequence_of_outcomes_is_seen_as_the_kernel_would_give_it(rig, inject):
    rig.hip.hipMemset(rig.pointer, 0xEE, MIB)
    inject(faults.on("pread").returns(4096, -errno.EINTR, 100, 0))
    assert rig.run(16384) == 4196
    assert rig.device(4196) == rig.path.read_bytes()[:4196]
    assert set(rig.device(16384)[4196:]) == {0xEE}


def test_errno_at_the_nth_write_loses_the_errno_for_the_async_caller(rig, inject):
    inject(faults.on("pwrite", nth=2).errno(errno.EIO))
    assert rig.run(4096, write=True) == 4096
    assert rig.run(4096, write=True) == -1
    assert rig.run(4096, write=True) == 4096


def test_errno_of_a_synchronous_call(rig, inject):
    inject(faults.on("pread", kind="sync").errno("EIO"))
    assert rig.hipfile.hipFileRead(rig.handle, rig.pointer, 4096, 0, 0) == (-1, errno.EIO)
    assert rig.hipfile.hipFileRead(rig.handle, rig.pointer, 4096, 0, 0).count == 4096


def test_eintr_bursts_are_ridden_out(rig, inject):
    rule = inject(faults.on("pread").eintr(times=5))
    assert rig.run(4096) == 4096
    assert rule.fired == 5


def test_partial_transfers_are_repeated_and_short_ones_end(rig, inject):
    inject(faults.on("pread").partial(1000))
    assert rig.run(4096) == 4096


def test_short_writes_by_fraction(rig, inject):
    inject(faults.on("pwrite", nth=2).short(fraction=0.6))
    assert rig.run(10_000, write=True) == 10_000
    assert rig.run(10_000, write=True) == 6_000


def test_a_late_result_of_any_value(rig, inject):
    inject(
        faults.on("read", nth=1).result(-5022), faults.on("read", nth=2).result(-1), faults.on("read", nth=3).result(-5)
    )
    assert [rig.run(64) for _ in range(4)] == [-5022, -1, -5, 64]


def test_results_by_range(rig, inject):
    inject(faults.on("read", within=(8192, 8193)).result(-5))
    assert rig.run(4096, 0) == 4096
    assert rig.run(4096, 8192) == -5


def test_results_by_stream(rig, inject):
    _, other = rig.hip.hipStreamCreate()
    inject(faults.on("read", stream=other).result(-5))
    assert rig.run(64) == 64
    rig.stream = other
    assert rig.run(64) == -5


def test_paths(tmp_path, rig, inject):
    inject(faults.on("pread", path="*.other", optional=True).errno(errno.EIO))
    assert rig.run(64) == 64


def test_queue_limit(rig, inject):
    inject(faults.queue_limit(3))
    slots = [rig.submit(64, 64 * number)[1] for number in range(4)]
    rig.hip.hipStreamSynchronize(rig.stream)
    assert [slot[3] for slot in slots] == [64, 64, 64, -5]
    assert rig.run(64) == 64


def test_size_limit(rig, inject):
    inject(faults.size_limit(16384))
    assert rig.run(16384) == 16384
    assert rig.run(32768) == 32768 - 4096


def test_a_disk_that_fills_up_and_stays_full(tmp_path):
    with Machine(profile="0.5", schedule="lazy", env={}) as machine:
        rig = Rig(machine, tmp_path / "new.kv", MIB)
        os.ftruncate(rig.fd, 0)
        rule = faults.disk(10_000)
        rule.attach(machine)
        assert rig.run(8192, 0, write=True) == 8192
        assert rig.run(8192, 0, write=True) == 8192  # nothing grows
        assert rig.run(8192, 8192, write=True) == -1
        assert rig.run(8192, 8192, write=True) == -1
        assert os.fstat(rig.fd).st_size == 10_000  # what fitted was written, as on a real disk
        assert rig.hipfile.hipFileWrite(rig.handle, rig.pointer, 4096, 12_000, 0) == (-1, errno.ENOSPC)
        rule.detach()
        assert rig.run(8192, 8192, write=True) == 8192
        os.close(rig.fd)


def test_a_disk_that_is_full_once(tmp_path):
    with Machine(profile="0.5", schedule="lazy", env={}) as machine:
        rig = Rig(machine, tmp_path / "new.kv", MIB)
        os.ftruncate(rig.fd, 0)
        rule = faults.disk(4096, once=True)
        rule.attach(machine)
        assert rig.run(8192, 0, write=True) == -1
        assert rig.run(8192, 0, write=True) == 8192
        rule.detach()
        os.close(rig.fd)


def test_hip_errors_and_memory_limits(rig, inject):
    inject(faults.on("hipStreamCreate*", nth=2).error(2), faults.device_memory(2 * MIB), faults.pinned_memory(MIB))
    assert rig.hip.hipStreamCreate()[0] == 0
    assert rig.hip.hipStreamCreateWithFlags(1)[0] == 2
    assert rig.hip.hipMalloc(MIB)[0] == 0
    assert rig.hip.hipMalloc(1)[0] == 2
    status, slots = rig.submit(4096)  # the unregistered stream wants 16 MiB of pinned memory
    assert (status.err, status.hip_drv_err, slots[3]) == (5011, 2, -77)


def test_hipfile_errors(rig, inject):
    inject(faults.on("hipFileReadAsync", nth=2).error(5022))
    assert rig.submit(64)[0].err == 0
    status, slots = rig.submit(64)
    assert (status.err, slots[3]) == (5022, -77)


def test_the_driver_closed_underneath(rig, inject):
    inject(faults.on("hipFileRead").close_driver())
    assert rig.hipfile.hipFileRead(rig.handle, rig.pointer, 64, 0, 0) == (-1, errno.EINVAL)
    assert rig.hipfile.hipFileUseCount() == 0


def test_delay_and_stall(tmp_path):
    with Machine(profile="0.5", schedule="parallel", env={}) as machine:
        hip = machine.hip
        _, pointer = hip.hipMalloc(64)
        _, slow = hip.hipStreamCreateWithFlags(1)
        _, quick = hip.hipStreamCreateWithFlags(1)
        rules = [faults.on("command", stream=slow).delay(10**9), faults.on("command", stream=quick, nth=2).stall()]
        for rule in rules:
            rule.attach(machine)
        hip.hipMemsetAsync(pointer, 1, 64, slow)
        hip.hipMemsetAsync(pointer, 2, 64, quick)
        hip.hipDeviceSynchronize()
        assert bytes(machine.memory.view(pointer, 1)) == b"\x01"  # the delayed one came last
        assert machine.clock.now >= 10**9
        hip.hipMemsetAsync(pointer, 3, 64, quick)
        hip.hipMemsetAsync(pointer, 4, 64, slow)
        hip.hipStreamSynchronize(slow)
        hip.hipDeviceSynchronize()
        assert bytes(machine.memory.view(pointer, 1)) == b"\x03"
        for rule in rules:
            rule.detach()


def test_probability_is_reproducible(rig):
    def run():
        rule = faults.on("pread", times=None, probability=0.5, seed=7).errno(errno.EIO)
        rule.attach(rig.machine)
        results = [rig.run(64) for _ in range(20)]
        rule.detach()
        return results

    first = run()
    assert set(first) == {64, -1}
    assert run() == first


def test_registration_can_be_refused(tmp_path, rig, inject):
    inject(faults.on("reopen").errno(errno.EACCES))
    fd = os.open(rig.path, os.O_RDONLY)
    assert rig.hipfile.hipFileHandleRegister(FileDescr(1, fd))[0].err == 5030
    os.close(fd)


def test_a_rule_that_never_fired_says_what_came_near(rig):
    rules = [
        faults.on("pread", nth=3).errno(errno.EIO),
        faults.on("pread", path="*.safetensors").errno(errno.EIO),
        faults.on("pread", within=(500_000, 500_001)).errno(errno.EIO),
        faults.on("pwrite").errno(errno.EIO),
        faults.on("read", stream=12345).result(-1),
    ]
    for rule in rules:
        rule.attach(rig.machine)
    rig.run(64)
    texts = []
    for rule in rules:
        with pytest.raises(FaultNotFired) as caught:
            rule.detach()
        texts.append(str(caught.value))
    assert "it is match 1, the rule acts from match 3 on" in texts[0]
    assert "data.kv bytes 0 to 64" in texts[0]
    assert "its path does not match '*.safetensors'" in texts[1]
    assert "it does not touch bytes 500000 to 500001" in texts[2]
    assert "there was no pwrite at all" in texts[3]
    assert "not 12345" in texts[4]


def test_an_unfired_rule_fails_the_fake():
    with pytest.raises(FaultNotFired, match="errno ENOSPC on pwrite"):  # noqa: SIM117
        with fake(faults=[faults.on("pwrite").errno(errno.ENOSPC)]):
            pass


def test_detaching_leaves_the_machine_as_it_was(rig):
    before = (rig.machine.files, rig.hip.interpose, rig.hipfile.interpose, rig.hipfile.on_publish)
    rules = [faults.on("pread", optional=True).errno(5), faults.on("hipMalloc", optional=True).error(2)]
    for rule in rules:
        rule.attach(rig.machine)
    for rule in rules:
        rule.detach()
    assert (rig.machine.files, rig.hip.interpose, rig.hipfile.interpose, rig.hipfile.on_publish) == before
    assert rig.machine.engine.observers == ()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: faults.on("prread"), "'prread'.: unknown operation"),
        (lambda: faults.on("pread", nth=0), "nth=0"),
        (lambda: faults.on("pread", times=0), "times=0"),
        (lambda: faults.on("pread", probability=2), "probability=2"),
        (lambda: faults.on("pread", within=(5, 5)), "within"),
        (lambda: faults.on("pread").short(), "either a number of bytes or fraction"),
        (lambda: faults.on("pread").short(fraction=1.5), "fraction=1.5"),
        (lambda: faults.on("pread").partial(-1), "not below 0"),
        (lambda: faults.on("pread").returns("later"), "outcome 'later'"),
        (lambda: faults.on("pread").errno(-5).act(), "errno -5"),
        (lambda: faults.on("pread").errno("EWHAT"), "errno 'EWHAT'"),
        (lambda: faults.disk(-1), "disk"),
        (lambda: faults.queue_limit(1, value=3), "a failure is negative"),
    ],
)
def test_bad_rules_name_the_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_actions_that_an_operation_does_not_have():
    with pytest.raises(TypeError, match="which has result, short_by; the system call that it makes is 'pwrite'"):
        faults.on("write").errno(errno.EIO)
    with pytest.raises(TypeError, match="is not an action of 'hipMalloc'"):
        faults.on("hipMalloc").short(1)
    with pytest.raises(TypeError, match="is not an action of 'pread'"):
        faults.on("pread").result(1)
    with pytest.raises(TypeError, match=r"result\('EIO'\): a byte count"):
        faults.on("read").result("EIO")
    with pytest.raises(TypeError, match="'4096'"):
        faults.on("pread").partial("4096")
    with pytest.raises(TypeError, match="nht"):
        faults.on("pread", nht=3)
