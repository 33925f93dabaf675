/* Find the interpreter: the one of this process, else a libpython that fits the environment hipfile-sim lives in. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"
#include "python.h"

/* Into a field of 4096 bytes; what does not fit is no path that could be opened anyway. */
static void copy(char *to, const char *from) {
    size_t length = strnlen(from, 4095);
    memcpy(to, from, length);
    to[length] = 0;
}

/* `path` without its last component; "" at the top. */
static void parent(char *path) {
    char *slash = strrchr(path, '/');
    *(slash ? slash : path) = 0;
}

static void read_lines(const char *path, void (*line_read)(const char *key, const char *value, void *to), void *to) {
    FILE *file = fopen(path, "re");
    char line[4200];
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        char *equals = strchr(line, '=');
        if (!equals) continue;
        char *key_end = equals, *value = equals + 1;
        while (key_end > line && key_end[-1] == ' ') key_end--;
        *key_end = 0;
        while (*value == ' ') value++;
        value[strcspn(value, "\n")] = 0;
        line_read(line, value, to);
    }
    fclose(file);
}

static void conf_line(const char *key, const char *value, void *to) {
    hs_conf *conf = to;
    if (!strcmp(key, "program")) copy(conf->program, value);
    if (!strcmp(key, "libpython")) copy(conf->libpython, value);
    if (!strcmp(key, "path"))
        for (int i = 0; i < 4; i++)
            if (!conf->paths[i][0]) {
                copy(conf->paths[i], value);
                return;
            }
}

static void venv_line(const char *key, const char *value, void *to) {
    if (!strcmp(key, "home")) copy(to, value);
}

/* Without a conf file: the library lies in <environment>/lib/pythonX.Y/site-packages/hipfile_sim/native/lib. */
static void guess_conf(hs_conf *conf) {
    char site[PATH_MAX], work[PATH_MAX + 64], home[4096] = "";
    if (!realpath(hs_library_path(), site)) return;
    char *package = strstr(site, "/hipfile_sim/native/");
    if (!package) return;
    *package = 0;
    copy(conf->paths[0], site);
    const char *version = strstr(site, "/lib/python");
    if (!version || strcmp(strrchr(site, '/'), "/site-packages")) return;
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(version + 5, "/"), version + 5); /* pythonX.Y */
    char environment[PATH_MAX];
    snprintf(environment, sizeof environment, "%.*s", (int)(version - site), site);
    snprintf(work, sizeof work, "%s/bin/python3", environment);
    if (!access(work, X_OK)) copy(conf->program, work);
    snprintf(work, sizeof work, "%s/pyvenv.cfg", environment);
    read_lines(work, venv_line, home);
    if (home[0])
        parent(home); /* <base>/bin -> <base> */
    else
        copy(home, environment);
    snprintf(work, sizeof work, "%s/lib/lib%s.so.1.0", home, name);
    if (access(work, R_OK)) snprintf(work, sizeof work, "lib%s.so.1.0", name); /* let the loader look */
    copy(conf->libpython, work);
}

static void read_conf(hs_conf *conf) {
    char path[PATH_MAX + 32];
    memset(conf, 0, sizeof *conf);
    copy(path, hs_library_path());
    parent(path);
    parent(path);
    strcat(path, "/hipfile-sim.conf");
    read_lines(path, conf_line, conf);
    if (!conf->program[0] && !conf->paths[0][0]) guess_conf(conf);
    const char *override = getenv("HIPFILE_SIM_LIBPYTHON");
    if (override && *override) copy(conf->libpython, override);
}

/* A libpython that the host program loaded without RTLD_GLOBAL is in no global scope: find it by its name. */
static int find_loaded(struct dl_phdr_info *info, size_t size, void *to) {
    (void)size;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!name || strncmp(name, "/libpython", 10)) return 0;
    void *handle = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    if (!handle || !dlsym(handle, "Py_IsInitialized")) return 0;
    *(void **)to = handle;
    return 1;
}

int hs_find_python(hs_python *python, hs_conf *conf) {
    void *handle = RTLD_DEFAULT;
    read_conf(conf);
    if (!dlsym(RTLD_DEFAULT, "Py_IsInitialized")) {
        handle = NULL;
        dl_iterate_phdr(find_loaded, &handle);
        /* RTLD_GLOBAL: extension modules such as numpy's take their Py* symbols from the global scope. */
        if (!handle && conf->libpython[0]) handle = dlopen(conf->libpython, RTLD_NOW | RTLD_GLOBAL);
        if (!handle) {
            const char *why = dlerror();
            fprintf(stderr,
                    "hipfile-sim: no Python in this process and no libpython to load: %s\n"
                    "  Set HIPFILE_SIM_LIBPYTHON to the libpython3.X.so of the Python that hipfile-sim is installed "
                    "in,\n  or install that shared library (Debian: package libpython3.X).\n",
                    why ? why : "no hipfile-sim.conf beside the libraries names one");
            return 0;
        }
    }
#define X(name, result, args)                                                                                          \
    *(void **)&python->name = dlsym(handle, #name); /* as POSIX shows it */                                            \
    if (!python->name) {                                                                                               \
        fprintf(stderr, "hipfile-sim: this Python has no %s: CPython 3.11 or newer is needed.\n", #name);              \
        return 0;                                                                                                      \
    }
    HS_PYTHON_FUNCTIONS(X)
#undef X
    *(void **)&python->is_finalizing = dlsym(handle, "Py_IsFinalizing");
    if (!python->is_finalizing) *(void **)&python->is_finalizing = dlsym(handle, "_Py_IsFinalizing");
    *(void **)&python->set_program_name = dlsym(handle, "Py_SetProgramName");
    python->none = dlsym(handle, "_Py_NoneStruct");
    python->exception = (PyObject **)dlsym(handle, "PyExc_Exception");
    return 1;
}
