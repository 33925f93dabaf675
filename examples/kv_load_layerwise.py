"""Load a KV cache layer by layer while the layers that are there already are in use.

A load stream reads every layer from disk straight into GPU memory. A compute stream starts on layer 0 as soon as layer
0 has arrived: an event after each read gates it, and the host waits for nothing until the end.

    kv_load_layerwise.py [--file FILE] [--layers N] [--layer-bytes N]

Without --file a file is made for the run. The work on a layer is a pass over its bytes on the compute stream (a copy
into a workspace, and from there to pinned host memory), so that what compute saw can be checked.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

import hipfile
from _hip import D2D, D2H, DeviceMemory, PinnedMemory, Stream

FIXED = 0x1 | 0x2 | 0x4  # buffer offset, file offset and size are never changed after submit


def layer_bytes(layer: int, nbytes: int) -> bytes:
    """What the file holds for a layer: different in every layer and at every place."""
    row = bytes((layer * 37 + i * 11) & 0xFF for i in range(4093))
    return (row * (nbytes // len(row) + 1))[:nbytes]


def make_file(path: str, layers: int, nbytes: int) -> None:
    with open(path, "wb") as file:
        for layer in range(layers):
            file.write(layer_bytes(layer, nbytes))


def load(path: str, layers: int, nbytes: int) -> bool:
    size = layers * nbytes
    with (
        DeviceMemory(size) as cache,
        DeviceMemory(nbytes) as workspace,
        PinnedMemory(size) as seen,
        hipfile.Buffer(cache.ptr, size, 0) as buffer,
        hipfile.FileHandle(path, os.O_RDONLY) as file,
        Stream() as loading,
        Stream() as compute,
        hipfile.Stream(int(loading), FIXED),
    ):
        start = loading.record()
        reads = []
        for layer in range(layers):
            offset = layer * nbytes
            io = file.read_async(buffer, nbytes, offset, offset, int(loading))
            reads.append((io, loading.record()))  # `io` owns the slots: keep it until the stream is done with it

        for layer, (_, arrived) in enumerate(reads):
            offset = layer * nbytes
            compute.wait(arrived)
            compute.copy(workspace.ptr, cache.ptr + offset, nbytes, D2D)
            compute.copy(seen.ptr + offset, workspace.ptr, nbytes, D2H)
        computed = compute.record()

        computed.synchronize()  # the one wait: after it the counts may be read
        total = computed.ms_since(start)
        loaded = reads[-1][1].ms_since(start)
        ok = True
        for layer, (io, _) in enumerate(reads):
            same = seen.view[layer * nbytes : (layer + 1) * nbytes] == layer_bytes(layer, nbytes)
            ok &= same and io.bytes_done == nbytes
            print(
                f"layer {layer}: {io.bytes_done} bytes read, compute saw {'the right bytes' if same else 'WRONG BYTES'}"
            )
        print(f"all layers loaded after {loaded:.2f} ms, all computed after {total:.2f} ms")
    return ok


def main() -> int:
    parser = argparse.ArgumentParser(description="Load a KV cache layer by layer, overlapped with compute.")
    parser.add_argument("--file", help="a file of LAYERS * LAYER_BYTES bytes, made if it is not there")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--layer-bytes", type=int, default=1 << 20)
    options = parser.parse_args()

    if not hipfile.supports_async():
        sys.exit("this hipFile library has no asynchronous reads")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = options.file or os.path.join(folder, "kv.bin")
        if not os.path.exists(path):
            make_file(path, options.layers, options.layer_bytes)
        version = ".".join(map(str, hipfile.get_version()))
        print(f"{options.layers} layers of {options.layer_bytes} bytes, hipFile {version}")
        return 0 if load(path, options.layers, options.layer_bytes) else 1


if __name__ == "__main__":
    sys.exit(main())
