/* The slots of the vtable that read the cache. attend(): choose the kernel, its shape and how many
 * splits, and launch; one launch when there is one split, two otherwise. In reproducible mode a
 * split is a tile, and there are always two. shape.h and splits.h have the arithmetic.
 * pack_kv() is for rings, and so is tell(). check_kv() comes before all of them. */
#include <math.h>
#include <string.h>

#include "direct.h"
#include "gpu.h"

/* How a problem is computed. The number of splits depends on the plan, on how many sequences and
 * tokens the call has, and on the device; the kernel also on how this call's cache is aligned. */
typedef struct method {
    ta_attend_shape shape;
    int32_t splits;
    int32_t split_floats; /* of a split's record */
} method;

static ta_attend_shape choose_shape(const ta_gpu_limits *limits, const ta_problem *p, int aligned)
{
    ta_attend_shape shape;
    if (aligned && limits->matrix && ta_mma_shape(limits, p, &shape))
        return shape;
    return ta_fma_shape(p, aligned);
}

static int32_t split_floats(const ta_problem *p)
{
    return (int32_t)ta_round_up(p->v_dim + 2, 4); /* records start at 16 bytes */
}

static int32_t choose_splits(const ta_gpu_limits *limits, const ta_problem *p,
                             const ta_attend_shape *shape, int64_t most)
{
    ta_split_question question = {
        .blocks = p->kv_heads * ta_all_groups(p, shape),
        .slots = (int64_t)limits->units * ta_shape_blocks_per_unit(limits, shape),
        .max_tokens = p->max_tokens,
        .record_bytes = p->plan_rows * p->query_heads * split_floats(p) * 4,
        .most = most,
    };
    return ta_splits_choose(&question);
}

/* The largest call of a problem's plan. */
static ta_problem largest_call(const ta_problem *problem)
{
    ta_problem p = *problem;
    p.batch = p.plan_batch;
    p.rows = p.plan_rows;
    p.starts = NULL;
    return p;
}

/* Splits that the workspace has room for, of a call with so many rows. It is made for the largest
 * call; one with fewer sequences has more splits of fewer rows. */
static int64_t splits_room(const ta_gpu_limits *limits, const ta_problem *problem, int64_t rows)
{
    ta_problem all = largest_call(problem);
    ta_attend_shape shape = choose_shape(limits, &all, 1);
    return choose_splits(limits, &all, &shape, 0) * all.rows / rows;
}

static method choose(const ta_gpu_limits *limits, const ta_problem *p, int aligned)
{
    method m;
    m.shape = choose_shape(limits, p, 1);
    m.split_floats = split_floats(p);
    int64_t room = p->tally_tile ? 0 : splits_room(limits, p, p->rows);
    if (p->tally_tile)
        m.splits = (int32_t)ta_ceil_div(p->max_tokens, p->tally_tile);
    else if (!p->starts && p->rows == p->plan_rows)
        m.splits = (int32_t)room;
    else
        m.splits = choose_splits(limits, p, &m.shape, room);
    if (!aligned)
        m.shape = choose_shape(limits, p, 0);
    return m;
}

/* Can the direct kernels compute this problem on the device? gfx90a takes more registers for f16
 * than it has if there are 256 dimensions (mma.h). */
static int fits_direct(const ta_gpu_device *gpu, const ta_problem *p)
{
    if (p->kv_dtype == TA_F16 && p->k_dim == 256 && strncmp(gpu->properties.arch, "gfx90a", 6) == 0)
        return 0;
    return ta_direct_fits(&gpu->limits, p);
}

/* Whether a call can go to the direct kernels is known when its tensors are: there is room for
 * both. */
size_t ta_gpu_attend_bytes(const ta_device *device, const ta_problem *problem)
{
    const ta_gpu_limits *limits = &((const ta_gpu_device *)device)->limits;
    int64_t splits = problem->tally_tile ? ta_ceil_div(problem->max_tokens, problem->tally_tile)
                                         : splits_room(limits, problem, problem->plan_rows);
    size_t direct =
        fits_direct((const ta_gpu_device *)device, problem) ? ta_direct_bytes(limits, problem) : 0;
    size_t split = 0;
    if (splits > 1 || problem->tally_tile || problem->plan_rows > 1)
        split = (size_t)(problem->plan_rows * problem->query_heads) * (size_t)splits *
                (size_t)split_floats(problem) * sizeof(float);
    return direct > split ? direct : split;
}

static int tensor_aligned(const ta_tensor *t, int64_t size)
{
    return (uintptr_t)t->data % 16 == 0 && t->batch_stride * size % 16 == 0 &&
           t->token_stride * size % 16 == 0 && t->head_stride * size % 16 == 0;
}

static ta_score_rule score_rule(const ta_problem *p)
{
    ta_score_rule rule = {.alibi = p->alibi_slopes != NULL};
    /* Scores come out in base 2; a soft-cap needs them natural, divided by the cap. */
    rule.factor = (float)(p->softcap > 0.0f ? (double)p->scale / p->softcap : p->scale * M_LOG2E);
    rule.cap = (float)(p->softcap * M_LOG2E);
    return rule;
}

