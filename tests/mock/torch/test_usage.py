"""The usage block of the Python bindings' own description, as it stands, and what is wrong with it."""

from __future__ import annotations

import os

import pytest
import torch

from hipfile_mock import fake

USAGE = """
import os, torch, hipfile

assert hipfile.supports_async()          # fall back to sync read() if False

# One-time setup: a dedicated copy stream + a registered GPU staging buffer.
copy_stream = torch.cuda.Stream()
gbuf = torch.empty(CHUNK_BYTES, dtype=torch.uint8, device="cuda")
buf = hipfile.Buffer(gbuf.data_ptr(), gbuf.numel(), 0); buf.register()

with hipfile.FileHandle(path, os.O_RDONLY | os.O_DIRECT) as fh, \\
     hipfile.Stream(copy_stream.cuda_stream) as st:        # register stream once

    # 1) Submit every layer's chunk read on the copy stream. Each call returns
    #    immediately; the transfer runs concurrently with the compute below.
    inflight = []
    with torch.cuda.stream(copy_stream):
        for layer, (file_off, size, dst_off) in enumerate(load_plan):
            io = fh.read_async(buf, size, file_off, dst_off, st.handle)
            ev = torch.cuda.Event(); ev.record(copy_stream)
            inflight.append((layer, io, ev))   # MUST keep `io` alive (see note)

    # 2) Compute overlaps the I/O: each layer waits only for its own chunk.
    for layer, io, ev in inflight:
        torch.cuda.current_stream().wait_event(ev)   # gate attn on this read
        run_attention(layer, gbuf)                   # reads freshly-loaded KV
        assert io.bytes_done == expected_size[layer] # valid after the stream sync
"""

# The host waits for the event itself, and for the compute that still reads `gbuf` before everything is let go.
CORRECTED = (
    USAGE.replace(
        "        assert io.bytes_done",
        "        ev.synchronize()                             # now the host knows\n        assert io.bytes_done",
    )
    + """
torch.cuda.current_stream().synchronize()
buf.deregister()
"""
)

LAYERS = 6
CHUNK = 64 << 10
SCHEDULES = ["lazy", "eager", "parallel", "roundrobin", *(f"seeded:{seed}" for seed in range(8)), "threads"]


def chosen(schedule):
    return {"engine": "threads"} if schedule == "threads" else {"schedule": schedule}


@pytest.fixture
def names(tmp_path):
    """The names that the block leaves open, and what the attention kernels read."""
    data = os.urandom(LAYERS * CHUNK)
    path = tmp_path / "kv.bin"
    path.write_bytes(data)
    seen = []

    def run_attention(layer, kv):
        seen.append(kv[layer * CHUNK : (layer + 1) * CHUNK].clone())

    return {
        "CHUNK_BYTES": LAYERS * CHUNK,
        "path": path,
        "load_plan": [(layer * CHUNK, CHUNK, layer * CHUNK) for layer in range(LAYERS)],
        "expected_size": [CHUNK] * LAYERS,
        "run_attention": run_attention,
        "seen": seen,
        "data": data,
    }


def bytes_seen(names):
    return b"".join(bytes(part.cpu().numpy()) for part in names["seen"])


def run(block, names):
    exec(compile(block, "usage.py", "exec"), names)


def test_as_it_stands_the_assertion_fails_when_the_gpu_takes_its_time(names):
    with fake(schedule="lazy", strict=False) as session:
        with pytest.raises(AssertionError):
            run(USAGE, names)
        io = names["inflight"][0][1]
        torch.cuda.synchronize()
        assert io.bytes_done == CHUNK
        # What the host may not look at yet, the attention kernel may: its stream waited for the event.
        assert bytes_seen(names) == names["data"][:CHUNK]
        found = [finding.id for finding in session.sanitizer.findings]
        names.clear()
    assert "result.early-read" in found


def test_as_it_stands_it_passes_by_luck_when_the_gpu_is_quick(names):
    with fake(schedule="eager", strict=False) as session:
        run(USAGE, names)
        assert bytes_seen(names) == names["data"]
        assert any(finding.id == "result.early-read" for finding in session.sanitizer.findings), (
            "luck is still reported"
        )
        names.clear()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_corrected_it_passes_under_every_schedule(names, schedule):
    with fake(**chosen(schedule)) as session:  # strict: an error of the sanitizer fails the test
        run(CORRECTED, names)
        assert bytes_seen(names) == names["data"]
        assert not session.sanitizer.errors
        names.clear()


@pytest.mark.parametrize("profile", ["0.2", "0.3", "0.4", "0.5"])
def test_corrected_it_passes_with_every_release(names, profile):
    with fake(profile=profile, schedule="parallel"):
        run(CORRECTED, names)
        assert bytes_seen(names) == names["data"]
        names.clear()
