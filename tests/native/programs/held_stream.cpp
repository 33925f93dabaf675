// Slots changed while a host function holds the stream: read late without promises, fixed with all of them.
#include "program.hpp"

void body(int thread, const std::string &folder) {
    const size_t size = 32 << 10;
    Bytes bytes = pattern(size, 40 + thread);
    put(folder + "/held" + std::to_string(thread), bytes);
    File file(folder + "/held" + std::to_string(thread));
    for (unsigned flags : {0u, 7u}) {
        Device to(size);
        HIP(hipMemset(to.data, 0xEE, size));
        HIP(hipDeviceSynchronize());
        hipStream_t stream;
        HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
        FILE_OK(hipFileStreamRegister(stream, flags));
        Gate gate;
        HIP(hipLaunchHostFunc(stream, Gate::hold, &gate));
        Slots slots{8192, 0, 0}, grown{4096, 0, 0};
        FILE_OK(read_async(file, to.data, slots, stream));
        FILE_OK(read_async(file, to.data, grown, stream));
        CHECK(slots.done == 0 && grown.done == 0);
        slots.size = 4096;
        slots.file = 4096;
        slots.buffer = 8192;
        grown.size = 8192;
        CHECK(hipStreamQuery(stream) == hipErrorNotReady);
        gate.release();
        HIP(hipStreamSynchronize(stream));
        Bytes expected(size, 0xEE);
        if (flags == 0) {
            CHECK(slots.done == 4096 && grown.done == -hipFileInvalidValue);
            std::memcpy(&expected[8192], &bytes[4096], 4096);
        } else {
            CHECK(slots.done == 8192 && grown.done == 4096);
            std::memcpy(&expected[0], &bytes[0], 8192);
        }
        CHECK(to.contents() == expected);
        FILE_OK(hipFileStreamDeregister(stream));
        HIP(hipStreamDestroy(stream));
    }
}
