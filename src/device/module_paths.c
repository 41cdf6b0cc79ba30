/* The directories of modules: see module_paths.h. A set-uid program must not run what its caller
 * names, so it reads no variable, and where this code itself came from is asked of the system and
 * not of argv[0]. The build's own directories are in the run path of the library that was not
 * installed; installing removes it. */
#include "module_paths.h"

#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/trust.h"

/* The shared object, or the program, that this code is part of. */
typedef struct self {
    int objects;          /* seen so far: the program itself is the first */
    char path[PATH_MAX];  /* "": the program itself, or not known */
    const char *run_path; /* directories, separated by colons, or NULL */
} self;

/* Some systems leave the addresses of the dynamic section as they are in the file. */
static const char *text_at(ElfW(Addr) base, ElfW(Addr) table, size_t offset)
{
    return (const char *)(table < base ? base + table : table) + offset;
}

static const char *find_run_path(ElfW(Addr) base, const ElfW(Dyn) * entry)
{
    ElfW(Addr) strings = 0;
    size_t offset = 0;
    int has = 0;
    for (; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_STRTAB)
            strings = entry->d_un.d_ptr;
        if (entry->d_tag == DT_RUNPATH || (entry->d_tag == DT_RPATH && !has)) {
            offset = entry->d_un.d_val;
            has = 1;
        }
    }
    return has && strings ? text_at(base, strings, offset) : NULL;
}

static int look_at_object(struct dl_phdr_info *info, size_t bytes, void *context)
{
    self *found = context;
    uintptr_t here = (uintptr_t)&look_at_object;
    const ElfW(Dyn) *dynamic = NULL;
    int holds = 0;
    const char *name = found->objects++ > 0 && info->dlpi_name ? info->dlpi_name : "";
    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) *s = &info->dlpi_phdr[i];
        uintptr_t first = (uintptr_t)info->dlpi_addr + s->p_vaddr;
        if (s->p_type == PT_LOAD && here >= first && here - first < s->p_memsz)
            holds = 1;
        if (s->p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)first;
    }
    if (!holds)
        return 0;
    snprintf(found->path, sizeof found->path, "%s", name);
    found->run_path = dynamic ? find_run_path(info->dlpi_addr, dynamic) : NULL;
    return 1;
}

/* Cut the file's name off; "" if there is no directory. */
static void keep_directory(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == path)
        ++slash;
    *(slash ? slash : path) = '\0';
}

/* The name by which a library was loaded may be relative; the program's own is what it was called
 * by, which anybody can choose. */
static void find_directory(self *own)
{
    char full[PATH_MAX];
    ssize_t length = -1;
    if (!own->path[0]) {
        length = readlink("/proc/self/exe", full, sizeof full - 1);
        full[length > 0 ? length : 0] = '\0';
        snprintf(own->path, sizeof own->path, "%s", full);
    } else if (own->path[0] != '/' && realpath(own->path, full)) {
        snprintf(own->path, sizeof own->path, "%s", full);
    }
    keep_directory(own->path);
}

/* Directories that are separated by colons. Those of a run path may begin with $ORIGIN, which are
 * Meson's and hold no modules. */
static int try_list(const char *list, int absolute_only, ta_module_path_fn fn, void *context)
{
    while (list && *list) {
        char directory[PATH_MAX];
        size_t length = strcspn(list, ":");
        int fits = length > 0 && length < sizeof directory;
        snprintf(directory, sizeof directory, "%.*s", fits ? (int)length : 0, list);
        const char *refused = ta_untrusted(directory);
        if (fits && !(absolute_only && *directory != '/') && fn(context, directory, refused))
            return 1;
        list += length + (list[length] == ':');
    }
    return 0;
}

int ta_module_paths(ta_module_path_fn fn, void *context)
{
    self own = {.path = ""};
    const char *asked = secure_getenv(TA_MODULE_PATH_VARIABLE), *hidden;
    if (try_list(asked, 0, fn, context))
        return 1;
    if (!asked && (hidden = getenv(TA_MODULE_PATH_VARIABLE)) &&
        fn(context, hidden, "a set-uid program does not read " TA_MODULE_PATH_VARIABLE))
        return 1;
    dl_iterate_phdr(look_at_object, &own);
    find_directory(&own);
    if (own.path[0] && fn(context, own.path, ta_untrusted(own.path)))
        return 1;
    return try_list(own.run_path, 1, fn, context);
}
