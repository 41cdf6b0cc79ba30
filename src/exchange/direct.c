/* The direct exchange: ranks that can address each other's memory put their partial where the
 * others read it, signal, wait, and merge in the order of the ranks. No messages, no copies; all
 * ranks have the bits of the all-gather exchange. exchange.c lists it.
 *
 * The memory, a slab for each plan and node, has two sets of partials, one for each rank, and
 * room for one merged partial. Attention writes the partial of its rank there. Signals are of
 * the group (group/signals.h), which count its exchanges; odd and even ones take turns with the
 * sets. Rules, by the names that tests/direct/direct.pml checks them under:
 *
 *     PUBLISH   a rank says that its partial is there after it has written all of it
 *     ARRIVE    nobody reads a partial before its rank has said so
 *     EVERYBODY a rank waits for all others in every exchange, also if it needs nothing of them
 *     TURNS     an exchange uses the set that the last one did not
 *     MERGED    nobody reads a merged part before its rank has said so
 *     FAULTS    a rank that knows of a fault neither merges nor waits any more: all know the same
 *     WRAP      counts are compared by their difference, so that they may wrap
 *     FOLLOW    the count of merged parts follows where there are none, so that it is never far off
 *
 * Two sets suffice by EVERYBODY and TURNS: when a rank writes into a set again, all have signalled
 * the exchange in between, which comes after they have read that set. So a rank that is done goes
 * on, and nobody waits for its readers. The room for merged parts needs no second one: who writes
 * there has heard from everybody that the last exchange is over.
 *
 * On GPUs that address each other's memory it is one kernel with rules of the same names:
 * direct_peers.c brings the ranks together, hip/exchange/ has the rest. On several nodes it is two,
 * with messages in device memory between them.
 *
 * One shot: every rank merges all partials of the heads that it needs, in finish(). Two shots, for
 * larger partials on more ranks: it merges its part of the heads only, and reads the other parts
 * merged. On several nodes the parts are merged by one rank of each node, which exchange them in a
 * tree of messages between the nodes before they say that the part is there. */
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/status.h"
#include "exchange.h"
#include "group/signals.h"

/* Two shots pay when they save reading more bytes than this: about what a rank reads of others in
 * the time of one more signal. Of hosts measured, with the merges that come with it; of GPUs the
 * cluster says it, and without one it is that of NVLink (cluster/presets.c: 1.41 us, 450 GB/s). */
#define HOST_SIGNAL_BYTES (48 << 10)
#define GPU_SIGNAL_BYTES (634e3)

static size_t round_up(size_t bytes)
{
    return (bytes + TA_SHARED_LINE - 1) / TA_SHARED_LINE * TA_SHARED_LINE;
}

static int on_nodes(const ta_exchange_shape *shape)
{
    return shape->nodes && shape->nodes->count > 1;
}

int ta_direct_supports(const ta_exchange_shape *shape)
{
    return shape->shares_memory && (!on_nodes(shape) || shape->nodes->most > 1);
}

static double signal_bytes(const ta_exchange_shape *shape)
{
    if (!shape->device_memory)
        return HOST_SIGNAL_BYTES;
    return shape->signal_bytes > 0 ? shape->signal_bytes : GPU_SIGNAL_BYTES;
}

int ta_direct_shots(const ta_exchange_shape *shape)
{
    double partial = (double)shape->heads * (double)shape->head_bytes, ranks = shape->ranks;
    if (on_nodes(shape))
        return 2;
    if (shape->placement == TA_PLACE_HEADS)
        return 1;
    if (shape->shots)
        return shape->shots;
    return (ranks - 1) * (1 - 2 / ranks) * partial > signal_bytes(shape) ? 2 : 1;
}

/* ---- The slab ---- */

/* Of the largest partial: calls with fewer rows have theirs at the same addresses. */
static size_t partial_bytes(const ta_exchange_job *job)
{
    return round_up(job->most_bytes);
}

static size_t slab_bytes(const ta_exchange_job *job, int count)
{
    return (2 * (size_t)count + 1) * partial_bytes(job);
}

/* Where number `index` of the node has its partial in the exchange `epoch`. */
static float *partial_of(const ta_exchange_job *job, uint32_t epoch, int index)
{
    size_t number = (epoch & 1) * (size_t)job->signals->count + (size_t)index;
    return (float *)(void *)((char *)job->slab->memory + number * partial_bytes(job));
}

