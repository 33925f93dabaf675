"""A program of HIP-Python's documented calls. argv[1] is a folder to work in."""

# ruff: noqa: PT018

import ctypes
import os
import sys

import rocm.hipfile
from rocm.bindings import hip, hipfile

SIZE = 1 << 16


def check(result, *, ok=0):
    """Unpack a HIP or hipFile result: the code must be `ok`; the values are returned."""
    error, *values = result
    code = error.err if hasattr(error, "err") else error
    assert int(code) == ok, (code, ok)
    return values[0] if len(values) == 1 else tuple(values)


names = [
    name
    for name in dir(hipfile)
    if name.startswith("hipFile") and callable(getattr(hipfile, name)) and not isinstance(getattr(hipfile, name), type)
]
assert len(names) == 31, names
assert all(hipfile.has_symbol(name) for name in names)

check(hip.hipInit(0))
assert check(hip.hipGetDeviceCount()) == 2
check(hip.hipSetDevice(1))
assert check(hip.hipGetDevice()) == 1
check(hip.hipSetDevice(0))
props = check(hip.hipGetDeviceProperties(0))
assert "emulated" in props.name and props.totalGlobalMem > 0 and props.warpSize == 64
assert check(hip.hipDeviceGetAttribute(hip.hipDeviceAttribute_t.hipDeviceAttributeWarpSize, 0)) == 64
free, total = check(hip.hipMemGetInfo())
assert 0 < free <= total
assert check(hip.hipRuntimeGetVersion()) // 10_000_000 == 7

