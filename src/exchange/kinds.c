/* The list of the kinds of exchange, and what is asked of an entry: see kinds.h. */
#include "kinds.h"

/* A partial of twice as many bytes or more is exchanged in chunks of about this many. */
#define CHUNK_BYTES (1 << 20)

static int supports_all(const ta_exchange_shape *shape)
{
    (void)shape;
    return 1;
}

const ta_exchange_entry ta_exchange_kinds[TA_EXCHANGE_KINDS] = {
    [TA_EXCHANGE_AUTO] = {.name = "auto", .what = "", .symbol = "TA_EXCHANGE_AUTO"},
    [TA_EXCHANGE_DOUBLING] = {.name = "doubling",
                              .what = "recursive doubling, or halving to scattered heads",
                              .symbol = "TA_EXCHANGE_DOUBLING",
                              .needs = "output on more than one rank; TA_PLACE_ROOT is for "
                                       "TA_EXCHANGE_BINOMIAL",
                              .supports = ta_doubling_supports,
                              .run = ta_rounds_run,
                              .estimate = ta_rounds_estimate,
                              .rounds = &ta_doubling_rounds,
                              .whole = 1},
    [TA_EXCHANGE_BINOMIAL] = {.name = "binomial",
                              .what = "a binomial tree to a root, and back",
                              .symbol = "TA_EXCHANGE_BINOMIAL",
                              .supports = supports_all,
                              .run = ta_rounds_run,
                              .estimate = ta_rounds_estimate,
                              .rounds = &ta_binomial_rounds,
                              .whole = 1},
    /* It has a round for each rank, whose latencies alone make it slow. */
    [TA_EXCHANGE_SCATTER] = {.name = "scatter",
                             .what = "heads scattered by all-to-all, then gathered",
                             .symbol = "TA_EXCHANGE_SCATTER",
                             .supports = supports_all,
                             .run = ta_rounds_run,
                             .estimate = ta_rounds_estimate,
                             .rounds = &ta_scatter_rounds,
                             .max_ranks = 1024},
    [TA_EXCHANGE_TWO_LEVEL] = {.name = "two-level",
                               .what = "scatter inside nodes, a tree per lane between them",
                               .symbol = "TA_EXCHANGE_TWO_LEVEL",
                               .needs = "a config.cluster with several nodes and several ranks "
                                        "on one of them",
                               .supports = ta_two_level_supports,
                               .run = ta_rounds_run,
                               .estimate = ta_rounds_estimate,
                               .rounds = &ta_two_level_rounds,
                               .by_nodes = 1},
    [TA_EXCHANGE_ALL_GATHER] = {.name = "all-gather",
                                .what = "one all-gather, all partials merged on each rank",
                                .symbol = "TA_EXCHANGE_ALL_GATHER",
                                .supports = supports_all,
                                .run = ta_all_gather_run,
                                .estimate = ta_all_gather_estimate,
                                .whole = 1,
                                .gathers = 1},
    [TA_EXCHANGE_ALL_REDUCE] = {.name = "all-reduce",
                                .what = "two all-reduces: the largest scores, then the sums",
                                .what_of_tallies =
                                    ", and one between them for the positions of the sums",
                                .symbol = "TA_EXCHANGE_ALL_REDUCE",
                                .needs = "a group that moves host memory, not device memory",
                                .supports = ta_all_reduce_supports,
                                .run = ta_all_reduce_run,
                                .estimate = ta_all_reduce_estimate},
};

int ta_exchange_supports(ta_exchange kind, const ta_exchange_shape *shape)
{
    return ta_exchange_kinds[kind].supports(shape);
}

int ta_exchange_chunks(ta_exchange kind, const ta_exchange_shape *shape)
{
    const ta_exchange_entry *entry = &ta_exchange_kinds[kind];
    double bytes = (double)shape->heads * (double)shape->head_bytes;
    if (!entry->whole || !entry->rounds || shape->device_memory ||
        shape->placement == TA_PLACE_HEADS || bytes < 2 * CHUNK_BYTES)
        return 1;
    return bytes / CHUNK_BYTES < shape->heads ? (int)(bytes / CHUNK_BYTES) : shape->heads;
}

ta_status ta_exchange_estimate(ta_exchange kind, const ta_exchange_shape *shape, ta_cost *cost)
{
    const ta_exchange_entry *entry = &ta_exchange_kinds[kind];
    return shape->ranks == 1 ? TA_OK : entry->estimate(entry, shape, cost);
}
