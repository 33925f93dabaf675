"""Copy a file through GPU memory, with the synchronous or with the asynchronous calls.

    copy_file.py SOURCE TARGET [--async] [--chunk-bytes N]

The asynchronous form keeps two chunks under way: each has a stream and a part of the buffer of its own, and on its
stream the write of a chunk follows the read of it, so nothing else orders them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import deque

import hipfile
from _hip import DeviceMemory, Stream

LANES = 2
DEPTH = 16  # chunks under way at most: their slots and commands take memory


def open_target(path: str) -> hipfile.FileHandle:
    return hipfile.FileHandle(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)


def copy_sync(source: str, target: str, size: int, chunk: int) -> int:
    copied = 0
    with (
        DeviceMemory(chunk) as memory,
        hipfile.Buffer(memory.ptr, chunk, 0) as buffer,
        hipfile.FileHandle(source, os.O_RDONLY) as reader,
        open_target(target) as writer,
    ):
        while copied < size:
            got = reader.read(buffer, min(chunk, size - copied), copied, 0)
            if got == 0:
                break  # the source became shorter meanwhile
            done = 0
            while done < got:  # a short write goes on where it stopped
                done += writer.write(buffer, got - done, copied + done, done)
            copied += got
    return copied


def copy_async(source: str, target: str, size: int, chunk: int) -> int:
    copied = 0
    with (
        DeviceMemory(LANES * chunk) as memory,
        hipfile.Buffer(memory.ptr, LANES * chunk, 0) as buffer,
        hipfile.FileHandle(source, os.O_RDONLY) as reader,
        open_target(target) as writer,
        Stream() as first,
        Stream() as second,
        hipfile.Stream(int(first)),
        hipfile.Stream(int(second)),
    ):
        under_way: deque = deque()

        def finish_oldest() -> int:
            length, read, write, done = under_way.popleft()
            done.synchronize()  # the counts may be read from here on
            if not read.bytes_done == write.bytes_done == length:
                raise OSError(f"chunk of {length} bytes: read {read.bytes_done}, wrote {write.bytes_done}")
            return length

        for number, offset in enumerate(range(0, size, chunk)):
            lane = number % LANES
            stream = (first, second)[lane]
            length = min(chunk, size - offset)
            read = reader.read_async(buffer, length, offset, lane * chunk, int(stream))
            write = writer.write_async(buffer, length, offset, lane * chunk, int(stream))
            under_way.append((length, read, write, stream.record()))
            if len(under_way) == DEPTH:
                copied += finish_oldest()
        while under_way:
            copied += finish_oldest()
    return copied


def main() -> int:
    parser = argparse.ArgumentParser(description="Copy a file through GPU memory.")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--async", dest="asynchronous", action="store_true", help="use the asynchronous calls")
    parser.add_argument("--chunk-bytes", type=int, default=1 << 20)
    options = parser.parse_args()

    try:
        size = os.stat(options.source).st_size
    except OSError as error:
        sys.exit(f"copy_file: {options.source}: {error.strerror}")
    copy = copy_async if options.asynchronous else copy_sync
    copied = copy(options.source, options.target, size, options.chunk_bytes)
    with open(options.target, "rb+") as file:
        os.fsync(file)
    print(f"{copied} of {size} bytes copied, {'asynchronously' if options.asynchronous else 'synchronously'}")
    return 0 if copied == size else 1


if __name__ == "__main__":
    sys.exit(main())
