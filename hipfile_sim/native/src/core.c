/* Start or find the interpreter, import the bridge, and call it: on any thread, across fork, exit and Ctrl-C. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core.h"
#include "python.h"

enum { NOT_READY = 600, UNKNOWN = 999 }; /* hipErrorNotReady is an answer, not an error; hipErrorUnknown */

/* Operations of hipfile_sim_control. */
enum {
    CONTROL_CLOSING = 1,  /* from now on only the calling thread is served: the interpreter is about to go */
    CONTROL_IN_FLIGHT = 2, /* how many threads are inside the model */
    CONTROL_EMBEDDED = 3,  /* 1 if the interpreter was started here */
    CONTROL_WATCHING = 4,  /* from now on every call takes down the frames that it was made from */
};

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern char __dso_handle __attribute__((visibility("hidden")));

hs_python hs_py;
static hs_conf conf;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int starting;  /* somebody has made a first call */
static atomic_int started;   /* and found out whether there is a Python */
static int found;            /* hs_py is filled */
static int embedded;         /* this library started the interpreter */
static PyObject *functions;  /* list: the bridge's function for each name of the table; the bridge may replace items */
static int bind_failed;      /* the bridge could not be imported */
static atomic_int gone;      /* the interpreter was finalised: for good, even if another is started later */
static atomic_int closing;   /* it is about to be */
static int in_flight;        /* threads inside the model; the GIL guards it */
static pthread_t closer;
static atomic_int watching;

/* A C thread gets a thread state once, not at each call: a call costs 0.2 us then instead of 10, and Python's own
 * thread-locals keep their values between two calls. */
enum { UNPINNED = 0, PINNED = 1, EXITING = 2 };
static __thread struct {
    int pin;
    int gil;
    void *state;
    int last_error;
    const void *caller, *frame;
    uintptr_t stack, stack_end; /* bounds, once they were asked for */
    int frames;                 /* of the client, innermost first: stack pointer, place in the code */
    uint64_t chain[HS_FRAMES][2];
} self;

const char *hs_library_path(void) {
    static const char empty[] = "";
    Dl_info info;
    return dladdr(empty, &info) && info.dli_fname ? info.dli_fname : empty;
}

/* Exactly that many bytes from one address of this process to another, by the kernel: EFAULT instead of a signal. */
static int move(const void *local, const void *remote, size_t count, int write_remote) {
    struct iovec mine = {(void *)local, count}, theirs = {(void *)remote, count};
    ssize_t moved = write_remote ? process_vm_writev(getpid(), &mine, 1, &theirs, 1, 0)
                                 : process_vm_readv(getpid(), &mine, 1, &theirs, 1, 0);
    if (moved == (ssize_t)count) return 1;
    if (moved >= 0 || errno == EFAULT) return 0;
    /* Not permitted here: through a pipe, piece by piece. */
    int ends[2], done = 0;
    if (pipe2(ends, O_CLOEXEC)) return 0;
    const char *from = write_remote ? local : remote;
    char *to = (char *)(write_remote ? remote : local);
    size_t at = 0;
    for (; at < count; at += done) {
        size_t piece = count - at < 4096 ? count - at : 4096;
        done = (int)write(ends[1], from + at, piece);
        if (done <= 0 || read(ends[0], to + at, done) != done) break;
    }
    close(ends[0]);
    close(ends[1]);
    return at == count;
}

int hs_peek(void *to, const void *from, size_t count) {
    int saved = errno, ok = move(to, from, count, 0);
    errno = saved;
    return ok;
}

int hs_poke(void *to, const void *from, size_t count) {
    int saved = errno, ok = move(from, to, count, 1);
    errno = saved;
    return ok;
}

/* ----------------------------------------------------------------------------------------------------- interpreter */

static void start(void);
static int bind(void);
static void pin(void);

static void on_finalize(void) { atomic_store(&gone, 1); }

int hs_embedded(void) { return embedded; }

int hs_bound(void) { return functions != NULL; }

static int usable(void) { return found && !atomic_load(&gone) && hs_py.Py_IsInitialized(); }

/* fork() in a C program: without this a child forked while another thread is in the model hangs. os.fork does the same
 * by itself, so it is for interpreters that were started here. A start under way is waited for, and so is the import of
 * the bridge: a lock that another thread holds would never be released in the child. */
