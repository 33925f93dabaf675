"""Write the fuzz program from the symbol tables: every function, with values picked for each kind of argument."""

from __future__ import annotations

from hipfile_sim.native.symbols import Arg, Symbol
from hipfile_sim.native.table_hip import HIP
from hipfile_sim.native.table_hipfile import HIPFILE

#: A wait on a value that never comes is not an error but a hang by contract: only memory that is none is offered.
NOWHERE_ONLY = {"hipStreamWaitValue32", "hipStreamWaitValue64"}

HEAD = r"""
#include <hip/hip_runtime.h>
#include <hipfile.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, BUFFER = 4 * MIB, KEEP = 64 };
static char *buffer;              /* writable, with nothing behind it */
static void *constants;           /* readable: file descriptions */
static uint64_t kept[KEEP];       /* handles and pointers that earlier calls gave */
static hipError_t (*hip_malloc)(void **, size_t) = hipMalloc;
static long calls_left;
static unsigned long histogram[3];

typedef struct { uint64_t s; } rng;
static uint64_t next(rng *r) {
    r->s ^= r->s << 13; r->s ^= r->s >> 7; r->s ^= r->s << 17;
    return r->s * 0x2545F4914F6CDD1Dull;
}
static uint64_t pick_size(rng *r) {
    static const uint64_t sizes[] = {0, 1, 7, 8, 4096, 65536, MIB, 1ull << 40, 1ull << 63, ~0ull, ~0ull - 4095,
                                     0x7ffff000};
    uint64_t v = next(r);
    return v % 4 ? sizes[(v >> 8) % (sizeof sizes / sizeof *sizes)] : (v >> 8) % (2 * MIB);
}
static int64_t pick_int(rng *r) {
    static const int64_t ints[] = {0, 0, 0, 1, 1, 2, 3, 4, 7, 8, 15, 16, 128, 129, -1, -2, 1 << 30,
                                   INT32_MAX, INT32_MIN};
    uint64_t v = next(r);
    return v % 8 ? ints[(v >> 8) % (sizeof ints / sizeof *ints)] : (int64_t)(int32_t)(v >> 16);
}
static uint64_t wild(rng *r) {
    uint64_t v = next(r);
    switch (v % 8) {
    case 0: return 0;
    case 1: return 1 + (v >> 8) % 64;
    case 2: return 0xffff800000000000ull | v >> 20;
    case 3: return v;
    case 4: return (uint64_t)(uintptr_t)buffer + BUFFER + (v >> 8) % 4096; /* the guard */
    case 5: return (uint64_t)(uintptr_t)buffer + BUFFER - 1 - (v >> 8) % 16; /* ends in the guard */
    case 6: return 0x800000000000ull + v % 4096;
    default: return ~0ull - v % 4096;
    }
}
/* No memory of this process, ever. */
static uint64_t nowhere(rng *r) {
    uint64_t v = next(r);
    return v % 3 == 0 ? v % 64 : v % 3 == 1 ? 0xffff800000000000ull | v >> 20 : 0x800000000000ull + v % 4096;
}
static uint64_t pick_pointer(rng *r) {
    uint64_t v = next(r);
    switch (v % 8) {
    case 0: case 1: case 2: return (uint64_t)(uintptr_t)buffer + (v >> 8) % MIB / 8 * 8;
    case 3: case 4: return kept[(v >> 8) % KEEP];
    case 5: return (uint64_t)(uintptr_t)constants + (v >> 8) % 8 * sizeof(hipFileDescr_t);
    case 6: return kept[(v >> 8) % KEEP] + (v >> 16) % 5000;
    default: return wild(r);
    }
}
static void host_function(void *data) { (void)data; }
static uint64_t pick_function(rng *r) {
    uint64_t v = next(r);
    return v % 3 == 0 ? (uint64_t)(uintptr_t)host_function : v % 3 == 1 ? (uint64_t)(uintptr_t)buffer : wild(r);
}
static void keep(rng *r) {
    uint64_t out;
    memcpy(&out, buffer, 8); /* whatever lies there: often what a call stored */
    if (next(r) % 4 == 0) kept[next(r) % KEEP] = out;
}
static void hip_code(const char *name, int code) {
    if (code < 0 || code > 1055) { fprintf(stderr, "%s returned %d\n", name, code); _exit(1); }
    __atomic_fetch_add(&histogram[code != 0], 1, __ATOMIC_RELAXED);
}
static void file_code(const char *name, hipFileError_t e) {
    if ((e.err != 0 && (e.err < 5001 || e.err > 5039)) || (int)e.hip_drv_err < 0 || e.hip_drv_err > 1055) {
        fprintf(stderr, "%s returned %d %d\n", name, e.err, e.hip_drv_err); _exit(1);
    }
    __atomic_fetch_add(&histogram[e.err != 0], 1, __ATOMIC_RELAXED);
}
static void count_code(const char *name, ssize_t n) {
    if (n < -5039 || n > 0x7ffff000) { fprintf(stderr, "%s returned %zd\n", name, n); _exit(1); }
    __atomic_fetch_add(&histogram[n < 0], 1, __ATOMIC_RELAXED);
}
static void text_code(const char *name, const char *text) {
    if (!text || !*text) { fprintf(stderr, "%s returned no text\n", name); _exit(1); }
}
"""

