"""Cases C33 to C40, life cycle, environment and testing, as a user of the doubles writes them."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipfile_sim.driver.environment import resolve
from hipfile_sim.driver.fileops import FileInfo
from hipfile_sim.driver.mounts import MountTable
from hipfile_sim.driver.profiles import get_profile

from .letter import Slots, c_program, device, lines, quiet, reported, slab, watched

AMD = ("0.2", "0.3", "0.4", "0.5")
BOOLEANS = ("HIPFILE_ALLOW_COMPAT_MODE", "HIPFILE_FORCE_COMPAT_MODE", "HIPFILE_UNSUPPORTED_FILE_SYSTEMS")


# -- C33 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", AMD)
def test_c33_import_alone_and_what_the_first_calls_do(tmp_path: Path, profile: str) -> None:
    with watched(profile=profile) as session:
        import hipfile

        assert hipfile.Driver().use_count() == 0
        hipfile.get_version()
        assert hipfile.Driver().use_count() == 0
        memory = device(session)
        hipfile.Buffer(memory, 4096, 0).register()
        assert hipfile.Driver().use_count() == 1


def test_c33_hip_python_alone(tmp_path: Path) -> None:
    with watched(faces=["hip_python-double"]):
        from rocm.bindings import hipfile

        assert hipfile.hipFileUseCount() == (0,)


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("call", ["hipFileReadAsync", "hipFileWriteAsync"])
@pytest.mark.parametrize("good", [True, False])
def test_c33_the_first_asynchronous_call(tmp_path: Path, profile: str, call: str, good: bool) -> None:
    with c_program(profile=profile) as c:
        handle, memory, stream, slots = c.file(slab(tmp_path)), c.malloc(), c.stream(), Slots(4096, 0, 0, 77)
        c.hipfile.hipFileDriverClose()
        assert c.hipfile.hipFileUseCount() == 0
        pointers = slots.pointers if good else (0, 0, 0, 0)
        assert getattr(c.hipfile, call)(handle, memory, *pointers, stream).err == 5022
        assert (c.hipfile.hipFileUseCount(), slots.bytes) == (1, 77)


# -- C34 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", AMD)
def test_c34_closed_twice_and_reopened(tmp_path: Path, profile: str) -> None:
    with watched(profile=profile) as session:
        import hipfile

        driver = hipfile.Driver()
        driver.open()
        memory, stream = device(session), session.hip.hipStreamCreate()[1]
        file, queue = hipfile.FileHandle(slab(tmp_path), os.O_RDWR), hipfile.Stream(stream, 7)
        file.open()
        queue.register()
        buffer = hipfile.Buffer(memory, 4096, 0)
        buffer.register()
        driver.close()
        with pytest.raises(hipfile.HipFileException) as caught:
            driver.close()
        assert (caught.value.hipfile_err, driver.use_count()) == (5001, 0)
        driver.open()
        for way in ("read", "write", "read_async", "write_async"):
            more = (stream,) if "async" in way else ()
            with pytest.raises(hipfile.HipFileException) as caught:
                getattr(file, way)(buffer, 4096, 0, 0, *more)
            assert caught.value.hipfile_err == 5027, way
        with pytest.raises(hipfile.HipFileException) as caught:
            hipfile.Stream(stream, 0).register()
        assert caught.value.hipfile_err == 5022  # it is registered still
        queue.deregister()
        driver.close()
        assert driver.use_count() == 0


def test_c34_closed_while_an_operation_is_in_flight(tmp_path: Path) -> None:
    with c_program(schedule="lazy") as c:
        handle, memory, stream, slots = c.file(slab(tmp_path)), c.buffer(), c.stream(), Slots(4096, 0, 0, 0)
        assert c.hipfile.hipFileReadAsync(handle, memory, *slots.pointers, stream).err == 0
        while c.hipfile.hipFileUseCount():
            c.hipfile.hipFileDriverClose()
        c.hip.hipStreamSynchronize(stream)
        assert slots.bytes == 4096
        assert c.hipfile.hipFileReadAsync(handle, memory, *slots.pointers, stream).err == 5022
        assert c.hipfile.hipFileReadAsync(handle, memory, *slots.pointers, stream).err == 5027


# -- C35, C36 ----------------------------------------------------------------------------------------------------------

BOOLS = {"0": None, "1": None, "true": True, "TRUE": True, "false": False, "fAlSe": False, "": None, " true": None}
BOOLS |= {"true ": None, "yes": None, "junk": None}
HUGE = "9" * 24
UINT, SIZE_T = 2**32 - 1, 2**64 - 1
STRTOUL = {"1abc": None, "": None, " 5": 5, "+5": 5, "-1": UINT, HUGE: None, "2": 2, str(UINT + 1): UINT, "5 ": None}
FROM_CHARS = {"1abc": None, "": None, " 5": None, "+5": None, "-1": None, HUGE: UINT, "2": 2, str(UINT + 1): UINT}


def value(profile: str, name: str, text: str) -> tuple[Any, Any]:
    """What a release makes of a variable, and its default."""
    row = next(row for row in resolve(get_profile(profile), {name: text}) if row.name == name)
    default = get_profile(profile).variable(name)
    return row.value, None if default is None else default.default


@pytest.mark.parametrize("profile", AMD)
@pytest.mark.parametrize("name", BOOLEANS)
def test_c35_booleans(profile: str, name: str) -> None:
    if get_profile(profile).variable(name) is None:
        pytest.skip("this release has no such variable")
    for text, wanted in BOOLS.items():
        found, default = value(profile, name, text)
        assert found is (default if wanted is None else wanted), text


@pytest.mark.parametrize("profile", AMD)
def test_c35_numbers(profile: str) -> None:
    table = STRTOUL if get_profile(profile).parse_int.__name__ == "parse_strtoul" else FROM_CHARS
    most = get_profile(profile).stats_level_max
    for text, wanted in table.items():
        found, default = value(profile, "HIPFILE_STATS_LEVEL", text)
        assert found == (default if wanted is None else min(wanted, most or wanted)), text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("1048576", 1 << 20), ("0", 16 << 20), ("", 16 << 20), ("+5", 16 << 20), (HUGE, SIZE_T), ("-1", 16 << 20)],
)
def test_c35_the_buffer_size(text: str, wanted: int) -> None:
    assert value("0.5", "HIPFILE_ASYNC_BUFFER_SIZE", text)[0] == wanted
    assert value("0.2", "HIPFILE_ASYNC_BUFFER_SIZE", text)[0] is None


def test_c35_an_overflowing_buffer_size_fails_late_with_the_allocation(tmp_path: Path) -> None:
    with c_program(env={"HIPFILE_ASYNC_BUFFER_SIZE": HUGE}) as c:
        stream = c.stream()
        status = c.hipfile.hipFileStreamRegister(stream, 0)
        assert (status.err, status.hip_drv_err != 0) == (5011, True)


@pytest.mark.parametrize("text", ["true", "TRUE", "1", " true", ""])
def test_c35_seen_by_a_program(tmp_path: Path, text: str) -> None:
    """Without the fallback, and on a file system where the fast path cannot work, a read is refused."""
    with watched(
        env={"HIPFILE_ALLOW_COMPAT_MODE": "false", "HIPFILE_FORCE_COMPAT_MODE": text}, filesystem="tmpfs"
    ) as s:
        import hipfile

        with hipfile.FileHandle(slab(tmp_path), os.O_RDONLY) as file, hipfile.Buffer(device(s), 4096, 0) as buffer:
            if text in ("true", "TRUE"):  # forced: rescued since 0.4
                assert file.read(buffer, 4096, 0, 0) == 4096
            else:
                with pytest.raises(hipfile.HipFileException) as caught:
                    file.read(buffer, 4096, 0, 0)
                assert caught.value.hipfile_err == 5030


def test_c36_a_variable_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPFILE_ALLOW_COMPAT_MODE", "true")
    with watched(filesystem="tmpfs") as session:
        import hipfile

        with hipfile.FileHandle(slab(tmp_path), os.O_RDONLY) as file:
            buffer = hipfile.Buffer(device(session), 4096, 0)
            with buffer:
                assert file.read(buffer, 4096, 0, 0) == 4096
                monkeypatch.setenv("HIPFILE_ALLOW_COMPAT_MODE", "false")
                assert file.read(buffer, 4096, 0, 0) == 4096
    with (  # another process
        watched(filesystem="tmpfs") as session,
        hipfile.FileHandle(slab(tmp_path), os.O_RDONLY) as file,
        hipfile.Buffer(device(session), 4096, 0) as buffer,
        pytest.raises(hipfile.HipFileException),
    ):
        file.read(buffer, 4096, 0, 0)


@pytest.mark.parametrize("profile", AMD)
def test_c36_the_buffer_size_too(tmp_path: Path, profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPFILE_ASYNC_BUFFER_SIZE", "65536")
    with c_program(profile=profile) as c:
        c.stream(register=0)
        before = c.memory.pinned_used
        monkeypatch.setenv("HIPFILE_ASYNC_BUFFER_SIZE", "131072")
        c.stream(register=0)
        assert (before, c.memory.pinned_used) == ((65536, 2 * 65536) if profile == "0.5" else (0, 0))


# -- C37 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filesystem", "direct", "supported"),
    [
        ("tmpfs", False, False),
        ("nfs", False, False),
        ("overlay", True, False),
        ("btrfs", True, False),
        ("ext4", True, True),
        ("ext4-ordered", True, True),
        ("ext4-journal", True, False),
        ("ext4-writeback", True, False),
        ("xfs", True, True),
        ("nfs-direct", True, False),
        ("overlay-no-direct", False, False),
    ],
)
@pytest.mark.parametrize("way", ["read", "write", "read_async"])
def test_c37_a_file_system_is_a_fixture(
    tmp_path: Path,
    filesystem: str,
    direct: bool,
    supported: bool,
    way: str,
    descriptors_in: Callable[[Path], int],
) -> None:
    """The fixture decides how the second open with O_DIRECT ends, and on what the file is; the bytes are the host's."""
    with watched(filesystem={str(tmp_path): filesystem}) as session:
        import hipfile

        stream = session.hip.hipStreamCreate()[1]
        with hipfile.FileHandle(slab(tmp_path), os.O_RDWR) as file, hipfile.Buffer(device(session), 4096, 0) as buffer:
            assert descriptors_in(tmp_path) == (2 if direct else 1)
            more = (stream,) if way == "read_async" else ()
            done = getattr(file, way)(buffer, 4096, 0, 0, *more)
            session.hip.hipStreamSynchronize(stream)
            assert (done.bytes_done if more else done) == 4096
            registered = session.hipfile.state.files.lookup(file.handle)
            assert registered.mount.fastpath_supported is supported


