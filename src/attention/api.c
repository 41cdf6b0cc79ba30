/* ta_attention_forward() and _backward(): check the arguments of a call, agree with the other
 * ranks, hand it to the grid. */
#include "base/arguments.h"
#include "base/clock.h"
#include "base/status.h"
#include "grid.h"
#include "group/agree.h"
#include "make.h"

/* Fill in the strides of a tensor of this rank's tokens, which is read or written. */
static ta_status check_tensor(const ta_attention *a, const char *name, const ta_tensor *tensor,
                              int32_t heads, int32_t dim, int written, ta_tensor *filled)
{
    ta_tensor_shape shape = {name, 1, a->tokens, heads, dim, a->shape.dtype};
    if (!tensor || (!tensor->data && a->tokens > 0))
        return ta_fail(TA_ERR_INVALID, "%s is NULL: rank %d holds %d tokens", name, a->rank,
                       (int)a->tokens);
    TA_TRY(ta_tensor_fill(tensor, &shape, filled));
    return written ? ta_tensor_check_distinct(filled, &shape) : TA_OK;
}

static ta_status check_lse(const ta_attention *a, const float *lse, int needed)
{
    if (needed && !lse && a->tokens > 0)
        return ta_fail(TA_ERR_INVALID, "lse is NULL: must be as forward wrote it");
    if ((uintptr_t)lse % sizeof(float))
        return ta_fail(TA_ERR_INVALID, "lse is %p: must be aligned to 4 bytes", (const void *)lse);
    return TA_OK;
}

/* A call that is captured could not be replayed: lengths are read when it is made. Nothing is said
 * to the other ranks, as nothing may be sent either. */
static ta_status check_capture(const ta_attention *a, void *stream)
{
    if (ta_device_captures(a->device, stream))
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "stream %p is being captured: an attention call can't be, its lengths are "
                       "host memory",
                       stream);
    return TA_OK;
}

static ta_status check_input(ta_attention *a, const ta_attention_input *given, const void *stream,
                             ta_attention_input *input)
{
    const ta_attention_work *s = &a->shape;
    TA_TRY(ta_struct_read(TA_STRUCT(ta_attention_input), "input", given, input));
    if (input->reserved)
        return ta_fail(TA_ERR_INVALID, "input.reserved is %d: must be 0", (int)input->reserved);
    if (stream && !a->device->ops->has_streams)
        return ta_fail(TA_ERR_INVALID, "stream is %p: must be NULL, device %s has no streams",
                       stream, a->device->name);
    if (input->sequences < 0 || (input->sequences > 0 && !input->lengths))
        return ta_fail(TA_ERR_INVALID, "input.sequences is %d and input.lengths is %p",
                       (int)input->sequences, (const void *)input->lengths);
    for (int32_t i = 0; i < input->sequences; ++i)
        if (input->lengths[i] < 0)
            return ta_fail(TA_ERR_INVALID, "input.lengths[%d] is %d: must be 0 or more", (int)i,
                           (int)input->lengths[i]);
    TA_TRY(ta_attention_count_tokens(a, input->sequences, input->lengths));
    TA_TRY(check_tensor(a, "input.q", &input->q, s->query_heads, s->k_dim, 0, &input->q));
    TA_TRY(check_tensor(a, "input.k", &input->k, s->kv_heads, s->k_dim, 0, &input->k));
    return check_tensor(a, "input.v", &input->v, s->kv_heads, s->v_dim, 0, &input->v);
}

static ta_status check_gradient(const ta_attention *a, const ta_attention_gradient *given,
                                ta_attention_gradient *gradient)
{
    const ta_attention_work *s = &a->shape;
    if (a->forward_only)
        return ta_fail(TA_ERR_INVALID, "this plan is forward_only: make one that is not");
    TA_TRY(ta_struct_read(TA_STRUCT(ta_attention_gradient), "gradient", given, gradient));
    TA_TRY(check_lse(a, gradient->lse, 1));
    TA_TRY(check_tensor(a, "gradient.out", &gradient->out, s->query_heads, s->v_dim, 0,
                        &gradient->out));
    TA_TRY(check_tensor(a, "gradient.dout", &gradient->dout, s->query_heads, s->v_dim, 0,
                        &gradient->dout));
    TA_TRY(
        check_tensor(a, "gradient.dq", &gradient->dq, s->query_heads, s->k_dim, 1, &gradient->dq));
    TA_TRY(check_tensor(a, "gradient.dk", &gradient->dk, s->kv_heads, s->k_dim, 1, &gradient->dk));
    return check_tensor(a, "gradient.dv", &gradient->dv, s->kv_heads, s->v_dim, 1, &gradient->dv);
}

ta_status ta_attention_attend(ta_attention *attention, const ta_attention_work *work,
                              float *records, void *stream)
{
    ta_attention *a = attention;
    int64_t begin = ta_clock_ns();
    TA_TRY(a->ops->forward(a->device, work, &a->order, records, a->workspace, stream));
    a->counted[0].attend_ns += (uint64_t)(ta_clock_ns() - begin);
    return TA_OK;
}

ta_status ta_attention_differentiate(ta_attention *attention, const ta_attention_work *work,
                                     const ta_attention_work_gradient *gradient, void *stream)
{
    ta_attention *a = attention;
    int64_t begin = ta_clock_ns();
    TA_TRY(a->ops->backward(a->device, work, &a->order, gradient, a->workspace, stream));
    a->counted[1].attend_ns += (uint64_t)(ta_clock_ns() - begin);
    return TA_OK;
}

