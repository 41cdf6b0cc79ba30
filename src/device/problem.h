/* The work of a call as devices see it, and how its rows, sequences and lists are found. Plans make
 * one (decode/config.c), calls add to it (decode/call.c), devices read it. C and HIP code include
 * this file; device.h does for all of them. */
#ifndef TA_PROBLEM_H
#define TA_PROBLEM_H

#include <treeattn/treeattn.h>

#include "base/inline.h"
#include "base/partial.h"
#include "base/shard.h"
#include "base/tally.h"

/* The largest head dimension of K and V. */
#define TA_MAX_DIM 576

/* The work of a call as a device sees it: plain numbers, all defaults filled in. A plan has one, of
 * the largest call; each step has a copy with what its call says (decode/call.c). No padding: steps
 * are compared by their bytes. */
typedef struct ta_problem {
    int32_t batch, query_tokens, query_heads, kv_heads, k_dim, v_dim;
    ta_dtype kv_dtype, query_dtype, out_dtype;
    int32_t max_tokens; /* 0: there are no K and V, the plan combines */
    ta_shard shard;
    int32_t causal;
    int32_t window;            /* 0: none */
    float scale;               /* natural scores, before the soft-cap */
    float softcap;             /* 0: none */
    const float *alibi_slopes; /* device memory [query_heads], or NULL */
    const float *sinks;        /* device memory [query_heads], natural units, or NULL */
    /* Reproducible mode: tokens of a tile, and records are tallies (base/tally.h). 0: partials. No
     * tile is on more than one rank, so on every rank tile i begins at local position i ·
     * tally_tile. */
    int32_t tally_tile;
    int32_t rounds_weights; /* 1: a device may round a weight to the type that it multiplies */
    int32_t reserved;       /* 0 */
    /* The plan's, where this is a call's: how work is divided depends on it, so that what becomes
     * of a sequence does not depend on how many others there are. */
    int32_t plan_batch;
    int64_t plan_rows;
    int64_t rows; /* query rows of one head: one for each query token of each sequence */
    /* Ragged: device memory [batch + 1], sequence b has the rows [starts[b], starts[b + 1]), at
     * most query_tokens of them. NULL: uniform, every sequence has query_tokens. */
    const int32_t *starts;
    /* Selected positions: device memory, the lists of a row stand selected_stride after those of
     * the row before. NULL: rows see all that masks let them see. Of a list of `selected_count` a
     * row sees what it would see anyway. */
    const int32_t *selected;
    int64_t selected_stride;
    int32_t selected_count, selected_lists; /* one list for all KV heads, or one for each */
    /* Shared prefixes: device memory [prefix_groups + 1] and [prefix_groups]; NULL and 0: none. */
    const int32_t *prefix_starts, *prefix_lengths;
    int32_t prefix_groups, shares_prefixes; /* the latter: may a call of this plan have any? */
} ta_problem;

/* The bounds of a sequence, or NULL. */
TA_INLINE const int32_t *ta_kv_bounds(const ta_kv *kv, int32_t sequence)
{
    return kv->bounds ? kv->bounds + sequence * kv->bounds_stride : (const int32_t *)0;
}

/* The group of a sequence, where prefixes are shared: the last that does not begin after it. */
TA_INLINE int32_t ta_problem_group(const ta_problem *p, int32_t sequence)
{
    int32_t first = 0, end = p->prefix_groups;
    while (end - first > 1) {
        int32_t middle = first + (end - first) / 2;
        if (p->prefix_starts[middle] <= sequence)
            first = middle;
        else
            end = middle;
    }
    return first;
}

/* How many of a sequence's first tokens are read once for its whole group, from the cache of the
 * group's first sequence. A group of one shares nothing. */
TA_INLINE int32_t ta_problem_shared(const ta_problem *p, int32_t sequence)
{
    if (!p->prefix_starts)
        return 0;
    int32_t group = ta_problem_group(p, sequence), tokens = p->prefix_lengths[group];
    return p->prefix_starts[group + 1] - p->prefix_starts[group] > 1 && tokens > 0 ? tokens : 0;
}

/* The selected positions of a query row for a KV head. */
TA_INLINE const int32_t *ta_problem_list(const ta_problem *p, int64_t row, int32_t kv_head)
{
    return p->selected + row * p->selected_stride +
           (int64_t)(p->selected_lists > 1 ? kv_head : 0) * p->selected_count;
}

/* Query rows of one head. Records are [head][row]. */
TA_INLINE int64_t ta_problem_rows(const ta_problem *p)
{
    return p->rows;
}

/* The first row of a sequence. Starts that a GPU cannot check lead to no other memory. */
TA_INLINE int64_t ta_problem_first_row(const ta_problem *p, int32_t sequence)
{
    if (!p->starts)
        return (int64_t)sequence * p->query_tokens;
    int64_t first = p->starts[sequence];
    return first < 0 ? 0 : first > p->rows ? p->rows : first;
}

/* The query tokens of a sequence: its last ones. */
TA_INLINE int32_t ta_problem_query_tokens(const ta_problem *p, int32_t sequence)
{
    if (!p->starts)
        return p->query_tokens;
    int64_t tokens = ta_problem_first_row(p, sequence + 1) - ta_problem_first_row(p, sequence);
    return tokens < 0 ? 0 : tokens > p->query_tokens ? p->query_tokens : (int32_t)tokens;
}

/* The sequence that a row belongs to. */
TA_INLINE int32_t ta_problem_sequence_of(const ta_problem *p, int64_t row)
{
    if (!p->starts)
        return (int32_t)(row / p->query_tokens);
    int32_t first = 0, end = p->batch; /* the last one that does not start after the row */
    while (end - first > 1) {
        int32_t middle = first + (end - first) / 2;
        if (p->starts[middle] <= row)
            first = middle;
        else
            end = middle;
    }
    return first;
}

/* Elements from the beginning of a query or output to head 0 of token `token` of a sequence, and of
 * a row. A ragged one is packed: row after row. */
TA_INLINE int64_t ta_problem_token_at(const ta_problem *p, const ta_tensor *t, int32_t sequence,
                                      int32_t token)
{
    if (p->starts)
        return (ta_problem_first_row(p, sequence) + token) * t->token_stride;
    return sequence * t->batch_stride + token * t->token_stride;
}

TA_INLINE int64_t ta_problem_row_at(const ta_problem *p, const ta_tensor *t, int64_t row)
{
    if (p->starts)
        return row * t->token_stride;
    return row / p->query_tokens * t->batch_stride + row % p->query_tokens * t->token_stride;
}

static inline int ta_problem_combines(const ta_problem *p)
{
    return p->max_tokens == 0;
}

/* The sequence that a row belongs to: the last one that does not begin after it. */
TA_INLINE int32_t ta_problem_sequence(const ta_problem *p, int64_t row)
{
    int32_t first = 0, last = p->batch - 1;
    while (first < last) {
        int32_t middle = first + (last - first + 1) / 2;
        if (ta_problem_first_row(p, middle) <= row)
            first = middle;
        else
            last = middle - 1;
    }
    return first;
}

/* Floats of a record: a partial's, or a tally's. */
TA_INLINE int64_t ta_problem_record_floats(const ta_problem *p)
{
    return p->tally_tile ? ta_tally_floats(p->v_dim) : ta_record_floats(p->v_dim);
}

#endif