def test_c37_reads_and_writes_with_alignments_of_their_own(tmp_path: Path) -> None:
    """xfs with reflinks: reads may be aligned to 512 bytes, writes to 4096."""
    mount = MountTable.fixture({str(tmp_path): "xfs-reflink"}, default=None).lookup(
        FileInfo(1, 2, 0o100644), str(tmp_path)
    )
    assert (mount.dio_offset_align, mount.dio_read_offset_align) == (4096, 512)


# -- C38 ---------------------------------------------------------------------------------------------------------------


def _child(connection: Any) -> None:
    from hipfile_sim import Machine

    with Machine() as machine:
        connection.send(int(machine.hip.hipMalloc(64)[0]))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("engine", ["steps", "threads"])
def test_c38_initialise_and_fork(tmp_path: Path, engine: str) -> None:
    with c_program(engine=engine) as c:
        handle, memory, stream = c.file(slab(tmp_path)), c.buffer(), c.stream()
        read, write = os.pipe()
        pid = os.fork()
        if not pid:  # the child
            try:
                codes = [int(c.hip.hipMalloc(64)[0]), int(c.hip.hipStreamSynchronize(stream))]
                slots = Slots(4096, 0, 0, 0)
                codes.append(int(c.hipfile.hipFileReadAsync(handle, memory, *slots.pointers, stream).err))
                codes.append(int(c.hipfile.hipFileRead(handle, memory, 4096, 0, 0).count))
                found = sorted({finding.id for finding in c.sanitizer.findings})
                os.write(write, repr((codes, found)).encode())
            except BaseException as error:
                os.write(write, repr(error).encode())
            finally:
                os._exit(0)
        os.close(write)
        answer = os.read(read, 10_000).decode()
        os.close(read)
        os.waitpid(pid, 0)
        codes, found = eval(answer)
        assert all(codes), codes
        assert found == ["fork.after-init"]
        assert c.hip.hipStreamSynchronize(stream) == 0  # the parent goes on


