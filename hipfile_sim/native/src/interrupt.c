/* Exceptions that are not the model's: Ctrl-C, what a signal handler raises, what one thread raises in another.
 *
 * They come up wherever Python runs, so also while a thread is in the model. The call under way then ends with an error
 * code. The exception belongs to the host program: it is kept, and raised in the host's own code as soon as that runs
 * again, whatever has become of it meanwhile: replaced by a failure that it caused, or swallowed by a destructor or a
 * callback. Calls that C code of the host makes before that are served as ever.
 *
 * The GIL is held in every function here.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "core.h"
#include "python.h"

enum { UNKNOWN_ROLE, MAIN, OTHER };
enum { MOST = 16, LEVELS = 8 };

static __thread int role;
static __thread int depth;      /* calls that this thread is in, one inside the other */
static __thread PyObject *type; /* kept for this thread, if it is not the main one: Python can hand over no more */
static PyObject *kept[MOST];    /* kept for the main thread, oldest first */
static int count;
static PyObject *hook, *outer_hook;       /* of sys.unraisablehook: ours, and the one that was there */
static PyObject *sys_names, *hook_name;   /* sys.__dict__, "unraisablehook" */

static PyObject *unraisable(PyObject *self, PyObject *what);

/* Python runs signal handlers and pending calls on the thread that started it: the first one of a `python` process, and
 * of a forked child. What an embedded interpreter's main thread would be is code of a C program, which takes no
 * exceptions. */
static int on_main(void) {
    if (!role) role = !hs_embedded() && gettid() == getpid() ? MAIN : OTHER;
    return role == MAIN;
}

void hs_after_fork(void) {
    role = UNKNOWN_ROLE;
    type = NULL;
}

/* ------------------------------------------------------------------------------------------------------ whose is it */

/* 1: not the model's, which raises nothing but `Exception`s of its own. */
static int foreign(PyObject *error) {
    if (!hs_py.PyErr_GivenExceptionMatches(error, *hs_py.exception)) return 1;
    static int asking; /* the answer can fail, and that is one more exception */
    if (!on_main() || !hs_bound() || asking) return 0;
    asking = 1;
    PyObject *entry = hs_py.PyImport_ImportModule("hipfile_sim.native.entry");
    PyObject *answer = entry ? hs_py.PyObject_CallMethod(entry, "from_handler", "O", error) : NULL;
    if (!answer) hs_raised(entry);
    asking = 0;
    int yes = answer && hs_py.PyObject_IsTrue(answer) == 1;
    if (answer) hs_py.Py_DecRef(answer);
    if (entry) hs_py.Py_DecRef(entry);
    return yes;
}

static int passed_on(PyObject *error) {
    PyObject *mark = hs_py.PyObject_GetAttrString(error, "hipfile_sim_passed_on");
    if (!mark) hs_py.PyErr_Clear();
    if (mark) hs_py.Py_DecRef(mark);
    return mark != NULL;
}

/* A new reference to what is not the model's in `error` or among what it came from; NULL: nothing, or it is known. */
static PyObject *find(PyObject *error, int levels) {
    if (!error || !levels) return NULL;
    if (foreign(error)) {
        if (passed_on(error)) return NULL;
        hs_py.Py_IncRef(error);
        return error;
    }
    PyObject *(*const origins[])(PyObject *) = {hs_py.PyException_GetContext, hs_py.PyException_GetCause};
    for (int i = 0; i < 2; i++) {
        PyObject *origin = origins[i](error), *found = find(origin, levels - 1);
        if (origin) hs_py.Py_DecRef(origin);
        if (found) return found;
    }
    return NULL;
}

/* Takes the reference. */
static void keep(PyObject *error) {
    if (hs_py.PyObject_SetAttrString(error, "hipfile_sim_passed_on", hs_py.none)) hs_py.PyErr_Clear();
    if (!on_main()) {
        type = hs_py.PyObject_Type(error); /* of several the last one: so does Python */
        hs_py.Py_DecRef(error);
    } else if (count < MOST) {
        kept[count++] = error;
    } else {
        hs_py.Py_DecRef(error); /* Ctrl-C for the 17th time; the first 16 are to come */
    }
}

/* The exception that is set, as an object; it is not set afterwards. */
static PyObject *taken(void) {
    PyObject *kind, *error, *traceback;
    hs_py.PyErr_Fetch(&kind, &error, &traceback);
    if (!kind) return NULL;
    hs_py.PyErr_NormalizeException(&kind, &error, &traceback);
    if (traceback && hs_py.PyException_SetTraceback(error, traceback)) hs_py.PyErr_Clear();
    hs_py.Py_DecRef(kind);
    if (traceback) hs_py.Py_DecRef(traceback);
    return error;
}

