"""The published `hipfile` package on the emulated libraries. argv[1] is a folder to work in."""

# ruff: noqa: PT017, PT018

import ctypes
import os
import sys

import hipfile
from hipfile.hipMalloc import hipFree, hipMalloc

SIZE = 1 << 20
hip = ctypes.CDLL("libamdhip64.so")  # as a connector opens it
path = os.path.join(sys.argv[1], "data")
data = os.urandom(SIZE)
with open(path, "wb") as file:
    file.write(data)

assert hipfile.supports_async() is True
assert hipfile.get_version()[:2] == (0, 5)
assert hipfile.Driver.use_count() == 0
pointer = hipMalloc(SIZE)
stream = ctypes.c_void_p()
assert hip.hipStreamCreateWithFlags(ctypes.byref(stream), 1) == 0
back = ctypes.create_string_buffer(SIZE)


def on_device() -> bytes:
    assert hip.hipMemcpy(back, pointer, ctypes.c_size_t(SIZE), 2) == 0
    return back.raw


with hipfile.Driver(), hipfile.FileHandle(path, os.O_RDWR) as source:
    assert hipfile.Driver.use_count() == 2 - 1
    buffer = hipfile.Buffer.from_ctypes_void_p(pointer, SIZE, 0)
    buffer.register()
    assert source.read(buffer, SIZE, 0, 0) == SIZE and on_device() == data
    try:
        source.read(buffer, 4096, -1, 0)
    except OSError as error:
        assert error.errno == 22
    else:
        raise AssertionError("a negative offset was accepted")
    try:
        source.read(buffer, SIZE, 0, 4096)
    except hipfile.HipFileException as error:
        assert "5022" in repr(error.args) or error.hipfile_err == 5022
    else:
        raise AssertionError("a range past the buffer was accepted")

    with hipfile.FileHandle(path + ".copy", os.O_RDWR | os.O_CREAT) as target:
        assert target.write(buffer, SIZE, 0, 0) == SIZE
        assert hip.hipMemset(pointer, 0, ctypes.c_size_t(SIZE)) == 0
        with hipfile.Stream(stream.value) as side:
            pieces = [source.read_async(buffer, SIZE // 8, i * SIZE // 8, i * SIZE // 8, side.handle) for i in range(8)]
            write = target.write_async(buffer, SIZE, 0, 0, side.handle)
            assert hip.hipStreamSynchronize(stream) == 0
        assert [piece.bytes_done for piece in pieces] == [SIZE // 8] * 8 and write.bytes_done == SIZE
        assert on_device() == data
    buffer.deregister()
with open(path + ".copy", "rb") as file:
    assert file.read() == data
hipFree(pointer)
assert hip.hipStreamDestroy(stream) == 0
assert hipfile.Driver.use_count() == 0
print("ok")
