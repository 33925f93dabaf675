// A read into memory that another stream writes, without an edge between them (argv[1] "wrong"), or with one ("right").
#define OWN_MAIN
#include "program.hpp"

int main(int argc, char **argv) {
    CHECK(argc == 3);
    bool right = !std::strcmp(argv[2], "right");
    const size_t size = 64 << 10;
    put(std::string(argv[1]) + "/race", pattern(size, 9));
    {
        File file(std::string(argv[1]) + "/race");
        Device data(size);
        hipStream_t reader, writer;
        hipEvent_t written;
        HIP(hipStreamCreateWithFlags(&reader, hipStreamNonBlocking));
        HIP(hipStreamCreateWithFlags(&writer, hipStreamNonBlocking));
        HIP(hipEventCreate(&written));
        FILE_OK(hipFileBufRegister(data.data, size, 0));
        FILE_OK(hipFileStreamRegister(reader, 7));
        Slots slots{size, 0, 0};
        HIP(hipMemsetAsync(data.data, 1, size, writer));
        HIP(hipEventRecord(written, writer));
        if (right) HIP(hipStreamWaitEvent(reader, written, 0));
        FILE_OK(read_async(file, data.data, slots, reader));
        HIP(hipDeviceSynchronize());
        CHECK(slots.done == static_cast<ssize_t>(size));
        FILE_OK(hipFileStreamDeregister(reader));
        FILE_OK(hipFileBufDeregister(data.data));
        HIP(hipStreamDestroy(reader));
        HIP(hipStreamDestroy(writer));
        HIP(hipEventDestroy(written));
    }
    FILE_OK(hipFileDriverClose());
    return 0;
}