TAIL = r"""
static void *worker(void *seed) {
    rng r = {(uint64_t)(uintptr_t)seed * 0x9E3779B97F4A7C15ull + 1};
    while (__atomic_fetch_sub(&calls_left, 1, __ATOMIC_RELAXED) > 0) {
        one(&r);
        keep(&r);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    unsigned long seed = strtoul(argv[1], NULL, 10);
    int threads = atoi(argv[3]);
    pthread_t running[16];
    calls_left = atol(argv[2]);
    buffer = mmap(NULL, BUFFER + MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mprotect(buffer, BUFFER, PROT_READ | PROT_WRITE)) return 2;
    hipFileDescr_t *descr = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int ends[2];
    if (pipe(ends)) return 2;
    int fds[8] = {open(argv[4], O_RDWR), open(argv[4], O_RDONLY), open("/dev/full", O_WRONLY), open("/tmp", O_RDONLY),
                  ends[0], -1, 100000, open(argv[4], O_WRONLY | O_APPEND)};
    for (int i = 0; i < 8; i++) {
        descr[i].type = i == 6 ? hipFileHandleTypeUserspaceFS : hipFileHandleTypeOpaqueFD;
        descr[i].handle.fd = fds[i];
    }
    mprotect(descr, 4096, PROT_READ);
    constants = descr;
    for (int i = 0; i < 8; i++) { /* something real to find among the wild */
        hipStream_t stream = NULL;
        hipFileHandle_t file = NULL;
        hip_malloc((void **)&kept[4 * i], 65536);
        hipStreamCreateWithFlags(&stream, i & 1);
        kept[4 * i + 1] = (uint64_t)(uintptr_t)stream;
        hipFileHandleRegister(&file, &descr[i]);
        kept[4 * i + 2] = (uint64_t)(uintptr_t)file;
        hipHostMalloc((void **)&kept[4 * i + 3], 65536, 0);
    }
    for (long i = 0; i < threads; i++) pthread_create(&running[i], NULL, worker, (void *)(seed * 31 + i + 1));
    for (int i = 0; i < threads; i++) pthread_join(running[i], NULL);
    int count = -1;
    void *pointer = NULL;
    hip_code("hipDeviceSynchronize", hipDeviceSynchronize());
    if (hipGetDeviceCount(&count) != hipSuccess || count != 2) return 3;
    if (hip_malloc(&pointer, 4096) != hipSuccess || hipFree(pointer) != hipSuccess) return 4;
    printf("fuzz ok %lu %lu\n", histogram[0], histogram[1]);
    fflush(stdout);
    _exit(0);
}
"""

_HELPERS = {
    "hipError_t": "hip_code",
    "hipFileError_t": "file_code",
    "ssize_t": "count_code",
    "const char *": "text_code",
}


def _value(symbol: Symbol, arg: Arg) -> str:
    ctype = arg.ctype.replace("bool", "_Bool")
    if arg.kind == "dim3":
        return "(dim3){(uint32_t)pick_int(r), 1, 1}"
    if arg.ctype in ("hipHostFn_t", "hipStreamCallback_t"):
        return f"({ctype})(uintptr_t)pick_function(r)"
    if arg.kind == "pointer":
        pick = "nowhere" if symbol.name in NOWHERE_ONLY and arg.name == "ptr" else "pick_pointer"
        return f"({ctype})(uintptr_t){pick}(r)"
    return f"({ctype}){'pick_size' if arg.ctype in ('size_t', 'uint64_t', 'hoff_t') else 'pick_int'}(r)"


def source() -> str:
    """The C program."""
    cases = []
    symbols = [symbol for symbol in (*HIP, *HIPFILE) if not symbol.name.startswith("__")]
    for number, symbol in enumerate(symbols):
        call = f"{symbol.name}({', '.join(_value(symbol, arg) for arg in symbol.args)})"
        helper = _HELPERS.get(symbol.returns)
        cases.append(f'    case {number}: {f"""{helper}("{symbol.name}", {call})""" if helper else call}; break;')
    body = (
        "static void one(rng *r) {\n    switch (next(r) % "
        + str(len(symbols))
        + ") {\n"
        + "\n".join(cases)
        + "\n    }\n}\n"
    )
    return HEAD + body + TAIL
