/* Devices by name, and ta_info(). */
#include "device.h"

#include <treeattn/extension.h>

#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "ccl_own.h"
#include "cpus.h"
#include "fallback.h"
#include "model.h"
#include "modules.h"

ta_status ta_device_open(const char *name, const ta_device_config *config, ta_device **device)
{
    ta_device_config known = TA_DEVICE_CONFIG_INIT;
    if (!name)
        return ta_fail(TA_ERR_INVALID,
                       "name is NULL: must be \"host\", \"auto\" or a GPU like \"cuda:0\"");
    if (!device)
        return ta_fail(TA_ERR_INVALID, "device is NULL: must point to the result");
    if (config)
        TA_TRY(ta_struct_read(TA_STRUCT(ta_device_config), "config", config, &known));
    TA_TRY(ta_check_int("reserved", known.reserved, 0, 0));
    if (strcmp(name, "auto") == 0) {
        ta_device *gpu = NULL;
        TA_TRY(ta_modules_open_best(&known, &gpu));
        if (gpu) {
            *device = gpu;
            return TA_OK;
        }
        name = "host";
    }
    if (strcmp(name, "host") != 0)
        return ta_modules_open(name, &known, device);
    return ta_host_open(&known, device);
}

void ta_device_hold(ta_device *device)
{
    __atomic_fetch_add(&device->users, 1, __ATOMIC_RELAXED);
}

