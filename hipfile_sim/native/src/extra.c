/* The functions of libamdhip64 that are not one call into the model. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "shim.h"

HS_EXPORT int hipPeekAtLastError(void) { return hs_last_error(); }
HS_EXPORT int hipGetLastError(void) { return hs_take_last_error(); }
HS_EXPORT int hipExtGetLastError(void) { return hs_take_last_error(); }

int hs_not_modelled(const char *name, const char *returns, atomic_flag *said) {
    int saved = errno;
    if (!atomic_flag_test_and_set(said))
        fprintf(stderr, "hipfile-sim: %s is not modelled: it does nothing and returns %s.\n", name, returns);
    errno = saved;
    return hs_fail(HS_HIP_NOT_SUPPORTED);
}

/* ------------------------------------------------------------------------------------------------------- look-up */

enum { FOUND = 0, NOT_FOUND = 1 };
enum { INVALID_VALUE = 1, HIP_NOT_FOUND = 500 };

/* The HIP function of that name: of this library, not of those that it uses, and none of its own. */
static void *find_function(const char *name) {
    Dl_info found, mine;
    if (strncmp(name, "hip", 3) || !strncmp(name, "hipfile", 7)) return NULL;
    void *library = dlopen(hs_library_path(), RTLD_NOW | RTLD_NOLOAD);
    void *function = library ? dlsym(library, name) : NULL;
    if (library) dlclose(library);
    if (!function || !dladdr(function, &found) || !dladdr(hs_names, &mine)) return NULL;
    return found.dli_fbase == mine.dli_fbase ? function : NULL;
}

HS_EXPORT int hipGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags, void *symbol_status) {
    (void)flags;
    char name[128];
    size_t length = 0;
    do { /* byte by byte: the name may end right before memory that is not there */
        if (!hs_peek(name + length, symbol + length, 1)) return hs_fail(INVALID_VALUE);
    } while (name[length++] && length < sizeof name);
    if (name[length - 1]) return hs_fail(INVALID_VALUE);
    if (version >= 600 && !strcmp(name, "hipGetDeviceProperties")) strcpy(name, "hipGetDevicePropertiesR0600");
    if (version >= 600 && !strcmp(name, "hipChooseDevice")) strcpy(name, "hipChooseDeviceR0600");
    void *function = find_function(name);
    int status = function ? FOUND : NOT_FOUND;
    if (!hs_poke(pfn, &function, sizeof function)) return hs_fail(INVALID_VALUE);
    if (symbol_status && !hs_poke(symbol_status, &status, sizeof status)) return hs_fail(INVALID_VALUE);
    return function ? 0 : hs_fail(HIP_NOT_FOUND);
}

/* ------------------------------------------------------------ what compilers emit around kernels and their launches */

static __thread struct {
    hs_dim3 grid, block;
    size_t shared;
    void *stream;
} configuration;

HS_EXPORT int __hipPushCallConfiguration(hs_dim3 grid, hs_dim3 block, size_t shared, void *stream) {
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared = shared;
    configuration.stream = stream;
    return 0;
}

HS_EXPORT int __hipPopCallConfiguration(hs_dim3 *grid, hs_dim3 *block, size_t *shared, void **stream) {
    return hs_poke(grid, &configuration.grid, sizeof *grid) && hs_poke(block, &configuration.block, sizeof *block) &&
                   hs_poke(shared, &configuration.shared, sizeof *shared) &&
                   hs_poke(stream, &configuration.stream, sizeof *stream)
               ? 0
               : 1;
}

/* GPU code objects cannot run here. Registering one is accepted, so that the program starts; launching a kernel from
 * it is hipErrorInvalidDeviceFunction, because only host functions are known (hipfileSimKernelRegister). */
HS_EXPORT void **__hipRegisterFatBinary(const void *data) {
    static void *module[2];
    (void)data;
    return module;
}
HS_EXPORT void __hipUnregisterFatBinary(void **modules) { (void)modules; }
HS_EXPORT void __hipRegisterFunction(void **modules, const void *host, char *device, const char *name, unsigned limit,
                                     void *tid, void *bid, hs_dim3 *block, hs_dim3 *grid, int *warp) {
    (void)modules, (void)host, (void)device, (void)name, (void)limit, (void)tid, (void)bid, (void)block, (void)grid;
    (void)warp;
}
HS_EXPORT void __hipRegisterVar(void **modules, void *host, char *device, char *name, int external, size_t size,
                                int constant, int global) {
    (void)modules, (void)host, (void)device, (void)name, (void)external, (void)size, (void)constant, (void)global;
}
HS_EXPORT void __hipRegisterManagedVar(void *module, void **pointer, void *initial, const char *name, size_t size,
                                       unsigned align) {
    (void)module, (void)pointer, (void)initial, (void)name, (void)size, (void)align;
}
HS_EXPORT void __hipRegisterTexture(void **modules, void *host, char *device, const char *name, int type, int norm,
                                    int external) {
    (void)modules, (void)host, (void)device, (void)name, (void)type, (void)norm, (void)external;
}
HS_EXPORT void __hipRegisterSurface(void **modules, void *host, char *device, const char *name, int type,
                                    int external) {
    (void)modules, (void)host, (void)device, (void)name, (void)type, (void)external;
}
