/* Between the C files and the kernels: what each kernel is given, as plain C structs, and the
 * functions that launch them. A launcher queues one kernel on a stream and returns at once.
 * The C files of attend/ and device.c call them; each is implemented at the end of the
 * .hip file that has its kernel. */
#ifndef TA_HIP_KERNELS_H
#define TA_HIP_KERNELS_H

#include <treeattn/collectives.h>

#include "attend/shape.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What became of a launch. */
typedef struct ta_launched {
    int error;          /* hipError_t: 0 is success */
    const char *kernel; /* its name in the source */
    int no_type;        /* 1: there was no launch, the kernel has no version for … */
    int dtype;
} ta_launched;

/* A score in base 2 is made from the dot product of query and key by these. */
typedef struct ta_score_rule {
    float factor;  /* score = dot · factor, or with a cap */
    float cap;     /* score = cap · tanh(dot · factor); 0: no cap */
    int32_t alibi; /* 1: then score − slope · |x − y| */
} ta_score_rule;

/* The most blocks that items are cut for: merge_pieces has a place for each. An MI300X holds 1216
 * of the smallest. */
#define TA_SHARE_BLOCKS_MAX 1280

/* The most rows of a row group. */
#define TA_PIECE_ROWS 64

/* Where the records of an item are that was cut into pieces: in `blocks` blocks from the first one
 * on. 1: it was not cut, its records are in their place already. */
typedef struct ta_item_span {
    int32_t first_block, blocks;
} ta_item_span;

/* Equal shares (attend/shares.h), for all kernels that take them and for merge_pieces. */
typedef struct ta_share_params {
    int64_t items;       /* of all sequences, at most */
    int64_t grid;        /* blocks; at most INT32_MAX can be launched */
    int32_t rows;        /* of a row group, at most TA_PIECE_ROWS */
    int32_t blocks;      /* that run at a time; 0: items are never cut */
    float *pieces;       /* [block][2][row of the group], of split_floats each */
    ta_item_span *spans; /* [item] */
} ta_share_params;

/* ---- The kernels with shared memory: attend.hip, attend_mma.hip ---- */

typedef struct ta_attend_params {
    ta_problem problem;
    ta_tensor q; /* strides filled in, as in kv */
    ta_kv kv;
    ta_score_rule rule;
    ta_share_params share; /* unless there are splits; `rows` are those of the shape */
    ta_attend_shape shape;
    int64_t groups; /* row groups of one KV head and split */
    int32_t splits; /* of all launches of the call; 0: equal shares */
    /* Of this launch, those from first_split on. If sequences share prefixes, one launch is for the
     * prefixes, another for what is behind them. */
    int32_t part_splits, first_split, prefix;
    /* Records [query head][row] if there are equal shares or one split, else [KV head][split][row]
     * [head of it] of split_floats each. */
    float *records;
    int32_t split_floats;
    ta_tell tell;
} ta_attend_params;

/* Blocks of the launch. */
static inline int64_t ta_attend_blocks(const ta_attend_params *params)
{
    if (!params->splits)
        return params->share.grid;
    return params->problem.kv_heads * params->part_splits * params->groups;
}

/* K, V and their strides are multiples of 16 bytes in `aligned` variants. */
ta_launched ta_launch_attend_fma(const ta_attend_params *params, int aligned, void *stream);
ta_launched ta_launch_attend_mma(const ta_attend_params *params, int wave, void *stream);

/* Let the kernels use this much shared memory; once for each device. */
ta_launched ta_prepare_attend_mma(int wave, int shared_bytes);

/* Does the matrix-core path exist for devices with this wave width? */
int ta_mma_runs(int wave);

/* ---- The direct kernels: direct_kernel.h ---- */

/* Waves of a block; each works by itself until the end of a piece. */
#define TA_DIRECT_WAVES 4

/* Blocks that one unit holds at a time, by the registers that the kernels are compiled for. */
#define TA_DIRECT_BLOCKS(dim) ((dim) == 64 ? 3 : 2)
#define TA_DIRECT_FMA_BLOCKS(rows) ((rows) == 1 ? 3 : 2)

/* Of attend_direct_fma: rows of a group of several, and dimensions at most. */
#define TA_DIRECT_FMA_ROWS 4
#define TA_DIRECT_FMA_DIM 256

typedef struct ta_direct_params {
    ta_problem problem;
    ta_tensor q; /* strides filled in, as in kv */
    ta_kv kv;
    ta_score_rule rule;
    ta_share_params share; /* row groups of 1, 4, 8 or 16 rows; of attend_latent 16 to 64 */
    int32_t page_shift;    /* log2 of the tokens of a page, if `plain` */
    int32_t plain;         /* 1: pages of a power of two, at least 16; no soft-cap, no ALiBi */
    int32_t tiles;         /* reproducible mode: tiles of a sequence, each a block; else 0 */
    int32_t split_floats;
    float *records;       /* [query head][row]; reproducible: [sequence][KV head][tile][row] */
    int32_t token_scales; /* of 8 bits: bits of TA_TOKEN_SCALES_… */
    ta_tell tell;
} ta_direct_params;

