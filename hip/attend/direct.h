/* Between attend.c and the direct kernels: what they are given, as a plain C struct, for which
 * problems they are, and how many blocks of them a device holds. direct_kernel.h has the kernel. */
#ifndef TA_HIP_DIRECT_H
#define TA_HIP_DIRECT_H

#include "../kernels.h"
#include "shares.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Waves of a block; each works by itself until the end of a piece. */
#define TA_DIRECT_WAVES 4

/* Blocks that one unit holds at a time, by the registers that the kernels are compiled for. */
#define TA_DIRECT_BLOCKS(dim) ((dim) == 64 ? 3 : 2)

/* The most blocks of a grid that items are cut for: pieces.hip has a place for each. */
#define TA_DIRECT_BLOCKS_MAX 1024

/* Where the records of an item are that was cut into pieces: in `blocks` blocks from the first one
 * on. 1: it was not cut, its records are in their place already. */
typedef struct ta_direct_span {
    int32_t first_block, blocks;
} ta_direct_span;

/* The row groups of a sequence and KV head, and the number of its first item: an item is one group
 * of one KV head, and those of a sequence are neighbours. A ragged call leaves some numbers out
 * (shape.h). */
TA_INLINE int32_t ta_direct_groups(const ta_problem *p, int32_t rows, int32_t sequence)
{
    int32_t heads = p->query_heads / p->kv_heads;
    return (heads * ta_problem_query_tokens(p, sequence) + rows - 1) / rows;
}

TA_INLINE int64_t ta_direct_first_item(const ta_problem *p, int32_t rows, int32_t sequence)
{
    int64_t groups = p->starts ? ta_first_group(p, rows, sequence)
                               : (int64_t)sequence * ta_direct_groups(p, rows, 0);
    return groups * p->kv_heads;
}

typedef struct ta_direct_params {
    ta_problem problem;
    ta_tensor q; /* strides filled in, as in kv */
    ta_kv kv;
    ta_score_rule rule;
    int64_t items;         /* of all sequences, at most */
    int32_t rows;          /* of a row group: 8 or 16 */
    int32_t page_shift;    /* log2 of the tokens of a page, if `plain` */
    int32_t plain;         /* 1: pages of a power of two, at least 16; no soft-cap, no ALiBi */
    int32_t blocks;        /* that run at a time; 0: items are never cut */
    int64_t grid;          /* blocks; at most INT32_MAX can be launched */
    int32_t tiles;         /* reproducible mode: tiles of a sequence, each a block; else 0 */
    float *records;        /* [query head][row]; reproducible: [sequence][KV head][tile][row] */
    float *pieces;         /* [block][2][row of the group], of split_floats each */
    ta_direct_span *spans; /* [item] */
    int32_t split_floats;
    ta_tell tell;
} ta_direct_params;

/* One file for each head dimension. */
ta_launched ta_launch_direct_64(const ta_direct_params *params, int wave, void *stream);
ta_launched ta_launch_direct_128(const ta_direct_params *params, int wave, void *stream);
ta_launched ta_launch_direct_256(const ta_direct_params *params, int wave, void *stream);

/* Merge the pieces of items that were cut. */
ta_launched ta_launch_merge_pieces(const ta_direct_params *params, void *stream);

/* Can attend_direct compute this problem on such a device? And with this call's tensors, whose
 * strides are filled in? (direct.c) */
int ta_direct_fits(const ta_gpu_limits *limits, const ta_problem *problem);
int ta_direct_fits_call(const ta_tensor *q, const ta_kv *kv);

/* The workspace that it needs. */
size_t ta_direct_bytes(const ta_gpu_limits *limits, const ta_problem *problem);

/* What it is launched with, but for what it tells. */
void ta_direct_prepare(const ta_gpu_limits *limits, const ta_problem *problem, const ta_tensor *q,
                       const ta_kv *kv, const ta_score_rule *rule, float *records, void *workspace,
                       ta_direct_params *params);

/* Launch the kernel of the problem's head dimension. */
ta_launched ta_launch_direct(const ta_direct_params *params, int wave, void *stream);

#ifdef __cplusplus
}
#endif

#endif
