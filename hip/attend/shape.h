/* The shape of an attend block: how many query rows it takes, how many threads, how many tokens at
 * a time, and where everything lies in its shared memory. Pure arithmetic on the problem and the
 * device, in C; pieces.c and splits.c choose a shape, the kernels read it.
 *
 * A block has a row group of a KV head of a sequence, and some of its tokens, which go by in tiles.
 * All threads together bring a tile of K and V to shared memory once, in units of 16 bytes, and
 * every row of the block uses it from there. */
#ifndef TA_HIP_SHAPE_H
#define TA_HIP_SHAPE_H

#include <string.h>

#include "../dispatch.h"
#include "device/device.h"
#include "splits.h"

/* What a device has. */
typedef struct ta_gpu_limits {
    int32_t units; /* SMs or CUs */
    int32_t wave;
    int32_t matrix;       /* 1: attend_mma runs here */
    int32_t shared_bytes; /* of a block, at most */
    int32_t shared_bytes_per_unit;
    int32_t converts_f16; /* ta_arch_converts_f16() */
} ta_gpu_limits;

/* The kernels use at most 128 registers on NVIDIA and 256 on AMD (docs/kernels.md), so this many
 * threads fit one unit of any device. */
#define TA_THREADS_PER_UNIT 512
#define TA_BLOCK_THREADS_MAX 512

/* 16-byte units of K, and of V, that one thread has on their way at a time. By Little's law 3.4
 * TB/s and a latency of 0.7 µs are 2.4 MB in flight, 18 KB on each of 132 units; 4 of K and 4 of V
 * on 128 threads are 16 KB for each of several blocks. */
#define TA_UNITS 4

/* FMA: a team of threads shares up to 4 rows, which is what one thread's registers can sum for 2
 * columns of V; a team has at least a thread for each 2 columns. */
#define TA_TEAM_ROWS 4
#define TA_TEAM_COLUMNS 2
#define TA_TEAM_THREADS_MIN 128
#define TA_FMA_TILE 32
/* More than this must be asked for on NVIDIA, and would let AMD units hold one block only. */
#define TA_FMA_SHARED_BYTES ((48 << 10) - TA_BLOCK_BYTES)

/* Matrix cores multiply 16 × 16 tiles. A wave sums this many tiles of the output per 32 lanes. */
#define TA_MMA_EDGE 16
#define TA_MMA_TILES_FEW 2
#define TA_MMA_TILES_MANY 4
#define TA_MMA_TILE 64
#define TA_MMA_ROWS_MIN 8
#define TA_MMA_ROW_TILES 4
/* Parts of k_dim on different waves, at most: each is one more copy of the scores to add up. */
#define TA_MMA_K_PARTS 4
/* A weight is a sum of at most this many numbers of the type of V (attend_mma.hip). */
#define TA_MMA_WEIGHT_PARTS 3

/* A row's constants and sums (struct ta_row in rows.h). */
#define TA_ROW_BYTES 32

/* Shared memory that a block takes besides: its own variables, and what the system keeps. */
#define TA_BLOCK_BYTES 1536

/* In which its threads find their share of the work, before anything else is there (piece.h). */
#define TA_SHARE_SCRATCH_BYTES 4096

/* Weights of this many tokens are added up before they are added to the sum of all
 * (docs/numerics.md). */
#define TA_RUN_TOKENS 64

/* Selected positions: a block looks for them in so many tokens at a time, with a bit for each, and
 * for each word of them how many come before (picks.h). A block has a thread for each word. */
#define TA_PICK_WORDS 128
#define TA_PICK_TOKENS (TA_PICK_WORDS * 32)
#define TA_PICK_BYTES (TA_PICK_WORDS * 8)