device = check(hip.hipMalloc(SIZE))
pinned = check(hip.hipHostMalloc(SIZE, 0))
attributes = check(hip.hipPointerGetAttributes(device))
assert attributes.type == hip.hipMemoryType.hipMemoryTypeDevice
data = bytes(range(256)) * (SIZE // 256)
back = bytearray(SIZE)
check(hip.hipMemcpy(device, data, SIZE, hip.hipMemcpyKind.hipMemcpyHostToDevice))
check(hip.hipMemcpy(back, device, SIZE, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
assert back == data

stream = check(hip.hipStreamCreateWithFlags(1))
start, end = check(hip.hipEventCreate()), check(hip.hipEventCreate())
seen = []
called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(seen.append)
check(hip.hipEventRecord(start, stream))
check(hip.hipMemsetAsync(device, 0x5A, SIZE, stream))
check(hip.hipLaunchHostFunc(stream, ctypes.cast(called, ctypes.c_void_p), 7))
check(hip.hipMemcpyAsync(pinned, device, SIZE, hip.hipMemcpyKind.hipMemcpyDeviceToHost, stream))
check(hip.hipEventRecord(end, stream))
check(hip.hipEventSynchronize(end))
check(hip.hipStreamSynchronize(stream))
assert seen == [7]
assert ctypes.string_at(int(pinned), SIZE) == b"\x5a" * SIZE
assert check(hip.hipEventElapsedTime(start, end)) >= 0
assert check(hip.hipStreamQuery(stream)) == ()

error = hip.hipError_t.hipErrorInvalidDevice
check(hip.hipSetDevice(9), ok=101)
assert hip.hipPeekAtLastError() == (error,) and hip.hipGetLastError() == (error,)
assert hip.hipGetLastError() == (hip.hipError_t.hipSuccess,)
assert str(hip.hipGetErrorName(error)[1]) == "hipErrorInvalidDevice"

path = os.path.join(sys.argv[1], "data")
fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
os.write(fd, data)
assert hipfile.hipFileUseCount() == (0,)
check(hipfile.hipFileDriverOpen())
descr = hipfile.hipFileDescr()
descr.type = hipfile.hipFileFileHandleType.hipFileHandleTypeOpaqueFD
descr.handle.fd = fd
handle = check(hipfile.hipFileHandleRegister(descr))
check(hipfile.hipFileBufRegister(device, SIZE, 0))
assert hipfile.hipFileRead(handle, device, SIZE, 0, 0)[0] == SIZE
check(hip.hipMemcpy(back, device, SIZE, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
assert back == data
count, errno_value, _ = hipfile.hipFileRead(handle, device, SIZE, -1, 0)
assert (count, errno_value) == (-1, 22)
assert hipfile.hipFileWrite(handle, device, 4096, SIZE, 0)[0] == 4096
assert os.fstat(fd).st_size == SIZE + 4096

# the four slots as ctypes objects, as addresses, as writable buffers
check(hipfile.hipFileStreamRegister(stream, 0))
size, file_offset, buffer_offset = ctypes.c_size_t(8192), ctypes.c_int64(4096), ctypes.c_int64(0)
done = ctypes.c_ssize_t(-7)
slots = (size, file_offset, buffer_offset, done)
block = (ctypes.c_int64 * 4)(8192, 4096, 0, -7)
base = ctypes.addressof(block)
views = [bytearray(value.to_bytes(8, "little")) for value in (8192, 4096, 0, 99)]
for arguments in (slots, [base + 8 * i for i in range(4)], views):
    check(hipfile.hipFileReadAsync(handle, device, *arguments, stream))
check(hip.hipStreamSynchronize(stream))
assert done.value == 8192 and block[3] == 8192 and int.from_bytes(views[3], "little") == 8192
check(hip.hipMemcpy(back, device, 8192, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
assert back[:8192] == data[4096:12288]
check(hipfile.hipFileStreamDeregister(stream))
check(hipfile.hipFileStreamDeregister(stream), ok=5022)

# nothing that is not implemented succeeds silently
batch = check(hipfile.hipFileBatchIOSetUp(2))
check(hipfile.hipFileBatchIOCancel(batch))
hipfile.hipFileBatchIODestroy(batch)
check(hipfile.hipFileBatchIOCancel(batch), ok=5022)
props = hipfile.hipFileDriverProps()
check(hipfile.hipFileDriverGetProperties(props), ok=5030)
check(hipfile.hipFileDriverSetPollMode(True, 4), ok=5030)
for setter in ("MaxDirectIOSize", "MaxCacheSize", "MaxPinnedMemSize"):
    check(getattr(hipfile, f"hipFileDriverSet{setter}")(1), ok=5030)
size_parameter = hipfile.hipFileSizeTConfigParameter_t.hipFileParamProfileStats
bool_parameter = hipfile.hipFileBoolConfigParameter_t.hipFileParamForceCompatMode
text_parameter = hipfile.hipFileStringConfigParameter_t.hipFileParamLogDir
check(hipfile.hipFileSetParameterSizeT(size_parameter, 1), ok=5030)
check(hipfile.hipFileSetParameterBool(bool_parameter, True), ok=5030)
check(hipfile.hipFileSetParameterString(text_parameter, b"/tmp"), ok=5030)
check(hipfile.hipFileGetParameterSizeT(size_parameter)[:1], ok=5030)
check(hipfile.hipFileGetParameterBool(bool_parameter)[:1], ok=5030)
check(hipfile.hipFileGetParameterString(text_parameter, 16)[:1], ok=5030)

check(hipfile.hipFileBufDeregister(device))
hipfile.hipFileHandleDeregister(handle)
assert hipfile.hipFileRead(handle, device, 1, 0, 0)[0] == -5027

# the layer above
with rocm.hipfile.Driver(), rocm.hipfile.FileHandle(path, os.O_RDONLY) as file:
    buffer = rocm.hipfile.Buffer(int(device), SIZE, 0)
    buffer.register()
    assert file.read(buffer, 4096, 0, 0) == 4096
    buffer.deregister()
assert rocm.hipfile.get_version()[:2] == (0, 5)
check(hipfile.hipFileDriverClose())
os.close(fd)
check(hip.hipEventDestroy(start))
check(hip.hipEventDestroy(end))
check(hip.hipStreamDestroy(stream))
check(hip.hipFree(device))
check(hip.hipHostFree(pinned))
print("ok")
