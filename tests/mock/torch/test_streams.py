"""torch.cuda: devices, streams and events."""

from __future__ import annotations

import pytest
import torch

from hipfile_mock.faces.torch import installed
from hipfile_sim.machine import Machine
from hipfile_sim.observe.observer import Observer


def test_devices(rig):
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 2
    assert torch.cuda.current_device() == 0
    torch.cuda.set_device(1)
    assert torch.cuda.current_device() == 1
    assert rig.hip.hipGetDevice() == (0, 1)
    with torch.cuda.device(0):
        assert torch.cuda.current_device() == 0
        assert torch.empty(1, device="cuda").device.index == 0
    assert torch.cuda.current_device() == 1
    with torch.cuda.device_of(torch.empty(1, device="cuda:0")):
        assert torch.cuda.current_device() == 0
    torch.cuda.set_device("cuda:0")
    assert torch.cuda.can_device_access_peer(0, 1)


def test_properties(rig):
    properties = torch.cuda.get_device_properties(1)
    assert properties.total_memory == rig.machine.settings.device_memory
    assert properties.multi_processor_count == 304
    assert "gfx942" in properties.gcnArchName
    assert torch.cuda.get_device_name(0) == properties.name == "AMD Instinct MI300X (emulated)"
    assert torch.cuda.get_device_capability("cuda:1") == (9, 4)
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.get_device_properties(2)
    assert torch.version.hip.count(".") == 2
    assert torch.version.cuda is None
    assert torch.backends.cuda.is_built()
    assert not torch.backends.cudnn.is_available()


def test_a_machine_without_devices():
    with Machine(0) as machine, installed(machine):
        assert not torch.cuda.is_available()
        assert torch.cuda.device_count() == 0
        with pytest.raises(RuntimeError, match="No HIP GPUs are available"):
            torch.zeros(1, device="cuda")


def test_stream_handles_are_emulated_streams(rig):
    stream = torch.cuda.Stream()
    found = rig.hip.lookup_stream(stream.cuda_stream)
    assert found.device == 0
    assert not found.blocking
    assert torch.cuda.default_stream().cuda_stream == 0
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert stream != torch.cuda.default_stream()
    assert hash(stream) == hash(torch.cuda.Stream(stream_id=stream.stream_id, device_index=0, device_type=1))
    assert repr(stream) == f"<torch.cuda.Stream device=cuda:0 cuda_stream={stream.cuda_stream:#x}>"
    assert stream._as_parameter_.value == stream.cuda_stream
    assert stream.device == torch.device("cuda:0")
    assert torch.cuda.Stream(device=1).device.index == 1
    assert torch.cuda.Stream(device="cuda:1").device.index == 1


def test_priorities(rig):
    assert torch.cuda.Stream().priority == 0
    assert torch.cuda.Stream(priority=-1).priority == -1
    assert torch.cuda.Stream(priority=-7).priority == -1
    assert torch.cuda.Stream(priority=3).priority == 0


def test_the_pool_has_32_streams(rig):
    streams = [torch.cuda.Stream() for _ in range(33)]
    assert len({stream.cuda_stream for stream in streams}) == 32
    assert streams[32] == streams[0]


def test_external_streams(rig):
    with rig_device(rig, 1):
        _, handle = rig.hip.hipStreamCreateWithFlags(1)
    stream = torch.cuda.ExternalStream(handle, device="cuda:1")
    assert stream.cuda_stream == handle
    assert stream.device.index == 1
    assert torch.cuda.get_stream_from_external(handle, 1) == stream
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream(1) == stream
        tensor = torch.full((3,), 2, device="cuda:1")
    assert rig.lane(stream).submitted == 1
    stream.synchronize()
    assert tensor.tolist() == [2, 2, 2]


class rig_device:
    def __init__(self, rig, device):
        self.rig, self.device = rig, device

    def __enter__(self):
        self.rig.hip.hipSetDevice(self.device)

    def __exit__(self, *error):
        self.rig.hip.hipSetDevice(0)


def test_stream_contexts_nest_and_cross_devices(rig):
    one, two = torch.cuda.Stream(), torch.cuda.Stream(device=1)
    with torch.cuda.stream(one):
        with torch.cuda.stream(two):
            assert torch.cuda.current_device() == 1
            assert torch.cuda.current_stream() == two
            assert torch.cuda.current_stream(0) == one
        assert torch.cuda.current_device() == 0
        assert torch.cuda.current_stream() == one
        assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == one
    torch.cuda.set_stream(one)
    assert torch.cuda.current_stream() == one
    torch.cuda.set_stream(torch.cuda.default_stream())


def test_query_and_synchronize(rig):
    stream = torch.cuda.Stream()
    assert stream.query()
    with torch.cuda.stream(stream):
        torch.zeros(10, device="cuda")
    assert not stream.query()
    assert rig.hip.hipPeekAtLastError() == 0
    stream.synchronize()
    assert stream.query()


