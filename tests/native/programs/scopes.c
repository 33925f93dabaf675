/* Where the slots of an operation live when its stream is synchronised. argv: folder, case. */
#include <alloca.h>
#include <fcntl.h>
#include <hip/hip_runtime_api.h>
#include <hipfile.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define FUNCTION static __attribute__((noinline, noclone))

enum { SIZE = 16384 };
struct slots {
    size_t size;
    hoff_t file, buffer;
    ssize_t done;
};
static hipFileHandle_t handle;
static hipStream_t stream;
static void *data;
static volatile uint64_t *gate;

FUNCTION void submit(struct slots *slots) {
    *slots = (struct slots){SIZE, 0, 0, -77};
    CHECK(hipFileReadAsync(handle, data, &slots->size, &slots->file, &slots->buffer, &slots->done, stream).err == 0);
}
/* Nothing on the stream runs before a later call has had the chance to see that the frame has ended: on a real thread the
 * result could else be written into whatever has taken its place. */
FUNCTION void hold(void) {
    *gate = 0;
    CHECK(hipStreamWaitValue64(stream, (void *)gate, 1, hipStreamWaitValueGte, UINT64_MAX) == hipSuccess);
}
FUNCTION void release(void) {
    CHECK(hipInit(0) == hipSuccess);
    *gate = 1;
}
FUNCTION void synchronise(void) {
    release();
    CHECK(hipStreamSynchronize(stream) == hipSuccess);
    __asm__ volatile("" ::: "memory"); /* no tail call */
}

/* -- wrong ------------------------------------------------------------------------------------------------------- */

FUNCTION void in_a_frame(void) {
    struct slots slots;
    hold();
    submit(&slots);
}
/* The frame of the submit is gone when the host waits. */
FUNCTION void left(void) {
    in_a_frame();
    release();
    CHECK(hipStreamSynchronize(stream) == hipSuccess);
}
/* The same, and another function's frame is in its place. */
FUNCTION void covered(void) {
    volatile char place[4096];
    memset((char *)place, 0x5a, sizeof place);
    synchronise();
    for (size_t i = 0; i < sizeof place; i++) CHECK(place[i] == 0x5a); /* the late write went into quarantine */
}
FUNCTION void left_and_covered(void) {
    in_a_frame();
    covered();
}
FUNCTION void in_a_loop(void) {
    for (int i = 0; i < 3; i++) in_a_frame();
    synchronise();
}
static void *on_a_thread(void *unused) {
    (void)unused;
    in_a_frame();
    return NULL;
}
static void *on_a_thread_to_the_end(void *unused) {
    struct slots slots;
    hold();
    submit(&slots);
    return unused;
}
static void run(void *(*body)(void *)) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, body, NULL));
    CHECK(!pthread_join(thread, NULL));
}
FUNCTION void thread_has_ended(void) {
    run(on_a_thread_to_the_end);
    synchronise();
}
FUNCTION void thread_has_left_the_frame(void) {
    run(on_a_thread);
    synchronise();
}

/* -- right ------------------------------------------------------------------------------------------------------- */

FUNCTION void deeper(int levels, struct slots *slots) {
    volatile char place[512];
    memset((char *)place, 1, sizeof place);
    if (levels)
        deeper(levels - 1, slots);
    else
        submit(slots);
    CHECK(place[levels] == 1);
}
/* In a frame that lives: submitted from below, with other functions called and gone in between. */
FUNCTION void in_a_frame_that_lives(void) {
    struct slots slots, more;
    deeper(3, &slots);
    submit(&more);
    CHECK(hipInit(0) == hipSuccess);
    synchronise();
    CHECK(slots.done == SIZE && more.done == SIZE);
}
FUNCTION void on_the_heap(void) {
    struct slots *slots = malloc(sizeof *slots);
    submit(slots);
    synchronise();
    CHECK(slots->done == SIZE);
    free(slots);
}
FUNCTION void with_alloca(size_t count) {
    struct slots *slots = alloca(count * sizeof *slots);
    for (size_t i = 0; i < count; i++) submit(slots + i);
    struct slots *others = alloca(count * sizeof *slots);
    for (size_t i = 0; i < count; i++) submit(others + i);
    synchronise();
    for (size_t i = 0; i < count; i++) CHECK(slots[i].done == SIZE && others[i].done == SIZE);
}
static void *submit_for_another(void *slots) {
    submit(slots);
    return NULL;
}
/* The frame is of the thread that waits, not of the one that submits, and that one has ended. */
FUNCTION void of_another_thread(void) {
    struct slots slots;
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, submit_for_another, &slots));
    CHECK(!pthread_join(thread, NULL));
    synchronise();
    CHECK(slots.done == SIZE);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int stage;
static void reach(int wanted) {
    pthread_mutex_lock(&mutex);
    stage = wanted;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}
static void await(int wanted) {
    pthread_mutex_lock(&mutex);
    while (stage < wanted) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}
FUNCTION void submit_and_be_told(void) {
    struct slots slots;
    submit(&slots);
    reach(1);
    await(2); /* the other thread has waited for the stream */
    CHECK(slots.done == SIZE);
}
static void *be_told(void *unused) {
    submit_and_be_told();
    CHECK(hipInit(0) == hipSuccess); /* the frame has ended, after the operation */
    return unused;
}
FUNCTION void another_thread_waits(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, be_told, NULL));
    await(1);
    synchronise();
    reach(2);
    CHECK(!pthread_join(thread, NULL));
}
FUNCTION void synchronised_in_the_frame(void) {
    struct slots slots;
    submit(&slots);
    synchronise();
    CHECK(slots.done == SIZE);
}
FUNCTION void again_and_again(void) {
    for (int i = 0; i < 3; i++) synchronised_in_the_frame();
    CHECK(hipInit(0) == hipSuccess);
}
FUNCTION void alloca_of_eight(void) { with_alloca(8); }

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"left", left},
             {"left_and_covered", left_and_covered},
             {"in_a_loop", in_a_loop},
             {"thread_has_ended", thread_has_ended},
             {"thread_has_left_the_frame", thread_has_left_the_frame},
             {"in_a_frame_that_lives", in_a_frame_that_lives},
             {"on_the_heap", on_the_heap},
             {"with_alloca", alloca_of_eight},
             {"of_another_thread", of_another_thread},
             {"another_thread_waits", another_thread_waits},
             {"again_and_again", again_and_again}};

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 3);
    snprintf(path, sizeof path, "%s/data", argv[1]);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && !ftruncate(fd, SIZE));
    hipFileDescr_t descr;
    memset(&descr, 0, sizeof descr);
    descr.type = hipFileHandleTypeOpaqueFD;
    descr.handle.fd = fd;
    CHECK(hipFileHandleRegister(&handle, &descr).err == 0);
    CHECK(hipMalloc(&data, SIZE) == hipSuccess && hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) == hipSuccess);
    CHECK(hipFileStreamRegister(stream, 0).err == 0);
    CHECK(hipHostMalloc((void **)&gate, sizeof *gate, 0) == hipSuccess);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[2])) {
            cases[i].run();
            CHECK(hipFileStreamDeregister(stream).err == 0);
            CHECK(hipStreamDestroy(stream) == hipSuccess && hipFree(data) == hipSuccess);
            CHECK(hipHostFree((void *)gate) == hipSuccess);
            hipFileHandleDeregister(handle);
            close(fd);
            CHECK(hipFileDriverClose().err == 0);
            puts("ok");
            return 0;
        }
    return 2;
}