static float *merged_of(const ta_exchange_job *job)
{
    return (float *)(void *)((char *)job->slab->memory +
                             2 * (size_t)job->signals->count * partial_bytes(job));
}

float *ta_direct_own_records(const ta_exchange_job *job)
{
    return job->slab ? partial_of(job, job->signals->epoch + 1, job->signals->index) : NULL;
}

/* The ranks of this one's node. */
static const int *ranks_here(const ta_exchange_job *job, int *count)
{
    const ta_nodes *n = job->shape.nodes;
    int node = n->node_of[job->rank];
    *count = n->first[node + 1] - n->first[node];
    return n->ranks + n->first[node];
}

static ta_status open_signals(ta_exchange_job *job)
{
    int count;
    const int *ranks = ranks_here(job, &count);
    return ta_signals_open(job->group, ranks, count, &job->signals);
}

static ta_status share_slab(ta_exchange_job *job)
{
    int count;
    const int *ranks = ranks_here(job, &count);
    return job->group->ops->share(job->group, ranks, count, slab_bytes(job, count), &job->slab);
}

ta_status ta_direct_settle(ta_exchange_job *job, struct ta_signals *before, ta_status own)
{
    /* The lowest rank that failed decides for all; without memory there is no other way either. */
    int64_t failed =
        own == TA_OK ? 0 : 2 * (job->shape.ranks - job->rank) + (own == TA_ERR_NO_MEMORY);
    char why[200];
    ta_format(why, sizeof why, "%s", own == TA_OK ? "" : ta_last_error());
    ta_status heard = ta_group_max_host(job->group, &failed, 1, NULL, NULL);
    if (heard == TA_OK && failed == 0)
        return TA_OK;
    if (job->shape.device_memory) /* collective, so also on ranks that have no slab */
        ta_direct_part(job, heard);
    ta_exchange_release(job);
    if (job->group->signals != before)
        ta_signals_drop(job->group, job->group->signals);
    if (heard != TA_OK)
        return heard;
    ta_status status = failed & 1 ? TA_ERR_NO_MEMORY : TA_ERR_UNSUPPORTED;
    if (own != TA_OK)
        return ta_fail(status, "%s", why);
    return ta_fail(status, "rank %d has no memory that it shares with others",
                   job->shape.ranks - (int)(failed / 2));
}

ta_status ta_exchange_share(ta_exchange_job *job, ta_status status, int *skipped)
{
    int64_t bytes = (int64_t)ta_exchange_partial_bytes(job), shots = job->shape.shots;
    int64_t refuses =
        status == TA_OK && !job->shape.shares_memory ? job->shape.ranks - job->rank : 0;
    int on_device = job->shape.device_memory;
    int64_t all[] = {status != TA_OK,
                     refuses,
                     bytes,
                     -bytes,
                     shots,
                     -shots,
                     !on_device,
                     on_device ? job->shape.ranks - job->rank : 0,
                     job->rank == 0 ? (int64_t)job->shape.signal_bytes : 0};
    job->most_bytes = (size_t)bytes;
    *skipped = 1;
    TA_TRY(ta_group_max_host(job->group, all, sizeof all / sizeof *all, NULL, NULL));
    if (all[0] || all[2] != -all[3])
        return TA_OK;
    if (all[1])
        return ta_fail(TA_ERR_UNSUPPORTED, "rank %d has its partials in memory of a GPU",
                       job->shape.ranks - (int)all[1]);
    if (all[6] && all[7])
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "rank %d has its partials in memory of a GPU, and others have them in the "
                       "host's",
                       job->shape.ranks - (int)all[7]);
    if (all[4] != -all[5])
        return ta_fail(TA_ERR_MISMATCH,
                       "TREEATTN_DIRECT_SHOTS is %d here and another on other ranks: must be the "
                       "same",
                       (int)shots);
    *skipped = 0;
    job->shape.signal_bytes = (double)all[8]; /* rank 0's: others may have no cluster */
    if (on_device && on_nodes(&job->shape) && !job->group->device)
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "the ranks are on %d nodes, between which GPUs need NCCL or RCCL, and the "
                       "group moves host memory",
                       job->shape.nodes->count);
    if (on_device)
        return ta_direct_share_peers(job);
    struct ta_signals *before = job->group->signals;
    /* Who has no signals would not be in the next call. */
    TA_TRY(ta_direct_settle(job, before, open_signals(job)));
    return ta_direct_settle(job, before, share_slab(job));
}

/* ---- A run ---- */

