/* What the generated functions of both libraries are made of. */
#ifndef HIPFILE_SIM_SHIM_H
#define HIPFILE_SIM_SHIM_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "core.h"

/* Inlined into the exported function, so that its return address is the client's. */
#define HS_INLINE static inline __attribute__((always_inline))

typedef struct {
    uint32_t x, y, z;
} hs_dim3;

typedef struct {
    int err;
    int hip_drv_err;
} hs_status; /* hipFileError_t: 8 bytes, returned in one register */

/* hipError_t values that the shims themselves answer with. */
enum { HS_HIP_NOT_INITIALIZED = 3, HS_HIP_DEINITIALIZED = 4, HS_HIP_NOT_SUPPORTED = 801, HS_HIP_UNKNOWN = 999 };
enum { HS_FILE_HIP_DRIVER_ERROR = 5011, HS_FILE_INTERNAL_ERROR = 5030 };

static inline int hs_hip_failure(int how) {
    return how == HS_RAISED ? HS_HIP_UNKNOWN : how == HS_GONE ? HS_HIP_DEINITIALIZED : HS_HIP_NOT_INITIALIZED;
}

HS_INLINE int hs_code(const hs_symbol *symbol, const uint64_t *args) {
    int64_t out[2];
    int how = hipfile_sim_call(symbol, args, out, __builtin_return_address(0), __builtin_dwarf_cfa());
    return how == HS_OK ? (int)out[0] : hs_hip_failure(how);
}

HS_INLINE hs_status hs_file_status(const hs_symbol *symbol, const uint64_t *args) {
    int64_t out[2];
    int how = hipfile_sim_call(symbol, args, out, __builtin_return_address(0), __builtin_dwarf_cfa());
    hs_status status;
    status.err = how == HS_OK       ? (int)out[0]
                 : how == HS_RAISED ? HS_FILE_INTERNAL_ERROR
                                    : HS_FILE_HIP_DRIVER_ERROR;
    status.hip_drv_err = how == HS_OK ? (int)out[1] : how == HS_RAISED ? 0 : hs_hip_failure(how);
    return status;
}

HS_INLINE ssize_t hs_count(const hs_symbol *symbol, const uint64_t *args) {
    int64_t out[2];
    if (hipfile_sim_call(symbol, args, out, __builtin_return_address(0), __builtin_dwarf_cfa()) != HS_OK) return -HS_FILE_INTERNAL_ERROR;
    if (out[1]) errno = (int)out[1]; /* last of all: everything before may have touched it */
    return (ssize_t)out[0];
}

HS_INLINE int64_t hs_int(const hs_symbol *symbol, const uint64_t *args, int64_t otherwise) {
    int64_t out[2];
    return hipfile_sim_call(symbol, args, out, __builtin_return_address(0), __builtin_dwarf_cfa()) == HS_OK ? out[0] : otherwise;
}

HS_INLINE void hs_void(const hs_symbol *symbol, const uint64_t *args) {
    int64_t out[2];
    hipfile_sim_call(symbol, args, out, __builtin_return_address(0), __builtin_dwarf_cfa());
}

int hs_not_modelled(const char *name, const char *returns, atomic_flag *said);

#endif
