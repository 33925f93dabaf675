// Many operations with verified data while faults are injected: argv = folder, operations, threads.
#define OWN_MAIN
#include "program.hpp"

#include <dirent.h>

static std::atomic<long> left, faults;

static unsigned next(unsigned &state) { return state = state * 1664525u + 1013904223u; }

struct Usage {
    long descriptors = 0, threads = 0, mappings = 0, resident_kb = 0;
};

static long entries(const char *path) {
    DIR *folder = opendir(path);
    CHECK(folder);
    long count = 0;
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static Usage usage() {
    Usage now;
    now.descriptors = entries("/proc/self/fd");
    now.threads = entries("/proc/self/task");
    FILE *maps = std::fopen("/proc/self/maps", "r");
    for (int c; (c = std::fgetc(maps)) != EOF;) now.mappings += c == '\n';
    std::fclose(maps);
    long pages = 0;
    FILE *statm = std::fopen("/proc/self/statm", "r");
    CHECK(std::fscanf(statm, "%ld %ld", &pages, &now.resident_kb) == 2);
    std::fclose(statm);
    now.resident_kb *= sysconf(_SC_PAGESIZE) / 1024;
    return now;
}

// A result that faults may give: a count up to the size, or one of the documented failures.
static bool failed(ssize_t result) { return result == -1 || result == -hipFileInternalError; }

static void work(int thread, std::string folder) {
    const size_t size = 256 << 10;
    unsigned random = 12345u + static_cast<unsigned>(thread);
    HIP(hipSetDevice(thread % 2));
    Bytes bytes = pattern(size, 100 + thread), seen(size);
    std::string name = folder + "/soak" + std::to_string(thread);
    put(name, bytes);
    Device data(size), back(size);
    hipStream_t stream;
    HIP(hipStreamCreateWithFlags(&stream, thread % 3 ? hipStreamNonBlocking : hipStreamDefault));
    FILE_OK(hipFileStreamRegister(stream, thread % 2 ? 7 : 0));
    while (left.fetch_sub(1) > 0) {
        File file(name);
        for (int round = 0; round < 8; round++) {
            size_t length = 1 + next(random) % (32 << 10), from = next(random) % (size - length), to = next(random) % (size - length);
            HIP(hipMemsetAsync(data.data, 0xA5, size, stream));
            Slots slots{length, static_cast<hoff_t>(from), static_cast<hoff_t>(to)};
            ssize_t got;
            if (round % 4 == 3) {
                HIP(hipStreamSynchronize(stream));
                got = hipFileRead(file.handle, data.data, length, slots.file, slots.buffer);
            } else {
                FILE_OK(read_async(file, data.data, slots, stream));
                HIP(hipStreamSynchronize(stream));
                got = slots.done;
            }
            HIP(hipMemcpyWithStream(seen.data(), data.data, size, hipMemcpyDeviceToHost, stream));
            if (failed(got)) {
                faults++;
            } else {
                CHECK(got >= 0 && static_cast<size_t>(got) <= length);
                if (static_cast<size_t>(got) < length) faults++;
                CHECK(!std::memcmp(&seen[to], &bytes[from], static_cast<size_t>(got)));
                for (size_t i = 0; i < size; i++)
                    if (i < to || i >= to + static_cast<size_t>(got)) CHECK(seen[i] == 0xA5);
            }
            if (round == 5) { // write the right bytes back: whatever part arrives, the file stays what it is
                HIP(hipMemcpyAsync(back.data, bytes.data(), size, hipMemcpyHostToDevice, stream));
                Slots out{length, static_cast<hoff_t>(from), static_cast<hoff_t>(from)};
                FILE_OK(write_async(file, back.data, out, stream));
                HIP(hipStreamSynchronize(stream));
                CHECK(failed(out.done) || (out.done >= 0 && out.done <= static_cast<ssize_t>(length)));
                if (out.done != static_cast<ssize_t>(length)) faults++;
            }
        }
        left.fetch_sub(8);
    }
    FILE_OK(hipFileStreamDeregister(stream));
    HIP(hipStreamDestroy(stream));
    put(name, bytes);
}

static void round(const std::string &folder, long operations, int threads) {
    std::vector<std::thread> running;
    left = operations;
    for (int i = 0; i < threads; i++) running.emplace_back(work, i, folder);
    for (auto &thread : running) thread.join();
    HIP(hipDeviceSynchronize());
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    long operations = std::atol(argv[2]);
    int threads = std::atoi(argv[3]);
    FILE_OK(hipFileDriverOpen());
    round(argv[1], operations / 4, threads); // what is made once is made now, and what is used again
    round(argv[1], operations / 4, threads);
    Usage before = usage();
    round(argv[1], operations - operations / 4 * 2, threads);
    Usage after = usage();
    FILE_OK(hipFileDriverClose());
    std::printf("faults %ld descriptors %ld threads %ld mappings %ld resident %ld %ld\n", faults.load(),
                after.descriptors - before.descriptors, after.threads - before.threads, after.mappings - before.mappings,
                before.resident_kb, after.resident_kb);
    return 0;
}
