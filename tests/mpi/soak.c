/* Decode steps without end on one group of MPI processes (soak_loop.h).
 *
 *     mpi_soak [STEPS [SEED]]        1,000 steps */
#include <stdlib.h>

#include "cases.h"
#include "lib/soak_loop.h"
#include "rank.h"

/* What MPI itself may hold back in its pools, however long it runs. */
#define HEAP_SLACK (1 << 20)

int main(int argc, char **argv)
{
    soak_restart_without_caches(argv);
    ta_group *world = rank_begin(&argc, &argv, 60000);
    long steps = argc > 1 ? atol(argv[1]) : 1000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
    cases_run_on(world);
    ta_status status =
        soak_run(ta_group_size(world), steps, seed, HEAP_SLACK, ta_group_rank(world) == 0);
    return rank_end(world, status);
}
