// Several registered streams with all promises made, each with many operations under way, on two devices.
#include "program.hpp"

void body(int thread, const std::string &folder) {
    const size_t piece = 16 << 10, pieces = 16;
    const int streams = 4;
    Bytes bytes = pattern(piece * pieces * streams, 20 + thread);
    put(folder + "/reg" + std::to_string(thread), bytes);
    File file(folder + "/reg" + std::to_string(thread));
    HIP(hipSetDevice(thread % 2));
    int device = -1;
    HIP(hipGetDevice(&device));
    CHECK(device == thread % 2);
    Device to(bytes.size());
    FILE_OK(hipFileBufRegister(to.data, to.size, 0));
    hipStream_t stream[streams];
    std::vector<Slots> slots(pieces * streams);
    for (auto &one : stream) {
        HIP(hipStreamCreateWithFlags(&one, hipStreamNonBlocking));
        FILE_OK(hipFileStreamRegister(one, 7));
        CHECK(hipFileStreamRegister(one, 7).err == hipFileInvalidValue);
    }
    for (size_t i = 0; i < slots.size(); i++) {
        slots[i] = {piece, static_cast<hoff_t>(i * piece), static_cast<hoff_t>(i * piece), -77};
        FILE_OK(read_async(file, to.data, slots[i], stream[i % streams]));
    }
    for (auto &one : stream) HIP(hipStreamSynchronize(one));
    for (auto &one : slots) CHECK(one.done == static_cast<ssize_t>(piece));
    CHECK(to.contents() == bytes);
    for (auto &one : stream) {
        FILE_OK(hipFileStreamDeregister(one));
        HIP(hipStreamDestroy(one));
    }
    FILE_OK(hipFileBufDeregister(to.data));
}
