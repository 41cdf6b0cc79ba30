/* A case of ta_append(): a cache that grows by several calls, on every rank, compared bit by bit
 * with one that the test builds itself; then ta_decode() over both, whose bits must be the same.
 *
 * Programs use append_case_random(), or change what it gave, then append_case_run(). The ranks are
 * run as those of decode cases: case_launch and case_rank_run(). */
#ifndef TESTS_APPEND_CASE_H
#define TESTS_APPEND_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include <treeattn/treeattn.h>

#include "case.h"

#define APPEND_MAX_RANKS 16
#define APPEND_MAX_BATCH 4
#define APPEND_MAX_CALLS 4

typedef struct append_case {
    uint64_t seed;
    int ranks, threads;
    int plan_batch, query_tokens, query_heads, kv_heads, k_dim, v_dim;
    ta_dtype kv_dtype, dtype; /* of the cache, and of the new tokens; 0: not given */
    case_scales scales;       /* of a cache of 8 bits */
    bool make_scales;         /* they are left to ta_append() */
    ta_append_source source;
    ta_shard_kind map;
    int block; /* 0: bounds, of a contiguous map */
    int32_t bounds[APPEND_MAX_RANKS + 1];
    bool paged;
    int page_tokens;
    bool by_heads; /* the cache is [block][head][token][dim], and padded */
    bool ragged;
    int calls;
    int batch[APPEND_MAX_CALLS];                       /* of each call */
    int32_t first[APPEND_MAX_BATCH];                   /* lengths before all of them */
    int32_t added[APPEND_MAX_CALLS][APPEND_MAX_BATCH]; /* by each of them; 0: an unused sequence */
} append_case;

append_case append_case_random(uint64_t seed, int ranks); /* ranks 0: random */

bool append_case_run(const append_case *c, char *failure, size_t capacity);

#endif
