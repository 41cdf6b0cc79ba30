/* Resharding (reshard_case.h) with one MPI process for each rank.
 *
 *     mpi_reshard [--seed N] [--cases N] */
#include <stdio.h>

#include "base/status.h"
#include "lib/options.h"
#include "lib/reshard_case.h"
#include "rank.h"

static ta_status run_one(ta_group *world, uint64_t seed)
{
    reshard_case j = reshard_case_make(seed, ta_group_size(world));
    ta_status status = reshard_case_rank(world, &j);
    reshard_case_free(&j);
    return status;
}

int main(int argc, char **argv)
{
    ta_group *world = rank_begin(&argc, &argv, 60000);
    if (!options_read(argc, argv))
        return rank_end(world, ta_fail(TA_ERR_INVALID, "wrong usage"));
    int cases = options.cases ? options.cases : options.one_seed ? 1 : 20;
    ta_status status = TA_OK;
    for (int i = 0; status == TA_OK && i < cases; ++i)
        status = run_one(world, (options.one_seed ? options.seed : 40) + (uint64_t)i);
    return rank_end(world, status);
}
