/* Steps that are captured in graphs and replayed: see replay.h. One plan serves all layers of a
 * model, whose calls differ in their pointers and options, so there are several recordings. Two
 * steps are the same if their bytes are (plan.h). */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "step.h"

ta_step_counts ta_step_count(const ta_plan *plan)
{
    ta_step_counts counts = {.device = ta_device_stats_of(plan->device)};
    if (plan->group)
        counts.group = plan->group->stats;
    return counts;
}

ta_step_counts ta_step_count_since(const ta_plan *plan, const ta_step_counts *before)
{
    ta_step_counts now = ta_step_count(plan);
    const ta_device_stats *device = &before->device;
    const ta_group_stats *group = &before->group;
    now.device.launches -= device->launches;
    now.device.copies -= device->copies;
    now.device.waits -= device->waits;
    now.device.bytes_to_device -= device->bytes_to_device;
    now.device.bytes_from_device -= device->bytes_from_device;
    now.group.messages_sent -= group->messages_sent;
    now.group.messages_received -= group->messages_received;
    now.group.bytes_sent -= group->bytes_sent;
    now.group.bytes_received -= group->bytes_received;
    return now;
}

/* A graph does again what was counted when it was recorded. */
static void count_again(ta_plan *plan, const ta_step_counts *counts)
{
    ta_device_count(&plan->device->stats.launches, counts->device.launches);
    if (!plan->group)
        return;
    plan->group->stats.messages_sent += counts->group.messages_sent;
    plan->group->stats.messages_received += counts->group.messages_received;
    plan->group->stats.bytes_sent += counts->group.bytes_sent;
    plan->group->stats.bytes_received += counts->group.bytes_received;
}

ta_status ta_replay_prepare(ta_plan *plan)
{
    if (!plan->replays)
        return TA_OK;
    plan->recordings = calloc(TA_RECORDINGS, sizeof *plan->recordings);
    if (!plan->recordings)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for %d recordings", TA_RECORDINGS);
    return TA_OK;
}

void ta_replay_release(ta_plan *plan)
{
    for (int i = 0; plan->recordings && i < TA_RECORDINGS; ++i)
        if (plan->recordings[i].graph)
            plan->device->ops->drop(plan->device, plan->recordings[i].graph);
    free(plan->recordings);
}

/* The recording of this step; or, with no graph, the place for one. */
static ta_recording *find(ta_plan *plan, const ta_step *step)
{
    ta_recording *oldest = plan->recordings;
    for (int i = 0; i < TA_RECORDINGS; ++i) {
        ta_recording *r = &plan->recordings[i];
        if (r->graph && memcmp(&r->step, step, sizeof *step) == 0)
            return r;
        if (r->used < oldest->used) /* 0: never */
            oldest = r;
    }
    if (oldest->graph)
        plan->device->ops->drop(plan->device, oldest->graph);
    memset(oldest, 0, sizeof *oldest);
    return oldest;
}

static ta_status record(ta_plan *plan, const ta_step *step, const ta_fault *own, ta_recording *r)
{
    const ta_device_ops *ops = plan->device->ops;
    ta_step_counts before = ta_step_count(plan);
    void *stream = NULL;
    TA_TRY(ops->record(plan->device, &stream));
    ta_status status = plan->runs->decode(plan, step, own, stream);
    if (status != TA_OK) {
        (void)ops->recorded(plan->device, stream, NULL);
        return status;
    }
    r->step = *step;
    r->counts = ta_step_count_since(plan, &before);
    return ops->recorded(plan->device, stream, &r->graph);
}

ta_status ta_replay_step(ta_plan *plan, const ta_step *step, const ta_fault *own, void *stream)
{
    ta_recording *r = find(plan, step);
    if (r->graph)
        count_again(plan, &r->counts);
    else
        TA_TRY(record(plan, step, own, r));
    r->used = ++plan->replayed;
    return plan->device->ops->replay(plan->device, r->graph, stream);
}
