/* The device and the group of one rank of a decode case: see case.h. Ranks are threads; with
 * `--group ccl` each has a GPU of its own, and a group that moves their memory. */
#include <stdio.h>

#include "base/status.h"
#include "case.h"
#include "device/device.h"
#include "group/group.h"
#include "options.h"

ta_status case_rank_open(ta_group *threads, const char *name, const ta_device_config *config,
                         ta_device **device, ta_group **group)
{
    char own[40];
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    ta_group_config bounds = TA_GROUP_CONFIG_INIT;
    *group = threads;
    if (!options.ccl && !options.each)
        return ta_device_open(name, config, device);
    snprintf(own, sizeof own, "%s:%d", name, ta_group_rank(threads));
    TA_TRY(ta_device_open(own, config, device));
    if (!options.ccl)
        return TA_OK;
    ccl.bootstrap = threads;
    bounds.timeout_ms = threads->timeout_ms;
    return ta_group_create_ccl(*device, &ccl, &bounds, group);
}

void case_rank_close(ta_group *threads, ta_device *device, ta_group *group)
{
    if (group != threads)
        ta_group_destroy(group);
    ta_device_close(device);
}

ta_status case_rank_run(ta_group *threads, int device_threads,
                        ta_status (*use)(ta_group *group, ta_device *device, void *context),
                        void (*release)(void *context), void *context)
{
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    ta_device *device = NULL;
    ta_group *group = threads;
    config.threads = options_host() ? device_threads : 0;
    ta_status status = case_rank_open(threads, options.device, &config, &device, &group);
    if (status == TA_OK)
        status = use(group, device, context);
    if (status != TA_OK && group != threads)
        ta_group_abort(group, ta_last_error());
    release(context);
    case_rank_close(threads, device, group);
    return status;
}

ta_status case_plan_use(const decode_case *c, const case_data *data, ta_group *threads,
                        const char *name, const ta_device_config *config, case_plan_user *use,
                        void *context)
{
    ta_group *group = threads;
    ta_device *device = NULL;
    ta_plan *plan = NULL;
    void *workspace = NULL;
    ta_status status;
    case_shard shard;
    case_shard_make(c, data, ta_group_rank(threads), &shard);
    TA_TRY_GOTO(case_rank_open(threads, name, config, &device, &group), free_shard);
    TA_TRY_GOTO(case_shard_to_device(&shard, device), free_shard);
    TA_TRY_GOTO(case_plan_make(c, data, group, device, &workspace, &plan), free_shard);
    status = use(group, plan, &shard, context);

free_shard:
    ta_plan_destroy(plan);
    if (workspace)
        device->ops->free(device, workspace);
    if (status != TA_OK && group != threads)
        ta_group_abort(group, ta_last_error());
    case_shard_free(&shard);
    case_rank_close(threads, device, group);
    return status;
}
