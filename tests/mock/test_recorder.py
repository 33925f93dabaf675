"""The recorder: questions, assertions, and runs on disk."""

from __future__ import annotations

import ctypes
import os

import pytest

from hipfile_mock import fake, faults
from hipfile_mock.recorder import Recorder, Recording, RecordingMismatch, side_by_side
from hipfile_sim import Machine
from hipfile_sim.driver.codes import FileDescr


def program(machine, path, order=(0, 1)):
    """Two reads on two streams."""
    hip, hipfile = machine.hip, machine.hipfile
    fd = os.open(path, os.O_RDONLY)
    hipfile.hipFileDriverOpen()
    _, handle = hipfile.hipFileHandleRegister(FileDescr(1, fd))
    _, pointer = hip.hipMalloc(1 << 20)
    streams = [hip.hipStreamCreateWithFlags(1)[1] for _ in range(2)]
    for stream in streams:
        hipfile.hipFileStreamRegister(stream, 0)
    slots = []
    for number in order:
        slot = (ctypes.c_int64 * 4)(65536, 0, 65536 * number, 0)
        base = ctypes.addressof(slot)
        hipfile.hipFileReadAsync(handle, pointer, base, base + 8, base + 16, base + 24, streams[number])
        slots.append(slot)
    for stream in streams:
        hip.hipStreamSynchronize(stream)
    return fd, handle, pointer, streams, slots


def tidy(machine, fd, handle, pointer, streams):
    hip, hipfile = machine.hip, machine.hipfile
    for stream in streams:
        hipfile.hipFileStreamDeregister(stream)
        hip.hipStreamDestroy(stream)
    hipfile.hipFileHandleDeregister(handle)
    hip.hipFree(pointer)
    hipfile.hipFileDriverClose()
    os.close(fd)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(os.urandom(65536))
    return path


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def ran(recorder, path):
    with Machine(schedule="parallel", env={}, observers=[recorder]) as machine:
        yield machine, program(machine, path)


def test_calls_with_arguments_results_and_places(recorder, ran):
    _, (_, _, pointer, streams, _) = ran
    (call,) = recorder.find_calls("hipMalloc")
    assert (call.args["size"], call.result) == (1 << 20, (0, pointer))
    assert call.site.filename == __file__
    assert call.site.function == "program"
    assert [c.args["stream"] for c in recorder.find_calls("hipFileReadAsync")] == streams
    assert len(recorder.find_calls("hipFileReadAsync", stream=streams[1])) == 1
    assert recorder.find_calls("hipMemcpy") == []


def test_the_librarys_own_calls_are_not_the_programs(recorder, ran):
    assert not recorder.find_calls("hipHostMalloc")
    assert any(call.name == "hipHostMalloc" for call in recorder.calls)


def test_operations_have_their_commands(recorder, ran):
    _, (*_, streams, _) = ran
    first, second = recorder.operations()
    assert [command.kind for command in first.commands] == ["bind", "cpu_copy", "memcpy_kernel", "advance", "cleanup"]
    assert recorder.operations(stream=streams[1])[0].call is second.call
    assert recorder.operations("*Write*") == []
    assert [c.kind for c in recorder.find_commands("cpu*", stream=streams[0])] == ["cpu_copy"]


def test_order_that_holds(recorder, ran):
    recorder.assert_ordered("hipMalloc", "hipFileReadAsync")
    first, second = recorder.operations()
    for operation, wait in zip((first, second), recorder.find_calls("hipStreamSynchronize"), strict=True):
        recorder.assert_ordered(operation, wait)
    recorder.assert_ordered(first.commands[0], first.commands[-1])


def test_order_that_does_not_hold_shows_both_sides_and_the_timeline(recorder, ran):
    with pytest.raises(AssertionError) as caught:
        recorder.assert_ordered("memcpy_kernel", "cpu_copy")
    text = str(caught.value)
    assert "expected" in text
    assert "actual" in text
    assert "memcpy_kernel (stream" in text
    assert "cleanup" in text.split("actual", 1)[1]  # the timeline


def test_overlap(recorder, ran):
    first, second = recorder.operations()
    recorder.assert_overlapped(first, second)
    with pytest.raises(AssertionError, match="nothing overlapped"):
        recorder.assert_overlapped(first.commands[0], first.commands[-1])


def test_a_selector_that_matches_nothing_says_what_there_is(recorder, ran):
    with pytest.raises(
        AssertionError, match=r"nothing in this run matches 'hipFileWrite\*'; it has: .*hipFileReadAsync"
    ):
        recorder.assert_ordered("hipFileWrite*", "hipStreamSynchronize")


def test_selectors_may_be_tests(recorder, ran):
    recorder.assert_ordered(lambda step: getattr(step, "kind", "") == "bind", "cleanup")


