/* The direct exchange on GPUs that address each other's memory: every rank has a slab that the
 * others write to, and exchange and finish are one kernel (device/peers.h). Here the ranks of a
 * group come to know each other's slabs, by whatever means the group has, and try them before they
 * are used. direct.c calls it; decode/step.c runs it. */
#include <stdlib.h>

#include "base/status.h"
#include "device/peers.h"
#include "exchange.h"

/* The ranks of this one's node. */
static const int *ranks_here(const ta_exchange_job *job, int *count)
{
    const ta_nodes *n = job->shape.nodes;
    int node = n->node_of[job->rank];
    *count = n->first[node + 1] - n->first[node];
    return n->ranks + n->first[node];
}

static ta_peers_shape shape_of(const ta_exchange_job *job)
{
    const ta_exchange_shape *s = &job->shape;
    const ta_nodes *n = s->nodes;
    int count, root_here = n->node_of[s->root] == n->node_of[job->rank];
    const int *names = ranks_here(job, &count);
    return (ta_peers_shape){.rank = n->local_of[job->rank],
                            .ranks = count,
                            .names = names,
                            .world = s->ranks,
                            .parts = n->lanes,
                            .partial_bytes = job->most_bytes,
                            .records = (int64_t)(s->heads * (s->head_bytes / s->record_bytes)),
                            .shots = ta_direct_shots(s),
                            .placement = s->placement,
                            .root = root_here ? n->local_of[s->root] : -1,
                            .timeout_ms = job->group->timeout_ms};
}

/* Everybody's offer, on all ranks; those of this node then come first. */
static ta_status hand_round(ta_exchange_job *job, ta_peers_offer *offers)
{
    size_t ranks = (size_t)job->shape.ranks, *at = calloc(ranks + 1, sizeof *at);
    if (!at) {
        ta_status status =
            ta_fail(TA_ERR_NO_MEMORY, "no memory for the offsets of %zu ranks", ranks);
        ta_group_abort(job->group, ta_last_error());
        return status;
    }
    for (size_t rank = 0; rank <= ranks; ++rank)
        at[rank] = rank * sizeof *offers;
    ta_status status = ta_group_all_gather_host(job->group, offers, at);
    int count;
    const int *here = ranks_here(job, &count);
    for (int i = 0; i < count; ++i) /* ascending, so that none is overwritten before it is read */
        offers[i] = offers[here[i]];
    free(at);
    return status;
}

static ta_status open_and_probe(ta_exchange_job *job, const ta_peers_offer *offers)
{
    const ta_peer_ops *ops = job->device->ops->peers;
    job->peers->shared = 1;
    TA_TRY(ta_direct_settle(job, job->group->signals, ops->open(job->peers, offers)));
    ta_group_add_peers(job->group, job->device, job->peers);
    return ta_direct_settle(job, job->group->signals, ops->probe(job->peers));
}

ta_status ta_direct_share_peers(ta_exchange_job *job)
{
    const ta_peer_ops *ops = job->device->ops->peers;
    ta_peers_shape shape = shape_of(job);
    ta_peers_offer *offers = calloc((size_t)job->shape.ranks, sizeof *offers);
    ta_status made = TA_ERR_NO_MEMORY;
    if (offers)
        made = ops->make(job->device, &shape, &job->peers, &offers[job->rank]);
    else
        (void)ta_fail(made, "no memory for what %d ranks offer", job->shape.ranks);
    ta_status status = ta_direct_settle(job, job->group->signals, made);
    if (status == TA_OK)
        status = hand_round(job, offers);
    if (status == TA_OK)
        status = open_and_probe(job, offers);
    free(offers);
    return status;
}

/* No rank will use the slabs: when all have let go of them, each frees its own. */
void ta_direct_part(ta_exchange_job *job, ta_status heard)
{
    int64_t nothing = 0;
    if (job->peers) {
        ta_group_remove_peers(job->group, job->peers);
        job->device->ops->peers->close(job->peers);
    }
    if (heard == TA_OK && ta_group_max_host(job->group, &nothing, 1, NULL, NULL) == TA_OK &&
        job->peers)
        job->peers->shared = 0;
}

/* Two kernels, and messages between them of those ranks that have a part of the heads: in records
 * of their own, since what comes goes into them. */
static ta_status finish_nodes(ta_exchange_job *job, const ta_finish *finish, void *stream)
{
    const ta_peer_ops *ops = job->device->ops->peers;
    const ta_nodes *n = job->shape.nodes;
    ta_exchange_job lane = *job;
    lane.records = job->received;
    lane.received = job->received + job->most_bytes / sizeof(float);
    lane.defers = 0;
    ta_fault *fault = ta_exchange_fault(&lane);
    TA_TRY(ops->merge_part(job->peers, finish, lane.records, fault, stream));
    if (n->local_of[job->rank] < n->lanes)
        TA_TRY(ta_rounds_run_all(&lane, &ta_two_level_across, (ta_heads){0, job->shape.heads},
                                 stream));
    return ops->finish_parts(job->peers, finish, lane.records, fault, stream);
}

ta_status ta_direct_finish(ta_exchange_job *job, ta_finish *finish, void *stream)
{
    finish->last = ta_exchange_merge(job);
    job->last = finish->last;
    job->last.fault = job->peers->heard;
    if (job->shape.nodes->count > 1)
        return finish_nodes(job, finish, stream);
    return job->device->ops->peers->finish(job->peers, finish, stream);
}
