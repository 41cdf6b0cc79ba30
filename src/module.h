/* The contract between the core and a GPU module: a shared object built from hip/ alone, loaded at
 * run time, that exports one function. The core links no GPU library; a module links none of the
 * core and calls it only through ta_core. module.c loads; hip/module.c is the other side. */
#ifndef TA_MODULE_H
#define TA_MODULE_H

#include "device.h"

/* Grows when anything in this file, device.h, shard.h or partial.h changes its layout or meaning. A
 * module of another number is refused. */
#define TA_MODULE_ABI 1
#define TA_MODULE_ENTRY "ta_module_entry"

/* What a module may call. */
typedef struct ta_core {
    size_t size;
    /* As ta_fail() and ta_text_add(). */
    ta_status (*fail)(ta_status status, const char *format, ...);
    void (*text_add)(ta_text *text, const char *format, ...);
} ta_core;

typedef struct ta_module {
    size_t size;
    int abi;
    const char *name;  /* "cuda", "rocm", "simt": the first part of a device's name */
    const char *archs; /* compiled for, separated by spaces */

    /* How many devices there are. Fails, with the runtime's own words, when there is no driver. */
    ta_status (*count)(int *devices);

    /* Open device `index`; sets device->ops and device->name. */
    ta_status (*open)(int index, const ta_device_config *config, ta_device **device);

    /* Lines for ta_info(): runtime and driver versions, the devices and their memory. */
    void (*describe)(ta_text *text);
} ta_module;

/* Returns NULL if the module is not of this ABI; then *module_abi says which it is. `core` outlives
 * the module. */
typedef const ta_module *(*ta_module_entry_fn)(int abi, const ta_core *core, int *module_abi);

#endif
