/* One step of pass-Q: each part's partial goes around the ring and collects what every rank's shard
 * adds to it; K and V stay. If all ranks have the query, each attends with all of it first, in one
 * pass over its K and V; the partial of a part starts behind its rank and is home after ranks − 1
 * hops. A query that is scattered by heads travels with its partial, from its rank all the way
 * around: what arrives must be attended with before it can go on. Called by api.c; see ring.h. */
#include "base/dtype.h"
#include "base/neighbors.h"
#include "base/status.h"
#include "parts.h"
#include "ring.h"
#include "step.h"

/* A message is the records of a part, a fault, and the part's query if that travels. */
typedef struct message {
    int first, heads; /* of the part */
    size_t record_bytes, query_bytes;
} message;

typedef struct q_step {
    ta_plan *plan;
    const ta_step *step;
    ta_tensor query;     /* all query heads */
    const ta_fault *own; /* this rank's fault */
    void *stream;
    int travels; /* the query does */
} q_step;

static size_t query_head_bytes(const ta_problem *p)
{
    return (size_t)(ta_problem_rows(p) * p->k_dim) * ta_dtype_bytes(p->query_dtype);
}

static int query_travels(const ta_plan *plan)
{
    return plan->query_placement == TA_PLACE_HEADS;
}

/* Of the problem of a step, or of the plan, whose job is fitted to it. */
static message message_of(const ta_plan *plan, const ta_problem *problem, int part, int with_query)
{
    message m;
    ta_part(plan, part, &m.first, &m.heads);
    m.record_bytes = (size_t)ta_exchange_floats(&plan->job, m.heads) * sizeof(float);
    m.query_bytes = with_query ? (size_t)m.heads * query_head_bytes(problem) : 0;
    return m;
}

static size_t message_bytes(message m)
{
    return m.record_bytes + sizeof(ta_fault) + m.query_bytes;
}

size_t ta_ring_partial_bytes(const ta_plan *plan)
{
    size_t most = 0;
    for (int part = 0; part < plan->ranks; ++part) {
        size_t bytes = message_bytes(message_of(plan, &plan->problem, part, query_travels(plan)));
        most = bytes > most ? bytes : most;
    }
    return most;
}

static char *query_at(void *query, const ta_problem *p, int head)
{
    return (char *)query + (size_t)head * query_head_bytes(p);
}

/* This rank's partial of all parts, to the exchange's records. */
static ta_status attend_all(q_step *s)
{
    ta_plan *plan = s->plan;
    int64_t floats = ta_exchange_floats(&plan->job, plan->problem.query_heads);
    if (s->own->status != TA_OK)
        return TA_OK;
    TA_TRY(
        ta_plan_attend(plan, &s->step->problem, &s->query, &s->step->kv, plan->records, s->stream));
    return ta_staging_out(&plan->staging, plan->job.records, plan->records,
                          (size_t)floats * sizeof(float), s->stream);
}

/* Of one part, whose query came by. */
static ta_status attend_part(q_step *s, int part)
{
    ta_plan *plan = s->plan;
    message m = message_of(plan, &s->step->problem, part, 0);
    if (s->own->status != TA_OK || m.heads == 0)
        return TA_OK;
    int64_t before = ta_exchange_floats(&plan->job, m.first);
    ta_tensor q = ta_heads_from(s->query, m.first, plan->problem.query_dtype);
    TA_TRY(ta_part_attend(plan, &s->step->problem, part, &q, &s->step->kv, plan->records + before,
                          s->stream));
    return ta_staging_out(&plan->staging, plan->job.records + before, plan->records + before,
                          m.record_bytes, s->stream);
}

/* The query that came with a part goes where attend() finds it. */
static ta_status take_query(q_step *s, int part, const char *wire)
{
    ta_plan *plan = s->plan;
    message m = message_of(plan, &s->step->problem, part, 1);
    if (s->own->status != TA_OK || m.query_bytes == 0)
        return TA_OK;
    return plan->device->ops->copy(plan->device, query_at(plan->query, &s->step->problem, m.first),
                                   wire + m.record_bytes + sizeof(ta_fault), m.query_bytes,
                                   s->stream);
}

/* The part that this rank sends first: records, fault, query. */
static ta_status fill_first(q_step *s, int part, char *wire)
{
    const ta_problem *p = &s->step->problem;
    ta_plan *plan = s->plan;
    ta_device *device = plan->device, *exchange = plan->job.device;
    message m = message_of(plan, p, part, s->travels);
    if (m.query_bytes && s->own->status == TA_OK) {
        char *packed = query_at(plan->query, p, m.first);
        char *to = wire + m.record_bytes + sizeof(ta_fault);
        TA_TRY(device->ops->pack_query(device, p, &s->step->q, m.heads, packed, s->stream));
        TA_TRY(device->ops->copy(device, to, packed, m.query_bytes, s->stream));
    }
    TA_TRY(s->travels ? attend_part(s, part) : attend_all(s));
    TA_TRY(ta_end_fault(plan, &plan->job, s->step, s->own, s->stream));
    if (ta_plan_stages(plan))
        TA_TRY(ta_staging_wait(&plan->staging, s->stream));
    TA_TRY(exchange->ops->copy(exchange, wire,
                               plan->job.records + ta_exchange_floats(&plan->job, m.first),
                               m.record_bytes, s->stream));
    return exchange->ops->copy(exchange, wire + m.record_bytes, ta_exchange_fault(&plan->job),
                               sizeof(ta_fault), s->stream);
}

