/* What a C host may do to a library that has an interpreter inside. argv[1] names the case. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <hip/hip_runtime_api.h>
#include <hipfile.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void *count_devices(void *unused) {
    int count = -1;
    (void)unused;
    CHECK(hipGetDeviceCount(&count) == hipSuccess && count == 2);
    return NULL;
}

/* Eight threads race for the first call. */
static void race(void) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) CHECK(!pthread_create(&threads[i], NULL, count_devices, NULL));
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
}

static pthread_barrier_t barrier;
static void *first_of_either(void *number) {
    pthread_barrier_wait(&barrier);
    if ((long)number % 2) CHECK(hipFileUseCount() == 0);
    return count_devices(NULL);
}
/* Eight threads at once, half of them through the one library and half through the other. */
static void race_of_both(void) {
    pthread_t threads[8];
    CHECK(!pthread_barrier_init(&barrier, NULL, 8));
    for (long i = 0; i < 8; i++) CHECK(!pthread_create(&threads[i], NULL, first_of_either, (void *)i));
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
}

static long resident_kb(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Many short threads: what a thread got is given back when it ends. */
static void short_threads(void) {
    for (int i = 0; i < 200; i++) race();
    long before = resident_kb();
    for (int i = 0; i < 600; i++) race();
    CHECK(resident_kb() - before < 4096);
}

static volatile int stop;
static void *busy(void *unused) {
    (void)unused;
    while (!stop) {
        void *pointer = NULL;
        CHECK(hipMalloc(&pointer, 4096) == hipSuccess && hipFree(pointer) == hipSuccess);
    }
    return NULL;
}

/* fork() while other threads are in the model: the child gets an error, not a hang, and may go on without HIP. */
static void forks(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(!pthread_create(&threads[i], NULL, busy, NULL));
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            int count = -1;
            alarm(20); /* a hang is death by SIGALRM */
            hipError_t error = hipGetDeviceCount(&count);
            ssize_t got = hipFileRead(NULL, NULL, 1, 0, 0);
            if (i == 0 && error == hipSuccess) _exit(0); /* forked before any thread had begun: it may use HIP itself */
            _exit(error == hipErrorNotInitialized && got < 0 ? 0 : 3);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child);
        if (status) fprintf(stderr, "child %d: status %x\n", i, (unsigned)status);
        CHECK(status == 0);
        count_devices(NULL);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

/* Opened without RTLD_GLOBAL in a process that has no Python. */
static void plugin(void) {
    void *library = dlopen("libhipfile.so", RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    long (*use_count)(void) = (long (*)(void))dlsym(library, "hipFileUseCount");
    CHECK(use_count && use_count() == 0);
    dlclose(library);
    count_devices(NULL);
}

static void late(void) {
    int count = -1;
    if (hipGetDeviceCount(&count) != hipSuccess) _exit(4);
}
/* Calls from an exit handler that was registered before the first call, and from one registered after it. */
static void at_exit(void) {
    atexit(late);
    count_devices(NULL);
    atexit(late);
}

static int signals;
static void on_signal(int number) { signals += number == SIGINT; }
/* The C program's signal handlers stay its own. */
static void keep_signals(void) {
    signal(SIGINT, on_signal);
    count_devices(NULL);
    raise(SIGINT);
    count_devices(NULL);
    CHECK(signals == 1);
}

struct deep {
    hipStream_t stream;
    int code, file_code;
};
static void deep(void *data) {
    struct deep *self = data;
    self->code = hipStreamSynchronize(self->stream); /* not allowed in a host function */
    self->file_code = (int)hipFileUseCount();
}
/* A host function that comes back into the library. */
static void reenter(void) {
    struct deep self = {NULL, -1, -1};
    CHECK(hipStreamCreate(&self.stream) == hipSuccess);
    CHECK(hipLaunchHostFunc(self.stream, deep, &self) == hipSuccess);
    CHECK(hipStreamSynchronize(self.stream) == hipSuccess);
    CHECK(self.code == 800 && self.file_code == 0);
    CHECK(hipLaunchHostFunc(self.stream, NULL, NULL) == hipErrorInvalidValue);
    CHECK(hipLaunchHostFunc(self.stream, (hipHostFn_t)&self, NULL) == hipErrorInvalidValue); /* data, not code */
}

/* errno survives every call that does not set it. */
static void keeps_errno(void) {
    void *pointer = NULL;
    errno = 77;
    CHECK(hipMalloc(&pointer, 1 << 20) == hipSuccess && errno == 77);
    CHECK(hipMalloc((void **)8, 1 << 20) == hipErrorInvalidValue && errno == 77);
    CHECK(hipFileBufRegister(NULL, 5, 0).err == hipFileInvalidValue && errno == 77);
    CHECK(hipFileRead(NULL, pointer, 1, 0, 0) == -hipFileHandleNotRegistered && errno == 77);
    CHECK(hipFileRead(NULL, NULL, 1, -1, 0) != 0);
}

static hipError_t (*looked_up)(void **, size_t);
static void look_up(void) {
    int status = -1;
    void *function = NULL;
    CHECK(hipGetProcAddress("hipMalloc", (void **)&looked_up, 600, 0, &status) == hipSuccess && status == 0);
    CHECK(looked_up == (hipError_t(*)(void **, size_t))hipMalloc);
    CHECK(hipGetProcAddress("hipGetDeviceProperties", &function, 700, 0, &status) == hipSuccess);
    CHECK(function == dlsym(RTLD_DEFAULT, "hipGetDevicePropertiesR0600"));
    CHECK(hipGetProcAddress("hipNoSuchFunction", &function, 600, 0, &status) != hipSuccess && status == 1 && !function);
    static const char *const not_hip[] = {"printf", "malloc", "hipfile_sim_call", "hipFileRead", "hs_last_error", "", "hip"};
    for (size_t i = 0; i < sizeof not_hip / sizeof *not_hip; i++)
        CHECK(hipGetProcAddress(not_hip[i], &function, 600, 0, &status) == hipErrorNotFound && status == 1 && !function);
    CHECK(hipGetLastError() == hipErrorNotFound && hipGetLastError() == hipSuccess);
    CHECK(hipGetProcAddress((char *)16, &function, 600, 0, &status) == hipErrorInvalidValue);
    CHECK(hipGetProcAddress("hipMalloc", (void **)16, 600, 0, NULL) == hipErrorInvalidValue);
}

static void never_returns(void *unused) {
    (void)unused;
    for (;;) pause();
}
static void *synchronise(void *stream) {
    hipStreamSynchronize(stream);
    return NULL;
}
static void pending_work(void) {
    enum { COUNT = 16, SIZE = 65536 };
    static size_t size = SIZE;
    static hoff_t zero;
    static ssize_t done[2 * COUNT];
    char path[4096];
    hipStream_t held, free;
    void *data;
    hipFileHandle_t handle;
    hipFileDescr_t descr;
    pthread_t thread;
    snprintf(path, sizeof path, "%s/pending", getenv("FOLDER"));
    memset(&descr, 0, sizeof descr);
    descr.type = hipFileHandleTypeOpaqueFD;
    descr.handle.fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(descr.handle.fd >= 0 && !ftruncate(descr.handle.fd, SIZE));
    CHECK(hipFileHandleRegister(&handle, &descr).err == 0);
    CHECK(hipMalloc(&data, SIZE) == hipSuccess && hipStreamCreate(&held) == hipSuccess);
    CHECK(hipStreamCreateWithFlags(&free, hipStreamNonBlocking) == hipSuccess);
    CHECK(hipLaunchHostFunc(held, never_returns, NULL) == hipSuccess);
    for (int i = 0; i < COUNT; i++) {
        CHECK(hipFileReadAsync(handle, data, &size, &zero, &zero, &done[i], held).err == 0);
        CHECK(hipFileWriteAsync(handle, data, &size, &zero, &zero, &done[COUNT + i], free).err == 0);
    }
    CHECK(!pthread_create(&thread, NULL, synchronise, held));
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"race", race},       {"race_of_both", race_of_both}, {"short_threads", short_threads}, {"forks", forks},
             {"plugin", plugin},   {"at_exit", at_exit},           {"keep_signals", keep_signals},   {"reenter", reenter},
             {"look_up", look_up}, {"keeps_errno", keeps_errno},   {"pending_work", pending_work}};

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[1])) {
            cases[i].run();
            puts("ok");
            return 0;
        }
    return 2;
}
