/* Which problems the direct kernels compute, and with which grid and workspace. attend.c asks, and
 * launches. The grid depends on the plan and the device alone: what each block does, it finds from
 * the lengths (shares.h). */
#include "direct.h"

#include <string.h>

/* The rows of a group. A wave of 32 has registers for 8 rows of 256 dimensions. */
static int32_t group_rows(const ta_gpu_limits *limits, const ta_problem *p)
{
    if (limits->wave == 64)
        return 16;
    return p->k_dim == 256 || p->query_heads / p->kv_heads * p->query_tokens <= 8 ? 8 : 16;
}

int ta_direct_fits(const ta_gpu_limits *limits, const ta_problem *p)
{
    return limits->matrix && ta_type_in_matrices(p->kv_dtype) && p->query_dtype == p->kv_dtype &&
           p->k_dim == p->v_dim && (p->k_dim == 64 || p->k_dim == 128 || p->k_dim == 256);
}

static int is_aligned(const ta_tensor *t)
{
    return (uintptr_t)t->data % 16 == 0 && t->batch_stride % 8 == 0 && t->token_stride % 8 == 0 &&
           t->head_stride % 8 == 0;
}

/* The tokens of a tile are found by 32-bit offsets. */
static int is_near(const ta_tensor *t)
{
    return t->token_stride >= 0 && t->token_stride < 1 << 26;
}

int ta_direct_fits_call(const ta_tensor *q, const ta_kv *kv)
{
    return is_aligned(q) && is_aligned(&kv->k) && is_aligned(&kv->v) && is_near(&kv->k) &&
           is_near(&kv->v);
}

static int32_t split_floats(const ta_problem *p)
{
    return (int32_t)ta_round_up(p->v_dim + 2, 4); /* records start at 16 bytes */
}

/* Items of a call with so many sequences and rows. */
static int64_t count_items(const ta_gpu_limits *limits, const ta_problem *p, int64_t batch,
                           int64_t rows, int ragged)
{
    int64_t group = group_rows(limits, p), heads = p->query_heads / p->kv_heads;
    int64_t groups =
        ragged ? rows * heads / group + batch : batch * ta_ceil_div(heads * p->query_tokens, group);
    return groups * p->kv_heads;
}

/* Of any call of the plan. */
static int64_t most_items(const ta_gpu_limits *limits, const ta_problem *p)
{
    int64_t uniform = count_items(limits, p, p->plan_batch, p->plan_rows, 0);
    int64_t ragged = count_items(limits, p, p->plan_batch, p->plan_rows, 1);
    return uniform > ragged ? uniform : ragged;
}

/* Blocks that items are cut for; 0 if they never are. */
static int32_t count_blocks(const ta_gpu_limits *limits, const ta_problem *p)
{
    if (p->tally_tile || p->max_tokens <= TA_SHARE_TOKENS_WHOLE)
        return 0;
    int64_t blocks = (int64_t)limits->units * TA_DIRECT_BLOCKS(p->k_dim);
    return (int32_t)(blocks < TA_DIRECT_BLOCKS_MAX ? blocks : TA_DIRECT_BLOCKS_MAX);
}

static int32_t count_tiles(const ta_problem *p)
{
    return p->tally_tile ? (int32_t)ta_ceil_div(p->max_tokens, p->tally_tile) : 0;
}

static size_t pieces_bytes(const ta_gpu_limits *limits, const ta_problem *p)
{
    return (size_t)count_blocks(limits, p) * 2 * (size_t)group_rows(limits, p) *
           (size_t)split_floats(p) * sizeof(float);
}

size_t ta_direct_bytes(const ta_gpu_limits *limits, const ta_problem *p)
{
    if (p->tally_tile)
        return (size_t)(p->plan_rows * p->query_heads) * (size_t)count_tiles(p) *
               (size_t)split_floats(p) * sizeof(float);
    if (!count_blocks(limits, p))
        return 0;
    return pieces_bytes(limits, p) + (size_t)most_items(limits, p) * sizeof(ta_direct_span);
}

/* Pages too. */
static int is_short_page(const ta_tensor *t)
{
    return t->batch_stride >= 0 && t->batch_stride < 1ll << 31;
}

/* Do the tokens of a tile of 16 follow each other in memory, and do scores need nothing else? */
static int is_plain(const ta_problem *p, const ta_kv *kv, const ta_score_rule *rule)
{
    int32_t page = kv->page_tokens;
    if (rule->cap > 0.0f || rule->alibi || p->tally_tile % 16 != 0)
        return 0;
    return !kv->page_table || (page >= 16 && (page & (page - 1)) == 0 && is_short_page(&kv->k) &&
                               is_short_page(&kv->v));
}

void ta_direct_prepare(const ta_gpu_limits *limits, const ta_problem *problem, const ta_tensor *q,
                       const ta_kv *kv, const ta_score_rule *rule, float *records, void *workspace,
                       ta_direct_params *params)
{
    memset(params, 0, sizeof *params); /* the padding too: two captures of a step are equal bytes */
    params->problem = *problem;
    params->q = *q;
    params->kv = *kv;
    params->rule = *rule;
    params->rows = group_rows(limits, problem);
    params->items =
        count_items(limits, problem, problem->batch, problem->rows, problem->starts != NULL);
    params->plain = is_plain(problem, kv, rule);
    while (kv->page_table && params->plain && 1 << params->page_shift < kv->page_tokens)
        params->page_shift++;
    params->blocks = count_blocks(limits, problem);
    params->tiles = count_tiles(problem);
    params->grid = params->items * (params->tiles ? params->tiles : 1);
    if (params->grid < params->blocks)
        params->grid = params->blocks;
    params->records = problem->tally_tile ? workspace : records;
    params->pieces = workspace;
    if (params->blocks)
        params->spans =
            (ta_direct_span *)(void *)((char *)workspace + pieces_bytes(limits, problem));
    params->split_floats = split_floats(problem);
}

ta_launched ta_launch_direct(const ta_direct_params *params, int wave, void *stream)
{
    switch (params->problem.k_dim) {
    case 64:
        return ta_launch_direct_64(params, wave, stream);
    case 128:
        return ta_launch_direct_128(params, wave, stream);
    default:
        return ta_launch_direct_256(params, wave, stream);
    }
}
