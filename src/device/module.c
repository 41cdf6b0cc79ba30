/* Loads the modules, each once, on first use. A module that is absent or unusable is no error until
 * somebody asks for one of its devices or groups; ta_info() says what was found and why not more.
 * device.c, group.c and find.c call this; module_paths.c says where to look, module_file.c what
 * can be a module; hip/, mpi.c and hwloc.c are the modules. */
#include "module.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "module_file.h"
#include "module_paths.h"
#include "modules.h"

typedef struct loaded {
    const char *name;
    int tried;
    const ta_module *module; /* NULL: `why` says why not */
    char file[PATH_MAX];
    char why[1024];
} loaded;

/* Modules that this library knows, in the order in which "auto" asks them. */
static loaded modules[] = {
    {.name = "cuda"}, {.name = "rocm"}, {.name = "simt"}, {.name = "mpi"}, {.name = "hwloc"}};
static pthread_mutex_t modules_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Ask the entry function of an open module for its table. */
static void enter(loaded *m, void *handle)
{
    void *symbol = dlsym(handle, TA_MODULE_ENTRY);
    ta_module_entry_fn entry;
    int abi = 0;
    if (!symbol) {
        snprintf(m->why, sizeof m->why, "it has no function %s", TA_MODULE_ENTRY);
        return;
    }
    memcpy(&entry, &symbol, sizeof entry); /* C has no cast from data to function pointers */
    const ta_module *module = entry(TA_MODULE_ABI, &ta_core_calls, &abi);
    if (!module || module->abi != TA_MODULE_ABI || module->size != sizeof *module)
        snprintf(m->why, sizeof m->why,
                 "it has module interface %d, this library needs %d: install both from one version",
                 module ? module->abi : abi, TA_MODULE_ABI);
    else if (strcmp(module->name, m->name) != 0)
        snprintf(m->why, sizeof m->why, "it calls itself \"%s\"", module->name);
    else
        m->module = module;
}

/* A module in use stays loaded as long as the process lives. */
static void open_module(loaded *m)
{
    void *handle = dlopen(m->file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(m->why, sizeof m->why, "%s", dlerror());
        return;
    }
    enter(m, handle);
    if (!m->module)
        dlclose(handle);
}

/* A module on its way: where it was looked for, for the error if it is nowhere. */
typedef struct search {
    loaded *module;
    ta_text searched;
    char text[640];
} search;

/* Look into one directory. Returns whether the file is there, usable or not. */
static int try_directory(void *context, const char *directory, const char *refused)
{
    search *s = context;
    loaded *m = s->module;
    ta_text_add(&s->searched, "%s%s", s->searched.length ? ", " : "; looked in ", directory);
    if (refused) {
        ta_log_info("module %s is not looked for in %s: %s", m->name, directory, refused);
        ta_text_add(&s->searched, " (not looked into: %s)", refused);
        return 0;
    }
    int written = snprintf(m->file, sizeof m->file, "%s/treeattn-%s.so", directory, m->name);
    if (written >= (int)sizeof m->file)
        return 0;
    ta_module_file file = ta_module_file_check(m->file, m->why, sizeof m->why);
    if (file == TA_MODULE_FILE_GOOD)
        open_module(m);
    return file != TA_MODULE_FILE_ABSENT;
}

static loaded *load(const char *name, size_t length)
{
    loaded *found = NULL;
    pthread_mutex_lock(&modules_mutex);
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; ++i)
        if (strlen(modules[i].name) == length && !strncmp(modules[i].name, name, length))
            found = &modules[i];
    if (found && !found->tried) {
        search s = {.module = found};
        ta_text_init(&s.searched, s.text, sizeof s.text);
        found->tried = 1;
        if (!ta_module_paths(try_directory, &s)) {
            found->file[0] = '\0';
            snprintf(found->why, sizeof found->why,
                     "treeattn-%s.so is neither in " TA_MODULE_PATH_VARIABLE
                     " nor beside the library%s",
                     found->name, s.text);
        }
    }
    pthread_mutex_unlock(&modules_mutex);
    return found;
}

