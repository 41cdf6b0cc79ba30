/* The exchange that is one all-gather: every rank gets all partials and merges them in the order of
 * the ranks, so that all have the same bits. Few rounds and no waiting for merges in between, but
 * every rank receives and merges all that there is. */
#include <stdlib.h>

#include "base/status.h"
#include "estimate.h"
#include "messages.h"

static size_t *make_offsets(int ranks, size_t message)
{
    size_t *offsets = calloc((size_t)ranks + 1, sizeof *offsets);
    for (int rank = 0; offsets && rank <= ranks; ++rank)
        offsets[rank] = (size_t)rank * message;
    return offsets;
}

ta_status ta_all_gather_run(ta_plan *plan, ta_fault *fault, void *stream)
{
    ta_device *device = plan->exchange_device;
    ta_exchange_shape shape = ta_exchange_shape_of(plan);
    ta_heads all = {0, shape.heads};
    size_t bytes = ta_message_bytes(&shape, all), floats = bytes / sizeof(float);
    const void *message;
    TA_TRY(ta_message_pack(plan, all, fault, &message, stream));
    TA_TRY(device->ops->copy(device, plan->received + (size_t)plan->rank * floats, message, bytes,
                             stream));
    TA_TRY(ta_group_all_gather(plan->group, plan->received, plan->gather_at, stream));
    TA_TRY(ta_message_take(plan, plan->received, all, fault, stream));
    for (int rank = 1; rank < plan->ranks; ++rank)
        TA_TRY(ta_message_merge(plan, plan->received + (size_t)rank * floats, all, fault, stream));
    return TA_OK;
}

ta_status ta_all_gather_estimate(const ta_exchange_shape *shape, ta_cost *cost)
{
    size_t message = ta_message_bytes(shape, (ta_heads){0, shape->heads});
    size_t *offsets = make_offsets(shape->ranks, message);
    if (!offsets)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the offsets of %d ranks", shape->ranks);
    ta_cost_all_gather(cost, "all-gather", offsets);
    free(offsets);
    int kernels = shape->ranks + 1; /* two copies, and a merge with each other rank's */
    double bytes = 3.0 * kernels * (double)message;
    if (ta_shape_relays(shape)) { /* finish reads them where they are */
        kernels = 0;
        bytes = (double)shape->ranks * (double)message;
    }
    ta_cost_local(cost, "merge", ta_cost_memory_s(cost->cluster, kernels, bytes));
    return TA_OK;
}

ta_status ta_all_gather_offsets(int ranks, size_t message_bytes, size_t **offsets)
{
    *offsets = make_offsets(ranks, message_bytes);
    return *offsets ? TA_OK
                    : ta_fail(TA_ERR_NO_MEMORY, "no memory for the offsets of %d ranks", ranks);
}