def test_c38_spawn_works() -> None:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_spawned, args=(theirs,))
    process.start()
    assert mine.poll(100)
    assert mine.recv() == 0
    process.join(100)


def _spawned(connection: Any) -> None:
    _child(connection)


# -- C39 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["steps", "threads"])
@pytest.mark.parametrize("how", ["load", "store", "array"])
def test_c39_a_device_pointer_as_host_memory(how: str, engine: str) -> None:
    with watched(engine=engine) as session:
        pointer = device(session, 4096, 7)
        if how == "load":
            assert ctypes.string_at(pointer, 2) == b"\x07\x07"  # touched
        elif how == "store":
            ctypes.memset(pointer, 9, 1)  # touched
            assert bytes(session.memory.view(pointer, 2)) == b"\x09\x07"
        else:
            assert sum((ctypes.c_uint8 * 10).from_address(pointer)) == 70  # touched
    found = next(f for f in session.sanitizer.findings if f.id == "device.pointer-as-host")
    assert any("# touched" in line for line in lines(found)), session.report()
    assert ("writes" if how == "store" else "reads") in found.message


@pytest.mark.parametrize("call", ["hipFileReadAsync", "hipFileWriteAsync"])
def test_c39_slots_on_the_device(tmp_path: Path, call: str) -> None:
    with c_program() as c:
        handle, memory, stream = c.file(slab(tmp_path)), c.buffer(), c.stream()
        slots, bad = Slots(4096, 0, 0, 0), c.malloc(4096)
        size, foff, boff, _ = slots.pointers
        getattr(c.hipfile, call)(handle, memory, size, foff, boff, bad, stream)  # slot on the device
        c.hip.hipStreamSynchronize(stream)
    reported(c, "device.pointer-as-host", "# slot on the device")


