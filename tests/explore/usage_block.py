"""The usage that the proposal of the Python bindings printed: a layer-wise load that overlaps with compute.

Only what it leaves open is filled in: the plan, the file and what ``run_attention`` does.
"""

import os
import sys

import hipfile
import torch

CHUNK_BYTES = 4096
path = sys.argv[1]
expected_size = [CHUNK_BYTES // 2] * 2
load_plan = [(layer * size, size, layer * size) for layer, size in enumerate(expected_size)]


def run_attention(layer, gbuf):
    gbuf[load_plan[layer][2]].add(1)


assert hipfile.supports_async()

copy_stream = torch.cuda.Stream()
gbuf = torch.empty(CHUNK_BYTES, dtype=torch.uint8, device="cuda")
buf = hipfile.Buffer(gbuf.data_ptr(), gbuf.numel(), 0)
buf.register()

with hipfile.FileHandle(path, os.O_RDONLY | os.O_DIRECT) as fh, hipfile.Stream(copy_stream.cuda_stream) as st:
    inflight = []
    with torch.cuda.stream(copy_stream):
        for layer, (file_off, size, dst_off) in enumerate(load_plan):
            io = fh.read_async(buf, size, file_off, dst_off, st.handle)
            ev = torch.cuda.Event()
            ev.record(copy_stream)
            inflight.append((layer, io, ev))

    for layer, io, ev in inflight:
        torch.cuda.current_stream().wait_event(ev)
        run_attention(layer, gbuf)
        assert io.bytes_done == expected_size[layer]

torch.cuda.synchronize()
buf.deregister()
