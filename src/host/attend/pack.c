/* Packing a slice of a shard for the wire: see pack.h. host.c calls this. */
#include "pack.h"

#include <string.h>

#include "base/dtype.h"
#include "tile.h"

/* Tokens that one piece has. */
#define TOKENS_PER_PIECE 64

/* Less than this is copied faster by one thread than it takes to wake a second. */
#define BYTES_WORTH_WAKING (256 << 10)

typedef struct pack_job {
    const ta_problem *problem;
    const ta_kv *kv;
    int32_t slots;
    char *k, *v; /* where K and V of sequence 0 go */
    float *k_scales, *v_scales;
} pack_job;

/* One token of all KV heads, from a row of the cache to where its heads are. */
static void pack_token(const ta_tensor *from, int64_t block, int64_t token, int32_t heads,
                       size_t dim_bytes, size_t size, char *to, size_t to_head_bytes)
{
    const char *row = (const char *)from->data +
                      (block * from->batch_stride + token * from->token_stride) * (int64_t)size;
    for (int32_t h = 0; h < heads; h++)
        memcpy(to + (size_t)h * to_head_bytes, row + h * from->head_stride * (int64_t)size,
               dim_bytes);
}

/* Its scales, if elements have 8 bits. */
static void pack_scales(const ta_scales *from, int64_t block, int64_t token, int32_t heads,
                        float *to, int64_t to_head)
{
    for (int32_t h = 0; h < heads; h++)
        to[h * to_head] = from->data
                              ? from->data[block * from->batch_stride + token * from->token_stride +
                                           h * from->head_stride]
                              : 1.0f;
}

static void pack_piece(void *context, int64_t piece, int thread)
{
    const pack_job *job = context;
    const ta_problem *p = job->problem;
    const ta_kv *kv = job->kv;
    int32_t pieces_each = (job->slots + TOKENS_PER_PIECE - 1) / TOKENS_PER_PIECE;
    int32_t sequence = (int32_t)(piece / pieces_each);
    int32_t at = (int32_t)(piece % pieces_each) * TOKENS_PER_PIECE, end = at + TOKENS_PER_PIECE;
    ta_visible seen = ta_shard_seen(&p->shard, ta_kv_bounds(kv, sequence), kv->lengths[sequence],
                                    ta_problem_query_tokens(p, sequence), p->causal, p->window);
    size_t size = ta_dtype_bytes(p->kv_dtype);
    size_t k_bytes = (size_t)p->k_dim * size, v_bytes = (size_t)p->v_dim * size;
    size_t k_head = (size_t)job->slots * k_bytes, v_head = (size_t)job->slots * v_bytes;
    size_t first_head = (size_t)sequence * (size_t)p->kv_heads;
    (void)thread;
    at = at > seen.first ? at : seen.first;
    end = end < seen.end ? end : seen.end;
    for (; at < end; at++) {
        int64_t block = sequence, token = at + p->shard.slice_first;
        if (kv->page_table) {
            block = kv->page_table[sequence * kv->page_table_stride + token / kv->page_tokens];
            token %= kv->page_tokens;
        }
        pack_token(&kv->k, block, token, p->kv_heads, k_bytes, size,
                   job->k + first_head * k_head + (size_t)at * k_bytes, k_head);
        pack_token(&kv->v, block, token, p->kv_heads, v_bytes, size,
                   job->v + first_head * v_head + (size_t)at * v_bytes, v_head);
        if (!ta_dtype_is_narrow(p->kv_dtype))
            continue;
        int64_t first = (int64_t)first_head * job->slots + at;
        pack_scales(&kv->k_scale, block, token, p->kv_heads, job->k_scales + first, job->slots);
        pack_scales(&kv->v_scale, block, token, p->kv_heads, job->v_scales + first, job->slots);
    }
}

void ta_host_pack_kv(ta_pool *pool, const ta_problem *problem, const ta_kv *kv, int32_t slots,
                     void *packed)
{
    const ta_problem *p = problem;
    size_t rows = (size_t)p->batch * (size_t)p->kv_heads * (size_t)slots;
    size_t k_bytes = rows * (size_t)p->k_dim * ta_dtype_bytes(p->kv_dtype);
    size_t bytes = k_bytes + rows * (size_t)p->v_dim * ta_dtype_bytes(p->kv_dtype);
    float *scales = (float *)(void *)((char *)packed + bytes);
    pack_job job = {p, kv, slots, packed, (char *)packed + k_bytes, scales, scales + rows};
    int64_t pieces = (int64_t)p->batch * ((slots + TOKENS_PER_PIECE - 1) / TOKENS_PER_PIECE);
    if (bytes < BYTES_WORTH_WAKING)
        ta_pool_run_here(pool, pieces, pack_piece, &job);
    else
        ta_pool_run(pool, pieces, pack_piece, &job);
}
