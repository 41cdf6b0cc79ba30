/* Equal shares as the host sees them (shares.h): how many items a call has, in how many blocks they
 * are cut, and the workspace, for the direct kernels too (attend.c). Attend by the kernels with
 * shared memory in such shares: one launch, or two if something may have been cut. Calls that are
 * cut otherwise go to splits.c. And what follows, whoever attended: the slots that merge and
 * finish. */
#include <string.h>

#include "gpu.h"
#include "shares.h"

/* Items of a call with so many sequences and rows, in groups of `group` rows. */
static int64_t count_items(const ta_problem *p, int32_t group, int64_t batch, int64_t rows,
                           int ragged)
{
    int64_t heads = p->query_heads / p->kv_heads;
    int64_t groups =
        ragged ? rows * heads / group + batch : batch * ta_ceil_div(heads * p->query_tokens, group);
    return groups * p->kv_heads;
}

/* Of any call of the plan. */
static int64_t most_items(const ta_problem *p, int32_t group)
{
    int64_t uniform = count_items(p, group, p->plan_batch, p->plan_rows, 0);
    int64_t ragged = count_items(p, group, p->plan_batch, p->plan_rows, 1);
    return uniform > ragged ? uniform : ragged;
}

/* Blocks that items are cut for; 0 if they never are. */
static int32_t count_blocks(const ta_gpu_limits *limits, const ta_problem *p, int32_t per_unit)
{
    if (p->tally_tile || p->max_tokens <= TA_SHARE_TOKENS_WHOLE)
        return 0;
    int64_t blocks = limits->units * (int64_t)per_unit;
    return (int32_t)(blocks < TA_SHARE_BLOCKS_MAX ? blocks : TA_SHARE_BLOCKS_MAX);
}

static size_t pieces_bytes(const ta_problem *p, int32_t group, int32_t blocks)
{
    return (size_t)blocks * 2 * (size_t)group * (size_t)ta_split_floats(p) * sizeof(float);
}

size_t ta_gpu_share_bytes(const ta_gpu_limits *limits, const ta_problem *p, int32_t group,
                          int32_t per_unit)
{
    int32_t blocks = count_blocks(limits, p, per_unit);
    if (!blocks)
        return 0;
    return pieces_bytes(p, group, blocks) + (size_t)most_items(p, group) * sizeof(ta_item_span);
}

ta_share_params ta_gpu_share(const ta_gpu_limits *limits, const ta_problem *p, int32_t group,
                             int32_t per_unit, void *workspace)
{
    ta_share_params share = {.rows = group, .blocks = count_blocks(limits, p, per_unit)};
    share.items = count_items(p, group, p->batch, p->rows, p->starts != NULL);
    share.grid = share.items > share.blocks ? share.items : share.blocks;
    share.pieces = workspace;
    if (share.blocks)
        share.spans =
            (ta_item_span *)(void *)((char *)workspace + pieces_bytes(p, group, share.blocks));
    return share;
}

/* ---- The kernels with shared memory ---- */

/* Of any call of the plan: one with fewer query tokens, or another cache, may have another shape.
 * Rows beyond those of the largest block make no difference. */
size_t ta_gpu_pieces_bytes(const ta_gpu_limits *limits, const ta_problem *problem)
{
    ta_problem p = *problem;
    size_t most = 0;
    int32_t heads = p.query_heads / p.kv_heads;
    int64_t last = ta_ceil_div(TA_PIECE_ROWS, heads);
    p.starts = NULL;
    p.selected = NULL;
    for (p.query_tokens = 1; p.query_tokens <= problem->query_tokens && p.query_tokens <= last;
         p.query_tokens++)
        for (int aligned = 0; aligned <= 1; aligned++) {
            ta_attend_shape shape = ta_choose_shape(limits, &p, aligned);
            size_t bytes = ta_gpu_share_bytes(limits, problem, shape.rows,
                                              ta_shape_blocks_per_unit(limits, &shape));
            most = bytes > most ? bytes : most;
        }
    return most;
}

/* Kernels load 16 bytes at a time, of 8-bit elements 8. */
static int tensor_aligned(const ta_tensor *t, int64_t size)
{
    int64_t unit = size == 1 ? 8 : 16;
    return (intptr_t)t->data % unit == 0 && t->batch_stride * size % unit == 0 &&
           t->token_stride * size % unit == 0 && t->head_stride * size % unit == 0;
}

