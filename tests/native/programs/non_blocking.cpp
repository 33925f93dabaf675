// A non-blocking stream goes on while the null stream is held; a blocking one does not.
#include "program.hpp"

static std::mutex one_at_a_time; // the null stream belongs to all threads

void body(int thread, const std::string &folder) {
    const size_t size = 64 << 10;
    Bytes bytes = pattern(size, 10 + thread);
    put(folder + "/nb" + std::to_string(thread), bytes);
    File file(folder + "/nb" + std::to_string(thread));
    Device to(size);
    hipStream_t free_stream, blocking;
    HIP(hipStreamCreateWithFlags(&free_stream, hipStreamNonBlocking));
    HIP(hipStreamCreate(&blocking));
    unsigned flags = 77;
    HIP(hipStreamGetFlags(free_stream, &flags));
    CHECK(flags == hipStreamNonBlocking);
    Slots slots{size, 0, 0}, late{size, 0, 0};
    {
        std::lock_guard<std::mutex> alone(one_at_a_time);
        Gate gate;
        HIP(hipLaunchHostFunc(nullptr, Gate::hold, &gate));
        FILE_OK(read_async(file, to.data, slots, free_stream));
        HIP(hipStreamSynchronize(free_stream));
        CHECK(slots.done == static_cast<ssize_t>(size));
        FILE_OK(read_async(file, to.data, late, blocking));
        CHECK(hipStreamQuery(blocking) == hipErrorNotReady && late.done == 0);
        gate.release();
        HIP(hipStreamSynchronize(blocking));
        HIP(hipStreamSynchronize(nullptr));
    }
    CHECK(late.done == static_cast<ssize_t>(size));
    CHECK(to.contents() == bytes);
    HIP(hipStreamDestroy(free_stream));
    HIP(hipStreamDestroy(blocking));
}
