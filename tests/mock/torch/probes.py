"""Questions about `torch.cuda` whose answers do not depend on the GPU's make or size.

As a program it prints the answers of the torch that is installed, as JSON. Those of a machine with two GPUs are kept in
``real.json`` (``python probes.py > real.json``): the double must give the same.
"""

from __future__ import annotations

import json
import threading

import torch

MIB = 1 << 20
CYCLES = 400_000_000  # some tenths of a second on a GPU


def raw(nbytes):
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def error(function, *args, **kwargs):
    """Type and first line of what a call raises."""
    try:
        function(*args, **kwargs)
    except Exception as found:
        return [type(found).__name__, str(found).splitlines()[0]]
    return None


def fresh():
    """Nothing cached, nothing counted, default stream of device 0."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.set_stream(torch.cuda.default_stream())


def memory():
    stats = torch.cuda.memory_stats()
    names = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes")
    return [stats[f"{name}.all.current"] for name in names]


def sizes_of_segments():
    answers = []
    kept = []
    for size in (1, 512, 513, MIB, MIB + 1, 9 * MIB, 10 * MIB, 10 * MIB + 1, 19 * MIB, 33 * MIB):
        kept.append(raw(size))
        answers.append(memory())
    del kept[3:5]
    answers.append(memory())
    kept.append(raw(MIB))
    answers.append(memory())
    kept.clear()
    answers.append(memory())
    torch.cuda.empty_cache()
    answers.append(memory())
    return answers


def places_in_a_segment():
    def offsets(sizes):
        kept = [raw(size) for size in sizes]
        base = min(tensor.data_ptr() for tensor in kept)
        return kept, [tensor.data_ptr() - base for tensor in kept]

    kept, small = offsets([100, 600, 5000, 100, 700])
    base = kept[0].data_ptr()
    del kept[1], kept[1]
    again = [raw(size).data_ptr() - base for size in (400, 5000, 5600)]
    big, large = offsets([2 * MIB, 3 * MIB, 4 * MIB, 8 * MIB])
    base = min(tensor.data_ptr() for tensor in big)
    del big[1]
    more = [raw(size).data_ptr() - base for size in (MIB + 1, 3 * MIB)]
    return small, again, large, more


def best_fit():
    kept = [raw(size) for size in (3000, 512, 1500, 512, 2000, 512)]
    addresses = [tensor.data_ptr() for tensor in kept]
    del kept[4], kept[2], kept[0]
    return [addresses.index(tensor.data_ptr()) for tensor in [raw(1400)]]


def reuse_by_stream():
    side = torch.cuda.Stream()
    first = raw(1000)
    address = first.data_ptr()
    torch.cuda._sleep(CYCLES)
    first.fill_(1)
    del first
    with torch.cuda.stream(side):
        other = raw(1000).data_ptr() == address
    return raw(1000).data_ptr() == address, other


def record_stream():
    side = torch.cuda.Stream()
    first = raw(1000)
    address = first.data_ptr()
    with torch.cuda.stream(side):
        torch.cuda._sleep(CYCLES)
        first.fill_(1)
    first.record_stream(side)
    del first
    during = memory()[:3]
    second = raw(1000)
    early = second.data_ptr() == address
    side.synchronize()
    third = raw(1000)
    return during, early, third.data_ptr() == address, memory()


def record_stream_of_the_home_stream():
    first = raw(1000)
    address = first.data_ptr()
    torch.cuda._sleep(CYCLES)
    first.record_stream(torch.cuda.current_stream())
    del first
    return raw(1000).data_ptr() == address


def peaks():
    first = raw(5 * MIB)
    del first
    second = raw(MIB)
    answers = [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]
    torch.cuda.reset_peak_memory_stats()
    answers += [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]
    del second
    return answers


def raw_allocations():
    pointer = torch.cuda.caching_allocator_alloc(1000)
    held = memory()[:3]
    torch.cuda.caching_allocator_delete(pointer)
    return held, memory()[:3]


def stream_pool():
    streams = [torch.cuda.Stream() for _ in range(40)]
    handles = [stream.cuda_stream for stream in streams]
    return len(set(handles)), handles.index(handles[32]), streams[32] == streams[0], 0 in handles


def stream_objects():
    side = torch.cuda.Stream()
    current = torch.cuda.current_stream()
    with torch.cuda.stream(side):
        inside = torch.cuda.current_stream() == side
        with torch.cuda.stream(None):
            none = torch.cuda.current_stream() == side
    with side:
        entered = torch.cuda.current_stream() == side
    external = torch.cuda.ExternalStream(side.cuda_stream)
    return [
        current == torch.cuda.default_stream(),
        current.cuda_stream,
        inside,
        none,
        entered,
        external.cuda_stream == side.cuda_stream,
        side.priority,
        side.query(),
        str(side.device),
        repr(current),
        isinstance(hash(side), int),
    ]


def streams_of_threads():
    side = torch.cuda.Stream()
    answers = []

    def other():
        answers.append(torch.cuda.current_stream() == torch.cuda.default_stream())
        torch.cuda.set_stream(torch.cuda.Stream())

    with torch.cuda.stream(side):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        answers.append(torch.cuda.current_stream() == side)
    return answers


def events():
    event = torch.cuda.Event()
    answers = [event.query(), event.cuda_event == 0, repr(event)]
    event.synchronize()
    torch.cuda.current_stream().wait_event(event)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(CYCLES)
        event.record()
    answers += [event.query(), side.query(), torch.cuda.current_stream().query(), event.cuda_event == 0]
    event.synchronize()
    return [*answers, event.query(), side.query(), str(event.device)]


def times():
    plain, start, end = torch.cuda.Event(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    answers = [error(start.elapsed_time, end), error(start.elapsed_time, plain)]
    start.record()
    torch.cuda._sleep(CYCLES)
    end.record()
    answers.append(error(start.elapsed_time, end))
    end.synchronize()
    return [*answers, start.elapsed_time(end) > 1]


def a_wait_is_for_the_record_of_the_call():
    first, second, third = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()
    event = torch.cuda.Event()
    event.record(first)
    second.wait_event(event)
    with torch.cuda.stream(third):
        torch.cuda._sleep(CYCLES)
        event.record()
    second.synchronize()
    return event.query()


def what_waits():
    """Which of these waits for the current stream, which for no other."""
    answers = {}
    for name, look in {
        "item": lambda t: t.sum().item(),
        "tolist": lambda t: t.tolist(),
        "cpu": lambda t: t.cpu(),
        "print": repr,
        "nonzero": torch.nonzero,
        "equal": lambda t: torch.equal(t, t),
        "mask": lambda t: t[t > 0],
        "pinned copy": lambda t: t.to("cpu", non_blocking=True),
        "add": lambda t: t + 1,
        "index": lambda t: t[torch.zeros(1, dtype=torch.int64, device="cuda")],
    }.items():
        side, other = torch.cuda.Stream(), torch.cuda.Stream()
        tensor = torch.ones(10, device="cuda")
        look(tensor + 0)  # what is loaded lazily on a GPU is loaded now
        torch.cuda.synchronize()
        with torch.cuda.stream(other):
            torch.cuda._sleep(4 * CYCLES)
        with torch.cuda.stream(side):
            torch.cuda._sleep(CYCLES // 2)
            before = torch.cuda.Event()
            before.record()
            look(tensor)
        answers[name] = [before.query(), other.query()]
        torch.cuda.synchronize()
    return answers


def copies():
    answers = {}
    host = torch.full((1000,), 1.0).pin_memory()
    device = torch.zeros(1000, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(CYCLES)
        device.copy_(host, non_blocking=True)
        host.fill_(2)
        answers["changed pinned source"] = device[0].item()
        torch.cuda._sleep(CYCLES)
        pageable = torch.full((1000,), 3.0)
        device.copy_(pageable, non_blocking=True)
        pageable.fill_(4)
        answers["changed pageable source"] = device[0].item()
        target = torch.full((1000,), -1.0).pin_memory()
        torch.cuda._sleep(CYCLES)
        target.copy_(device, non_blocking=True)
        answers["pinned target, early"] = target[0].item()
        side.synchronize()
        answers["pinned target, late"] = target[0].item()
        torch.cuda._sleep(CYCLES)
        result = device.to("cpu", non_blocking=True)
        answers["to cpu is pinned"] = result.is_pinned()
        side.synchronize()
        torch.cuda._sleep(CYCLES)
        late = torch.full((1000,), -1.0)
        late.copy_(device, non_blocking=True)
        answers["pageable target"] = late[0].item()
    answers["converts"] = torch.arange(6).reshape(2, 3).t().to("cuda", torch.float16).cpu().tolist()
    return answers


def pinned():
    tensor = torch.empty(10, pin_memory=True)
    other = torch.empty(10)
    return [
        tensor.is_pinned(),
        tensor[2:].is_pinned(),
        other.is_pinned(),
        (tensor + 1).is_pinned(),
        tensor.pin_memory().data_ptr() == tensor.data_ptr(),
        other.pin_memory().is_pinned(),
        error(lambda: torch.ones(1, device="cuda").pin_memory()),
        torch.ones(1, device="cuda").is_pinned(),
    ]


def pinned_reuse():
    host = torch.empty(3000, pin_memory=True)
    device = torch.empty(3000, device="cuda")
    address = host.data_ptr()
    del host
    again = torch.empty(3000, pin_memory=True)
    plain = again.data_ptr() == address
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    device.copy_(again, non_blocking=True)
    address = again.data_ptr()
    del again
    busy = torch.empty(3000, pin_memory=True)
    early = busy.data_ptr() == address
    torch.cuda.synchronize()
    return plain, early, torch.empty(3000, pin_memory=True).data_ptr() == address


def tensors():
    x = torch.arange(6.0, device="cuda").reshape(2, 3)
    return [
        str(x.device),
        x.get_device(),
        x.is_cuda,
        x.data_ptr() % 512,
        x.to("cuda") is x,
        x.cuda() is x,
        x.to("cuda:0") is x,
        x.t().is_contiguous(),
        x[1]._is_view(),
        torch.empty(0, device="cuda").data_ptr(),
        torch.empty(0, device="cuda").untyped_storage().nbytes(),
        x.untyped_storage().nbytes(),
        str(torch.zeros_like(x).device),
        repr(x),
        repr(x.to(torch.int64)[0, 0]),
        x.type(),
        str(torch.empty(2, device=0).device),
        x.expand(4, 2, 3).untyped_storage().nbytes(),
    ]


def numbers():
    """Values and dtypes where a number of Python meets a tensor."""
    answers = {}
    for dtype in (torch.int32, torch.float16, torch.float32, torch.float64, torch.bool):
        x = torch.tensor([1, 2, 3], device="cuda").to(dtype)
        for name, value in {
            "x+1": x + 1,
            "x*0.1": x * 0.1,
            "x+True": x + True,
            "2-x": 2 - x.int(),
            "x0*0.1": x[0] * 0.1,
        }.items():
            answers[f"{dtype} {name}"] = [str(value.dtype), value.tolist()]
    return answers


def errors():
    x = torch.ones(2, 3, device="cuda")
    return {
        "numpy": error(x.numpy),
        "shapes": error(lambda: x + torch.ones(4, device="cuda")),
        "devices": error(lambda: x + torch.ones(2, 3)),
        "cat": error(lambda: torch.cat([x, torch.ones(2, 3)])),
        "matmul": error(lambda: x @ x),
        "generator": error(lambda: x.normal_(generator=torch.Generator())),
        "ordinal": error(lambda: torch.empty(1, device="cuda:63")),
        "set_device": error(lambda: torch.cuda.set_device(63)),
        "properties": error(lambda: torch.cuda.get_device_properties(63)),
        "pin": error(lambda: torch.empty(1, device="cuda", pin_memory=True)),
        "index": error(lambda: x[5]),
        "view": error(lambda: x.t().view(6)),
        "cpu index": error(lambda: x[torch.tensor([0])]),
        "raw delete": error(lambda: torch.cuda.caching_allocator_delete(64)),
    }


def resizing():
    x = torch.arange(4, device="cuda")
    before = x.data_ptr()
    x.resize_(3)
    kept = x.data_ptr() == before
    x.resize_(1000)
    y = torch.empty(0, device="cuda")
    torch.add(torch.ones(3, device="cuda"), 1, out=y)
    return kept, x[:3].tolist(), x.untyped_storage().nbytes(), y.tolist()


def random_state():
    torch.cuda.manual_seed(7)
    first = torch.rand(4, device="cuda").tolist()
    torch.manual_seed(7)
    host = torch.get_rng_state()
    same = torch.rand(4, device="cuda").tolist() == first
    return (
        same,
        torch.get_rng_state().equal(host),
        torch.rand(4, device="cuda").tolist() == first,
        torch.cuda.initial_seed(),
    )


def two_devices():
    """What is current where."""
    two = torch.cuda.Stream(device=1)
    answers = {"device of stream": str(two.device)}
    with torch.cuda.stream(two):
        answers["in stream()"] = [torch.cuda.current_device(), torch.cuda.current_stream() == two]
        answers["new tensor"] = str(torch.empty(1, device="cuda").device)
    answers["after stream()"] = torch.cuda.current_device()
    with two:
        answers["in with"] = [torch.cuda.current_device(), torch.cuda.current_stream() == two]
    answers["after with"] = torch.cuda.current_device()
    torch.cuda.set_stream(two)
    answers["after set_stream"] = [torch.cuda.current_device(), torch.cuda.current_stream(1) == two]
    torch.cuda.set_device(0)
    torch.cuda.set_stream(torch.cuda.default_stream(1))
    torch.cuda.set_device(0)
    event = torch.cuda.Event()
    event.record(torch.cuda.default_stream(0))
    answers["record elsewhere"] = error(event.record, torch.cuda.default_stream(1))
    x = torch.ones(2, device="cuda:1")
    answers["x"] = [str(x.cuda().device), str(x.to("cuda").device), str((x + 1).device), torch.cuda.current_device()]
    answers["mixed"] = error(lambda: x + torch.ones(2, device="cuda:0"))
    answers["mixed cat"] = error(lambda: torch.cat([x, torch.ones(2, device="cuda:0")]))
    with torch.cuda.device(1):
        answers["in device()"] = str(torch.empty(1, device="cuda").device)
    answers["external"] = str(torch.cuda.ExternalStream(two.cuda_stream, device=1).device)
    return answers


def copies_between_devices():
    """The copy goes to the source's current stream, and the target's current stream waits for it."""
    x, y = torch.ones(1000, device="cuda:0"), torch.zeros(1000, device="cuda:1")
    y.copy_(x)
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    one, two = torch.cuda.Stream(device=0), torch.cuda.Stream(device=1)
    torch.cuda._sleep(CYCLES)  # on the default stream of device 0
    with torch.cuda.device(1):
        y.copy_(x * 2)
        waiting = torch.cuda.Event()
        waiting.record()
    answers = [waiting.query(), one.query(), two.query()]
    waiting.synchronize()
    answers += [torch.cuda.default_stream(0).query(), y[0].item()]
    with torch.cuda.device(1):
        torch.cuda._sleep(CYCLES)
    y.copy_(x * 3)
    behind = torch.cuda.Event()
    behind.record(torch.cuda.default_stream(0))
    return [*answers, behind.query(), y[0].item()]


def memory_of_two_devices():
    kept = [raw(1000), torch.empty(2000, dtype=torch.uint8, device="cuda:1")]
    answers = [torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1), torch.cuda.memory_allocated()]
    torch.cuda.set_device(1)
    answers.append(torch.cuda.memory_allocated())
    torch.cuda.set_device(0)
    kept.clear()
    return answers


TWO_DEVICES = [two_devices, copies_between_devices, memory_of_two_devices]

PROBES = [
    sizes_of_segments,
    places_in_a_segment,
    best_fit,
    reuse_by_stream,
    record_stream,
    record_stream_of_the_home_stream,
    peaks,
    raw_allocations,
    stream_pool,
    stream_objects,
    streams_of_threads,
    events,
    times,
    a_wait_is_for_the_record_of_the_call,
    what_waits,
    copies,
    pinned,
    pinned_reuse,
    tensors,
    numbers,
    errors,
    resizing,
    random_state,
]


def ask(probe):
    """The answer of one probe, as JSON has it."""
    fresh()
    answer = json.loads(json.dumps(probe()))
    torch.cuda.synchronize()
    return answer


def main():
    torch.ones(1, device="cuda").sum().item()
    answers = {}
    for probe in PROBES + (TWO_DEVICES if torch.cuda.device_count() > 1 else []):
        try:
            answers[probe.__name__] = ask(probe)
        except Exception as found:
            answers[probe.__name__] = {"error": repr(found)}
    where = {"torch": torch.__version__, "hip": torch.version.hip, "cuda": torch.version.cuda}
    print(json.dumps({"device": torch.cuda.get_device_name(), **where, "answers": answers}, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