int ta_gpu_aligned(const ta_problem *problem, const ta_kv *kv)
{
    int64_t size = (int64_t)ta_dtype_bytes(problem->kv_dtype);
    return tensor_aligned(&kv->k, size) && tensor_aligned(&kv->v, size);
}

ta_status ta_gpu_launch_attend(ta_gpu_device *gpu, const ta_attend_params *params, int aligned,
                               void *stream)
{
    if (params->shape.matrix)
        return ta_gpu_check_launch(gpu, ta_launch_attend_mma(params, gpu->limits.wave, stream));
    return ta_gpu_check_launch(gpu, ta_launch_attend_fma(params, aligned, stream));
}

static ta_status launch_both(ta_gpu_device *gpu, const ta_gpu_call *call,
                             const ta_attend_params *params, int aligned, void *stream)
{
    TA_TRY(ta_gpu_launch_attend(gpu, params, aligned, stream));
    return ta_gpu_end_pieces(gpu, call, &params->share, stream);
}

void ta_gpu_start_attend(ta_attend_params *params, const ta_gpu_call *call)
{
    memset(params, 0, sizeof *params); /* the padding too: two captures of a step are equal bytes */
    params->problem = *call->problem;
    params->q = *call->q;
    params->kv = *call->kv;
    params->rule = ta_gpu_score_rule(call->problem);
    params->split_floats = ta_split_floats(call->problem);
    params->tell = *call->tell;
}

ta_status ta_gpu_attend_pieces(ta_gpu_device *gpu, const ta_gpu_call *call, void *stream)
{
    const ta_problem *problem = call->problem;
    int aligned = ta_gpu_aligned(problem, call->kv);
    ta_attend_params params;
    ta_gpu_start_attend(&params, call);
    params.shape = ta_choose_shape(&gpu->limits, problem, aligned);
    params.share =
        ta_gpu_share(&gpu->limits, problem, params.shape.rows,
                     ta_shape_blocks_per_unit(&gpu->limits, &params.shape), call->workspace);
    params.records = call->records;
    int64_t rows = ta_problem_rows(problem) * problem->query_heads;
    if (params.share.grid > INT32_MAX || rows > INT32_MAX)
        return ta_gpu_fail_grid(rows, params.share.grid);
    TA_ON_GPU(gpu, launch_both(gpu, call, &params, aligned, stream));
}

/* ---- What follows: merge.hip, or tally.hip in reproducible mode ---- */

static ta_status launch_finish(ta_gpu_device *gpu, const ta_finish *finish, void *stream)
{
    return ta_gpu_check_launch(gpu, finish->last.tallies ? ta_launch_finish_tallies(finish, stream)
                                                         : ta_launch_finish(finish, stream));
}

ta_status ta_gpu_finish_call(ta_gpu_device *gpu, const ta_gpu_call *call, void *stream)
{
    return call->finish ? launch_finish(gpu, call->finish, stream) : TA_OK;
}

ta_status ta_gpu_end_pieces(ta_gpu_device *gpu, const ta_gpu_call *call,
                            const ta_share_params *share, void *stream)
{
    if (!share->blocks)
        return ta_gpu_finish_call(gpu, call, stream);
    ta_merge_pieces_params params;
    memset(&params, 0, sizeof params); /* the padding too: two captures of a step are equal bytes */
    params.problem = *call->problem;
    params.share = *share;
    params.split_floats = ta_split_floats(call->problem);
    params.records = call->records;
    params.finishes = call->finish != NULL;
    if (call->finish)
        params.finish = *call->finish;
    return ta_gpu_check_launch(gpu, ta_launch_merge_pieces(&params, stream));
}

static ta_status launch_merge(ta_gpu_device *gpu, const ta_merge *merge, void *stream)
{
    return ta_gpu_check_launch(gpu, merge->tallies ? ta_launch_merge_tallies(merge, stream)
                                                   : ta_launch_merge(merge, stream));
}

ta_status ta_gpu_merge(ta_device *device, const ta_merge *merge, void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    int64_t first, end;
    ta_merge_range(merge, &first, &end);
    if (first >= end && !merge->fault)
        return TA_OK;
    TA_ON_GPU(gpu, launch_merge(gpu, merge, stream));
}

ta_status ta_gpu_finish(ta_device *device, const ta_finish *finish, void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    if (finish->heads == 0)
        return TA_OK;
    TA_ON_GPU(gpu, launch_finish(gpu, finish, stream));
}
