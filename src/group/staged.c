/* Groups of host memory for the memory of a device: see staged.h. A message goes piece by
 * piece, so that the pinned memory is small however large the message is. There is no overlap: a
 * hop that is started is a whole exchange. */
#include "staged.h"

#include <stdlib.h>

#include "base/status.h"
#include "device/staging.h"

#define PIECE_BYTES ((size_t)4 << 20)

typedef struct staged_group {
    ta_group group;
    ta_group *inner;
    int owns_inner;
    ta_staging staging; /* a piece on its way out, and one on its way in */
} staged_group;

static ta_status wait(ta_group *group, void *stream)
{
    return ta_staging_wait(&((staged_group *)group)->staging, stream);
}

static size_t piece_of(size_t left)
{
    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static ta_status exchange(ta_group *group, const void *send, size_t send_bytes, int to,
                          void *receive, size_t receive_bytes, int from, void *stream)
{
    staged_group *g = (staged_group *)group;
    const ta_staging *staging = &g->staging;
    char *out_memory = staging->memory, *in_memory = out_memory + PIECE_BYTES;
    size_t sent = 0, received = 0;
    if (to < 0)
        send_bytes = 0;
    if (from < 0)
        receive_bytes = 0;
    for (int first = 1; first || sent < send_bytes || received < receive_bytes; first = 0) {
        size_t out = piece_of(send_bytes - sent), in = piece_of(receive_bytes - received);
        TA_TRY(ta_staging_copy(staging, out_memory, (const char *)send + sent, out, stream));
        TA_TRY(ta_staging_wait(staging, stream)); /* also for the piece that came before */
        TA_TRY(g->inner->ops->exchange(g->inner, out_memory, out, first || out > 0 ? to : -1,
                                       in_memory, in, first || in > 0 ? from : -1, NULL));
        TA_TRY(ta_staging_copy(staging, (char *)receive + received, in_memory, in, stream));
        sent += out;
        received += in;
    }
    return TA_OK;
}

/* Nobody asks for them: what is added up on the way is added by kernels. */
static ta_status no_all_reduce(ta_group *group, const void *from, void *to, size_t count,
                               ta_element_kind element, ta_reduction reduction, void *stream)
{
    (void)from, (void)to, (void)count, (void)element, (void)reduction, (void)stream;
    return ta_fail(TA_ERR_UNSUPPORTED, "group %s reduces nothing itself", group->ops->name);
}

static ta_status no_reduce_scatter(ta_group *group, const void *from, void *to,
                                   const size_t *offsets, ta_element_kind element,
                                   ta_reduction reduction, void *stream)
{
    (void)offsets;
    return no_all_reduce(group, from, to, 0, element, reduction, stream);
}

static void abort_group(ta_group *group, const char *reason)
{
    ta_group_abort(((staged_group *)group)->inner, reason);
}

static void destroy(ta_group *group)
{
    staged_group *g = (staged_group *)group;
    if (g->owns_inner)
        ta_group_destroy(g->inner);
    ta_staging_free(&g->staging);
    free(g);
}

static ta_status split(ta_group *group, int color, int key, ta_group **part)
{
    staged_group *g = (staged_group *)group;
    ta_group *inner;
    TA_TRY(ta_group_split(g->inner, color, key, &inner));
    *part = NULL;
    if (!inner) /* in no part */
        return TA_OK;
    ta_status status = ta_group_stage(inner, group->device, part);
    if (status != TA_OK) {
        ta_group_abort(inner, ta_last_error());
        ta_group_destroy(inner);
        return status;
    }
    ((staged_group *)*part)->owns_inner = 1;
    return TA_OK;
}

static const ta_group_ops staged_ops = {
    .name = "staged",
    .exchange = exchange,
    .abort = abort_group,
    .destroy = destroy,
    .split = split,
    .wait = wait,
    .all_reduce = no_all_reduce,
    .reduce_scatter = no_reduce_scatter,
};

ta_status ta_group_stage(ta_group *inner, ta_device *device, ta_group **group)
{
    staged_group *g = calloc(1, sizeof *g);
    if (!g)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for a group");
    g->group = (ta_group){.ops = &staged_ops,
                          .rank = inner->rank,
                          .size = inner->size,
                          .timeout_ms = inner->timeout_ms,
                          .device = device};
    g->inner = inner;
    ta_status status = ta_staging_make(device, 2 * PIECE_BYTES, &g->staging);
    if (status != TA_OK) {
        free(g);
        return status;
    }
    *group = &g->group;
    return TA_OK;
}
