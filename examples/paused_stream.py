"""Show when hipFile reads the parameters of an asynchronous operation: when the stream gets there, or at submit.

A host function holds the stream. A read is submitted behind it, its parameters are changed, and the stream is let go.
On a stream registered with flags 0 the read uses the changed values. On one registered with flags 7 (buffer offset,
file offset and size fixed) AMD's library uses the values at submit; the promise was the caller's, and cuFile was seen
to use the changed values even then. Never change what you declared fixed.

    paused_stream.py
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading

import hipfile
from _hip import D2H, DeviceMemory, PinnedMemory, Stream

PAGE = 4096
UNFIXED, ALL_FIXED = 0, 0x1 | 0x2 | 0x4


def read_and_change(path: str, flags: int) -> tuple[int, str]:
    """Submit a read of page 0 into page 0, then ask for half of page 2 into page 1 instead; return what happened."""
    size = 4 * PAGE
    with (
        DeviceMemory(size) as memory,
        PinnedMemory(size) as result,
        hipfile.Buffer(memory.ptr, size, 0) as buffer,
        hipfile.FileHandle(path, os.O_RDONLY) as file,
        Stream() as stream,
        hipfile.Stream(int(stream), flags),
    ):
        warm_up = file.read_async(buffer, PAGE, 0, 0, int(stream))  # a first call may wait for the device
        stream.synchronize()
        assert warm_up.bytes_done == PAGE

        stream.fill(memory.ptr, ord("."), size)
        let_go = threading.Event()
        stream.host_function(let_go.wait)

        # What follows is what a program should not do, and a checker says so; here it is the point.
        io = file.read_async(buffer, PAGE, 0, 0, int(stream))  # hipfile: ignore[slot.changed-*]
        io.size, io.file_offset, io.buffer_offset = PAGE // 2, 2 * PAGE, PAGE
        before = io.bytes_done  # hipfile: ignore[result.early-read]
        let_go.set()

        stream.copy(result.ptr, memory.ptr, size, D2H)
        stream.synchronize()
        assert before == 0, "a count before the stream ran"
        halves = [bytes(result.view[at : at + PAGE // 2]) for at in range(0, size, PAGE // 2)]
        picture = "".join(chr(half[0]) if len(set(half)) == 1 else "?" for half in halves)
        return io.bytes_done, picture


def main() -> int:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = os.path.join(folder, "pages.bin")
        with open(path, "wb") as file:
            file.write(b"".join(bytes([letter]) * PAGE for letter in b"ABCD"))
        for name, flags in (("flags 0 (nothing fixed)", UNFIXED), ("flags 7 (all fixed)", ALL_FIXED)):
            count, picture = read_and_change(path, flags)
            print(f"{name:24} bytes_done {count:5}   buffer in half pages: {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
