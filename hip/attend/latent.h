/* The shape of a block of attend_latent: how many query rows, waves and bytes of shared memory.
 * Plain arithmetic in C: attend.c asks whether a block fits, latent.hip is made of the same
 * numbers. */
#ifndef TA_HIP_LATENT_H
#define TA_HIP_LATENT_H

#include "shape.h"

/* Latent attention (MLA): a token is one row of 576 elements, all of which are its key and the
 * first 512 its value. */
#define TA_LATENT_K_DIM 576
#define TA_LATENT_V_DIM 512

#define TA_LATENT_TILE 16 /* tokens of a stage */

/* A block has 16, 32 or 64 rows. So many waves share 16 of them: each makes a part of the dot
 * products, and sums a part of the columns. The more rows, the less often a token is brought; 8
 * waves have all registers of a unit, so of 64 rows two share what four share of fewer. */
#define TA_LATENT_ROWS_MAX 64
#define TA_LATENT_SHARERS(rows) ((rows) == 64 ? 2 : 4)
#define TA_LATENT_WAVES(rows) ((rows) / 16 * TA_LATENT_SHARERS(rows))

/* Blocks that the registers of a unit are shared out to. */
#define TA_LATENT_BLOCKS(rows) ((rows) == 16 ? 2 : 1)

/* In waves of 32 copies go straight to shared memory, so there are two stages; and the query lies
 * there too. In waves of 64 both are in registers: AMD's units have 64 KB of shared memory. */
#define TA_LATENT_ROW_BYTES (TA_LATENT_K_DIM * 2)
#define TA_LATENT_STAGE_BYTES (TA_LATENT_TILE * TA_LATENT_ROW_BYTES)
#define TA_LATENT_STAGES(wave) ((wave) == 32 ? 2 : 1)
#define TA_LATENT_QUERY_AT(wave) (TA_LATENT_STAGES(wave) * TA_LATENT_STAGE_BYTES)
/* The waves' parts of 16 × 16 dot products, 4 bytes each. */
#define TA_LATENT_PARTS_AT(rows, wave)                                                             \
    (TA_LATENT_QUERY_AT(wave) + ((wave) == 32 ? (rows)*TA_LATENT_ROW_BYTES : 0))
#define TA_LATENT_BYTES(rows, wave) (TA_LATENT_PARTS_AT(rows, wave) + TA_LATENT_WAVES(rows) * 1024)

/* Shared memory that a block has besides: the piece that it works on (direct_piece.h). */
#define TA_LATENT_PIECE_BYTES 6144

static inline int32_t ta_latent_block_bytes(int32_t rows, int32_t wave)
{
    return TA_LATENT_BYTES(rows, wave) + TA_LATENT_PIECE_BYTES;
}

/* Query rows of a block; 0 if a block does not fit the device or the plan is not for it. Converting
 * f16 takes more registers than 64 rows leave. */
static inline int32_t ta_latent_rows(const ta_gpu_limits *limits, const ta_problem *p)
{
    if (p->k_dim != TA_LATENT_K_DIM || p->v_dim != TA_LATENT_V_DIM)
        return 0;
    int32_t needed = p->query_heads / p->kv_heads * p->query_tokens;
    int32_t most = limits->converts_f16 && p->kv_dtype == TA_F16 ? 32 : TA_LATENT_ROWS_MAX;
    for (int32_t rows = needed <= 16 ? 16 : needed <= 32 ? 32 : most; rows >= 16; rows /= 2)
        if (ta_latent_block_bytes(rows, limits->wave) <= limits->shared_bytes)
            return rows;
    return 0;
}

/* Blocks that a unit holds at a time. */
static inline int32_t ta_latent_blocks_per_unit(const ta_gpu_limits *limits, int32_t rows)
{
    int32_t by_memory =
        limits->shared_bytes_per_unit / (ta_latent_block_bytes(rows, limits->wave) + 1024);
    int32_t blocks = by_memory < TA_LATENT_BLOCKS(rows) ? by_memory : TA_LATENT_BLOCKS(rows);
    return blocks > 1 ? blocks : 1;
}

/* Is V the first part of K? */
static inline int ta_latent_view(const ta_tensor *k, const ta_tensor *v)
{
    return v->data == k->data && v->batch_stride == k->batch_stride &&
           v->token_stride == k->token_stride && v->head_stride == k->head_stride;
}

#endif
