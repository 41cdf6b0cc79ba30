/* The query rows of an item: see item_state.h. */
#include <float.h>
#include <string.h>

#include "base/dtype.h"
#include "item_state.h"

/* The most of a number of a packed query row, and of the factor of its scores. */
#define PACK_MOST 0x1p40f

void ta_item_empty_row(const ta_item_state *s, int head, int32_t row)
{
    int64_t index = ta_row_index(s, head, row);
    s->m[index] = -INFINITY;
    s->l[index] = 0.0f;
    memset(ta_row_record(s, head, row), 0, (size_t)s->job->problem->v_dim * sizeof(float));
}

/* Which query token a row belongs to, and which query head. */
static int32_t token_of(const ta_item_state *s, int32_t row)
{
    return (s->item.row + row) / (s->job->problem->query_heads / s->job->problem->kv_heads);
}

static int32_t query_head_of(const ta_item_state *s, int head, int32_t row)
{
    int32_t query_heads = s->job->problem->query_heads / s->job->problem->kv_heads;
    return (s->item.kv_head + head) * query_heads + (s->item.row + row) % query_heads;
}

static void start_row(const ta_item_state *s, int head, int32_t row)
{
    const ta_problem *p = s->job->problem;
    int32_t token = token_of(s, row);
    s->rows[row].visible = ta_job_row_visible(s->job, s->item.sequence, token);
    s->rows[row].position = s->job->kv->lengths[s->item.sequence] - p->query_tokens + token;
    s->slopes[ta_row_index(s, head, row)] =
        p->alibi_slopes ? (float)(p->alibi_slopes[query_head_of(s, head, row)] * M_LOG2E) : 0.0f;
    ta_item_empty_row(s, head, row);
}

/* The query row times `factor`. */
static float *load_query(const ta_item_state *s, int head, int32_t row, float factor)
{
    const ta_problem *p = s->job->problem;
    const ta_tensor *q = s->job->q;
    int64_t at = s->item.sequence * q->batch_stride + token_of(s, row) * q->token_stride +
                 query_head_of(s, head, row) * q->head_stride;
    float *to = s->q + ta_row_index(s, head, row) * p->k_dim;
    s->job->kernels->load[p->query_dtype](ta_element(p->query_dtype, q->data, at), p->k_dim, factor,
                                          to);
    return to;
}

/* Can score_packed() take this query row? With such numbers, what it takes for 0 changes a score by
 * less than 2^-36. */
static int can_pack(const float *q, int32_t k_dim)
{
    int can = 1;
    for (int32_t i = 0; i < k_dim; i++) {
        float magnitude = fabsf(q[i]);
        can &= magnitude <= PACK_MOST && (magnitude >= FLT_MIN || magnitude == 0.0f);
    }
    return can;
}

static void load_queries(ta_item_state *s)
{
    const ta_problem *p = s->job->problem;
    const ta_host_kernels *kernels = s->job->kernels;
    int count = s->item.heads * s->item.rows;
    float factor = ta_score_factor(p);
    s->packed =
        kernels->pack[p->kv_dtype] && p->query_dtype == p->kv_dtype && fabsf(factor) <= PACK_MOST;
    for (int i = 0; i < count && s->packed; i++)
        s->packed = can_pack(load_query(s, i / s->item.rows, i % s->item.rows, 1.0f), p->k_dim);
    for (int i = 0; i < count; i++) {
        int head = i / s->item.rows, row = i % s->item.rows;
        if (s->packed)
            kernels->pack[p->kv_dtype](s->q + ta_row_index(s, head, row) * p->k_dim, p->k_dim);
        else
            kernels->arrange[p->kv_dtype](load_query(s, head, row, factor), p->k_dim);
    }
}

void ta_item_start_rows(ta_item_state *s)
{
    for (int i = 0; i < s->item.heads * s->item.rows; i++)
        start_row(s, i / s->item.rows, i % s->item.rows);
    load_queries(s);
}
