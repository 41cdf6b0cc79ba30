/* Random cases of attention over full sequences, and random ways to run them; attention_case.h. */
#include <math.h>

#include <treeattn/attention.h>

#include "attention_case.h"

static int pick_dim(random_source *random, const attention_sizes *sizes)
{
    return sizes->dims[random_int(random, 0, sizes->dim_count - 1)];
}

attention_case attention_random_sized(uint64_t seed, const attention_sizes *sizes)
{
    random_source random = random_from(seed);
    attention_case c = {.seed = seed,
                        .dtype = (ta_dtype)random_int(&random, TA_F32, NUMBER_DTYPE_END - 1)};
    oracle_problem *p = &c.problem;
    p->kv_heads = random_int(&random, 1, sizes->kv_heads);
    p->query_heads = p->kv_heads * random_int(&random, 1, sizes->heads_per_kv_head);
    p->k_dim = pick_dim(&random, sizes);
    p->v_dim = random_one_in(&random, 3) ? pick_dim(&random, sizes) : p->k_dim;
    p->causal = !random_one_in(&random, 3);
    p->window = random_one_in(&random, 3) ? random_int(&random, 1, sizes->window) : 0;
    p->softcap = random_one_in(&random, 3) ? random_int(&random, 1, 40) : 0;
    p->scale = (float)(random_int(&random, 5, 30) / 10.0 / sqrt(p->k_dim));
    c.sequences = random_int(&random, sizes->least_sequences, ATTENTION_SEQUENCES);
    int longest = sizes->work / ((p->k_dim + 40) * p->query_heads);
    longest = longest < sizes->longest ? longest : sizes->longest;
    for (int s = 0; s < c.sequences; ++s)
        c.lengths[s] = random_one_in(&random, 6) ? 0 : random_int(&random, 1, longest);
    return c;
}

attention_case attention_random_case(uint64_t seed)
{
    static const int dims[] = {8, 16, 40, 64, 64, 80, 96, 128, 128, 192, 256};
    attention_sizes sizes = {.dims = dims,
                             .dim_count = sizeof dims / sizeof *dims,
                             .kv_heads = 3,
                             .heads_per_kv_head = 4,
                             .window = 90,
                             .work = 400000,
                             .longest = 170};
    return attention_random_sized(seed, &sizes);
}

attention_run attention_random_run(uint64_t seed)
{
    static const int ranks[] = {1, 1, 2, 3, 4, 6, 8};
    random_source random = random_from(seed ^ 0xbeef);
    attention_run run = {.ranks = RANDOM_PICK(&random, ranks)};
    run.kind = (ta_shard_kind)random_int(&random, TA_SHARD_CONTIGUOUS, TA_SHARD_ZIGZAG);
    if (run.kind == TA_SHARD_BLOCK_CYCLIC && seed % 2)
        run.kind = TA_SHARD_WEIGHTED;
    run.block = random_one_in(&random, 2) ? 0 : random_int(&random, 1, 24);
    run.threads = random_int(&random, 1, 2);
    run.simd = random_one_in(&random, 4) ? "scalar" : NULL;
    run.algorithm =
        (ta_attention_algorithm)random_int(&random, TA_ATTENTION_GRID, TA_ATTENTION_GRID_OVERLAP);
    if (run.algorithm == TA_ATTENTION_RING || random_one_in(&random, 4))
        return run; /* no grid, or one that is chosen */
    do
        run.grid_rows = random_int(&random, 1, run.ranks);
    while (run.ranks % run.grid_rows);
    run.grid_columns = run.ranks / run.grid_rows;
    return run;
}
