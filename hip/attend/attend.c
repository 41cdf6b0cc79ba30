/* The slots of the vtable that attend to the cache. attend(): by the direct kernels where they can,
 * else by those with shared memory, in equal shares too (pieces.c) or by splits (splits.c). The
 * grid of equal shares depends on the call's sizes and the device alone: what each block does, it
 * finds from the lengths (shares.h). check_kv() comes before. */
#include <math.h>
#include <string.h>

#include "gpu.h"
#include "latent.h"

/* Query rows of a sequence and KV head, at most: of the plan, whatever a call has. */
static int32_t most_rows(const ta_problem *p)
{
    return p->query_heads / p->kv_heads * p->query_tokens;
}

/* Will a call of this plan go to the matrix cores by direct kernels? If there are 256 dimensions,
 * converting f16 takes more registers than there are (mma.h), and widening 8 bits in waves of 64
 * more scalar ones. */
static int direct_fits_matrix(const ta_gpu_limits *limits, const ta_problem *p)
{
    if (p->kv_dtype == TA_F16 && p->k_dim == 256 && limits->converts_f16)
        return 0;
    int narrow = ta_dtype_is_narrow(p->kv_dtype);
    if (narrow && p->k_dim == 256 && limits->wave == 64)
        return 0;
    if (!limits->matrix || p->query_dtype != (narrow ? TA_BF16 : p->kv_dtype) ||
        !ta_type_in_matrices(p->query_dtype))
        return 0;
    return (!narrow && ta_latent_rows(limits, p)) ||
           (p->k_dim == p->v_dim && (p->k_dim == 64 || p->k_dim == 128 || p->k_dim == 256));
}

/* By fused multiply-adds? Many rows that matrix cores can multiply are left to attend_mma. */
static int direct_fits_fma(const ta_gpu_limits *limits, const ta_problem *p)
{
    if (!ta_type_exists(p->kv_dtype) || p->k_dim > TA_DIRECT_FMA_DIM ||
        p->v_dim > TA_DIRECT_FMA_DIM || direct_fits_matrix(limits, p))
        return 0;
    return !limits->matrix || p->query_dtype != p->kv_dtype || !ta_type_in_matrices(p->kv_dtype) ||
           most_rows(p) < TA_MMA_ROWS_MIN;
}

static int direct_fits(const ta_gpu_limits *limits, const ta_problem *p)
{
    return direct_fits_matrix(limits, p) || direct_fits_fma(limits, p);
}

/* The rows of a group. A wave of 32 has registers for 8 rows of 256 dimensions. */
static int32_t group_rows(const ta_gpu_limits *limits, const ta_problem *p)
{
    if (direct_fits_fma(limits, p))
        return most_rows(p) == 1 ? 1 : TA_DIRECT_FMA_ROWS;
    if (p->k_dim == TA_LATENT_K_DIM)
        return ta_latent_rows(limits, p);
    if (limits->wave == 64)
        return 16;
    return p->k_dim == 256 || most_rows(p) <= 8 ? 8 : 16;
}

/* Blocks that a unit holds at a time. */
static int32_t blocks_per_unit(const ta_gpu_limits *limits, const ta_problem *p)
{
    int32_t rows = group_rows(limits, p);
    if (direct_fits_fma(limits, p))
        return TA_DIRECT_FMA_BLOCKS(rows);
    return p->k_dim == TA_LATENT_K_DIM ? ta_latent_blocks_per_unit(limits, rows)
                                       : TA_DIRECT_BLOCKS(p->k_dim);
}

static int is_aligned(const ta_problem *p, const ta_tensor *t)
{
    int64_t unit = 16 / (int64_t)ta_dtype_bytes(p->kv_dtype);
    return (uintptr_t)t->data % 16 == 0 && t->batch_stride % unit == 0 &&
           t->token_stride % unit == 0 && t->head_stride % unit == 0;
}

