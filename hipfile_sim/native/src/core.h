/* The way from a C call into the model. One instance, in libamdhip64; libhipfile calls it too.
 *
 * No Python header is used and no libpython is linked: the few CPython functions that are needed are looked up at run
 * time, in the interpreter that is already there or in one that is started here (find_python.c).
 */
#ifndef HIPFILE_SIM_CORE_H
#define HIPFILE_SIM_CORE_H

#include <stddef.h>
#include <stdint.h>

#define HS_EXPORT __attribute__((visibility("default")))

/* How a call went. Everything but HS_OK is turned into an error code of the caller's own kind. */
enum { HS_OK = 0, HS_RAISED = 1, HS_NO_PYTHON = 2, HS_GONE = 3 };

/* What the model answers: nothing; an integer; a hipError_t; a pair (hipFile code, hipError_t); a pair (count, errno). */
enum { HS_NONE = 0, HS_INT = 1, HS_CODE = 2, HS_STATUS = 3, HS_COUNT = 4 };

/* A call description, one constant for each exported function. `signs` has a bit for each argument that is signed. */
typedef struct {
    uint16_t index;
    uint8_t nargs;
    uint8_t answer;
    uint32_t signs;
} hs_symbol;

/* Call the model. `errno` is left as it was. Writes out[0] and, for a pair, out[1]. `caller` is where the program goes
 * on afterwards: the tools name that place. `frame` is its stack pointer before the call: all its frames lie above. */
HS_EXPORT int hipfile_sim_call(const hs_symbol *symbol, const uint64_t *args, int64_t out[2], const void *caller,
                               const void *frame);

/* `caller` of the call that the calling thread is in; NULL outside of one. */
HS_EXPORT const void *hipfile_sim_caller(void);

/* The calling thread's stack, from out[0] up to out[1]; `frame` of the call that it is in; then how many of the client's
 * frames were found, and of each, innermost first, the stack pointer and the place in the code. Zeros: not known. */
enum { HS_FRAMES = 64 };
HS_EXPORT void hipfile_sim_stack(uint64_t *out); /* of 4 + 2 * HS_FRAMES */

/* What the bridge asks of the libraries: see `enum` in core.c. */
HS_EXPORT int hipfile_sim_control(int operation);

/* The calling thread's last HIP error, a copy of what the model keeps: hipPeekAtLastError need not enter Python. */
int hs_last_error(void);
int hs_fail(int code); /* makes `code` the last error, and returns it */
int hs_take_last_error(void);

/* Whether this library started the interpreter, and whether the model has been loaded into it. */
int hs_embedded(void);
int hs_bound(void);

/* interrupt.c: around every call into Python; what to do with the exception that is set; in a forked child. */
void hs_enter(void);
void hs_leave(void);
int hs_raised(void *where);
int hs_keep_foreign(void); /* 1: it was not the model's, and is kept for the host program; 0: it is still set */
void hs_after_fork(void);

/* Memory of the caller that may not be there: 1 if all bytes were moved, 0 if not. Never a fault. */
int hs_peek(void *to, const void *from, size_t count);
int hs_poke(void *to, const void *from, size_t count);

/* Path of this library as it was loaded, "" if the loader does not say. */
const char *hs_library_path(void);

extern const char hs_names[];          /* generated: every name of the table, in order, separated by blanks */
extern const hs_symbol hs_peek_symbol; /* generated: the two that only the core calls */
extern const hs_symbol hs_take_symbol;

#endif
