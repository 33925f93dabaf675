/* The CPython functions that the libraries use, by pointer. All are exported by every CPython from 3.11 on. */
#ifndef HIPFILE_SIM_PYTHON_H
#define HIPFILE_SIM_PYTHON_H

#include <stddef.h>
#include <wchar.h>

typedef struct PyObject PyObject;

/* PyMethodDef, and METH_O of its flags. */
typedef struct {
    const char *name;
    PyObject *(*function)(PyObject *, PyObject *);
    int flags;
    const char *doc;
} hs_method;
enum { HS_METH_O = 8 };

/* X(name, result type, argument types) */
#define HS_PYTHON_FUNCTIONS(X)                                                                                         \
    X(Py_IsInitialized, int, (void))                                                                                   \
    X(Py_InitializeEx, void, (int))                                                                                    \
    X(Py_AtExit, int, (void (*)(void)))                                                                                \
    X(PyGILState_Ensure, int, (void))                                                                                  \
    X(PyGILState_Release, void, (int))                                                                                 \
    X(PyGILState_GetThisThreadState, void *, (void))                                                                   \
    X(PyEval_SaveThread, void *, (void))                                                                               \
    X(PyEval_RestoreThread, void, (void *))                                                                            \
    X(PyOS_BeforeFork, void, (void))                                                                                   \
    X(PyOS_AfterFork_Parent, void, (void))                                                                             \
    X(PyOS_AfterFork_Child, void, (void))                                                                              \
    X(PyImport_ImportModule, PyObject *, (const char *))                                                               \
    X(PyObject_CallMethod, PyObject *, (PyObject *, const char *, const char *, ...))                                  \
    X(PyObject_Vectorcall, PyObject *, (PyObject *, PyObject *const *, size_t, PyObject *))                            \
    X(PyList_GetItem, PyObject *, (PyObject *, ptrdiff_t))                                                             \
    X(PyTuple_GetItem, PyObject *, (PyObject *, ptrdiff_t))                                                            \
    X(PyLong_FromLongLong, PyObject *, (long long))                                                                    \
    X(PyLong_FromUnsignedLongLong, PyObject *, (unsigned long long))                                                   \
    X(PyLong_AsLongLong, long long, (PyObject *))                                                                      \
    X(Py_IncRef, void, (PyObject *))                                                                                   \
    X(Py_DecRef, void, (PyObject *))                                                                                   \
    X(PyErr_Occurred, PyObject *, (void))                                                                              \
    X(PyErr_Clear, void, (void))                                                                                       \
    X(PyErr_GivenExceptionMatches, int, (PyObject *, PyObject *))                                                      \
    X(PyErr_Fetch, void, (PyObject **, PyObject **, PyObject **))                                                      \
    X(PyErr_NormalizeException, void, (PyObject **, PyObject **, PyObject **))                                         \
    X(PyErr_SetObject, void, (PyObject *, PyObject *))                                                                 \
    X(PyException_SetTraceback, int, (PyObject *, PyObject *))                                                         \
    X(PyException_GetContext, PyObject *, (PyObject *))                                                                \
    X(PyException_GetCause, PyObject *, (PyObject *))                                                                  \
    X(PyObject_Type, PyObject *, (PyObject *))                                                                         \
    X(PyObject_IsTrue, int, (PyObject *))                                                                              \
    X(PyObject_GetAttrString, PyObject *, (PyObject *, const char *))                                                  \
    X(PyObject_SetAttrString, int, (PyObject *, const char *, PyObject *))                                             \
    X(PyCFunction_NewEx, PyObject *, (hs_method *, PyObject *, PyObject *))                                            \
    X(PyUnicode_InternFromString, PyObject *, (const char *))                                                          \
    X(PyDict_GetItemWithError, PyObject *, (PyObject *, PyObject *))                                                   \
    X(PyDict_SetItem, int, (PyObject *, PyObject *, PyObject *))                                                       \
    X(PyEval_GetFrame, void *, (void))                                                                                 \
    X(Py_AddPendingCall, int, (int (*)(void *), void *))                                                               \
    X(PyThreadState_SetAsyncExc, int, (unsigned long, PyObject *))                                                     \
    X(PyThread_get_thread_ident, unsigned long, (void))                                                                \
    X(PyErr_WriteUnraisable, void, (PyObject *))

typedef struct {
#define X(name, result, args) result(*name) args;
    HS_PYTHON_FUNCTIONS(X)
#undef X
    int (*is_finalizing)(void);              /* Py_IsFinalizing, before 3.13 _Py_IsFinalizing */
    void (*set_program_name)(const wchar_t *); /* Py_SetProgramName, gone from 3.15 on: then NULL */
    PyObject *none;
    PyObject **exception; /* PyExc_Exception */
} hs_python;

extern hs_python hs_py; /* filled before the first call goes into Python */

/* What stands in hipfile-sim.conf, in the folder above the library's: all optional. */
typedef struct {
    char program[4096];   /* the python program whose environment is meant */
    char libpython[4096]; /* the shared library to load where no interpreter is in the process */
    char paths[4][4096];  /* folders to add to sys.path */
} hs_conf;

/* Fill `python`: 1 done, 0 not (said on stderr why). `conf` is filled in any case. */
int hs_find_python(hs_python *python, hs_conf *conf);

#endif