/* "cuda:3" is device 3 of module "cuda"; "cuda" is its device 0. */
ta_status ta_modules_open(const char *name, const ta_device_config *config, ta_device **device)
{
    size_t length = strcspn(name, ":");
    int devices = 0, index = 0, end = 0;
    loaded *m = load(name, length);
    if (!m || (m->module && !m->module->open))
        return ta_fail(TA_ERR_NOT_FOUND,
                       "no device \"%s\": must be \"host\", \"auto\", \"cuda:N\", "
                       "\"rocm:N\" or \"simt:N\"",
                       name);
    if (name[length] &&
        (sscanf(name + length, ":%9d%n", &index, &end) != 1 || name[length + (size_t)end]))
        return ta_fail(TA_ERR_INVALID, "device name is \"%s\": must be \"%s\" or \"%s:N\"", name,
                       m->name, m->name);
    if (!m->module)
        return ta_fail(TA_ERR_NOT_FOUND,
                       "device \"%s\" needs module %s%s%s, which can't be used: %s", name, m->name,
                       m->file[0] ? " in " : "", m->file, m->why);
    TA_TRY(m->module->count(&devices));
    if (index < 0 || index >= devices)
        return ta_fail(TA_ERR_NOT_FOUND, "no device \"%s\": module %s sees %d devices", name,
                       m->name, devices);
    ta_status status = m->module->open(index, config, device);
    /* A module refuses quietly, because "auto" may go on. */
    return status == TA_ERR_UNSUPPORTED ? ta_fail(status, "%s", ta_last_error()) : status;
}

ta_status ta_modules_open_best(const ta_device_config *config, ta_device **device)
{
    static const char *const real[] = {"cuda", "rocm"}; /* never the emulation */
    for (size_t i = 0; i < sizeof real / sizeof real[0]; ++i) {
        loaded *m = load(real[i], strlen(real[i]));
        int devices = 0;
        if (!m->module || m->module->count(&devices) != TA_OK)
            continue;
        for (int index = 0; index < devices; ++index) {
            ta_status status = m->module->open(index, config, device);
            if (status != TA_ERR_UNSUPPORTED)
                return status;
            ta_log_info("device auto passes %s:%d over: %s", m->name, index, ta_last_error());
        }
    }
    return TA_OK;
}

int ta_modules_has(const char *name)
{
    loaded *m = load(name, strlen(name));
    return m && m->module;
}

ta_status ta_modules_create_mpi(const void *comm, const ta_group_config *config, ta_group **group)
{
    loaded *m = load("mpi", 3);
    if (!m->module)
        return ta_fail(TA_ERR_NOT_FOUND,
                       "a group of MPI processes needs module mpi%s%s, which can't be used: %s",
                       m->file[0] ? " in " : "", m->file, m->why);
    return m->module->create_mpi(comm, config, group);
}

ta_status ta_modules_find_place(const ta_place_question *question, ta_place *place)
{
    loaded *m = load("hwloc", 5);
    if (!m->module)
        return ta_fail_quietly(TA_ERR_NOT_FOUND,
                               "places need module hwloc%s%s, which can't be used: %s",
                               m->file[0] ? " in " : "", m->file, m->why);
    return m->module->find_place(question, place);
}

static void describe_devices(const loaded *m, ta_text *text)
{
    int devices = 0;
    if (!m->module->count)
        return;
    if (m->module->count(&devices) != TA_OK)
        ta_text_add(text, "module %s devices: none, %s\n", m->name, ta_last_error());
    else
        ta_text_add(text, "module %s devices: %d\n", m->name, devices);
}

/* The module that a device is of, if it brings groups; NULL and an error otherwise. */
static const ta_module *find_ccl(const ta_device *device)
{
    loaded *m = load(device->name, strcspn(device->name, ":"));
    if (m && m->module && m->module->create_ccl)
        return m->module;
    (void)ta_fail(TA_ERR_UNSUPPORTED,
                  "device %s has no groups of its own: only GPUs have, if NCCL or RCCL was there "
                  "when their module was built",
                  device->name);
    return NULL;
}

ta_status ta_modules_ccl_id(ta_device *device, void *id)
{
    const ta_module *module = find_ccl(device);
    return module ? module->ccl_id(device, id) : TA_ERR_UNSUPPORTED;
}

ta_status ta_modules_create_ccl(ta_device *device, const ta_ccl_config *ccl,
                                const ta_group_config *config, ta_group **group)
{
    const ta_module *module = find_ccl(device);
    return module ? module->create_ccl(device, ccl, config, group) : TA_ERR_UNSUPPORTED;
}

void ta_modules_describe(ta_text *text)
{
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; ++i) {
        loaded *m = load(modules[i].name, strlen(modules[i].name));
        if (!m->module) {
            /* The dynamic loader's own words begin with the file. */
            int named = !m->file[0] || strncmp(m->why, m->file, strlen(m->file)) == 0;
            ta_text_add(text, "module %s: not used, %s%s%s\n", m->name, named ? "" : m->file,
                        named ? "" : ": ", m->why);
            continue;
        }
        ta_text_add(text, "module %s: %s, compiled for %s\n", m->name, m->file, m->module->archs);
        describe_devices(m, text);
        m->module->describe(text);
    }
}
