/* See rank_device.h. attention/run.c, decode/rank_plan.c, exchange/rank.c and llama/decoder.c open
 * their devices here. */
#include "rank_device.h"

#include <stdio.h>
#include <string.h>

#include "device_text.h"
#include "fail.h"
#include "launch.h"

const char *const rank_group_words[] = {"auto", "host", "ccl", NULL};

/* `name` is that of the device that *device opens. */
static int settle(rank_devices *d, const char **device, int64_t *group, const char *name,
                  char *error, size_t capacity)
{
    d->gpu = strcmp(name, "host") != 0;
    device_text(*device, d->said, sizeof d->said);
    if (d->gpu && strcmp(*device, "auto") == 0) {
        snprintf(d->kind, sizeof d->kind, "%.*s", (int)strcspn(name, ":"), name);
        *device = d->kind;
    }
    d->each = d->gpu && !strchr(*device, ':');
    if (*group == RANK_GROUP_CCL && !d->each) {
        snprintf(error, capacity,
                 "--group is ccl, but --device is %s: must be a kind of GPU, such as cuda, rocm or "
                 "auto, of which each rank takes one",
                 *device);
        return EXIT_USAGE;
    }
    if (*group == RANK_GROUP_AUTO)
        *group = d->each ? RANK_GROUP_CCL : RANK_GROUP_HOST;
    return EXIT_OK;
}

int rank_devices_try(rank_devices *devices, const char **device, const char *simd, int64_t *group,
                     char *error, size_t capacity)
{
    ta_device *opened = NULL;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    config.threads = 1;
    config.simd = simd;
    ta_status status = ta_device_open(*device, &config, &opened);
    if (status != TA_OK) {
        snprintf(error, capacity, "device '%s'%s%s is not available: %s", *device,
                 simd ? " with --simd " : "", simd ? simd : "", ta_last_error());
        return fail_code(status);
    }
    int code = settle(devices, device, group, ta_device_name(opened), error, capacity);
    ta_device_close(opened);
    return code;
}

void rank_gpu_name(const char *kind, int rank, char *name, size_t capacity)
{
    snprintf(name, capacity, "%s:%d", kind, launch.mpi ? launch.local_rank : rank);
}

ta_status rank_device_open(const rank_device_config *config, ta_group *launched, ta_device **device,
                           ta_group **connected)
{
    char name[64];
    ta_device_config how = TA_DEVICE_CONFIG_INIT;
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    ta_device *opened;
    ta_group *made = launched;
    how.threads = config->threads;
    how.simd = config->simd;
    if (config->each)
        rank_gpu_name(config->device, ta_group_rank(launched), name, sizeof name);
    ta_status status = ta_device_open(config->each ? name : config->device, &how, &opened);
    if (status != TA_OK)
        return status;
    if (config->each && config->ccl && ta_group_size(launched) > 1) {
        ccl.bootstrap = launched;
        status = ta_group_create_ccl(opened, &ccl, NULL, &made);
    }
    if (status != TA_OK) {
        ta_device_close(opened);
        return status;
    }
    *device = opened;
    *connected = made;
    return TA_OK;
}