@pytest.mark.torch
def test_c39_with_tensors() -> None:
    with watched():
        import torch

        tensor = torch.ones(8, device="cuda")
        with pytest.raises(TypeError, match="cpu"):
            tensor.numpy()


def test_c39_host_visible_is_a_setting() -> None:
    from hipfile_sim.hip.settings import HipSettings

    with c_program(settings=HipSettings(host_visible=True)) as c:
        pointer = c.malloc(4096)
        assert ctypes.string_at(pointer, 4) == bytes([0xFC]) * 4
    quiet(c)


# -- C40 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge", ["STREAM_ORDER", "EVENT_WAIT", "STREAM_SYNC", "EVENT_SYNC", "NULL_STREAM"])
def test_c40_an_edge_dropped_from_the_model_is_noticed(tmp_path: Path, edge: str) -> None:
    """Ordered programs are quiet; without the edge that orders them they are not."""
    from hipfile_sim.machine import Machine
    from hipfile_sim.observe.sanitizer import Sanitizer
    from hipfile_sim.observe.sanitizer.hb import Edge

    def run(dropped: tuple[Edge, ...]) -> list[str]:
        sanitizer = Sanitizer(dropped=dropped)
        with Machine(observers=[sanitizer]) as machine:
            hip = machine.hip
            block, pinned = hip.hipMalloc(4096)[1], hip.hipHostMalloc(4096)[1]
            one, two, blocking = (hip.hipStreamCreateWithFlags(flags)[1] for flags in (1, 1, 0))
            event = hip.hipEventCreate()[1]
            hip.launch(one, lambda: None, writes=[(block, 4096)])
            hip.launch(one, lambda: None, writes=[(block, 4096)])
            hip.hipEventRecord(event, one)
            hip.hipStreamWaitEvent(two, event, 0)
            hip.launch(two, lambda: None, reads=[(block, 4096)], writes=[(pinned, 4096)])
            hip.hipStreamSynchronize(two)
            machine.host_access(pinned, 8, write=True, what="host")
            hip.launch(two, lambda: None, writes=[(pinned, 4096)])
            hip.hipEventRecord(event, two)
            hip.hipEventSynchronize(event)
            machine.host_access(pinned, 8, write=False, what="host")
            hip.launch(0, lambda: None, writes=[(block, 4096)])
            hip.launch(blocking, lambda: None, writes=[(block, 4096)])
            hip.hipDeviceSynchronize()
        return [finding.id for finding in sanitizer.findings if finding.id.startswith("race.")]

    assert run(()) == []
    assert run((Edge[edge],)) != []
