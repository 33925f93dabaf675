// A file copied through the GPU, synchronously and asynchronously, with a size that is no multiple of anything.
#include "program.hpp"

void body(int thread, const std::string &folder) {
    const size_t size = (3 << 20) + 12345, piece = 1 << 20;
    Bytes bytes = pattern(size, 50 + thread);
    std::string base = folder + "/copy" + std::to_string(thread);
    put(base, bytes);
    File source(base), sync(base + ".sync", O_RDWR | O_TRUNC), async(base + ".async", O_RDWR | O_TRUNC);
    Device buffer(piece);
    FILE_OK(hipFileBufRegister(buffer.data, piece, 0));
    for (hoff_t at = 0;;) {
        ssize_t got = hipFileRead(source.handle, buffer.data, piece, at, 0);
        CHECK(got >= 0);
        if (got == 0) break;
        CHECK(hipFileWrite(sync.handle, buffer.data, static_cast<size_t>(got), at, 0) == got);
        at += got;
    }
    CHECK(sync.contents() == bytes);
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    for (size_t at = 0; at < size; at += piece) {
        size_t want = size - at < piece ? size - at : piece;
        Slots in{want, static_cast<hoff_t>(at), 0}, out{want, static_cast<hoff_t>(at), 0};
        FILE_OK(read_async(source, buffer.data, in, stream));
        FILE_OK(write_async(async, buffer.data, out, stream));
        HIP(hipStreamSynchronize(stream));
        CHECK(in.done == static_cast<ssize_t>(want) && out.done == static_cast<ssize_t>(want));
    }
    CHECK(async.contents() == bytes);
    HIP(hipStreamDestroy(stream));
    FILE_OK(hipFileBufDeregister(buffer.data));
}