def test_leaks(recorder, ran):
    machine, (fd, handle, pointer, streams, _) = ran
    with pytest.raises(AssertionError) as caught:
        recorder.assert_no_leaks()
    text = str(caught.value)
    for left in ("file handles: 1", "registered streams: 2", "driver use count: 1", "1048576 bytes of device memory"):
        assert left in text
    assert "in program" in text
    tidy(machine, fd, handle, pointer, streams)
    recorder.assert_no_leaks()


def test_unfinished_operations_are_leaks(recorder):
    with Machine(schedule="lazy", env={}, observers=[recorder]) as machine:
        _, pointer = machine.hip.hipMalloc(64)
        machine.hip.hipMemsetAsync(pointer, 1, 64)
        with pytest.raises(AssertionError, match="unfinished: set on null stream"):
            recorder.assert_no_leaks()


def record(path, **options):
    recorder = Recorder()
    with Machine(env={}, observers=[recorder], **options) as machine:
        fd, handle, pointer, streams, _ = program(machine, path)
        tidy(machine, fd, handle, pointer, streams)
    return recorder


def test_equal_runs_match_through_a_file(path, tmp_path):
    target = tmp_path / "run.json"
    record(path, schedule="seeded:3").save(target)
    record(path, schedule="seeded:3").assert_matches(target)


def test_the_first_difference_is_shown(path, tmp_path):
    target = tmp_path / "run.json"
    record(path, schedule="lazy").save(target)
    with pytest.raises(RecordingMismatch, match="differs from the recording at step") as caught:
        record(path, schedule="eager").assert_matches(target)
    assert "\n! " in str(caught.value)


def test_calls_are_a_sequence_and_a_question(recorder):
    with Machine(env={}, observers=[recorder]) as machine:
        _, first = machine.hip.hipMalloc(64)
        machine.hip.hipMalloc(128)
        machine.hip.hipFree(first)
    assert [call.name for call in recorder.calls] == ["hipMalloc", "hipMalloc", "hipFree"]
    assert [call.args["size"] for call in recorder.calls("hipMalloc")] == [64, 128]
    assert recorder.calls("hip*", size=128) == recorder.find_calls(size=128) == [recorder.calls[1]]
    assert len(recorder.calls()) == 3


def test_a_recorder_that_keeps_the_newest_steps_only():
    recorder = Recorder(limit=2)
    with Machine(env={}, observers=[recorder]) as machine:
        for size in (64, 128, 256):
            machine.hip.hipMalloc(size)
    assert [call.args["size"] for call in recorder.calls()] == [128, 256]


def loaded(path, **changes):
    """The recording of one read, changed in one place."""
    given = {"size": 4096, "file_offset": 0, "fault": None, **changes}
    rule = [] if given["fault"] is None else [faults.on("read").result(given["fault"])]
    with fake(strict=False, faults=rule, faces=["hipfile"]) as session:
        import hipfile

        _, pointer = session.hip.hipMalloc(8192)
        with hipfile.FileHandle(path, os.O_RDONLY) as file, hipfile.Buffer(pointer, 8192, 0) as buffer:
            io = file.read_async(buffer, given["size"], given["file_offset"], 0, 0)
            session.hip.hipStreamSynchronize(0)
            assert io.bytes_done == (given["fault"] or given["size"])
        return session.recorder.recording()


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"size": 2048}, "2048"),
        ({"file_offset": 512}, "reads file 512 to 4608"),
        ({"fault": -5}, "result -5"),
    ],
)
def test_what_a_run_did_counts_and_not_only_its_order(path, change, shown):
    """An offset, a size, a late result: each is a difference, although the same commands run at the same times."""
    loaded(path).assert_equals(loaded(path))
    with pytest.raises(RecordingMismatch) as caught:
        loaded(path, **change).assert_equals(loaded(path))
    assert any(line.startswith("! ") and shown in line for line in str(caught.value).splitlines())


def test_a_recording_shows_arguments_and_codes(path):
    lines = loaded(path).lines
    assert "call hipMalloc(size=8192) -> hipSuccess" in lines
    assert any(line.startswith("call hipFileBufRegister(length=8192, flags=0) -> hipFileSuccess") for line in lines)
    assert "result 4096" in lines
    assert not any("0x" in line for line in lines)


@pytest.mark.parametrize("text", ["", "{}", '{"version": 9, "profile": "", "lines": []}', "[1]"])
def test_files_that_are_no_recordings(tmp_path, text):
    target = tmp_path / "x"
    target.write_text(text)
    with pytest.raises(ValueError, match="is not a recording"):
        Recording.load(target)


def test_side_by_side_of_different_lengths():
    assert side_by_side(["a"], ["a", "b"]).splitlines()[-1] == "!            b"