typedef struct ta_attend_shape {
    int32_t matrix; /* 1: attend_mma */
    int32_t rows;   /* of a block; its last ones may be missing */
    int32_t groups; /* row groups of a sequence, or of a list, and KV head */
    int32_t threads;
    int32_t tile; /* tokens */
    int32_t run;  /* FMA: tiles whose weights are added up before they join the sum of all */
    int32_t team_rows, team_threads; /* FMA */
    int32_t lanes;     /* FMA: threads that share the dot products of one key: 8, 16 or 32 */
    int32_t tiles;     /* MMA: TA_MMA_TILES_FEW or TA_MMA_TILES_MANY */
    int32_t row_tiles; /* MMA: rows / TA_MMA_EDGE */
    int32_t k_parts;   /* MMA: parts of k_dim that different waves multiply */
    int32_t q_stride, k_stride, v_stride; /* bytes from row to row in shared memory */
    int32_t s_stride;                     /* floats from row to row of the scores */
    int32_t w_stride;                     /* MMA: bytes from row to row of the weights */
    /* Byte offsets in shared memory. */
    int32_t q_at, k_at, v_at, scores_at, weights_at, rows_at, scales_at, addresses_at;
    int32_t shared_bytes;
    int32_t kv_scales_at; /* of 8 bits: scales of K of two tiles' tokens, then of V */
    int32_t picks_at;     /* selected positions; 0: none are */
} ta_attend_shape;

/* Bytes of an element of K and V in shared memory: of 8 bits it is bf16. */
static inline int32_t ta_staged_bytes(ta_dtype kv_dtype)
{
    int32_t bytes = (int32_t)ta_dtype_bytes(kv_dtype);
    return bytes == 1 ? 2 : bytes;
}

/* Query rows of a sequence and KV head that a shape is made for. The host does not know how many a
 * ragged call has of each sequence: as many as on average. A list is of one query token. */
static inline int32_t ta_problem_group_rows(const ta_problem *p)
{
    if (p->selected)
        return p->query_heads / p->kv_heads;
    int64_t tokens = p->starts ? ta_ceil_div(p->rows, p->batch) : p->query_tokens;
    return p->query_heads / p->kv_heads *
           (int32_t)(tokens < p->query_tokens ? tokens : p->query_tokens);
}

/* Row groups of a ragged call are numbered through all sequences, a KV head alone: those of a
 * sequence are from ta_first_group() on. Of groups of r rows a sequence whose rows are [x, y) needs
 * ⌈(y − x) / r⌉, which is at most ⌊y / r⌋ − ⌊x / r⌋ + 1. So many numbers it gets, and at most one
 * is left without rows; a block finds its sequence by searching `starts`, and the host knows how
 * many there are from the number of tokens alone. */
TA_INLINE int64_t ta_first_group(const ta_problem *p, int32_t group_rows, int32_t sequence)
{
    uint32_t heads = (uint32_t)(p->query_heads / p->kv_heads);
    /* Rows of all heads are below 2^31 in a launch (splits.c): no division of 64 bits, which takes
     * many registers. */
    uint32_t first = (uint32_t)ta_problem_first_row(p, sequence) * heads;
    return (int64_t)(first / (uint32_t)group_rows) + sequence;
}

/* Let the block have at least so many bytes. */
static inline void ta_shape_widen(ta_attend_shape *s, int32_t bytes)
{
    if (s->shared_bytes < bytes)
        s->shared_bytes = bytes;
}

/* Cut `bytes` off shared memory, 16-byte aligned. */
static inline int32_t ta_shape_cut(ta_attend_shape *s, int64_t bytes)
{
    int32_t at = s->shared_bytes;
    s->shared_bytes += (int32_t)ta_round_up(bytes, 16);
    return at;
}

/* Where the tokens of a tile are: two tiles' addresses of K and V, and their positions. */
static inline int64_t ta_shape_addresses_bytes(const ta_attend_shape *s)
{
    return 2ll * s->tile * (int64_t)(2 * sizeof(int64_t) + sizeof(int32_t));
}

