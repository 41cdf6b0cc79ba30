/* Attend by splits, by the kernels with shared memory, where positions are selected or prefixes
 * shared and in reproducible mode; all else is attended to in equal shares (pieces.c). Choose the
 * kernel, its shape and how many splits, and launch; one launch when there is one split, two
 * otherwise. In reproducible mode a split is a tile, and there are always two. shape.h and splits.h
 * have the arithmetic, attend.c calls this. And the slots that only rings use: pack_kv() and
 * tell(). */
#include <string.h>

#include "gpu.h"

/* How a problem is computed, or the prefixes that its sequences share. The number of splits depends
 * on the plan, on how many sequences and tokens the call has, and on the device; the kernel also on
 * how this call's cache is aligned. */
typedef struct method {
    ta_attend_shape shape;
    int64_t groups; /* row groups of a KV head and split */
    int32_t splits;
} method;

static int32_t choose_splits(const ta_gpu_limits *limits, const ta_problem *p,
                             const ta_attend_shape *shape, int64_t groups, int64_t most)
{
    ta_split_question question = {
        .blocks = p->kv_heads * groups,
        .slots = (int64_t)limits->units * ta_shape_blocks_per_unit(limits, shape),
        .max_tokens = p->max_tokens,
        .record_bytes = p->plan_rows * p->query_heads * ta_split_floats(p) * 4,
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
    p.selected = NULL;
    return p;
}

/* Splits that the workspace has room for, of a call with so many rows. It is made for the largest
 * call; one with fewer sequences has more splits of fewer rows. */
static int64_t splits_room(const ta_gpu_limits *limits, const ta_problem *problem, int64_t rows)
{
    ta_problem all = largest_call(problem);
    ta_attend_shape shape = ta_choose_shape(limits, &all, 1);
    return choose_splits(limits, &all, &shape, ta_all_groups(&all, &shape), 0) * all.rows / rows;
}

/* The rows of a prefix are those of its whole group: a shape is made for as many as on average. */
static ta_problem prefix_rows(const ta_problem *problem)
{
    ta_problem p = *problem;
    int64_t tokens = ta_ceil_div(p.rows, p.prefix_groups), most = TA_MMA_EDGE * TA_MMA_ROW_TILES;
    p.starts = NULL;
    p.batch = p.prefix_groups;
    p.query_tokens = (int32_t)(tokens < most ? tokens : most);
    return p;
}

static int64_t prefix_groups(const ta_problem *p, const ta_attend_shape *shape)
{
    if (p->selected)
        return ta_all_groups(p, shape);
    return p->rows * (p->query_heads / p->kv_heads) / shape->rows + p->prefix_groups;
}

static int32_t count_tiles(const ta_problem *p)
{
    return (int32_t)ta_ceil_div(p->max_tokens, p->tally_tile);
}

/* Two launches share what can be merged. */
static int32_t splits_most(const ta_problem *p)
{
    return p->prefix_starts ? TA_SPLITS_MAX / 2 : TA_SPLITS_MAX;
}

static method choose(const ta_gpu_limits *limits, const ta_problem *problem, int prefix,
                     int aligned)
{
    ta_problem shaped = prefix ? prefix_rows(problem) : *problem;
    const ta_problem *p = problem;
    method m = {.shape = ta_choose_shape(limits, &shaped, 1)};
    int64_t room = p->tally_tile ? 0 : splits_room(limits, p, p->rows);
    int64_t groups = prefix ? prefix_groups(p, &m.shape) : ta_all_groups(p, &m.shape);
    if (p->tally_tile)
        m.splits = count_tiles(p);
    else if (!p->starts && !p->selected && !prefix && p->rows == p->plan_rows)
        m.splits = (int32_t)room;
    else
        m.splits = choose_splits(limits, p, &m.shape, groups, room);
    if (!p->tally_tile && m.splits > splits_most(p))
        m.splits = splits_most(p);
    if (!aligned)
        m.shape = ta_choose_shape(limits, &shaped, 0);
    m.groups = prefix ? prefix_groups(p, &m.shape) : ta_all_groups(p, &m.shape);
    return m;
}

size_t ta_gpu_splits_bytes(const ta_gpu_limits *limits, const ta_problem *problem)
{
    const ta_problem *p = problem;
    int64_t splits = p->tally_tile ? count_tiles(p) : splits_room(limits, p, p->plan_rows);
    if (splits <= 1 && !p->tally_tile && !p->shares_prefixes && p->plan_rows <= 1)
        return 0;
    if (p->shares_prefixes)
        splits *= 2;
    return (size_t)(p->plan_rows * p->query_heads) * (size_t)splits * (size_t)ta_split_floats(p) *
           sizeof(float);
}

static ta_status check_grid(const ta_problem *p, const method *m)
{
    int64_t blocks = p->kv_heads * m->splits * m->groups;
    int64_t rows = ta_problem_rows(p) * p->query_heads;
    return blocks > INT32_MAX || rows > INT32_MAX ? ta_gpu_fail_grid(rows, blocks) : TA_OK;
}

static ta_status launch_part(ta_gpu_device *gpu, ta_attend_params *params, const method *m,
                             int aligned, void *stream)
{
    params->shape = m->shape;
    params->groups = m->groups;
    params->part_splits = m->splits;
    return ta_gpu_launch_attend(gpu, params, aligned, stream);
}

static ta_status launch_merge(ta_gpu_device *gpu, const ta_gpu_call *call,
                              const ta_attend_params *params, void *stream)
{
    const ta_problem *p = &params->problem;
    if (params->splits == 1 && !p->tally_tile)
        return TA_OK;
    ta_merge_splits_params merge = {.problem = *p,
                                    .lengths = params->kv.lengths,
                                    .bounds = params->kv.bounds,
                                    .bounds_stride = params->kv.bounds_stride,
                                    .split_records = params->records,
                                    .splits = params->splits,
                                    .split_floats = params->split_floats,
                                    .records = call->records};
    return ta_gpu_check_launch(gpu, p->tally_tile ? ta_launch_tally_splits(&merge, stream)
                                                  : ta_launch_merge_splits(&merge, stream));
}

/* Blocks that hash so many words; 0: the one that tells them does. Their sums are in the workspace,
 * which nothing else is in yet. */
static int64_t count_sums(const ta_gpu_limits *limits, const ta_problem *p, uint64_t words)
{
    int64_t blocks = (int64_t)ta_ceil_div((int64_t)words, TA_HASH_WORDS), most = 4 * limits->units;
    int64_t room = (int64_t)(ta_gpu_splits_bytes(limits, p) / sizeof(uint64_t));
    most = room < most ? room : most;
    blocks = blocks < most ? blocks : most;
    return blocks > 1 ? blocks : 0;
}

/* Lists are told in a launch of their own, long ones hashed in one before it. */
static ta_status tell_lists(ta_gpu_device *gpu, ta_attend_params *params, void *workspace,
                            void *stream)
{
    const ta_problem *p = &params->problem;
    if (!params->tell.to || (!p->selected && !p->prefix_starts))
        return TA_OK;
    ta_tell_params tell = {.problem = *p,
                           .kv = params->kv,
                           .tell = params->tell,
                           .sums = workspace,
                           .sum_count = count_sums(&gpu->limits, p, params->tell.selected_words)};
    params->tell.to = NULL;
    if (tell.sum_count)
        TA_TRY(ta_gpu_check_launch(gpu, ta_launch_hash_lists(&tell, stream)));
    return ta_gpu_check_launch(gpu, ta_launch_tell(&tell, stream));
}

/* What is behind the prefixes, or all if there are none; the prefixes; and both are merged. */
static ta_status launch_all(ta_gpu_device *gpu, const ta_gpu_call *call, ta_attend_params *params,
                            const method *own, const method *prefix, int aligned, void *stream)
{
    TA_TRY(tell_lists(gpu, params, call->workspace, stream));
    TA_TRY(launch_part(gpu, params, own, aligned, stream));
    params->tell.to = NULL;
    params->first_split = own->splits;
    params->prefix = 1;
    if (prefix->splits)
        TA_TRY(launch_part(gpu, params, prefix, aligned, stream));
    TA_TRY(launch_merge(gpu, call, params, stream));
    return ta_gpu_finish_call(gpu, call, stream);
}

ta_status ta_gpu_attend_splits(ta_gpu_device *gpu, const ta_gpu_call *call, void *stream)
{
    const ta_problem *problem = call->problem;
    int aligned = ta_gpu_aligned(problem, call->kv);
    method own = choose(&gpu->limits, problem, 0, aligned), prefix = {.splits = 0};
    if (problem->prefix_starts)
        prefix = choose(&gpu->limits, problem, 1, aligned);
    TA_TRY(check_grid(problem, &own));
    TA_TRY(check_grid(problem, &prefix));
    ta_attend_params params;
    ta_gpu_start_attend(&params, call);
    params.splits = own.splits + prefix.splits;
    params.records = call->records;
    if (params.splits > 1 || problem->tally_tile)
        params.records = call->workspace;
    TA_ON_GPU(gpu, launch_all(gpu, call, &params, &own, &prefix, aligned, stream));
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
                                .aligned = size > 1 && ta_gpu_aligned(problem, kv),
                                .packed = packed};
    if ((int64_t)problem->batch * slots > INT32_MAX)
        return ta_gpu_core->fail(TA_ERR_UNSUPPORTED, "%d sequences of %d tokens: a GPU can pack %d",
                                 problem->batch, slots, INT32_MAX);
    TA_ON_GPU(gpu, ta_gpu_check_launch(gpu, ta_launch_pack_kv(&params, stream)));
}

ta_status ta_gpu_tell(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                      const ta_tell *tell, void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    ta_tell_params params = {.problem = *problem, .kv = *kv, .tell = *tell};
    TA_ON_GPU(gpu, ta_gpu_check_launch(gpu, ta_launch_tell(&params, stream)));
}
