/* A module of imagined GPUs, for the choice of a device. The environment variable that is named
 * like the module ("cuda") has a letter for each: r is refused for its architecture, b is broken,
 * w works, as far as being opened and closed goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/module.h"

static const ta_core *core;

static const char *gpus(void)
{
    const char *letters = getenv(GPUS);
    return letters ? letters : "";
}

static ta_status count(int *devices)
{
    *devices = (int)strlen(gpus());
    return TA_OK;
}

static void close_device(ta_device *device)
{
    free(device);
}

static const ta_device_ops ops = {.close = close_device};

static ta_status open_device(int index, const ta_device_config *config, ta_device **device)
{
    (void)config;
    switch (gpus()[index]) {
    case 'r':
        return core->fail_quietly(TA_ERR_UNSUPPORTED, GPUS ":%d is of architecture old", index);
    case 'b':
        return core->fail(TA_ERR_DEVICE, GPUS ":%d is broken", index);
    }
    *device = calloc(1, sizeof **device);
    if (!*device)
        return core->fail(TA_ERR_NO_MEMORY, "no memory for device %d", index);
    (*device)->ops = &ops;
    snprintf((*device)->name, sizeof(*device)->name, GPUS ":%d", index);
    return TA_OK;
}

static void describe(ta_text *text)
{
    (void)text;
}

static const ta_module module = {.size = sizeof module,
                                 .abi = TA_MODULE_ABI,
                                 .name = GPUS,
                                 .archs = "new",
                                 .count = count,
                                 .open = open_device,
                                 .describe = describe};

TA_API const ta_module *ta_module_entry(int abi, const ta_core *calls, int *module_abi);

const ta_module *ta_module_entry(int abi, const ta_core *calls, int *module_abi)
{
    (void)abi;
    *module_abi = TA_MODULE_ABI;
    core = calls;
    return &module;
}