/* Of 8 bits, their scales. */
static inline void ta_shape_cut_scales(const ta_problem *p, ta_attend_shape *s)
{
    if (ta_dtype_is_narrow(p->kv_dtype))
        s->kv_scales_at = ta_shape_cut(s, 4ll * s->tile * (int64_t)sizeof(float));
}

static inline void ta_shape_cut_picks(const ta_problem *p, ta_attend_shape *s)
{
    if (p->selected)
        s->picks_at = ta_shape_cut(s, TA_PICK_BYTES);
}

static inline void ta_fma_lay_out(const ta_problem *p, int32_t teams, ta_attend_shape *s)
{
    int32_t size = ta_staged_bytes(p->kv_dtype);
    s->rows = teams * s->team_rows;
    s->threads = teams * s->team_threads;
    s->q_stride = p->k_dim * 4;
    s->k_stride = p->k_dim * size;
    s->v_stride = p->v_dim * size;
    s->s_stride = s->tile + 4; /* so that 8 rows of 4 neighbouring keys lie in 32 banks */
    s->shared_bytes = 0;
    s->q_at = ta_shape_cut(s, (int64_t)s->rows * s->q_stride);
    s->rows_at = ta_shape_cut(s, (int64_t)s->rows * TA_ROW_BYTES);
    s->scales_at = ta_shape_cut(s, (int64_t)s->rows * 2 * 4);
    s->addresses_at = ta_shape_cut(s, ta_shape_addresses_bytes(s));
    ta_shape_cut_scales(p, s);
    ta_shape_cut_picks(p, s);
    s->scores_at = ta_shape_cut(s, (int64_t)s->rows * s->s_stride * 4);
    s->weights_at = ta_shape_cut(s, (int64_t)s->rows * s->tile * 4);
    s->v_at = ta_shape_cut(s, (int64_t)s->tile * s->v_stride);
    s->k_at = ta_shape_cut(s, (int64_t)s->tile * s->k_stride);
    /* At the end the threads' sums meet where the tiles were. */
    ta_shape_widen(s, s->v_at + s->threads * TA_TEAM_COLUMNS * 4);
    ta_shape_widen(s, TA_SHARE_SCRATCH_BYTES);
}

/* The shape of attend_fma. It always fits: one team with the widest heads takes 45 KB. */
static inline ta_attend_shape ta_fma_shape(const ta_problem *p, int aligned)
{
    ta_attend_shape s;
    memset(&s, 0, sizeof s);
    int32_t rows = ta_problem_group_rows(p);
    int32_t widest = p->k_dim > p->v_dim ? p->k_dim : p->v_dim;
    int32_t units = widest / (16 / ta_staged_bytes(p->kv_dtype)); /* of a token */
    s.team_rows = !aligned || rows > 1 ? TA_TEAM_ROWS : 1;
    int32_t columns = p->v_dim / TA_TEAM_COLUMNS;
    s.team_threads = (int32_t)ta_round_up(columns > units ? columns : units, 64);
    if (s.team_threads < TA_TEAM_THREADS_MIN)
        s.team_threads = TA_TEAM_THREADS_MIN;
    int32_t teams = (int32_t)ta_ceil_div(rows, s.team_rows);
    if (teams > TA_BLOCK_THREADS_MAX / s.team_threads)
        teams = TA_BLOCK_THREADS_MAX / s.team_threads;
    for (;; teams--) {
        s.tile = TA_UNITS * (teams * s.team_threads / units);
        if (s.tile > TA_FMA_TILE)
            s.tile = TA_FMA_TILE;
        ta_fma_lay_out(p, teams, &s);
        int32_t least = p->selected ? 4 : TA_FMA_TILE / 2; /* marks of the widest heads need room */
        while (s.shared_bytes > TA_FMA_SHARED_BYTES && s.tile > least) {
            s.tile -= 4;
            ta_fma_lay_out(p, teams, &s);
        }
        if (s.shared_bytes <= TA_FMA_SHARED_BYTES || teams == 1)
            break;
    }
    s.groups = (int32_t)ta_ceil_div(rows, s.rows);
    s.run = (int32_t)ta_ceil_div(TA_RUN_TOKENS, s.tile);
    s.lanes = 32;
    while (s.lanes > 8 && s.team_threads / s.lanes < s.tile)
        s.lanes /= 2;
    return s;
}