/* Tokens of a sequence and KV head have scales of their own: of K, of V. */
#define TA_TOKEN_SCALES_K 1
#define TA_TOKEN_SCALES_V 2

/* One file for each head dimension. */
ta_launched ta_launch_direct_64(const ta_direct_params *params, int wave, void *stream);
ta_launched ta_launch_direct_128(const ta_direct_params *params, int wave, void *stream);
ta_launched ta_launch_direct_256(const ta_direct_params *params, int wave, void *stream);
/* K and V of 8 bits, of all of these. */
ta_launched ta_launch_direct_narrow(const ta_direct_params *params, int wave, void *stream);

/* By fused multiply-adds, of wider types: rows of 1 or TA_DIRECT_FMA_ROWS. */
ta_launched ta_launch_direct_fma(const ta_direct_params *params, int wave, void *stream);

/* K of 576 and V of 512 dimensions, which is the first 512 of K (latent.hip); and let the kernels
 * use their shared memory, once for each device. */
ta_launched ta_launch_latent(const ta_direct_params *params, int wave, void *stream);
ta_launched ta_prepare_latent(int wave, int shared_bytes);

/* ---- Merging ---- */

/* Of equal shares: the pieces of items that were cut. */
typedef struct ta_merge_pieces_params {
    ta_problem problem;
    ta_share_params share;
    int32_t split_floats;
    int32_t finishes; /* else `finish` has nothing */
    float *records;
    ta_finish finish; /* what follows where nothing is exchanged */
} ta_merge_pieces_params;

ta_launched ta_launch_merge_pieces(const ta_merge_pieces_params *params, void *stream);

typedef struct ta_merge_splits_params {
    ta_problem problem;
    const int32_t *lengths, *bounds;
    int64_t bounds_stride;
    const float *split_records;
    int32_t splits, split_floats;
    float *records;
} ta_merge_splits_params;

ta_launched ta_launch_merge_splits(const ta_merge_splits_params *params, void *stream);

/* The same in reproducible mode: one tally of all tiles of a row. */
ta_launched ta_launch_tally_splits(const ta_merge_splits_params *params, void *stream);

/* The slots of device.h. Both kernels of each take all that it may be given. */
ta_launched ta_launch_merge(const ta_merge *merge, void *stream);
ta_launched ta_launch_merge_tallies(const ta_merge *merge, void *stream);
ta_launched ta_launch_finish(const ta_finish *params, void *stream);
ta_launched ta_launch_finish_tallies(const ta_finish *params, void *stream);

/* One of several ranks that reduce: the ranks' elements are in `others`, rank r's from r · stride
 * on, except those of this rank, which are in `own`. */
typedef struct ta_reduce_params {
    const void *others, *own;
    void *to; /* may be `own` */
    int64_t count, stride;
    int32_t rank, ranks;
    int32_t element; /* of ta_element_kind, but not bytes */
    int32_t sum;     /* 1: sum, 0: maximum */
} ta_reduce_params;

ta_launched ta_launch_reduce(const ta_reduce_params *params, void *stream);

typedef struct ta_tell_params {
    ta_problem problem;
    ta_kv kv;
    ta_tell tell;
    /* What the blocks of hash_lists leave of tell.selected; 0 of them: tell_step hashes it. */
    uint64_t *sums;
    int64_t sum_count;
} ta_tell_params;

/* Words of lists that a block hashes while another launch would begin. */
#define TA_HASH_WORDS 8192

ta_launched ta_launch_hash_lists(const ta_tell_params *params, void *stream);
ta_launched ta_launch_tell(const ta_tell_params *params, void *stream);

typedef struct ta_make_records_params {
    ta_problem problem;
    ta_shard_output given;
    float *records;
    ta_tell tell;
} ta_make_records_params;

ta_launched ta_launch_make_records(const ta_make_records_params *params, void *stream);

typedef struct ta_append_params {
    ta_problem problem;
    ta_kv kv;
    ta_new_tokens tokens;
    int32_t element_bytes, stored_bytes; /* of an element of the new tokens, and of the cache */
} ta_append_params;

ta_launched ta_launch_append(const ta_append_params *params, void *stream);

typedef struct ta_pack_params {
    ta_tensor q;
    int32_t rows, query_tokens, heads, k_dim;
    ta_dtype dtype;
    int32_t element_bytes;
    void *packed;
} ta_pack_params;

ta_launched ta_launch_pack(const ta_pack_params *params, void *stream);

typedef struct ta_pack_kv_params {
    ta_problem problem; /* its shard names the slice */
    ta_kv kv;           /* of the whole shard */
    int32_t slots, element_bytes;
    int32_t aligned; /* K, V and their strides are multiples of 16 bytes */
    void *packed;
} ta_pack_kv_params;

ta_launched ta_launch_pack_kv(const ta_pack_kv_params *params, void *stream);

#ifdef __cplusplus
}
#endif

#endif