static __thread int fork_gil;
static __thread int fork_prepared;
static void before_fork(void) {
    fork_prepared = 0;
    if (!atomic_load(&starting)) return;
    pthread_once(&once, start);
    if (!embedded || !usable()) return;
    fork_prepared = 1;
    if (self.pin == UNPINNED) pin(); /* the child must keep a thread state: an interpreter without any cannot make one */
    fork_gil = hs_py.PyGILState_Ensure();
    if (!functions) bind();
    hs_py.PyOS_BeforeFork();
}
static void after_fork_parent(void) {
    if (!fork_prepared) return;
    hs_py.PyOS_AfterFork_Parent();
    hs_py.PyGILState_Release(fork_gil);
}
static void after_fork_child(void) {
    in_flight = 0;
    hs_after_fork();
    if (!fork_prepared) return;
    hs_py.PyOS_AfterFork_Child();
    hs_py.PyGILState_Release(fork_gil);
}

__attribute__((constructor)) static void loaded(void) {
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* The C program ends: let the bridge write what it holds back (a trace). */
static void at_exit(void) {
    if (!usable() || !functions) return;
    int gil = hs_py.PyGILState_Ensure();
    PyObject *bridge = hs_py.PyImport_ImportModule("hipfile_sim.native.bridge");
    PyObject *done = bridge ? hs_py.PyObject_CallMethod(bridge, "finish", NULL) : NULL;
    if (!done) hs_py.PyErr_WriteUnraisable(bridge);
    hs_py.PyGILState_Release(gil);
}

static int start_python(void) {
    if (!hs_find_python(&hs_py, &conf)) return 0;
    if (!hs_py.Py_IsInitialized()) {
        static wchar_t program[4096]; /* kept by Python */
        if (conf.program[0] && hs_py.set_program_name && mbstowcs(program, conf.program, 4095) != (size_t)-1)
            hs_py.set_program_name(program);
        hs_py.Py_InitializeEx(0); /* 0: the C program's signal handlers stay */
        if (!hs_py.Py_IsInitialized()) {
            fprintf(stderr, "hipfile-sim: the embedded Python did not start.\n");
            return 0;
        }
        embedded = 1;
        hs_py.PyEval_SaveThread();
    }
    return 1;
}

static void start(void) {
    atomic_store(&starting, 1);
    found = start_python();
    atomic_store_explicit(&started, 1, memory_order_release);
}

static PyObject *import_entry(void) { return hs_py.PyImport_ImportModule("hipfile_sim.native.entry"); }

/* Import the bridge and take its list of functions. The GIL is held, and it is the lock: a thread that holds it must
 * never wait for one that wants it. HS_RAISED: interrupted; the next call tries again. */
static int bind(void) {
    if (functions) return HS_OK;
    if (bind_failed) return HS_NO_PYTHON;
    PyObject *entry = embedded ? NULL : import_entry();
    if (!entry) {
        if (hs_keep_foreign()) return HS_RAISED;
        hs_py.PyErr_Clear();
        PyObject *site = hs_py.PyImport_ImportModule("site");
        for (int i = 0; site && i < 4 && conf.paths[i][0]; i++) {
            PyObject *done = hs_py.PyObject_CallMethod(site, "addsitedir", "s", conf.paths[i]);
            if (!done && hs_keep_foreign()) return HS_RAISED;
            if (!done) hs_py.PyErr_WriteUnraisable(site);
        }
        if (hs_keep_foreign()) return HS_RAISED;
        hs_py.PyErr_Clear();
        entry = import_entry();
    }
    PyObject *list = entry ? hs_py.PyObject_CallMethod(entry, "load", "ss", hs_names, hs_library_path()) : NULL;
    if (!list) {
        if (hs_keep_foreign()) return HS_RAISED;
        bind_failed = 1;
        fprintf(stderr, "hipfile-sim: the model could not be loaded by %s:\n", hs_library_path());
        hs_py.PyErr_WriteUnraisable(entry);
        return HS_NO_PYTHON;
    }
    if (functions) return HS_OK; /* another thread was quicker, while the import let go of the GIL */
    functions = list;
    hs_py.Py_AtExit(on_finalize);
    if (embedded) atexit(at_exit);
    return HS_OK;
}

HS_EXPORT int hipfile_sim_control(int operation) {
    switch (operation) {
    case CONTROL_CLOSING:
        closer = pthread_self();
        atomic_store(&closing, 1);
        return 0;
    case CONTROL_IN_FLIGHT:
        return in_flight;
    case CONTROL_EMBEDDED:
        return embedded;
    case CONTROL_WATCHING:
        atomic_store(&watching, 1);
        return 0;
    default:
        return -1;
    }
}

/* --------------------------------------------------------------------------------------------------------- threads */

/* May this thread still enter? While the interpreter ends, a thread that asks for the GIL would never come back. */
static int served(void) {
    if (atomic_load_explicit(&gone, memory_order_relaxed)) return 0;
    if (!hs_py.Py_IsInitialized()) {
        if (functions) atomic_store(&gone, 1);
        return 0;
    }
    if (atomic_load_explicit(&closing, memory_order_relaxed)) return pthread_equal(closer, pthread_self());
    return 1;
}

/* The unwinder of libgcc, as C++ exceptions use it; without it only the stack pointer is known. */
static int (*unwind)(int (*)(void *, void *), void *);
static uint64_t (*unwind_sp)(void *); /* _Unwind_GetCFA: of the frame below, so the stack pointer of this one */
static uint64_t (*unwind_ip)(void *);
static void find_unwinder(void) {
    void *library = dlopen("libgcc_s.so.1", RTLD_NOW);
    if (!library) return;
    *(void **)&unwind_sp = dlsym(library, "_Unwind_GetCFA");
    *(void **)&unwind_ip = dlsym(library, "_Unwind_GetIP");
    if (unwind_sp && unwind_ip) *(void **)&unwind = dlsym(library, "_Unwind_Backtrace");
}

static int frame_found(void *context, void *unused) {
    (void)unused;
    uint64_t sp = unwind_sp(context);
    if (sp >= (uintptr_t)self.frame) {
        self.chain[self.frames][0] = sp;
        self.chain[self.frames++][1] = unwind_ip(context);
    }
    return self.frames < HS_FRAMES ? 0 : 4; /* _URC_NO_REASON, _URC_NORMAL_STOP */
}

static void take_frames(void) {
    static pthread_once_t unwinder = PTHREAD_ONCE_INIT;
    pthread_once(&unwinder, find_unwinder);
    self.frames = 0;
    if (unwind) unwind(frame_found, NULL);
}

HS_EXPORT void hipfile_sim_stack(uint64_t *out) {
    enum { MOST = 100 << 20 }; /* of the first thread: further down, other mappings may lie in what its limit allows */
    pthread_attr_t attributes;
    if (!self.stack_end && !pthread_getattr_np(pthread_self(), &attributes)) {
        void *low;
        size_t size;
        if (!pthread_attr_getstack(&attributes, &low, &size)) {
            self.stack_end = (uintptr_t)low + size;
            self.stack = size > MOST && gettid() == getpid() ? self.stack_end - MOST : (uintptr_t)low;
        }
        pthread_attr_destroy(&attributes);
    }
    out[0] = self.stack;
    out[1] = self.stack_end;
    out[2] = (uintptr_t)self.frame;
    out[3] = self.frame ? self.frames : 0;
    memcpy(out + 4, self.chain, sizeof self.chain);
}

static void stack_ends(void) {
    PyObject *bridge = hs_py.PyImport_ImportModule("hipfile_sim.native.bridge");
    PyObject *done = bridge ? hs_py.PyObject_CallMethod(bridge, "thread_ended", "KK", (unsigned long long)self.stack,
                                                        (unsigned long long)self.stack_end)
                            : NULL;
    if (!done) hs_raised(bridge);
    if (done) hs_py.Py_DecRef(done);
    if (bridge) hs_py.Py_DecRef(bridge);
}

/* At the end of a pinned thread. A pthread key would be too late: CPython's own is cleared first. */
static void unpin(void *unused) {
    (void)unused;
    self.pin = EXITING;
    if (!served() || (hs_py.is_finalizing && hs_py.is_finalizing())) return;
    hs_py.PyEval_RestoreThread(self.state);
    if (self.stack_end) stack_ends();
    hs_py.PyGILState_Release(self.gil);
}

static void pin(void) {
    if (hs_py.PyGILState_GetThisThreadState()) return; /* one of Python's own threads */
    self.gil = hs_py.PyGILState_Ensure();
    self.state = hs_py.PyEval_SaveThread();
    self.pin = PINNED;
    __cxa_thread_atexit_impl(unpin, NULL, &__dso_handle);
}

/* ----------------------------------------------------------------------------------------------------------- calls */

static int to_int(PyObject *value, int64_t *out) {
    *out = hs_py.PyLong_AsLongLong(value);
    return *out != -1 || !hs_py.PyErr_Occurred();
}

/* Call one function of the bridge. The GIL is held. */
static int invoke(const hs_symbol *symbol, const uint64_t *args, int64_t out[2]) {
    PyObject *values[20];
    PyObject *function = hs_py.PyList_GetItem(functions, symbol->index);
    if (!function) return hs_raised(functions);
    hs_py.Py_IncRef(function);
    for (int i = 0; i < symbol->nargs; i++)
        values[i + 1] = symbol->signs >> i & 1 ? hs_py.PyLong_FromLongLong((long long)args[i])
                                               : hs_py.PyLong_FromUnsignedLongLong(args[i]);
    /* The free slot in front of the arguments lets a bound method put its `self` there instead of copying them. */
    PyObject *answer =
        hs_py.PyObject_Vectorcall(function, values + 1, symbol->nargs | (size_t)1 << (8 * sizeof(size_t) - 1), NULL);
    for (int i = 0; i < symbol->nargs; i++) hs_py.Py_DecRef(values[i + 1]);
    int how = HS_OK;
    if (!answer) {
        how = hs_raised(function);
    } else if (symbol->answer == HS_INT || symbol->answer == HS_CODE) {
        if (!to_int(answer, &out[0])) how = hs_raised(function);
    } else if (symbol->answer != HS_NONE) {
        PyObject *first = hs_py.PyTuple_GetItem(answer, 0), *second = first ? hs_py.PyTuple_GetItem(answer, 1) : NULL;
        if (!second || !to_int(first, &out[0]) || !to_int(second, &out[1])) how = hs_raised(function);
    }
    if (answer) hs_py.Py_DecRef(answer);
    hs_py.Py_DecRef(function);
    return how;
}

/* A HIP call that fails is the thread's last error. A hipFile call may have met one on its way: the model knows. */
static void note_error(const hs_symbol *symbol, int64_t value) {
    int64_t last[2] = {0, 0};
    if (symbol->answer == HS_CODE) {
        if (value != 0 && value != NOT_READY) self.last_error = (int)value;
    } else if (symbol->answer == HS_COUNT ? value < 0 : symbol->answer == HS_STATUS && value != 0) {
        int how = invoke(&hs_peek_symbol, NULL, last);
        if (how == HS_RAISED) how = invoke(&hs_peek_symbol, NULL, last); /* interrupted, and that is kept */
        if (how == HS_OK && last[0]) self.last_error = (int)last[0];
    }
}

static int enter_and_invoke(const hs_symbol *symbol, const uint64_t *args, int64_t out[2]) {
    int gil = hs_py.PyGILState_Ensure();
    in_flight++;
    hs_enter();
    int how = bind();
    if (how == HS_OK) how = invoke(symbol, args, out);
    if (how == HS_OK)
        note_error(symbol, out[0]);
    else if (how == HS_RAISED && symbol->answer == HS_CODE)
        self.last_error = UNKNOWN;
    hs_leave();
    in_flight--;
    hs_py.PyGILState_Release(gil);
    return how;
}

HS_EXPORT int hipfile_sim_call(const hs_symbol *symbol, const uint64_t *args, int64_t out[2], const void *caller,
                               const void *frame) {
    int saved = errno;
    int how = HS_NO_PYTHON;
    const void *outer = self.caller, *outer_frame = self.frame; /* a callback of ctypes can come back in */
    self.caller = caller;
    self.frame = frame;
    if (atomic_load_explicit(&watching, memory_order_relaxed)) take_frames();
    if (!atomic_load_explicit(&started, memory_order_acquire)) pthread_once(&once, start);
    if (found) {
        how = HS_GONE;
        if (served()) {
            if (self.pin == UNPINNED) pin();
            how = enter_and_invoke(symbol, args, out);
        }
    }
    self.caller = outer;
    self.frame = outer_frame;
    errno = saved;
    return how;
}

HS_EXPORT const void *hipfile_sim_caller(void) { return self.caller; }

int hs_last_error(void) { return self.last_error; }

int hs_fail(int code) { return self.last_error = code; }

int hs_take_last_error(void) {
    int taken = self.last_error;
    if (taken) {
        int64_t out[2];
        self.last_error = 0;
        hipfile_sim_call(&hs_take_symbol, NULL, out, __builtin_return_address(0), __builtin_dwarf_cfa());
        self.last_error = 0;
    }
    return taken;
}