/* What this rank adds to a part that came by: its own partial, and its fault. */
static ta_status merge_own(q_step *s, int part, char *wire)
{
    ta_plan *plan = s->plan;
    message m = message_of(plan, &s->step->problem, part, 0);
    ta_merge merge = ta_exchange_merge(&plan->job);
    merge.records = (float *)(void *)wire;
    merge.fault = (ta_fault *)(void *)(wire + m.record_bytes);
    merge.received = plan->job.records + ta_exchange_floats(&plan->job, m.first);
    merge.theirs = ta_exchange_fault(&plan->job);
    merge.messages = 1;
    merge.kept_end = m.heads * s->step->problem.rows;
    return plan->job.device->ops->merge(plan->job.device, &merge, s->stream);
}

/* This rank's part has come home, with the faults of all ranks. */
static ta_status take_home(q_step *s, const char *wire)
{
    ta_plan *plan = s->plan;
    ta_device *exchange = plan->job.device;
    message m = message_of(plan, &s->step->problem, plan->rank, 0);
    TA_TRY(exchange->ops->copy(exchange, ta_exchange_fault(&plan->job), wire + m.record_bytes,
                               sizeof(ta_fault), s->stream));
    if (ta_step_failed(plan, &plan->job))
        return TA_OK;
    return exchange->ops->copy(exchange,
                               plan->job.records + ta_exchange_floats(&plan->job, m.first), wire,
                               m.record_bytes, s->stream);
}

/* Send the part on, and receive the one before it into the other buffer. */
static ta_status hop(q_step *s, int part, int buffer, int goes_home)
{
    ta_plan *plan = s->plan;
    int ranks = plan->ranks, coming = ta_previous_rank(part, ranks);
    int with_query = s->travels && !goes_home;
    char *wire = plan->wire[1 - buffer];
    message out = message_of(plan, &s->step->problem, part, with_query);
    message in = message_of(plan, &s->step->problem, coming, with_query);
    TA_TRY(ta_group_exchange(plan->group, plan->wire[buffer], message_bytes(out),
                             ta_next_rank(plan->rank, ranks), wire, message_bytes(in),
                             ta_previous_rank(plan->rank, ranks), s->stream));
    if (goes_home)
        return TA_OK;
    if (s->travels) {
        TA_TRY(take_query(s, coming, wire));
        TA_TRY(attend_part(s, coming));
    }
    return merge_own(s, coming, wire);
}

static ta_status decode(ta_plan *plan, const ta_step *step, const ta_fault *own, void *stream)
{
    q_step s = {.plan = plan, .step = step, .own = own, .stream = stream};
    int ranks = plan->ranks;
    s.travels = query_travels(plan);
    if (s.travels)
        s.query = ta_moved_query(plan, &step->problem);
    else
        TA_TRY(ta_move_query(plan, step, own, &s.query, stream));
    int part = s.travels ? plan->rank : ta_previous_rank(plan->rank, ranks);
    int hops = s.travels ? ranks : ranks - 1;
    TA_TRY(ta_begin_fault(plan, &plan->job, step, own, stream));
    TA_TRY(fill_first(&s, part, plan->wire[0]));
    for (int i = 0; i < hops; ++i) {
        TA_TRY(hop(&s, part, i % 2, i == ranks - 1));
        part = ta_previous_rank(part, ranks);
    }
    TA_TRY(take_home(&s, plan->wire[hops % 2]));
    if (ta_step_failed(plan, &plan->job))
        return TA_OK;
    TA_TRY(ta_parts_gather(plan, stream));
    ta_merge last = ta_exchange_merge(&plan->job);
    return ta_finish_heads(plan, &last, step, own, stream);
}

/* This rank's part came home with it. */
static ta_merge heard(const ta_plan *plan)
{
    return ta_exchange_merge(&plan->job);
}

/* What comes and goes, where it is merged. */
static void cut(ta_plan *plan, ta_cutter *device, ta_cutter *exchange)
{
    (void)device;
    for (int i = 0; i < 2; ++i)
        plan->wire[i] = ta_cut(exchange, 1, ta_ring_partial_bytes(plan));
}

static size_t attend_bytes(const ta_plan *plan)
{
    size_t most = 0;
    if (!query_travels(plan))
        return plan->device->ops->attend_bytes(plan->device, &plan->problem);
    for (int part = 0; part < plan->ranks; ++part) {
        size_t bytes = ta_part_attend_bytes(plan, &plan->problem, part);
        most = bytes > most ? bytes : most;
    }
    return most;
}

const ta_algorithm_ops ta_ring_q_algorithm = {
    .name = "ring-q", .decode = decode, .cut = cut, .heard = heard, .attend_bytes = attend_bytes};
