"""Tests of the connector, without a GPU. Each shows one thing that can be tested, and how."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hipfile_mock import fake, faults

torch = pytest.importorskip("torch")

BLOCKS, LAYERS, BYTES = 6, 3, 8192
BLOCK = LAYERS * BYTES


@pytest.fixture
def connector(hipfile_fake, tmp_path):
    """A connector with a cache of random bytes; closed, and with nothing left over, at the end."""
    with open_connector(tmp_path) as made:
        yield made


def open_connector(folder, *, device="cuda", **options):
    from kv_offload import KVOffload

    cache = torch.randint(0, 256, (BLOCKS, LAYERS, BYTES), dtype=torch.uint8).to(device)
    return KVOffload(folder, cache, **options)


def open_below(folder):
    """How many descriptors of this process are open on files below `folder`."""
    entries = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum(folder in entry.resolve().parents for entry in entries)


def contents(connector, block):
    return connector.cache[block].cpu()


def stored(connector, key, block):
    connector.store(key, block)
    connector.flush()
    return contents(connector, block).clone()


# -- bytes -------------------------------------------------------------------------------------------------------------


def test_a_block_comes_back_as_it_was(connector):
    before = stored(connector, "a", 0)
    connector.finish(connector.load("a", 4))
    assert torch.equal(contents(connector, 4), before)


def test_other_blocks_stay_as_they_are(connector):
    others = [contents(connector, block).clone() for block in (1, 2, 3, 5)]
    stored(connector, "a", 0)
    connector.finish(connector.load("a", 4))
    for block, before in zip((1, 2, 3, 5), others, strict=True):
        assert torch.equal(contents(connector, block), before)


def test_the_slab_has_the_bytes_of_the_block(connector, tmp_path):
    before = stored(connector, "a", 2)
    on_disk = (tmp_path / "slab-0-0.kv").read_bytes()
    assert on_disk[:BLOCK] == before.numpy().tobytes()


def test_many_blocks_at_once(connector):
    before = {}
    for block in range(4):
        before[block] = contents(connector, block).clone()
        connector.store(f"k{block}", block)
    connector.flush()
    connector.cache.zero_()
    for block in range(4):
        connector.finish(connector.load(f"k{block}", block))
        assert torch.equal(contents(connector, block), before[block])


@pytest.mark.hipfile(env={"HIPFILE_ASYNC_BUFFER_SIZE": "1000"})
def test_a_bounce_buffer_that_is_smaller_than_a_layer(connector):
    before = stored(connector, "a", 0)
    connector.finish(connector.load("a", 4))
    assert torch.equal(contents(connector, 4), before)


@pytest.mark.parametrize("release", ["0.2", "0.3", "0.4", "0.5"])
def test_every_release(release, tmp_path):
    with fake(release), open_connector(tmp_path) as connector:
        before = stored(connector, "a", 0)
        connector.finish(connector.load("a", 4))
        assert torch.equal(contents(connector, 4), before)


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["lazy", "eager", "parallel", "roundrobin", "seeded:1", "seeded:2", "seeded:3"])
def test_every_order_gives_the_same_bytes(order, tmp_path):
    with fake(schedule=order), open_connector(tmp_path) as connector:
        connector.cache[0].fill_(7)  # the forward pass, on the current stream
        connector.store("a", 0)
        connector.before_overwrite(0)
        connector.cache[0].fill_(9)
        load = connector.load("a", 1)
        load.wait_layer(LAYERS - 1)
        connector.finish(load)
        assert contents(connector, 1).unique().tolist() == [7]
        assert contents(connector, 0).unique().tolist() == [9]


def test_a_store_waits_for_the_forward_pass_that_writes_the_block(connector, hipfile_fake):
    hipfile_fake.stall(torch.cuda.current_stream().cuda_stream)  # as slow as it can be
    connector.cache[0].fill_(7)
    connector.store("a", 0)
    connector.flush()
    connector.finish(connector.load("a", 1))
    assert contents(connector, 1).unique().tolist() == [7]


def test_a_load_waits_for_whoever_reads_the_block_before(connector, hipfile_fake):
    stored(connector, "a", 0)
    hipfile_fake.stall(torch.cuda.current_stream().cuda_stream)
    old = contents(connector, 3).clone()
    seen = connector.cache[3].clone()  # a reader on the current stream, slow
    connector.finish(connector.load("a", 3))
    assert torch.equal(seen.cpu(), old)


def store_without_protection(folder):
    with fake(), open_connector(folder) as connector:
        connector.store("a", 0)
        connector.cache[0].fill_(9)  # without before_overwrite(0)
        connector.flush()


def test_forgetting_before_overwrite_is_a_race_that_the_sanitizer_names(tmp_path):
    with pytest.raises(AssertionError, match="race"):
        store_without_protection(tmp_path)


def load_without_gate(folder):
    with fake(), open_connector(folder) as connector:
        stored(connector, "a", 0)
        load = connector.load("a", 1)
        total = connector.cache[1].sum()  # without load.wait_layer(...)
        connector.finish(load)
        total.item()


def test_reading_a_layer_without_waiting_for_it_is_a_race_too(tmp_path):
    with pytest.raises(AssertionError, match="race"):
        load_without_gate(tmp_path)


def test_layers_are_gated_one_by_one(connector, hipfile_fake):
    stored(connector, "a", 0)
    load = connector.load("a", 1)
    for layer in range(LAYERS):
        load.wait_layer(layer)
        connector.cache[1][layer].sum()
    connector.finish(load)
    recorder = hipfile_fake.recorder
    for layer, operation in enumerate(recorder.operations("hipFileReadAsync")[:-1]):
        following = recorder.operations("hipFileReadAsync")[layer + 1]
        recorder.assert_ordered(operation, following)


def test_stores_and_loads_overlap(connector, hipfile_fake):
    stored(connector, "a", 0)
    connector.store("b", 1)
    connector.finish(connector.load("a", 2))
    connector.flush()
    recorder = hipfile_fake.recorder
    recorder.assert_overlapped(recorder.operations("*Write*")[LAYERS:], recorder.operations("*Read*"))


def test_a_byte_count_is_not_there_before_the_host_has_waited(tmp_path):
    with fake(schedule="lazy", strict=False) as session, open_connector(tmp_path) as connector:
        transfer = connector.store("a", 0)
        torch.cuda.current_stream().wait_event(transfer.events[-1])  # only the GPU waits
        assert transfer.operations[0].bytes_done == 0
        connector.flush()
        assert any(finding.id == "result.early-read" for finding in session.sanitizer.findings)


# -- things that go wrong ----------------------------------------------------------------------------------------------


@pytest.mark.hipfile(faults=[faults.on("pwrite", nth=2, kind="async").errno(errno.EIO)])
def test_a_failed_layer_is_written_again(connector):
    before = stored(connector, "a", 0)
    connector.finish(connector.load("a", 1))
    assert torch.equal(contents(connector, 1), before)


@pytest.mark.hipfile(faults=[faults.on("pwrite", nth=2, kind="async").short(fraction=0.6)])
def test_a_short_write_is_written_again(connector):
    before = stored(connector, "a", 0)
    connector.finish(connector.load("a", 1))
    assert torch.equal(contents(connector, 1), before)


@pytest.mark.hipfile(faults=[faults.on("pwrite", times=None).errno(errno.EIO)])
def test_a_disk_that_is_broken_is_an_error_and_the_block_is_not_stored(connector):
    from kv_offload import OffloadError

    connector.store("a", 0)
    with pytest.raises(OffloadError, match="a: Input/output error"):
        connector.flush()
    assert "a" not in connector
    assert connector.keys() == []


@pytest.mark.hipfile(faults=[faults.disk(2 * BLOCK)])
def test_a_full_disk_takes_the_place_of_the_oldest_block(connector):
    for number in range(3):
        stored(connector, f"k{number}", number)
    assert connector.evicted == ["k0"]
    assert connector.keys() == ["k1", "k2"]
    before = contents(connector, 2).clone()
    connector.finish(connector.load("k2", 5))
    assert torch.equal(contents(connector, 5), before)


@pytest.mark.hipfile(faults=[faults.disk(0)])
def test_a_disk_without_any_room(connector):
    from kv_offload import OffloadError

    connector.store("a", 0)
    with pytest.raises(OffloadError, match="No space left on device"):
        connector.flush()


@pytest.mark.hipfile(faults=[faults.disk(BLOCK // 2, once=True)])
def test_a_disk_that_is_full_only_once(connector):
    before = stored(connector, "a", 0)
    connector.finish(connector.load("a", 1))
    assert torch.equal(contents(connector, 1), before)


@pytest.mark.parametrize("count", [-5022, -1, -5, 0, 100])
def test_a_load_that_fails_late_says_which_layer_and_what(count, tmp_path):
    from kv_offload import OffloadError

    with fake(faults=[faults.on("read", nth=2).result(count)]), open_connector(tmp_path) as connector:
        stored(connector, "a", 0)
        with pytest.raises(OffloadError, match=f"'a', layer 1: {count} of {BYTES} bytes"):
            connector.finish(connector.load("a", 1))


@pytest.mark.hipfile(faults=[faults.on("pread").eintr(times=4)])
def test_interrupted_reads_are_no_errors(connector):
    stored(connector, "a", 0)
    connector.finish(connector.load("a", 1))


def test_bytes_that_changed_on_disk_are_noticed(connector, tmp_path):
    from kv_offload import ChecksumError

    stored(connector, "a", 0)
    path = tmp_path / "slab-0-0.kv"
    data = bytearray(path.read_bytes())
    data[BYTES + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(ChecksumError, match="layer 1"):
        connector.finish(connector.load("a", 1))


def test_without_checksums_they_are_not(tmp_path):
    with fake(), open_connector(tmp_path, verify=False) as connector:
        stored(connector, "a", 0)
        path = tmp_path / "slab-0-0.kv"
        path.write_bytes(bytes(path.stat().st_size))
        connector.finish(connector.load("a", 1))
        assert contents(connector, 1).sum().item() == 0


@pytest.mark.hipfile(faults=[faults.on("hipFileBufRegister").error(5013)])
def test_a_cache_that_cannot_be_registered(hipfile_fake, tmp_path):
    import hipfile

    with pytest.raises(hipfile.HipFileException, match="5013"):
        open_connector(tmp_path)
    hipfile.Driver().close()


# -- eviction and keys -------------------------------------------------------------------------------------------------


def test_the_least_recently_used_block_goes(tmp_path):
    with fake(), open_connector(tmp_path, slabs=1, slots=2) as connector:
        stored(connector, "a", 0)
        stored(connector, "b", 1)
        connector.finish(connector.load("a", 5))
        stored(connector, "c", 2)
        assert connector.evicted == ["b"]
        assert connector.keys() == ["a", "c"]
        with pytest.raises(KeyError):
            connector.load("b", 0)


def test_a_slot_is_not_given_away_while_a_load_reads_it(tmp_path):
    with fake(schedule="lazy"), open_connector(tmp_path, slabs=1, slots=1) as connector:
        before = stored(connector, "a", 0)
        load = connector.load("a", 4)
        connector.store("b", 1)  # takes the slot of "a"
        connector.finish(load)
        connector.flush()
        assert torch.equal(contents(connector, 4), before)


def test_more_stores_than_slots_wait_for_each_other(tmp_path):
    with fake(), open_connector(tmp_path, slabs=1, slots=2) as connector:
        for number in range(5):
            connector.store(f"k{number}", number)
        connector.flush()
        assert connector.keys() == ["k3", "k4"]


def test_a_key_twice(connector):
    from kv_offload import OffloadError

    stored(connector, "a", 0)
    with pytest.raises(OffloadError, match="stored already"):
        connector.store("a", 1)
    connector.discard("a")
    assert "a" not in connector
    connector.store("a", 1)


@pytest.mark.parametrize("block", [-1, BLOCKS])
def test_blocks_that_do_not_exist(connector, block):
    with pytest.raises(IndexError, match=f"block {block}"):
        connector.store("a", block)


def test_wrong_caches_are_refused(hipfile_fake, tmp_path):
    from kv_offload import KVOffload

    with pytest.raises(ValueError, match="on a GPU"):
        KVOffload(tmp_path, torch.zeros((1, 1, 16), dtype=torch.uint8))
    with pytest.raises(ValueError, match="float32"):
        KVOffload(tmp_path, torch.zeros((1, 1, 16), device="cuda"))


# -- leaks -------------------------------------------------------------------------------------------------------------


def test_closing_gives_everything_back(hipfile_fake, tmp_path):
    import hipfile

    connector = open_connector(tmp_path)
    connector.store("a", 0)
    assert open_below(tmp_path) > 0
    connector.close()
    connector.close()
    assert hipfile.Driver.use_count() == 0
    assert open_below(tmp_path) == 0
    state = hipfile_fake.hipfile.state
    assert (len(state.files), len(state.buffers.entries), len(state.streams.entries)) == (0, 0, 0)


def test_a_connector_that_is_not_closed_is_a_leak(tmp_path):
    with pytest.raises(AssertionError, match=r"leak\."):  # noqa: SIM117
        with fake():
            kept = open_connector(tmp_path)
    assert kept is not None


# -- files that are not there, devices ---------------------------------------------------------------------------------


def test_on_a_fake_file_system(fs):
    fs.create_dir("/kv")
    with fake(), open_connector("/kv") as connector:
        before = stored(connector, "a", 0)
        connector.finish(connector.load("a", 1))
        assert torch.equal(contents(connector, 1), before)
        with open("/kv/slab-0-0.kv", "rb") as slab:
            assert slab.read(BLOCK) == before.numpy().tobytes()
    assert not os.path.exists("/proc")  # nothing of this touched the real disk


@pytest.mark.hipfile(filesystem="tmpfs,o_direct=EINVAL")
def test_a_file_system_without_direct_io(connector):
    before = stored(connector, "a", 0)
    connector.finish(connector.load("a", 1))
    assert torch.equal(contents(connector, 1), before)


def test_two_devices_with_a_connector_each(tmp_path):
    with (
        fake(devices=2),
        open_connector(tmp_path, device="cuda:0") as first,
        open_connector(tmp_path, device="cuda:1") as second,
    ):
        one, two = stored(first, "a", 0), stored(second, "a", 0)
        for connector, before in ((first, one), (second, two)):
            connector.finish(connector.load("a", 1))
            assert torch.equal(contents(connector, 1), before)
        assert not torch.equal(one, two)


@pytest.mark.hipfile(schedules=300, host="announced", complete=True)
def test_a_store_and_a_load_in_every_order(hipfile_fake, tmp_path):
    """Every order, or the test fails: this connector looks at slots and pinned tensors, and at nothing else."""
    with open_connector(tmp_path) as connector:
        connector.cache[0].fill_(1)
        connector.store("a", 0)
        connector.before_overwrite(0)
        connector.cache[0].fill_(2)
        connector.store("b", 0)
        load = connector.load("a", 1)
        for layer in range(LAYERS):
            load.wait_layer(layer)
            connector.cache[2][layer] = connector.cache[1][layer]
        connector.finish(load)
        assert [contents(connector, block).unique().tolist() for block in (0, 1, 2)] == [[2], [1], [1]]


@pytest.mark.hipfile(schedules=30, strategy="random")
def test_under_many_schedules(hipfile_fake, tmp_path):
    with open_connector(tmp_path, slabs=1, slots=2) as connector:
        connector.cache[0].fill_(1)
        connector.store("a", 0)
        connector.before_overwrite(0)
        connector.cache[0].fill_(2)
        load = connector.load("a", 1)
        load.wait_layer(0)
        connector.finish(load)
        assert contents(connector, 1).unique().tolist() == [1]
