/* Where the new tokens of a cache come from and where they go. C and HIP code include this file:
 * the append() slots of host/attend/append.c and hip/attend/append.hip are loops around it. */
#ifndef TA_NEW_TOKEN_H
#define TA_NEW_TOKEN_H

#include "device.h"

/* A new token that this rank stores. */
typedef struct ta_new_token {
    int32_t found;         /* 0: it is another rank's, or the arguments give it no place */
    int32_t sequence, nth; /* the how manieth new one of its sequence that this rank holds */
    int64_t block, within; /* of the cache: a sequence and its token, or a page and its token */
} ta_new_token;

/* How many new tokens of a sequence the rank holds. */
TA_INLINE int32_t ta_new_tokens_held(const ta_problem *p, const ta_kv *kv, int32_t sequence)
{
    const int32_t *bounds = ta_kv_bounds(kv, sequence);
    int32_t length = kv->lengths[sequence];
    return ta_shard_held(&p->shard, bounds, length) -
           ta_shard_held(&p->shard, bounds, length - ta_problem_query_tokens(p, sequence));
}

/* The new token of a row. Positions below 0 have none. */
TA_INLINE ta_new_token ta_find_new_token(const ta_problem *p, const ta_kv *kv, int64_t row)
{
    ta_new_token t;
    t.sequence = ta_problem_sequence(p, row);
    const int32_t *bounds = ta_kv_bounds(kv, t.sequence);
    int32_t length = kv->lengths[t.sequence];
    int32_t first = length - ta_problem_query_tokens(p, t.sequence);
    int64_t position = first + row - ta_problem_first_row(p, t.sequence);
    t.found = length > 0 && position >= 0 && position < length;
    t.nth = 0;
    t.block = t.sequence;
    t.within = 0;
    if (!t.found)
        return t;
    int32_t local = ta_shard_held(&p->shard, bounds, (int32_t)position);
    t.found =
        ta_shard_held(&p->shard, bounds, (int32_t)position + 1) > local && local < p->max_tokens;
    t.nth = local - ta_shard_held(&p->shard, bounds, first);
    t.within = local;
    if (!t.found || !kv->page_table)
        return t;
    int32_t entry = local / kv->page_tokens, page = -1;
    if (entry < kv->page_table_stride)
        page = kv->page_table[t.sequence * kv->page_table_stride + entry];
    t.found = page >= 0 && page < kv->page_count;
    t.block = page;
    t.within = local % kv->page_tokens;
    return t;
}

/* Where the scale of a new token of a KV head is; NULL: it is 1. */
TA_INLINE float *ta_new_token_scale(const ta_scales *scales, const ta_new_token *t, int32_t head)
{
    if (!scales->data)
        return (float *)0;
    return scales->data + t->block * scales->batch_stride + t->within * scales->token_stride +
           head * scales->head_stride;
}

/* The scale that makes `largest`, the largest magnitude of a new token and KV head, the largest
 * number of the cache's type. 1 for nothing but zeros, and where that would not be a number that
 * can be divided by. */
TA_INLINE float ta_scale_for(float largest, float type_largest)
{
    float scale = largest / type_largest;
    return scale >= 0x1p-126f && scale <= 0x1.fffffep127f ? scale : 1.0f;
}

/* The element of `from` where the new token of a row begins, in head 0. `before` counts the new
 * tokens of the sequences before that this rank holds: of those that are local. */
TA_INLINE int64_t ta_new_token_from(const ta_problem *p, const ta_new_tokens *tokens,
                                    const ta_tensor *from, const ta_new_token *t, int64_t row,
                                    int64_t before)
{
    if (!tokens->local)
        return ta_problem_row_at(p, from, row);
    if (p->starts)
        return (before + t->nth) * from->token_stride;
    return t->sequence * from->batch_stride + t->nth * from->token_stride;
}

#endif
