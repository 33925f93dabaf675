// One stream, writes and reads in order, an operation across the end of the file, errno and error codes.
#include "program.hpp"

void body(int thread, const std::string &folder) {
    const size_t size = 1 << 20;
    Bytes bytes = pattern(size, 1 + thread);
    File file(folder + "/single" + std::to_string(thread), O_RDWR | O_TRUNC);
    Device from(size), to(size);
    HIP(hipMemcpy(from.data, bytes.data(), size, hipMemcpyHostToDevice));
    FILE_OK(hipFileBufRegister(from.data, size, 0));
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    Slots out{size, 0, 0}, in{size, 0, 0}, tail{8192, static_cast<hoff_t>(size) - 4096, 0};
    FILE_OK(write_async(file, from.data, out, stream));
    FILE_OK(read_async(file, to.data, in, stream));
    HIP(hipStreamSynchronize(stream));
    CHECK(out.done == static_cast<ssize_t>(size) && in.done == static_cast<ssize_t>(size));
    CHECK(to.contents() == bytes && file.contents() == bytes);
    FILE_OK(read_async(file, to.data, tail, stream));
    HIP(hipStreamSynchronize(stream));
    CHECK(tail.done == 4096);

    errno = 13;
    CHECK(hipFileReadAsync(file.handle, to.data, nullptr, &in.file, &in.buffer, &in.done, stream).err == hipFileInvalidValue);
    CHECK(errno == 13);
    CHECK(hipFileRead(file.handle, to.data, 4096, 0, 0) == 4096 && errno == 13);
    CHECK(hipFileRead(reinterpret_cast<void *>(0xF11E), to.data, 4096, 0, 0) == -hipFileHandleNotRegistered);
    CHECK(hipFree(reinterpret_cast<void *>(0x123)) == hipErrorInvalidValue);
    CHECK(hipPeekAtLastError() == hipErrorInvalidValue && hipGetLastError() == hipErrorInvalidValue);
    CHECK(hipGetLastError() == hipSuccess);
    CHECK(hipStreamQuery(stream) == hipSuccess);
    HIP(hipStreamDestroy(stream));
    FILE_OK(hipFileBufDeregister(from.data));
}
