/* What the steps of a plan cost, as it is measured: where time goes, and memory. ta_plan_attend()
 * and ta_decode() add up, ta_plan_get_stats() tells. */
#include "base/arguments.h"
#include "base/status.h"
#include "plan.h"

ta_status ta_plan_get_stats(const ta_plan *plan, ta_plan_stats *stats)
{
    if (!plan)
        return ta_fail(TA_ERR_INVALID, "plan is NULL: make one with ta_plan_create()");
    ta_device_stats device = ta_device_stats_of(plan->device);
    ta_plan_stats now = {.steps = plan->steps,
                         .step_ns = plan->step_ns,
                         .attend_ns = plan->attend_ns,
                         .workspace_bytes = plan->memory_bytes,
                         .device_bytes = device.bytes_held,
                         .device_bytes_most = device.bytes_held_most,
                         .device_attend_ns = device.attend_ns};
    return ta_struct_write(TA_STRUCT(ta_plan_stats), "stats", &now, stats);
}