ta_status ta_attention_get_stats(const ta_attention *attention, ta_attention_stats *stats)
{
    const ta_attention *a = attention;
    if (!a)
        return ta_fail(TA_ERR_INVALID, "attention is NULL: make one with ta_attention_create()");
    int is_ring = a->algorithm == TA_ATTENTION_RING;
    ta_attention_stats found = {.algorithm = a->algorithm,
                                .grid_rows = is_ring ? 0 : a->grid_rows,
                                .grid_columns = is_ring ? 0 : a->grid_columns,
                                .forward_calls = a->counted[0].calls,
                                .backward_calls = a->counted[1].calls,
                                .forward_ns = a->counted[0].ns,
                                .backward_ns = a->counted[1].ns,
                                .forward_attend_ns = a->counted[0].attend_ns,
                                .backward_attend_ns = a->counted[1].attend_ns,
                                .workspace_bytes = a->memory_bytes,
                                .device_bytes = a->device->stats.bytes_held,
                                .device_bytes_most = a->device->stats.bytes_held_most};
    return ta_struct_write(TA_STRUCT(ta_attention_stats), "stats", &found, stats);
}

/* What goes through the lines counts as the caller's group's. */
static void add_counts(ta_group *group, ta_group *other)
{
    if (!other || other == group)
        return;
    ta_group_stats *from = &other->stats, *to = &group->stats;
    to->messages_sent += from->messages_sent;
    to->messages_received += from->messages_received;
    to->bytes_sent += from->bytes_sent;
    to->bytes_received += from->bytes_received;
    *from = (ta_group_stats)TA_GROUP_STATS_INIT;
}

/* A call has ended: a rank that failed in the middle of it takes the others down, since they wait
 * for it. */
static ta_status end_call(ta_attention *a, int64_t begin_ns, ta_status status)
{
    a->counted[a->pass].calls += 1;
    a->counted[a->pass].ns += (uint64_t)(ta_clock_ns() - begin_ns);
    add_counts(a->caller, a->group);
    add_counts(a->caller, a->row.group);
    add_counts(a->caller, a->column.group);
    if (status != TA_OK) {
        ta_group_abort(a->group, ta_last_error());
        ta_group_abort(a->row.group, ta_last_error());
        ta_group_abort(a->column.group, ta_last_error());
    }
    return status;
}

/* Are all ranks in the same call, with good arguments and the same lengths? Collective; an error
 * anywhere is an error everywhere. With a group that moves device memory the host waits for the
 * stream. */
static ta_status agree_call(const ta_attention *a, const ta_attention_input *input,
                            ta_status status, void *stream)
{
    ta_agreement agreement = {
        .what = "calls", .failed = "has a bad argument", .memory = a->message, .stream = stream};
    if (status != TA_OK)
        return ta_agree(a->caller, &agreement, status);
    const ta_field fields[] = {
        TA_FIELD_OF_INTEGER("plan", a->id),
        TA_FIELD_OF_INTEGER("backward", a->pass),
        TA_FIELD_OF_INTEGER("input.sequences", input->sequences),
        TA_FIELD_OF_INTEGERS("input.lengths", input->lengths, input->sequences),
    };
    TA_AGREE_ON(&agreement, fields);
    return ta_agree(a->caller, &agreement, TA_OK);
}

/* A call on its way: its input with strides filled in, and what is wrong with it on this rank,
 * which the others hear of when they agree. */
typedef struct call {
    int64_t begin_ns;
    ta_attention_input input;
    ta_status status;
} call;

static ta_status begin_call(ta_attention *a, int pass, const ta_attention_input *input,
                            void *stream, call *c)
{
    if (!a)
        return ta_fail(TA_ERR_INVALID, "attention is NULL: make one with ta_attention_create()");
    TA_TRY(check_capture(a, stream));
    c->begin_ns = ta_clock_ns();
    a->pass = pass;
    c->status = check_input(a, input, stream, &c->input);
    return TA_OK;
}

/* How each algorithm does a call. */
typedef struct algorithm_ops {
    ta_forward_call *forward;
    ta_backward_call *backward;
} algorithm_ops;

static const algorithm_ops algorithms[] = {
    [TA_ATTENTION_GRID] = {ta_grid_forward, ta_grid_backward},
    [TA_ATTENTION_RING] = {ta_ring_forward, ta_ring_backward},
    [TA_ATTENTION_GRID_OVERLAP] = {ta_grid_overlap_forward, ta_grid_overlap_backward},
};

ta_status ta_attention_forward(ta_attention *attention, const ta_attention_input *input,
                               const ta_tensor *out, float *lse, void *stream)
{
    ta_attention *a = attention;
    ta_tensor filled;
    call c = {0};
    TA_TRY(begin_call(a, 0, input, stream, &c));
    if (c.status == TA_OK)
        c.status = check_tensor(a, "out", out, a->shape.query_heads, a->shape.v_dim, 1, &filled);
    if (c.status == TA_OK)
        c.status = check_lse(a, lse, 0);
    TA_TRY(agree_call(a, &c.input, c.status, stream));
    return end_call(a, c.begin_ns,
                    algorithms[a->algorithm].forward(a, &c.input, &filled, lse, stream));
}

ta_status ta_attention_backward(ta_attention *attention, const ta_attention_input *input,
                                const ta_attention_gradient *gradient, void *stream)
{
    ta_attention *a = attention;
    ta_attention_gradient filled;
    call c = {0};
    TA_TRY(begin_call(a, 1, input, stream, &c));
    if (c.status == TA_OK)
        c.status = check_gradient(a, gradient, &filled);
    TA_TRY(agree_call(a, &c.input, c.status, stream));
    return end_call(a, c.begin_ns, algorithms[a->algorithm].backward(a, &c.input, &filled, stream));
}