static ta_status launch(ta_gpu_device *gpu, const ta_attend_params *params, int aligned,
                        float *records, void *stream)
{
    const ta_problem *p = &params->problem;
    if (params->shape.matrix)
        TA_TRY(ta_gpu_check_launch(gpu, ta_launch_attend_mma(params, gpu->limits.wave, stream)));
    else
        TA_TRY(ta_gpu_check_launch(gpu, ta_launch_attend_fma(params, aligned, stream)));
    if (params->splits == 1 && !p->tally_tile)
        return TA_OK;
    ta_merge_splits_params merge = {.problem = *p,
                                    .lengths = params->kv.lengths,
                                    .bounds = params->kv.bounds,
                                    .bounds_stride = params->kv.bounds_stride,
                                    .split_records = params->records,
                                    .splits = params->splits,
                                    .split_floats = params->split_floats,
                                    .records = records};
    return ta_gpu_check_launch(gpu, p->tally_tile ? ta_launch_tally_splits(&merge, stream)
                                                  : ta_launch_merge_splits(&merge, stream));
}

ta_status ta_gpu_pack_kv(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                         int32_t slots, void *packed, void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    int32_t size = (int32_t)ta_dtype_bytes(problem->kv_dtype);
    ta_pack_kv_params params = {.problem = *problem,
                                .kv = *kv,
                                .slots = slots,
                                .element_bytes = size,
                                .aligned =
                                    tensor_aligned(&kv->k, size) && tensor_aligned(&kv->v, size),
                                .packed = packed};
    int before;
    if ((int64_t)problem->batch * slots > INT32_MAX)
        return ta_gpu_core->fail(TA_ERR_UNSUPPORTED, "%d sequences of %d tokens: a GPU can pack %d",
                                 problem->batch, slots, INT32_MAX);
    TA_TRY(ta_gpu_enter(gpu, &before));
    ta_status status = ta_gpu_check_launch(gpu, ta_launch_pack_kv(&params, stream));
    ta_gpu_leave(gpu, before);
    return status;
}

ta_status ta_gpu_tell(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                      const ta_tell *tell, void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    ta_tell_params params = {.problem = *problem, .kv = *kv, .tell = *tell};
    int before;
    TA_TRY(ta_gpu_enter(gpu, &before));
    ta_status status = ta_gpu_check_launch(gpu, ta_launch_tell(&params, stream));
    ta_gpu_leave(gpu, before);
    return status;
}

static ta_status fail_grid(int64_t rows, int64_t blocks)
{
    return ta_gpu_core->fail(TA_ERR_UNSUPPORTED,
                             "%lld query rows in %lld blocks: a GPU can launch %d", (long long)rows,
                             (long long)blocks, INT32_MAX);
}

static ta_status attend_direct(ta_gpu_device *gpu, const ta_direct_params *params, float *records,
                               void *stream)
{
    const ta_problem *p = &params->problem;
    TA_TRY(ta_gpu_check_launch(gpu, ta_launch_direct(params, gpu->limits.wave, stream)));
    if (p->tally_tile) {
        ta_merge_splits_params merge = {.problem = *p,
                                        .lengths = params->kv.lengths,
                                        .bounds = params->kv.bounds,
                                        .bounds_stride = params->kv.bounds_stride,
                                        .split_records = params->records,
                                        .splits = params->tiles,
                                        .split_floats = params->split_floats,
                                        .records = records};
        return ta_gpu_check_launch(gpu, ta_launch_tally_splits(&merge, stream));
    }
    return params->blocks ? ta_gpu_check_launch(gpu, ta_launch_merge_pieces(params, stream))
                          : TA_OK;
}

ta_status ta_gpu_attend(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                        const ta_kv *kv, float *records, void *workspace, const ta_tell *tell,
                        void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    int64_t size = (int64_t)ta_dtype_bytes(problem->kv_dtype);
    if (!ta_type_exists(problem->kv_dtype)) /* then there is no shape either */
        return ta_gpu_check_launch(
            gpu, (ta_launched){.kernel = "attend", .no_type = 1, .dtype = (int)problem->kv_dtype});
    int before;
    if (fits_direct(gpu, problem) && ta_direct_fits_call(q, kv)) {
        ta_direct_params direct;
        ta_score_rule rule = score_rule(problem);
        ta_direct_prepare(&gpu->limits, problem, q, kv, &rule, records, workspace, &direct);
        direct.tell = *tell;
        int64_t direct_rows = ta_problem_rows(problem) * problem->query_heads;
        if (direct.grid > INT32_MAX || direct_rows > INT32_MAX)
            return fail_grid(direct_rows, direct.grid);
        TA_ON_GPU(gpu, attend_direct(gpu, &direct, records, stream));
    }
    int aligned = tensor_aligned(&kv->k, size) && tensor_aligned(&kv->v, size);
    method m = choose(&gpu->limits, problem, aligned);
    int64_t blocks = problem->kv_heads * m.splits * ta_all_groups(problem, &m.shape);
    int64_t rows = ta_problem_rows(problem) * problem->query_heads;
    if (blocks > INT32_MAX || rows > INT32_MAX)
        return fail_grid(rows, blocks);
    ta_attend_params params;
    memset(&params, 0, sizeof params); /* the padding too: two captures of a step are equal bytes */
    params.problem = *problem;
    params.q = *q;
    params.kv = *kv;
    params.rule = score_rule(problem);
    params.shape = m.shape;
    params.splits = m.splits;
    params.records = m.splits == 1 && !problem->tally_tile ? records : workspace;
    params.split_floats = m.split_floats;
    params.tell = *tell;
    TA_TRY(ta_gpu_enter(gpu, &before));
    ta_status status = launch(gpu, &params, aligned, records, stream);
    ta_gpu_leave(gpu, before);
    return status;
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
