/* The contract between the core and a module: a shared object, loaded at run time, that exports one
 * function and brings devices, groups, or both. The core links no GPU library and no MPI; a module
 * links none of the core and calls it only through ta_core. module.c loads; hip/module.c and
 * mpi.c are the other side. */
#ifndef TA_MODULE_H
#define TA_MODULE_H

#include "device.h"
#include "place.h"

/* group/group.h: which ranks of a group go into a part of it. */
typedef struct ta_members ta_members;

/* Grows when anything in this file, device.h, attention.h, peers.h, model.h, ccl_own.h, group.h,
 * shared.h, place.h, shard.h, partial.h, base/tally.h or fault.h changes its layout or meaning. A
 * module of another number is refused. */
#define TA_MODULE_ABI 16
#define TA_MODULE_ENTRY "ta_module_entry"

/* What a module may call. */
typedef struct ta_core {
    size_t size;
    /* As the functions ta_fail(), ta_text_add() … of these names. */
    ta_status (*fail)(ta_status status, const char *format, ...);
    void (*text_add)(ta_text *text, const char *format, ...);
    ta_status (*fail_quietly)(ta_status status, const char *format, ...);
    ta_status (*found_by_other)(ta_status status);
    void (*log_info)(const char *format, ...);
    const char *(*last_error)(void);
    ta_status (*exchange)(ta_group *group, const void *send, size_t send_bytes, int to,
                          void *receive, size_t receive_bytes, int from, void *stream);
    ta_status (*barrier)(ta_group *group, void *stream);
    ta_status (*broadcast)(ta_group *group, void *data, size_t bytes, int root, void *stream);
    ta_status (*broadcast_host)(ta_group *group, void *data, size_t bytes, int root);
    ta_status (*all_gather_host)(ta_group *group, void *data, const size_t *offsets);
    ta_status (*members_gather)(ta_group *group, int color, int key, ta_members *members);
    void (*members_free)(ta_members *members);
    int (*cpus)(void);
} ta_core;

/* That of this library; group/core.c. */
extern const ta_core ta_core_calls;

typedef struct ta_module {
    size_t size;
    int abi;
    const char
        *name; /* "cuda", "rocm", "simt": the first part of a device's name; "mpi", "hwloc" */
    const char *archs; /* compiled for, separated by spaces; "mpi", "hwloc": which, one line */

    /* How many devices there are. Fails, with the runtime's own words, when there is no driver.
     * NULL: a module without devices. */
    ta_status (*count)(int *devices);

    /* Open device `index`; sets device->ops and device->name. One that the kernels were not written
     * for is TA_ERR_UNSUPPORTED, by fail_quietly(): "auto" takes the next one then. */
    ta_status (*open)(int index, const ta_device_config *config, ta_device **device);

    /* Lines for ta_info(): runtime and driver versions, the devices and their memory. */
    void (*describe)(ta_text *text);

    /* As ta_group_create_mpi(), with a checked config that has no zeros in it; only in "mpi". */
    ta_status (*create_mpi)(const void *comm, const ta_group_config *config, ta_group **group);

    /* As ta_ccl_id() and ta_group_create_ccl(), with checked configs; NULL: no such library. */
    ta_status (*ccl_id)(ta_device *device, void *id);
    ta_status (*create_ccl)(ta_device *device, const ta_ccl_config *ccl,
                            const ta_group_config *config, ta_group **group);

    /* Where something is inside its node; only in "hwloc". The question's GPU goes before its CPUs,
     * unless the topology does not have it. Leaves place->pci as it is. */
    ta_status (*find_place)(const ta_place_question *question, ta_place *place);
} ta_module;

/* Returns NULL if the module is not of this ABI; then *module_abi says which it is. `core` outlives
 * the module. */
typedef const ta_module *(*ta_module_entry_fn)(int abi, const ta_core *core, int *module_abi);

/* What the entry of a module does: `kept` is where it keeps the core. */
static inline const ta_module *ta_module_enter(int abi, const ta_core *core, int *module_abi,
                                               const ta_core **kept, const ta_module *module)
{
    *module_abi = TA_MODULE_ABI;
    if (abi != TA_MODULE_ABI || core->size < sizeof *core)
        return NULL;
    *kept = core;
    return module;
}

#endif
