/* Random decode cases against the oracle (case.h) with one MPI process for each rank: every
 * feature, 8 bits with many of them at once, then every pair of placements.
 *
 *     mpi_decode [--seed N] [--cases N] [--device LIST]
 *
 * LIST names the ranks' devices in turn, see cases.h: "host,simt32,simt64" is a group of all three.
 * */
#include "base/status.h"
#include "cases.h"
#include "lib/case.h"
#include "lib/options.h"

static ta_status run_one(const decode_case *c, bound_worst *worst)
{
    static char failure[2048];
    options.device = cases_own_device;
    if (!case_run(c, worst, failure, sizeof failure))
        return ta_fail(TA_ERR_DEVICE, "%.1000s", failure);
    return TA_OK;
}

static decode_case draw(ta_group *world, uint64_t seed)
{
    options.device = cases_drawn_device;
    return case_random_on(seed, ta_group_size(world));
}

static ta_status run_seeds(ta_group *world, uint64_t first, int count, bound_worst *worst)
{
    for (int i = 0; i < count; ++i) {
        decode_case c = draw(world, first + (uint64_t)i);
        TA_TRY(run_one(&c, worst));
    }
    return TA_OK;
}

/* 8 bits, pages, windows and sinks, all in each case. Reproducible ones are trees. */
static ta_status run_combined(ta_group *world, int count, bound_worst *worst)
{
    for (int i = 0; i < count; ++i) {
        options.device = cases_drawn_device;
        decode_case c = case_combined(8000 + (uint64_t)i, ta_group_size(world));
        if (options.algorithm != TA_ALGORITHM_AUTO && options.algorithm != TA_ALGORITHM_TREE)
            c.plan.reproducible_tile = 0;
        TA_TRY(run_one(&c, worst));
    }
    return TA_OK;
}

static ta_status run_placements(ta_group *world, bound_worst *worst)
{
    int last = ta_group_size(world) - 1;
    for (uint64_t i = 0; i < 9; ++i) {
        decode_case c = draw(world, 5000 + i);
        if (options.each && i % 3 != TA_PLACE_ALL)
            continue; /* this group can't move the queries of a direct exchange */
        c.plan.query_placement = (ta_placement)(i % 3);
        c.plan.out_placement = (ta_placement)(i / 3);
        c.plan.query_root = i % 3 == TA_PLACE_ROOT ? last : 0;
        c.plan.out_root = i / 3 == TA_PLACE_ROOT ? last / 2 : 0;
        TA_TRY(run_one(&c, worst));
    }
    return TA_OK;
}

static ta_status run_all(ta_group *world, bound_worst *worst)
{
    TA_TRY(run_seeds(world, cases_first(), cases_count(), worst));
    if (options.one_seed)
        return TA_OK;
    TA_TRY(run_seeds(world, CASE_LARGE_SEEDS, cases_count() / 100, worst));
    TA_TRY(run_combined(world, cases_count() / 2, worst));
    return run_placements(world, worst);
}

int main(int argc, char **argv)
{
    return cases_main(argc, argv, run_all);
}