/* The tokens of a tile are found by 32-bit offsets. */
static int is_near(const ta_tensor *t)
{
    return t->token_stride >= 0 && t->token_stride < 1 << 26;
}

/* What a call's tensors must be like. Not the query's: ranks of one plan may hold it differently,
 * and with another kernel they would have other bits in reproducible mode. */
static int direct_fits_call(const ta_problem *p, const ta_kv *kv)
{
    if (p->k_dim == TA_LATENT_K_DIM && !ta_latent_view(&kv->k, &kv->v))
        return 0;
    return is_aligned(p, &kv->k) && is_aligned(p, &kv->v) && is_near(&kv->k) && is_near(&kv->v);
}

static int32_t count_tiles(const ta_problem *p)
{
    return p->tally_tile ? (int32_t)ta_ceil_div(p->max_tokens, p->tally_tile) : 0;
}

static size_t direct_bytes(const ta_gpu_limits *limits, const ta_problem *p)
{
    if (p->tally_tile)
        return (size_t)(p->plan_rows * p->query_heads) * (size_t)count_tiles(p) *
               (size_t)ta_split_floats(p) * sizeof(float);
    return ta_gpu_share_bytes(limits, p, group_rows(limits, p), blocks_per_unit(limits, p));
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Whether a call can go to the direct kernels is known when its tensors are, and whether it has
 * lists or prefixes when it comes: there is room for each. */
size_t ta_gpu_attend_bytes(const ta_device *device, const ta_problem *problem)
{
    const ta_gpu_device *gpu = (const ta_gpu_device *)device;
    size_t direct = direct_fits(&gpu->limits, problem) ? direct_bytes(&gpu->limits, problem) : 0;
    size_t pieces = ta_gpu_pieces_bytes(&gpu->limits, problem);
    return larger(direct, larger(pieces, ta_gpu_splits_bytes(&gpu->limits, problem)));
}

ta_score_rule ta_gpu_score_rule(const ta_problem *p)
{
    ta_score_rule rule = {.alibi = p->alibi_slopes != NULL};
    /* Scores come out in base 2; a soft-cap needs them natural, divided by the cap. */
    rule.factor = (float)(p->softcap > 0.0f ? (double)p->scale / p->softcap : p->scale * M_LOG2E);
    rule.cap = (float)(p->softcap * M_LOG2E);
    return rule;
}

/* Pages too, of 4 GiB; those of 8 bits too of 2^31 elements. */
static int is_short_page(const ta_problem *p, const ta_tensor *t)
{
    int64_t bytes = (int64_t)ta_dtype_bytes(p->kv_dtype);
    return t->batch_stride >= 0 && t->batch_stride < (1ll << 32) / (bytes < 2 ? 2 : bytes);
}

/* Do the tokens of a tile of 16 follow each other in memory, and do scores need nothing else? */
static int is_plain(const ta_problem *p, const ta_kv *kv, const ta_score_rule *rule)
{
    int32_t page = kv->page_tokens;
    if (rule->cap > 0.0f || rule->alibi || p->tally_tile % 16 != 0)
        return 0;
    return !kv->page_table || (page >= 16 && (page & (page - 1)) == 0 && is_short_page(p, &kv->k) &&
                               is_short_page(p, &kv->v));
}

/* Have tokens of a sequence and KV head scales of their own? */
static int of_tokens(const ta_kv *kv, const ta_scales *s)
{
    return s->data && (s->token_stride != 0 || (kv->page_table && s->batch_stride != 0));
}

static void prepare_direct(const ta_gpu_limits *limits, const ta_gpu_call *call,
                           ta_direct_params *params)
{
    const ta_problem *problem = call->problem;
    const ta_kv *kv = call->kv;
    memset(params, 0, sizeof *params); /* the padding too: two captures of a step are equal bytes */
    params->problem = *problem;
    params->q = *call->q;
    params->kv = *kv;
    params->rule = ta_gpu_score_rule(problem);
    params->share = ta_gpu_share(limits, problem, group_rows(limits, problem),
                                 blocks_per_unit(limits, problem), call->workspace);
    params->plain = is_plain(problem, kv, &params->rule);
    while (kv->page_table && params->plain && 1 << params->page_shift < kv->page_tokens)
        params->page_shift++;
    params->tiles = count_tiles(problem);
    if (params->tiles)
        params->share.grid = params->share.items * params->tiles;
    params->records = problem->tally_tile ? call->workspace : call->records;
    params->split_floats = ta_split_floats(problem);
    params->tell = *call->tell;
    params->token_scales = (of_tokens(kv, &kv->k_scale) ? TA_TOKEN_SCALES_K : 0) |
                           (of_tokens(kv, &kv->v_scale) ? TA_TOKEN_SCALES_V : 0);
}

static ta_launched launch_direct(const ta_gpu_limits *limits, const ta_direct_params *params,
                                 void *stream)
{
    int wave = limits->wave;
    if (direct_fits_fma(limits, &params->problem))
        return ta_launch_direct_fma(params, wave, stream);
    if (ta_dtype_is_narrow(params->problem.kv_dtype))
        return ta_launch_direct_narrow(params, wave, stream);
    switch (params->problem.k_dim) {
    case 64:
        return ta_launch_direct_64(params, wave, stream);
    case 128:
        return ta_launch_direct_128(params, wave, stream);
    case TA_LATENT_K_DIM:
        return ta_launch_latent(params, wave, stream);
    default:
        return ta_launch_direct_256(params, wave, stream);
    }
}

ta_status ta_gpu_fail_grid(int64_t rows, int64_t blocks)
{
    return ta_gpu_core->fail(TA_ERR_UNSUPPORTED,
                             "%lld query rows in %lld blocks: a GPU can launch %d", (long long)rows,
                             (long long)blocks, INT32_MAX);
}

static ta_status launch_both(ta_gpu_device *gpu, const ta_gpu_call *call,
                             const ta_direct_params *params, void *stream)
{
    const ta_problem *p = &params->problem;
    TA_TRY(ta_gpu_check_launch(gpu, launch_direct(&gpu->limits, params, stream)));
    if (p->tally_tile) {
        ta_merge_splits_params merge = {.problem = *p,
                                        .lengths = params->kv.lengths,
                                        .bounds = params->kv.bounds,
                                        .bounds_stride = params->kv.bounds_stride,
                                        .split_records = params->records,
                                        .splits = params->tiles,
                                        .split_floats = params->split_floats,
                                        .records = call->records};
        TA_TRY(ta_gpu_check_launch(gpu, ta_launch_tally_splits(&merge, stream)));
        return ta_gpu_finish_call(gpu, call, stream);
    }
    return ta_gpu_end_pieces(gpu, call, &params->share, stream);
}

static ta_status attend_direct(ta_gpu_device *gpu, const ta_gpu_call *call, void *stream)
{
    ta_direct_params params;
    prepare_direct(&gpu->limits, call, &params);
    int64_t rows = ta_problem_rows(call->problem) * call->problem->query_heads;
    if (params.share.grid > INT32_MAX || rows > INT32_MAX)
        return ta_gpu_fail_grid(rows, params.share.grid);
    TA_ON_GPU(gpu, launch_both(gpu, call, &params, stream));
}

static ta_status attend(ta_gpu_device *gpu, const ta_gpu_call *call, void *stream)
{
    const ta_problem *p = call->problem;
    if (!ta_type_in_caches(p->kv_dtype)) /* then there is no shape either */
        return ta_gpu_check_launch(
            gpu, (ta_launched){.kernel = "attend", .no_type = 1, .dtype = (int)p->kv_dtype});
    int of_lists = p->selected || p->prefix_starts;
    if (!of_lists && direct_fits(&gpu->limits, p) && direct_fits_call(p, call->kv))
        return attend_direct(gpu, call, stream);
    if (of_lists || p->tally_tile)
        return ta_gpu_attend_splits(gpu, call, stream);
    return ta_gpu_attend_pieces(gpu, call, stream);
}

ta_status ta_gpu_attend(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                        const ta_kv *kv, float *records, void *workspace, const ta_tell *tell,
                        void *stream)
{
    ta_gpu_call call = {problem, q, kv, records, workspace, tell, NULL};
    return attend(ta_gpu_of(device), &call, stream);
}

ta_status ta_gpu_attend_and_finish(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                                   const ta_kv *kv, void *workspace, const ta_finish *finish,
                                   void *stream)
{
    static const ta_tell nobody = {.to = NULL};
    ta_gpu_call call = {problem, q, kv, finish->last.records, workspace, &nobody, finish};
    return attend(ta_gpu_of(device), &call, stream);
}

/* ---- check_kv(): whatever can be seen without reading device memory, where lengths, bounds and
 * page tables are. A token that those give no place is read as NaN (tile.h). ---- */

/* Positions are counted in 32 bits, some beyond the end. */
#define TOKENS_MAX (INT32_MAX - 1024)

static ta_status check_tensor(const ta_problem *p, const char *name, const ta_tensor *tensor)
{
    uintptr_t size = ta_dtype_bytes(p->kv_dtype);
    if ((uintptr_t)tensor->data % size != 0)
        return ta_gpu_core->fail(TA_ERR_INVALID,
                                 "kv.%s.data is %p: must be aligned to %d bytes, an element", name,
                                 tensor->data, (int)size);
    return TA_OK;
}

static ta_status check_bounds(const ta_problem *p, const ta_kv *kv)
{
    const ta_shard *shard = &p->shard;
    if (kv->bounds && shard->cyclic)
        return ta_gpu_core->fail(TA_ERR_INVALID,
                                 "kv.bounds is set: must be NULL with a block-cyclic shard map");
    if (!kv->bounds && !shard->cyclic && shard->ranks > 1 && shard->block == 0)
        return ta_gpu_core->fail(
            TA_ERR_INVALID,
            "kv.bounds is NULL: a contiguous map of %d ranks without a block needs it",
            shard->ranks);
    if (kv->bounds && kv->bounds_stride != 0 && kv->bounds_stride < shard->ranks + 1)
        return ta_gpu_core->fail(TA_ERR_INVALID,
                                 "kv.bounds_stride is %lld: must be 0 or at least %d",
                                 (long long)kv->bounds_stride, shard->ranks + 1);
    return TA_OK;
}

ta_status ta_gpu_check_kv(ta_device *device, const ta_problem *problem, const ta_kv *kv)
{
    (void)device;
    if (problem->max_tokens > TOKENS_MAX)
        return ta_gpu_core->fail(TA_ERR_UNSUPPORTED,
                                 "max_tokens is %d: a GPU holds at most %d tokens of a sequence",
                                 problem->max_tokens, TOKENS_MAX);
    if (!kv->lengths)
        return ta_gpu_core->fail(TA_ERR_INVALID, "kv.lengths is NULL: must be %d lengths",
                                 problem->batch);
    if ((uintptr_t)kv->lengths % 4 || (uintptr_t)kv->bounds % 4 || (uintptr_t)kv->page_table % 4)
        return ta_gpu_core->fail(TA_ERR_INVALID,
                                 "kv.lengths, bounds or page_table is not aligned to 4 bytes");
    TA_TRY(check_bounds(problem, kv));
    if (kv->page_table && kv->page_tokens < 1)
        return ta_gpu_core->fail(TA_ERR_INVALID,
                                 "kv.page_tokens is %d: must be 1 or more with a page table",
                                 kv->page_tokens);
    TA_TRY(check_tensor(problem, "k", &kv->k));
    return check_tensor(problem, "v", &kv->v);
}
