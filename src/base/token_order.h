/* The order of the queries and the keys of one attention, as runs of neighbours. A run is described
 * by its first token alone, so an order takes as much as the ranks' shares have pieces, however
 * many tokens they hold. attention/tokens.c makes orders in host memory; a device writes out, where
 * its kernels want them, the rows and ranges of all tokens. */
#ifndef TA_TOKEN_ORDER_H
#define TA_TOKEN_ORDER_H

#include <stdint.h>

#include "shard.h"

/* Queries whose rows are neighbours, and whose ranges of keys move evenly. */
typedef struct ta_query_run {
    int32_t first;      /* the number of its first query; the run ends at the next one's */
    int32_t row;        /* of its first query; the following rows are its others' */
    ta_visible visible; /* to its first query */
    int32_t moves_first, moves_end; /* 1: that end of the range moves by one each query; 0: stays */
} ta_query_run;

/* Keys whose rows are neighbours. */
typedef struct ta_key_run {
    int32_t first, row;
} ta_key_run;

/* Runs cover the queries [0, queries) and the keys [0, keys). */
typedef struct ta_token_order {
    int32_t queries, keys;
    int32_t query_run_count, key_run_count;
    ta_query_run *query_runs;
    ta_key_run *key_runs;
} ta_token_order;

static inline int32_t ta_query_run_end(const ta_token_order *order, int32_t run)
{
    return run + 1 < order->query_run_count ? order->query_runs[run + 1].first : order->queries;
}

static inline int32_t ta_key_run_end(const ta_token_order *order, int32_t run)
{
    return run + 1 < order->key_run_count ? order->key_runs[run + 1].first : order->keys;
}

/* The runs that queries and keys are in. */
static inline int32_t ta_query_run_of(const ta_token_order *order, int32_t query)
{
    int32_t low = 0, high = order->query_run_count;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (order->query_runs[middle].first <= query)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static inline int32_t ta_key_run_of(const ta_token_order *order, int32_t key)
{
    int32_t low = 0, high = order->key_run_count;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (order->key_runs[middle].first <= key)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Write out the row and the range of each of the queries [from, to), at their numbers. */
static inline void ta_order_write_queries(const ta_token_order *order, int32_t from, int32_t to,
                                          int32_t *rows, ta_visible *visible)
{
    for (int32_t run = ta_query_run_of(order, from); from < to; ++run) {
        const ta_query_run *r = &order->query_runs[run];
        int32_t end = ta_query_run_end(order, run) < to ? ta_query_run_end(order, run) : to;
        for (; from < end; ++from) {
            int32_t i = from - r->first;
            rows[from] = r->row + i;
            visible[from].first = r->visible.first + r->moves_first * i;
            visible[from].end = r->visible.end + r->moves_end * i;
        }
    }
}

/* Likewise the row of each of the keys [from, to). */
static inline void ta_order_write_keys(const ta_token_order *order, int32_t from, int32_t to,
                                       int32_t *rows)
{
    for (int32_t run = ta_key_run_of(order, from); from < to; ++run) {
        const ta_key_run *r = &order->key_runs[run];
        int32_t end = ta_key_run_end(order, run) < to ? ta_key_run_end(order, run) : to;
        for (; from < end; ++from)
            rows[from] = r->row + (from - r->first);
    }
}

#endif