/* Who opened it counts as none: the last to go, whoever that is, finds no other user. */
void ta_device_let_go(ta_device *device)
{
    if (__atomic_fetch_sub(&device->users, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    while (device->blocks) { /* of memory that was not given back */
        ta_device_block *block = device->blocks;
        device->blocks = block->next;
        free(block);
    }
    if (device->stage)
        device->ops->free_host(device, device->stage);
    device->ops->close(device);
}

void ta_device_close(ta_device *device)
{
    if (device)
        ta_device_let_go(device);
}

ta_status ta_device_stage(ta_device *device, void **memory)
{
    if (!device->stage)
        TA_TRY(device->ops->alloc_host(device, TA_STAGE_BYTES, &device->stage));
    *memory = device->stage;
    return TA_OK;
}

const char *ta_device_name(const ta_device *device)
{
    return device ? device->name : "";
}

static ta_status check_device(const ta_device *device, void *stream)
{
    if (!device)
        return ta_fail(TA_ERR_INVALID, "device is NULL: open one with ta_device_open()");
    if (stream && !device->ops->has_streams)
        return ta_fail(TA_ERR_INVALID, "stream is %p: must be NULL, device %s has no streams",
                       stream, device->name);
    return TA_OK;
}

ta_status ta_device_check_dtype(const ta_device *device, const char *name, ta_dtype dtype,
                                ta_dtype_role role)
{
    if (!device->ops->has_dtype(device, dtype, role))
        return ta_fail(TA_ERR_UNSUPPORTED, "config.%s is %d (%s): device %s has no kernels for it",
                       name, (int)dtype, ta_dtype_name(dtype), device->name);
    return TA_OK;
}

ta_device_stats ta_device_stats_of(const ta_device *device)
{
    ta_device_stats now;
    const uint64_t *from = (const uint64_t *)&device->stats;
    uint64_t *to = (uint64_t *)&now;
    for (size_t i = 0; i < sizeof now / sizeof *to; ++i)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    return now;
}

ta_status ta_device_alloc(ta_device *device, size_t bytes, void **memory)
{
    TA_TRY(check_device(device, NULL));
    if (!memory)
        return ta_fail(TA_ERR_INVALID, "memory is NULL: must point to the result");
    ta_device_block *block = malloc(sizeof *block);
    if (!block)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory to remember %zu bytes of device memory", bytes);
    ta_status status = device->ops->alloc(device, bytes > 0 ? bytes : 1, memory);
    if (status != TA_OK) {
        free(block);
        return status;
    }
    *block = (ta_device_block){*memory, bytes, device->blocks};
    device->blocks = block;
    ta_device_stats *stats = &device->stats;
    stats->bytes_held += bytes;
    if (stats->bytes_held > stats->bytes_held_most)
        stats->bytes_held_most = stats->bytes_held;
    return TA_OK;
}

ta_status ta_device_workspace(ta_device *device, void *given, size_t given_bytes, size_t needed,
                              void **memory, int *owned)
{
    if (given) {
        TA_TRY(ta_check_workspace(given, given_bytes, needed));
        *memory = given;
    } else {
        TA_TRY(ta_device_alloc(device, needed, memory));
    }
    *owned = !given;
    return TA_OK;
}

void ta_device_free(ta_device *device, void *memory)
{
    if (!device || !memory)
        return;
    for (ta_device_block **at = &device->blocks; *at; at = &(*at)->next) {
        ta_device_block *block = *at;
        if (block->memory != memory)
            continue;
        device->stats.bytes_held -= block->bytes;
        *at = block->next;
        free(block);
        break;
    }
    device->ops->free(device, memory);
}

/* A table that a program of this source tree may ask for; NULL: the device has none. */
typedef struct extension {
    const char *name;
    int version;
    const void *table;
} extension;

static ta_status give_extension(const ta_device *device, const extension *e, int version,
                                const void **table)
{
    if (version != e->version)
        return ta_fail(TA_ERR_UNSUPPORTED, "version is %d: this library's table '%s' is version %d",
                       version, e->name, e->version);
    if (!e->table)
        return ta_fail(TA_ERR_UNSUPPORTED, "device %s has no table '%s'", device->name, e->name);
    *table = e->table;
    return TA_OK;
}

ta_status ta_device_extension(ta_device *device, const char *name, int version, const void **table)
{
    TA_TRY(check_device(device, NULL));
    if (!name)
        return ta_fail(TA_ERR_INVALID,
                       "name is NULL: must be \"" TA_MODEL_NAME "\" or \"" TA_CCL_OWN_NAME "\"");
    if (!table)
        return ta_fail(TA_ERR_INVALID, "table is NULL: must point to the result");
    const extension all[] = {{TA_MODEL_NAME, TA_MODEL_VERSION, device->ops->model},
                             {TA_CCL_OWN_NAME, TA_CCL_OWN_VERSION, device->ops->ccl_own}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(name, all[i].name) == 0)
            return give_extension(device, &all[i], version, table);
    return ta_fail(TA_ERR_UNSUPPORTED,
                   "name is '%s': the tables there are have the names '" TA_MODEL_NAME
                   "' and '" TA_CCL_OWN_NAME "'",
                   name);
}

ta_status ta_device_copy(ta_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    TA_TRY(check_device(device, stream));
    if (bytes > 0 && (!to || !from))
        return ta_fail(TA_ERR_INVALID, "to or from is NULL: must point to %zu bytes", bytes);
    return device->ops->copy(device, to, from, bytes, stream);
}

ta_status ta_device_synchronize(ta_device *device, void *stream)
{
    TA_TRY(check_device(device, stream));
    return device->ops->synchronize ? device->ops->synchronize(device, stream) : TA_OK;
}

ta_status ta_device_merge(ta_device *device, float *into, const float *from, int64_t records,
                          int32_t v_dim, void *stream)
{
    ta_merge merge = {
        .records = into, .v_dim = v_dim, .received = from, .messages = 1, .kept_end = records};
    return device->ops->merge(device, &merge, stream);
}

/* A device without a clock of its own has done what it was told when a call returns. */
ta_status ta_device_timer_start(ta_device *device, void *stream)
{
    TA_TRY(check_device(device, stream));
    if (device->ops->timer_start)
        return device->ops->timer_start(device, stream);
    device->started_ns = ta_clock_ns();
    return TA_OK;
}

ta_status ta_device_timer_read(ta_device *device, void *stream, double *seconds)
{
    TA_TRY(check_device(device, stream));
    if (!seconds)
        return ta_fail(TA_ERR_INVALID, "seconds is NULL: must point to the result");
    if (device->ops->timer_read)
        return device->ops->timer_read(device, stream, seconds);
    if (!device->started_ns)
        return ta_fail(TA_ERR_INVALID, "the stopwatch of %s was never started", device->name);
    *seconds = (double)(ta_clock_ns() - device->started_ns) * 1e-9;
    return TA_OK;
}

ta_status ta_info(char *text, size_t capacity, size_t *needed_bytes)
{
    ta_text out;
    TA_TRY(ta_text_open(&out, text, capacity));
    ta_text_add(&out, "version: %d.%d.%d\n", TA_VERSION_MAJOR, TA_VERSION_MINOR, TA_VERSION_PATCH);
    ta_text_add(&out, "host simd: %s\n", ta_host_simd_levels());
    ta_text_add(&out, "host threads: %d\n", ta_cpus());
    ta_modules_describe(&out);
    ta_text_add(&out, "groups: threads%s\n", ta_modules_has("mpi") ? " mpi" : "");
    ta_text_add(&out, "algorithms: tree ring-kv ring-q\n");
    ta_fallback_describe(&out);
    return ta_text_close(&out, needed_bytes);
}

int ta_version(void)
{
    return TA_VERSION;
}