/* Heads [first, end) of a rank's partial, which the whole partial's records are. */
static ta_merge merge_of(const ta_exchange_job *job, uint32_t epoch, ta_heads heads)
{
    int64_t rows = (int64_t)(job->shape.head_bytes / job->shape.record_bytes);
    int64_t before = ta_exchange_floats(job, heads.first);
    ta_merge merge = ta_exchange_merge(job);
    merge.records = partial_of(job, epoch, 0);
    merge.fault = NULL;
    merge.received =
        partial_of(job, epoch, 0) + before + (int64_t)(partial_bytes(job) / sizeof(float));
    merge.stride = (int64_t)(partial_bytes(job) / sizeof(float));
    merge.messages = job->signals->count - 1;
    merge.kept_first = heads.first * rows;
    merge.kept_end = heads.end * rows;
    return merge;
}

/* Rank 0's records of these heads, and then all others', into `records`. */
static ta_status merge_into(ta_exchange_job *job, const ta_merge *all, float *records, void *stream)
{
    const ta_device_ops *ops = job->device->ops;
    ta_merge first = *all, others = *all;
    int64_t floats = (int64_t)(job->shape.record_bytes / sizeof(float));
    if (all->kept_end == all->kept_first)
        return TA_OK;
    first.records = others.records = records;
    first.received = all->records + all->kept_first * floats;
    first.messages = first.replaces = 1;
    TA_TRY(ops->merge(job->device, &first, stream));
    return all->messages ? ops->merge(job->device, &others, stream) : TA_OK;
}

/* Wait for everybody on the node: PUBLISH, ARRIVE, EVERYBODY. */
static ta_status meet(ta_exchange_job *job)
{
    ta_signals *s = job->signals;
    ta_signal_ready(s, ta_exchange_fault(job));
    for (int i = 0; i < s->count; ++i)
        if (i != s->index)
            TA_TRY(ta_await_ready(s, i));
    job->heard = *ta_signal_fault(s, 0);
    for (int i = 1; i < s->count; ++i)
        job->heard = ta_fault_merge(job->heard, *ta_signal_fault(s, i));
    return TA_OK;
}

/* The heads that this rank is to have in the end. */
static ta_heads wanted(const ta_exchange_shape *shape, int rank)
{
    ta_heads all = {0, shape->heads}, none = {0, 0};
    if (shape->placement == TA_PLACE_HEADS)
        return ta_parts(shape->heads, shape->ranks, rank, rank + 1);
    return shape->placement == TA_PLACE_ALL || rank == shape->root ? all : none;
}

/* What finish() takes over, or what is put where the job has its own records. */
static ta_status hand_over(ta_exchange_job *job, const ta_merge *all, void *stream)
{
    ta_merge last = *all;
    last.fault = &job->heard;
    if (job->defers) {
        job->last = last;
        return TA_OK;
    }
    *ta_exchange_fault(job) = job->heard;
    return job->heard.status == TA_OK ? merge_into(job, all, job->records, stream) : TA_OK;
}

static ta_status run_once(ta_exchange_job *job, void *stream)
{
    ta_merge all = merge_of(job, job->signals->epoch, wanted(&job->shape, job->rank));
    return hand_over(job, &all, stream);
}

/* Wait for the parts that this rank needs: MERGED. */
static ta_status take_parts(ta_exchange_job *job, int parts, void *stream)
{
    ta_signals *s = job->signals;
    ta_heads heads = wanted(&job->shape, job->rank);
    for (int i = 0; i < parts && heads.end > heads.first; ++i)
        if (i != s->index)
            TA_TRY(ta_await_merged(s, i));
    ta_merge all = merge_of(job, s->epoch, heads);
    all.records = merged_of(job);
    all.messages = 0;
    return hand_over(job, &all, stream);
}

static ta_status run_twice(ta_exchange_job *job, void *stream)
{
    ta_signals *s = job->signals;
    ta_heads part = ta_parts(job->shape.heads, s->count, s->index, s->index + 1);
    ta_merge own = merge_of(job, s->epoch, part);
    if (job->heard.status != TA_OK) /* FAULTS */
        return hand_over(job, &own, stream);
    TA_TRY(merge_into(job, &own, merged_of(job), stream));
    ta_signal_merged(s, &job->heard);
    return take_parts(job, s->count, stream);
}

/* ---- Several nodes ---- */

/* A part of the heads, merged over this node, merged over all nodes: in memory of this rank alone,
 * since messages have the fault behind them. */
