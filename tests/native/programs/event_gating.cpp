// Layer by layer: reads on a side stream, an event each, compute waits for its own layer only.
#include "program.hpp"

__global__ void add(unsigned char *data, const unsigned char *source, int n, unsigned char value) {
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) data[i] = static_cast<unsigned char>(source[i] + value);
}

void body(int thread, const std::string &folder) {
    const int layers = 6, layer = 4096;
    Bytes bytes = pattern(layers * layer, 30 + thread);
    put(folder + "/ev" + std::to_string(thread), bytes);
    File file(folder + "/ev" + std::to_string(thread));
    Device loaded(bytes.size()), result(bytes.size());
    hipStream_t side, compute;
    HIP(hipStreamCreateWithFlags(&side, hipStreamNonBlocking));
    HIP(hipStreamCreateWithFlags(&compute, hipStreamNonBlocking));
    std::vector<Slots> slots(layers);
    std::vector<hipEvent_t> events(layers);
    for (int i = 0; i < layers; i++) {
        slots[i] = {static_cast<size_t>(layer), i * layer, i * layer, -77};
        FILE_OK(read_async(file, loaded.data, slots[i], side));
        HIP(hipEventCreateWithFlags(&events[i], hipEventDisableTiming));
        HIP(hipEventRecord(events[i], side));
    }
    for (int i = 0; i < layers; i++) {
        HIP(hipStreamWaitEvent(compute, events[i], 0));
        auto *out = static_cast<unsigned char *>(result.data) + i * layer;
        auto *in = static_cast<const unsigned char *>(loaded.data) + i * layer;
        hipLaunchKernelGGL(add, dim3(layer / 256), dim3(256), 0, compute, out, in, layer, static_cast<unsigned char>(i + 1));
        HIP(hipGetLastError());
        HIP(hipEventSynchronize(events[i]));
        CHECK(slots[i].done == layer);
    }
    HIP(hipStreamSynchronize(compute));
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<unsigned char>(bytes[i] + i / layer + 1);
    CHECK(result.contents() == bytes);
    float ms = -1;
    CHECK(hipEventElapsedTime(&ms, events[0], events[1]) != hipSuccess); // timing is disabled
    for (auto event : events) HIP(hipEventDestroy(event));
    HIP(hipStreamDestroy(side));
    HIP(hipStreamDestroy(compute));
}
