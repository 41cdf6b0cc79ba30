/* What the steps of a plan cost, as it is measured: where time goes, and memory. Algorithms call
 * ta_plan_attend(), ta_decode() adds up, ta_plan_get_stats() tells. */
#include "base/clock.h"
#include "base/status.h"
#include "plan.h"

ta_status ta_plan_attend(ta_plan *plan, const ta_problem *problem, const ta_tensor *q,
                         const ta_kv *kv, float *records, void *stream)
{
    ta_device *device = plan->device;
    int64_t before = ta_clock_ns();
    if (device->ops->span)
        TA_TRY(device->ops->span(device, 0, stream));
    TA_TRY(device->ops->attend(device, problem, q, kv, records, plan->attend, stream));
    if (device->ops->span)
        TA_TRY(device->ops->span(device, 1, stream));
    plan->attend_ns += (uint64_t)(ta_clock_ns() - before);
    return TA_OK;
}

ta_status ta_plan_get_stats(const ta_plan *plan, ta_plan_stats *stats)
{
    if (!plan)
        return ta_fail(TA_ERR_INVALID, "plan is NULL: make one with ta_plan_create()");
    if (!stats || stats->size != sizeof *stats)
        return ta_fail(TA_ERR_INVALID, "stats is NULL or not initialised: use TA_PLAN_STATS_INIT");
    stats->steps = plan->steps;
    stats->step_ns = plan->step_ns;
    stats->attend_ns = plan->attend_ns;
    stats->workspace_bytes = plan->memory_bytes;
    stats->device_bytes = plan->device->stats.bytes_held;
    stats->device_bytes_most = plan->device->stats.bytes_held_most;
    stats->device_attend_ns = plan->device->stats.attend_ns;
    return TA_OK;
}
