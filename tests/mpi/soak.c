/* Decode steps without end on one group of MPI processes (soak_loop.h).
 *
 *     mpi_soak [STEPS [SEED]]        1,000 steps */
#include <stdlib.h>

#include "base/status.h"
#include "lib/case.h"
#include "lib/soak_loop.h"
#include "rank.h"

/* What MPI itself may hold back in its pools, however long it runs. */
#define HEAP_SLACK (1 << 20)

static ta_group *world;

static ta_status launch(int ranks, const ta_group_config *config, ta_rank_fn fn, void *context)
{
    (void)config;
    if (ranks != ta_group_size(world))
        return ta_fail(TA_ERR_INVALID, "a case for %d ranks", ranks);
    return fn(world, context);
}

int main(int argc, char **argv)
{
    soak_restart_without_caches(argv);
    world = rank_begin(&argc, &argv, 60000);
    long steps = argc > 1 ? atol(argv[1]) : 1000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
    case_launch = launch;
    ta_status status =
        soak_run(ta_group_size(world), steps, seed, HEAP_SLACK, ta_group_rank(world) == 0);
    return rank_end(world, status);
}
