// What the programs share: checks that say where they failed, files with known bytes, and N threads that run a body.
#pragma once
#include <hip/hip_runtime.h>
#include <hipfile.h>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                       \
            std::_Exit(1);                                                                                             \
        }                                                                                                              \
    } while (0)
#define HIP(call) CHECK((call) == hipSuccess)
#define FILE_OK(call) CHECK((call).err == hipFileSuccess)

using Bytes = std::vector<unsigned char>;

inline Bytes pattern(size_t size, unsigned seed) {
    Bytes bytes(size);
    unsigned state = seed * 2654435761u + 1;
    for (auto &byte : bytes) byte = static_cast<unsigned char>((state = state * 1664525u + 1013904223u) >> 24);
    return bytes;
}

struct File {
    std::string path;
    int fd;
    hipFileHandle_t handle = nullptr;
    explicit File(const std::string &name, int flags = O_RDWR) : path(name), fd(open(name.c_str(), flags | O_CREAT, 0600)) {
        CHECK(fd >= 0);
        hipFileDescr_t descr{};
        descr.type = hipFileHandleTypeOpaqueFD;
        descr.handle.fd = fd;
        FILE_OK(hipFileHandleRegister(&handle, &descr));
    }
    ~File() {
        hipFileHandleDeregister(handle);
        close(fd);
    }
    Bytes contents() const {
        Bytes bytes(static_cast<size_t>(lseek(fd, 0, SEEK_END)));
        CHECK(pread(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
        return bytes;
    }
};

inline void put(const std::string &path, const Bytes &bytes) {
    int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    close(fd);
}

struct Device {
    void *data = nullptr;
    size_t size;
    explicit Device(size_t bytes) : size(bytes) { HIP(hipMalloc(&data, bytes)); }
    ~Device() { HIP(hipFree(data)); }
    Bytes contents() const {
        Bytes bytes(size);
        HIP(hipMemcpy(bytes.data(), data, size, hipMemcpyDeviceToHost));
        return bytes;
    }
};

struct Slots {
    size_t size;
    hoff_t file, buffer;
    ssize_t done = -77;
};

inline hipFileError_t read_async(File &file, void *base, Slots &slots, hipStream_t stream) {
    return hipFileReadAsync(file.handle, base, &slots.size, &slots.file, &slots.buffer, &slots.done, stream);
}
inline hipFileError_t write_async(File &file, void *base, Slots &slots, hipStream_t stream) {
    return hipFileWriteAsync(file.handle, base, &slots.size, &slots.file, &slots.buffer, &slots.done, stream);
}

// A host function that holds its stream until release().
struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false, reached = false;
    static void hold(void *self) {
        auto *gate = static_cast<Gate *>(self);
        std::unique_lock<std::mutex> lock(gate->mutex);
        gate->reached = true;
        gate->changed.notify_all();
        gate->changed.wait(lock, [gate] { return gate->open; });
    }
    void release() {
        std::lock_guard<std::mutex> lock(mutex);
        open = true;
        changed.notify_all();
    }
};

#ifndef OWN_MAIN
void body(int thread, const std::string &folder);

int main(int argc, char **argv) {
    CHECK(argc == 3);
    int threads = std::atoi(argv[2]);
    std::vector<std::thread> running;
    FILE_OK(hipFileDriverOpen());
    if (threads == 1) {
        body(0, argv[1]);
    } else {
        for (int i = 0; i < threads; i++) running.emplace_back(body, i, std::string(argv[1]));
        for (auto &thread : running) thread.join();
    }
    FILE_OK(hipFileDriverClose());
    std::printf("ok %d\n", threads);
    return 0;
}
#endif
