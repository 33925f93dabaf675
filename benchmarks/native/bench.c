/* What the C ABI costs a C program: argv = case, scratch file, rounds. Prints ns a call, ours and bare: of
 * real time, then of processor time of all threads, which other programs disturb less. */
#include <fcntl.h>
#include <hip/hip_runtime_api.h>
#include <hipfile.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

extern int bench_empty(unsigned flags); /* empty.c: in a library of its own, as hipInit is */

typedef struct {
    double real, cpu;
} moment;

static double read_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static moment now(void) {
    moment both = {read_clock(CLOCK_MONOTONIC), read_clock(CLOCK_PROCESS_CPUTIME_ID)};
    return both;
}

static const char *kind, *path;
static long rounds;
static moment best[2] = {{1e300, 1e300}, {1e300, 1e300}};

static void keep(int which, moment begun, double count) {
    moment end = now();
    double real = (end.real - begun.real) / count, cpu = (end.cpu - begun.cpu) / count;
    if (real < best[which].real) best[which].real = real;
    if (cpu < best[which].cpu) best[which].cpu = cpu;
}

static void init(void) {
    hipInit(0);
    for (int repeat = 0; repeat < 7; repeat++) {
        moment begun = now();
        for (long i = 0; i < rounds; i++) hipInit(0);
        keep(0, begun, rounds);
        begun = now();
        for (long i = 0; i < rounds * 10; i++) bench_empty(0);
        keep(1, begun, rounds * 10);
    }
}

/* Synchronous reads of one size, and pread plus memcpy of the same. */
static void sync_read(size_t size) {
    void *device;
    hipFileHandle_t handle;
    hipFileDescr_t descr = {.type = hipFileHandleTypeOpaqueFD};
    char *from = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    char *to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    int fd = open(path, O_RDONLY);
    descr.handle.fd = fd;
    CHECK(fd >= 0 && hipMalloc(&device, size) == hipSuccess && hipFileHandleRegister(&handle, &descr).err == 0);
    CHECK(hipFileBufRegister(device, size, 0).err == 0);
    for (int repeat = 0; repeat < 7; repeat++) {
        moment begun = now();
        for (long i = 0; i < rounds; i++) CHECK(hipFileRead(handle, device, size, 0, 0) == (ssize_t)size);
        keep(0, begun, rounds);
        begun = now();
        for (long i = 0; i < rounds; i++) {
            CHECK(pread(fd, from, size, 0) == (ssize_t)size);
            memcpy(to, from, size);
            __asm__ volatile("" : : "r"(to) : "memory");
        }
        keep(1, begun, rounds);
    }
}

/* 16 MiB asynchronous reads of a page-cached file, a few under way at a time, and the bare loop over the same bytes. */
static void async_read(void) {
    enum { SIZE = 16 << 20, DEPTH = 4 };
    void *device;
    hipStream_t stream;
    hipFileHandle_t handle;
    hipFileDescr_t descr = {.type = hipFileHandleTypeOpaqueFD};
    char *from = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    char *to = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    int fd = open(path, O_RDONLY);
    off_t pieces = lseek(fd, 0, SEEK_END) / SIZE;
    descr.handle.fd = fd;
    CHECK(pieces >= DEPTH && hipMalloc(&device, SIZE) == hipSuccess && hipStreamCreateWithFlags(&stream, 1) == hipSuccess);
    CHECK(hipFileHandleRegister(&handle, &descr).err == 0 && hipFileBufRegister(device, SIZE, 0).err == 0);
    CHECK(hipFileStreamRegister(stream, 7).err == 0);
    for (int repeat = 0; repeat < 5; repeat++) {
        struct {
            size_t size;
            hoff_t file, buffer;
            ssize_t done;
        } slots[DEPTH];
        moment begun = now();
        for (long i = 0; i < rounds; i += DEPTH) {
            for (int k = 0; k < DEPTH; k++) {
                slots[k].size = SIZE;
                slots[k].file = (i + k) % pieces * SIZE;
                slots[k].buffer = 0;
                CHECK(hipFileReadAsync(handle, device, &slots[k].size, &slots[k].file, &slots[k].buffer, &slots[k].done,
                                       stream)
                          .err == 0);
            }
            CHECK(hipStreamSynchronize(stream) == hipSuccess);
            for (int k = 0; k < DEPTH; k++) CHECK(slots[k].done == SIZE);
        }
        keep(0, begun, rounds);
        begun = now();
        for (long i = 0; i < rounds; i++) {
            CHECK(pread(fd, from, SIZE, i % pieces * SIZE) == SIZE);
            memcpy(to, from, SIZE);
            __asm__ volatile("" : : "r"(to) : "memory");
        }
        keep(1, begun, rounds);
    }
}

static void *thread(void *unused) {
    (void)unused;
    if (!strcmp(kind, "init")) init();
    if (!strcmp(kind, "read-4k")) sync_read(4096);
    if (!strcmp(kind, "read-1m")) sync_read(1 << 20);
    if (!strcmp(kind, "async-16m")) async_read();
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t worker;
    CHECK(argc == 4);
    kind = argv[1];
    path = argv[2];
    rounds = atol(argv[3]);
    CHECK(!pthread_create(&worker, NULL, thread, NULL));
    pthread_join(worker, NULL);
    printf("%.3f %.3f %.3f %.3f\n", best[0].real, best[1].real, best[0].cpu, best[1].cpu);
    return 0;
}
