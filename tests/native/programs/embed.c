/* A host that has a Python of its own: argv[1] is its libpython, argv[2] the case. No Python header is needed. */
#include <dlfcn.h>
#include <hip/hip_runtime_api.h>
#include <hipfile.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static void *python;
static void *symbol(const char *name) {
    void *found = dlsym(python, name);
    CHECK(found);
    return found;
}

static int run(const char *code) { return ((int (*)(const char *))symbol("PyRun_SimpleString"))(code); }
static void initialize(void) { ((void (*)(int))symbol("Py_InitializeEx"))(0); }
static int finalize(void) { return ((int (*)(void))symbol("Py_FinalizeEx"))(); }

static void *on_a_thread(void *expected) {
    int count = -1;
    CHECK(hipGetDeviceCount(&count) == (hipError_t)(long)expected);
    CHECK(expected || count == 2);
    return NULL;
}

static void thread_gets(hipError_t expected) {
    pthread_t thread;
    void *state = expected == hipSuccess ? ((void *(*)(void))symbol("PyEval_SaveThread"))() : NULL;
    CHECK(!pthread_create(&thread, NULL, on_a_thread, (void *)(long)expected));
    pthread_join(thread, NULL);
    if (state) ((void (*)(void *))symbol("PyEval_RestoreThread"))(state);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    int global = strstr(argv[2], "local") ? RTLD_LOCAL : RTLD_GLOBAL;
    int count = -1;
    if (strstr(argv[2], "after")) { /* ours starts it; the host finds it running */
        CHECK(hipGetDeviceCount(&count) == hipSuccess && count == 2);
        CHECK((python = dlopen(argv[1], RTLD_NOW | global)));
        initialize();
        void *gil = symbol("PyGILState_Ensure");
        int state = ((int (*)(void))gil)();
        CHECK(run("import sys; assert 'hipfile_sim.native.bridge' in sys.modules") == 0);
        ((void (*)(int))symbol("PyGILState_Release"))(state);
        puts("ok");
        return 0;
    }
    CHECK((python = dlopen(argv[1], RTLD_NOW | global)));
    initialize();
    CHECK(run("mine = 1") == 0);
    CHECK(hipGetDeviceCount(&count) == hipSuccess && count == 2); /* the GIL is held */
    thread_gets(hipSuccess);
    CHECK(run("import sys; assert mine == 1 and 'hipfile_sim.native.bridge' in sys.modules") == 0);
    if (strstr(argv[2], "finalize")) {
        finalize();
        CHECK(hipGetDeviceCount(&count) == hipErrorDeinitialized);
        CHECK(hipFileUseCount() == -1 && hipFileRead(NULL, NULL, 1, 0, 0) < 0);
        thread_gets(hipErrorDeinitialized);
        initialize(); /* another interpreter is not ours: closed for good */
        CHECK(hipGetDeviceCount(&count) == hipErrorDeinitialized);
    }
    puts("ok");
    return 0;
}
