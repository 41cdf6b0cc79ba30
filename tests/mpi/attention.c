/* Attention over full sequences (attention_case.h) with one MPI process for each rank: random
 * cases on random grids and rings, then every grid and layout with both variants and the ring,
 * twice, with the same bits.
 *
 *     mpi_attention [--seed N] [--cases N] */
#include <stdio.h>

#include <treeattn/attention.h>

#include "base/status.h"
#include "lib/attention_case.h"
#include "lib/options.h"
#include "rank.h"

static ta_group *world;
static double worst[5];

static ta_status run_once(const attention_case *c, const attention_run *run, uint64_t *bits)
{
    attention_result result;
    TA_TRY(attention_run_group(c, run, world, &result));
    *bits = result.bits;
    for (int i = 0; i < 5; ++i) {
        if (!(result.worst[i] <= 1))
            return ta_fail(TA_ERR_DEVICE, "result %d is %.3g times its bound off: %s", i,
                           result.worst[i], attention_describe(c, run));
        worst[i] = result.worst[i] > worst[i] ? result.worst[i] : worst[i];
    }
    return TA_OK;
}

static ta_status run_twice(const attention_case *c, const attention_run *run)
{
    uint64_t bits, again;
    TA_TRY(run_once(c, run, &bits));
    TA_TRY(run_once(c, run, &again));
    if (bits != again)
        return ta_fail(TA_ERR_DEVICE, "other bits in the second run: %s",
                       attention_describe(c, run));
    return TA_OK;
}

static ta_status run_random(uint64_t seed)
{
    attention_case c = attention_random_case(seed);
    attention_run run = attention_random_run(seed);
    random_source random = random_from(seed ^ 0xface);
    run.ranks = ta_group_size(world);
    if (run.algorithm == TA_ATTENTION_RING)
        run.grid_rows = run.grid_columns = 0;
    else {
        do
            run.grid_rows = random_int(&random, 1, run.ranks);
        while (run.ranks % run.grid_rows);
        run.grid_columns = run.ranks / run.grid_rows;
    }
    for (int i = 0; i < c.sequences; ++i) /* every process works out the exact results */
        c.lengths[i] = (c.lengths[i] + 2) / 3;
    attention_case_make(&c, run.ranks);
    uint64_t bits;
    ta_status status = run_once(&c, &run, &bits);
    attention_case_free(&c);
    return status;
}

/* Three sequences of other lengths, one of them empty, and rows that see nothing of a rank. */
static ta_status run_every_grid(void)
{
    int ranks = ta_group_size(world);
    attention_case c = {.seed = 7, .dtype = TA_F32, .sequences = 3, .lengths = {67, 0, 22}};
    c.problem = (oracle_problem){
        .query_heads = 4, .kv_heads = 2, .k_dim = 24, .v_dim = 16, .causal = true, .scale = 0.25};
    attention_case_make(&c, ranks);
    ta_status status = TA_OK;
    for (int rows = 1; status == TA_OK && rows <= ranks; ++rows)
        for (int i = 0; status == TA_OK && i < 9; ++i) {
            attention_run run = {.ranks = ranks,
                                 .algorithm = (ta_attention_algorithm)(i / 3),
                                 .kind = (ta_shard_kind)(i % 3),
                                 .block = i % 3 == TA_SHARD_BLOCK_CYCLIC ? 1 : 0};
            if (run.algorithm != TA_ATTENTION_RING) {
                run.grid_rows = rows;
                run.grid_columns = ranks / rows;
            }
            if (ranks % rows == 0 && (rows == 1 || run.algorithm != TA_ATTENTION_RING))
                status = run_twice(&c, &run);
        }
    attention_case_free(&c);
    return status;
}

int main(int argc, char **argv)
{
    world = rank_begin(&argc, &argv, 60000);
    if (!options_read(argc, argv))
        return rank_end(world, ta_fail(TA_ERR_INVALID, "wrong usage"));
    int cases = options.cases ? options.cases : options.one_seed ? 1 : 20;
    uint64_t first = options.one_seed ? options.seed : 1000;
    ta_status status = TA_OK;
    for (int i = 0; status == TA_OK && i < cases; ++i)
        status = run_random(first + (uint64_t)i);
    if (status == TA_OK && !options.one_seed)
        status = run_every_grid();
    if (status == TA_OK && ta_group_rank(world) == 0)
        printf(
            "%d ranks, rank 0's worst error / bound: out %.3f lse %.3f dq %.3f dk %.3f dv %.3f\n",
            ta_group_size(world), worst[0], worst[1], worst[2], worst[3], worst[4]);
    return rank_end(world, status);
}