static void set(PyObject *error) {
    PyObject *kind = hs_py.PyObject_Type(error);
    hs_py.PyErr_SetObject(kind, error);
    hs_py.Py_DecRef(kind);
    hs_py.Py_DecRef(error);
}

int hs_keep_foreign(void) {
    PyObject *error = taken();
    if (!error) return 0;
    PyObject *found = find(error, LEVELS);
    int known = !found && !hs_py.PyErr_GivenExceptionMatches(error, *hs_py.exception) && passed_on(error);
    if (found) keep(found);
    if (found || known) {
        hs_py.Py_DecRef(error);
        return 1;
    }
    set(error);
    return 0;
}

int hs_raised(void *where) {
    if (!hs_keep_foreign()) hs_py.PyErr_WriteUnraisable(where); /* reported, by nothing that may end the process */
    return HS_RAISED;
}

/* ------------------------------------------------------------------------------------------------------ handing over */

/* Called by Python on the main thread, wherever it is. */
static int raise_first(void *unused) {
    (void)unused;
    if (depth || !count) return 0; /* not in the model: `hs_leave` asks again */
    PyObject *error = kept[0];
    for (int i = 1; i < count; i++) kept[i - 1] = kept[i];
    if (--count) hs_py.Py_AddPendingCall(raise_first, NULL);
    set(error);
    return -1;
}

static int prepare(void) {
    static hs_method definition = {"hipfile_sim_unraisable", unraisable, HS_METH_O, NULL};
    PyObject *sys = hs_py.PyImport_ImportModule("sys");
    sys_names = sys ? hs_py.PyObject_GetAttrString(sys, "__dict__") : NULL;
    hook_name = hs_py.PyUnicode_InternFromString("unraisablehook");
    if (sys_names && hook_name) hook = hs_py.PyCFunction_NewEx(&definition, NULL, NULL);
    if (!hook) hs_py.PyErr_Clear();
    return hook != NULL;
}

void hs_enter(void) {
    if (depth++ || !on_main()) return;
    if (!hook && !prepare()) return;
    PyObject *now = hs_py.PyDict_GetItemWithError(sys_names, hook_name);
    if (!now || now == hook) return;
    if (now != outer_hook) {
        hs_py.Py_IncRef(now);
        if (outer_hook) hs_py.Py_DecRef(outer_hook);
        outer_hook = now;
    }
    hs_py.PyDict_SetItem(sys_names, hook_name, hook);
}

void hs_leave(void) {
    if (--depth) return;
    if (on_main()) {
        if (hook && hs_py.PyDict_GetItemWithError(sys_names, hook_name) == hook) /* else the call has brought another */
            hs_py.PyDict_SetItem(sys_names, hook_name, outer_hook);
        if (count) hs_py.Py_AddPendingCall(raise_first, NULL); /* no room in Python's list: at the end of the next call */
    } else if (type) {
        PyObject *kind = type;
        type = NULL;
        if (hs_py.PyEval_GetFrame()) { /* Python code waits for the end of this call */
            hs_py.PyThreadState_SetAsyncExc(hs_py.PyThread_get_thread_ident(), kind);
        } else {
            hs_py.PyErr_SetObject(kind, NULL);
            hs_py.PyErr_WriteUnraisable(NULL);
        }
        hs_py.Py_DecRef(kind);
    }
}

/* sys.unraisablehook while the main thread is in the model: an interrupt that a destructor or a callback of ctypes has
 * swallowed is kept like any other. Everything else goes to the hook that was there. */
static PyObject *unraisable(PyObject *self, PyObject *what) {
    (void)self;
    PyObject *error = hs_py.PyObject_GetAttrString(what, "exc_value"), *found = NULL;
    if (!error) hs_py.PyErr_Clear();
    if (error && error != hs_py.none && depth && on_main()) found = find(error, 1);
    if (error) hs_py.Py_DecRef(error);
    if (found) {
        keep(found);
    } else {
        PyObject *answer = hs_py.PyObject_Vectorcall(outer_hook, &what, 1, NULL);
        if (answer) return answer;
        if (!depth || !on_main() || !hs_keep_foreign()) return NULL;
    }
    hs_py.Py_IncRef(hs_py.none);
    return hs_py.none;
}