static ta_status merge_lane(ta_exchange_job *job, ta_heads part, const ta_merge *own, void *stream)
{
    ta_exchange_job lane = *job;
    int64_t before = ta_exchange_floats(job, part.first);
    size_t bytes = (size_t)ta_exchange_floats(job, part.end - part.first) * sizeof(float);
    lane.records = job->received + job->most_bytes / sizeof(float);
    lane.defers = 0;
    *ta_exchange_fault(&lane) = job->heard;
    if (job->heard.status == TA_OK)
        TA_TRY(merge_into(job, own, lane.records, stream));
    TA_TRY(ta_rounds_run_all(&lane, &ta_two_level_across, (ta_heads){0, job->shape.heads}, stream));
    job->heard = *ta_exchange_fault(&lane);
    if (job->heard.status == TA_OK && bytes)
        memcpy(merged_of(job) + before, lane.records + before, bytes);
    return TA_OK;
}

static ta_status run_nodes(ta_exchange_job *job, void *stream)
{
    ta_signals *s = job->signals;
    const ta_nodes *n = job->shape.nodes;
    int lanes = n->lanes;
    int arrives = job->shape.placement != TA_PLACE_ROOT ||
                  n->node_of[job->rank] == n->node_of[job->shape.root];
    ta_heads part = {0, 0};
    if (s->index < lanes) {
        part = ta_parts(job->shape.heads, lanes, s->index, s->index + 1);
        ta_merge own = merge_of(job, s->epoch, part);
        TA_TRY(merge_lane(job, part, &own, stream));
        ta_signal_merged(s, &job->heard);
    }
    if (!arrives) {
        ta_merge none = merge_of(job, s->epoch, (ta_heads){0, 0});
        return hand_over(job, &none, stream);
    }
    if (s->index != 0)
        TA_TRY(ta_await_merged(s, 0));
    job->heard = s->of[0].all; /* in the signals, not in the slab: plans may differ */
    return take_parts(job, job->heard.status == TA_OK ? lanes : 0, stream);
}

ta_status ta_direct_run(ta_exchange_job *job, ta_heads heads, void *stream)
{
    (void)heads; /* all of them: it has no chunks */
    if (!ta_exchange_in_place(job)) {
        float *own = ta_direct_own_records(job);
        memcpy(own, job->records,
               (size_t)ta_exchange_floats(job, job->shape.heads) * sizeof(float));
    }
    TA_TRY(meet(job));
    if (on_nodes(&job->shape))
        return run_nodes(job, stream);
    return ta_direct_shots(&job->shape) == 1 ? run_once(job, stream) : run_twice(job, stream);
}

/* ---- What it costs ---- */

/* In host memory a merge is work of its own; in device memory finish() does it, but for that before
 * messages between nodes. */
static double merge_s(const ta_exchange_shape *shape, const ta_cost *cost, int kernels,
                      double bytes)
{
    if (shape->device_memory)
        kernels = on_nodes(shape);
    return ta_cost_memory_s(cost->cluster, kernels, bytes);
}

/* `ranks` of a node: each merges 1 / parts of the heads of all of them, and reads what others
 * merged. */
static void estimate_two(const ta_exchange_shape *shape, int ranks, int parts, ta_cost *cost)
{
    double partial = (double)shape->heads * (double)shape->head_bytes, part = partial / parts;
    ta_cost_signals(cost, "signal and merge a part", 1, (ranks - 1) * part,
                    merge_s(shape, cost, 2, (ranks + 2) * part));
    if (on_nodes(shape))
        ta_rounds_estimate_all(&ta_two_level_across, shape, cost);
    ta_cost_signals(cost, "signal and read parts", 1, partial - part, 0);
}

ta_status ta_direct_estimate(const ta_exchange_entry *kind, const ta_exchange_shape *shape,
                             ta_cost *cost)
{
    int ranks = on_nodes(shape) ? shape->nodes->most : shape->ranks;
    double partial = (double)shape->heads * (double)shape->head_bytes;
    double part = shape->placement == TA_PLACE_HEADS ? partial / ranks : partial;
    (void)kind;
    if (on_nodes(shape))
        estimate_two(shape, ranks, shape->nodes->lanes, cost);
    else if (ta_direct_shots(shape) == 2)
        estimate_two(shape, ranks, ranks, cost);
    else
        ta_cost_signals(cost, "signal and read partials", 1, (ranks - 1) * part,
                        merge_s(shape, cost, 1, ranks * part));
    return TA_OK;
}