static inline void ta_mma_lay_out(const ta_gpu_limits *limits, const ta_problem *p,
                                  int32_t parts_most, ta_attend_shape *s)
{
    int32_t waves = s->threads / limits->wave;
    int32_t tiles = s->rows / TA_MMA_EDGE * (s->tile / TA_MMA_EDGE); /* of the scores */
    int32_t k_steps = (int32_t)ta_ceil_div(p->k_dim, TA_MMA_EDGE);
    /* Rows are padded to whole tiles, and by 16 bytes more so that neighbours lie in other
     * banks. */
    s->q_stride = s->k_stride = k_steps * TA_MMA_EDGE * 2 + 16;
    s->v_stride = (int32_t)ta_round_up(p->v_dim, TA_MMA_EDGE) * 2 + 16;
    s->s_stride = s->tile + 4;
    s->k_parts = waves > tiles ? waves / tiles : 1;
    if (s->k_parts > parts_most)
        s->k_parts = parts_most;
    if (s->k_parts > k_steps)
        s->k_parts = k_steps;
    s->shared_bytes = 0;
    s->q_at = ta_shape_cut(s, (int64_t)s->rows * s->q_stride);
    s->rows_at = ta_shape_cut(s, (int64_t)s->rows * TA_ROW_BYTES);
    s->scales_at = ta_shape_cut(s, (int64_t)s->rows * 4);
    s->addresses_at = ta_shape_cut(s, ta_shape_addresses_bytes(s));
    ta_shape_cut_scales(p, s);
    ta_shape_cut_picks(p, s);
    s->scores_at = ta_shape_cut(s, (int64_t)s->k_parts * s->rows * s->s_stride * 4);
    s->w_stride = s->tile * 2 + 16;
    s->weights_at = ta_shape_cut(s, (int64_t)TA_MMA_WEIGHT_PARTS * s->rows * s->w_stride);
    s->v_at = ta_shape_cut(s, (int64_t)s->tile * s->v_stride);
    s->k_at = ta_shape_cut(s, (int64_t)s->tile * s->k_stride);
    ta_shape_widen(s, TA_SHARE_SCRATCH_BYTES);
}

/* Try to give a block `row_tiles` tiles of rows: the fewest threads whose registers hold the
 * output, the longest tile of tokens that the threads can have on their way and shared memory
 * holds. */
static inline int ta_mma_fit(const ta_gpu_limits *limits, const ta_problem *p, int32_t row_tiles,
                             ta_attend_shape *s)
{
    int32_t widest = (p->k_dim > p->v_dim ? p->k_dim : p->v_dim) / 8;
    int32_t outputs = row_tiles * (int32_t)ta_ceil_div(p->v_dim, TA_MMA_EDGE);
    s->row_tiles = row_tiles;
    s->rows = row_tiles * TA_MMA_EDGE;
    for (s->threads = 128; s->threads <= TA_BLOCK_THREADS_MAX; s->threads *= 2) {
        s->tiles =
            outputs <= s->threads / 32 * TA_MMA_TILES_FEW ? TA_MMA_TILES_FEW : TA_MMA_TILES_MANY;
        s->tile = TA_UNITS * (s->threads / widest) / TA_MMA_EDGE * TA_MMA_EDGE;
        if (s->tile > TA_MMA_TILE)
            s->tile = TA_MMA_TILE;
        if (s->tile == 0 || outputs > s->threads / 32 * s->tiles)
            continue;
        for (; s->tile > 0; s->tile -= TA_MMA_EDGE)
            for (int32_t parts = TA_MMA_K_PARTS; parts > 0; parts /= 2) {
                ta_mma_lay_out(limits, p, parts, s);
                if (s->shared_bytes + TA_BLOCK_BYTES <= limits->shared_bytes)
                    return 1;
            }
    }
    return 0;
}

