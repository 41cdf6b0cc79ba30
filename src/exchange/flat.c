/* Exchanges that know nothing of nodes: recursive doubling, the binomial tree, and the scatter of
 * heads between all ranks. kinds.c lists them, exchange.c runs them. */
#include "kinds.h"

static ta_heads all_heads(const ta_exchange_shape *shape)
{
    return (ta_heads){0, shape->heads};
}

/* ---- Recursive doubling; with output scattered by heads, halving ---- */

/* Output on one rank is the binomial tree's. */
int ta_doubling_supports(const ta_exchange_shape *shape)
{
    return shape->placement != TA_PLACE_ROOT;
}

static int doubling_rounds(const ta_exchange_shape *shape)
{
    return shape->placement == TA_PLACE_HEADS ? ta_halving_count(shape->ranks)
                                              : ta_doubling_count(shape->ranks);
}

static void doubling_round(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    if (shape->placement == TA_PLACE_HEADS) {
        round->phase = "halving";
        ta_halving_block(shape->ranks, rank, index, shape->heads, round);
    } else {
        round->phase = "doubling";
        ta_doubling_block(shape->ranks, rank, index, all_heads(shape), round);
    }
}

const ta_round_ops ta_doubling_rounds = {doubling_rounds, doubling_round};

/* ---- Binomial tree to a root, and back unless the root alone wants the result ---- */

static int binomial_rounds(const ta_exchange_shape *shape)
{
    int up = ta_binomial_count(shape->ranks);
    return shape->placement == TA_PLACE_ROOT ? up : 2 * up;
}

/* The way back: each place that has the result gives it to the subtree that it got it from; of
 * heads that are scattered only those that the subtree's ranks want. */
static void binomial_back(const ta_exchange_shape *shape, int rank, int level, ta_round *round)
{
    int distance = 1 << level, place = rank & (2 * distance - 1);
    int first = place ? rank : rank + distance, end = first + distance;
    if ((place && place != distance) || first >= shape->ranks)
        return;
    end = end < shape->ranks ? end : shape->ranks;
    ta_heads range = shape->placement == TA_PLACE_HEADS
                         ? ta_parts(shape->heads, shape->ranks, first, end)
                         : all_heads(shape);
    round->replaces = 1;
    if (place) {
        round->from = rank - distance;
        round->kept = range;
    } else {
        round->to = rank + distance;
        round->given = range;
    }
}

static void binomial_round(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    int up = ta_binomial_count(shape->ranks);
    round->phase = index < up ? "up the tree" : "down the tree";
    if (index < up)
        ta_binomial_block(shape->ranks, rank, index,
                          shape->placement == TA_PLACE_ROOT ? shape->root : 0, all_heads(shape),
                          round);
    else
        binomial_back(shape, rank, 2 * up - 1 - index, round);
}

const ta_round_ops ta_binomial_rounds = {binomial_rounds, binomial_round};

/* ---- Every rank gives every other its heads; then they are gathered where they are wanted ---- */

static int scatter_rounds(const ta_exchange_shape *shape)
{
    int first = ta_pairwise_count(shape->ranks);
    switch (shape->placement) {
    case TA_PLACE_HEADS:
        return first;
    case TA_PLACE_ROOT:
        return first + ta_collect_count(shape->ranks);
    default:
        return first + ta_gather_count(shape->ranks);
    }
}

static void scatter_round(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    int first = ta_pairwise_count(shape->ranks);
    round->phase = index < first ? "all to all" : "gather";
    if (index < first)
        ta_pairwise_block(shape->ranks, rank, index, shape->heads, round);
    else if (shape->placement == TA_PLACE_ROOT)
        ta_collect_block(shape->ranks, rank, index - first, shape->root, shape->heads, round);
    else
        ta_gather_block(shape->ranks, rank, index - first, shape->heads, round);
}

const ta_round_ops ta_scatter_rounds = {scatter_rounds, scatter_round};
