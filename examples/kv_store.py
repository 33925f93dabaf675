"""Store a KV cache while it is being computed.

Compute fills one of two staging buffers, the store stream writes it to disk, and meanwhile compute fills the other.
Two edges make that right, and both are needed: the write waits until the block is computed, and the next computation
of the same buffer waits until the block is written.

    kv_store.py FILE [--blocks N] [--block-bytes N]
"""

from __future__ import annotations

import argparse
import os
import sys

import hipfile
from _hip import DeviceMemory, Stream

STAGES = 2
FIXED = 0x1 | 0x2 | 0x4


def block_value(block: int) -> int:
    """What "computing" a block leaves in all of its bytes."""
    return (block * 29 + 7) & 0xFF


def store(path: str, blocks: int, nbytes: int) -> list[int]:
    """Compute and write all blocks; return the byte counts of the writes."""
    with (
        DeviceMemory(STAGES * nbytes) as staging,
        hipfile.Buffer(staging.ptr, STAGES * nbytes, 0) as buffer,
        hipfile.FileHandle(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as file,
        Stream() as compute,
        Stream() as storing,
        hipfile.Stream(int(storing), FIXED),
    ):
        written = [None] * STAGES  # per staging buffer: the event after its last write
        writes = []
        for block in range(blocks):
            stage = block % STAGES
            if written[stage] is not None:
                compute.wait(written[stage])  # do not overwrite what is still being written
            compute.fill(staging.ptr + stage * nbytes, block_value(block), nbytes)
            storing.wait(compute.record())  # do not write what is not computed yet
            writes.append(file.write_async(buffer, nbytes, block * nbytes, stage * nbytes, int(storing)))
            written[stage] = storing.record()
        storing.synchronize()
        counts = [io.bytes_done for io in writes]
    if all(count == nbytes for count in counts):
        with open(path, "rb+") as stored:
            os.fsync(stored)  # asynchronous writes may end in the page cache: they are not durable by themselves
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description="Store a KV cache block by block, overlapped with compute.")
    parser.add_argument("file")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--block-bytes", type=int, default=1 << 20)
    options = parser.parse_args()

    counts = store(options.file, options.blocks, options.block_bytes)
    for block, count in enumerate(counts):
        if count != options.block_bytes:
            why = hipfile.OpError(-count).name if -count in OP_ERRORS else "a short or failed write"
            print(f"block {block}: {count} of {options.block_bytes} bytes written: {why}", file=sys.stderr)
    with open(options.file, "rb") as stored:
        right = all(
            stored.read(options.block_bytes) == bytes([block_value(block)]) * options.block_bytes
            for block in range(options.blocks)
        )
    print(
        f"{sum(max(0, count) for count in counts)} bytes in {len(counts)} writes, file {'right' if right else 'WRONG'}"
    )
    return 0 if right else 1


OP_ERRORS = {int(error) for error in hipfile.OpError}

if __name__ == "__main__":
    sys.exit(main())