def test_events(rig):
    stream = torch.cuda.Stream()
    event = torch.cuda.Event()
    assert event.query()
    assert event.cuda_event == 0
    assert repr(event) == "<torch.cuda.Event uninitialized>"
    event.synchronize()
    with torch.cuda.stream(stream):
        torch.zeros(10, device="cuda")
        event.record()
    assert event.cuda_event in rig.hip.events
    assert event.device == torch.device("cuda:0")
    assert not event.query()
    event.synchronize()
    assert event.query()
    handle = event.cuda_event
    del event
    assert handle not in rig.hip.events


def test_wait_holds_the_record_of_the_call(rig):
    first, second, third = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()
    event = first.record_event()
    second.wait_event(event)
    with torch.cuda.stream(third):
        torch.zeros(4, device="cuda")
    third.record_event(event)
    second.synchronize()
    assert rig.pending(third) == 2


def test_elapsed_time(rig):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    start.record()
    torch.cuda._sleep(2_100_000)
    end.record()
    with pytest.raises(RuntimeError, match="must be completed"):
        start.elapsed_time(end)
    torch.cuda.synchronize()
    assert start.elapsed_time(end) == pytest.approx(1.0, rel=0.2)
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(torch.cuda.Event())


def test_blocking_events_carry_the_flag(rig):
    event = torch.cuda.Event(blocking=True)
    event.record()
    assert rig.hip.events[event.cuda_event].flags == 3
    with pytest.raises(NotImplementedError, match="one process"):
        torch.cuda.Event(interprocess=True)


def test_events_belong_to_a_device(rig):
    event = torch.cuda.Event()
    event.record(torch.cuda.default_stream(0))
    with pytest.raises(RuntimeError, match="does not match recording stream's device"):
        event.record(torch.cuda.default_stream(1))
    torch.cuda.default_stream(1).wait_event(event)


class Notes(Observer):
    def __init__(self):
        self.notes = []

    def note(self, note):
        self.notes.append((note.id, note.site and note.site.function))


def test_waiting_for_an_event_that_was_never_recorded_is_noted(rig):
    observer = Notes()
    rig.machine.add_observer(observer)
    torch.cuda.current_stream().wait_event(torch.cuda.Event())
    assert torch.cuda.Event().query()
    here = "test_waiting_for_an_event_that_was_never_recorded_is_noted"
    assert observer.notes == [("event.wait-unrecorded", here), ("event.query-unrecorded", here)]


def test_device_synchronize_is_of_one_device(rig):
    torch.zeros(4, device="cuda:0")
    torch.zeros(4, device="cuda:1")
    torch.cuda.synchronize(1)
    assert rig.pending(torch.cuda.default_stream(0)) == 1
    assert rig.hip.null_stream(1).lane.idle


def test_copies_between_devices_order_both_streams(any_rig):
    here = torch.arange(1000, device="cuda:0")
    side = torch.cuda.Stream(device=1)
    any_rig.machine.stall(side.cuda_stream)  # as slow as can be
    with torch.cuda.stream(side):
        there = here.to("cuda:1") * 2
    back = there.to("cuda:0")
    torch.cuda.current_stream(0).wait_stream(side)
    again = torch.empty_like(here, dtype=torch.float32)
    again.copy_(there, non_blocking=True)
    assert again.cpu().equal(torch.arange(1000.0) * 2)
    assert back.device.index == 0


def test_seeds(rig):
    torch.cuda.manual_seed_all(3)
    first = [torch.rand(2, device=f"cuda:{device}").tolist() for device in range(2)]
    state = torch.cuda.get_rng_state(0)
    more = torch.rand(2, device="cuda:0").tolist()
    torch.cuda.set_rng_state(state, 0)
    assert torch.rand(2, device="cuda:0").tolist() == more
    torch.cuda.manual_seed_all(3)
    assert [torch.rand(2, device=f"cuda:{device}").tolist() for device in range(2)] == first
    assert torch.cuda.initial_seed() == 3


def test_what_is_not_modelled_says_so(rig):
    with pytest.raises(NotImplementedError, match="not modelled"):
        torch.cuda.memory._record_memory_history()
    with pytest.raises(NotImplementedError, match="not modelled"):
        torch.cuda.current_blas_handle()


def test_the_generic_accelerator_is_the_same_gpu(rig):
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.accelerator.device_count() == 2
    torch.accelerator.set_device_index(1)
    assert torch.cuda.current_device() == 1
    with torch.accelerator.device_index(0):
        assert torch.accelerator.current_device_index() == 0
        side = torch.cuda.Stream()
        torch.accelerator.set_stream(side)
        assert torch.accelerator.current_stream() == side
        torch.zeros(4, device="cuda")
        torch.accelerator.synchronize()
        assert rig.pending(side) == 0
        torch.cuda.set_stream(torch.cuda.default_stream())
    assert torch.accelerator.memory_allocated(0) == 0
    assert torch.accelerator.get_memory_info(0) == torch.cuda.mem_get_info(0)


def test_autocast(rig):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        product = torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
    assert product.dtype == torch.bfloat16


def test_gradients_are_refused(rig):
    weight = torch.ones(2, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError):
        (weight * 2).sum().backward()