/* The shape of attend_mma; 0 if the problem is not for it. The matrix cores multiply two operands
 * of one type, so a query of another type than K is left to attend_fma, which loses no bits of it.
 * K of 8 bits becomes bf16 first. */
static inline int ta_mma_shape(const ta_gpu_limits *limits, const ta_problem *p, ta_attend_shape *s)
{
    int32_t rows = ta_problem_group_rows(p);
    ta_dtype staged = ta_dtype_is_narrow(p->kv_dtype) ? TA_BF16 : p->kv_dtype;
    if (rows < TA_MMA_ROWS_MIN || !ta_type_in_matrices(staged) || p->query_dtype != staged)
        return 0;
    memset(s, 0, sizeof *s);
    s->matrix = 1;
    int32_t row_tiles = (int32_t)ta_ceil_div(rows, TA_MMA_EDGE);
    if (row_tiles > TA_MMA_ROW_TILES)
        row_tiles = TA_MMA_ROW_TILES;
    while (row_tiles > 0 && !ta_mma_fit(limits, p, row_tiles, s))
        row_tiles--;
    if (row_tiles == 0)
        return 0;
    s->groups = (int32_t)ta_ceil_div(rows, s->rows);
    return 1;
}

static inline ta_attend_shape ta_choose_shape(const ta_gpu_limits *limits, const ta_problem *p,
                                              int aligned)
{
    ta_attend_shape shape;
    if (aligned && limits->matrix && ta_mma_shape(limits, p, &shape))
        return shape;
    return ta_fma_shape(p, aligned);
}

/* Row groups of all sequences, of one KV head. */
TA_INLINE int64_t ta_all_groups(const ta_problem *p, const ta_attend_shape *s)
{
    if (p->selected)
        return p->rows * s->groups;
    if (!p->starts)
        return (int64_t)p->batch * s->groups;
    return p->rows * (p->query_heads / p->kv_heads) / s->rows + p->batch;
}

/* Blocks of this shape that one unit holds at a time. */
static inline int32_t ta_shape_blocks_per_unit(const ta_gpu_limits *limits,
                                               const ta_attend_shape *s)
{
    int32_t by_threads = TA_THREADS_PER_UNIT / s->threads;
    int32_t by_memory = limits->shared_bytes_per_unit / (s->shared_bytes + TA_BLOCK_BYTES);
    int32_t blocks = by_threads < by_memory ? by_threads : by_memory;
    return blocks > 1 ? blocks : 1;
}

/* Floats of the record of a piece or split: records start at 16 bytes. */
TA_INLINE int32_t ta_split_floats(const ta_problem *p)
{
    return (int32_t)ta_round_up(p->v_dim + 2, 4);
}

/* Equal shares: the row groups of a sequence and KV head, whose groups have `rows` rows, and the
 * number of its first item: an item is one group of one KV head, and those of a sequence are
 * neighbours. A ragged call leaves some numbers out. */
TA_INLINE int32_t ta_sequence_groups(const ta_problem *p, int32_t rows, int32_t sequence)
{
    int32_t heads = p->query_heads / p->kv_heads;
    return (heads * ta_problem_query_tokens(p, sequence) + rows - 1) / rows;
}

TA_INLINE int64_t ta_first_item(const ta_problem *p, int32_t rows, int32_t sequence)
{
    int64_t groups = p->starts ? ta_first_group(p, rows, sequence)
                               : (int64_t)sequence * ta_sequence_groups(p, rows, 0);
    return groups * p->kv_heads;
}

#endif
